//! A stateless MCP client for tools and resources (MCP 2026-07-28).
//!
//! There is no session to lose: the caller may retry a request that could not be sent. The response may be a
//! body or a stream; the caller sees no difference. Long work is a task, which is read and answered by its
//! id ([`ToolTaskView`]).

mod error;
mod exchange;
mod subscription;
mod task;

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use http::HeaderValue;
use nuncio_wire::mcp::{McpVersion, TASKS};
use parking_lot::RwLock;
use reqwest::{Client, redirect, retry};
use serde_json::{Map, Value, json};

pub use self::{
    error::ToolError,
    subscription::{ToolChange, ToolChanges, ToolSubscription},
    task::{ToolTaskQuestion, ToolTaskStatus, ToolTaskView},
};

/// Options of a tool client.
#[derive(Debug, Clone)]
pub struct ToolOptions {
    /// A bearer token for every request.
    pub bearer: Option<String>,
    /// The W3C `traceparent` of every request.
    pub trace: Option<String>,
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

/// The progress of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolProgress {
    /// The amount done.
    pub done: f64,
    /// The total amount, if known.
    pub total: Option<f64>,
    /// A status text.
    pub text: Option<String>,
}

/// A client of one server.
#[derive(Debug)]
pub struct ToolClient {
    client: Client,
    endpoint: String,
    bearer: RwLock<Option<HeaderValue>>,
    options: ToolOptions,
    next: AtomicU64,
}

impl ToolClient {
    /// A client of the server whose MCP endpoint is at this URL.
    pub fn new(endpoint: &str, options: ToolOptions) -> Result<Self, ToolError> {
        // An error means that one is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .redirect(redirect::Policy::none())
            .retry(retry::never())
            .no_proxy()
            .connect_timeout(options.connect_timeout)
            .user_agent(nuncio_outbound::USER_AGENT)
            .build()
            .map_err(|error| ToolError::Setup(error.to_string()))?;
        let bearer = RwLock::new(options.bearer.as_deref().map(bearer_header).transpose()?);
        Ok(Self { client, endpoint: endpoint.to_owned(), bearer, options, next: AtomicU64::new(1) })
    }

    /// Sends another bearer token from now on.
    pub fn set_bearer(&self, token: &str) -> Result<(), ToolError> {
        *self.bearer.write() = Some(bearer_header(token)?);
        Ok(())
    }

    /// The URL of the server's MCP endpoint.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Calls a tool and waits for its result.
    pub async fn call(&self, tool: &str, arguments: Value) -> Result<ToolAnswer, ToolError> {
        let params = json!({ "name": tool, "arguments": arguments });
        match self.called(params, &json!({}), &mut |_| {}).await? {
            ToolStart::Done(called) => Ok(called),
            ToolStart::Task(_) => Err(ToolError::Malformed("a task that was not requested".to_owned())),
        }
    }

    /// Calls a tool and waits for its result. Calls `seen` with its progress.
    pub async fn call_watched(
        &self,
        tool: &str,
        arguments: Value,
        mut seen: impl FnMut(ToolProgress),
    ) -> Result<ToolAnswer, ToolError> {
        let params =
            json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": "progress" } });
        match self.called(params, &json!({}), &mut seen).await? {
            ToolStart::Done(called) => Ok(called),
            ToolStart::Task(_) => Err(ToolError::Malformed("a task that was not requested".to_owned())),
        }
    }

    /// Calls a tool whose work may take long: the result may be a running task.
    pub async fn start(&self, tool: &str, arguments: Value) -> Result<ToolStart, ToolError> {
        let params = json!({ "name": tool, "arguments": arguments });
        self.called(params, &with_tasks(), &mut |_| {}).await
    }

    /// The contents of a resource, each with its `text`.
    pub async fn read(&self, uri: &str) -> Result<Vec<Value>, ToolError> {
        let mut result =
            self.request("resources/read", json!({ "uri": uri }), &json!({}), &mut |_| {}).await?;
        match result["contents"].take() {
            Value::Array(contents) => Ok(contents),
            _ => Err(ToolError::Malformed("a resource without contents".to_owned())),
        }
    }

