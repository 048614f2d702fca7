//! A client for the tools, resources and tasks of one server (MCP 2026-07-28), over the peer's connection.
//!
//! There is no handshake and no session to lose: each request describes the client, and the caller may retry one
//! that could not be sent. Long work is a task, which is read and answered by its id ([`ToolTaskView`]).

mod error;
mod subscription;
mod task;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use http::HeaderValue;
use nuncio_outbound::TlsClientOptions;
use nuncio_wire::mcp::{
    ClientCapabilities, ClientDescription, ClientRequest, McpTaskSnapshot, McpVersion, ReceivedContent,
    ServerDescription, ToolCallReply, ToolCallRequest, ToolResult,
};
use parking_lot::RwLock;
use serde_json::{Map, Value};
use tokio::sync::watch;
use url::Url;

use self::error::ErrorContext;
pub use self::{
    error::ToolError,
    subscription::{ToolChange, ToolChanges, ToolSubscription},
    task::{ToolTaskQuestion, ToolTaskStatus, ToolTaskView},
};
use super::{
    connection::{McpConnection, McpTransport},
    http::McpHttp,
    options::McpPeerOptions,
    router::MessageRouter,
    streamable::StreamableHttp,
};
use crate::auth::Authorizer;

/// By how much the connection's own limits exceed the client's, so that the client's error is the one reported.
const BEYOND: Duration = Duration::from_secs(60);

/// Options of a tool client.
#[derive(Debug, Clone)]
pub struct ToolOptions {
    /// A bearer token for every request.
    pub bearer: Option<String>,
    /// The W3C `traceparent` of every request.
    pub trace: Option<String>,
    /// Whom to trust beside the system's CAs, and the client's certificate.
    pub tls: TlsClientOptions,
    /// Limit for establishing a connection.
    pub connect_timeout: Duration,
    /// Limit for a response. Tools may run commands, so it is long.
    pub answer_timeout: Duration,
    /// How long a stream of changes may be silent before it counts as cut. A server sends a comment every few
    /// seconds.
    pub silence: Duration,
    /// Bytes of a response.
    pub max_answer: usize,
}

impl Default for ToolOptions {
    fn default() -> Self {
        Self {
            bearer: None,
            trace: None,
            tls: TlsClientOptions::default(),
            connect_timeout: Duration::from_secs(10),
            answer_timeout: Duration::from_secs(600),
            silence: Duration::from_secs(60),
            max_answer: 256 * 1024 * 1024,
        }
    }
}

/// The result of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolAnswer {
    /// The result as text, for people or a model.
    pub text: String,
    /// The structured result, for programs.
    pub structured: Option<Value>,
}

/// The outcome of starting a call that may take long.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolStart {
    /// The tool has finished.
    Done(ToolAnswer),
    /// The tool goes on as this task.
    Task(ToolTaskView),
}

/// A client of one server.
pub struct ToolClient {
    context: ErrorContext,
    answer_timeout: Duration,
    /// For calls that wait for their result: declares no capabilities, so that the server makes no task of them.
    waiting: McpConnection,
    /// For calls that may become tasks, and for those tasks.
    tasks: McpConnection,
    /// For streams of changes, whose silence has another limit.
    streams: McpConnection,
}

impl ToolClient {
    /// A client of the server whose MCP endpoint is at this URL. Sends no request yet.
    pub fn new(endpoint: &str, options: ToolOptions) -> Result<Self, ToolError> {
        let ToolOptions { bearer, trace, tls, connect_timeout, answer_timeout, silence, max_answer } =
            options;
        let setup = |why: String| ToolError::Setup(why);
        let url = Url::parse(endpoint).map_err(|error| setup(format!("{endpoint}: {error}")))?;
        let token = Arc::new(ClientToken(RwLock::new(bearer.map(checked_token).transpose()?)));
        let context = ErrorContext { at: endpoint.to_owned(), token: Arc::clone(&token) };
        let authorizer: Arc<dyn Authorizer> = token;
        let answer_limit = answer_timeout.saturating_add(BEYOND);
        let http = |silence: Duration| {
            let options = Arc::new(McpPeerOptions {
                version: Some(McpVersion::V2026_07_28),
                authorizer: Some(Arc::clone(&authorizer)),
                tls: tls.clone(),
                connect_timeout,
                request_timeout: answer_limit,
                silence,
                max_message: max_answer,
                ..McpPeerOptions::default()
            });
            McpHttp::new(&url, &options).map(Arc::new).map_err(|error| setup(error.to_string()))
        };
        let (calls, streams) = (http(answer_limit)?, http(silence)?);
        let nothing = ClientCapabilities::default();
        let tasks = ClientCapabilities { tasks: true, form: true, ..nothing };
        let connection = |http: &Arc<McpHttp>, capabilities| connect(http, capabilities, trace.as_deref());
        Ok(Self {
            context,
            answer_timeout,
            waiting: connection(&calls, nothing),
            tasks: connection(&calls, tasks),
            streams: connection(&streams, tasks),
        })
    }

    /// Sends another bearer token from now on.
    pub fn set_bearer(&self, token: &str) -> Result<(), ToolError> {
        *self.context.token.0.write() = Some(checked_token(token.to_owned())?);
        Ok(())
    }

    /// The URL of the server's MCP endpoint.
    pub fn endpoint(&self) -> &str {
        &self.context.at
    }

