//! A client of any revision over raw HTTP, and the streams that it reads. Everything that the server says is
//! held against the protocol's schemas on the way.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::atomic::{AtomicU64, Ordering},
};

use serde_json::{Value, json};

use super::{V2026, shapes};
use crate::{
    site::Site,
    socket::{Answer, Socket, bare, is_chunked, post, within},
};

const ACCEPT: (&str, &str) = ("accept", "application/json, text/event-stream");

/// The list of resources has changed.
pub(super) const RESOURCES_CHANGED: &str = "notifications/resources/list_changed";

/// One client: a session, or none (2026-07-28).
pub(super) struct Client {
    at: SocketAddr,
    /// The endpoint that it uses.
    path: String,
    pub(super) version: String,
    /// The session; empty without one.
    pub(super) session: String,
    /// What `initialize` was answered with.
    pub(super) began: Value,
    /// What it declares with every request, without a session.
    capabilities: Value,
    next: AtomicU64,
}

impl Client {
    /// Begins a session.
    pub(super) async fn session(site: &Site, version: &str, capabilities: Value) -> Self {
        Self::session_at(site, "/mcp", version, capabilities).await
    }

    /// Begins a session at an endpoint of the server.
    pub(super) async fn session_at(site: &Site, path: &str, version: &str, capabilities: Value) -> Self {
        let mut client = Self::unborn(site, version).at(path);
        let answer = site.send(post(path, &[ACCEPT], initialize(version, &capabilities).to_string())).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        client.session = answer.header("mcp-session-id").to_owned();
        client.began = answer.json()["result"].take();
        assert_eq!(client.began["protocolVersion"], version);
        shapes::check_result(version, "initialize", &client.began);
        assert_eq!(client.notify("notifications/initialized", json!({})).await, 202);
        client
    }

    /// A client of 2026-07-28.
    pub(super) fn stateless(site: &Site, capabilities: Value) -> Self {
        Self { capabilities, ..Self::unborn(site, V2026) }
    }

    fn unborn(site: &Site, version: &str) -> Self {
        Self {
            at: site.address,
            path: "/mcp".to_owned(),
            version: version.to_owned(),
            session: String::new(),
            began: Value::Null,
            capabilities: json!({}),
            next: AtomicU64::new(1),
        }
    }

    /// The same client at another endpoint.
    pub(super) fn at(self, path: &str) -> Self {
        Self { path: path.to_owned(), ..self }
    }

    /// The same session at another server.
    pub(super) fn moved_to(self, site: &Site) -> Self {
        Self { at: site.address, ..self }
    }

