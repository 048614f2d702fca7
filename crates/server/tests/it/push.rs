//! Webhooks end to end: an engine on a real store, its outbox, and receivers that behave badly.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
    path::Path,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use nuncio_engine::{
    Agent, AgentError, Caller, Catalog, Engine, EngineParts, Error, Message, Outcome, Profile, Role, Submit,
    TaskContext,
    clock::{Clock, SystemClock},
    outbox::{Outbox, OutboxOptions, RetrySchedule},
    store::{DeadLetter, Store},
    webhook::{Authentication, WebhookConfig},
};
use nuncio_outbound::{AddressPolicy, HostLookup, Outbound, OutboundOptions, SystemHostLookup, USER_AGENT};
use nuncio_server::{push::HttpWebhookSender, signature::SigningSecret};
use nuncio_store::SqliteOptions;
use nuncio_testkit::open_in;
use serde_json::Value;
use tokio::{sync::watch, task::JoinHandle};

use crate::receiver::{Got, Reaction, Receiver, until};

const SECRET: &str = "whsec_bnVuY2lvLXRlc3RzLXNpZ24td2l0aC10aGlz";

#[tokio::test]
async fn a_delivery_says_who_sent_it_and_speaks_the_dialect_of_its_registration() {
    let receiver = Receiver::new(|_, _| Reaction::Answer(200)).await;
    let house = House::new().await;
    let hook = |id: &str, dialect: &str| WebhookConfig {
        id: id.into(),
        url: receiver.url(&format!("/{id}?x=1")),
        token: Some("t0ken".into()),
        authentication: Some(Authentication {
            schemes: vec!["Bearer".into(), "Basic".into()],
            credentials: Some("s3cret".into()),
        }),
        dialect: dialect.into(),
    };
    let plain = WebhookConfig { token: None, authentication: None, ..hook("plain", "a2a/0.3") };
    let hooks = vec![hook("old", "a2a/0.1"), hook("mid", "a2a/0.3"), hook("new", "a2a/1.0"), plain];
    let task = house.submit("3", hooks).await;
    let last = house.last_seq(&task).await;
    until("the end, in each dialect", async || {
        let got = receiver.got();
        ["old", "mid", "new", "plain"]
            .iter()
            .all(|hook| got.iter().any(|got| got.id() == format!("{task}.{hook}.{last}")))
    })
    .await;

    for got in receiver.got() {
        let (_, seq) = got.task_and_seq();
        assert_eq!(got.header("user-agent"), USER_AGENT);
        assert_eq!(
            verify(&got.id(), got.header("webhook-timestamp"), &got.body),
            got.header("webhook-signature")
        );
        let age = SystemClock.now().0 / 1000 - got.header("webhook-timestamp").parse::<i64>().unwrap();
        assert!((0..60).contains(&age), "{age}");
        let known =
            if got.path.starts_with("/plain") { ["", "", ""] } else { ["t0ken", "t0ken", "Bearer s3cret"] };
        let names = ["x-a2a-notification-token", "a2a-notification-token", "authorization"];
        assert_eq!(names.map(|name| got.header(name)), known);
        let body: Value = serde_json::from_str(&got.body).unwrap();
        match &*got.path {
            "/old?x=1" => {
                assert_eq!((got.header("content-type"), seq), ("application/json", last));
                assert_eq!(body["status"]["state"], "completed");
                assert!(body.get("kind").is_none(), "{body}");
            }
            "/mid?x=1" | "/plain?x=1" => {
                assert_eq!((got.header("content-type"), seq), ("application/json", last));
                assert_eq!((&body["kind"], &body["status"]["state"]), (&"task".into(), &"completed".into()));
                assert_eq!(body["artifacts"][0]["parts"][0]["text"], "0 1 2 ");
            }
            "/new?x=1" => assert_eq!(got.header("content-type"), "application/a2a+json"),
            other => panic!("{other}"),
        }
    }
    let new: Vec<Value> = receiver
        .got()
        .iter()
        .filter(|got| got.path.starts_with("/new"))
        .map(|got| serde_json::from_str(&got.body).unwrap())
        .collect();
    let chunks: Vec<&Value> = new.iter().filter(|body| body.get("artifactUpdate").is_some()).collect();
    assert_eq!(chunks.len(), 3, "{new:?}");
    assert_eq!(new.last().unwrap()["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
    house.close().await;
}

/// 500, a reset connection, a hang, and only then yes: for every fourth event of many tasks at once.
#[tokio::test]
async fn order_and_ids_are_kept_whatever_the_receiver_does() {
    let receiver = Receiver::new(|got, repeats| match (got.task_and_seq().1 % 4, repeats) {
        (0, 0) => Reaction::Answer(500),
        (0, 1) => Reaction::Reset,
        (0, 2) => Reaction::Hang,
        _ => Reaction::Answer(204),
    })
    .await;
    let outbound = OutboundOptions { timeout: Duration::from_millis(800), ..allowing_loopback() };
    let house = House::with(outbound, impatient(), Arc::new(SystemHostLookup)).await;
    let mut tasks = BTreeMap::new();
    for n in 0..6 {
        let task = house.submit("9", vec![hook(&receiver.url(&format!("/{n}")))]).await;
        let last = house.last_seq(&task).await;
        tasks.insert(task, last);
    }
    until("the last event of every task", async || {
        let taken: BTreeSet<_> = receiver.taken().iter().map(Got::task_and_seq).collect();
        tasks.iter().all(|(task, last)| taken.contains(&(task.clone(), *last)))
    })
    .await;

    let (taken, all) = (receiver.taken(), receiver.got());
    for task in tasks.keys() {
        let of_task = |got: &&Got| got.task_and_seq().0 == *task;
        let seqs: Vec<u64> = taken.iter().filter(of_task).map(|got| got.task_and_seq().1).collect();
        assert!(seqs.is_sorted_by(|a, b| a < b), "in order, each once: {seqs:?}");
        assert!(seqs.len() >= 10, "{seqs:?}");
        // Attempts come in order as well: nothing is tried before what precedes it was taken.
        let attempts: Vec<u64> = all.iter().filter(of_task).map(|got| got.task_and_seq().1).collect();
        assert!(attempts.is_sorted(), "{attempts:?}");
        for seq in seqs.iter().filter(|seq| *seq % 4 == 0) {
            let reactions: Vec<Reaction> = all
                .iter()
                .filter(|got| got.task_and_seq() == (task.clone(), *seq))
                .map(|got| got.reaction)
                .collect();
            let expected = [Reaction::Answer(500), Reaction::Reset, Reaction::Hang, Reaction::Answer(204)];
            assert_eq!(reactions, expected, "one id, four attempts");
        }
    }
    assert!(house.dead().await.is_empty());
    house.close().await;
}

/// The hanging ones would take an hour; whoever waited for them would never arrive here.
#[tokio::test]
async fn a_hanging_receiver_delays_nobody_else() {
    let hanging = Receiver::new(|_, _| Reaction::Hang).await;
    let good = Receiver::new(|_, _| Reaction::Answer(200)).await;
    let hour = Duration::from_secs(3600);
    let outbound = OutboundOptions { timeout: hour, connect_timeout: hour, ..allowing_loopback() };
    let options = OutboxOptions { concurrency: 8, timeout: hour, lease: 3 * hour, ..impatient() };
    let house = House::with(outbound, options, Arc::new(SystemHostLookup)).await;
    let mut tasks = BTreeSet::new();
    for n in 0..60 {
        house.submit("1", vec![hook(&hanging.url(&format!("/{n}")))]).await;
        tasks.insert(house.submit("1", vec![hook(&good.url(&format!("/{n}")))]).await);
    }
    until("all that the good one is to get", async || {
        let last = |got: &Got| got.body.contains("TASK_STATE_COMPLETED");
        let done: BTreeSet<_> =
            good.got().iter().filter(|got| last(got)).map(|got| got.task_and_seq().0).collect();
        done == tasks
    })
    .await;
    assert!(!hanging.got().is_empty(), "and the other one was tried");
    assert!(hanging.taken().is_empty());
    house.close().await;
}

#[tokio::test]
async fn what_is_given_up_is_a_dead_letter_and_can_be_replayed() {
    let well = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_well = Arc::clone(&well);
    let receiver = Receiver::new(move |got, _| {
        let is_first = got.body.contains("\"0 \"");
        let well = is_well.load(std::sync::atomic::Ordering::SeqCst);
        if is_first && !well { Reaction::Answer(500) } else { Reaction::Answer(200) }
    })
    .await;
    let house = House::new().await;
    let secret_path = WebhookConfig { token: Some("t0ken".into()), ..hook(&receiver.url("/s3cret?s3cret")) };
    let task = house.submit("3", vec![secret_path]).await;
    let last = house.last_seq(&task).await;
    until("the last event, past the dead one", async || {
        receiver.taken().iter().any(|got| got.task_and_seq().1 == last)
    })
    .await;
    let dead = house.dead().await;
    assert_eq!(dead.len(), 1, "{dead:?}");
    let letter = &dead[0];
    assert_eq!(letter.task.to_string(), task);
    assert!(letter.reason.contains("given up after") && letter.reason.contains("500"), "{}", letter.reason);
    assert!(!letter.reason.contains("s3cret") && !letter.reason.contains("t0ken"), "{}", letter.reason);
    let attempts = receiver.got().iter().filter(|got| got.id() == letter.delivery).count();
    assert!(attempts > 2, "{attempts}");

    // Replayed while the receiver is still ill: one attempt, dead again.
    house.replay(&letter.delivery).await;
    until("one more attempt, and a newer reason", async || {
        let again = receiver.got().iter().filter(|got| got.id() == letter.delivery).count();
        again == attempts + 1 && house.dead().await.first().is_some_and(|dead| dead.reason != letter.reason)
    })
    .await;

    well.store(true, std::sync::atomic::Ordering::SeqCst);
    house.replay(&letter.delivery).await;
    until("no dead letter", async || house.dead().await.is_empty()).await;
    let taken = receiver.taken();
    let replayed = taken.iter().filter(|got| got.id() == letter.delivery).count();
    assert_eq!(replayed, 1, "delivered after all, under its id");
    house.close().await;
}

#[tokio::test]
async fn gone_means_gone_at_once_and_the_next_event_is_sent() {
    let receiver = Receiver::new(|got, _| match got.body.contains("\"0 \"") {
        true => Reaction::Answer(410),
        false => Reaction::Answer(200),
    })
    .await;
    let house = House::new().await;
    let task = house.submit("2", vec![hook(&receiver.url("/"))]).await;
    let last = house.last_seq(&task).await;
    until("the last event", async || receiver.taken().iter().any(|got| got.task_and_seq().1 == last)).await;
    let dead = house.dead().await;
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].reason, "the receiver answered 410 Gone");
    assert_eq!(receiver.got().iter().filter(|got| got.id() == dead[0].delivery).count(), 1);
    house.close().await;
}

