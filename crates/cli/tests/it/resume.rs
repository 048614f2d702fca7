//! A stream that is cut goes on with the same bytes: cut at every event, in every dialect, while the task
//! runs, after it has ended, and after the server was killed.
//!
//! The stream is that of a streaming send. Every reader repeats that send under the same idempotency key, so
//! that all of them read the one task from its beginning; each cuts its stream after another frame and
//! resumes with the id of that frame and the JSON-RPC id of the request that was cut.

use std::{path::PathBuf, sync::Arc};

use nuncio_engine::{Message, Role};
use nuncio_wire::{
    a2a::{A2aCall, Dialect, SendMessage, StreamEvent},
    jsonrpc,
    sse::SseParser,
};
use tokio::{sync::watch, task::JoinSet};

use crate::{
    random::{self, Random},
    server_process::ServerProcess,
    streams::{Cut, Endpoint, Frame, Frames, Node, Reader, same, within},
    test_agents::{CHUNKS, GATES, gate_file},
};

/// The task, the state "working", the chunks, the end.
const FRAMES: usize = CHUNKS as usize + 3;

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_0_1_resume_anywhere() {
    check(Dialect::V0_1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_0_3_resume_anywhere() {
    check(Dialect::V0_3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_1_0_resume_anywhere() {
    check(Dialect::V1).await;
}

async fn check(dialect: Dialect) {
    let seed = random::seed();
    println!("NUNCIO_SEED={seed} repeats this");
    let mut world = World::new(dialect);
    let undisturbed = world.cut_live("undisturbed", None).await;
    let kill_at = 4 + Random(seed).below(u64::from(GATES[1]) - 10) as usize;
    let killed = world.cut_live("killed", Some(kill_at)).await;
    world.cut_ended("undisturbed", &undisturbed).await;
    world.node.kill();
    world.node.restart();
    world.cut_ended("killed", &killed).await;
}

struct World {
    node: Node,
    cuts: Cuts,
    _dir: tempfile::TempDir,
}

impl World {
    fn new(dialect: Dialect) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let node = Node::of(ServerProcess::start_test_agents(&data));
        let nodes = vec![node.endpoint("chunks")];
        let cuts = Cuts { dialect, nodes, world: data, live: (1..=FRAMES).collect(), frames: FRAMES };
        Self { node, cuts, _dir: dir }
    }

    /// A task that runs while its stream is cut after every frame. With `kill_at` the server is killed when
    /// somebody has read that many frames. The whole stream.
    async fn cut_live(&mut self, name: &str, kill_at: Option<usize>) -> Vec<Frame> {
        let Self { node, cuts, .. } = self;
        let disturb = async |report: &mut watch::Receiver<Vec<Seen>>| {
            let Some(kill_at) = kill_at else { return };
            let reached = |all: &Vec<Seen>| all.iter().any(|seen| seen.frames >= kill_at);
            within("the middle", report.wait_for(reached)).await.unwrap();
            node.kill();
            node.restart();
        };
        cuts.live(name, disturb).await
    }

    async fn cut_ended(&self, name: &str, whole: &[Frame]) {
        self.cuts.ended(name, whole, 1).await;
    }
}

/// A stream of `chunks` that is cut, by one reader after this frame and by another after that.
pub(crate) struct Cuts {
    pub(crate) dialect: Dialect,
    /// The task is made and its stream is read at the first, and resumed at the others, if there are any.
    pub(crate) nodes: Vec<Endpoint>,
    /// The folder of the agent.
    pub(crate) world: PathBuf,
    /// Where it is cut while the task runs. The last is its end.
    pub(crate) live: Vec<usize>,
    /// How many there are.
    pub(crate) frames: usize,
}

impl Cuts {
    /// A task that runs while its stream is cut, and while something else is done to it. The whole stream.
    pub(crate) async fn live(
        &self,
        name: &str,
        disturb: impl AsyncFnOnce(&mut watch::Receiver<Vec<Seen>>),
    ) -> Vec<Frame> {
        let (seen, mut report) = watch::channel(vec![Seen::default(); self.live.len()]);
        let seen = Arc::new(seen);
        let mut readers = JoinSet::new();
        for (n, cut) in self.live.iter().copied().enumerate() {
            let reading = self.reading(name, cut);
            let seen = Arc::clone(&seen);
            readers
                .spawn(async move { (cut, reading.read(|now| seen.send_modify(|all| all[n] = now)).await) });
        }
        tokio::select! {
            () = self.conduct(name, disturb, &mut report) => {}
            // Before the last gate is open, nobody ends but by a failure.
            Some(ended) = readers.join_next() => {
                panic!("a stream ended before its task, cut after {}", ended.unwrap().0);
            }
        }
        let mut streams = vec![];
        while let Some(read) = readers.join_next().await {
            streams.push(read.unwrap());
        }
        // The one that was never cut but by others.
        let whole = streams.iter().find(|(cut, _)| *cut == self.frames).unwrap().1.clone();
        assert_eq!(whole.len(), self.frames);
        for (cut, stream) in &streams {
            same(stream, &whole, &format!("{name} in {:?}, cut after {cut}", self.dialect));
        }
        whole
    }

    /// Opens the gates when everybody is there, and lets something be done in between.
    async fn conduct(
        &self,
        name: &str,
        disturb: impl AsyncFnOnce(&mut watch::Receiver<Vec<Seen>>),
        report: &mut watch::Receiver<Vec<Seen>>,
    ) {
        self.wait(report, "all readers", |_, seen| seen.frames > 0).await;
        self.open_gate(name, GATES[0]);
        disturb(report).await;
        // Whoever cuts before the last gate has done so, and goes on with a task that still runs.
        let before_gate = 2 + GATES[1] as usize;
        self.wait(report, "all resumed", |cut, seen| seen.resumed || cut > before_gate).await;
        self.open_gate(name, GATES[1]);
    }

    /// Waits until it is so of every reader, by where it cuts.
    async fn wait(
        &self,
        report: &mut watch::Receiver<Vec<Seen>>,
        what: &str,
        is_so: impl Fn(usize, &Seen) -> bool,
    ) {
        let all = |all: &Vec<Seen>| self.live.iter().zip(all).all(|(cut, seen)| is_so(*cut, seen));
        within(what, report.wait_for(all)).await.unwrap();
    }

    /// The same after the task has ended, after every so manieth frame.
    pub(crate) async fn ended(&self, name: &str, whole: &[Frame], every: usize) {
        const AT_ONCE: usize = 16;
        let mut readers = JoinSet::new();
        let mut next = (1..=self.frames).step_by(every);
        loop {
            while readers.len() < AT_ONCE
                && let Some(cut) = next.next()
            {
                let reading = self.reading(name, cut);
                readers.spawn(async move { (cut, reading.read(|_| {}).await) });
            }
            let Some(read) = readers.join_next().await else { break };
            let (cut, stream) = read.unwrap();
            same(&stream, whole, &format!("{name} in {:?}, ended, cut after {cut}", self.dialect));
        }
        // From the very beginning there is all but the task itself, which the send had shown.
        let reader = reader(self.dialect, name, whole);
        for node in &self.nodes {
            let log = node.subscribe(&reader, 0).await.unwrap().rest().await.unwrap();
            same(&log, &whole[1..], &format!("{name} in {:?}, from the beginning", self.dialect));
        }
    }

    fn open_gate(&self, name: &str, chunk: u32) {
        std::fs::write(gate_file(&self.world, name, chunk), "").unwrap();
    }

    fn reading(&self, name: &str, cut_after: usize) -> Reading {
        let others = &self.nodes[1.min(self.nodes.len() - 1)..];
        Reading {
            begin: self.nodes[0].clone(),
            resume: others[cut_after % others.len()].clone(),
            dialect: self.dialect,
            name: name.to_owned(),
            cut_after,
            frames: vec![],
            has_cut: false,
        }
    }
}

/// How far a reader is.
#[derive(Clone, Copy, Default)]
pub(crate) struct Seen {
    pub(crate) frames: usize,
    /// It has cut its stream, and has another one.
    resumed: bool,
}

/// A reader that cuts its stream once by itself, and otherwise takes it as it comes.
struct Reading {
    begin: Endpoint,
    /// Where it goes on.
    resume: Endpoint,
    dialect: Dialect,
    name: String,
    cut_after: usize,
    frames: Vec<Frame>,
    has_cut: bool,
}

impl Reading {
    /// The frames of all its streams, one after the other.
    async fn read(mut self, tell: impl Fn(Seen)) -> Vec<Frame> {
        loop {
            match self.read_on(&tell).await {
                Ok(true) => return self.frames,
                Ok(false) => self.has_cut = true,
                Err(Cut::Broken) => {}
                Err(Cut::Away) => panic!("{} was told to come again", self.name),
            }
        }
    }

    /// Reads to the end of the stream (true), or to where it is to be cut.
    async fn read_on(&mut self, tell: &impl Fn(Seen)) -> Result<bool, Cut> {
        let mut stream = match self.frames.last() {
            None => self.send().await?,
            Some(last) => {
                let reader = reader(self.dialect, &self.name, &self.frames);
                self.resume.subscribe(&reader, last.id).await?
            }
        };
        loop {
            tell(Seen { frames: self.frames.len(), resumed: self.has_cut });
            if !self.has_cut && self.frames.len() == self.cut_after {
                return Ok(false);
            }
            match stream.next().await? {
                Some(frame) => {
                    let last = self.frames.last().map_or(0, |frame| frame.id);
                    assert!(frame.id > last, "{}: after {last} came {frame:?}", self.name);
                    self.frames.push(frame);
                }
                None => return Ok(true),
            }
        }
    }

    /// The streaming send, the same for everybody.
    async fn send(&self) -> Result<Frames, Cut> {
        let name = &self.name;
        let mut send = SendMessage::new(Message::text(format!("message-{name}"), Role::User, name));
        send.client_task_id = (self.dialect == Dialect::V0_1).then(|| name.clone());
        let (call, headers) = (A2aCall::Stream(Box::new(send)), [("Idempotency-Key", name.as_str())]);
        Frames::of(self.begin.open(self.dialect, name, &call, &headers).await?).await
    }
}

/// Who reads the task of a stream.
fn reader(dialect: Dialect, name: &str, stream: &[Frame]) -> Reader {
    let result = jsonrpc::parse_response(stream[0].data()).unwrap().outcome.unwrap();
    let task = match dialect.read_event(result).unwrap() {
        StreamEvent::Task(task) => task.id,
        // 0.1 has no other way to begin.
        StreamEvent::Status(status) => status.task,
        other => panic!("a stream began with {other:?}"),
    };
    Reader { dialect, task, id: name.to_owned() }
}

#[tokio::test]
async fn a_cursor_that_does_not_exist_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(&dir.path().join("data"), &[]);
    let endpoint = Endpoint::new(server.url(), "echo", watch::channel(server.pid()).1);
    for dialect in Dialect::ALL {
        let name = dialect.version();
        let mut send = SendMessage::new(Message::text(format!("message-{name}"), Role::User, name));
        send.client_task_id = (dialect == Dialect::V0_1).then(|| name.to_owned());
        let sent = endpoint.open(dialect, name, &A2aCall::Stream(Box::new(send)), &[]).await.unwrap();
        let frames = Frames::of(sent).await.unwrap().rest().await.unwrap();
        let last = frames.last().unwrap().id;
        let reader = reader(dialect, name, &frames);

        // After the last event there is nothing, and that is no error.
        let rest = endpoint.subscribe(&reader, last).await.unwrap().rest().await.unwrap();
        assert_eq!(rest, []);

        let beyond = (last + 1).to_string();
        let no_event =
            format!("there is no event {beyond} to continue after: the task's last event is {last}");
        let no_id = |id: &str| format!("Last-Event-ID: {id:?} is not an id of this server's events");
        for (cursor, expected) in [
            (beyond.as_str(), no_event),
            ("two", no_id("two")),
            ("-1", no_id("-1")),
            ("1.5", no_id("1.5")),
            ("18446744073709551616", no_id("18446744073709551616")),
            ("\u{e9}", no_id("\u{e9}")),
        ] {
            let call = A2aCall::Subscribe { task: reader.task.clone() };
            let headers = [("Last-Event-ID", cursor)];
            let answer = endpoint.ask(dialect, "again", &call, &headers).await.unwrap();
            // A client of 0.3 reads an error from an event, and not from a body.
            let answer = match dialect {
                Dialect::V0_3 => SseParser::new(1 << 16).feed(&answer).unwrap()[0].data.clone().into(),
                _ => answer,
            };
            let error = jsonrpc::parse_response(&answer).unwrap().outcome.unwrap_err();
            assert_eq!((error.code, error.message), (-32602, expected), "{dialect:?}, after {cursor:?}");
        }
    }
}
