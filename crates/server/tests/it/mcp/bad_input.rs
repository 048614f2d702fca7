//! What is wrong is refused with a clear error, and the server goes on.

use serde_json::{Value, json};

use super::{
    V2025, V2026, WITH_SESSIONS,
    client::{Client, initialize, saying, text_of},
    stage::Stage,
};
use crate::socket::{Answer, post};

/// The endpoint still answers.
async fn goes_on(stage: &Stage) {
    let client = Client::stateless(stage, json!({}));
    assert_eq!(text_of(&client.ok("tools/call", saying("player", "hello")).await), "hello");
}

fn error_of(answer: &Answer) -> (u16, i64) {
    let response = answer.json();
    let words = response["error"]["message"].as_str().unwrap_or_else(|| panic!("no error: {response}"));
    assert!(words.len() > 10, "{response}");
    (answer.status, response["error"]["code"].as_i64().unwrap())
}

#[tokio::test]
async fn a_body_that_is_no_message_is_refused() {
    let stage = Stage::with(|setup| {
        setup.server.limits.max_body_bytes = 10_000;
        setup.server.limits.max_json_depth = 20;
    })
    .await;
    let client = Client::session(&stage, V2025, json!({})).await;
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }).to_string();
    let deep = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping", "params": 7 }).to_string();
    let deep = deep.replace('7', &format!("{}{}", "[".repeat(20), "]".repeat(20)));
    let check = async |kind: &str, body: &[u8], expected: (u16, i64)| {
        for session in [vec![], vec![("mcp-session-id", &*client.session)]] {
            let mut headers = vec![("content-type", kind)];
            headers.extend(session);
            let answer = stage.send(post("/mcp", &headers, body)).await;
            let shown = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
            assert_eq!(error_of(&answer), expected, "{kind} {shown}: {}", answer.text());
            assert_eq!(answer.json()["jsonrpc"], "2.0");
        }
    };
    for kind in ["text/plain", "", "application/jsonl", "text/event-stream", "multipart/form-data"] {
        check(kind, ping.as_bytes(), (415, -32600)).await;
    }
    let json = "application/json; charset=utf-8";
    check(json, &[b' '; 10_001], (413, -32600)).await;
    check(json, deep.as_bytes(), (400, -32600)).await;
    for garbage in ["", "garbage", "{", "{\"jsonrpc\":\"2.0\",", "[1,", "\u{feff}{}", "{}{}"] {
        check(json, garbage.as_bytes(), (400, -32700)).await;
    }
    check(json, b"\"\xff\"", (400, -32700)).await;
    for none in [
        json!(7),
        json!("ping"),
        json!(null),
        json!({}),
        json!({ "id": 1, "method": "ping" }),
        json!({ "jsonrpc": "1.0", "id": 1, "method": "ping" }),
        json!({ "jsonrpc": "2.0", "id": 1 }),
        json!({ "jsonrpc": "2.0", "id": 1, "method": 7 }),
        json!({ "jsonrpc": "2.0", "id": 1, "error": 7 }),
    ] {
        check(json, none.to_string().as_bytes(), (400, -32600)).await;
    }
    client.ok("ping", json!({})).await;
    goes_on(&stage).await;
}

#[tokio::test]
async fn an_id_is_a_string_or_an_integer() {
    let stage = Stage::new().await;
    let session = Client::session(&stage, V2025, json!({})).await;
    let stateless = Client::stateless(&stage, json!({}));
    let check = async |client: &Client, id: &str, refused: bool| {
        let mut request = client.request("tools/list", json!({}));
        request["id"] = "HERE".into();
        let body = request.to_string().replace("\"HERE\"", id);
        let headers = client.headers(&request);
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
        let answer = client.exchange(&post("/mcp", &headers, body)).await.whole();
        if refused {
            assert_eq!(error_of(&answer), (400, -32600), "{} {id}: {}", client.version, answer.text());
        } else {
            let sent: Value = serde_json::from_str(id).unwrap();
            assert_eq!((answer.status, &answer.json()["id"]), (200, &sent), "{}", client.version);
        }
    };
    let long = format!("\"{}\"", "x".repeat(2000));
    for client in [&session, &stateless] {
        for id in ["1", "-1", "0", "9007199254740993", "\"a\"", "\"\"", "\"\\u00e9\""] {
            check(client, id, false).await;
        }
        for id in ["1.5", "1e3", "true", "{}", "[]", "[1]", "null", &long] {
            check(client, id, true).await;
        }
    }
    goes_on(&stage).await;
}