/// A name that was public when the webhook was registered and means loopback when it is delivered to.
#[tokio::test]
async fn an_address_that_is_refused_at_the_connection_is_a_dead_letter_that_says_how_to_allow_it() {
    struct Loopback;
    #[async_trait]
    impl HostLookup for Loopback {
        async fn lookup(&self, _: &str) -> io::Result<Vec<IpAddr>> {
            Ok(vec![IpAddr::from([127, 0, 0, 1])])
        }
    }
    let receiver = Receiver::new(|_, _| Reaction::Answer(200)).await;
    let house = House::with(OutboundOptions::default(), impatient(), Arc::new(Loopback)).await;
    let refused = house.try_submit("1", vec![hook(&receiver.url("/"))]).await.unwrap_err();
    assert!(matches!(refused, Error::Invalid(_)), "{refused}");
    assert!(refused.to_string().contains("--allow-private-webhooks"), "{refused}");

    let sly = format!("http://rebind.example:{}/", receiver.port());
    let task = house.submit("1", vec![hook(&sly)]).await;
    let last = house.last_seq(&task).await;
    until("a dead letter for the end", async || house.dead().await.iter().any(|dead| dead.seq == last)).await;
    for letter in house.dead().await {
        assert!(letter.reason.contains("127.0.0.1 is a loopback address"), "{}", letter.reason);
        assert!(letter.reason.contains("--allow-private-webhooks"), "{}", letter.reason);
    }
    assert!(receiver.got().is_empty());
    house.close().await;
}

