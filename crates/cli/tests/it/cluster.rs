//! Several servers on one PostgreSQL: nodes are killed and stopped, the database is killed, requests go to
//! whichever node there is, and for the clients it is one server.
//!
//! Needs a PostgreSQL: `scripts/postgres run cargo test -p nuncio-cli cluster`. Without one these tests say so and
//! do nothing. Small numbers by default, those that the project promises with `NUNCIO_FULL=1`.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use nuncio_client::a2a::{
    self, A2aBinding, A2aClient, A2aCredentials, A2aHttpOptions, CardReference, InterfacePreference,
};
use nuncio_engine::{Message, Role};
use nuncio_wire::{
    a2a::{A2aCall, Dialect, SendMessage, StreamEvent},
    jsonrpc,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::{
    sync::{Mutex, MutexGuard},
    task::JoinSet,
};

use crate::{
    crowd::{Crowd, NOBODY, Story, Times},
    random::{self, Random},
    resume::Cuts,
    server_process::ServerProcess,
    streams::{Endpoint, Frames, Node, Reader, within},
    test_agents::{CHUNKS, Cluster},
};

const NODES: usize = 3;
/// How long a node's tasks stay its own after its last sign of life.
const LEASE: Duration = Duration::from_secs(2);
/// What may come on top of a bound because the machine has other things to do.
const BUSY_MACHINE: Duration = Duration::from_secs(3);

/// The server to test with, for one test at a time: they measure times.
async fn server() -> Option<(String, MutexGuard<'static, ()>)> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());
    let url = std::env::var("NUNCIO_TEST_POSTGRES").ok();
    assert!(
        url.is_some() || std::env::var_os("NUNCIO_TEST_ALL").is_none(),
        "NUNCIO_TEST_POSTGRES is not set"
    );
    if url.is_none() {
        println!("skipped: NUNCIO_TEST_POSTGRES names no server");
    }
    Some((url?, ONE_AT_A_TIME.lock().await))
}

/// A small number by default, a large one with `NUNCIO_FULL=1`.
fn count(small: usize, full: usize) -> usize {
    if is_full() { full } else { small }
}

fn is_full() -> bool {
    std::env::var_os("NUNCIO_FULL").is_some()
}

fn seed() -> u64 {
    let seed = random::seed();
    println!("NUNCIO_SEED={seed} repeats this");
    seed
}

/// Servers that share a schema which nobody else uses.
struct Nodes {
    nodes: Vec<Node>,
    world: PathBuf,
    _dir: tempfile::TempDir,
}

impl Nodes {
    fn start(store: &str) -> Self {
        Self::start_with(store, |_| {})
    }

    fn start_with(store: &str, change: impl FnOnce(&mut Cluster)) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let dir = tempfile::tempdir().unwrap();
        let world = dir.path().join("world");
        std::fs::create_dir(&world).unwrap();
        let mut cluster = Cluster {
            store: store.to_owned(),
            schema: format!("t_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)),
            world: world.clone(),
            lease: LEASE,
            patience: Duration::from_secs(5),
            slowness: 4,
            chunks: CHUNKS,
        };
        change(&mut cluster);
        let start =
            |n: usize| Node::of(ServerProcess::start_node(&dir.path().join(format!("node-{n}")), &cluster));
        let nodes = (0..NODES).map(start).collect();
        Self { nodes, world, _dir: dir }
    }

    /// An agent at each of them.
    fn endpoints(&self, agent: &str) -> Vec<Endpoint> {
        self.nodes.iter().map(|node| node.endpoint(agent)).collect()
    }

    /// The processes that take requests.
    fn processes(&self) -> Vec<u32> {
        self.nodes.iter().map(|node| *node.serving.borrow()).filter(|process| *process != 0).collect()
    }

    fn log(&self) -> String {
        let log = |(n, node): (usize, &Node)| format!("node {n}:\n{}", node.server.log());
        self.nodes.iter().enumerate().map(log).collect()
    }
}

/// Nodes are killed at random, mostly one of them, now and then two or all, and start again, at once or after
/// another has taken over. Twelve kills under twenty clients by default, a hundred under a hundred with
/// `NUNCIO_FULL=1`.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_are_killed_lose_nothing() {
    let Some((url, _alone)) = server().await else { return };
    let (seed, kills, tasks) = (seed(), count(12, 100), count(20, 100));
    let mut nodes = Nodes::start(&url);
    let crowd = Crowd::new(nodes.endpoints("ledger"), tasks, seed);
    let mut clients = crowd.gather();
    let killed = tokio::select! {
        killed = kill_again_and_again(&mut nodes, &crowd, kills, seed) => killed,
        failure = crowd.failure(&mut clients) => panic!("seed {seed}: {failure}\n{}", nodes.log()),
    };
    let stories = crowd.disperse(clients, || nodes.log()).await;
    // Once more, so that nothing of what follows comes from memory.
    for node in &mut nodes.nodes {
        node.kill();
        node.restart();
    }
    let told = crowd.check(&stories, &nodes.world).await;
    println!(
        "cluster, kills: {} kills of {NODES} nodes ({} while it started), {tasks} tasks in flight, {told}, all \
         taken over {} after a kill, with a lease of {LEASE:?}",
        killed.kills, killed.early, killed.takeovers
    );
    assert!(
        killed.takeovers.max() <= 2 * LEASE + BUSY_MACHINE,
        "seed {seed}: a takeover took {:?}\n{}",
        killed.takeovers.max(),
        nodes.log()
    );
}