#[tokio::test]
async fn params_that_are_missing_or_of_another_kind_are_named() {
    let stage = Stage::new().await;
    let session = Client::session(&stage, V2025, json!({})).await;
    let stateless = Client::stateless(&stage, json!({}));
    let check = async |client: &Client, method: &str, params: Value, word: &str| {
        let (status, error) = client.refused(method, params.clone()).await;
        assert_eq!((status, &error["code"]), (200, &json!(-32602)), "{method} {params}: {error}");
        assert!(error["message"].as_str().unwrap().contains(word), "{method} {params}: {error}");
    };
    for client in [&session, &stateless] {
        check(client, "tools/call", json!({}), "name").await;
        check(client, "tools/call", json!({ "name": 7 }), "name").await;
        check(client, "tools/call", json!({ "name": "nobody" }), "nobody").await;
        check(client, "tools/call", json!({ "name": "player", "arguments": [] }), "arguments").await;
        check(client, "tools/call", json!({ "name": "player", "arguments": "x" }), "arguments").await;
        check(client, "resources/read", json!({}), "uri").await;
        check(client, "prompts/get", json!({}), "name").await;
        check(client, "prompts/get", json!({ "name": "nobody" }), "nobody").await;
        check(client, "completion/complete", json!({}), "ref").await;
        for list in ["tools/list", "resources/list", "resources/templates/list", "prompts/list"] {
            check(client, list, json!({ "cursor": "x" }), "cursor").await;
            check(client, list, json!({ "cursor": 7 }), "cursor").await;
        }
    }
    check(&session, "tasks/list", json!({ "cursor": "x" }), "").await;
    check(&session, "tasks/list", json!({ "cursor": {} }), "cursor").await;
    check(&session, "resources/subscribe", json!({}), "uri").await;
    check(&session, "logging/setLevel", json!({}), "level").await;
    let token = json!({ "_meta": { "progressToken": [] }, "name": "player" });
    check(&session, "tools/call", token, "progressToken").await;
    // Without any, and with such as are no object.
    for params in [None, Some(json!([])), Some(json!("x")), Some(json!(7))] {
        let mut request = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call" });
        if let Some(params) = &params {
            request["params"] = params.clone();
        }
        let answer = session.send(&request).await.whole();
        assert_eq!(error_of(&answer), (200, -32602), "{params:?}");
    }
    for params in [json!({}), json!({ "protocolVersion": 7 }), json!([])] {
        let mut begin = initialize(V2025, &json!({}));
        begin["params"] = params.clone();
        let answer = stage.send(post("/mcp", &[], begin.to_string())).await;
        assert_eq!(error_of(&answer).1, -32602, "{params}");
        assert_eq!(answer.header("mcp-session-id"), "", "{params}");
    }
    goes_on(&stage).await;
}

#[tokio::test]
async fn a_method_that_a_revision_does_not_have_is_not_found() {
    let stage = Stage::new().await;
    let common = ["nonsense", "", "tools", "Tools/List", "sampling/createMessage", "roots/list"];
    for version in WITH_SESSIONS {
        let client = Client::session(&stage, version, json!({})).await;
        for method in common.into_iter().chain(["server/discover", "subscriptions/listen", "tasks/update"]) {
            let (status, error) = client.refused(method, json!({})).await;
            assert_eq!((status, &error["code"]), (200, &json!(-32601)), "{version} {method}");
        }
        assert_eq!(client.notify("notifications/nonsense", json!({})).await, 202, "{version}");
    }
    let client = Client::stateless(&stage, json!({}));
    let gone = ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"];
    for method in common.into_iter().chain(gone).filter(|method| !method.is_empty()) {
        let (status, error) = client.refused(method, json!({})).await;
        assert_eq!((status, &error["code"]), (404, &json!(-32601)), "{V2026} {method}");
    }
    assert_eq!(client.notify_stateless("notifications/nonsense").await, 202);
    goes_on(&stage).await;
}

