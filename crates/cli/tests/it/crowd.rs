//! A crowd of clients that keeps a number of tasks of `ledger` in flight, in all dialects, while somebody kills
//! what they talk to. Each client sends until it is answered, follows its task to the end, and begins anew. At
//! the end everything is compared: what the clients saw, what the server has, and what the agent did to the
//! world.
//!
//! There may be several servers on one store: every request goes to one of those that are there, and a stream
//! that was cut goes on at another.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use nuncio_engine::{Message, Role, task::State};
use nuncio_wire::{
    a2a::{A2aCall, Dialect, ListTasks, SendMessage, StreamEvent, TaskView},
    jsonrpc,
};
use tokio::{
    sync::watch,
    task::{JoinError, JoinSet},
};

use crate::{
    random::Random,
    streams::{Cut, Endpoint, Frame, Reader, same, within},
    test_agents::{STEPS, ledger_file},
};

/// How long a client waits that was told to come again.
const BACK_OFF: Duration = Duration::from_millis(50);

/// The process that moves the task of a client that has none any more.
pub(crate) const NOBODY: u32 = u32::MAX;

/// How long something took, each time.
#[derive(Default)]
pub(crate) struct Times(pub(crate) Vec<Duration>);

impl Times {
    /// What that share of them did not exceed.
    pub(crate) fn quantile(&self, share: f64) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let at = (sorted.len() as f64 * share).ceil() as usize;
        sorted.get(at.saturating_sub(1)).copied().unwrap_or_default()
    }

    pub(crate) fn max(&self) -> Duration {
        self.0.iter().max().copied().unwrap_or_default()
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = |time: Duration| format!("{:.1} s", time.as_secs_f64());
        write!(f, "{} (median; at most {})", tenths(self.quantile(0.5)), tenths(self.max()))
    }
}

/// Clients that keep a number of tasks in flight.
pub(crate) struct Crowd {
    nodes: Vec<Endpoint>,
    seed: u64,
    random: Mutex<Random>,
    busy: AtomicBool,
    /// Per client: the process whose work it saw last.
    moved_by: Vec<AtomicU32>,
    /// Changes with everything that anybody hears from a server.
    pub(crate) heard: watch::Sender<()>,
    /// Changes with everything that anybody is about to send.
    pub(crate) sent: watch::Sender<()>,
    reconnects: AtomicUsize,
    repeats: AtomicUsize,
    /// Answers that asked to come again.
    pub(crate) turned_away: AtomicUsize,
    /// How long it took until sends were turned away.
    pub(crate) away_after: Mutex<Times>,
}

impl Crowd {
    pub(crate) fn new(nodes: Vec<Endpoint>, clients: usize, seed: u64) -> Arc<Self> {
        let several = nodes.len() > 1;
        let known = nodes.into_iter().map(|node| if several { node.of_many() } else { node });
        Arc::new(Self {
            nodes: known.collect(),
            seed,
            random: Mutex::new(Random(seed ^ 1)),
            busy: AtomicBool::new(true),
            moved_by: (0..clients).map(|_| AtomicU32::new(0)).collect(),
            heard: watch::channel(()).0,
            sent: watch::channel(()).0,
            reconnects: AtomicUsize::new(0),
            repeats: AtomicUsize::new(0),
            turned_away: AtomicUsize::new(0),
            away_after: Mutex::default(),
        })
    }

    /// All clients, at work. While the crowd is busy, nobody leaves but by a failure.
    pub(crate) fn gather(self: &Arc<Self>) -> JoinSet<Vec<Story>> {
        let mut clients = JoinSet::new();
        for client in 0..self.moved_by.len() {
            clients.spawn(Arc::clone(self).keep_busy(client));
        }
        clients
    }

    /// Waits for the failure of a client.
    pub(crate) async fn failure(&self, clients: &mut JoinSet<Vec<Story>>) -> JoinError {
        match clients.join_next().await {
            Some(Err(failure)) => failure,
            _ => unreachable!("a client left"),
        }
    }

    /// Lets everybody end what they are at; what they saw.
    pub(crate) async fn disperse(
        &self,
        mut clients: JoinSet<Vec<Story>>,
        log: impl Fn() -> String,
    ) -> Vec<Story> {
        self.busy.store(false, Ordering::Release);
        let mut stories = vec![];
        while let Some(ended) = within("the end of every task", clients.join_next()).await {
            let ended = ended.unwrap_or_else(|failure| panic!("seed {}: {failure}\n{}", self.seed, log()));
            stories.extend(ended);
        }
        stories
    }

