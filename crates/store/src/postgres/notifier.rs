//! Tells other nodes what was committed here, and hears it from them: `NOTIFY` after the commit, on a connection
//! of its own. Never inside a commit, where it would put all of them in a line. What is lost on the way is found
//! by looking, later.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD as BASE64URL};
use futures_util::{StreamExt, stream};
use nuncio_engine::{
    store::{StoreNotification, TaskNo},
    task::TaskId,
};
use tokio::sync::{mpsc, watch};
use tokio_postgres::{AsyncMessage, Client, Config};
use tokio_postgres_rustls::MakeRustlsConnect;
use uuid::Uuid;

use super::pool::CONNECT_WITHIN;

/// Bytes of one notification at most, about; PostgreSQL takes less than 8,000.
const PAYLOAD: usize = 7_000;
/// A longer topic is not told: everything may have changed then. With its encoding it fits into a notification.
const TOPIC: usize = 4_096;
const AT_ONCE: usize = 1_024;
/// Waits between tries at a database that is away.
const RETRY: Duration = Duration::from_millis(250);

/// Rings for others.
#[derive(Clone)]
pub(super) struct Notifier {
    outgoing: mpsc::UnboundedSender<StoreNotification>,
    /// Whether there is nobody to hear it.
    alone: Arc<AtomicBool>,
    /// Whether others were told that this node is there.
    known: Arc<AtomicBool>,
    closing: Arc<watch::Sender<bool>>,
}

impl Notifier {
    /// Begins to listen. The receiver hears what other nodes ring.
    pub(super) fn start(
        config: Config,
        tls: MakeRustlsConnect,
        schema: &str,
    ) -> (Self, mpsc::UnboundedReceiver<StoreNotification>) {
        let (rings, to_ring) = mpsc::unbounded_channel();
        let (hear, heard) = mpsc::unbounded_channel();
        let (closing, closed) = watch::channel(false);
        let alone = Arc::new(AtomicBool::new(false));
        let ringer = NotifierTask {
            config,
            tls,
            channel: format!("nuncio_{schema}"),
            me: Uuid::now_v7(),
            alone: Arc::clone(&alone),
            received: hear,
        };
        tokio::spawn(ringer.run(to_ring, closed));
        (Self { outgoing: rings, alone, known: Arc::default(), closing: Arc::new(closing) }, heard)
    }

    /// Tells other nodes, if there are any.
    pub(super) fn notify(&self, news: StoreNotification) {
        if !self.alone.load(Ordering::Relaxed) {
            let _ = self.outgoing.send(news);
        }
    }

    /// How many other nodes are alive. The first time they are told that this one is, too: one of them may have
    /// thought that it was alone.
    pub(super) fn set_other_nodes(&self, others: i64) {
        self.alone.store(others == 0, Ordering::Relaxed);
        if !self.known.swap(true, Ordering::Relaxed) {
            self.notify(StoreNotification::Gap);
        }
    }

    /// Rings what was to be rung, and stops.
    pub(super) async fn close(&self) {
        self.closing.send_replace(true);
        // The ringer drops its end when it is done.
        let _ = tokio::time::timeout(Duration::from_secs(1), self.closing.closed()).await;
    }
}

/// Keeps a connection for rings of both directions.
struct NotifierTask {
    config: Config,
    tls: MakeRustlsConnect,
    channel: String,
    /// What this process signs with, to know its own rings.
    me: Uuid,
    alone: Arc<AtomicBool>,
    received: mpsc::UnboundedSender<StoreNotification>,
}

impl NotifierTask {
    async fn run(
        self,
        mut rings: mpsc::UnboundedReceiver<StoreNotification>,
        mut closed: watch::Receiver<bool>,
    ) {
        loop {
            match self.connect().await {
                Ok((client, heard)) => {
                    // Whatever was rung on either side meanwhile went unheard.
                    while rings.try_recv().is_ok() {}
                    let _ = self.received.send(StoreNotification::Gap);
                    if !self.notify(&client, &[StoreNotification::Gap]).await {
                        continue;
                    }
                    if self.serve_connection(&client, heard, &mut rings, &mut closed).await {
                        return;
                    }
                    tracing::warn!("the connection for news from other nodes was lost; connecting again");
                }
                Err(error) => tracing::debug!(error, "no connection for news from other nodes"),
            }
            tokio::select! {
                () = tokio::time::sleep(RETRY) => {}
                () = wait_until_closed(&mut closed) => return,
            }
        }
    }