#[derive(Default)]
struct Killed {
    kills: usize,
    /// Those of a node that was starting.
    early: usize,
    /// From a kill until every task had moved on at a node that lives.
    takeovers: Times,
}

/// Leaves all nodes running after the last kill.
async fn kill_again_and_again(nodes: &mut Nodes, crowd: &Crowd, kills: usize, seed: u64) -> Killed {
    let mut random = Random(seed);
    let mut killed = Killed::default();
    within("work on every task", crowd.all_moved_by(&nodes.processes())).await;
    while killed.kills < kills {
        tokio::time::sleep(random.moment(Duration::from_millis(300))).await;
        match random.below(3) {
            // The worst moment for a promise is when it has just been heard.
            0 => within("anything", crowd.heard.subscribe().changed()).await.unwrap(),
            // And for a send, when it was taken and not yet answered.
            1 => {
                within("a send", crowd.sent.subscribe().changed()).await.unwrap();
                tokio::time::sleep(random.moment(Duration::from_millis(8))).await;
            }
            _ => {}
        }
        let at_once = match random.below(10) {
            0 => NODES,
            1 | 2 => 2,
            _ => 1,
        };
        let first = random.below(NODES as u64) as usize;
        let victims: Vec<_> = (first..first + at_once).map(|n| n % NODES).collect();
        for n in &victims {
            nodes.nodes[*n].kill();
        }
        killed.kills += at_once;
        let mut killed_at = Instant::now();
        let back_at_once = at_once == NODES || random.below(2) == 0;
        if back_at_once {
            for n in &victims {
                nodes.nodes[*n].server.respawn();
            }
            if random.below(3) == 0 {
                let (node, moment) = (&mut nodes.nodes[first], random.moment(Duration::from_millis(400)));
                if node.server.ready_within(moment) {
                    node.serving.send_replace(node.server.pid());
                    tokio::time::sleep(moment.saturating_sub(killed_at.elapsed())).await;
                }
                node.kill();
                node.server.respawn();
                killed_at = Instant::now();
                killed.kills += 1;
                killed.early += 1;
            }
            for n in &victims {
                nodes.nodes[*n].ready();
            }
        }
        within("work of those that live on every task", crowd.all_moved_by(&nodes.processes())).await;
        killed.takeovers.0.push(killed_at.elapsed());
        if !back_at_once {
            for n in &victims {
                nodes.nodes[*n].restart();
            }
        }
    }
    killed
}

