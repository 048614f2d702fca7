//! The official Rust SDK (rmcp), as it connects with `initialize` (2025-11-25) and with `server/discover`
//! (2026-07-28).
//!
//! ```text
//! rmcp-stories http://127.0.0.1:8080/mcp
//! ```
//!
//! The server serves the built-in agents as tools, with short steps.

// The crate marks sampling as deprecated, which it is in the newest revision; servers still ask for it.
#![allow(deprecated)]

use std::{
    future::Future,
    process::ExitCode,
    sync::{Arc, Mutex},
    time::Duration,
};

use rmcp::{
    ClientHandler, ClientLifecycleMode, ClientServiceExt,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ClientInfo, CreateMessageRequestParams,
        CreateMessageResult, ElicitRequestParams, ElicitResult, ElicitationAction, ErrorCode, ErrorData,
        GetTaskParams, Implementation, InputRequest, InputResponses, ProgressNotificationParam,
        ProtocolVersion, ReadResourceRequestParams, SamplingMessage, TaskPayload, UpdateTaskParams,
    },
    service::{NotificationContext, RequestContext, RoleClient, RunningService, ServiceError},
    transport::StreamableHttpClientTransport,
};
use serde_json::{Value, json};

const LONGEST_STORY: Duration = Duration::from_secs(60);
const BLINK: Duration = Duration::from_millis(10);

/// What went wrong in a story.
type Failure = Box<dyn std::error::Error + Send + Sync>;
type Told = Result<(), Failure>;

/// Fails the story, with what was there instead.
macro_rules! expect {
    ($holds:expr, $($instead:tt)+) => {
        if !$holds {
            return Err(format!($($instead)+).into());
        }
    };
}

/// Who uses the client: can be asked everything, and remembers what it heard.
#[derive(Clone)]
struct Person {
    capabilities: Value,
    heard: Arc<Mutex<Heard>>,
}

#[derive(Default, Clone, Debug)]
struct Heard {
    questions: Vec<String>,
    prompts: Vec<String>,
    progress: Vec<f64>,
}

impl Person {
    fn new(capabilities: Value) -> Self {
        Self { capabilities, heard: Arc::default() }
    }

    fn heard(&self) -> Heard {
        self.heard.lock().unwrap().clone()
    }

    /// Progress comes beside the result, and each notification is handled for itself: the last may come after the
    /// result, and in another order than it was sent.
    async fn progress(&self, count: usize) -> Vec<f64> {
        let all_heard = async {
            while self.heard().progress.len() < count {
                tokio::time::sleep(BLINK).await;
            }
        };
        // What is missing is told by whoever looks at it.
        let _ = tokio::time::timeout(Duration::from_secs(5), all_heard).await;
        let mut progress = self.heard().progress;
        progress.sort_by(f64::total_cmp);
        progress
    }
}

impl ClientHandler for Person {
    fn get_info(&self) -> ClientInfo {
        let capabilities = serde_json::from_value(self.capabilities.clone()).unwrap();
        ClientInfo::new(capabilities, Implementation::new("rmcp-stories", "0"))
            .with_protocol_version(ProtocolVersion::V_2025_11_25)
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let ElicitRequestParams::FormElicitationParams { message, .. } = request else {
            return Ok(ElicitResult::new(ElicitationAction::Decline));
        };
        self.heard.lock().unwrap().questions.push(message);
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(json!({ "confirm": true })))
    }

    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        let prompt = serde_json::to_string(&params.messages).unwrap();
        self.heard.lock().unwrap().prompts.push(prompt);
        Ok(CreateMessageResult::new(SamplingMessage::assistant_text("Bees are busy."), "scripted".into()))
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.heard.lock().unwrap().progress.push(params.progress);
    }
}

/// How to connect.
#[derive(Clone)]
struct Mode {
    url: String,
    name: &'static str,
    revision: ProtocolVersion,
    lifecycle: ClientLifecycleMode,
}

type Client = RunningService<RoleClient, Person>;

impl Mode {
    async fn connect(&self, person: &Person) -> Result<Client, Failure> {
        let transport = StreamableHttpClientTransport::from_uri(self.url.as_str());
        Ok(person.clone().serve_with_lifecycle(transport, self.lifecycle.clone()).await?)
    }
}

fn asked_everything() -> Person {
    Person::new(json!({ "elicitation": { "form": {} }, "sampling": {} }))
}

fn asked_nothing() -> Person {
    Person::new(json!({}))
}

