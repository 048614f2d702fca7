//! The errors of the command line, in one table: each with its code, message and exit code.
//!
//! The codes are those of the `a2a-cli` specification: A2A's own names for protocol errors, and
//! `A2ACLI_ERR_…` for others. Codes of our own begin with `NUNCIO_ERR_`.

use std::{
    io::{self, Write as _},
    process::ExitCode,
    time::Duration,
};

use nuncio::StartError;
use nuncio_client::{a2a::A2aClientError, mcp::ToolError};
use serde::Serialize;

use super::{
    agent_names::UnknownAgent,
    command_words::in_command_words,
    connection::{AgentTarget, TargetOrigin},
    console_client::ConsoleClientError,
    output::Format,
    program,
    text::plain,
};
use crate::{
    config::{ConfigError, SettingSource},
    duration,
};

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum CliError {
    /// The command line contradicts itself, or names something that does not exist.
    Usage(String),
    /// A file that would be written exists. With what to do instead.
    Exists { message: String, hint: String },
    /// The configuration cannot be used.
    Config(ConfigError),
    /// The server did not start.
    Start(StartError),
    /// The async runtime cannot start.
    Runtime(io::Error),
    /// The A2A client failed.
    Client { error: Box<A2aClientError>, target: AgentTarget },
    /// The server does not have the agent that the user named.
    UnknownAgent(UnknownAgent),
    /// A request to a server's console API failed.
    Console { error: Box<ConsoleClientError>, target: AgentTarget },
    /// A call of a server's tool failed.
    Tool { error: Box<ToolError>, target: AgentTarget },
    /// The card violates the protocol.
    InvalidCard { at: String, problems: Vec<String> },
    /// There is no token after a login.
    Login(String),
    /// `--timeout` expired.
    Timeout { limit: Duration, seen: Box<TaskResumePoint> },
    /// Ctrl-C was pressed.
    Interrupted { seen: Box<TaskResumePoint> },
    /// The server's operator interface refused the request.
    Admin(String),
    /// The store could not be opened or read.
    Store(String),
    /// The output cannot be written.
    Output(io::Error),
}

/// What is known of a task, so that the user can resume it.
#[derive(Debug, Clone, Default)]
pub(crate) struct TaskResumePoint {
    pub(crate) task: Option<String>,
    pub(crate) context: Option<String>,
    pub(crate) cursor: Option<String>,
    /// The flags that name the agent, for suggested commands.
    pub(crate) agent_flags: String,
    /// The command that resumes, where it is not the one for any task.
    pub(crate) command: Option<String>,
}

impl TaskResumePoint {
    /// The command that resumes from here.
    pub(crate) fn resume(&self) -> Option<String> {
        if self.command.is_some() {
            return self.command.clone();
        }
        let task = self.task.as_deref()?;
        Some(match &self.cursor {
            Some(cursor) => {
                format!("{} task subscribe {task}{} --stream --after {cursor}", program(), self.agent_flags)
            }
            None => format!("{} task get {task}{} --wait", program(), self.agent_flags),
        })
    }
}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<ConfigError> for CliError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<StartError> for CliError {
    fn from(error: StartError) -> Self {
        Self::Start(error)
    }
}

/// The error as JSON (`a2a-cli`, appendix B).
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ErrorEnvelope {
    code: String,
    message: String,
    hint: Option<String>,
    a2a_code: Option<i64>,
    #[serde(skip)]
    exit: u8,
}

impl CliError {
    /// Prints the error, and returns the exit code.
    pub(crate) fn report(&self, format: Format) -> ExitCode {
        if let Self::Output(error) = self
            && error.kind() == io::ErrorKind::BrokenPipe
        {
            // The reader of the output closed the pipe; 141 is 128 + SIGPIPE.
            return ExitCode::from(141);
        }
        let envelope = self.envelope();
        if format == Format::Json {
            let line = serde_json::json!({ "error": &envelope });
            let _ = writeln!(io::stdout(), "{line}");
        } else {
            let _ = writeln!(io::stderr(), "Error: {}", plain(&envelope.message));
            if let Some(hint) = &envelope.hint {
                let _ = writeln!(io::stderr(), "Hint: {}", plain(hint));
            }
        }
        ExitCode::from(envelope.exit)
    }

