//! A nuncio server whose agents do what the message tells them, and calls that are easy to follow.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use nuncio_client::{
    mcp::{McpPeer, McpPeerOptions},
    peer::{CallEvent, CallHandle, PeerCall, PeerCallEnd, PeerCallRequest, PeerError, PeerLocation},
};
use nuncio_engine::{
    Agent, AgentError, Answer, Caller, Catalog, Chunk, Engine, EngineParts, Level, List, Message, Outcome,
    Part, Profile, Role, TaskContext, TaskUse,
    question::Question,
    surface::{HandlerReply, Surface, ToolOutput, ToolProfile, tool},
};
use nuncio_server::{Server, ServerOptions};
use nuncio_store::SqliteOptions;
use nuncio_testkit::open_in;
use nuncio_wire::mcp::McpVersion;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    net::TcpListener,
    sync::{oneshot, watch},
    task::JoinHandle,
};

/// The agents are `plain` (no tasks), `either` and `tasks` (only tasks), and all do what they are told.
pub(super) struct Stage {
    pub(super) url: url::Url,
    pub(super) engine: Engine,
    gate: watch::Sender<u32>,
    _folder: TempDir,
    _stop: oneshot::Sender<()>,
    _server: JoinHandle<()>,
}

impl Stage {
    pub(super) async fn new() -> Self {
        let gate = watch::Sender::new(0);
        let mut catalog = Catalog::default();
        for (name, tasks) in
            [("plain", TaskUse::Never), ("either", TaskUse::Offered), ("tasks", TaskUse::Required)]
        {
            let mut profile = Profile::new(name, "Does what the first word of the message says.");
            profile.tasks = tasks;
            catalog.add(Arc::new(Player { profile, gate: gate.subscribe() })).unwrap();
        }
        let surface = Arc::new(Surface::default());
        surface.add_tool(add()).unwrap();
        catalog.set_surface(surface);
        let folder = tempfile::tempdir().unwrap();
        let store = open_in(folder.path(), SqliteOptions { readers: 2, ..SqliteOptions::default() }).await;
        let engine = Engine::start(EngineParts::new(store, catalog)).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap()).parse().unwrap();
        let (stop, told) = oneshot::channel::<()>();
        let server = Server::new(engine.clone(), ServerOptions::default());
        let server = tokio::spawn(async move {
            let told = async { drop(told.await) };
            server.run(listener, told).await.unwrap();
        });
        Self { url, engine, gate, _folder: folder, _stop: stop, _server: server }
    }

    /// Lets agents that wait for this gate, or an earlier one, go on.
    pub(super) fn open(&self, gate: u32) {
        self.gate.send_replace(gate);
    }

    pub(super) fn peer(&self, version: McpVersion) -> McpPeer {
        peer_at(&self.url, version)
    }

    /// How many tasks have not ended.
    pub(super) async fn at_work(&self) -> usize {
        let listed =
            self.engine.list(&Caller::local(), List { page_size: 100, ..List::default() }).await.unwrap();
        listed.tasks.iter().filter(|task| !task.state.is_terminal()).count()
    }

    /// Adds a tool while the server runs.
    pub(super) fn add_tool(&self) {
        self.engine.catalog().surface().add_tool(add()).unwrap();
    }
}

pub(super) fn peer_at(url: &url::Url, version: McpVersion) -> McpPeer {
    let options = McpPeerOptions { log_level: Level::Info.into(), ..options() };
    McpPeer::new(PeerLocation::Url(url.clone()), McpPeerOptions { version: Some(version), ..options })
}

/// Options that do not keep a test waiting.
pub(super) fn options() -> McpPeerOptions {
    McpPeerOptions {
        max_backoff: Duration::from_millis(50),
        request_timeout: Duration::from_secs(10),
        ..McpPeerOptions::default()
    }
}

/// A tool that answers at once, with structured content, and repeats an argument in a header.
fn add() -> impl nuncio_engine::surface::Tool {
    let mut profile = ToolProfile::new("add", "Adds two numbers.");
    profile.input_schema = json!({
        "type": "object",
        "properties": {
            "a": { "type": "integer", "x-mcp-header": "A" },
            "b": { "type": "integer" },
        },
        "required": ["a", "b"],
    });
    tool(profile, |request| async move {
        let number = |name: &str| request.arguments[name].as_i64().unwrap_or_default();
        let sum = json!({ "sum": number("a") + number("b") });
        let mut output = ToolOutput::text(sum.to_string());
        output.structured = Some(sum);
        Ok(HandlerReply::Done(output))
    })
}

struct Player {
    profile: Profile,
    gate: watch::Receiver<u32>,
}

impl Player {
    async fn pass(&self, cx: &TaskContext, gate: u32) -> Result<(), AgentError> {
        let mut open = self.gate.clone();
        tokio::select! {
            Ok(_) = open.wait_for(|open| *open >= gate) => Ok(()),
            () = cx.canceled() => Err(AgentError::Canceled),
        }
    }
}

