//! `nuncio conformance`: a smoke check of a live agent, with the core cases of A2A's compatibility kit.
//!
//! It reads the card, sends one message, and asks for what cannot exist, with nothing but an address. The kit itself
//! (a2aproject/a2a-tck) checks far more: `--kit` runs it where it has been set up. The exit code is 1 if a check failed.

use std::{
    path::{Path, PathBuf},
    process::{ExitCode, Stdio},
};

use clap::Args;
use nuncio_client::a2a::{A2aBinding, A2aClient, A2aClientError, WELL_KNOWN, problems};
use nuncio_engine::content::{Message, Part, Role};
use nuncio_wire::a2a::{Dialect, ListTasks, SendMessage, StreamEvent};
use serde_json::{Value, json};
use url::Url;

use super::{
    connection::{AgentConnection, AgentFlags},
    error::CliError,
    output,
    text::TextOutput,
};

const TASK_NOT_FOUND: i64 = -32001;
const PUSH_NOT_SUPPORTED: i64 = -32003;

#[derive(Args)]
pub(crate) struct ConformanceFlags {
    /// The text that is sent to the agent. It does what it does with it
    #[arg(long, default_value = "Hello", value_name = "TEXT")]
    text: String,
    /// Run A2A's compatibility kit as well: the folder that it was cloned to (branch 1.0-dev), with its dependencies in
    /// .venv. Its output goes to the standard error
    #[arg(long, value_name = "FOLDER")]
    kit: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) agent: AgentFlags,
}

/// The outcome of one check.
enum CheckOutcome {
    Passed,
    Failed(String),
    /// The agent does not declare what the check is about.
    Skipped(String),
}

struct ConformanceCheck {
    name: &'static str,
    /// The section of A2A 1.0 that it is about.
    section: &'static str,
    outcome: CheckOutcome,
}

impl ConformanceFlags {
    pub(crate) async fn run(self) -> Result<ExitCode, CliError> {
        let connection = self.agent.resolve()?;
        connection.bounded(check_agent(&connection, &self.text, self.kit.as_deref())).await
    }
}

async fn check_agent(
    connection: &AgentConnection,
    text: &str,
    kit: Option<&Path>,
) -> Result<ExitCode, CliError> {
    let received = connection.card().await?;
    let card: Value = serde_json::from_str(received.json.get()).map_err(std::io::Error::other)?;
    // An agent that cannot be called at all is the command's own failure, with its own exit code.
    let client = connection.client().await?;
    let mut suite = ConformanceSuite { client, checks: vec![] };
    let wrong = if suite.client.dialect() >= Dialect::V1 { problems(&card) } else { vec![] };
    suite.record("the card is valid", "4.4", if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) });
    suite.check_task(text).await;
    suite.check_absent_task().await;
    suite.check_stream(text).await;
    suite.check_push_notifications().await;
    if let Some(kit) = kit {
        let result = run_kit(kit, connection.card_url(), suite.client.binding()).await?;
        suite.record("the compatibility kit finds no failure", "all", result);
    }
    suite.report(connection)
}

/// Runs the kit's requirements of level MUST for the agent at that host, in the binding that this command uses.
async fn run_kit(kit: &Path, at: Option<&Url>, binding: A2aBinding) -> Result<Result<(), String>, CliError> {
    let usage = |why: String| CliError::Usage(why);
    let at = at.ok_or_else(|| usage("--kit needs an agent at an address, not a file".to_owned()))?;
    let runner = kit.join("run_tck.py");
    if !runner.is_file() {
        return Err(usage(format!("{} is not the folder of a2a-tck: it has no run_tck.py", kit.display())));
    }
    let own = kit.join(".venv/bin/python");
    let python = if own.is_file() { own } else { PathBuf::from("python3") };
    let transport = match binding {
        A2aBinding::JsonRpc => "jsonrpc",
        A2aBinding::HttpJson => "http_json",
        A2aBinding::Grpc => "grpc",
    };
    // The kit appends the well-known path.
    let mut host = at.clone();
    let path = host.path().strip_suffix(WELL_KNOWN).map(str::to_owned);
    host.set_path(path.as_deref().unwrap_or_default());
    let mut command = tokio::process::Command::new(&python);
    command
        .arg(runner.canonicalize()?)
        .args([
            "--sut-host",
            host.as_str().trim_end_matches('/'),
            "--transport",
            transport,
            "--level",
            "must",
        ])
        .current_dir(kit)
        .stdin(Stdio::null())
        .stdout(std::io::stderr())
        .kill_on_drop(true);
    let ended = command.status().await;
    let ended = ended.map_err(|error| usage(format!("{} cannot be started: {error}", python.display())))?;
    Ok(if ended.success() { Ok(()) } else { Err(format!("it ended with {ended}")) })
}