    /// Calls a tool and waits for its result.
    pub async fn call(&self, tool: &str, arguments: Value) -> Result<ToolAnswer, ToolError> {
        match self.send_call(&self.waiting, tool, arguments).await? {
            ToolStart::Done(answer) => Ok(answer),
            ToolStart::Task(_) => Err(ToolError::Malformed("a task that was not requested".to_owned())),
        }
    }

    /// Calls a tool whose work may take long: the result may be a running task.
    pub async fn start(&self, tool: &str, arguments: Value) -> Result<ToolStart, ToolError> {
        self.send_call(&self.tasks, tool, arguments).await
    }

    /// The JSON content of a resource.
    pub async fn read_json(&self, uri: &str) -> Result<Value, ToolError> {
        let result = self.request(&self.waiting, ClientRequest::ReadResource(uri)).await?;
        let contents = ReceivedContent::read_all(result)
            .ok_or_else(|| ToolError::Malformed("a resource without contents".to_owned()))?;
        let text = contents.into_iter().next().and_then(|content| content.text);
        let text = text.ok_or_else(|| ToolError::Malformed(format!("{uri} holds no text")))?;
        serde_json::from_str(&text)
            .map_err(|error| ToolError::Malformed(format!("{uri} is not JSON: {error}")))
    }

    /// The current state of a task.
    pub async fn task(&self, task: &str) -> Result<ToolTaskView, ToolError> {
        let result = self.request(&self.tasks, ClientRequest::GetTask(task)).await?;
        ToolTaskView::of(McpTaskSnapshot::read(result))
    }

    /// Answers questions of a task, by their keys. An answer that does not match its question is rejected
    /// and changes nothing.
    pub async fn answer(&self, task: &str, answers: Map<String, Value>) -> Result<(), ToolError> {
        self.request(&self.tasks, ClientRequest::UpdateTask { task, answers }).await.map(drop)
    }

    async fn send_call(
        &self,
        connection: &McpConnection,
        name: &str,
        arguments: Value,
    ) -> Result<ToolStart, ToolError> {
        let call = ToolCallRequest { name, arguments, ..ToolCallRequest::default() };
        match ToolCallReply::read(self.request(connection, ClientRequest::CallTool(call)).await?) {
            ToolCallReply::Complete(result) => ToolAnswer::of(result).map(ToolStart::Done),
            ToolCallReply::Task(task) => ToolTaskView::of(*task).map(ToolStart::Task),
            ToolCallReply::InputRequired(_) => {
                Err(ToolError::Malformed("a result of the type \"input_required\"".to_owned()))
            }
            ToolCallReply::Unknown(kind) => {
                Err(ToolError::Malformed(format!("a result of the type {kind:?}")))
            }
        }
    }

    /// Sends a request and returns its result.
    async fn request(
        &self,
        connection: &McpConnection,
        request: ClientRequest<'_>,
    ) -> Result<Value, ToolError> {
        let (at, limit) = (self.endpoint(), self.answer_timeout);
        tracing::debug!(method = request.method(connection.version), ?request, "to {at}");
        match tokio::time::timeout(limit, connection.request(request)).await {
            Ok(Ok(result)) => {
                tracing::debug!(%result, "from {at}");
                Ok(result)
            }
            Ok(Err(fail)) => {
                tracing::debug!(?fail, "from {at}");
                Err(self.context.error(fail))
            }
            Err(_) => Err(ToolError::Timeout { at: at.to_owned(), limit }),
        }
    }
}

impl std::fmt::Debug for ToolClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolClient").field("endpoint", &self.context.at).finish_non_exhaustive()
    }
}

/// A connection that begins without a handshake.
fn connect(http: &Arc<McpHttp>, capabilities: ClientCapabilities, trace: Option<&str>) -> McpConnection {
    let (version, hub) = (McpVersion::V2026_07_28, MessageRouter::new(watch::Sender::new(0)));
    let link = StreamableHttp { http: Arc::clone(http), version, session: None, hub: Arc::clone(&hub) };
    let link = McpTransport::Http(Arc::new(link));
    let info = http.options.description().info;
    McpConnection::new(&http.at, (version, ServerDescription::default()), link, &hub, &http.options)
        .described_as(ClientDescription { capabilities, info })
        .traced(trace)
}

/// The token of a client, if it has one. A refusal is reported with the server's own text.
struct ClientToken(RwLock<Option<String>>);

impl ClientToken {
    fn is_set(&self) -> bool {
        self.0.read().is_some()
    }
}

/// The token, if it can be sent in a header.
fn checked_token(token: String) -> Result<String, ToolError> {
    match HeaderValue::try_from(format!("Bearer {token}")) {
        Ok(_) => Ok(token),
        Err(_) => Err(ToolError::Setup("the token has characters that no header takes".to_owned())),
    }
}

#[async_trait]
impl Authorizer for ClientToken {
    async fn token(&self, _: &Url) -> Option<String> {
        self.0.read().clone()
    }

    async fn challenged(&self, _: &Url, _: u16, _: Option<&str>) -> Result<bool, String> {
        Ok(false)
    }
}

impl ToolAnswer {
    /// The result of a tool; an error if the tool reports one.
    fn of(result: ToolResult) -> Result<Self, ToolError> {
        let (text, structured) = (result.text(), result.structured);
        match result.is_error {
            true => Err(ToolError::Tool { why: text, structured }),
            false => Ok(Self { text, structured }),
        }
    }
}