#[async_trait]
impl Agent for Player {
    fn profile(&self) -> Profile {
        self.profile.clone()
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        let text = match cx.argument("text") {
            Some(text) => text.as_str().unwrap_or_default().to_owned(),
            None => cx.text(),
        };
        let (word, argument) = text.split_once(' ').unwrap_or((&text, ""));
        match word {
            // So many steps, each with progress and a line in the log; slowly: one step for each gate.
            "tell" | "tell-slowly" => {
                let count: u32 = argument.parse().map_err(AgentError::failed)?;
                for n in 1..=count {
                    if word == "tell-slowly" {
                        self.pass(&cx, n).await?;
                    }
                    cx.log(Level::Info, format!("line {n}")).await?;
                    cx.progress(f64::from(n), Some(f64::from(count)), format!("step {n}")).await?;
                }
                Ok(Outcome::said(format!("told {count}")))
            }
            "wait" => {
                cx.progress(1.0, None, "waiting").await?;
                cx.canceled().await;
                Err(AgentError::Canceled)
            }
            "ask" => Ok(Outcome::said(word_of(&cx.ask("Really?", confirmation()).await?))),
            "ask-both" => {
                let (left, right) = (cx.branch("left"), cx.branch("right"));
                let (left, right) =
                    tokio::join!(async move { left.ask("Left?", confirmation()).await }, async move {
                        right.ask("Right?", confirmation()).await
                    });
                Ok(Outcome::said(format!("{}, {}", word_of(&left?), word_of(&right?))))
            }
            "sample" => {
                let answer = cx.sample("Say something.", Some("Be brief.".into()), 50).await?;
                Ok(Outcome::said(answer.text().unwrap_or("no model").to_owned()))
            }
            "book" => {
                cx.artifact(Chunk::text("one", "Chapter 1").complete()).await?;
                cx.artifact(Chunk::text("two", "Chapter 2").complete()).await?;
                Ok(Outcome::done())
            }
            "fail" => Ok(Outcome::failed(argument)),
            _ => Ok(Outcome::said(text)),
        }
    }
}

fn confirmation() -> Value {
    json!({ "type": "object", "properties": { "confirm": { "type": "boolean" } }, "required": ["confirm"] })
}

fn word_of(answer: &Answer) -> String {
    let word = match answer {
        Answer::Accept(data) if data["confirm"] == true => "yes",
        Answer::Accept(_) => "no",
        Answer::Decline(_) => "declined",
        Answer::Cancel => "dismissed",
        Answer::Unavailable => "unavailable",
    };
    answer.note().map_or_else(|| word.to_owned(), |note| format!("{word}: {note}"))
}

/// A call with that text.
pub(super) fn say(offer: &str, text: &str) -> PeerCallRequest {
    begin(offer, vec![Part::text(text)])
}

/// A call with these arguments.
pub(super) fn with(offer: &str, arguments: Value) -> PeerCallRequest {
    begin(offer, vec![Part::data(arguments)])
}

fn begin(offer: &str, parts: Vec<Part>) -> PeerCallRequest {
    let input = Message::of(uuid::Uuid::now_v7().to_string(), Role::User, parts);
    PeerCallRequest { offer: offer.into(), input, context: None, trace: None }
}

/// What happened in a call so far.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Progress, log lines and words, in short.
    pub(super) told: Vec<String>,
    pub(super) questions: Vec<Question>,
    pub(super) settled: Vec<String>,
    pub(super) result: Vec<Part>,
    pub(super) handles: Vec<CallHandle>,
    pub(super) ended: Option<PeerCallEnd>,
}

impl Seen {
    pub(super) fn take(&mut self, happened: CallEvent) {
        match happened {
            CallEvent::HandleUpdated(handle) => self.handles.push(handle),
            CallEvent::Progress(progress) => {
                self.told.push(format!("{}: {}", progress.done, progress.text.unwrap_or_default()));
            }
            CallEvent::Log(line) => self.told.push(line.text),
            CallEvent::Context(_) => {}
            CallEvent::Message(message) => self.told.push(message.joined_text()),
            CallEvent::Artifact(chunk) => self.result.extend(chunk.parts),
            CallEvent::Question(question) => self.questions.push(question),
            CallEvent::QuestionClosed(question) => self.settled.push(question),
            CallEvent::Ended(ended) => self.ended = Some(ended),
        }
    }

    /// The texts of the result.
    pub(super) fn text(&self) -> String {
        self.result.iter().filter_map(Part::as_text).collect::<Vec<_>>().join("\n")
    }
}

/// Follows a call until something is so, or it ends.
pub(super) async fn until(
    call: &mut PeerCall,
    seen: &mut Seen,
    so: impl Fn(&Seen) -> bool,
) -> Result<(), PeerError> {
    within(async {
        while !so(seen) && seen.ended.is_none() {
            seen.take(call.next().await?);
        }
        Ok(())
    })
    .await
}

/// Follows a call to its end; every form is confirmed, every sample said.
pub(super) async fn follow(call: &mut PeerCall) -> Result<Seen, PeerError> {
    let mut seen = Seen::default();
    follow_on(call, &mut seen).await?;
    Ok(seen)
}

pub(super) async fn follow_on(call: &mut PeerCall, seen: &mut Seen) -> Result<(), PeerError> {
    let mut answered = 0;
    while seen.ended.is_none() {
        until(call, seen, |seen| seen.questions.len() > answered).await?;
        if let Some(question) = seen.questions.get(answered) {
            let answer = match &question.ask {
                nuncio_engine::question::Ask::Sample { .. } => json!({ "text": "something" }),
                _ => json!({ "confirm": true }),
            };
            match within(call.answer(&question.id.clone(), Answer::Accept(answer))).await {
                // It was told twice, and is answered.
                Ok(()) | Err(PeerError::Gone(_)) => answered += 1,
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Waits, but not for ever.
pub(super) async fn within<T>(work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(20), work).await {
        Ok(done) => done,
        Err(_) => panic!("it takes too long"),
    }
}