    /// A request with an id of its own and, without a session, what it has to say of itself.
    pub(super) fn request(&self, method: &str, mut params: Value) -> Value {
        if self.session.is_empty() {
            let meta = &mut params["_meta"];
            let said = json!({
                "io.modelcontextprotocol/protocolVersion": V2026,
                "io.modelcontextprotocol/clientCapabilities": self.capabilities,
                "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
            });
            let given = meta.take();
            *meta = said;
            for (key, value) in given.as_object().into_iter().flatten() {
                meta[key] = value.clone();
            }
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
    }

    /// The headers that belong to a message.
    pub(super) fn headers(&self, message: &Value) -> Vec<(&'static str, String)> {
        let mut headers = vec![(ACCEPT.0, ACCEPT.1.to_owned())];
        if !self.session.is_empty() {
            headers.push(("mcp-session-id", self.session.clone()));
            if *self.version >= *"2025-06-18" {
                headers.push(("mcp-protocol-version", self.version.clone()));
            }
            return headers;
        }
        headers.push(("mcp-protocol-version", self.version.clone()));
        let method = message["method"].as_str().unwrap_or_default();
        headers.push(("mcp-method", method.to_owned()));
        let named = match method {
            "tools/call" | "prompts/get" => "name",
            "resources/read" => "uri",
            "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
            _ => return headers,
        };
        headers.push(("mcp-name", message["params"][named].as_str().unwrap_or_default().to_owned()));
        headers
    }

    /// Sends any message.
    pub(super) async fn send(&self, message: &Value) -> Reply {
        self.send_with(message, &self.headers(message)).await
    }

    pub(super) async fn send_with(&self, message: &Value, headers: &[(&str, String)]) -> Reply {
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
        self.exchange(&post(&self.path, &headers, message.to_string())).await
    }

    /// Sends a whole request of HTTP.
    pub(super) async fn exchange(&self, request: &[u8]) -> Reply {
        let mut socket = Socket::connect(self.at).await;
        socket.send(request).await;
        let (status, headers) = socket.head().await.expect("an answer");
        let kind = headers.get("content-type").map_or("", |kind| kind.to_str().unwrap());
        if kind == "text/event-stream" {
            assert_eq!(status, 200);
            let chunked = is_chunked(&headers);
            let (text, ready) = (String::new(), VecDeque::new());
            let version = self.version.clone();
            let name = headers.get("nuncio-stream-id").map_or("", |name| name.to_str().unwrap()).to_owned();
            return Reply::Stream(Stream { socket, chunked, text, ready, version, name });
        }
        let length = headers.get("content-length").map_or(0, |len| len.to_str().unwrap().parse().unwrap());
        let body = socket.take(length).await.expect("the whole answer");
        Reply::Whole(Answer { status, headers, body })
    }

    /// The whole response to a request, whichever way it comes.
    pub(super) async fn call(&self, method: &str, params: Value) -> Value {
        let request = self.request(method, params);
        let response = match self.send(&request).await {
            Reply::Whole(answer) => answer.json(),
            Reply::Stream(mut stream) => stream.response().await.1,
        };
        assert_eq!(response["id"], request["id"], "{response}");
        if let Some(result) = response.get("result") {
            shapes::check_result(&self.version, method, result);
        }
        response
    }

    /// The result of a request that is expected to have one.
    pub(super) async fn ok(&self, method: &str, params: Value) -> Value {
        let mut response = self.call(method, params).await;
        assert!(response.get("error").is_none(), "{method}: {response}");
        response["result"].take()
    }

    /// The status and the error of a request that is expected to be refused.
    pub(super) async fn refused(&self, method: &str, params: Value) -> (u16, Value) {
        let request = self.request(method, params);
        let answer = self.send(&request).await.whole();
        let mut response = answer.json();
        assert_eq!(response["id"], request["id"], "{response}");
        assert!(response["error"]["message"].as_str().is_some_and(|words| words.len() > 10), "{response}");
        (answer.status, response["error"].take())
    }

    /// The stream that a request opens.
    pub(super) async fn stream(&self, method: &str, params: Value) -> Stream {
        self.send(&self.request(method, params)).await.stream()
    }

    /// Sends a notification; the status that it is answered with.
    pub(super) async fn notify(&self, method: &str, params: Value) -> u16 {
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        self.send(&message).await.whole().status
    }

    /// The same without a session.
    pub(super) async fn notify_stateless(&self, method: &str) -> u16 {
        let mut message = self.request(method, json!({}));
        message.as_object_mut().unwrap().shift_remove("id");
        self.send(&message).await.whole().status
    }

    /// Answers a request of the server.
    pub(super) async fn answer(&self, asked: &Value, result: Value) -> Answer {
        let response = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": result });
        self.send(&response).await.whole()
    }

    /// Opens the session's own stream.
    pub(super) async fn listen(&self) -> Stream {
        self.bare("GET", &[("accept", "text/event-stream")]).await.stream()
    }

    /// Goes on with a stream after an event of it.
    pub(super) async fn resume(&self, after: &str) -> Reply {
        self.bare("GET", &[("accept", "text/event-stream"), ("last-event-id", after)]).await
    }

    /// Ends the session; the status that this is answered with.
    pub(super) async fn delete(&self) -> u16 {
        self.bare("DELETE", &[]).await.whole().status
    }

    async fn bare(&self, method: &str, headers: &[(&str, &str)]) -> Reply {
        let own = self.headers(&Value::Null);
        let mut all: Vec<(&str, &str)> =
            own.iter().filter(|(name, _)| *name != "accept").map(|(name, value)| (*name, &**value)).collect();
        all.extend(headers);
        self.exchange(&bare(method, &self.path, &all)).await
    }
}

/// The request that begins a session.
pub(super) fn initialize(version: &str, capabilities: &Value) -> Value {
    let params = json!({
        "protocolVersion": version,
        "capabilities": capabilities,
        "clientInfo": { "name": "test", "version": "1" },
    });
    json!({ "jsonrpc": "2.0", "id": "begin", "method": "initialize", "params": params })
}

/// The params of a call of an agent with these words.
pub(super) fn saying(agent: &str, text: &str) -> Value {
    json!({ "name": agent, "arguments": { "text": text } })
}

/// The same, as a task of 2025-11-25.
pub(super) fn as_task(agent: &str, text: &str) -> Value {
    json!({ "name": agent, "arguments": { "text": text }, "task": {} })
}

/// The same, with a token for progress.
pub(super) fn with_token(mut params: Value) -> Value {
    params["_meta"]["progressToken"] = "token".into();
    params
}

/// What a form is answered with.
pub(super) fn accept(confirm: bool) -> Value {
    json!({ "action": "accept", "content": { "confirm": confirm } })
}

/// The text of a result.
pub(super) fn text_of(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {result}"))
}

/// The methods of messages, in their order; a response has none.
pub(super) fn methods(messages: &[Value]) -> Vec<&str> {
    messages.iter().map(|message| message["method"].as_str().unwrap_or("response")).collect()
}

/// An answer to a POST or a GET.
pub(super) enum Reply {
    Whole(Answer),
    Stream(Stream),
}

impl Reply {
    pub(super) fn whole(self) -> Answer {
        match self {
            Self::Whole(answer) => answer,
            Self::Stream(_) => panic!("expected an answer, and got a stream"),
        }
    }

