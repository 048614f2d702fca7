//! What is shared within a tenant does not exist for another one: every resource and every tool, in both eras of MCP,
//! in the same words as for what nobody has, and in the same time.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Place;
use crate::http::client;

const NOBODY: &str = "0190a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b";

/// A caller, without a session or in one.
pub(super) struct Guest {
    pub(super) http: reqwest::Client,
    pub(super) url: String,
    pub(super) token: String,
    pub(super) session: Option<String>,
}

impl Guest {
    async fn new(place: &Place, tenant: &str, in_session: bool) -> Self {
        let token = place.token(&["--name", "somebody", "--tenant", tenant, "--scope", "*:*"]);
        let token = token["token"].as_str().unwrap().to_owned();
        let url = format!("http://{}/mcp", place.server.addr());
        let mut guest = Self { http: client(), url, token, session: None };
        if in_session {
            let begin = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
            let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": begin });
            let began = guest.post(&[], &body).send().await.unwrap();
            let session = began.headers()["mcp-session-id"].to_str().unwrap().to_owned();
            guest.session = Some(session);
        }
        guest
    }

    pub(super) fn post(&self, headers: &[(&str, &str)], body: &Value) -> reqwest::RequestBuilder {
        let request = self
            .http
            .post(&self.url)
            .bearer_auth(&self.token)
            .header("accept", "application/json, text/event-stream")
            .json(body);
        headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))
    }

    /// The status and the body of an answer.
    async fn ask(&self, method: &str, name: &str, mut params: Value) -> (u16, String) {
        let answer = match &self.session {
            Some(session) => {
                let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
                let headers = [("mcp-session-id", session.as_str()), ("mcp-protocol-version", "2025-11-25")];
                self.post(&headers, &body).send().await.unwrap()
            }
            None => {
                params["_meta"] = json!({
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientCapabilities": {},
                    "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "1" },
                });
                let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
                let mut headers = vec![("mcp-protocol-version", "2026-07-28"), ("mcp-method", method)];
                if !name.is_empty() {
                    headers.push(("mcp-name", name));
                }
                self.post(&headers, &body).send().await.unwrap()
            }
        };
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    pub(super) async fn read(&self, uri: &str) -> (u16, String) {
        self.ask("resources/read", uri, json!({ "uri": uri })).await
    }

    pub(super) async fn tool(&self, name: &str, arguments: &Value) -> (u16, String) {
        self.ask("tools/call", name, json!({ "name": name, "arguments": arguments })).await
    }

    /// The structured result of a call that has to go well.
    pub(super) async fn done(&self, name: &str, arguments: &Value) -> Value {
        let (_, text) = self.tool(name, arguments).await;
        let answer: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_ne!(answer["result"]["isError"], true, "{name}: {text}");
        answer["result"]["structuredContent"].clone()
    }
}

/// What a tenant has.
struct Things {
    namespace: String,
    key: String,
    context: String,
    batch: String,
    task: String,
}

impl Things {
    async fn of(guest: &Guest) -> Self {
        let (namespace, key) = ("plans".to_owned(), "launch/day 1".to_owned());
        let entry = json!({ "namespace": namespace, "key": key, "value": { "text": "the secret launch" } });
        guest.done("memory_store", &entry).await;
        guest.done("sparc_start", &json!({ "goal": "The secret launch", "contextId": "launch" })).await;
        let wait = json!({ "operations": [{ "id": "a", "type": "wait", "args": { "ms": 60_000 } }] });
        let batch = guest.done("batch_submit", &wait).await["batchId"].as_str().unwrap().to_owned();
        let sent = guest.done("task_send", &json!({ "agent": "echo", "text": "the secret launch" })).await;
        let task = sent["taskId"].as_str().unwrap().to_owned();
        Self { namespace, key, context: "launch".into(), batch, task }
    }

    fn nobodys() -> Self {
        let named = |name: &str| name.to_owned();
        Self {
            namespace: named("stars"),
            key: named("landing/day 2"),
            context: named("landin"),
            batch: named(NOBODY),
            task: named(NOBODY),
        }
    }