    /// The JSON content of a resource.
    pub async fn read_json(&self, uri: &str) -> Result<Value, ToolError> {
        let contents = self.read(uri).await?;
        let text = contents.first().and_then(|content| content["text"].as_str());
        let text = text.ok_or_else(|| ToolError::Malformed(format!("{uri} holds no text")))?;
        serde_json::from_str(text)
            .map_err(|error| ToolError::Malformed(format!("{uri} is not JSON: {error}")))
    }

    /// The current state of a task.
    pub async fn task(&self, task: &str) -> Result<ToolTaskView, ToolError> {
        let result = self.request("tasks/get", json!({ "taskId": task }), &with_tasks(), &mut |_| {}).await?;
        ToolTaskView::read(&result)
    }

    /// Answers questions of a task, by their keys. An answer that does not match its question is rejected
    /// and changes nothing.
    pub async fn answer(&self, task: &str, answers: Map<String, Value>) -> Result<(), ToolError> {
        let params = json!({ "taskId": task, "inputResponses": answers });
        self.request("tasks/update", params, &with_tasks(), &mut |_| {}).await.map(drop)
    }

    async fn called(
        &self,
        params: Value,
        capabilities: &Value,
        seen: &mut dyn FnMut(ToolProgress),
    ) -> Result<ToolStart, ToolError> {
        let result = self.request("tools/call", params, capabilities, seen).await?;
        match result["resultType"].as_str() {
            Some("task") => ToolTaskView::read(&result).map(ToolStart::Task),
            None | Some("complete") => called(&result).map(ToolStart::Done),
            Some(other) => Err(ToolError::Malformed(format!("a result of the type {other:?}"))),
        }
    }

    /// Sends a request and returns its result.
    async fn request(
        &self,
        method: &str,
        params: Value,
        capabilities: &Value,
        seen: &mut dyn FnMut(ToolProgress),
    ) -> Result<Value, ToolError> {
        let request = self.prepare(method, params, capabilities);
        let limit = self.options.answer_timeout;
        match tokio::time::timeout(limit, self.exchange(&request, seen)).await {
            Ok(answer) => answer,
            Err(_) => Err(ToolError::Timeout { at: self.endpoint.clone(), limit }),
        }
    }

    /// A request with what the protocol wants in each.
    fn prepare(&self, method: &str, mut params: Value, capabilities: &Value) -> Value {
        let meta = &mut params["_meta"];
        meta["io.modelcontextprotocol/protocolVersion"] = McpVersion::V2026_07_28.name().into();
        meta["io.modelcontextprotocol/clientCapabilities"] = capabilities.clone();
        meta["io.modelcontextprotocol/clientInfo"] =
            json!({ "name": env!("CARGO_PKG_NAME"), "version": env!("CARGO_PKG_VERSION") });
        if let Some(trace) = &self.options.trace {
            meta["traceparent"] = trace.as_str().into();
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
    }
}

fn bearer_header(token: &str) -> Result<HeaderValue, ToolError> {
    let mut value = HeaderValue::try_from(format!("Bearer {token}"))
        .map_err(|_| ToolError::Setup("the token has characters that no header takes".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// The result of a tool; an error if the tool reports one.
fn called(result: &Value) -> Result<ToolAnswer, ToolError> {
    let blocks = result["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    let texts: Vec<&str> = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
    let called = ToolAnswer { text: texts.join("\n"), structured: result.get("structuredContent").cloned() };
    match result["isError"].as_bool() {
        Some(true) => Err(ToolError::Tool { why: called.text, structured: called.structured }),
        _ => Ok(called),
    }
}

/// The client capabilities: tasks, and elicitation by form.
fn with_tasks() -> Value {
    json!({ "extensions": { TASKS: {} }, "elicitation": { "form": {} } })
}
