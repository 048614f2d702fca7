//! A pair of pipes, one message a line, in both eras: how a desktop client talks to a server that it started.

use std::io;

use nuncio_server::{ServerOptions, serve_pipe};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf},
    task::JoinHandle,
};

use super::{
    SUBSCRIPTION, TASKS, V2025, V2026, WITH_SESSIONS,
    client::{accept, as_task, initialize, methods, saying, text_of, with_token},
    shapes,
    stage::{Stage, until},
};
use crate::socket::within;

/// The client's end.
struct Pipe {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    out: WriteHalf<DuplexStream>,
    server: JoinHandle<io::Result<()>>,
    version: String,
}

impl Pipe {
    fn open(stage: &Stage) -> Self {
        Self::with(stage, ServerOptions::default())
    }

    fn with(stage: &Stage, options: ServerOptions) -> Self {
        let (client, server) = tokio::io::duplex(64 * 1024);
        let (input, output) = tokio::io::split(server);
        let engine = stage.engine.clone();
        let server =
            tokio::spawn(async move { serve_pipe(engine, &options, BufReader::new(input), output).await });
        let (input, out) = tokio::io::split(client);
        Self { lines: BufReader::new(input).lines(), out, server, version: V2026.to_owned() }
    }

    /// One that has begun a session.
    async fn session(stage: &Stage, version: &str, capabilities: Value) -> Self {
        let mut pipe = Self::open(stage);
        pipe.version = version.to_owned();
        pipe.send(&initialize(version, &capabilities)).await;
        let begun = pipe.next().await;
        assert_eq!((&begun["id"], &begun["result"]["protocolVersion"]), (&json!("begin"), &json!(version)));
        pipe.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        pipe
    }

    async fn send(&mut self, message: &Value) {
        self.send_text(&format!("{message}\n")).await;
    }

    async fn send_text(&mut self, text: &str) {
        within("room in the pipe", self.out.write_all(text.as_bytes())).await.unwrap();
    }

    async fn request(&mut self, id: impl Into<Value>, method: &str, params: Value) {
        let id = id.into();
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
    }

    /// A request of 2026-07-28.
    async fn stateless(
        &mut self,
        id: impl Into<Value>,
        method: &str,
        capabilities: Value,
        mut params: Value,
    ) {
        let meta = &mut params["_meta"];
        meta["io.modelcontextprotocol/protocolVersion"] = V2026.into();
        meta["io.modelcontextprotocol/clientCapabilities"] = capabilities;
        self.request(id, method, params).await;
    }

    async fn notify(&mut self, method: &str, params: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params })).await;
    }

    async fn answer(&mut self, asked: &Value, result: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": result })).await;
    }

    /// The next line, if there is one more. That the list of resources has changed may be told at any time after a task
    /// has ended.
    async fn line(&mut self) -> Option<String> {
        loop {
            let line = within("a line, or the end of the pipe", self.lines.next_line()).await.unwrap();
            if !line.as_ref().is_some_and(|line| line.contains("notifications/resources/list_changed")) {
                return line;
            }
        }
    }

    async fn next(&mut self) -> Value {
        let line = self.line().await.expect("the pipe ended");
        let message = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        shapes::check_message(&self.version, &message);
        message
    }

    /// What comes before the response to a request, and the response.
    async fn response(&mut self, id: impl Into<Value>) -> (Vec<Value>, Value) {
        let (id, mut before) = (id.into(), vec![]);
        loop {
            let message = self.next().await;
            if message["id"] == id && message.get("method").is_none() {
                return (before, message);
            }
            before.push(message);
        }
    }

    /// Says nothing more; what is still said, until the server has ended.
    async fn close(mut self) -> Vec<Value> {
        within("the end of the input", self.out.shutdown()).await.unwrap();
        let mut rest = vec![];
        while let Some(line) = self.line().await {
            rest.push(serde_json::from_str(&line).unwrap());
        }
        within("the end of the server", self.server).await.unwrap().unwrap();
        rest
    }
}