    /// Logs the error instead, for a server whose output is for programs, and returns the exit code.
    pub(crate) fn log(&self) -> ExitCode {
        let ErrorEnvelope { code, message, hint, exit, .. } = self.envelope();
        tracing::error!(code, hint, "{message}");
        ExitCode::from(exit)
    }

    /// The message alone, where the command goes on.
    pub(crate) fn message(&self) -> String {
        self.envelope().message
    }

    fn envelope(&self) -> ErrorEnvelope {
        let ours = |code: &str, exit: u8, message: String, hint: Option<String>| ErrorEnvelope {
            code: code.to_owned(),
            message,
            hint,
            a2a_code: None,
            exit,
        };
        match self {
            Self::Usage(message) => ours(
                "A2ACLI_ERR_USAGE",
                2,
                message.clone(),
                Some(format!("{} help shows the usage", program())),
            ),
            Self::Exists { message, hint } => {
                ours("NUNCIO_ERR_EXISTS", 1, message.clone(), Some(hint.clone()))
            }
            Self::Config(error) => {
                let usage = matches!(error, ConfigError::Value { from: SettingSource::Flag(_), .. });
                ours("A2ACLI_ERR_USAGE", if usage { 2 } else { 1 }, error.to_string(), None)
            }
            Self::Start(error) => {
                let usage =
                    matches!(error, StartError::Remote(_) | StartError::Open(_) | StartError::Address(_));
                ours("NUNCIO_ERR_START", if usage { 2 } else { 1 }, error.to_string(), None)
            }
            Self::Runtime(error) => {
                ours("A2ACLI_ERR_INTERNAL", 1, format!("cannot start the runtime: {error}"), None)
            }
            Self::Client { error, target } => client_envelope(error, target),
            Self::UnknownAgent(unknown) => {
                ours("A2ACLI_ERR_CARD_NOT_FOUND", 3, unknown.message(), Some(unknown.hint()))
            }
            Self::Console { error, target } => {
                let (code, exit, hint) = console_error_report(error, target);
                ours(code, exit, error.to_string(), hint)
            }
            Self::Tool { error, target } => {
                let (code, exit, hint) = tool_error_report(error, target);
                ours(code, exit, in_command_words(&error.to_string()), hint)
            }
            Self::InvalidCard { at, problems } => {
                let list = problems.join("; ");
                ours(
                    "A2ACLI_ERR_CARD_INVALID",
                    1,
                    format!("the agent card at {at} is not valid: {list}"),
                    None,
                )
            }
            Self::Timeout { limit, seen } => {
                let what = seen.task.as_ref().map_or("the agent".to_owned(), |task| format!("task {task}"));
                let message = format!("stopped waiting for {what} after {}", duration::format(*limit));
                ours("A2ACLI_ERR_TIMEOUT", 5, message, seen.resume())
            }
            Self::Interrupted { seen } => {
                let message = match &seen.task {
                    Some(task) => format!("interrupted; task {task} goes on without this command"),
                    None => "interrupted".to_owned(),
                };
                ours("NUNCIO_ERR_INTERRUPTED", 130, message, seen.resume())
            }
            Self::Login(message) => ours("A2ACLI_ERR_AUTH_FAILED", 4, message.clone(), None),
            Self::Admin(message) => ours("NUNCIO_ERR_ADMIN", 1, message.clone(), None),
            Self::Store(message) => ours("NUNCIO_ERR_STORE", 1, message.clone(), None),
            Self::Output(error) => {
                ours("A2ACLI_ERR_INTERNAL", 1, format!("cannot write the output: {error}"), None)
            }
        }
    }
}