struct ConformanceSuite {
    client: A2aClient,
    checks: Vec<ConformanceCheck>,
}

impl ConformanceSuite {
    fn record(&mut self, name: &'static str, section: &'static str, result: Result<(), String>) {
        let outcome = match result {
            Ok(()) => CheckOutcome::Passed,
            Err(why) => CheckOutcome::Failed(why),
        };
        self.checks.push(ConformanceCheck { name, section, outcome });
    }

    fn skip(&mut self, name: &'static str, section: &'static str, why: &str) {
        self.checks.push(ConformanceCheck { name, section, outcome: CheckOutcome::Skipped(why.to_owned()) });
    }

    /// A task can be made, read and listed.
    async fn check_task(&mut self, text: &str) {
        let sent = self.client.send(self.message(text)).await;
        let task = match &sent {
            Ok(sent) => match &sent.value {
                StreamEvent::Task(task) => Some((task.id.clone(), task.context.clone())),
                _ => None,
            },
            Err(_) => None,
        };
        let result = match (&sent, &task) {
            (Err(error), _) => Err(error.to_string()),
            (Ok(_), Some((_, None))) if self.client.dialect() >= Dialect::V0_3 => {
                Err("the task has no contextId".to_owned())
            }
            (Ok(sent), _) => match &sent.value {
                StreamEvent::Task(_) | StreamEvent::Message(_) => Ok(()),
                _ => Err("expected a task or a message".to_owned()),
            },
        };
        self.record("a message is answered with a task or a message", "3.1.1", result);
        let Some((task, _)) = task else {
            self.skip("the task can be read", "3.1.3", "the agent made no task");
            self.skip("the task is listed", "3.1.4", "the agent made no task");
            return;
        };
        let read = self.client.get(&task, Some(0)).await;
        let result = match read {
            Ok(found) if found.value.id != task => Err(format!("task {} was returned", found.value.id)),
            Ok(found) if !found.value.history.is_empty() => {
                Err("historyLength 0 returned messages".to_owned())
            }
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        };
        self.record("the task can be read, without its history", "3.1.3", result);
        if self.client.dialect() < Dialect::V1 {
            self.skip("the task is listed", "3.1.4", "only 1.0 lists tasks");
            return;
        }
        let listed = self.client.list(ListTasks { history_length: Some(0), ..ListTasks::default() }).await;
        let result = match listed {
            Ok(page) if page.value.tasks.iter().any(|listed| listed.id == task) => Ok(()),
            Ok(_) => Err(format!("the first page does not have task {task}, the newest one")),
            Err(error) => Err(error.to_string()),
        };
        self.record("the task is listed", "3.1.4", result);
    }

    /// A task that does not exist is an error, by its name.
    async fn check_absent_task(&mut self) {
        let absent = uuid::Uuid::now_v7().to_string();
        let read = self.client.get(&absent, None).await.map(drop);
        self.record(
            "reading an unknown task is a TaskNotFoundError",
            "3.1.3",
            fails_with(read, TASK_NOT_FOUND),
        );
        let canceled = self.client.cancel(&absent).await.map(drop);
        let result = fails_with(canceled, TASK_NOT_FOUND);
        self.record("canceling an unknown task is a TaskNotFoundError", "3.1.5", result);
        let mut send = self.message("Hello");
        send.task_id = Some(absent);
        if self.client.dialect() == Dialect::V0_1 {
            self.skip("a message for an unknown task is refused", "3.4.2", "in 0.1 the client makes the id");
            return;
        }
        let sent = self.client.send(send).await.map(drop);
        self.record("a message for an unknown task is refused", "3.4.2", fails_with(sent, TASK_NOT_FOUND));
    }

    /// A stream begins with the task, and ends.
    async fn check_stream(&mut self, text: &str) {
        let (name, section) = ("a stream begins with the task or the message, and ends", "3.1.2");
        if !self.client.streams() {
            return self.skip(name, section, "the card declares no streaming");
        }
        let result = self.follow(text).await;
        self.record(name, section, result);
    }