/// A node is stopped until others have taken its tasks over, and goes on as if nothing had been. Five times by
/// default, a hundred times with `NUNCIO_FULL=1`.
///
/// It fails when the store does not look at the epoch. Tried by replacing `commit_batch` by one that does not,
/// while the test ran: two runs write by turns, "one wrote too late".
#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_was_stopped_writes_nothing_stale() {
    const TASKS: usize = 6;
    let Some((url, _alone)) = server().await else { return };
    let (seed, stops) = (seed(), count(5, 100));
    let mut random = Random(seed);
    let nodes = Nodes::start(&url);
    let mut stories: Vec<Story> = vec![];
    let (mut takeovers, mut taken_over) = (Times::default(), 0);
    for stop in 0..stops {
        let crowd = Crowd::new(nodes.endpoints("ledger"), TASKS, seed);
        let stopped = random.below(NODES as u64) as usize;
        let node = &nodes.nodes[stopped];
        let mut sends = JoinSet::new();
        for client in 0..TASKS {
            let (crowd, key) = (Arc::clone(&crowd), format!("{seed}-{stop}-{client}"));
            sends.spawn(async move {
                let task = crowd.send(Dialect::V1, &key, Some(stopped)).await;
                Reader { dialect: Dialect::V1, task, id: key }
            });
        }
        let readers = sends.join_all().await;
        // From here on nobody asks it anything.
        node.serving.send_replace(0);
        let mut clients = JoinSet::new();
        for (client, reader) in readers.into_iter().enumerate() {
            let crowd = Arc::clone(&crowd);
            clients.spawn(async move {
                let frames = crowd.follow(client, &reader).await;
                crowd.leave(client);
                Story { reader, frames }
            });
        }
        within("its work", crowd.all_moved_by(&[node.server.pid(), NOBODY])).await;
        tokio::time::sleep(random.moment(Duration::from_millis(150))).await;
        node.server.signal(Signal::STOP);
        let stopped_at = Instant::now();
        let mut others = nodes.processes();
        others.push(NOBODY);
        within("work of the others on every task", crowd.all_moved_by(&others)).await;
        takeovers.0.push(stopped_at.elapsed());
        tokio::time::sleep(random.moment(Duration::from_millis(200))).await;
        node.server.signal(Signal::CONT);
        let ended = within("the end of every task", clients.join_all()).await;
        taken_over += ended.iter().filter(|story| story.runs() > 1).count();
        stories.extend(ended);
        node.serving.send_replace(node.server.pid());
    }
    let crowd = Crowd::new(nodes.endpoints("ledger"), 0, seed);
    let told = crowd.check(&stories, &nodes.world).await;
    // What a stopped runner tried to write when it went on.
    let refused = nodes.log().matches("a runner lost its task").count();
    println!(
        "cluster, stops: {stops} nodes stopped past their lease of {LEASE:?}, {taken_over} of {} tasks taken over \
         {takeovers} after the stop, {refused} stale writes refused and none taken, {told}",
        stories.len()
    );
    assert!(taken_over >= stops, "there was nothing to take over");
    assert!(refused > 0, "nobody tried to write anything stale");
    assert!(takeovers.max() <= 2 * LEASE + BUSY_MACHINE, "a takeover took {:?}", takeovers.max());
}

/// A stream that is cut at any event and resumed at another node goes on with the same bytes: 200 events, cut
/// at every seventh by default; 1,000, cut at each, with `NUNCIO_FULL=1`.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_resumes_on_another_node_byte_for_byte() {
    let Some((url, _alone)) = server().await else { return };
    let (chunks, every) = (count(CHUNKS as usize, 1000), count(7, 1));
    let nodes = Nodes::start_with(&url, |cluster| cluster.chunks = chunks as u32);
    // The task, the state "working", the chunks, the end.
    let frames = chunks + 3;
    for dialect in Dialect::ALL {
        let live: Vec<_> = (1..frames).step_by(7).chain([frames]).collect();
        let cuts =
            Cuts { dialect, nodes: nodes.endpoints("chunks"), world: nodes.world.clone(), live, frames };
        let name = format!("cut-{}", dialect.version());
        let whole = cuts.live(&name, async |_| {}).await;
        cuts.ended(&name, &whole, every).await;
        println!(
            "cluster, streams: {frames} events in {}, cut at {} of them while the task ran and at {} after it, \
             each resumed at another node with the same bytes",
            dialect.version(),
            cuts.live.len() - 1,
            frames.div_ceil(every),
        );
    }
}