fn call(name: &'static str, arguments: Value) -> CallToolRequestParams {
    CallToolRequestParams::new(name).with_arguments(arguments.as_object().cloned().unwrap())
}

/// Everything that a result says.
fn words(result: &CallToolResult) -> String {
    let texts = result.content.iter().filter_map(|block| block.as_text());
    texts.map(|text| text.text.as_str()).collect::<Vec<_>>().join("\n")
}

async fn meets_the_server(mode: Mode) -> Told {
    let client = mode.connect(&asked_nothing()).await?;
    let info = client.peer_info().ok_or("the server did not say who it is")?;
    let told = serde_json::to_value(&*info)?;
    expect!(info.protocol_version == mode.revision, "{told}");
    expect!(told["serverInfo"]["name"] == "nuncio", "{told}");
    client.cancel().await?;
    Ok(())
}

async fn finds_the_agents(mode: Mode) -> Told {
    let client = mode.connect(&asked_nothing()).await?;
    let tools = client.list_all_tools().await?;
    let names: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
    for name in ["echo", "travel_agent", "research_agent", "long_running_agent"] {
        expect!(names.contains(&name), "{name} is not among {names:?}");
    }
    client.cancel().await?;
    Ok(())
}

async fn hears_its_echo(mode: Mode) -> Told {
    let client = mode.connect(&asked_nothing()).await?;
    let text = "Hello, is anybody there? äöü 😀";
    let result = client.call_tool(call("echo", json!({ "text": text }))).await?;
    expect!(words(&result).contains(text) && result.is_error != Some(true), "{result:?}");
    client.cancel().await?;
    Ok(())
}

async fn books_after_a_yes(mode: Mode) -> Told {
    let person = asked_everything();
    let client = mode.connect(&person).await?;
    let result = client.call_tool(call("travel_agent", json!({ "destination": "Lisbon" }))).await?;
    expect!(words(&result).contains("Trip to Lisbon booked for $1200. Reference: TRIP-"), "{result:?}");
    let questions = person.heard().questions;
    expect!(questions.len() == 1 && questions[0].contains("$1200"), "{questions:?}");
    let mut progress = person.progress(5).await;
    // A question in between makes two requests of one call; the second may say again where it stands.
    progress.dedup();
    expect!(progress == [0.0, 25.0, 50.0, 75.0, 100.0], "{progress:?}");
    client.cancel().await?;
    Ok(())
}

async fn books_nothing_when_nobody_can_be_asked(mode: Mode) -> Told {
    let client = mode.connect(&asked_nothing()).await?;
    let result = client.call_tool(call("travel_agent", json!({ "destination": "Lisbon" }))).await?;
    expect!(words(&result).contains("Price quoted, not booked"), "{result:?}");
    client.cancel().await?;
    Ok(())
}

async fn writes_with_the_callers_model(mode: Mode) -> Told {
    let person = asked_everything();
    let client = mode.connect(&person).await?;
    let result = client.call_tool(call("research_agent", json!({ "topic": "bees" }))).await?;
    let text = words(&result);
    expect!(text.contains("Bees are busy."), "{result:?}");
    expect!(text.contains("The summary was written by your model."), "{result:?}");
    let prompts = person.heard().prompts;
    expect!(prompts.len() == 1 && prompts[0].contains("bees"), "{prompts:?}");
    client.cancel().await?;
    Ok(())
}

async fn hears_every_step(mode: Mode) -> Told {
    let person = asked_nothing();
    let client = mode.connect(&person).await?;
    let result = client.call_tool(call("long_running_agent", json!({}))).await?;
    expect!(words(&result).contains("All 50 steps are done."), "{result:?}");
    let progress = person.progress(50).await;
    expect!(progress == (1..=50).map(f64::from).collect::<Vec<_>>(), "{progress:?}");
    client.cancel().await?;
    Ok(())
}

async fn reads_a_task_as_a_resource(mode: Mode) -> Told {
    let client = mode.connect(&asked_nothing()).await?;
    let result = client.call_tool(call("travel_agent", json!({ "destination": "Lisbon" }))).await?;
    let meta = serde_json::to_value(&result.meta)?;
    let id = meta["nuncio/taskId"].as_str().ok_or_else(|| format!("the result names no task: {meta}"))?;
    let read = client.read_resource(ReadResourceRequestParams::new(format!("a2a://tasks/{id}"))).await?;
    let text = serde_json::to_string(&read.contents)?;
    expect!(text.contains("completed") && text.contains("taskId"), "{text}");
    client.cancel().await?;
    Ok(())
}