fn asks() -> Value {
    json!({ "elicitation": { "form": {} }, "sampling": {} })
}

// ------------------------------------------------------------------------------------------------ sessions

#[tokio::test]
async fn a_session_on_a_pipe_is_told_how_its_call_goes_on() {
    let stage = Stage::new().await;
    for version in WITH_SESSIONS {
        let mut pipe = Pipe::session(&stage, version, json!({})).await;
        pipe.request("call", "tools/call", with_token(saying("player", "tell 2"))).await;
        let (before, response) = pipe.response("call").await;
        let told = ["notifications/message", "notifications/progress"];
        assert_eq!(methods(&before), [told, told].concat(), "{version}");
        assert_eq!(before[0]["params"]["data"], "line 1");
        assert_eq!(before[3]["params"]["progress"], 2);
        assert_eq!(text_of(&response["result"]), "told 2");
        pipe.request(2, "logging/setLevel", json!({ "level": "debug" })).await;
        pipe.response(2).await;
        pipe.request(3, "tools/call", saying("player", "tell 1")).await;
        let (before, _) = pipe.response(3).await;
        assert_eq!(methods(&before), ["notifications/message", "notifications/message"], "{version}");
        assert_eq!(before[0]["params"]["data"], "detail 1");
        assert_eq!(pipe.close().await, Vec::<Value>::new());
    }
}

#[tokio::test]
async fn an_id_that_is_in_use_is_refused() {
    let stage = Stage::new().await;
    let mut pipe = Pipe::session(&stage, V2025, asks()).await;
    pipe.request(1, "tools/call", saying("player", "tell-slowly 1")).await;
    pipe.request(1, "ping", json!({})).await;
    assert_eq!(pipe.response(1).await.1["error"]["code"], -32600);
    stage.open(1);
    assert_eq!(text_of(&pipe.response(1).await.1["result"]), "told 1");
}

/// While the call goes on, and among other requests: nothing waits for anything else.
#[tokio::test]
async fn requests_on_a_pipe_do_not_wait_for_each_other() {
    let stage = Stage::new().await;
    let mut pipe = Pipe::session(&stage, V2025, asks()).await;
    pipe.request(1, "tools/call", with_token(saying("player", "tell-slowly 2"))).await;
    pipe.request(2, "ping", json!({})).await;
    assert_eq!(pipe.response(2).await.1["result"], json!({}));
    stage.open(1);
    assert_eq!(pipe.next().await["params"]["data"], "line 1");
    assert_eq!(pipe.next().await["params"]["message"], "step 1");
    pipe.request(3, "tools/list", json!({})).await;
    pipe.response(3).await;
    stage.open(2);
    let (before, response) = pipe.response(1).await;
    assert_eq!(methods(&before), ["notifications/message", "notifications/progress"]);
    assert_eq!(text_of(&response["result"]), "told 2");
}

#[tokio::test]
async fn a_session_on_a_pipe_is_asked() {
    let stage = Stage::new().await;
    let mut pipe = Pipe::session(&stage, V2025, asks()).await;
    pipe.request(1, "tools/call", saying("player", "ask")).await;
    let asked = pipe.next().await;
    assert_eq!(asked["method"], "elicitation/create");
    // A wrong answer is no answer: the question is put again.
    pipe.answer(&asked, json!({ "action": "accept", "content": { "confirm": 1 } })).await;
    let again = pipe.next().await;
    assert_eq!(again["method"], "elicitation/create");
    assert_ne!(again["id"], asked["id"]);
    pipe.answer(&again, accept(true)).await;
    assert_eq!(text_of(&pipe.response(1).await.1["result"]), "yes");

    pipe.request(2, "tools/call", saying("player", "sample")).await;
    let asked = pipe.next().await;
    assert_eq!(asked["method"], "sampling/createMessage");
    let said = json!({ "type": "text", "text": "something" });
    pipe.answer(&asked, json!({ "role": "assistant", "content": said, "model": "m" })).await;
    assert_eq!(text_of(&pipe.response(2).await.1["result"]), "something");

    pipe.request(3, "tools/call", json!({ "name": "greet" })).await;
    let asked = pipe.next().await;
    pipe.answer(&asked, json!({ "action": "accept", "content": { "name": "Ada" } })).await;
    assert_eq!(text_of(&pipe.response(3).await.1["result"]), "Hello, Ada.");
}