fn client_envelope(error: &A2aClientError, target: &AgentTarget) -> ErrorEnvelope {
    let (code, exit, hint) = match error {
        A2aClientError::NoCard { .. } => {
            ("A2ACLI_ERR_CARD_NOT_FOUND", 3, Some("-a takes a host, the URL of a card, or a file".to_owned()))
        }
        A2aClientError::BadCard { .. } => ("A2ACLI_ERR_CARD_INVALID", 1, None),
        A2aClientError::UntrustedCard { .. } => (
            "A2ACLI_ERR_CARD_INVALID",
            1,
            Some("--card-keys names the keys that you trust: a file, or the URL of a key set".to_owned()),
        ),
        A2aClientError::NoCommonVersion { offered, is_known, .. } => {
            let older = ["0.3", "0.1"].into_iter().find(|version| offered.contains(version));
            let hint = older.filter(|_| *is_known);
            let hint = hint.map(|version| format!("--a2a-version {version} speaks the older version"));
            ("VersionNotSupportedError", 1, hint)
        }
        // The protocol has no error for it: the request was never made.
        A2aClientError::NoCommonBinding(_) => ("A2ACLI_ERR_INTERNAL", 1, None),
        A2aClientError::Unsupported(_) => ("UnsupportedOperationError", 1, None),
        A2aClientError::ExtensionRequired(uri) => (
            "ExtensionSupportRequiredError",
            1,
            Some(format!("--extension {uri} declares it, if you know what it asks of a client")),
        ),
        A2aClientError::Unreachable { why, .. } => {
            ("A2ACLI_ERR_UNREACHABLE", 3, unreachable_hint(target, why))
        }
        A2aClientError::Timeout { .. } => ("A2ACLI_ERR_UNREACHABLE", 3, None),
        A2aClientError::Unauthorized { supplied: false, status: 401, .. } => (
            "A2ACLI_ERR_CREDENTIALS_MISSING",
            4,
            Some(format!(
                "give a token with A2ACLI_BEARER (or --bearer), or a key with A2ACLI_API_KEY; `{} auth login{}` signs in \
                 where the card names OAuth; {}",
                program(),
                target.flags,
                new_token_hint()
            )),
        ),
        A2aClientError::Unauthorized { status, .. } => {
            ("A2ACLI_ERR_AUTH_FAILED", 4, Some(refused_hint(*status)))
        }
        A2aClientError::Rpc(error) => (protocol_name(error.code), 1, Some(protocol_hint(error.code, target))),
        A2aClientError::Malformed(_) | A2aClientError::NotAStream => {
            ("InvalidAgentResponseError", 1, Some(debug_hint()))
        }
        A2aClientError::Cut { task, cursor, last, .. } => {
            let seen = TaskResumePoint {
                task: task.clone(),
                cursor: cursor.clone(),
                agent_flags: target.flags.clone(),
                ..TaskResumePoint::default()
            };
            let reached =
                !matches!(**last, A2aClientError::Unreachable { .. } | A2aClientError::Timeout { .. });
            let (code, exit) =
                if reached { ("A2ACLI_ERR_INTERNAL", 1) } else { ("A2ACLI_ERR_UNREACHABLE", 3) };
            (code, exit, seen.resume())
        }
        A2aClientError::Http { .. } | A2aClientError::Ended | A2aClientError::Setup(_) => {
            ("A2ACLI_ERR_INTERNAL", 1, Some(debug_hint()))
        }
    };
    let message = match (error, &target.origin) {
        (A2aClientError::Unreachable { at, why, .. }, TargetOrigin::Default | TargetOrigin::Published(_))
            if !is_distrust(why) =>
        {
            format!("no server at {at}: start one with `{} serve`", program())
        }
        _ => error.to_string(),
    };
    ErrorEnvelope { code: code.to_owned(), message, hint, a2a_code: error.rpc_code(), exit }
}

/// The report for a tool call that was not made, or that failed.
fn tool_error_report(error: &ToolError, target: &AgentTarget) -> (&'static str, u8, Option<String>) {
    match error {
        ToolError::Unreachable { why, .. } => ("A2ACLI_ERR_UNREACHABLE", 3, unreachable_hint(target, why)),
        ToolError::Timeout { .. } | ToolError::Cut { .. } => ("A2ACLI_ERR_UNREACHABLE", 3, None),
        ToolError::Unauthorized { supplied: false, status: 401, .. } => {
            ("A2ACLI_ERR_CREDENTIALS_MISSING", 4, Some(missing_token_hint()))
        }
        ToolError::Unauthorized { status, .. } => ("A2ACLI_ERR_AUTH_FAILED", 4, Some(refused_hint(*status))),
        ToolError::TooFast { .. } => ("NUNCIO_ERR_TOO_FAST", 1, None),
        ToolError::Rpc(error) if error.code == -32602 => ("InvalidParamsError", 1, None),
        ToolError::Rpc(_) => ("NUNCIO_ERR_SERVER", 1, Some(debug_hint())),
        ToolError::Tool { .. } => ("NUNCIO_ERR_TOOL", 1, None),
        ToolError::Malformed(_) | ToolError::Http { .. } | ToolError::Setup(_) => {
            ("A2ACLI_ERR_INTERNAL", 1, Some(debug_hint()))
        }
    }
}