    pub(super) fn stream(self) -> Stream {
        match self {
            Self::Whole(answer) => panic!("expected a stream: {} {}", answer.status, answer.text()),
            Self::Stream(stream) => stream,
        }
    }
}

/// What stands between two empty lines of a stream.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Told {
    /// The bytes that it came in.
    pub(super) raw: String,
    pub(super) id: Option<String>,
    pub(super) event: Option<String>,
    pub(super) retry: Option<u64>,
    pub(super) data: Option<String>,
}

impl Told {
    fn read(raw: &str) -> Self {
        let mut told = Self { raw: raw.to_owned(), ..Self::default() };
        for line in raw.lines() {
            let (field, value) = line.split_once(':').unwrap_or_else(|| panic!("no field: {raw:?}"));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "" => {}
                "id" => told.id = Some(value.to_owned()),
                "event" => told.event = Some(value.to_owned()),
                "retry" => told.retry = Some(value.parse().unwrap()),
                "data" => assert_eq!(told.data.replace(value.to_owned()), None, "two lines of data: {raw:?}"),
                _ => panic!("unknown field: {raw:?}"),
            }
        }
        told
    }

    /// The message, where it is one.
    pub(super) fn message(&self) -> Option<Value> {
        let data = self.data.as_ref().filter(|data| !data.is_empty())?;
        Some(serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {data}")))
    }

    /// The event that it is, by task and number.
    pub(super) fn place(&self) -> (&str, u64) {
        let (task, rest) = self.id.as_deref().unwrap().split_once('.').unwrap();
        (task, rest.split('.').next().unwrap().parse().unwrap())
    }
}

/// A stream that is being read.
pub(super) struct Stream {
    socket: Socket,
    chunked: bool,
    text: String,
    ready: VecDeque<Told>,
    version: String,
    /// What the server calls it; empty where the answer is no stream that stays open.
    pub(super) name: String,
}

impl Stream {
    /// The next piece, comments too; `None` at the end.
    pub(super) async fn piece(&mut self) -> Option<Told> {
        within("a piece of a stream, or its end", async {
            while self.ready.is_empty() {
                assert!(self.chunked, "streams that are short come in one piece");
                let Some(chunk) = self.socket.chunk().await else {
                    assert_eq!(self.text, "", "the stream broke off inside an event");
                    return None;
                };
                self.text.push_str(std::str::from_utf8(&chunk).unwrap());
                let Some(end) = self.text.rfind("\n\n") else { continue };
                self.ready.extend(self.text[..end].split("\n\n").map(Told::read));
                self.text.drain(..end + 2);
            }
            self.ready.pop_front()
        })
        .await
    }

    /// The next event that carries a message, with its place.
    pub(super) async fn told(&mut self) -> Option<(Told, Value)> {
        // Comments are no excuse.
        within("a message, or the end of the stream", async {
            loop {
                let told = self.piece().await?;
                if let Some(message) = told.message() {
                    shapes::check_message(&self.version, &message);
                    return Some((told, message));
                }
            }
        })
        .await
    }

    /// The next message; `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Value> {
        self.told().await.map(|(_, message)| message)
    }

    /// The next message, which has this method. That the list of resources has changed is announced whenever a task came or
    /// ended, a moment later: it is skipped, unless it is expected.
    pub(super) async fn expect(&mut self, method: &str) -> Value {
        loop {
            let message = self.next().await.unwrap_or_else(|| panic!("the end came before {method}"));
            if message["method"] == RESOURCES_CHANGED && method != RESOURCES_CHANGED {
                continue;
            }
            assert_eq!(message["method"], method, "{message}");
            return message;
        }
    }

    /// What comes before the response, and the response, which is the last word.
    pub(super) async fn response(&mut self) -> (Vec<Value>, Value) {
        let mut before = vec![];
        loop {
            let message = self.next().await.unwrap_or_else(|| panic!("no response after {before:?}"));
            if message.get("method").is_none() {
                assert_eq!(self.next().await, None, "there is more after the response");
                return (before, message);
            }
            before.push(message);
        }
    }

    /// All messages to the end.
    pub(super) async fn rest(mut self) -> Vec<Value> {
        let mut rest = vec![];
        while let Some(message) = self.next().await {
            rest.push(message);
        }
        rest
    }

    /// All pieces to the end, as they came.
    pub(super) async fn pieces(mut self) -> Vec<Told> {
        let mut pieces = vec![];
        while let Some(piece) = self.piece().await {
            pieces.push(piece);
        }
        pieces
    }
}