/// What is said at one node reaches a runner at another at once. Twenty times each by default, two hundred
/// times with `NUNCIO_FULL=1`, and then within a bound that is meant for a machine that does nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn cancel_and_answer_reach_a_runner_elsewhere() {
    let Some((url, _alone)) = server().await else { return };
    let (rounds, bound) = (count(20, 200), Duration::from_millis(count(2000, 200) as u64));
    // So long that what is found by looking, and not by being told, is found too late.
    let nodes = Nodes::start_with(&url, |cluster| cluster.lease = Duration::from_secs(60));
    let endpoints = nodes.endpoints("listener");
    for what in ["cancel", "answer at work", "answer"] {
        let mut times = Times::default();
        for round in 0..rounds {
            let (here, there) = (&endpoints[round % NODES], &endpoints[(round + 1) % NODES]);
            times.0.push(reach(here, there, what, &format!("{what} {round}")).await);
        }
        let (p50, p99) = (times.quantile(0.5), times.quantile(0.99));
        println!(
            "cluster, reach: {what}, told to another node {rounds} times: heard after {p50:.1?} (p50), \
             {p99:.1?} (p99), at most {:.1?}",
            times.max()
        );
        assert!(p99 < bound, "{what}: {p99:?} is not within {bound:?}");
    }
}

/// One task in four tongues: begun over gRPC, its stream cut off with its node, continued over REST at another, its
/// question answered over MCP at a third, its end read in A2A 0.1.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_one_over_every_protocol_and_node() {
    let Some((url, _alone)) = server().await else { return };
    let mut nodes = Nodes::start(&url);
    let at = |nodes: &Nodes, n: usize| nodes.nodes[n].server.url().to_owned();
    let (second, third) = (at(&nodes, 1), at(&nodes, 2));

    let options = A2aHttpOptions { resumes: 0, ..A2aHttpOptions::default() };
    let card = format!("{}/agents/listener", at(&nodes, 0)).parse().unwrap();
    let card = a2a::fetch_card(&CardReference::Url(card), &options).await.unwrap().value;
    let only_grpc = InterfacePreference { bindings: vec!["GRPC".into()], only: true, dialect: Dialect::V1 };
    let client = A2aClient::new(&card, &only_grpc, &A2aCredentials::default(), &options).unwrap();
    assert_eq!(client.binding(), A2aBinding::Grpc);
    let message = Message::text("m-1", Role::User, "answer");
    let mut stream = within("gRPC", client.send_streaming(SendMessage::new(message))).await.unwrap();
    let first = within("its first event", stream.next()).await.unwrap().unwrap();
    let StreamEvent::Task(task) = first.event.value else { panic!("a stream begins with its task") };
    nodes.nodes[0].kill();

    let http = crate::http::client();
    let path = format!("{second}/agents/listener/tasks/{}:subscribe", task.id);
    let request = http.post(path).header("A2A-Version", "1.0").header("Last-Event-ID", first.cursor.unwrap());
    let mut events = Frames::of(within("REST", request.send()).await.unwrap()).await.unwrap();
    until(&mut events, "Which word?").await;

    let mcp = async |method: &str, mut params: Value| {
        params["taskId"] = task.id.as_str().into();
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": { "extensions": { "io.modelcontextprotocol/tasks": {} } },
        });
        let request = http
            .post(format!("{third}/mcp"))
            .header("Accept", "application/json, text/event-stream")
            .header("MCP-Protocol-Version", "2026-07-28")
            .header("Mcp-Method", method)
            .header("Mcp-Name", &task.id)
            .json(&json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }));
        let answer = within(method, async { request.send().await.unwrap().text().await.unwrap() }).await;
        let answer: Value = serde_json::from_str(&answer).unwrap_or_else(|_| panic!("{answer}"));
        answer.get("result").cloned().unwrap_or_else(|| panic!("{answer}"))
    };
    let asked = mcp("tasks/get", json!({})).await;
    let key = asked["inputRequests"].as_object().unwrap().keys().next().unwrap();
    let said = json!({ "action": "accept", "content": { "word": "this" } });
    mcp("tasks/update", json!({ "inputResponses": { key: said } })).await;

    until(&mut events, "heard").await;
    events.rest().await.unwrap();
    let call = A2aCall::Get { task: task.id.clone(), history_length: None };
    let headers = [("A2A-Version", "0.1")];
    let read = nodes.endpoints("listener")[2].ask(Dialect::V0_1, "1", &call, &headers).await.unwrap();
    let read: Value = serde_json::from_slice(&read).unwrap();
    assert_eq!(read["result"]["id"], task.id.as_str());
    assert_eq!(read["result"]["status"]["state"], "completed", "{read}");
    assert_eq!(read["result"]["artifacts"][0]["parts"], json!([{ "type": "text", "text": "answer" }]));
}

