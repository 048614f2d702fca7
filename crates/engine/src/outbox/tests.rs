//! The outbox loop against an in-memory store and a scripted sender, on a clock that jumps: hours of retries take
//! milliseconds. The server crate tests it with a real store and real HTTP.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard},
};

use bytes::Bytes;
use futures_util::{FutureExt as _, future::BoxFuture};
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use super::*;
use crate::{
    content::Part,
    event::{self, ArtifactChunk, Event},
    store::*,
    task::State,
    task_header::{TaskHeader, encode_snapshot},
};

// ---------------------------------------------------------------------------------------------- stories

#[tokio::test(start_paused = true)]
async fn events_arrive_in_order_each_with_the_task_of_its_time() {
    let world = World::new(|_| DeliveryResult::Delivered);
    let task = world.task(&["http://a/hook"]);
    for n in 1..=5 {
        world.append(task, vec![text(n)]);
    }
    let outbox = world.start(OutboxOptions::default());
    world.until(|world| world.cursor(task, 0) == 5).await;
    world.append(task, vec![text(6), text(7)]);
    world.wake.notify_one();
    world.until(|world| world.cursor(task, 0) == 7).await;
    let seen: Vec<_> =
        world.calls().iter().map(|call| (call.seq, call.task_seq, call.text.clone())).collect();
    let expected: Vec<_> =
        (1..=7).map(|n| (n, n, (1..=n).map(|n| n.to_string()).collect::<String>())).collect();
    assert_eq!(seen, expected);
    outbox.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_failing_delivery_is_repeated_on_schedule_under_the_same_id_and_blocks_what_follows() {
    let world = World::new(|call| match (call.seq, call.attempt) {
        (2, ..4) => DeliveryResult::Retry { after: None, reason: "500".into() },
        _ => DeliveryResult::Delivered,
    });
    let task = world.task(&["http://a/hook"]);
    world.append(task, vec![text(1), text(2), text(3)]);
    let outbox = world.start(OutboxOptions::default());
    world.until(|world| world.cursor(task, 0) == 3).await;
    let calls = world.calls();
    let seen: Vec<_> = calls.iter().map(|call| (call.seq, call.attempt, call.at.as_secs())).collect();
    assert_eq!(seen, [(1, 1, 0), (2, 1, 0), (2, 2, 1), (2, 3, 3), (2, 4, 7), (3, 1, 7)]);
    let ids: BTreeSet<_> = calls.iter().map(|call| &call.id).collect();
    assert_eq!(ids.len(), 3);
    assert_eq!(calls[1].id, format!("{}.hook-0.2", world.id(task)));
    outbox.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_asks_for_time_gets_it() {
    let world = World::new(|call| match call.attempt {
        1 => DeliveryResult::Retry { after: Some(Duration::from_secs(90)), reason: "429".into() },
        _ => DeliveryResult::Delivered,
    });
    let task = world.task(&["http://a/hook"]);
    world.append(task, vec![text(1)]);
    let outbox = world.start(OutboxOptions::default());
    world.until(|world| world.cursor(task, 0) == 1).await;
    assert_eq!(world.calls()[1].at.as_secs(), 90);
    outbox.stop().await;
}

#[tokio::test(start_paused = true)]
async fn after_a_day_a_delivery_is_a_dead_letter_and_the_next_goes_on() {
    let world = World::new(|call| match call.seq {
        1 => DeliveryResult::Retry { after: None, reason: "500".into() },
        _ => DeliveryResult::Delivered,
    });
    let task = world.task(&["http://a/hook"]);
    world.append(task, vec![text(1), text(2)]);
    let outbox = world.start(OutboxOptions::default());
    world.until(|world| world.cursor(task, 0) == 2).await;
    let calls = world.calls();
    assert_eq!(calls.len(), 37);
    assert!((24..26).contains(&(calls[35].at.as_secs() / 3600)), "{:?}", calls[35].at);
    let dead = world.store.dead_letters(10).await.unwrap();
    assert_eq!(dead.len(), 1);
    assert_eq!((dead[0].seq, &*dead[0].delivery), (1, &*calls[0].id));
    assert_eq!(dead[0].reason, "given up after 36 attempts: 500");
    outbox.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_is_replayed_once_per_replay() {
    let world = World::new(|call| match call.at.as_secs() {
        0 => DeliveryResult::Dead { reason: "410".into() },
        1 => DeliveryResult::Retry { after: None, reason: "500".into() },
        _ => DeliveryResult::Delivered,
    });
    let task = world.task(&["http://a/hook"]);
    world.append(task, vec![text(1)]);
    let outbox = world.start(OutboxOptions::default());
    world.until(|world| world.dead().len() == 1 && world.calls().len() == 1).await;

    sleep(Duration::from_secs(1)).await;
    world.replay().await;
    world.until(|world| world.calls().len() == 2 && world.dead().len() == 1).await;
    assert_eq!(world.dead()[0].reason, "500");

    sleep(Duration::from_secs(100)).await;
    assert_eq!(world.calls().len(), 2, "a replay that fails is not retried");
    world.replay().await;
    world.until(|world| world.dead().is_empty()).await;
    let ids: BTreeSet<_> = world.calls().into_iter().map(|call| call.id).collect();
    assert_eq!(ids.len(), 1, "a replay has the id of the delivery");
    assert_eq!(world.cursor(task, 0), 1);
    outbox.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_hanging_endpoint_delays_nobody_else() {
    let world = World::answering(|call| {
        let hangs = call.url.contains("hang");
        async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            DeliveryResult::Delivered
        }
        .boxed()
    });
    // The hanging ones are due first, and many more than there are slots.
    let hanging: Vec<_> = (0..300).map(|n| world.task(&[&format!("http://hang-{}/", n % 3)])).collect();
    let good: Vec<_> = (0..50).map(|_| world.task(&["http://good/"])).collect();
    for task in hanging.iter().chain(&good) {
        world.append(*task, vec![text(1)]);
    }
    let options = OutboxOptions { concurrency: 16, ..OutboxOptions::default() };
    let outbox = world.start(options);
    world.until(|world| good.iter().all(|task| world.cursor(*task, 0) == 1)).await;
    let last = world.calls().iter().filter(|call| call.url.contains("good")).map(|call| call.at).max();
    assert!(last < Some(Duration::from_millis(500)), "{last:?}");

    // Nor later, when all of them hang again and again.
    sleep(Duration::from_secs(300)).await;
    let late = world.task(&["http://good/"]);
    world.append(late, vec![text(1)]);
    let began = world.sender.began.elapsed();
    world.wake.notify_one();
    world.until(|world| world.cursor(late, 0) == 1).await;
    let id = delivery_id(world.id(late), "hook-0", 1);
    let call = world.calls().into_iter().find(|call| call.id == id).unwrap();
    assert!(call.at - began < Duration::from_millis(500), "{:?}", call.at - began);
    outbox.stop().await;
}

/// A round that sent nothing is no evidence about the endpoint: it must not increase the endpoint's share.
#[tokio::test(start_paused = true)]
async fn rounds_with_nothing_to_send_do_not_widen_the_lane_of_a_hanging_endpoint() {
    let world = World::answering(|call| match (call.url.contains("hanging"), call.seq) {
        (true, 1) => async { DeliveryResult::NothingToSend }.boxed(),
        (true, _) => std::future::pending().boxed(),
        _ => async { DeliveryResult::Delivered }.boxed(),
    });
    for n in 0..40 {
        let task = world.task(&["http://hanging/"]);
        // The first tasks have nothing to send; the others have an event that hangs.
        world.append(task, (1..=if n < 20 { 1 } else { 2 }).map(text).collect());
    }
    let hour = Duration::from_secs(3600);
    let options = OutboxOptions {
        concurrency: 8,
        per_endpoint: 8,
        timeout: hour,
        lease: 3 * hour,
        ..OutboxOptions::default()
    };
    let outbox = world.start(options);
    let hung = |world: &World| world.calls().iter().filter(|call| call.seq == 2).count();
    world.until(|world| hung(world) >= 4).await;
    let good = world.task(&["http://good/"]);
    world.append(good, vec![text(1)]);
    world.wake.notify_one();
    world.until(|world| world.cursor(good, 0) == 1).await;
    assert_eq!(hung(&world), 4, "half of what one endpoint may have");
    outbox.stop().await;
}

#[tokio::test(start_paused = true)]
async fn one_endpoint_has_its_share_and_no_more() {
    let (now, most) = (Arc::new(Mutex::new(0_usize)), Arc::new(Mutex::new(0_usize)));
    let (inside, peak) = (Arc::clone(&now), Arc::clone(&most));
    let world = World::answering(move |_| {
        let (inside, peak) = (Arc::clone(&inside), Arc::clone(&peak));
        async move {
            let running = {
                let mut inside = inside.lock().unwrap();
                *inside += 1;
                *inside
            };
            let highest = (*peak.lock().unwrap()).max(running);
            *peak.lock().unwrap() = highest;
            sleep(Duration::from_millis(10)).await;
            *inside.lock().unwrap() -= 1;
            DeliveryResult::Delivered
        }
        .boxed()
    });
    let tasks: Vec<_> = (0..500).map(|_| world.task(&["http://busy/hook"])).collect();
    for task in &tasks {
        world.append(*task, vec![text(1)]);
    }
    let outbox = world.start(OutboxOptions::default());
    world.until(|world| tasks.iter().all(|task| world.cursor(*task, 0) == 1)).await;
    assert_eq!(*most.lock().unwrap(), 8);
    outbox.stop().await;
}

/// More than may wait for one endpoint: the rest returns after its lease, and no failure is counted.
#[tokio::test(start_paused = true)]
async fn what_finds_no_room_waits_for_its_lease_and_is_no_attempt() {
    let world =
        World::answering(|_| sleep(Duration::from_secs(2)).map(|()| DeliveryResult::Delivered).boxed());
    let tasks: Vec<_> = (0..200).map(|_| world.task(&["http://slow/hook"])).collect();
    for task in &tasks {
        world.append(*task, vec![text(1)]);
    }
    // A hundred of them wait, some of them for longer than their lease.
    let options = OutboxOptions { waiting_per_endpoint: 100, per_endpoint: 2, ..OutboxOptions::default() };
    let outbox = world.start(options);
    world.until(|world| tasks.iter().all(|task| world.cursor(*task, 0) == 1)).await;
    let calls = world.calls();
    assert_eq!(calls.len(), 200, "each once");
    assert!(calls.iter().all(|call| call.attempt == 1));
    outbox.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_event_without_words_is_passed_over() {
    let world =
        World::new(
            |call| if call.seq % 2 == 0 { DeliveryResult::NothingToSend } else { DeliveryResult::Delivered },
        );
    let task = world.task(&["http://a/hook"]);
    world.append(task, (1..=500).map(text).collect());
    let outbox = world.start(OutboxOptions::default());
    world.until(|world| world.cursor(task, 0) == 500).await;
    assert_eq!(world.calls().iter().map(|call| call.seq).collect::<Vec<_>>(), (1..=500).collect::<Vec<_>>());
    // 250 were sent, 64 a round at most; what was passed over does not count.
    assert_eq!(world.settled(), [127, 255, 383, 500]);
    outbox.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_receiver_is_settled_about_every_second() {
    let world =
        World::answering(|_| sleep(Duration::from_millis(400)).map(|()| DeliveryResult::Delivered).boxed());
    let task = world.task(&["http://a/hook"]);
    world.append(task, (1..=7).map(text).collect());
    let outbox = world.start(OutboxOptions::default());
    world.until(|world| world.cursor(task, 0) == 7).await;
    assert_eq!(world.settled(), [3, 6, 7]);
    outbox.stop().await;
}

#[tokio::test(start_paused = true)]
async fn snapshots_before_and_beyond_the_cursor_fold_to_the_same() {
    for (snapshot, cursor) in [(0, 0), (4, 2), (4, 4), (4, 7), (10, 3), (10, 9)] {
        let world = World::new(|_| DeliveryResult::Delivered);
        let task = world.task(&["http://a/hook"]);
        for n in 1..=5 {
            world.append(task, vec![text(2 * n - 1), text(2 * n)]);
        }
        world.with(task, |task| {
            task.hooks[0].cursor = cursor;
            if snapshot > 0 {
                task.snapshot = Some((snapshot, encode_snapshot(&task.fold(snapshot))));
            }
        });
        let outbox = world.start(OutboxOptions::default());
        world.until(|world| world.cursor(task, 0) == 10).await;
        let seen: Vec<_> = world.calls().into_iter().map(|call| (call.seq, call.text)).collect();
        let expected: Vec<_> =
            (cursor + 1..=10).map(|n| (n, (1..=n).map(|n| n.to_string()).collect::<String>())).collect();
        assert_eq!(seen, expected, "snapshot at {snapshot}, cursor at {cursor}");
        outbox.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_cannot_be_read_is_a_dead_letter() {
    let world = World::new(|_| DeliveryResult::Delivered);
    let task = world.task(&["http://a/hook"]);
    world.append(task, vec![text(1)]);
    world.with(task, |task| task.hooks[0].config = Bytes::from("not json"));
    let outbox = world.start(OutboxOptions::default());
    world.until(|world| world.dead().len() == 1).await;
    assert!(world.calls().is_empty());
    outbox.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_courier_that_panics_takes_nobody_with_it() {
    let world = World::new(|call| {
        assert!(!call.url.contains("broken") || call.at.as_secs() > 30, "as the test wants it");
        DeliveryResult::Delivered
    });
    let (broken, good) = (world.task(&["http://broken/"]), world.task(&["http://good/"]));
    world.append(broken, vec![text(1)]);
    world.append(good, vec![text(1)]);
    let outbox = world.start(OutboxOptions::default());
    world.until(|world| world.cursor(good, 0) == 1).await;
    world.until(|world| world.cursor(broken, 0) == 1).await;
    outbox.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_courier_that_does_not_return_has_failed() {
    let world = World::answering(|call| match call.attempt {
        1 => std::future::pending().boxed(),
        _ => async { DeliveryResult::Delivered }.boxed(),
    });
    let task = world.task(&["http://a/hook"]);
    world.append(task, vec![text(1)]);
    let outbox = world.start(OutboxOptions::default());
    world.until(|world| world.cursor(task, 0) == 1).await;
    assert_eq!(world.calls().iter().map(|call| call.at.as_secs()).collect::<Vec<_>>(), [0, 21]);
    outbox.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_store_in_trouble_is_asked_again() {
    let world = World::new(|_| DeliveryResult::Delivered);
    let task = world.task(&["http://a/hook"]);
    world.append(task, vec![text(1)]);
    world.store.lock().trouble = 3;
    let outbox = world.start(OutboxOptions::default());
    world.until(|world| world.calls().len() == 1).await;
    world.until(|world| world.cursor(task, 0) == 1).await;
    // The same while an outcome is recorded: what was delivered is not delivered again.
    world.store.lock().settle_trouble = 3;
    world.append(task, vec![text(2)]);
    world.wake.notify_one();
    world.until(|world| world.cursor(task, 0) == 2).await;
    assert_eq!(world.calls().len(), 2);
    outbox.stop().await;
}

/// The store has released a webhook, it has more to deliver and is claimed again, and only then does the
/// recording call return.
#[tokio::test(start_paused = true)]
async fn a_claim_that_overtakes_the_end_of_a_round_is_not_lost() {
    let world = World::new(|_| DeliveryResult::Delivered);
    let task = world.task(&["http://a/hook"]);
    world.store.lock().slow_to_return = true;
    world.append(task, vec![text(1)]);
    let outbox = world.start(OutboxOptions::default());
    world.until(|world| world.cursor(task, 0) == 1).await;
    world.append(task, vec![text(2)]);
    world.wake.notify_one();
    world.until(|world| world.cursor(task, 0) == 2).await;
    let at = world.calls()[1].at;
    assert!(at < Duration::from_secs(2), "not after its lease: {at:?}");
    outbox.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_settles_what_was_done_and_begins_nothing() {
    let world = World::answering(|call| {
        let hangs = call.seq == 3;
        async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            DeliveryResult::Delivered
        }
        .boxed()
    });
    let (task, stuck) = (world.task(&["http://a/hook"]), world.task(&["http://b/hook"]));
    world.append(task, (1..=5).map(text).collect());
    world.append(stuck, (1..=5).map(text).collect());
    world.with(stuck, |task| (task.hooks[0].cursor, task.hooks[0].attempts) = (2, 7));
    let outbox = world.start(OutboxOptions::default());
    world.until(|world| world.calls().len() == 4).await;
    let began = Instant::now();
    outbox.stop().await;
    assert!(began.elapsed() <= Duration::from_secs(6), "{:?}", began.elapsed());
    assert_eq!(world.cursor(task, 0), 2, "what was delivered is settled");
    assert_eq!(world.with(stuck, |task| task.hooks[0].attempts), 7, "and an attempt that was cut is none");
    assert_eq!(world.calls().len(), 4);
}

#[test]
fn an_endpoint_is_scheme_host_and_port() {
    for (url, expected) in [
        ("http://A.example/x", "http://a.example"),
        ("https://a.example:8443?x", "https://a.example:8443"),
        ("http://[::1]:80", "http://[::1]:80"),
        ("http://a.example#x", "http://a.example"),
        ("nonsense", "nonsense"),
        ("", ""),
    ] {
        assert_eq!(endpoint(url), expected);
    }
}

// ------------------------------------------------------------------------------------------------ world

/// One call of the sender.
#[derive(Debug, Clone)]
struct Call {
    id: String,
    url: String,
    seq: u64,
    attempt: u32,
    at: Duration,
    task_seq: u64,
    /// The text of the task's artifact as of the event.
    text: String,
}

type Answering = dyn Fn(&Call) -> BoxFuture<'static, DeliveryResult> + Send + Sync;

struct World {
    store: Arc<Memory>,
    sender: Arc<Directed>,
    wake: Arc<Notify>,
}

struct Directed {
    began: Instant,
    answer: Box<Answering>,
    calls: Mutex<Vec<Call>>,
}

#[async_trait]
impl WebhookSender for Directed {
    async fn deliver(&self, delivery: &WebhookDelivery<'_>) -> DeliveryResult {
        let call = Call {
            id: delivery.delivery_id.to_owned(),
            url: delivery.webhook.url.clone(),
            seq: delivery.seq,
            attempt: delivery.attempt,
            at: self.began.elapsed(),
            task_seq: delivery.task.seq,
            text: delivery.task.artifacts[0].parts[0].as_text().unwrap().to_owned(),
        };
        self.calls.lock().unwrap().push(call.clone());
        (self.answer)(&call).await
    }
}

struct Started {
    stop: watch::Sender<bool>,
    running: tokio::task::JoinHandle<()>,
}

impl Started {
    async fn stop(self) {
        self.stop.send(true).unwrap();
        timeout(Duration::from_secs(60), self.running).await.unwrap().unwrap();
    }
}

impl World {
    fn new(answer: impl Fn(&Call) -> DeliveryResult + Send + Sync + 'static) -> Self {
        Self::answering(move |call| {
            let verdict = answer(call);
            async move { verdict }.boxed()
        })
    }

    fn answering(
        answer: impl Fn(&Call) -> BoxFuture<'static, DeliveryResult> + Send + Sync + 'static,
    ) -> Self {
        let sender = Directed { began: Instant::now(), answer: Box::new(answer), calls: Mutex::new(vec![]) };
        Self { store: Arc::default(), sender: Arc::new(sender), wake: Arc::default() }
    }

    fn start(&self, options: OutboxOptions) -> Started {
        let (store, sender) = (Arc::clone(&self.store), Arc::clone(&self.sender));
        let clock = Arc::new(Jumping(self.sender.began));
        let outbox = Outbox::new(store, clock, sender, NodeId(Uuid::nil()), Arc::clone(&self.wake), options);
        let (stop, stopped) = watch::channel(false);
        Started { stop, running: tokio::spawn(outbox.run(stopped)) }
    }

    async fn until(&self, condition: impl Fn(&Self) -> bool) {
        let reached = async {
            // Increasing pauses: the clock jumps, but every check costs real time.
            let mut pause = Duration::from_millis(1);
            while !condition(self) {
                sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(60));
            }
        };
        timeout(Duration::from_secs(72 * 3600), reached).await.expect("the condition was never reached");
    }

    /// A new task with a webhook for each URL.
    fn task(&self, urls: &[&str]) -> TaskNo {
        let mut memory = self.store.lock();
        let no = TaskNo(memory.tasks.len() as i64 + 1);
        let hooks = urls.iter().enumerate().map(|(n, url)| Hook::new(&format!("hook-{n}"), url)).collect();
        memory
            .tasks
            .insert(no, Kept { no, id: TaskId(Uuid::now_v7()), batches: vec![], snapshot: None, hooks });
        no
    }

    fn append(&self, task: TaskNo, entries: Vec<Entry>) {
        self.with(task, |task| task.batches.push(entries));
    }

    fn with<T>(&self, task: TaskNo, change: impl FnOnce(&mut Kept) -> T) -> T {
        change(self.store.lock().tasks.get_mut(&task).unwrap())
    }

    fn cursor(&self, task: TaskNo, hook: usize) -> u64 {
        self.with(task, |task| task.hooks[hook].cursor)
    }

    fn id(&self, task: TaskNo) -> TaskId {
        self.with(task, |task| task.id)
    }

    fn calls(&self) -> Vec<Call> {
        self.sender.calls.lock().unwrap().clone()
    }

    fn dead(&self) -> Vec<DeadLetter> {
        self.store.lock().dead.clone()
    }

    async fn replay(&self) {
        let now = Jumping(self.sender.began).now();
        assert_eq!(self.store.replay_dead_letters(None, now).await.unwrap(), 1);
        self.wake.notify_one();
    }

    /// The recorded cursors, in order.
    fn settled(&self) -> Vec<u64> {
        self.store.lock().settled.clone()
    }
}

fn text(n: u64) -> Entry {
    let chunk = ArtifactChunk {
        id: "text".into(),
        index: 0,
        parts: vec![Part::text(n.to_string())],
        append: n > 1,
        last: false,
        name: None,
        description: None,
        metadata: None,
        extensions: vec![],
    };
    Entry(Timestamp(n as i64), Event::Artifact(chunk))
}

/// The wall clock of the paused runtime.
struct Jumping(Instant);

impl Clock for Jumping {
    fn now(&self) -> Timestamp {
        Timestamp(1_700_000_000_000).after(self.0.elapsed())
    }

    fn new_id(&self) -> Uuid {
        Uuid::now_v7()
    }

    fn chance(&self) -> f64 {
        0.5
    }

    fn random_bytes(&self) -> [u8; 32] {
        [7; 32]
    }
}

// ----------------------------------------------------------------------------------------------- memory

/// The part of a store that the outbox uses.
#[derive(Default)]
struct Memory(Mutex<Held>);

#[derive(Default)]
struct Held {
    tasks: BTreeMap<TaskNo, Kept>,
    dead: Vec<DeadLetter>,
    settled: Vec<u64>,
    /// The number of calls that fail from now on.
    trouble: u32,
    settle_trouble: u32,
    /// A recorded outcome takes effect a second before the call returns.
    slow_to_return: bool,
}

struct Kept {
    no: TaskNo,
    id: TaskId,
    batches: Vec<Vec<Entry>>,
    snapshot: Option<(u64, Bytes)>,
    hooks: Vec<Hook>,
}

struct Hook {
    id: String,
    config: Bytes,
    cursor: u64,
    attempts: u32,
    due: Timestamp,
    leased: Timestamp,
    replay: Option<u64>,
}

impl Hook {
    fn new(id: &str, url: &str) -> Self {
        let config = WebhookConfig {
            id: id.to_owned(),
            url: url.to_owned(),
            token: None,
            authentication: None,
            dialect: "a2a/0.3".to_owned(),
        };
        let config = serde_json::to_vec(&config).unwrap().into();
        let never = Timestamp::default();
        Self { id: id.to_owned(), config, cursor: 0, attempts: 0, due: never, leased: never, replay: None }
    }
}

impl Kept {
    fn seq(&self) -> u64 {
        self.batches.iter().map(|batch| batch.len() as u64).sum()
    }

    fn row(&self) -> TaskRow {
        TaskRow {
            no: self.no,
            id: self.id,
            client_id: None,
            owner: "local".into(),
            context: self.id.own_context(),
            agent: "echo".into(),
            parent: None,
            state: State::Working,
            status_at: Timestamp::default(),
            created_at: Timestamp::default(),
            seq: self.seq(),
            version: 1,
            epoch: 1,
            node: None,
            attempts: 0,
            cancel: false,
            head: TaskHeader { dialect: "a2a/0.3".into(), ..TaskHeader::default() }.encode(),
        }
    }

    fn stored(&self, after: u64) -> Vec<StoredBatch> {
        let mut first_seq = 1;
        let mut stored = vec![];
        for batch in &self.batches {
            if first_seq + batch.len() as u64 > after + 1 {
                stored.push(StoredBatch { first_seq, bytes: event::encode(batch).bytes });
            }
            first_seq += batch.len() as u64;
        }
        stored
    }

    fn fold(&self, seq: u64) -> Task {
        let row = self.row();
        let origin = TaskHeader::decode(&row.head).unwrap().origin(&row);
        Task::new(origin).fold(self.batches.iter().flatten().take(seq as usize))
    }
}

impl Memory {
    fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap()
    }
}

impl Held {
    fn trouble(&mut self) -> Result<(), StoreError> {
        let Some(left) = self.trouble.checked_sub(1) else { return Ok(()) };
        self.trouble = left;
        Err(StoreError::Unavailable("as the test wants it".into()))
    }

    fn due(&self) -> Vec<(Timestamp, TaskNo, usize)> {
        let mut due: Vec<_> = self
            .tasks
            .values()
            .flat_map(|task| task.hooks.iter().enumerate().map(move |(n, hook)| (task, n, hook)))
            .filter(|(task, _, hook)| hook.replay.is_some() || hook.cursor < task.seq())
            .map(|(task, n, hook)| (hook.due.max(hook.leased), task.no, n))
            .collect();
        due.sort();
        due
    }
}

impl Held {
    fn settle(&mut self, task: TaskNo, hook: &str, settled: DeliveryOutcome) -> Result<(), StoreError> {
        if let Some(left) = self.settle_trouble.checked_sub(1) {
            self.settle_trouble = left;
            return Err(StoreError::Unavailable("as the test wants it".into()));
        }
        let task = self.tasks.get_mut(&task).unwrap();
        let hook = task.hooks.iter_mut().find(|kept| kept.id == hook).unwrap();
        (hook.leased, hook.due) = (Timestamp::default(), Timestamp::default());
        match settled {
            DeliveryOutcome::Delivered { up_to } => {
                (hook.cursor, hook.attempts) = (up_to, 0);
                self.settled.push(up_to);
            }
            DeliveryOutcome::Retry { up_to, at, reason } => {
                assert!(!reason.is_empty(), "a retry says why");
                hook.attempts = if up_to > hook.cursor { 1 } else { hook.attempts + 1 };
                (hook.cursor, hook.due) = (up_to, at);
            }
            DeliveryOutcome::Dead { seq, delivery, reason, at } => {
                if hook.replay.take().is_none() {
                    (hook.cursor, hook.attempts) = (seq, 0);
                }
                let (task, webhook) = (task.id, hook.id.clone());
                self.dead.push(DeadLetter { delivery, task, webhook, seq, reason, at, attempts: 0 });
            }
            DeliveryOutcome::Replayed { .. } => hook.replay = None,
        }
        Ok(())
    }
}

#[async_trait]
impl TaskStore for Memory {
    async fn open(&self, key: &TaskKey) -> Result<Option<OpenedTask>, StoreError> {
        let mut held = self.lock();
        held.trouble()?;
        let TaskKey::Id(id) = key else { unreachable!("the outbox knows ids") };
        Ok(held.tasks.values().find(|task| task.id == *id).map(|task| {
            let after = task.snapshot.as_ref().map_or(0, |(seq, _)| *seq);
            OpenedTask { row: task.row(), snapshot: task.snapshot.clone(), log: task.stored(after) }
        }))
    }

    async fn log(&self, task: TaskNo, after: u64, _: usize) -> Result<Vec<StoredBatch>, StoreError> {
        // One batch at a time, so that a reader must read several times.
        Ok(self.lock().tasks[&task].stored(after).into_iter().take(1).collect())
    }

    async fn commit(&self, _: Change) -> Result<CommitReceipt, CommitError> {
        unreachable!("not for the outbox")
    }

    async fn row(&self, _: &TaskKey) -> Result<Option<TaskRow>, StoreError> {
        unreachable!("not for the outbox")
    }

    async fn journal(&self, _: TaskNo) -> Result<Vec<JournalRecord>, StoreError> {
        unreachable!("not for the outbox")
    }

    async fn list(&self, _: &ListQuery) -> Result<ListPage, StoreError> {
        unreachable!("not for the outbox")
    }

    async fn children(&self, _: TaskId, _: usize) -> Result<Vec<TaskRow>, StoreError> {
        unreachable!("not for the outbox")
    }

    async fn tally(&self, _: &str) -> Result<Vec<TaskTally>, StoreError> {
        unreachable!("not for the outbox")
    }

    async fn put_snapshot(&self, _: TaskNo, _: u64, _: Bytes) -> Result<(), StoreError> {
        unreachable!("not for the outbox")
    }

    async fn idempotent(&self, _: &str, _: &str) -> Result<Option<(TaskId, Digest)>, StoreError> {
        unreachable!("not for the outbox")
    }

    async fn live_children(&self, _: TaskId) -> Result<Vec<TaskId>, StoreError> {
        unreachable!("not for the outbox")
    }

    async fn heartbeat(&self, _: NodeId, _: Timestamp) -> Result<(), StoreError> {
        unreachable!("not for the outbox")
    }

    async fn claim(&self, _: NodeId, _: Timestamp, _: usize) -> Result<Vec<ClaimedTask>, StoreError> {
        unreachable!("not for the outbox")
    }

    async fn claim_of(
        &self,
        _: NodeId,
        _: Timestamp,
        _: &[OwnerClaim],
    ) -> Result<Vec<ClaimedTask>, StoreError> {
        unreachable!("not for the outbox")
    }

    async fn due_tasks(&self, _: NodeId, _: Timestamp) -> Result<Vec<DueTasks>, StoreError> {
        unreachable!("not for the outbox")
    }

    async fn descendants(&self, _: TaskId, _: u64) -> Result<u64, StoreError> {
        unreachable!("not for the outbox")
    }

    async fn next_due(&self) -> Result<Option<Timestamp>, StoreError> {
        unreachable!("not for the outbox")
    }

    async fn held_tasks(&self, _: NodeId) -> Result<Vec<TaskId>, StoreError> {
        unreachable!("not for the outbox")
    }

    async fn load(&self) -> Result<Load, StoreError> {
        unreachable!("not for the outbox")
    }

    async fn expire(&self, _: Timestamp, _: usize) -> Result<u64, StoreError> {
        unreachable!("not for the outbox")
    }

    async fn aged_tasks(&self, _: &AgedTaskQuery) -> Result<Vec<AgedTask>, StoreError> {
        unreachable!("not for the outbox")
    }

    async fn delete_ended(&self, _: &[(TaskNo, Timestamp)]) -> Result<u64, StoreError> {
        unreachable!("not for the outbox")
    }
}

#[async_trait]
impl WebhookStore for Memory {
    async fn claim_deliveries(
        &self,
        _: NodeId,
        now: Timestamp,
        lease: Duration,
        limit: usize,
    ) -> Result<Vec<DueWebhook>, StoreError> {
        let mut held = self.lock();
        held.trouble()?;
        let due: Vec<_> = held.due().into_iter().filter(|(due, ..)| *due <= now).take(limit).collect();
        let mut claimed = vec![];
        for (_, no, n) in due {
            let task = held.tasks.get_mut(&no).unwrap();
            let row = task.row();
            let hook = &mut task.hooks[n];
            hook.leased = now.after(lease);
            claimed.push(DueWebhook {
                row,
                hook: Webhook { id: hook.id.clone(), cursor: hook.cursor, config: hook.config.clone() },
                attempts: if hook.replay.is_some() { 0 } else { hook.attempts },
                replay: hook.replay,
            });
        }
        Ok(claimed)
    }

    async fn next_delivery_due(&self) -> Result<Option<Timestamp>, StoreError> {
        let mut held = self.lock();
        held.trouble()?;
        Ok(held.due().first().map(|(due, ..)| *due))
    }

    async fn record_delivery(
        &self,
        task: TaskNo,
        hook: &str,
        settled: DeliveryOutcome,
    ) -> Result<(), StoreError> {
        self.lock().settle(task, hook, settled)?;
        let slow = self.lock().slow_to_return;
        sleep(if slow { Duration::from_secs(1) } else { Duration::ZERO }).await;
        Ok(())
    }

    async fn dead_letters(&self, limit: usize) -> Result<Vec<DeadLetter>, StoreError> {
        Ok(self.lock().dead.iter().rev().take(limit).cloned().collect())
    }

    async fn replay_dead_letters(&self, _: Option<&str>, now: Timestamp) -> Result<u64, StoreError> {
        let mut held = self.lock();
        let dead = std::mem::take(&mut held.dead);
        for letter in &dead {
            let task = held.tasks.values_mut().find(|task| task.id == letter.task).unwrap();
            let hook = task.hooks.iter_mut().find(|hook| hook.id == letter.webhook).unwrap();
            (hook.replay, hook.due) = (Some(letter.seq), now);
        }
        Ok(dead.len() as u64)
    }

    async fn put_webhook(&self, _: TaskNo, _: Webhook, _: usize) -> Result<(), WebhookError> {
        unreachable!("not for the outbox")
    }

    async fn webhooks(&self, _: TaskNo) -> Result<Vec<Webhook>, StoreError> {
        unreachable!("not for the outbox")
    }

    async fn delete_webhook(&self, _: TaskNo, _: &str) -> Result<bool, StoreError> {
        unreachable!("not for the outbox")
    }

    async fn failed_deliveries(&self, _: &FailedDeliveryQuery) -> Result<Vec<FailedDelivery>, StoreError> {
        unreachable!("not for the outbox")
    }

    async fn webhook_progress(&self, _: TaskNo) -> Result<Vec<WebhookProgress>, StoreError> {
        unreachable!("not for the outbox")
    }

    async fn replay_delivery(&self, _: TaskNo, _: &str, _: u64, _: Timestamp) -> Result<bool, StoreError> {
        unreachable!("not for the outbox")
    }

    async fn discard_delivery(&self, _: TaskNo, _: &str, _: u64, _: Timestamp) -> Result<bool, StoreError> {
        unreachable!("not for the outbox")
    }
}

#[async_trait]
impl SessionStore for Memory {
    async fn create_session(&self, _: Session, _: usize) -> Result<bool, StoreError> {
        unreachable!("not for the outbox")
    }

    async fn session(&self, _: &str) -> Result<Option<Session>, StoreError> {
        unreachable!("not for the outbox")
    }

    async fn update_session(&self, _: &str, _: u64, _: Bytes) -> Result<bool, StoreError> {
        unreachable!("not for the outbox")
    }

    async fn touch_sessions(&self, _: &[String], _: Timestamp) -> Result<(), StoreError> {
        unreachable!("not for the outbox")
    }

    async fn delete_session(&self, _: &str) -> Result<bool, StoreError> {
        unreachable!("not for the outbox")
    }

    async fn expire_sessions(&self, _: Option<&str>, _: Timestamp, _: usize) -> Result<u64, StoreError> {
        unreachable!("not for the outbox")
    }
}

#[async_trait]
impl Store for Memory {
    fn knowledge(&self) -> &dyn crate::knowledge::Knowledge {
        unreachable!("the outbox knows nothing of it")
    }

    fn tenants(&self) -> &dyn crate::tenant_store::TenantStore {
        unreachable!("the outbox knows nothing of it")
    }

    async fn figures(&self, _: Timestamp) -> Result<StoreFigures, StoreError> {
        unreachable!("not for the outbox")
    }

    async fn ready(&self) -> Result<(), StoreError> {
        unreachable!("not for the outbox")
    }

    async fn close(&self) -> Result<(), StoreError> {
        unreachable!("not for the outbox")
    }
}