/// A server that stops while a receiver is ill goes on where it was, under the same ids.
#[tokio::test]
async fn a_restart_continues_with_the_same_ids() {
    let well = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_well = Arc::clone(&well);
    let receiver = Receiver::new(move |got, _| {
        let well = is_well.load(std::sync::atomic::Ordering::SeqCst);
        if got.task_and_seq().1 > 2 && !well { Reaction::Answer(503) } else { Reaction::Answer(200) }
    })
    .await;
    let schedule = RetrySchedule { give_up_after: Duration::from_secs(3600), ..impatient().schedule };
    let patient = OutboxOptions { schedule, ..impatient() };
    let house = House::with(allowing_loopback(), patient.clone(), Arc::new(SystemHostLookup)).await;
    let task = house.submit("4", vec![hook(&receiver.url("/"))]).await;
    let last = house.last_seq(&task).await;
    until("some refusals", async || receiver.got().len() > receiver.taken().len() + 3).await;
    let folder = house.close().await;
    well.store(true, std::sync::atomic::Ordering::SeqCst);
    let before = receiver.got().len();

    let house = House::in_folder(folder, allowing_loopback(), patient, Arc::new(SystemHostLookup)).await;
    until("the end", async || receiver.taken().iter().any(|got| got.task_and_seq().1 == last)).await;
    let got = receiver.got();
    assert_eq!(got[before].id(), got[before - 1].id(), "it continues with the delivery that had failed");
    let taken: Vec<u64> = receiver.taken().iter().map(|got| got.task_and_seq().1).collect();
    assert!(taken.is_sorted_by(|a, b| a < b), "{taken:?}");
    house.close().await;
}