    async fn follow(&self, text: &str) -> Result<(), String> {
        let said = |error: A2aClientError| error.to_string();
        let mut events = self.client.send_streaming(self.message(text)).await.map_err(said)?;
        let first = events.next().await.map_err(said)?;
        let first = first.map(|item| item.event.value);
        let mut state = match &first {
            Some(StreamEvent::Task(task)) => task.state,
            Some(StreamEvent::Message(_)) => return Ok(()),
            // 0.1 has no other beginning.
            Some(StreamEvent::Status(update)) if self.client.dialect() == Dialect::V0_1 => update.state,
            _ => return Err("the first event is neither".to_owned()),
        };
        while !state.is_terminal() && !state.is_interrupted() {
            match events.next().await.map_err(said)?.map(|item| item.event.value) {
                Some(StreamEvent::Status(update)) => state = update.state,
                Some(StreamEvent::Task(task)) => state = task.state,
                Some(_) => {}
                None => return Err("the stream ended before the task did".to_owned()),
            }
        }
        Ok(())
    }

    /// What the card does not declare is refused by its name.
    async fn check_push_notifications(&mut self) {
        let (name, section) = ("an agent without push notifications refuses their configuration", "3.3.4");
        if self.client.has_push_notifications() {
            return self.skip(name, section, "the card declares push notifications");
        }
        let listed = self.client.list_webhook_page(&uuid::Uuid::now_v7().to_string(), None).await;
        self.record(name, section, fails_with(listed.map(drop), PUSH_NOT_SUPPORTED));
    }

    fn message(&self, text: &str) -> SendMessage {
        let id = uuid::Uuid::now_v7().to_string();
        let mut send = SendMessage::new(Message::of(id.clone(), Role::User, vec![Part::text(text)]));
        if self.client.dialect() == Dialect::V0_1 {
            send.client_task_id = Some(id);
            send.message.id.clear();
        }
        send
    }

    fn report(&self, connection: &AgentConnection) -> Result<ExitCode, CliError> {
        let count = |wanted: &str| self.checks.iter().filter(|check| check.outcome.name() == wanted).count();
        let [passed, failed, skipped] = ["passed", "failed", "skipped"].map(count);
        if connection.output.is_json() {
            let checks: Vec<Value> = self.checks.iter().map(ConformanceCheck::json).collect();
            let document = json!({
                "endpoint": self.client.endpoint(), "version": self.client.dialect().version(),
                "checks": checks, "passed": passed, "failed": failed, "skipped": skipped,
            });
            output::json_text(&document.to_string())?;
        } else {
            let mut text = TextOutput::default();
            text.field("Endpoint", self.client.endpoint().as_str());
            text.field("Version", self.client.dialect().version());
            for check in &self.checks {
                let label = match check.outcome {
                    CheckOutcome::Passed => "Passed",
                    CheckOutcome::Failed(_) => "Failed",
                    CheckOutcome::Skipped(_) => "Skipped",
                };
                let why = check.outcome.why().map(|why| format!(": {why}")).unwrap_or_default();
                text.field(label, &format!("{} (section {}){why}", check.name, check.section));
            }
            text.field("Result", &format!("{passed} passed, {failed} failed, {skipped} skipped"));
            output::text(&text.0)?;
        }
        Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl CheckOutcome {
    fn name(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed(_) => "failed",
            Self::Skipped(_) => "skipped",
        }
    }

    fn why(&self) -> Option<&str> {
        match self {
            Self::Passed => None,
            Self::Failed(why) | Self::Skipped(why) => Some(why),
        }
    }
}

impl ConformanceCheck {
    fn json(&self) -> Value {
        json!({
            "name": self.name, "section": self.section, "outcome": self.outcome.name(), "why": self.outcome.why(),
        })
    }
}

/// Whether a request failed with that code of the protocol.
fn fails_with(result: Result<(), A2aClientError>, code: i64) -> Result<(), String> {
    match result {
        Ok(()) => Err("it succeeded".to_owned()),
        Err(error) if error.rpc_code() == Some(code) => Ok(()),
        Err(error) => Err(match error.rpc_code() {
            Some(other) => format!("expected the code {code}, received {other}: {error}"),
            None => error.to_string(),
        }),
    }
}
