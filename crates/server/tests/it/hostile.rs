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
        let mut socket = self.site.socket().await;
        socket.send(bytes).await;
        socket.finish().await;
        let answer = socket.answer().await;
        refused(what, &answer, status, code, words);
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