/// How long it takes from what is said there until the agent at work here has heard it.
async fn reach(here: &Endpoint, there: &Endpoint, what: &str, text: &str) -> Duration {
    let key = text.replace(' ', "-");
    let message = |id: &str, text: &str| Message::text(format!("{key}-{id}"), Role::User, text);
    let call = A2aCall::Stream(Box::new(SendMessage::new(message("question", text))));
    let begun = Frames::of(here.open(Dialect::V1, &key, &call, &[]).await.unwrap()).await.unwrap();
    let task = task_of(begun).await;
    let reader = Reader { dialect: Dialect::V1, task: task.clone(), id: key.clone() };
    let mut stream = here.subscribe(&reader, 0).await.unwrap();
    let call = if what == "cancel" {
        until(&mut stream, "ready").await;
        A2aCall::Cancel { task, metadata: None }
    } else {
        until(&mut stream, "Which word?").await;
        let mut answer = SendMessage::new(message("answer", "this"));
        answer.task_id = Some(task);
        answer.blocking = false;
        A2aCall::Send(Box::new(answer))
    };
    let said_at = Instant::now();
    let (heard, said) =
        tokio::join!(async { (until(&mut stream, "heard").await, said_at.elapsed()).1 }, async {
            there.ask(Dialect::V1, &key, &call, &[]).await.unwrap()
        });
    let said = jsonrpc::parse_response(&said).unwrap().outcome;
    assert!(said.is_ok(), "{text}: {said:?}");
    stream.rest().await.unwrap();
    heard
}

/// The task that a stream begins with.
async fn task_of(mut stream: Frames) -> String {
    let frame = stream.next().await.unwrap().unwrap();
    let result = jsonrpc::parse_response(frame.data()).unwrap().outcome.unwrap();
    match Dialect::V1.read_event(result).unwrap() {
        StreamEvent::Task(task) => task.id,
        other => panic!("a stream began with {other:?}"),
    }
}

/// Reads on until an event says that.
async fn until(stream: &mut Frames, text: &str) {
    loop {
        let frame = stream.next().await.unwrap();
        let frame = frame.unwrap_or_else(|| panic!("the stream ended, and never said {text:?}"));
        if String::from_utf8_lossy(&frame.bytes).contains(text) {
            return;
        }
    }
}

/// The database is killed and comes back, again and again, under the work of all nodes. Three times by default,
/// twenty times with `NUNCIO_FULL=1`. What is left of a killed PostgreSQL is found as Linux shows it.
///
/// It fails when the database acknowledges what it has not written. Tried with `ALTER ROLE … SET
/// synchronous_commit = off` behind the back of the nodes, which look at it when they start: "there is no task"
/// of a task that was just given.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_killed_loses_nothing() {
    const PATIENCE: Duration = Duration::from_secs(1);
    // A request waits for a connection and for an answer, and may have read something before.
    const TOLD_WITHIN: Duration = PATIENCE.saturating_mul(3);
    let Some((_, _alone)) = server().await else { return };
    let (seed, kills, tasks) = (seed(), count(3, 20), count(20, 100));
    let mut random = Random(seed);
    let database = database::Database::start();
    let nodes = Nodes::start_with(&database.url, |cluster| cluster.patience = PATIENCE);
    let crowd = Crowd::new(nodes.endpoints("ledger"), tasks, seed);
    let mut clients = crowd.gather();
    let (mut told_after, mut back_after, mut in_vain) = (Times::default(), Times::default(), vec![]);
    let cycles = async {
        within("work on every task", crowd.all_moved_by(&nodes.processes())).await;
        for kill in 0..kills {
            tokio::time::sleep(random.moment(Duration::from_millis(500))).await;
            database.kill();
            let mut tries = JoinSet::new();
            for node in 0..NODES {
                let (crowd, key) = (Arc::clone(&crowd), format!("{seed}-in-vain-{kill}-{node}"));
                in_vain.push(key.clone());
                tries.spawn(async move { crowd.try_in_vain(&key, node).await });
            }
            told_after.0.extend(within("a word from every node", tries.join_all()).await);
            if kill % 3 != 0 {
                // Long enough for every lease to run out.
                tokio::time::sleep(LEASE + random.moment(LEASE)).await;
            }
            crowd.forget();
            database.restart();
            let back_at = Instant::now();
            within("work on every task again", crowd.all_moved_by(&nodes.processes())).await;
            back_after.0.push(back_at.elapsed());
        }
    };
    tokio::select! {
        () = cycles => {}
        failure = crowd.failure(&mut clients) => panic!("seed {seed}: {failure}\n{}", nodes.log()),
    }
    let mut stories = crowd.disperse(clients, || nodes.log()).await;
    // What was told to come again comes again.
    let mut again = JoinSet::new();
    for key in in_vain {
        let crowd = Arc::clone(&crowd);
        again.spawn(async move {
            let task = crowd.send(Dialect::V1, &key, None).await;
            let reader = Reader { dialect: Dialect::V1, task, id: key };
            let frames = crowd.follow(usize::MAX, &reader).await;
            Story { reader, frames }
        });
    }
    stories.extend(within("the end of every repeated task", again.join_all()).await);
    let told = crowd.check(&stories, &nodes.world).await;
    told_after.0.append(&mut crowd.away_after.lock().unwrap().0);
    println!(
        "cluster, database: {kills} kills of PostgreSQL under {NODES} nodes, {tasks} tasks in flight, {told}, {} \
         answers of 503, sends {told_after} after they were made, all at work {back_after} after its return",
        crowd.turned_away.load(Ordering::Relaxed) + kills * NODES,
    );
    assert!(
        told_after.max() <= TOLD_WITHIN + BUSY_MACHINE,
        "a request was not answered for {:?}",
        told_after.max()
    );
}