    /// One client: a task after the other.
    async fn keep_busy(self: Arc<Self>, client: usize) -> Vec<Story> {
        let mut stories = vec![];
        while self.busy.load(Ordering::Acquire) {
            let dialect = match (client + stories.len()) % 4 {
                0 => Dialect::V0_1,
                1 => Dialect::V0_3,
                _ => Dialect::V1,
            };
            let key = format!("{}-{client}-{}", self.seed, stories.len());
            let task = self.send(dialect, &key, None).await;
            let reader = Reader { dialect, task, id: key };
            let frames = self.follow(client, &reader).await;
            stories.push(Story { reader, frames });
        }
        stories
    }

    /// Any server that is there, or will be; another than that one, where there is one.
    fn any_node(&self, but: Option<usize>) -> usize {
        let there: Vec<_> = (0..self.nodes.len()).filter(|n| self.nodes[*n].serving() != 0).collect();
        let mut choice: Vec<_> = there.iter().copied().filter(|n| Some(*n) != but).collect();
        if choice.is_empty() {
            choice = if there.is_empty() { (0..self.nodes.len()).collect() } else { there };
        }
        choice[self.random.lock().unwrap().below(choice.len() as u64) as usize]
    }

    /// Sends until there is a complete answer, always under the same key: the task of it. To that node, or to
    /// any.
    pub(crate) async fn send(&self, dialect: Dialect, key: &str, to: Option<usize>) -> String {
        let call = send_call(dialect, key);
        loop {
            self.sent.send_replace(());
            let node = &self.nodes[to.unwrap_or_else(|| self.any_node(None))];
            let asked_at = Instant::now();
            let answer = match node.ask(dialect, key, &call, &[("Idempotency-Key", key)]).await {
                Ok(answer) => answer,
                Err(cut) => {
                    self.repeats.fetch_add(1, Ordering::Relaxed);
                    if matches!(cut, Cut::Away) {
                        self.away_after.lock().unwrap().0.push(asked_at.elapsed());
                    }
                    self.back_off(&cut).await;
                    continue;
                }
            };
            self.heard.send_replace(());
            let result = jsonrpc::parse_response(&answer).unwrap().outcome;
            let result = result.unwrap_or_else(|error| panic!("{key} was refused: {error}"));
            match dialect.read_sent(result).unwrap() {
                StreamEvent::Task(task) => return task.id,
                other => panic!("not a task: {other:?}"),
            }
        }
    }

    /// A request that the servers cannot do now, under a key of its own: how long it took until they said so.
    pub(crate) async fn try_in_vain(&self, key: &str, node: usize) -> Duration {
        let asked_at = Instant::now();
        let call = send_call(Dialect::V1, key);
        let answer = self.nodes[node].ask(Dialect::V1, key, &call, &[("Idempotency-Key", key)]).await;
        assert!(matches!(answer, Err(Cut::Away)), "{key}, while the store is away: {answer:?}");
        asked_at.elapsed()
    }

    async fn back_off(&self, cut: &Cut) {
        if matches!(cut, Cut::Away) {
            self.turned_away.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(BACK_OFF).await;
        }
    }

    /// Follows a task to its end, however often the stream is cut, each time at another server.
    pub(crate) async fn follow(&self, client: usize, reader: &Reader) -> Vec<Frame> {
        let mut frames: Vec<Frame> = vec![];
        let mut node = self.any_node(None);
        loop {
            match self.follow_once(&self.nodes[node], client, reader, &mut frames).await {
                Ok(()) => return frames,
                Err(cut) => {
                    self.reconnects.fetch_add(1, Ordering::Relaxed);
                    self.back_off(&cut).await;
                    node = self.any_node(Some(node));
                }
            };
        }
    }

    async fn follow_once(
        &self,
        node: &Endpoint,
        client: usize,
        reader: &Reader,
        frames: &mut Vec<Frame>,
    ) -> Result<(), Cut> {
        let after = frames.last().map_or(0, |frame| frame.id);
        let mut stream = node.subscribe(reader, after).await?;
        while let Some(frame) = stream.next().await? {
            let last = frames.last().map_or(0, |frame| frame.id);
            assert!(frame.id > last, "{reader:?}: after {last} came {frame:?}");
            let process = runner(&frame).and_then(|run| run.split('.').next()?.parse().ok());
            // One that comes by is not counted.
            if let (Some(process), Some(by)) = (process, self.moved_by.get(client)) {
                by.store(process, Ordering::Release);
            }
            frames.push(frame);
            self.heard.send_replace(());
        }
        Ok(())
    }

    /// Waits until the last that every client has seen of its task was done by one of these processes.
    pub(crate) async fn all_moved_by(&self, processes: &[u32]) {
        let mut heard = self.heard.subscribe();
        while !self.moved_by.iter().all(|by| processes.contains(&by.load(Ordering::Acquire))) {
            heard.changed().await.unwrap();
        }
    }