/// The report for a request to the console API that was refused or has no answer.
fn console_error_report(
    error: &ConsoleClientError,
    target: &AgentTarget,
) -> (&'static str, u8, Option<String>) {
    match error {
        ConsoleClientError::Unreachable(error) => {
            ("A2ACLI_ERR_UNREACHABLE", 3, unreachable_hint(target, &error.to_string()))
        }
        ConsoleClientError::Absent { .. } => (
            "UnsupportedOperationError",
            1,
            Some(format!("{} task get shows what any agent says of a task", program())),
        ),
        ConsoleClientError::Refused { status: 401, supplied: false, .. } => {
            ("A2ACLI_ERR_CREDENTIALS_MISSING", 4, Some(missing_token_hint()))
        }
        ConsoleClientError::Refused { status: status @ (401 | 403), .. } => {
            ("A2ACLI_ERR_AUTH_FAILED", 4, Some(refused_hint(*status)))
        }
        ConsoleClientError::Refused { status: 404, .. } => (
            "TaskNotFoundError",
            1,
            Some(format!("{} task list{} shows the tasks there are", program(), target.flags)),
        ),
        ConsoleClientError::Refused { status: 429, .. } => ("NUNCIO_ERR_TOO_FAST", 1, None),
        ConsoleClientError::Refused { .. } => ("NUNCIO_ERR_SERVER", 1, None),
        ConsoleClientError::Malformed(_) => ("A2ACLI_ERR_INTERNAL", 1, None),
    }
}

/// What to do where the server requires a token and none was sent.
fn missing_token_hint() -> String {
    format!("give a token with A2ACLI_BEARER (or --bearer); {}", new_token_hint())
}

/// What to do where the server refused a token.
fn refused_hint(status: u16) -> String {
    let (why, listed) = match status {
        403 => ("the token does not allow this", "its scopes"),
        _ => ("the token may have expired or been revoked", "its state"),
    };
    let program = program();
    format!(
        "{why}: on the server's machine `{program} token list` shows {listed}, and `{program} token create --name NAME` \
         makes another"
    )
}

fn new_token_hint() -> String {
    format!("`{} token create --name NAME` on the server's machine makes a token", program())
}

/// Whether a connection failed because the server's certificate is not trusted, in the words of the TLS library.
fn is_distrust(why: &str) -> bool {
    why.contains("invalid peer certificate")
}

fn unreachable_hint(target: &AgentTarget, why: &str) -> Option<String> {
    if is_distrust(why) {
        let hint = "--ca-cert FILE trusts the CA, or the self-signed certificate, of a PEM file";
        return Some(hint.to_owned());
    }
    match &target.origin {
        TargetOrigin::Given => None,
        TargetOrigin::Published(file) => Some(format!(
            "{} names that address, and nobody is there any more; -a names another agent",
            file.display()
        )),
        TargetOrigin::Default => {
            Some("-a names another agent, A2ACLI_AGENT_CARD sets it permanently".to_owned())
        }
    }
}

/// A2A's names for its errors (1.0, section 5.4) and those of JSON-RPC.
fn protocol_name(code: i64) -> &'static str {
    match code {
        -32001 => "TaskNotFoundError",
        -32002 => "TaskNotCancelableError",
        -32003 => "PushNotificationNotSupportedError",
        -32004 => "UnsupportedOperationError",
        -32005 => "ContentTypeNotSupportedError",
        -32006 => "InvalidAgentResponseError",
        -32007 => "ExtendedAgentCardNotConfiguredError",
        -32008 => "ExtensionSupportRequiredError",
        -32009 => "VersionNotSupportedError",
        -32700 => "JSONParseError",
        -32600 => "InvalidRequestError",
        -32601 => "MethodNotFoundError",
        -32602 => "InvalidParamsError",
        _ => "InternalError",
    }
}

fn protocol_hint(code: i64, target: &AgentTarget) -> String {
    match code {
        -32001 => {
            format!("{} task list{} shows the tasks there are; {}", program(), target.flags, debug_hint())
        }
        _ => debug_hint(),
    }
}

fn debug_hint() -> String {
    "--debug shows the messages that were exchanged".to_owned()
}