    fn uris(&self) -> Vec<String> {
        let (namespace, context) = (&self.namespace, &self.context);
        let key = self.key.replace('/', "%2F").replace(' ', "%20");
        let all = [
            format!("memory://namespace/{namespace}/keys"),
            format!("memory://data/{namespace}/{key}"),
            format!("sparc://workflow/{context}"),
            format!("sparc://workflow/{context}/history"),
            format!("sparc://workflow/{context}/artifacts/specification/1"),
            format!("a2a://tasks/{}", self.task),
            format!("a2a://tasks/{}", self.batch),
            format!("a2a://streams/stream-{}", self.task.replace('-', "")),
        ];
        let aliases = all.iter().map(|uri| format!("mcp://claude-20x/{}", uri.replacen("://", "/", 1)));
        all.iter().cloned().chain(aliases).collect()
    }

    fn calls(&self) -> Vec<(&'static str, Value)> {
        let Self { namespace, key, context, batch, task } = self;
        vec![
            ("memory_get", json!({ "namespace": namespace, "key": key })),
            ("memory_delete", json!({ "namespace": namespace, "key": key })),
            ("memory_list", json!({ "namespace": namespace })),
            ("memory_export", json!({ "namespace": namespace })),
            ("memory_search", json!({ "namespace": namespace, "pattern": "*" })),
            ("memory_search", json!({ "namespace": namespace, "text": "secret" })),
            ("memory_clear", json!({ "namespace": namespace, "confirm": true })),
            ("sparc_status", json!({ "contextId": context })),
            ("sparc_history", json!({ "contextId": context })),
            ("sparc_submit", json!({ "contextId": context, "artifact": {} })),
            ("sparc_back", json!({ "contextId": context, "to": "specification", "reason": "mine" })),
            ("batch_status", json!({ "batchId": batch })),
            ("batch_pause", json!({ "batchId": batch })),
            ("batch_resume", json!({ "batchId": batch })),
            ("batch_retry", json!({ "batchId": batch })),
            ("batch_cancel", json!({ "batchId": batch })),
            ("task_get", json!({ "taskId": task })),
            ("task_events", json!({ "taskId": task })),
            ("task_reply", json!({ "taskId": task, "text": "mine" })),
            ("task_cancel", json!({ "taskId": task })),
        ]
    }

    /// An answer without the names that were asked for, and without times.
    fn without(&self, (status, text): &(u16, String)) -> (u16, String) {
        let key = self.key.replace('/', "%2F").replace(' ', "%20");
        let stream = self.task.replace('-', "");
        let mut text = text.clone();
        for name in [&key, &self.key, &self.namespace, &self.context, &self.batch, &self.task, &stream] {
            text = text.replace(name.as_str(), "NAME");
        }
        (*status, text)
    }
}

