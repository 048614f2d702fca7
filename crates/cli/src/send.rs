//! `nuncio send`: a message that starts a task or continues one.
//!
//! Without `--stream` the request returns the task's id at once, and the command then waits on the task, by
//! its stream or by polling. So a lost connection loses nothing, and the id is known in any case.

mod log;

use std::process::ExitCode;

use clap::Args;
use nuncio_client::a2a::A2aClient;
use nuncio_engine::{
    content::{Message, Metadata, Role},
    task::State,
    webhook::WebhookConfig,
};
use nuncio_wire::a2a::{Dialect, SendMessage, StreamEvent, TaskView};
use serde_json::value::RawValue;
use url::Url;

use self::log::LogPrinter;
use super::{
    connection::{AgentConnection, AgentFlags},
    error::CliError,
    follow::{self, FollowUntil, show_settled},
    output::{self, note},
    parts::PartFlags,
    program,
    task::download::SaveFlags,
    text::{self, TextOutput},
};

/// The end of `nuncio send --help`.
const EXIT_CODES: &str = "Exit codes: 0 the agent answered, whatever it decided: also a task that failed, was rejected or \
                          asks (the rule of the a2a-cli specification); with --check 0 only if the task completed, \
                          else 1. 1 it went wrong; 2 usage; 3 unreachable; 4 not authenticated or not allowed; 5 \
                          --timeout; 130 Ctrl+C";

#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Flags {
    #[command(flatten)]
    parts: PartFlags,
    /// Continue this task, by answering its question
    #[arg(long, env = "A2ACLI_TASK_ID", value_name = "ID")]
    task_id: Option<String>,
    /// Start the task in this conversation
    #[arg(long, env = "A2ACLI_CONTEXT_ID", value_name = "ID")]
    context_id: Option<String>,
    /// Do not wait for the task: print its id and exit
    #[arg(long = "async", visible_aliases = ["return-immediately", "no-wait"],
          conflicts_with_all = ["stream", "wait"])]
    no_wait: bool,
    /// Wait until the task has ended or asks a question. This is the default
    #[arg(long)]
    wait: bool,
    /// End with 1 unless the task completed, or the agent answered with a message
    #[arg(long, conflicts_with = "no_wait")]
    check: bool,
    /// Show the log lines of the agent as they come, on the standard error. Needs a Nuncio server
    #[arg(long, conflicts_with = "no_wait")]
    log: bool,
    /// Metadata of the request: a JSON object
    #[arg(long, env = "A2ACLI_METADATA", value_name = "JSON", value_parser = metadata)]
    metadata: Option<Metadata>,
    /// The URL that the agent sends updates of the task to; `nuncio listen` receives them
    #[arg(long, value_name = "URL")]
    webhook: Option<Url>,
    /// The token that webhook deliveries carry. Other users of this machine can see flags: prefer
    /// NUNCIO_WEBHOOK_TOKEN
    #[arg(
        long,
        env = "NUNCIO_WEBHOOK_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN",
        requires = "webhook"
    )]
    webhook_token: Option<String>,
    #[command(flatten)]
    files: SaveFlags,
    #[command(flatten)]
    pub(crate) agent: AgentFlags,
}