/// A PostgreSQL of one's own, which can be killed.
#[cfg(target_os = "linux")]
mod database {
    use std::{
        fs,
        os::unix::fs::PermissionsExt as _,
        path::{Path, PathBuf},
        process::Command,
        thread,
        time::{Duration, Instant},
    };

    use rustix::process::{Pid, Signal, kill_process};

    /// How long it may take until what is left of a killed server is gone.
    const GONE_WITHIN: Duration = Duration::from_secs(60);

    pub(super) struct Database {
        folder: tempfile::TempDir,
        pub(super) url: String,
    }

    impl Database {
        pub(super) fn start() -> Self {
            // A short name: the path of a socket has 107 bytes.
            let folder = tempfile::Builder::new().prefix("nuncio-pg.").tempdir().unwrap();
            // As root the server runs as somebody else, who has to reach it.
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
            let mut database = Self { folder, url: String::new() };
            database.url = database.restart();
            database
        }

        /// Kills the server, and waits until nothing of it is left.
        pub(super) fn kill(&self) {
            let pid = fs::read_to_string(self.data().join("postmaster.pid")).unwrap();
            let pid = Pid::from_raw(pid.lines().next().unwrap().parse().unwrap()).unwrap();
            kill_process(pid, Signal::KILL).unwrap();
            let deadline = Instant::now() + GONE_WITHIN;
            while self.has_processes() {
                assert!(Instant::now() < deadline, "processes of a killed PostgreSQL stay");
                thread::sleep(Duration::from_millis(5));
            }
        }

        /// Starts it again; its address.
        pub(super) fn restart(&self) -> String {
            // Whoever has inherited the dead process may never take note of it: it would seem to be alive.
            for lock in ["data/postmaster.pid", ".s.PGSQL.5432.lock"] {
                let _ = fs::remove_file(self.folder.path().join(lock));
            }
            let started = script("start").arg(self.folder.path()).output().unwrap();
            let said = String::from_utf8_lossy(&started.stderr);
            assert!(started.status.success(), "PostgreSQL did not start: {said}");
            String::from_utf8(started.stdout).unwrap().trim().to_owned()
        }

        fn data(&self) -> PathBuf {
            self.folder.path().join("data")
        }

        /// Whether a process of it is left: all of them work in its folder.
        fn has_processes(&self) -> bool {
            let data = fs::canonicalize(self.data()).unwrap();
            let mut processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
            processes.any(|process| fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd == data))
        }
    }

    impl Drop for Database {
        fn drop(&mut self) {
            let _ = script("stop").arg(self.folder.path()).output();
        }
    }

    fn script(action: &str) -> Command {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/postgres");
        let mut command = Command::new(path);
        command.arg(action);
        command
    }
}
