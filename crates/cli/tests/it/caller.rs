//! A caller of both protocols over plain HTTP, for tests that are not async: A2A 1.0 and MCP 2026-07-28, with a token
//! where the server asks for one. No connection outlives its request, so a server may die between any two of them.

use std::{
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// The extension that makes tasks of calls.
const TASKS: &str = "io.modelcontextprotocol/tasks";
/// Long, because other tests may keep the machine busy; nobody waits for it when all is well.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Caller {
    url: String,
    bearer: Option<String>,
    runtime: Runtime,
    client: reqwest::Client,
}

/// An answer of HTTP, whole.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: String,
    pub(crate) body: String,
}

impl Caller {
    pub(crate) fn new(url: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        // An error means that one is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().unwrap();
        Self { url: url.to_owned(), bearer: None, runtime, client }
    }

    pub(crate) fn with_token(url: &str, token: &str) -> Self {
        Self { bearer: Some(token.to_owned()), ..Self::new(url) }
    }

    /// Any request.
    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Answer {
        let url = format!("{}{path}", self.url);
        self.runtime.block_on(async {
            let mut request = self.client.request(method.parse().unwrap(), url).timeout(PATIENCE);
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            if let Some(token) = &self.bearer {
                request = request.bearer_auth(token);
            }
            if let Some(body) = body {
                request = request.header("content-type", "application/json").body(body.to_string());
            }
            let answer = request.send().await.unwrap();
            let (status, headers) = (answer.status().as_u16(), format!("{:?}", answer.headers()));
            Answer { status, headers, body: answer.text().await.unwrap() }
        })
    }

    /// A request of A2A 1.0 to an agent: the whole response.
    pub(crate) fn a2a(&self, agent: &str, method: &str, params: &Value) -> Value {
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        self.send("POST", &format!("/agents/{agent}"), &[("a2a-version", "1.0")], Some(&request)).message()
    }

    /// Sends a message, and does not wait for what comes of it: the task.
    pub(crate) fn tell(&self, agent: &str, id: &str, task: Option<&str>, part: &Value) -> Value {
        let mut message = json!({ "messageId": id, "role": "ROLE_USER", "parts": [part] });
        if let Some(task) = task {
            message["taskId"] = task.into();
        }
        let params = json!({ "message": message, "configuration": { "returnImmediately": true } });
        let mut said = self.a2a(agent, "SendMessage", &params);
        assert!(said["result"]["task"].is_object(), "{said}");
        said["result"]["task"].take()
    }

    /// A request of MCP: the whole response. Asked by a client that has a model, shows forms and takes tasks.
    pub(crate) fn mcp(&self, method: &str, params: Value) -> Value {
        self.mcp_at("/mcp", method, params).message()
    }

    /// The same at any of the server's endpoints, as it comes over HTTP.
    pub(crate) fn mcp_at(&self, path: &str, method: &str, mut params: Value) -> Answer {
        let version = "2026-07-28";
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientCapabilities": {
                "extensions": { TASKS: {} }, "sampling": {}, "elicitation": { "form": {} },
            },
            "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        });
        let mut headers = vec![
            ("accept", "application/json, text/event-stream".to_owned()),
            ("mcp-protocol-version", version.to_owned()),
            ("mcp-method", method.to_owned()),
        ];
        let named = match method {
            "tools/call" | "prompts/get" => "name",
            "resources/read" => "uri",
            _ => "taskId",
        };
        if let Some(name) = params[named].as_str() {
            headers.push(("mcp-name", name.to_owned()));
        }
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        self.send("POST", path, &headers, Some(&request))
    }

    /// The result of a request of MCP, which there has to be.
    pub(crate) fn ok(&self, method: &str, params: Value) -> Value {
        let mut said = self.mcp(method, params);
        assert!(said["result"].is_object(), "{method}: {said}");
        said["result"].take()
    }

    /// What a tool says in its structured way, which there has to be.
    pub(crate) fn call(&self, tool: &str, arguments: Value) -> Value {
        let mut params = json!({ "name": tool });
        params["arguments"] = arguments;
        let mut said = self.ok("tools/call", params);
        assert!(said["isError"] != true && said["structuredContent"].is_object(), "{tool}: {said}");
        said["structuredContent"].take()
    }

    /// A resource of JSON.
    pub(crate) fn read(&self, uri: &str) -> Value {
        let said = self.ok("resources/read", json!({ "uri": uri }));
        let text = said["contents"][0]["text"].as_str().unwrap_or_else(|| panic!("{uri}: {said}"));
        serde_json::from_str(text).unwrap()
    }
}

impl Answer {
    /// The value of a header, which there has to be.
    pub(crate) fn header(&self, name: &str) -> String {
        let after = self.headers.split(&format!("\"{name}\": \"")).nth(1);
        let value = after.and_then(|after| after.split('"').next());
        value.unwrap_or_else(|| panic!("no {name} in {}", self.headers)).to_owned()
    }

    /// The one response of JSON-RPC in it: as it is, or the last message of a stream.
    pub(crate) fn message(&self) -> Value {
        let mut events = self.body.lines().filter_map(|line| line.strip_prefix("data:"));
        let text = events.rfind(|data| !data.trim().is_empty()).unwrap_or(&self.body);
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} ({}): {}", self.status, self.body))
    }
}

/// Waits until there is what is wanted.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "this did not come: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