// ------------------------------------------------------------------------------------------------ house

/// Writes as many chunks as it is told, each in its own commit.
struct Counting;

#[async_trait]
impl Agent for Counting {
    fn profile(&self) -> Profile {
        Profile::new("counting", "Counts.")
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        let count: u32 = cx.text().parse().map_err(AgentError::failed)?;
        for n in 0..count {
            cx.artifact(nuncio_engine::Chunk::text("count", format!("{n} "))).await?;
            cx.step(&format!("step {n}"), async |_| Ok(())).await?;
        }
        Ok(Outcome::done())
    }
}

/// An engine with its outbox, in a folder of its own.
struct House {
    folder: tempfile::TempDir,
    engine: Engine,
    stop: watch::Sender<bool>,
    outbox: JoinHandle<()>,
}

fn allowing_loopback() -> OutboundOptions {
    OutboundOptions { policy: AddressPolicy { allow_private: true }, ..OutboundOptions::default() }
}

/// Retries within milliseconds, gives up within a second.
fn impatient() -> OutboxOptions {
    let schedule = RetrySchedule {
        first: Duration::from_millis(10),
        longest: Duration::from_millis(100),
        give_up_after: Duration::from_millis(500),
        ..RetrySchedule::default()
    };
    OutboxOptions { schedule, grace: Duration::from_millis(100), ..OutboxOptions::default() }
}

