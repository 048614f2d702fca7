//! Bad requests: each is refused with its status, its code and words that name what is wrong; nothing of it is
//! stored, and the server goes on.

use serde_json::{Value, json};

use crate::{
    site::{Site, message, panics, request},
    socket::{Answer, get, post},
};

/// Checks what a refusal says, and that nothing came of the request.
struct Refusals {
    site: Site,
    stored: u64,
}

impl Refusals {
    async fn new() -> Self {
        let site = Site::new().await;
        site.begin("something to begin with").await;
        Self { stored: site.total().await, site }
    }

    /// Sends raw bytes; the answer has this status and code, and a message with these words.
    async fn check(&self, what: &str, bytes: impl AsRef<[u8]>, status: u16, code: i32, words: &[&str]) {
        refused(what, &self.site.send(bytes).await, status, code, words);
        self.unharmed(what).await;
    }

    /// Sends a body in 1.0; the answer has this code, and a message with these words.
    async fn body(&self, body: impl AsRef<[u8]>, code: i32, words: &[&str]) {
        let body = body.as_ref();
        let shown = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
        self.check(&shown, post("/", &[("A2A-Version", "1.0")], body), 200, code, words).await;
    }

    async fn params(&self, version: &str, method: &str, params: &Value, words: &[&str]) {
        let headers = [("A2A-Version", version)];
        let what = format!("{method} {params}");
        self.check(&what, post("/", &headers, request(method, params)), 200, -32602, words).await;
    }

    async fn unharmed(&self, what: &str) {
        assert_eq!(self.site.total().await, self.stored, "{what}: something was stored");
        assert_eq!(panics(), 0, "{what}");
    }
}

fn refused(what: &str, answer: &Answer, status: u16, code: i32, words: &[&str]) {
    assert_eq!(answer.status, status, "{what}: {}", answer.text());
    assert_eq!(answer.header("content-type"), "application/json", "{what}");
    let body = answer.json();
    assert_eq!(body["jsonrpc"], "2.0", "{what}: {body}");
    assert_eq!(body["error"]["code"], code, "{what}: {body}");
    let said = body["error"]["message"].as_str().unwrap();
    for word in words {
        assert!(said.contains(word), "{what}: {said:?} does not say {word:?}");
    }
    assert!(said.len() < 1000, "{what}: {} bytes of message", said.len());
}

#[tokio::test]
async fn bodies_that_are_no_request() {
    let refusals = Refusals::new().await;
    let check = async |body: &[u8], code, words: &[&str]| refusals.body(body, code, words).await;
    check(b"", -32700, &["not JSON"]).await;
    check(b"hello", -32700, &["not JSON", "line 1 column 1"]).await;
    check(b"{\"jsonrpc\":\"2.0\",\"id\":1,", -32700, &["not JSON"]).await;
    check(b"{} {}", -32700, &["not JSON"]).await;
    check(b"{\"a\":1e}", -32700, &["not JSON"]).await;
    check(b"\xef\xbb\xbf{}", -32700, &["not JSON"]).await;
    check(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"Get\xff\"}", -32700, &["not UTF-8"]).await;
    check(b"{\"id\":\"\xed\xa0\x80\"}", -32700, &["not UTF-8"]).await;
    check(b"[]", -32600, &["batches"]).await;
    check(b"null", -32600, &["object"]).await;
    check(b"5", -32600, &["object"]).await;
    check(b"\"GetTask\"", -32600, &["object"]).await;
    let batch = format!("[{}]", request("SendMessage", &json!({ "message": message("x") })));
    check(batch.as_bytes(), -32600, &["one JSON-RPC request", "batches"]).await;
}