#[tokio::test]
async fn what_another_tenant_shares_is_what_nobody_has() {
    let place = Place::new(&["--audit", "all"]);
    let operator = home(&place).await;
    operator.done("batch_configure", &json!({ "resourceMonitoring": false })).await;
    let acme = Guest::new(&place, "acme", false).await;
    let theirs = Things::of(&acme).await;
    let nobodys = Things::nobodys();
    for in_session in [false, true] {
        let globex = Guest::new(&place, "globex", in_session).await;
        for (there, nowhere) in theirs.uris().iter().zip(nobodys.uris()) {
            let (there, nowhere) = (globex.read(there).await, globex.read(&nowhere).await);
            assert_eq!(theirs.without(&there), nobodys.without(&nowhere));
            assert!(nowhere.1.contains("there is no resource"), "{}", nowhere.1);
        }
        for ((tool, there), (_, nowhere)) in theirs.calls().iter().zip(nobodys.calls()) {
            let (there, nowhere) = (globex.tool(tool, there).await, globex.tool(tool, &nowhere).await);
            assert_eq!(theirs.without(&there), nobodys.without(&nowhere), "{tool}");
            assert!(!there.1.contains("secret launch"), "{tool}: {}", there.1);
        }
        for list in ["memory_list", "sparc_list", "batch_list", "task_list", "a2a_streams"] {
            let (_, listed) = globex.tool(list, &json!({})).await;
            for name in [&theirs.namespace, &theirs.context, &theirs.batch, &theirs.task] {
                assert!(!listed.contains(name.as_str()), "{list}: {listed}");
            }
        }
        for (template, argument) in [
            ("memory://data/{namespace}/{key}", "namespace"),
            ("sparc://workflow/{contextId}", "contextId"),
            ("a2a://tasks/{taskId}", "taskId"),
            ("a2a://streams/{streamId}", "streamId"),
        ] {
            let reference = json!({ "type": "ref/resource", "uri": template });
            let params = json!({ "ref": reference, "argument": { "name": argument, "value": "" } });
            let (_, completed) = globex.ask("completion/complete", "", params).await;
            let completed: Value = serde_json::from_str(&completed).unwrap();
            let values = completed["result"]["completion"]["values"].as_array();
            assert_eq!(values.map(Vec::len), Some(0), "{template}: {completed}");
        }
        let (_, queue) = globex.read("batchtools://queue/status").await;
        assert!(!queue.contains(&theirs.batch), "{queue}");
    }

    // Nothing has happened to any of it.
    for uri in theirs.uris().iter().filter(|uri| !uri.contains("artifacts") && !uri.contains("streams")) {
        let (status, text) = acme.read(uri).await;
        assert!(status == 200 && text.contains("\"contents\""), "{uri}: {text}");
    }
    let task = acme.done("task_get", &json!({ "taskId": theirs.batch })).await;
    assert_eq!(task["state"], "working", "{task}");
    let lines = place.audit(&["--tenant", "globex", "--limit", "1000"]);
    for operation in ["memory.get", "memory.clear", "task.get", "task.cancel"] {
        assert!(lines.iter().any(|line| line["operation"] == operation), "{operation} is not in the audit");
    }
}

/// Somebody of the operator's own tenant, who may change what holds for all.
async fn home(place: &Place) -> Guest {
    let token = place.token(&["--name", "operator", "--scope", "*:*"]);
    let url = format!("http://{}/mcp", place.server.addr());
    let token = token["token"].as_str().unwrap().to_owned();
    Guest { http: client(), url, token, session: None }
}

#[tokio::test]
async fn the_time_of_an_answer_tells_nothing() {
    let place = Place::new(&["--audit", "refused"]);
    let operator = home(&place).await;
    operator.done("batch_configure", &json!({ "resourceMonitoring": false })).await;
    let acme = Guest::new(&place, "acme", false).await;
    let (theirs, nobodys) = (Things::of(&acme).await, Things::nobodys());
    let globex = Guest::new(&place, "globex", false).await;
    let full = std::env::var_os("NUNCIO_FULL").is_some();
    let (count, tries) = if full { (1_000, 5) } else { (200, 5) };
    for (there, nowhere) in theirs.uris().into_iter().zip(nobodys.uris()).take(7) {
        let mut seen = vec![];
        for _ in 0..tries {
            let (mut first, mut second) = (vec![], vec![]);
            for _ in 0..count {
                first.push(took(&globex, &there).await);
                second.push(took(&globex, &nowhere).await);
            }
            let (first, second) = (median(first), median(second));
            let ratio = first.as_secs_f64() / second.as_secs_f64();
            seen.push(ratio);
            if (0.75..=1.25).contains(&ratio) {
                break;
            }
        }
        assert!(seen.last().is_some_and(|ratio| (0.75..=1.25).contains(ratio)), "{there}: {seen:?}");
    }
}

async fn took(guest: &Guest, uri: &str) -> Duration {
    let started = Instant::now();
    guest.read(uri).await;
    started.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