impl House {
    async fn new() -> Self {
        Self::with(allowing_loopback(), impatient(), Arc::new(SystemHostLookup)).await
    }

    async fn with(outbound: OutboundOptions, options: OutboxOptions, lookup: Arc<dyn HostLookup>) -> Self {
        Self::in_folder(tempfile::tempdir().unwrap(), outbound, options, lookup).await
    }

    async fn in_folder(
        folder: tempfile::TempDir,
        outbound: OutboundOptions,
        options: OutboxOptions,
        lookup: Arc<dyn HostLookup>,
    ) -> Self {
        let outbound = Outbound::with_lookup(outbound, lookup).unwrap();
        let secret = SigningSecret::parse(SECRET).unwrap();
        let courier = Arc::new(HttpWebhookSender::new(outbound, secret, Arc::new(SystemClock)));
        let mut catalog = Catalog::default();
        catalog.add(Arc::new(Counting)).unwrap();
        let check = Arc::clone(&courier);
        let parts = EngineParts {
            check_webhook: Box::new(move |config| check.check_config(config).map_err(|e| e.to_string())),
            ..EngineParts::new(open(folder.path()).await, catalog)
        };
        let engine = Engine::start(parts).await.unwrap();
        let (store, clock) = (Arc::clone(engine.store_for_tests()), Arc::new(SystemClock));
        let outbox = Outbox::new(store, clock, courier, engine.node(), engine.outbox(), options);
        let (stop, stopped) = watch::channel(false);
        Self { folder, engine, stop, outbox: tokio::spawn(outbox.run(stopped)) }
    }

    async fn try_submit(&self, text: &str, webhooks: Vec<WebhookConfig>) -> Result<String, Error> {
        let message = Message::text("m", Role::User, text);
        let mut submit = Submit::new("counting", message);
        (submit.webhooks, submit.dialect) = (webhooks, "a2a/1.0".into());
        Ok(self.engine.submit(&Caller::local(), submit).await?.origin.id.to_string())
    }

    async fn submit(&self, text: &str, webhooks: Vec<WebhookConfig>) -> String {
        self.try_submit(text, webhooks).await.unwrap()
    }

    /// The number of the task's last event, once it has ended.
    async fn last_seq(&self, task: &str) -> u64 {
        let get = async || self.engine.get(&Caller::local(), task).await.unwrap();
        until("the end of the task", async || get().await.state.is_terminal()).await;
        get().await.seq
    }

    async fn dead(&self) -> Vec<DeadLetter> {
        self.engine.store_for_tests().dead_letters(100).await.unwrap()
    }

    async fn replay(&self, delivery: &str) {
        let replayed =
            self.engine.store_for_tests().replay_dead_letters(Some(delivery), SystemClock.now()).await;
        assert_eq!(replayed.unwrap(), 1);
        self.engine.outbox().notify_one();
    }

    async fn close(self) -> tempfile::TempDir {
        self.stop.send(true).unwrap();
        self.outbox.await.unwrap();
        self.engine.stop().await;
        self.folder
    }
}

async fn open(folder: &Path) -> Arc<dyn Store> {
    open_in(folder, SqliteOptions::default()).await
}

fn hook(url: &str) -> WebhookConfig {
    WebhookConfig {
        id: "hook".into(),
        url: url.into(),
        token: None,
        authentication: None,
        dialect: "a2a/1.0".into(),
    }
}

/// The signature, by another implementation than ours.
fn verify(id: &str, timestamp: &str, body: &str) -> String {
    let key = BASE64_STANDARD.decode(SECRET.strip_prefix("whsec_").unwrap()).unwrap();
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &key);
    let tag = ring::hmac::sign(&key, format!("{id}.{timestamp}.{body}").as_bytes());
    format!("v1,{}", BASE64_STANDARD.encode(tag))
}