#[tokio::test]
async fn envelopes_that_are_wrong() {
    let refusals = Refusals::new().await;
    let send = json!({ "message": message("x") });
    let envelope = |change: &dyn Fn(&mut Value)| {
        let mut envelope = json!({ "jsonrpc": "2.0", "id": 7, "method": "SendMessage", "params": send });
        change(&mut envelope);
        envelope.to_string()
    };
    let check = async |change: &dyn Fn(&mut Value), code, words: &[&str]| {
        refusals.body(envelope(change), code, words).await;
    };
    for version in [json!("1.0"), json!(2.0), json!(2), json!("2"), json!(null), json!(["2.0"])] {
        check(&|envelope| envelope["jsonrpc"] = version.clone(), -32600, &["jsonrpc", "2.0"]).await;
    }
    check(&|envelope| drop(envelope.as_object_mut().unwrap().remove("jsonrpc")), -32600, &["jsonrpc"]).await;
    check(&|envelope| drop(envelope.as_object_mut().unwrap().remove("method")), -32600, &["method"]).await;
    for method in [json!(5), json!(null), json!({}), json!(["SendMessage"])] {
        check(&|envelope| envelope["method"] = method.clone(), -32600, &["method", "string"]).await;
    }
    for id in [json!(1.5), json!(1e300), json!({}), json!([1]), json!(true), json!("x".repeat(1100))] {
        check(&|envelope| envelope["id"] = id.clone(), -32600, &["id:"]).await;
    }
    for params in [json!(5), json!("x"), json!([]), json!([send]), json!(true)] {
        check(&|envelope| envelope["params"] = params.clone(), -32602, &["params", "object"]).await;
    }
    check(&|envelope| envelope["params"] = json!(null), -32602, &["params.message", "required"]).await;
    check(&|envelope| envelope["method"] = json!(""), -32601, &["method", "1.0"]).await;
    let body = envelope(&|envelope| envelope["method"] = json!("#")).replace('#', "\\ud800");
    refusals.body(body, -32600, &["method"]).await;
}