pub(crate) async fn run(flags: Flags) -> Result<ExitCode, CliError> {
    let message = Message::of(uuid::Uuid::now_v7().to_string(), Role::User, flags.parts.read()?);
    let mut send = SendMessage::new(message);
    send.blocking = false;
    send.task_id = flags.task_id;
    send.context_id = flags.context_id;
    send.metadata = flags.metadata;
    let dialect = flags.agent.dialect();
    if dialect == Dialect::V0_1 {
        // In A2A 0.1 the client chooses the ids of the task and its conversation.
        let id = send.task_id.take().unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
        send.client_task_id = Some(id);
        send.message.id.clear();
    }
    send.webhook = flags.webhook.map(|url| WebhookConfig {
        id: String::new(),
        url: url.into(),
        token: flags.webhook_token,
        authentication: None,
        dialect: dialect.name().to_owned(),
    });
    let connection = flags.agent.resolve()?;
    let work = async {
        if !flags.log {
            return deliver(&connection, send, flags.no_wait, &flags.files).await;
        }
        let printer = LogPrinter::new(&connection, send.task_id.clone().as_deref()).await;
        printer.beside(deliver(&connection, send, flags.no_wait, &flags.files)).await
    };
    connection.bounded(work).await?;
    // An answer without a task has no state.
    let completed =
        connection.final_state().is_none_or(|state| matches!(state, State::Completed | State::Replied));
    Ok(if flags.check && !completed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn deliver(
    connection: &AgentConnection,
    send: SendMessage,
    no_wait: bool,
    files: &SaveFlags,
) -> Result<(), CliError> {
    let client = connection.client().await?;
    if connection.output.stream {
        if client.streams() {
            let events = client.send_streaming(send).await.map_err(|error| connection.failed(error))?;
            follow::show(connection, &client, events, FollowUntil::Turn).await?;
            return save_followed(connection, &client, files).await;
        }
        note("the agent does not stream: waiting for the result");
    }
    let sent = client.send(send).await.map_err(|error| connection.failed(error))?;
    let task = match &sent.value {
        StreamEvent::Task(task) => task,
        StreamEvent::Message(answer) => {
            if connection.output.is_json() {
                return output::json(&sent.json);
            }
            let mut text = TextOutput::default();
            text.answer(answer, connection.output.verbose);
            return output::text(&text.0);
        }
        StreamEvent::Status(_) | StreamEvent::Artifact(_) => {
            let why = "expected a task or a message".to_owned();
            return Err(connection.failed(nuncio_client::a2a::A2aClientError::Malformed(why)));
        }
    };
    connection.record_task(&task.id, task.context.as_deref(), None);
    let settled = connection.wait_options().is_idle(task.state);
    if settled || no_wait {
        print(connection, task, &sent.json, settled)?;
        return files.save_all(connection, &task.artifacts);
    }
    if let (State::AuthRequired, Some(message)) = (task.state, &task.message) {
        // Without a stream this is the only time that the link is shown.
        note(&format!("auth-required: {}", text::in_one_line(message)));
    }
    wait(connection, &client, &task.id, files).await
}

/// Saves the artifacts of a task that was shown as it went on.
async fn save_followed(
    connection: &AgentConnection,
    client: &A2aClient,
    files: &SaveFlags,
) -> Result<(), CliError> {
    // An agent that answered with a message made no task.
    let Some(task) = connection.resume_point().task.filter(|_| files.save.is_some()) else { return Ok(()) };
    let found = client.get(&task, Some(0)).await.map_err(|error| connection.failed(error))?;
    files.save_all(connection, &found.value.artifacts)
}

/// Waits for the task and prints it as the response to a blocking send.
async fn wait(
    connection: &AgentConnection,
    client: &A2aClient,
    task: &str,
    files: &SaveFlags,
) -> Result<(), CliError> {
    let patience = connection.wait_options();
    let mut live = follow::WaitNotes::new(connection, task);
    let settled = client.wait_until_idle(task, patience, |event| live.event(event)).await;
    let settled = settled.map_err(|error| connection.failed(error))?;
    let json = client.as_sent(&settled.json).map_err(|error| connection.failed(error))?;
    print(connection, &settled.value, &json, true)?;
    files.save_all(connection, &settled.value.artifacts)
}

fn print(
    connection: &AgentConnection,
    task: &TaskView,
    json: &RawValue,
    settled: bool,
) -> Result<(), CliError> {
    if connection.output.is_json() {
        output::json(json)?;
    } else {
        let mut text = TextOutput::default();
        text.task(task, connection.output.verbose, false);
        if !settled {
            let flags = &connection.target.flags;
            text.field("Follow", &format!("{} task get {}{flags} --wait", program(), task.id));
        }
        output::text(&text.0)?;
    }
    if settled { show_settled(connection, task) } else { Ok(()) }
}

fn metadata(text: &str) -> Result<Metadata, String> {
    serde_json::from_str(text).map_err(|error| format!("expected a JSON object: {error}"))
}