    /// Notes that a client has no task any more.
    pub(crate) fn leave(&self, client: usize) {
        self.moved_by[client].store(NOBODY, Ordering::Release);
        self.heard.send_replace(());
    }

    /// Forgets who has moved what: everything has to move again.
    pub(crate) fn forget(&self) {
        for by in &self.moved_by {
            by.store(0, Ordering::Release);
        }
    }

    /// Compares everything: nothing that was acknowledged is lost, nothing was done twice. What there was.
    pub(crate) async fn check(&self, stories: &[Story], world: &Path) -> Told {
        let tasks = self.listed().await;
        let acknowledged: BTreeSet<_> = stories.iter().map(|story| story.reader.task.clone()).collect();
        assert_eq!(acknowledged.len(), stories.len(), "two sends were answered with one task");
        let lost: Vec<_> = acknowledged.difference(&tasks).collect();
        assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
        let unknown: Vec<_> = tasks.difference(&acknowledged).collect();
        assert!(unknown.is_empty(), "made by a send that was answered with another task: {unknown:?}");
        let ledger = read_ledger(world);
        assert_eq!(ledger.len(), stories.len(), "there was work without a task");
        let (mut events, mut steps) = (0, 0);
        for (n, story) in stories.iter().enumerate() {
            let lines = &ledger[&story.reader.id];
            story.check(&self.nodes[n % self.nodes.len()], lines).await;
            events += story.frames.len();
            steps += lines.iter().filter(|line| line.step > 0).count();
        }
        let all = stories.len() * STEPS as usize;
        Told {
            tasks: stories.len(),
            repeats: self.repeats.load(Ordering::Relaxed),
            events,
            reconnects: self.reconnects.load(Ordering::Relaxed),
            redone: steps - all,
            steps: all,
        }
    }

    /// Every task that the server has.
    async fn listed(&self) -> BTreeSet<String> {
        let mut tasks = BTreeSet::new();
        let mut list = ListTasks { page_size: 7, ..ListTasks::default() };
        loop {
            let call = A2aCall::List(list.clone());
            let answer = self.nodes[0].ask(Dialect::V1, "list", &call, &[]).await.unwrap();
            let result = jsonrpc::parse_response(&answer).unwrap().outcome.unwrap();
            let page = Dialect::V1.read_list(result).unwrap();
            for task in page.tasks {
                assert_eq!(task.state, State::Completed, "{task:?}");
                assert!(tasks.insert(task.id.clone()), "{} is listed twice", task.id);
            }
            list.page_token = page.next;
            if list.page_token.is_none() {
                assert_eq!(page.total, Some(tasks.len() as u64));
                return tasks;
            }
        }
    }
}

/// The send of a task of `ledger`.
fn send_call(dialect: Dialect, key: &str) -> A2aCall {
    let mut send = SendMessage::new(Message::text(format!("message-{key}"), Role::User, key));
    send.blocking = false;
    send.client_task_id = (dialect == Dialect::V0_1).then(|| key.to_owned());
    A2aCall::Send(Box::new(send))
}

/// What there was, for the line that sums a run up.
pub(crate) struct Told {
    tasks: usize,
    repeats: usize,
    events: usize,
    reconnects: usize,
    redone: usize,
    steps: usize,
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tasks, repeats, events, reconnects, redone, steps } = self;
        write!(
            f,
            "{tasks} acknowledged ({repeats} sends repeated), {events} events, {reconnects} reconnects, \
             {redone} of {steps} steps begun again"
        )
    }
}

/// What one client saw of one task.
pub(crate) struct Story {
    pub(crate) reader: Reader,
    pub(crate) frames: Vec<Frame>,
}

impl Story {
    /// How many runs it took.
    pub(crate) fn runs(&self) -> usize {
        self.frames.iter().filter_map(runner).collect::<BTreeSet<_>>().len()
    }

    async fn check(&self, endpoint: &Endpoint, lines: &[Line]) {
        self.check_frames(endpoint).await;
        let task = self.task(endpoint).await;
        assert_eq!(task.history.len(), 1, "{:?} was told more than once: {:?}", self.reader, task.history);
        self.check_steps(&task, lines);
    }