#[tokio::test]
async fn an_error_carries_the_id_of_its_request_where_there_is_one() {
    let site = Site::new().await;
    for (id, back) in [
        ("\"a\\u0022b\"", json!("a\"b")),
        ("0", json!(0)),
        ("-3", json!(-3)),
        ("1180591620717411303424", json!(1_180_591_620_717_411_303_424_f64)),
        ("null", json!(null)),
        ("1.5", json!(null)),
    ] {
        let body = format!(r#"{{"jsonrpc":"1","id":{id},"method":"GetTask"}}"#);
        let answer = site.send(post("/", &[], body)).await;
        assert_eq!(answer.json()["id"], back, "{id}");
        // To the byte: a number may be larger than any client's own numbers.
        if back != json!(null) {
            assert!(answer.text().contains(&format!("\"id\":{id},")), "{}", answer.text());
        }
    }
}

/// Every method's main members with values of the wrong kind. `#` stands for a message that would do.
#[tokio::test]
async fn params_of_the_wrong_kind_name_the_member() {
    let refusals = Refusals::new().await;
    let check = async |version: &str, method: &str, cases: &[(&str, &str)]| {
        let fit = if version == "1.0" { message("x") } else { plain_message(version) };
        for (params, word) in cases {
            let params = params.replace('#', &fit.to_string());
            let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
            let what = format!("{version} {method} {params}");
            let request = post("/", &[("A2A-Version", version)], body);
            refusals.check(&what, request, 200, -32602, &[word]).await;
        }
    };
    // The members of a message that all versions have, and those since 0.3.
    let common = [
        (r#"{"id":"t"}"#, "params.message"),
        (r#"{"id":"t","message":5}"#, "params.message"),
        (r#"{"id":"t","message":[]}"#, "params.message"),
        (r#"{"id":"t","message":{"messageId":"m","parts":[{"text":"x"}]}}"#, "params.message.role"),
        (r#"{"id":"t","message":{"messageId":"m","role":{},"parts":[]}}"#, "params.message.role"),
        (r#"{"id":"t","message":{"messageId":"m","role":"owner","parts":[]}}"#, "params.message.role"),
        (r#"{"id":"t","message":{"messageId":"m","role":99,"parts":[]}}"#, "params.message.role"),
    ];
    for (version, methods, role) in [
        ("0.1", ["tasks/send", "tasks/sendSubscribe"], "user"),
        ("0.3", ["message/send", "message/stream"], "user"),
        ("1.0", ["SendMessage", "SendStreamingMessage"], "ROLE_USER"),
    ] {
        let parts = [
            ("{}", "params.message.parts"),
            ("\"x\"", "params.message.parts"),
            ("[]", "params.message.parts"),
            ("[5]", "params.message.parts[0]"),
            ("[null]", "params.message.parts[0]"),
            ("[{}]", "params.message.parts[0]"),
            (r#"[{"text":"a"},{"text":5}]"#, "params.message.parts[1].text"),
            (r#"[{"text":"a","data":{}, "url":"b"}]"#, "params.message.parts[0]"),
            (r#"[{"text":"a\ud800"}]"#, "params.message.parts[0].text"),
            (r#"[{"text":"\udc00a"}]"#, "params.message.parts[0].text"),
            (r#"[{"data":{"a":1e400}}]"#, "params.message.parts[0].data"),
            (r#"[{"text":"a","metadata":[]}]"#, "params.message.parts[0].metadata"),
        ];
        for method in methods {
            check(version, method, &common).await;
            for (parts, word) in parts {
                let params =
                    format!(r#"{{"id":"t","message":{{"messageId":"m","role":"{role}","parts":{parts}}}}}"#);
                check(version, method, &[(&params, word)]).await;
            }
            let metadata = r##"{"id":"t","message":#,"metadata":"x"}"##;
            check(version, method, &[(metadata, "params.metadata")]).await;
        }
        if version == "0.1" {
            continue;
        }
        for (member, value) in [
            ("messageId", "\"\""),
            ("messageId", "5"),
            ("messageId", "null"),
            ("contextId", "5"),
            ("taskId", "[]"),
            ("referenceTaskIds", "\"t\""),
            ("extensions", "{}"),
            ("metadata", "[]"),
        ] {
            let mut message = json!({ "messageId": "m", "role": role, "parts": [{ "text": "x" }] });
            message[member] = serde_json::from_str(value).unwrap();
            let params = json!({ "message": message }).to_string();
            check(version, methods[0], &[(&params, &format!("params.message.{member}"))]).await;
        }
        for (member, value) in [
            ("historyLength", "-1"),
            ("historyLength", "1.5"),
            ("historyLength", "\"many\""),
            ("historyLength", "1180591620717411303424"),
            ("historyLength", "1e400"),
            ("acceptedOutputModes", "\"text/plain\""),
            ("acceptedOutputModes", "[5]"),
        ] {
            let params = format!(r##"{{"message":#,"configuration":{{"{member}":{value}}}}}"##);
            check(version, methods[0], &[(&params, &format!("params.configuration.{member}"))]).await;
        }
        check(version, methods[0], &[(r##"{"message":#,"configuration":"x"}"##, "params.configuration")])
            .await;
    }
    check(
        "0.1",
        "tasks/send",
        &[
            (r##"{"message":#}"##, "params.id"),
            (r##"{"message":#,"id":""}"##, "params.id"),
            (r##"{"message":#,"id":5}"##, "params.id"),
            (r##"{"message":#,"id":"t","sessionId":5}"##, "params.sessionId"),
            (r##"{"message":#,"id":"t","historyLength":-1}"##, "params.historyLength"),
            (r##"{"message":#,"id":"t","pushNotification":5}"##, "params.pushNotification"),
            (r##"{"message":#,"id":"t","pushNotification":{}}"##, "params.pushNotification.url"),
            (
                r##"{"message":#,"id":"t","pushNotification":{"url":"http://x","authentication":{}}}"##,
                "params.pushNotification.authentication.schemes",
            ),
        ],
    )
    .await;
    check(
        "0.3",
        "message/send",
        &[
            (r##"{"message":#,"configuration":{"blocking":"no"}}"##, "params.configuration.blocking"),
            (
                r##"{"message":#,"configuration":{"pushNotificationConfig":{"url":5}}}"##,
                "params.configuration.pushNotificationConfig.url",
            ),
        ],
    )
    .await;
    check(
        "1.0",
        "SendMessage",
        &[
            (
                r##"{"message":#,"configuration":{"returnImmediately":"no"}}"##,
                "params.configuration.returnImmediately",
            ),
            (
                r##"{"message":#,"configuration":{"taskPushNotificationConfig":{"token":"t"}}}"##,
                "params.configuration.taskPushNotificationConfig.url",
            ),
            (r##"{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"raw":"%%%"}]}}"##, "parts[0].raw"),
        ],
    )
    .await;
    let of_a_task = [
        ("{}", "params.id"),
        (r#"{"id":5}"#, "params.id"),
        (r#"{"id":""}"#, "params.id"),
        (r#"{"id":null}"#, "params.id"),
        (r#"{"id":"\ud800"}"#, "params.id"),
    ];
    for (version, methods) in [
        ("0.1", ["tasks/get", "tasks/cancel", "tasks/resubscribe"]),
        ("0.3", ["tasks/get", "tasks/cancel", "tasks/resubscribe"]),
        ("1.0", ["GetTask", "CancelTask", "SubscribeToTask"]),
    ] {
        for method in methods {
            check(version, method, &of_a_task).await;
        }
        let history = [
            (r#"{"id":"t","historyLength":-1}"#, "params.historyLength"),
            (r#"{"id":"t","historyLength":{}}"#, "params.historyLength"),
        ];
        check(version, methods[0], &history).await;
    }
    check(
        "1.0",
        "ListTasks",
        &[
            (r#"{"pageSize":0}"#, "params.pageSize"),
            (r#"{"pageSize":101}"#, "params.pageSize"),
            (r#"{"pageSize":"all"}"#, "params.pageSize"),
            (r#"{"pageSize":1e400}"#, "params.pageSize"),
            (r#"{"pageToken":5}"#, "params.pageToken"),
            (r#"{"pageToken":"somewhere"}"#, "pageToken"),
            (r#"{"pageToken":"7fffffffffffffff0.1"}"#, "pageToken"),
            (r#"{"contextId":5}"#, "params.contextId"),
            (r#"{"status":"TASK_STATE_LOST"}"#, "params.status"),
            (r#"{"status":[]}"#, "params.status"),
            (r#"{"historyLength":-1}"#, "params.historyLength"),
            (r#"{"statusTimestampAfter":"yesterday"}"#, "params.statusTimestampAfter"),
            (r#"{"statusTimestampAfter":5}"#, "params.statusTimestampAfter"),
            (r#"{"includeArtifacts":"yes"}"#, "params.includeArtifacts"),
        ],
    )
    .await;
    webhook_params(&check).await;
}

async fn webhook_params(check: &impl AsyncFn(&str, &str, &[(&str, &str)])) {
    let nested = |task: &'static str| {
        [
            ("{}".to_owned(), format!("params.{task}")),
            (format!(r#"{{"{task}":5}}"#), format!("params.{task}")),
            (format!(r#"{{"{task}":"t"}}"#), "params.pushNotificationConfig".to_owned()),
            (
                format!(r#"{{"{task}":"t","pushNotificationConfig":{{}}}}"#),
                "pushNotificationConfig.url".into(),
            ),
            (
                format!(r#"{{"{task}":"t","pushNotificationConfig":{{"url":"u","token":5}}}}"#),
                "pushNotificationConfig.token".to_owned(),
            ),
        ]
    };
    for (version, method, task) in
        [("0.1", "tasks/pushNotification/set", "id"), ("0.3", "tasks/pushNotificationConfig/set", "taskId")]
    {
        for (params, word) in nested(task) {
            check(version, method, &[(&params, &word)]).await;
        }
    }
    check("0.1", "tasks/pushNotification/get", &[("{}", "params.id")]).await;
    for method in ["get", "list", "delete"] {
        let method = format!("tasks/pushNotificationConfig/{method}");
        check("0.3", &method, &[("{}", "params.id"), (r#"{"id":[]}"#, "params.id")]).await;
    }
    check(
        "0.3",
        "tasks/pushNotificationConfig/delete",
        &[(r#"{"id":"t"}"#, "params.pushNotificationConfigId")],
    )
    .await;
    check(
        "1.0",
        "CreateTaskPushNotificationConfig",
        &[
            ("{}", "params.taskId"),
            (r#"{"taskId":"t"}"#, "params.url"),
            (r#"{"taskId":"t","url":5}"#, "params.url"),
            (r#"{"taskId":"t","url":"u","authentication":{}}"#, "params.authentication.scheme"),
        ],
    )
    .await;
    for method in ["GetTaskPushNotificationConfig", "DeleteTaskPushNotificationConfig"] {
        check("1.0", method, &[("{}", "params.taskId"), (r#"{"taskId":"t"}"#, "params.id")]).await;
    }
    let method = "ListTaskPushNotificationConfigs";
    check("1.0", method, &[("{}", "params.taskId"), (r#"{"taskId":"t","pageSize":-1}"#, "params.pageSize")])
        .await;
}

fn plain_message(version: &str) -> Value {
    let kind = if version == "0.1" { "type" } else { "kind" };
    json!({ "messageId": "m", "role": "user", "parts": [{ kind: "text", "text": "x" }] })
}

#[tokio::test]
async fn what_is_too_much() {
    let refusals = Refusals::new().await;
    let send = |message: Value| json!({ "message": message });
    let with = |member: &str, value: Value| {
        let mut message = message("x");
        message[member] = value;
        message
    };
    let parts = |count: usize| vec![json!({ "text": "x" }); count];
    let long = "x".repeat(300);
    let check = async |message: Value, words: &[&str]| {
        refusals.params("1.0", "SendMessage", &send(message), words).await;
    };
    check(with("parts", parts(1001).into()), &["limits.parts-per-message", "1000", "1001"]).await;
    check(with("messageId", long.as_str().into()), &["messageId", "256"]).await;
    check(with("contextId", long.as_str().into()), &["contextId", "256"]).await;
    check(with("messageId", "a\u{7}b".into()), &["messageId", "control"]).await;
    check(with("contextId", "a\nb".into()), &["contextId", "control"]).await;
    let params = json!({ "id": long, "message": plain_message("0.1") });
    refusals.params("0.1", "tasks/send", &params, &["task id", "256"]).await;
    let key = [("A2A-Version", "1.0"), ("Idempotency-Key", long.as_str())];
    let body = request("SendMessage", &send(message("x")));
    refusals.check("a long key", post("/", &key, body), 200, -32602, &["dempotency", "256"]).await;

    // In 0.1 a cap has a code of its own.
    let message = json!({ "role": "user", "parts": vec![json!({ "type": "text", "text": "x" }); 1001] });
    let body = request("tasks/send", &json!({ "id": "t", "message": message }));
    refusals.check("0.1 parts", post("/", &[], body), 200, -32010, &["limits.parts-per-message"]).await;

    // Neither is the whole of it said back.
    let body = request("GetTask", &json!({ "id": "x".repeat(1 << 20) }));
    let headers = [("A2A-Version", "1.0")];
    refusals.check("a task of 1 MiB", post("/", &headers, body), 200, -32001, &["Task not found: xxx"]).await;
    let body = request(&"x".repeat(1 << 20), &json!({}));
    refusals.check("a method of 1 MiB", post("/", &headers, body), 200, -32601, &["no method \"xxx"]).await;
}

#[tokio::test]
async fn nesting_has_a_floor() {
    let refusals = Refusals::new().await;
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let body = |data: &str| {
        let mut send = message("x");
        send["parts"] = json!([{ "data": "#" }]);
        request("SendMessage", &json!({ "message": send })).replace("\"#\"", data)
    };
    for data in [&nested(60), &nested(10_000), &"{\"a\":".repeat(10_000)[..50_000].to_owned()] {
        let levels = data.len();
        let code = if data.ends_with(']') { -32600 } else { -32700 };
        let words: &[&str] = if data.ends_with(']') { &["nested deeper than 64"] } else { &["not JSON"] };
        refusals
            .check(
                &format!("{levels} bytes"),
                post("/", &[("A2A-Version", "1.0")], body(data)),
                200,
                code,
                words,
            )
            .await;
    }
    // The envelope is one level, and params, message, parts and the part are four more.
    let answer = refusals.site.send(post("/", &[("A2A-Version", "1.0")], body(&nested(59)))).await;
    assert_eq!(answer.json()["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED");
}

/// What was taken must be readable for ever, however deep the operator lets it be.
#[tokio::test]
async fn no_setting_lets_in_what_could_not_be_read_again() {
    let site = Site::with(|setup| setup.server.limits.max_json_depth = 100_000).await;
    for levels in 90..140 {
        let nested = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let mut send = message("x");
        send["parts"] = json!([{ "data": "#" }]);
        let body = request("SendMessage", &json!({ "message": send })).replace("\"#\"", &nested);
        let answer = site.send(post("/", &[("A2A-Version", "1.0")], body)).await.json();
        let Some(task) = answer["result"]["task"]["id"].as_str() else {
            let said = answer["error"]["message"].as_str().unwrap();
            assert!(said.contains("nested") || said.contains("recursion"), "{levels}: {said}");
            continue;
        };
        let got = site.call("1.0", "GetTask", json!({ "id": task })).await;
        assert!(got["result"]["artifacts"].is_array(), "{levels}: {got}");
    }
    site.total().await;
}

#[tokio::test]
async fn requests_that_http_already_refuses() {
    let refusals = Refusals::new().await;
    let good = request("SendMessage", &json!({ "message": message("x") }));
    let check = async |what: &str, bytes: Vec<u8>, status, words: &[&str]| {
        let code = if status == 415 { -32005 } else { -32600 };
        refusals.check(what, bytes, status, code, words).await;
    };
    let with = |headers: &[(&str, &str)]| post("/", headers, &good);
    for kind in ["text/plain", "application/jsonx", "application/x-www-form-urlencoded", "", "json"] {
        let request = with(&[("A2A-Version", "1.0"), ("content-type", kind)]);
        check(kind, request, 415, &["Content-Type", "application/json"]).await;
    }
    // Before anything is parsed: a page of another site can send this without being asked.
    let request = post("/", &[("content-type", "text/plain")], "hello");
    check("not even JSON", request, 415, &["Content-Type"]).await;
    let missing = with(&[]);
    let missing = String::from_utf8(missing).unwrap().replace("content-type: application/json\r\n", "");
    check("no content type", missing.into(), 415, &["Content-Type"]).await;

    let with_method =
        |method: &str, path| String::from_utf8(get(path, &[])).unwrap().replacen("GET", method, 1);
    for path in ["/", "/agents/actor", "/agents/actor/"] {
        for method in ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"] {
            let request = with_method(method, path);
            check(&format!("{method} {path}"), request.clone().into(), 405, &["POST"]).await;
            assert_eq!(refusals.site.send(request).await.header("allow"), "GET,HEAD,POST");
        }
        // Whoever only looks is shown what is there.
        assert_eq!(
            refusals.site.get(path, &[]).await.json()["version"],
            if path == "/" { "0.1.0" } else { "1" }
        );
    }
    for path in
        ["/nowhere", "/agents", "/agents/", "/agents/actor/more", "//", "/v2/card", "/%00", "/.well-known/"]
    {
        check(path, get(path, &[]), 404, &["/agents/{name}", "/.well-known/agent-card.json"]).await;
        check(path, post(path, &[], &good), 404, &["nothing here"]).await;
    }
    check("unknown agent", post("/agents/nobody", &[], &good), 404, &["nobody"]).await;
    check("unknown agent", get("/agents/nobody/.well-known/agent-card.json", &[]), 404, &["nobody"]).await;
    // A card is there to be read.
    let to_a_card = post("/.well-known/agent-card.json", &[], &good);
    check("a card", to_a_card.clone(), 405, &["Allow"]).await;
    assert_eq!(refusals.site.send(to_a_card).await.header("allow"), "GET,HEAD");
}

#[tokio::test]
async fn bodies_that_do_not_come_or_come_too_large() {
    let refusals = Refusals::new().await;
    let good = request("SendMessage", &json!({ "message": message("x") }));
    let length = (good.len() + 1).to_string();
    let headers = [("A2A-Version", "1.0"), ("content-length", length.as_str())];
    let cut = async |what: &str, request: Vec<u8>| {
        let mut socket = refusals.site.socket().await;
        socket.send(request).await;
        socket.finish().await;
        refused(what, &socket.answer().await, 400, -32600, &["the body broke off"]);
        refusals.unharmed(what).await;
    };
    cut("cut off", post("/", &headers, &good)).await;
    let chunked = |chunks: &[&str]| {
        let headers = [("A2A-Version", "1.0"), ("transfer-encoding", "chunked")];
        let request = String::from_utf8(post("/", &headers, "")).unwrap();
        let mut request = request.replace("content-length: 0\r\n", "");
        for chunk in chunks {
            request.push_str(&format!("{:x}\r\n{chunk}\r\n", chunk.len()));
        }
        request
    };
    cut("cut between chunks", chunked(&[&good]).into()).await;
    cut("cut in a chunk", format!("{}5\r\n{{", chunked(&[])).into()).await;
    // And without a word.
    let mut socket = refusals.site.socket().await;
    socket.send(post("/", &headers, &good)).await;
    drop(socket);
    refusals.unharmed("gone").await;

    let large = " ".repeat(8 * 1024 * 1024 + 1);
    let words = ["larger than 8388608 bytes", "max_body_bytes"];
    refusals.check("too long", post("/", &[], &large), 413, -32600, &words).await;
    refusals
        .check(
            "too long, in chunks",
            chunked(&[&large[..5_000_000], &large[..5_000_000]]),
            413,
            -32600,
            &words,
        )
        .await;
    // Without waiting for it.
    let mut socket = refusals.site.socket().await;
    socket.send(post("/", &[("content-length", "8388609")], "")).await;
    assert_eq!(socket.answer().await.status, 413);

    let padded = format!("{good}{}", " ".repeat(8 * 1024 * 1024 - good.len()));
    let answer = refusals.site.send(post("/", &[("A2A-Version", "1.0")], padded)).await;
    assert_eq!(answer.json()["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED");
}

/// What is not even HTTP has no JSON to answer with: it is 400 and the end of the connection, or only that.
#[tokio::test]
async fn bytes_that_are_no_http() {
    let refusals = Refusals::new().await;
    let head = "POST / HTTP/1.1\r\nhost: localhost\r\n";
    for (bytes, status) in [
        ("\u{16}\u{3}\u{1}\u{2}\0\u{1}".to_owned(), Some(400)),
        ("hello\r\n\r\n".to_owned(), Some(400)),
        ("PRI * HTTP/2.0\r\n\r\nno\r\n\r\n".to_owned(), Some(400)),
        ("POST / HT".to_owned(), None),
        (String::new(), None),
        ("POST / HTTP/9.9\r\n\r\n".to_owned(), Some(400)),
        (format!("{head}content-length: -1\r\n\r\n"), Some(400)),
        (format!("{head}content-length: 5\r\ncontent-length: 6\r\n\r\n"), Some(400)),
        (format!("{head}bad header\r\n\r\n"), Some(400)),
        (format!("{head}transfer-encoding: chunked, zip\r\n\r\n"), Some(400)),
    ] {
        let mut socket = refusals.site.socket().await;
        socket.send(&bytes).await;
        if status.is_none() {
            socket.finish().await;
        }
        assert_eq!(socket.try_answer().await.map(|answer| answer.status), status, "{bytes:?}");
        assert!(socket.ended().await, "{bytes:?}");
        refusals.unharmed(&bytes).await;
    }
}

#[tokio::test]
async fn methods_and_versions_that_nobody_knows() {
    let refusals = Refusals::new().await;
    let params = json!({ "message": message("x"), "id": "t" });
    let check = async |headers: &[(&str, &str)], method: &str, code, words: &[&str]| {
        let what = format!("{headers:?} {method}");
        refusals.check(&what, post("/", headers, request(method, &params)), 200, code, words).await;
    };
    for version in ["0.1", "0.2", "0.3", "1.0"] {
        let shown = if version == "0.2" { "0.3" } else { version };
        for method in ["tasks/unheardOf", "sendmessage", " SendMessage", "tasks/send\0"] {
            check(&[("A2A-Version", version)], method, -32601, &["no method", shown]).await;
        }
    }
    // A method of another generation than the one that is named.
    check(&[("A2A-Version", "1.0")], "message/send", -32601, &["message/send", "1.0"]).await;
    check(&[("A2A-Version", "0.3")], "tasks/send", -32601, &["tasks/send", "0.3"]).await;
    check(&[("A2A-Version", "0.1")], "message/send", -32601, &["message/send", "0.1"]).await;
    check(&[], "tasks/unheardOf", -32601, &["tasks/unheardOf"]).await;
    for version in ["0.4", "1.1", "2.0", "latest", "v1", "1.0, 0.3", "é"] {
        for method in ["SendMessage", "message/send", "tasks/send", "tasks/get", "unheardOf"] {
            check(&[("A2A-Version", version)], method, -32009, &["not supported", "1.0, 0.3, 0.2 or 0.1"])
                .await;
        }
    }
    for version in ["0.1", "0.2", "0.3"] {
        check(&[("A2A-Version", version)], "SendMessage", -32009, &["A2A-Version: 1.0"]).await;
    }
    check(&[], "SendMessage", -32009, &["A2A-Version: 1.0"]).await;
    // The query parameter counts where there is no header.
    let body = request("SendMessage", &params);
    refusals.check("?7", post("/?A2A-Version=7", &[], &body), 200, -32009, &["\"7\""]).await;
    let answer = refusals.site.send(post("/?x=1&a2a-version=1.0", &[], &body)).await;
    assert_eq!(answer.json()["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED");
}