    /// Rings and hears until the connection is lost; true when it is time to stop.
    async fn serve_connection(
        &self,
        client: &Client,
        mut heard: mpsc::UnboundedReceiver<String>,
        rings: &mut mpsc::UnboundedReceiver<StoreNotification>,
        closed: &mut watch::Receiver<bool>,
    ) -> bool {
        let mut news = vec![];
        loop {
            tokio::select! {
                payload = heard.recv() => match payload {
                    Some(payload) => self.receive(&payload),
                    None => return false,
                },
                // What comes while one is under way goes together into the next.
                count = rings.recv_many(&mut news, AT_ONCE) => {
                    if count == 0 {
                        return true;
                    }
                    if !self.notify(client, &news).await {
                        return false;
                    }
                    news.clear();
                }
                () = wait_until_closed(closed) => {
                    while let Ok(last) = rings.try_recv() {
                        news.push(last);
                    }
                    self.notify(client, &news).await;
                    return true;
                }
            }
        }
    }

    async fn connect(&self) -> Result<(Client, mpsc::UnboundedReceiver<String>), String> {
        let connecting = tokio::time::timeout(CONNECT_WITHIN, self.config.connect(self.tls.clone()));
        let (client, mut connection) =
            connecting.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        let (give, heard) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut messages = stream::poll_fn(move |cx| connection.poll_message(cx));
            while let Some(Ok(message)) = messages.next().await {
                if let AsyncMessage::Notification(notification) = message
                    && give.send(notification.payload().to_owned()).is_err()
                {
                    return;
                }
            }
        });
        let listen = format!("LISTEN {}", self.channel);
        client.batch_execute(&listen).await.map_err(|error| error.to_string())?;
        Ok((client, heard))
    }

    /// Rings; whether it could.
    async fn notify(&self, client: &Client, news: &[StoreNotification]) -> bool {
        for payload in payloads(self.me, news) {
            let rung = async { client.execute("SELECT pg_notify($1, $2)", &[&self.channel, &payload]).await };
            match tokio::time::timeout(CONNECT_WITHIN, rung).await {
                Ok(Ok(_)) => {}
                Ok(Err(_)) | Err(_) => return false,
            }
        }
        true
    }

    fn receive(&self, payload: &str) {
        let mut words = payload.split(' ');
        if words.next().and_then(|from| Uuid::try_parse(from).ok()) == Some(self.me) {
            return;
        }
        self.alone.store(false, Ordering::Relaxed);
        for word in words {
            // A word of a newer version may be anything.
            let _ = self.received.send(read(word).unwrap_or(StoreNotification::Gap));
        }
    }
}

/// Returns when it is time to stop.
async fn wait_until_closed(closed: &mut watch::Receiver<bool>) {
    let _ = closed.wait_for(|closed| *closed).await;
}

/// News in as few notifications as they fit into, each task and topic once.
fn payloads(me: Uuid, news: &[StoreNotification]) -> Vec<String> {
    let mut tasks: HashMap<TaskNo, (TaskId, u64)> = HashMap::new();
    let mut topics: BTreeSet<&str> = BTreeSet::new();
    let (mut gap, mut due, mut deliveries) = (false, false, false);
    for news in news {
        match news {
            StoreNotification::Gap => gap = true,
            StoreNotification::Due => due = true,
            StoreNotification::Deliveries => deliveries = true,
            StoreNotification::Task { no, id, seq } => {
                let known = tasks.entry(*no).or_insert((*id, *seq));
                known.1 = known.1.max(*seq);
            }
            StoreNotification::Knowledge(topic) if topic.len() <= TOPIC => {
                topics.insert(topic);
            }
            StoreNotification::Knowledge(_) => gap = true,
        }
    }
    let signed = || me.simple().to_string();
    let mut payloads = vec![signed()];
    let words = [(gap, "g"), (due, "d"), (deliveries, "o")].into_iter().filter(|(on, _)| *on);
    for (_, word) in words {
        payloads[0].push(' ');
        payloads[0].push_str(word);
    }
    let tasks = tasks.iter().map(|(no, (id, seq))| format!(" t{}.{seq}.{}", no.0, id.0.simple()));
    let topics = topics.iter().map(|topic| format!(" k{}", BASE64URL.encode(topic)));
    for word in tasks.chain(topics) {
        if payloads.last().is_some_and(|payload| payload.len() + word.len() > PAYLOAD) {
            payloads.push(signed());
        }
        if let Some(payload) = payloads.last_mut() {
            payload.push_str(&word);
        }
    }
    payloads.retain(|payload| payload.contains(' '));
    payloads
}