    /// What the client saw, in pieces, is what the log has: to the byte, without a gap, to the end. And a run
    /// that was followed by another has written nothing after that.
    async fn check_frames(&self, endpoint: &Endpoint) {
        let log = endpoint.subscribe(&self.reader, 0).await.unwrap().rest().await.unwrap();
        same(&self.frames, &log, &format!("{:?}", self.reader));
        // Event 1 is the message, which has no frame; all that follow have one.
        let ids: Vec<_> = log.iter().map(|frame| frame.id).collect();
        assert_eq!(ids, (2..2 + log.len() as u64).collect::<Vec<_>>(), "{:?}", self.reader);
        // The beginning, a word of progress after each step, the end.
        let mut expected = vec![State::Working; 1 + STEPS as usize];
        expected.push(State::Completed);
        let states: Vec<_> = log.iter().filter_map(|frame| self.state_in(frame)).collect();
        assert_eq!(states, expected, "{:?}", self.reader);
        let mut runners: Vec<_> = log.iter().filter_map(runner).collect();
        runners.dedup();
        let distinct: BTreeSet<_> = runners.iter().collect();
        assert_eq!(distinct.len(), runners.len(), "{:?}: one wrote too late: {runners:?}", self.reader);
    }

    fn state_in(&self, frame: &Frame) -> Option<State> {
        let result = jsonrpc::parse_response(frame.data()).unwrap().outcome.unwrap();
        match self.reader.dialect.read_event(result).unwrap() {
            StreamEvent::Status(status) => Some(status.state),
            _ => None,
        }
    }

    async fn task(&self, endpoint: &Endpoint) -> TaskView {
        let call = A2aCall::Get { task: self.reader.task.clone(), history_length: None };
        let answer = endpoint.ask(Dialect::V1, "get", &call, &[]).await.unwrap();
        let result = jsonrpc::parse_response(&answer).unwrap().outcome.unwrap();
        Dialect::V1.read_task(result).unwrap()
    }

    /// What the task's steps did, did them once: no run did again what one before it had finished, and of what
    /// a step said only the try that finished it stands. A run that does not know yet that another has followed
    /// it may still do what it was at, once; it just cannot finish it.
    fn check_steps(&self, task: &TaskView, lines: &[Line]) {
        let mut done = BTreeSet::new();
        for line in lines {
            assert!(done.insert((line.step, &line.run)), "{:?}: {line:?} twice", self.reader);
        }
        let began = |run: &str| lines.iter().position(|line| line.step == 0 && line.run == run).unwrap();
        let text = |id: &str| {
            let found = task.artifacts.iter().find(|artifact| artifact.id == id);
            let parts = found.map(|artifact| &artifact.parts[..]).unwrap_or_default();
            parts.iter().map(|part| part.as_text().unwrap()).collect::<String>()
        };
        // What the try that finished a step returned is what the agent went on with.
        let results = text("ledger");
        let mut finished = results.lines();
        let mut last = 0;
        for step in 1..=STEPS {
            let by = finished.next().and_then(|line| line.strip_prefix(&format!("{step} by ")));
            let by = by.unwrap_or_else(|| panic!("{:?}: step {step} is not in {results:?}", self.reader));
            assert!(done.contains(&(step, &by.to_owned())), "{:?}: step {step} was never done", self.reader);
            assert_eq!(
                text(&format!("step-{step}")),
                format!("begun by {by}, done by {by}"),
                "{:?}",
                self.reader
            );
            let began_by = began(by);
            assert!(last <= began_by, "{:?}: step {step} was finished by an earlier run", self.reader);
            last = began_by;
            for line in lines.iter().filter(|line| line.step == step && line.run != by) {
                assert!(began(&line.run) < began_by, "{:?}: {line:?} had been done by {by}", self.reader);
            }
        }
        assert_eq!(finished.next(), None, "{:?}", self.reader);
    }
}

/// The run that says in this frame that it has begun a step, or done it.
fn runner(frame: &Frame) -> Option<&str> {
    let text = std::str::from_utf8(&frame.bytes).unwrap();
    let said = ["begun by ", "done by "].iter().find_map(|said| text.split_once(said))?.1;
    said.split(|c: char| !c.is_ascii_digit() && c != '.').next()
}

/// One thing that a step did; of step 0, that a run began.
#[derive(Debug)]
struct Line {
    step: u32,
    run: String,
}

/// What was done, by task, in the order in which it was done.
fn read_ledger(world: &Path) -> BTreeMap<String, Vec<Line>> {
    let mut ledger: BTreeMap<String, Vec<Line>> = BTreeMap::new();
    for line in std::fs::read_to_string(ledger_file(world)).unwrap().lines() {
        let words: Vec<_> = line.split(' ').collect();
        let [key, step, run] = words[..] else { panic!("not a line of the ledger: {line:?}") };
        let line = Line { step: step.parse().unwrap(), run: run.to_owned() };
        ledger.entry(key.to_owned()).or_default().push(line);
    }
    ledger
}