/// Newer revisions want that told where a model can read it.
#[tokio::test]
async fn arguments_that_break_the_schema_are_refused() {
    let stage = Stage::new().await;
    let call = |arguments: Value| json!({ "name": "typed", "arguments": arguments });
    let wrong = [json!({}), json!({ "n": "x" }), json!({ "n": 1.5 }), json!({ "n": 1, "text": 7 })];
    for version in WITH_SESSIONS {
        let client = Client::session(&stage, version, json!({})).await;
        for arguments in &wrong {
            let response = client.call("tools/call", call(arguments.clone())).await;
            if version == V2025 {
                assert_eq!(response["result"]["isError"], true, "{response}");
                assert!(text_of(&response["result"]).contains("schema"), "{response}");
            } else {
                assert_eq!(response["error"]["code"], -32602, "{version}: {response}");
            }
        }
        let result = client.ok("tools/call", call(json!({ "n": 1, "text": "hello" }))).await;
        assert_eq!((text_of(&result), result.get("isError")), ("hello", None));
    }
    let client = Client::stateless(&stage, json!({}));
    let with_header = async |arguments: &Value| {
        let request = client.request("tools/call", call(arguments.clone()));
        let mut headers = client.headers(&request);
        if let Some(n) = arguments.get("n") {
            headers.push(("mcp-param-n", n.as_str().map_or(n.to_string(), str::to_owned)));
        }
        client.send_with(&request, &headers).await.whole().json()
    };
    for arguments in &wrong {
        let response = with_header(arguments).await;
        assert_eq!(response["result"]["isError"], true, "{response}");
    }
    let response = with_header(&json!({ "n": 1, "text": "hello" })).await;
    assert_eq!(text_of(&response["result"]), "hello");
    assert_eq!(stage.total().await, 5, "nothing was begun by what was refused");
}

/// The schema that the list shows of an agent that is spoken to is the one that counts.
#[tokio::test]
async fn an_agent_that_is_spoken_to_wants_a_text() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, V2025, json!({})).await;
    let listed = client.ok("tools/list", json!({})).await;
    let tools = listed["tools"].as_array().unwrap();
    let schema = &tools.iter().find(|tool| tool["name"] == "player").unwrap()["inputSchema"];
    let validator = jsonschema::validator_for(schema).unwrap();
    for arguments in [json!({}), json!({ "text": 7 }), json!({ "text": null })] {
        assert!(!validator.is_valid(&arguments), "{arguments}");
        let response = client.call("tools/call", json!({ "name": "player", "arguments": arguments })).await;
        assert_eq!(response["result"]["isError"], true, "{arguments}: {response}");
    }
    assert_eq!(stage.total().await, 0);
}

#[tokio::test]
async fn sessions_are_limited_and_one_that_ends_makes_room() {
    let stage = Stage::with(|setup| setup.server.mcp.max_sessions = 3).await;
    let mut clients = vec![];
    for version in ["2025-03-26", "2025-06-18", V2025] {
        clients.push(Client::session(&stage, version, json!({})).await);
    }
    let begin = initialize(V2025, &json!({})).to_string();
    let answer = stage.send(post("/mcp", &[], &begin)).await;
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(answer.header("retry-after").parse::<u64>().is_ok_and(|seconds| seconds > 0));
    let said = answer.json();
    assert_eq!(said["id"], "begin");
    assert!(said["error"]["message"].as_str().unwrap().contains("mcp.max-sessions"), "{said}");
    for client in &clients {
        client.ok("ping", json!({})).await;
    }
    goes_on(&stage).await;
    assert_eq!(clients[0].delete().await, 204);
    Client::session(&stage, V2025, json!({})).await;
    assert_eq!(stage.send(post("/mcp", &[], &begin)).await.status, 503);
}

#[tokio::test]
async fn what_is_followed_is_limited() {
    let stage = Stage::with(|setup| setup.server.mcp.max_subscriptions = 2).await;
    let mut uris = vec![];
    for _ in 0..3 {
        uris.push(format!("a2a://tasks/{}", stage.begin_player("hello").await));
    }
    let client = Client::session(&stage, V2025, json!({})).await;
    let subscribe = |uri: &str| json!({ "uri": uri });
    client.ok("resources/subscribe", subscribe(&uris[0])).await;
    client.ok("resources/subscribe", subscribe(&uris[1])).await;
    // The same again is none more.
    client.ok("resources/subscribe", subscribe(&uris[1])).await;
    let (status, error) = client.refused("resources/subscribe", subscribe(&uris[2])).await;
    assert_eq!((status, &error["code"]), (200, &json!(-32602)));
    assert!(error["message"].as_str().unwrap().contains("max_subscriptions"), "{error}");
    client.ok("resources/unsubscribe", subscribe(&uris[0])).await;
    client.ok("resources/subscribe", subscribe(&uris[2])).await;

    let client = Client::stateless(&stage, json!({}));
    let listen = |uris: &[String]| json!({ "notifications": { "resourceSubscriptions": uris } });
    let (status, error) = client.refused("subscriptions/listen", listen(&uris)).await;
    assert_eq!((status, &error["code"]), (200, &json!(-32602)));
    let mut stream = client.stream("subscriptions/listen", listen(&uris[..2])).await;
    stream.expect("notifications/subscriptions/acknowledged").await;
    goes_on(&stage).await;
}

