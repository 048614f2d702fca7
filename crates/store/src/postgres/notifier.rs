//! Notifications between nodes about committed changes: `NOTIFY` and `LISTEN` on a connection of their own.
//! `NOTIFY` is never part of a commit, where its lock would serialize all commits. Followers find what a lost
//! notification named by polling, later.

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

/// Approximate maximum bytes of one notification; PostgreSQL accepts less than 8,000.
const PAYLOAD: usize = 7_000;
/// The longest topic that is sent, in bytes; it fits into a notification with its encoding. A longer one is
/// replaced by `Gap`: everything may have changed.
const TOPIC: usize = 4_096;
const AT_ONCE: usize = 1_024;
/// Delay between attempts to connect to the database.
const RETRY: Duration = Duration::from_millis(250);

/// The handle that sends notifications to other nodes.
#[derive(Clone)]
pub(super) struct Notifier {
    outgoing: mpsc::UnboundedSender<StoreNotification>,
    /// Whether no other node is alive.
    alone: Arc<AtomicBool>,
    /// Whether other nodes know of this one.
    known: Arc<AtomicBool>,
    closing: Arc<watch::Sender<bool>>,
}

impl Notifier {
    /// Starts to listen. The receiver yields the notifications of other nodes.
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

    /// Notifies other nodes, if there are any.
    pub(super) fn notify(&self, news: StoreNotification) {
        if !self.alone.load(Ordering::Relaxed) {
            let _ = self.outgoing.send(news);
        }
    }

    /// Sets the number of other live nodes. The first call also announces this node to them: one of them may
    /// believe that it is alone.
    pub(super) fn set_other_nodes(&self, others: i64) {
        self.alone.store(others == 0, Ordering::Relaxed);
        if !self.known.swap(true, Ordering::Relaxed) {
            self.notify(StoreNotification::Gap);
        }
    }

    /// Sends the queued notifications, and stops.
    pub(super) async fn close(&self) {
        self.closing.send_replace(true);
        // The task drops its end when it is done.
        let _ = tokio::time::timeout(Duration::from_secs(1), self.closing.closed()).await;
    }
}

/// The task that owns the connection for sending and receiving.
struct NotifierTask {
    config: Config,
    tls: MakeRustlsConnect,
    channel: String,
    /// The id of this process in notifications, to recognize its own.
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
                    // Notifications of both directions may have been lost while disconnected.
                    while rings.try_recv().is_ok() {}
                    let _ = self.received.send(StoreNotification::Gap);
                    if !self.notify(&client, &[StoreNotification::Gap]).await {
                        continue;
                    }
                    if self.serve_connection(&client, heard, &mut rings, &mut closed).await {
                        return;
                    }
                    tracing::warn!("lost the connection for notifications from other nodes; reconnecting");
                }
                Err(error) => {
                    tracing::debug!(error, "cannot connect for notifications from other nodes; retrying");
                }
            }
            tokio::select! {
                () = tokio::time::sleep(RETRY) => {}
                () = wait_until_closed(&mut closed) => return,
            }
        }
    }

    /// Sends and receives until the connection is lost; returns true when it is time to stop.
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
                // Notifications that arrive while one is being sent go together into the next.
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

    /// Sends notifications; returns whether that succeeded.
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
            // A newer version may send notifications that this one cannot parse: anything may have changed.
            let _ = self.received.send(read(word).unwrap_or(StoreNotification::Gap));
        }
    }
}

/// Returns when it is time to stop.
async fn wait_until_closed(closed: &mut watch::Receiver<bool>) {
    let _ = closed.wait_for(|closed| *closed).await;
}

/// Packs notifications into as few payloads as possible, each task and topic once.
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