async fn an_unknown_tool_is_an_error(mode: Mode) -> Told {
    let client = mode.connect(&asked_nothing()).await?;
    match client.call_tool(call("no_such_agent", json!({}))).await {
        Err(ServiceError::McpError(error)) => expect!(error.code == ErrorCode::INVALID_PARAMS, "{error:?}"),
        other => return Err(format!("not an error of the server: {other:?}").into()),
    }
    client.cancel().await?;
    Ok(())
}

/// The extension of 2026-07-28: a call is answered with a task, which is asked for and answered by its id.
async fn goes_by_task(mode: Mode) -> Told {
    let person = Person::new(json!({
        "elicitation": { "form": {} },
        "extensions": { "io.modelcontextprotocol/tasks": {} },
    }));
    let client = mode.connect(&person).await?;
    let made = client.call_tool_once(call("travel_agent", json!({ "destination": "Lisbon" }))).await?;
    let CallToolResponse::Task(made) = made else { return Err(format!("not a task: {made:?}").into()) };
    let id = made.task.task_id.clone();
    let mut questions = 0;
    let result = loop {
        let got = client.get_task(GetTaskParams::new(id.clone())).await?;
        match got.task.payload {
            TaskPayload::InputRequired { input_requests } => {
                let mut responses = InputResponses::new();
                for (name, request) in input_requests {
                    let InputRequest::Elicitation(_) = request else {
                        return Err(format!("not an elicitation: {request:?}").into());
                    };
                    questions += 1;
                    let yes =
                        ElicitResult::new(ElicitationAction::Accept).with_content(json!({ "confirm": true }));
                    responses.insert(name, serde_json::to_value(yes)?);
                }
                match client.update_task(UpdateTaskParams::new(id.clone(), responses)).await {
                    // rmcp 3.8.0 takes an acknowledgement that has `_meta` for a result of tools/call.
                    Ok(()) | Err(ServiceError::UnexpectedResponse) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            TaskPayload::Working => tokio::time::sleep(BLINK).await,
            TaskPayload::Completed { result } => break serde_json::to_string(&result)?,
            other => return Err(format!("the task ended otherwise: {other:?}").into()),
        }
    };
    expect!(result.contains("Trip to Lisbon booked for $1200. Reference: TRIP-"), "{result}");
    expect!(questions == 1, "{questions} questions");
    client.cancel().await?;
    Ok(())
}

#[derive(Default)]
struct Count {
    passed: usize,
    failed: usize,
}

impl Count {
    async fn tell<F: Future<Output = Told>>(
        &mut self,
        mode: &Mode,
        name: &str,
        story: impl FnOnce(Mode) -> F,
    ) {
        let why = match tokio::time::timeout(LONGEST_STORY, story(mode.clone())).await {
            Ok(Ok(())) => {
                self.passed += 1;
                println!("ok rmcp/{}/{name}", mode.name);
                return;
            }
            Ok(Err(why)) => why.to_string().replace('\n', " "),
            Err(_) => "it did not end".into(),
        };
        self.failed += 1;
        println!("FAIL rmcp/{}/{name}: {why}", mode.name);
    }
}

macro_rules! tell {
    ($count:ident, $mode:ident: $($story:ident),+ $(,)?) => {
        $($count.tell(&$mode, stringify!($story), $story).await;)+
    };
}

#[tokio::main]
async fn main() -> ExitCode {
    let Some(url) = std::env::args().nth(1) else {
        eprintln!("usage: rmcp-stories URL");
        return ExitCode::from(2);
    };
    let newest = ProtocolVersion::V_2026_07_28;
    let modes = [
        Mode {
            url: url.clone(),
            name: "initialize",
            revision: ProtocolVersion::V_2025_11_25,
            lifecycle: ClientLifecycleMode::Initialize,
        },
        Mode {
            url,
            name: "discover",
            revision: newest.clone(),
            lifecycle: ClientLifecycleMode::Discover { preferred_versions: vec![newest.clone()] },
        },
    ];
    let mut count = Count::default();
    for mode in modes {
        tell!(count, mode:
            meets_the_server,
            finds_the_agents,
            hears_its_echo,
            books_after_a_yes,
            books_nothing_when_nobody_can_be_asked,
            writes_with_the_callers_model,
            hears_every_step,
            reads_a_task_as_a_resource,
            an_unknown_tool_is_an_error,
        );
        if mode.revision == newest {
            tell!(count, mode: goes_by_task);
        }
    }
    println!("{} passed, {} failed", count.passed, count.failed);
    if count.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