fn read(word: &str) -> Option<StoreNotification> {
    match word {
        "g" => Some(StoreNotification::Gap),
        "d" => Some(StoreNotification::Due),
        "o" => Some(StoreNotification::Deliveries),
        _ if word.starts_with('k') => {
            let topic = BASE64URL.decode(&word[1..]).ok()?;
            Some(StoreNotification::Knowledge(String::from_utf8(topic).ok()?))
        }
        _ => {
            let mut parts = word.strip_prefix('t')?.split('.');
            let no = TaskNo(parts.next()?.parse().ok()?);
            let seq = parts.next()?.parse().ok()?;
            let id = TaskId(Uuid::try_parse(parts.next()?).ok()?);
            Some(StoreNotification::Task { no, id, seq })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_rung_is_heard_each_task_once_and_in_time_for_postgres() {
        let task = |n: u64, seq| StoreNotification::Task {
            no: TaskNo(n as i64),
            id: TaskId(Uuid::from_u64_pair(n, n)),
            seq,
        };
        let mut news = vec![StoreNotification::Due, StoreNotification::Deliveries, StoreNotification::Due];
        news.extend((1..=500).map(|n| task(n, 3)));
        news.extend((1..=500).map(|n| task(n, 1 + n % 5)));
        let payloads = payloads(Uuid::nil(), &news);
        assert!(payloads.len() > 1 && payloads.iter().all(|payload| payload.len() < 8_000));
        let heard: Vec<StoreNotification> = payloads
            .iter()
            .flat_map(|payload| payload.split(' ').skip(1))
            .map(|word| read(word).unwrap())
            .collect();
        assert_eq!(heard.len(), 502);
        assert!(heard.contains(&StoreNotification::Due) && heard.contains(&StoreNotification::Deliveries));
        for n in 1..=500 {
            assert!(heard.contains(&task(n, 3.max(1 + n % 5))));
        }
        assert_eq!(super::payloads(Uuid::nil(), &[]), Vec::<String>::new());
    }

    #[test]
    fn topics_are_heard_as_they_were_rung_and_long_ones_as_a_gap() {
        let topic = |text: &str| StoreNotification::Knowledge(text.to_owned());
        let long = "é".repeat(TOPIC / 2);
        let mut news =
            vec![topic("=acme\nmemory://data/n/a b"), topic(""), topic(&long), topic("=x"), topic("=x")];
        news.extend((0..500).map(|n| topic(&format!("^acme\n{n}"))));
        let payloads = payloads(Uuid::nil(), &news);
        assert!(payloads.len() > 1 && payloads.iter().all(|payload| payload.len() < 8_000));
        let heard: Vec<StoreNotification> = payloads
            .iter()
            .flat_map(|payload| payload.split(' ').skip(1))
            .map(|word| read(word).unwrap())
            .collect();
        assert_eq!(heard.len(), 504, "each once");
        assert!(news.iter().all(|news| heard.contains(news)));
        let too_long = topic(&format!("{long}x"));
        assert_eq!(super::payloads(Uuid::nil(), &[too_long]), [format!("{} g", Uuid::nil().simple())]);
    }

    #[test]
    fn what_is_not_understood_is_nothing() {
        for word in ["", "x", "t", "t1.2", "t1.2.3", "tx.2.00000000000000000000000000000001", "k*", "k_w"] {
            assert_eq!(read(word), None, "{word}");
        }
    }
}