#[tokio::test]
async fn a_call_on_a_pipe_is_cancelled_by_its_id_and_not_answered() {
    let stage = Stage::new().await;
    let mut pipe = Pipe::session(&stage, V2025, asks()).await;
    pipe.request("a", "tools/call", with_token(saying("player", "wait"))).await;
    assert_eq!(pipe.next().await["params"]["message"], "waiting");
    let task = stage.only_task().await;
    pipe.notify("notifications/cancelled", json!({ "requestId": "b" })).await;
    pipe.request(2, "ping", json!({})).await;
    pipe.response(2).await;
    assert_eq!(stage.state(&task).await, "WORKING");
    pipe.notify("notifications/cancelled", json!({ "requestId": "a", "reason": "enough" })).await;
    stage.until_state(&task, "CANCELED").await;
    pipe.request(3, "ping", json!({})).await;
    assert_eq!(methods(&pipe.response(3).await.0), Vec::<&str>::new(), "it was answered");
    assert_eq!(methods(&pipe.close().await), Vec::<&str>::new(), "it was answered in the end");
}

/// A client may change its mind before the server has done anything: both lines come together. Whether the call
/// was begun or not, nobody works on it.
async fn check_cancelled_at_once(stage: &Stage, pipe: &mut Pipe, params: Value) {
    let call = json!({ "jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params });
    let cancel =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 9 } });
    pipe.send_text(&format!("{call}\n{cancel}\n")).await;
    // What comes after it is answered: the server has gone on.
    pipe.request(10, "tools/list", params).await;
    assert_eq!(methods(&pipe.response(10).await.0), Vec::<&str>::new());
    until("the end of what was begun", async || {
        let listed = stage.result("1.0", "ListTasks", json!({})).await;
        let tasks = listed["tasks"].as_array().unwrap();
        tasks.iter().all(|task| task["status"]["state"] == "TASK_STATE_CANCELED").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_cancellation_that_comes_with_its_call_is_not_lost_in_a_session() {
    let stage = Stage::new().await;
    let mut pipe = Pipe::session(&stage, V2025, json!({})).await;
    check_cancelled_at_once(&stage, &mut pipe, saying("player", "wait")).await;
}

#[tokio::test]
async fn a_cancellation_that_comes_with_its_call_is_not_lost_without_a_session() {
    let stage = Stage::new().await;
    let mut params = saying("player", "wait");
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": V2026,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    check_cancelled_at_once(&stage, &mut Pipe::open(&stage), params).await;
}

#[tokio::test]
async fn a_session_on_a_pipe_is_told_what_changes() {
    let stage = Stage::new().await;
    let mut pipe = Pipe::session(&stage, V2025, asks()).await;
    pipe.request(1, "tools/call", as_task("player", "tell-slowly 1")).await;
    let made = pipe.response(1).await.1;
    let uri = format!("a2a://tasks/{}", made["result"]["task"]["taskId"].as_str().unwrap());
    pipe.request(2, "resources/subscribe", json!({ "uri": uri })).await;
    pipe.response(2).await;
    stage.change_tools();
    assert_eq!(pipe.next().await["method"], "notifications/tools/list_changed");
    stage.open(1);
    let told = pipe.next().await;
    assert_eq!(
        (&told["method"], &told["params"]["uri"]),
        (&json!("notifications/resources/updated"), &json!(uri))
    );
}

#[tokio::test]
async fn a_session_on_a_pipe_begins_once_and_before_anything_else() {
    let stage = Stage::new().await;
    let mut pipe = Pipe::open(&stage);
    pipe.request(1, "tools/list", json!({})).await;
    assert_eq!(pipe.response(1).await.1["error"]["code"], -32600);
    pipe.send(&initialize("2099-01-01", &json!({}))).await;
    let begun = pipe.response("begin").await.1;
    assert_eq!(begun["result"]["protocolVersion"], V2025, "{begun}");
    pipe.version = V2025.to_owned();
    pipe.send(&initialize("2024-11-05", &json!({}))).await;
    assert_eq!(pipe.response("begin").await.1["error"]["code"], -32600);
    pipe.request(2, "ping", json!({})).await;
    assert_eq!(pipe.response(2).await.1["result"], json!({}));
    pipe.request(3, "server/discover", json!({})).await;
    assert_eq!(pipe.response(3).await.1["error"]["code"], -32601);
}

#[tokio::test]
async fn a_batch_on_a_pipe_is_of_one_revision() {
    let stage = Stage::new().await;
    let batch = json!([
        { "jsonrpc": "2.0", "id": 1, "method": "ping" },
        { "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 77 } },
        { "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": saying("player", "hello") },
        7,
    ]);
    let mut pipe = Pipe::session(&stage, "2025-03-26", json!({})).await;
    pipe.send(&batch).await;
    // Each for itself or all together: every request has one answer.
    let mut answers = vec![];
    while answers.len() < 3 {
        let line = pipe.line().await.unwrap();
        match serde_json::from_str(&line).unwrap() {
            Value::Array(several) => answers.extend(several),
            one => answers.push(one),
        }
    }
    answers.sort_by_key(|answer| answer["id"].to_string());
    assert_eq!(answers[0]["result"], json!({}));
    assert_eq!(text_of(&answers[1]["result"]), "hello");
    assert_eq!(answers[2]["error"]["code"], -32600);
    // None is an error, and so are too many (max_batch).
    pipe.send(&json!([])).await;
    assert_eq!(pipe.next().await["error"]["code"], -32600);
    let many: Vec<Value> =
        (0..=100).map(|n| json!({ "jsonrpc": "2.0", "id": n, "method": "ping" })).collect();
    pipe.send(&json!(many)).await;
    assert_eq!(pipe.next().await["error"]["code"], -32600);

    for version in ["2025-06-18", V2025] {
        let mut pipe = Pipe::session(&stage, version, json!({})).await;
        pipe.send(&batch).await;
        let refused = pipe.next().await;
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&Value::Null, &json!(-32600)));
        assert_eq!(pipe.close().await, Vec::<Value>::new(), "some of it was done all the same");
    }
}

// ------------------------------------------------------------------------------------------------ without

#[tokio::test]
async fn a_stateless_call_on_a_pipe_is_asked_and_comes_back() {
    let stage = Stage::new().await;
    let mut pipe = Pipe::open(&stage);
    pipe.stateless("d", "server/discover", json!({}), json!({})).await;
    let discovered = pipe.response("d").await.1;
    shapes::check_result(V2026, "server/discover", &discovered["result"]);
    assert_eq!(discovered["result"]["supportedVersions"][0], V2026);
    for call in [saying("player", "ask"), json!({ "name": "greet", "arguments": {} })] {
        pipe.stateless(1, "tools/call", asks(), call.clone()).await;
        let asked = pipe.response(1).await.1["result"].take();
        shapes::check_result(V2026, "tools/call", &asked);
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        let mut again = call;
        again["requestState"] = asked["requestState"].clone();
        for key in asked["inputRequests"].as_object().unwrap().keys() {
            let content = json!({ "confirm": true, "name": "Ada" });
            again["inputResponses"][key] = json!({ "action": "accept", "content": content });
        }
        pipe.stateless(2, "tools/call", asks(), again).await;
        let result = pipe.response(2).await.1["result"].take();
        shapes::check_result(V2026, "tools/call", &result);
        assert!(["yes", "Hello, Ada."].contains(&text_of(&result)), "{result}");
    }
    // Progress for whoever wants it, lines for whoever names a level.
    pipe.stateless(3, "tools/call", json!({}), with_token(saying("player", "tell 1"))).await;
    assert_eq!(methods(&pipe.response(3).await.0), ["notifications/progress"]);
    // A revision that is not spoken is refused, and what is missing is named.
    let wrong = json!({ "_meta": { "io.modelcontextprotocol/protocolVersion": "2099-01-01" } });
    pipe.request(4, "server/discover", wrong).await;
    let error = pipe.response(4).await.1["error"].take();
    assert_eq!((&error["code"], &error["data"]["requested"]), (&json!(-32022), &json!("2099-01-01")));
    pipe.request(5, "server/discover", json!({})).await;
    assert_eq!(pipe.response(5).await.1["error"]["code"], -32602);
}

#[tokio::test]
async fn a_subscription_on_a_pipe_ends_when_it_is_cancelled() {
    let stage = Stage::new().await;
    let mut pipe = Pipe::open(&stage);
    let listen = json!({ "notifications": { "toolsListChanged": true } });
    for id in [json!("one"), json!(2)] {
        pipe.stateless(id.clone(), "subscriptions/listen", json!({}), listen.clone()).await;
        let first = pipe.next().await;
        assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
        assert_eq!(first["params"]["_meta"][SUBSCRIPTION], id);
    }
    stage.change_tools();
    let mut told: Vec<Value> = vec![];
    for _ in 0..2 {
        let message = pipe.next().await;
        assert_eq!(message["method"], "notifications/tools/list_changed");
        told.push(message["params"]["_meta"][SUBSCRIPTION].clone());
    }
    told.sort_by_key(Value::to_string);
    assert_eq!(told, [json!("one"), json!(2)]);

    pipe.notify("notifications/cancelled", json!({ "requestId": "one" })).await;
    pipe.stateless("d", "server/discover", json!({}), json!({})).await;
    assert_eq!(methods(&pipe.response("d").await.0), Vec::<&str>::new(), "what is cancelled is not answered");
    stage.change_tools();
    assert_eq!(pipe.next().await["params"]["_meta"][SUBSCRIPTION], 2);
    pipe.stateless("e", "server/discover", json!({}), json!({})).await;
    assert_eq!(methods(&pipe.response("e").await.0), Vec::<&str>::new(), "it goes on");
    // The end of the input ends the other, with a last word.
    let last = pipe.close().await;
    let of_it = |message: &Value| message["id"] == 2 || message["params"]["requestId"] == 2;
    assert!(last.iter().all(of_it), "{last:?}");
}

#[tokio::test]
async fn a_stateless_call_on_a_pipe_is_cancelled_and_a_task_is_not() {
    let stage = Stage::new().await;
    let mut pipe = Pipe::open(&stage);
    pipe.stateless(1, "tools/call", json!({}), with_token(saying("player", "wait"))).await;
    assert_eq!(pipe.next().await["method"], "notifications/progress");
    let call = stage.only_task().await;
    pipe.notify("notifications/cancelled", json!({ "requestId": 1 })).await;
    stage.until_state(&call, "CANCELED").await;

    pipe.stateless(2, "tools/call", json!({ "extensions": { TASKS: {} } }), saying("player", "wait")).await;
    let (before, made) = pipe.response(2).await;
    assert_eq!(methods(&before), Vec::<&str>::new(), "what was cancelled was answered");
    let task = made["result"]["taskId"].as_str().unwrap().to_owned();
    pipe.notify("notifications/cancelled", json!({ "requestId": 2 })).await;
    pipe.close().await;
    assert_eq!(stage.state(&task).await, "WORKING", "it lives on");
}

// ------------------------------------------------------------------------------------------------ bad lines

#[tokio::test]
async fn a_line_that_is_none_is_told_of_and_the_next_one_is_read() {
    let stage = Stage::new().await;
    let mut options = ServerOptions::default();
    options.limits.max_body_bytes = 1000;
    let mut pipe = Pipe::with(&stage, options);
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let long = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping", "params": { "x": "x".repeat(1000) } });
    for (line, code, word) in [
        (long.to_string(), -32600, "max_body_bytes"),
        ("x".repeat(300_000), -32600, "max_body_bytes"),
        ("garbage".to_owned(), -32700, "JSON"),
        ("{\"jsonrpc\":".to_owned(), -32700, "JSON"),
        ("{}".to_owned(), -32600, "jsonrpc"),
        ("7".to_owned(), -32600, "JSON-RPC"),
        (deep, -32600, "deeper"),
        (json!({ "jsonrpc": "1.0", "id": 1, "method": "ping" }).to_string(), -32600, "2.0"),
        (json!({ "jsonrpc": "2.0", "id": {}, "method": "ping" }).to_string(), -32600, "id"),
        (json!({ "jsonrpc": "2.0", "id": null, "method": "ping" }).to_string(), -32600, "id"),
        (json!({ "jsonrpc": "2.0", "id": 1 }).to_string(), -32600, "method"),
    ] {
        pipe.send_text(&format!("{line}\n")).await;
        let refused = pipe.next().await;
        let shown = &line[..line.len().min(60)];
        assert_eq!(refused["error"]["code"], code, "{shown}: {refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains(word), "{shown}: {refused}");
    }
    // Empty lines are nothing, a carriage return is no harm.
    pipe.send_text("\n  \n\r\n").await;
    let mut ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "server/discover" });
    ping["params"]["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": V2026,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    pipe.send_text(&format!("{ping}\r\n")).await;
    assert_eq!(methods(&pipe.response(1).await.0), Vec::<&str>::new());
    // The last line needs no end.
    ping["id"] = 2.into();
    pipe.send_text(&ping.to_string()).await;
    let rest = pipe.close().await;
    assert_eq!(rest.len(), 1);
    assert_eq!(rest[0]["id"], 2);
}

/// Programs that send their requests and close are answered; whoever waits for more is gone, and so is its work.
#[tokio::test]
async fn the_end_of_the_input_ends_the_calls_and_not_the_tasks() {
    let stage = Stage::new().await;
    let mut session = Pipe::session(&stage, V2025, asks()).await;
    session.request(1, "tools/call", as_task("player", "wait")).await;
    let made = session.response(1).await.1;
    let task = made["result"]["task"]["taskId"].as_str().unwrap().to_owned();
    session.request(2, "tools/call", with_token(saying("player", "wait"))).await;
    session.next().await;
    let mut stateless = Pipe::open(&stage);
    stateless.stateless(3, "tools/call", json!({}), with_token(saying("player", "wait"))).await;
    stateless.next().await;
    session.request(4, "tools/call", saying("player", "hello")).await;
    let last = session.close().await;
    assert_eq!(text_of(&last.iter().find(|message| message["id"] == 4).unwrap()["result"]), "hello");
    stateless.close().await;
    until("the end of both calls", async || {
        let listed = stage.result("1.0", "ListTasks", json!({})).await;
        let states = listed["tasks"].as_array().unwrap().iter().map(|task| &task["status"]["state"]);
        (states.filter(|state| **state == "TASK_STATE_CANCELED").count() == 2).then_some(())
    })
    .await;
    assert_eq!(stage.state(&task).await, "WORKING");
}

#[tokio::test]
async fn a_client_that_only_hangs_up_is_let_go() {
    let stage = Stage::new().await;
    let mut pipe = Pipe::session(&stage, V2025, asks()).await;
    pipe.request(1, "tools/call", with_token(saying("player", "wait"))).await;
    pipe.next().await;
    let Pipe { lines, out, server, .. } = pipe;
    // Both halves: the pipe is gone.
    drop((lines, out));
    within("the end of the server", server).await.unwrap().unwrap();
    let task = stage.only_task().await;
    stage.until_state(&task, "CANCELED").await;
}