#[tokio::test]
async fn headers_that_contradict_the_body_are_refused() {
    let stage = Stage::new().await;
    let client = Client::stateless(&stage, json!({}));
    let typed = json!({ "name": "typed", "arguments": { "n": 42, "text": "hello" } });
    let (list, call) = (("tools/list", json!({})), ("tools/call", saying("player", "hello")));
    let (typed, read) = (("tools/call", typed), ("resources/read", json!({ "uri": "a2a://tasks/x" })));
    let check =
        async |(method, params): &(&str, Value), header: &'static str, value: Option<&str>, code: i64| {
            let request = client.request(method, params.clone());
            let mut headers = client.headers(&request);
            if params["name"] == "typed" {
                headers.push(("mcp-param-n", "42".to_owned()));
            }
            headers.retain(|(name, _)| *name != header);
            headers.extend(value.map(|value| (header, value.to_owned())));
            let answer = client.send_with(&request, &headers).await.whole();
            let got = answer.json()["error"]["code"].as_i64().unwrap_or(0);
            assert_eq!(got, code, "{method} {header}: {value:?}: {}", answer.text());
            if code == -32020 || code == -32022 {
                assert_eq!((answer.status, &answer.json()["id"]), (400, &request["id"]));
            }
        };
    for request in [&list, &call, &typed] {
        check(request, "mcp-protocol-version", Some(V2026), 0).await;
        for wrong in [None, Some("2025-11-25"), Some("2099-01-01"), Some("x")] {
            check(request, "mcp-protocol-version", wrong, -32020).await;
        }
        for wrong in [None, Some("prompts/list"), Some("TOOLS/LIST"), Some("")] {
            check(request, "mcp-method", wrong, -32020).await;
        }
    }
    for wrong in
        [None, Some("quick"), Some("Player"), Some(""), Some("=?base64?!?="), Some("=?base64?cXVpY2s=?=")]
    {
        check(&call, "mcp-name", wrong, -32020).await;
    }
    check(&call, "mcp-name", Some("=?base64?cGxheWVy?="), 0).await;
    check(&read, "mcp-name", Some("a2a://tasks/y"), -32020).await;
    // Headers that a method does not have are nobody's business.
    check(&list, "mcp-name", Some("x"), 0).await;
    for wrong in [None, Some("43"), Some("x"), Some(""), Some("=?base64?NDM=?=")] {
        check(&typed, "mcp-param-n", wrong, -32020).await;
    }
    for right in ["42", "42.0", "=?base64?NDI=?="] {
        check(&typed, "mcp-param-n", Some(right), 0).await;
    }
    goes_on(&stage).await;
}

/// Whoever speaks of a revision without sessions is taken at its word, whatever else it sends.
#[tokio::test]
async fn the_two_eras_do_not_mix() {
    let stage = Stage::new().await;
    let session = Client::session(&stage, V2025, json!({})).await;
    let stateless = Client::stateless(&stage, json!({}));
    let mut request = stateless.request("tools/list", json!({}));
    let mut headers = stateless.headers(&request);
    headers.push(("mcp-session-id", session.session.clone()));
    let answer = stateless.send_with(&request, &headers).await.whole();
    assert_eq!(answer.json()["result"]["resultType"], "complete", "{}", answer.text());
    // A body of the one with a header of the other.
    let answer = session.send(&request).await.whole();
    assert_eq!(error_of(&answer), (400, -32020));
    request["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = V2025.into();
    let mut headers = session.headers(&request);
    headers.push(("mcp-method", "tools/list".to_owned()));
    let answer = session.send_with(&request, &headers).await.whole();
    assert_eq!(error_of(&answer), (400, -32022), "{}", answer.text());
    // What every request has to say.
    for missing in ["protocolVersion", "clientCapabilities"] {
        let mut request = stateless.request("tools/list", json!({}));
        let meta = request["params"]["_meta"].as_object_mut().unwrap();
        meta.shift_remove(&format!("io.modelcontextprotocol/{missing}"));
        let answer = stateless.send(&request).await.whole();
        assert_eq!(error_of(&answer), (400, -32602), "{missing}");
        assert!(answer.text().contains(missing), "{}", answer.text());
    }
    session.ok("ping", json!({})).await;
}

#[tokio::test]
async fn other_methods_of_http_are_refused() {
    let stage = Stage::new().await;
    for method in ["PUT", "PATCH", "HEAD", "OPTIONS"] {
        let request = format!("{method} /mcp HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        let mut socket = stage.socket().await;
        socket.send(request).await;
        let (status, headers) = socket.head().await.unwrap();
        assert_eq!(status, 405, "{method}");
        assert_eq!(headers["allow"], "GET,POST,DELETE", "{method}");
    }
    goes_on(&stage).await;
}
