//! The HTTP+SSE transport of 2024-11-05: `GET /sse` is the way out, and names the address of the way in.

use serde_json::{Value, json};

use super::{
    client::{Client, Stream, initialize, methods, saying, text_of, with_token},
    stage::{Stage, until},
};
use crate::{
    site::Site,
    socket::{Answer, bare, post},
};

const VERSION: &str = "2024-11-05";

/// One connection: its way out, and the address of its way in.
struct Old {
    stream: Stream,
    address: String,
}

impl Old {
    async fn open(site: &Site) -> Self {
        // Nothing of this client is used but how it reads.
        let reader = Client::session(site, VERSION, json!({})).await;
        let request = bare("GET", "/sse", &[("accept", "text/event-stream")]);
        let mut stream = reader.exchange(&request).await.stream();
        let first = stream.piece().await.unwrap();
        assert_eq!(first.event.as_deref(), Some("endpoint"), "{first:?}");
        let address = first.data.unwrap();
        assert!(address.starts_with("/messages?sessionId="), "{address}");
        Self { stream, address }
    }

    /// One that has begun its session.
    async fn session(site: &Site, capabilities: Value) -> Self {
        let mut old = Self::open(site).await;
        old.post(site, &initialize(VERSION, &capabilities)).await;
        let begun = old.next().await;
        assert_eq!((&begun["id"], &begun["result"]["protocolVersion"]), (&json!("begin"), &json!(VERSION)));
        old.post(site, &json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        old
    }

    async fn post(&self, site: &Site, message: &Value) {
        let answer = site.send(post(&self.address, &[], message.to_string())).await;
        assert_eq!(answer.status, 202, "{}", answer.text());
    }

    async fn request(&self, site: &Site, id: u64, method: &str, params: Value) {
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.post(site, &request).await;
    }

    /// The next message. That the list of resources has changed may be told at any time after a task has ended.
    async fn next(&mut self) -> Value {
        loop {
            let (told, message) = self.stream.told().await.unwrap();
            assert_eq!(told.event.as_deref(), Some("message"));
            if message["method"] != "notifications/resources/list_changed" {
                return message;
            }
        }
    }

    async fn response(&mut self, id: u64) -> (Vec<Value>, Value) {
        let mut before = vec![];
        loop {
            let message = self.next().await;
            if message["id"] == id && message.get("method").is_none() {
                return (before, message);
            }
            before.push(message);
        }
    }
}

#[tokio::test]
async fn an_old_client_begins_lists_and_calls() {
    let stage = Stage::new().await;
    let mut old = Old::session(&stage, json!({})).await;
    old.request(&stage, 1, "tools/list", json!({})).await;
    let listed = old.response(1).await.1;
    super::shapes::check_result(VERSION, "tools/list", &listed["result"]);
    assert!(listed["result"]["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "player"));
    old.request(&stage, 2, "tools/call", with_token(saying("player", "tell-slowly 2"))).await;
    stage.open(2);
    let (before, response) = old.response(2).await;
    let told = ["notifications/message", "notifications/progress"];
    assert_eq!(methods(&before), [told, told].concat());
    assert_eq!(before[1]["params"]["progressToken"], "token");
    assert_eq!(text_of(&response["result"]), "told 2");
    // What cannot be read is told of on the way out.
    let answer = stage.send(post(&old.address, &[], "garbage")).await;
    assert_eq!(answer.status, 202);
    assert_eq!(old.next().await["error"]["code"], -32700);
    old.request(&stage, 3, "ping", json!({})).await;
    assert_eq!(old.response(3).await.1["result"], json!({}));
}

#[tokio::test]
async fn an_old_client_is_asked_for_its_model_and_for_nothing_else() {
    let stage = Stage::new().await;
    let mut old = Old::session(&stage, json!({ "sampling": {}, "elicitation": {} })).await;
    // There is no elicitation in this revision: the agent goes its own way.
    old.request(&stage, 1, "tools/call", saying("player", "ask")).await;
    let (before, response) = old.response(1).await;
    assert_eq!(methods(&before), Vec::<&str>::new());
    assert_eq!(text_of(&response["result"]), "unavailable");

    old.request(&stage, 2, "tools/call", saying("player", "sample")).await;
    let asked = old.next().await;
    assert_eq!(asked["method"], "sampling/createMessage");
    assert_eq!(asked["params"]["messages"][0]["content"]["text"], "Say something.");
    assert_eq!(
        (&asked["params"]["systemPrompt"], &asked["params"]["maxTokens"]),
        (&json!("Be brief."), &json!(50))
    );
    let said = json!({ "role": "assistant", "model": "m", "content": { "type": "text", "text": "Well." } });
    old.post(&stage, &json!({ "jsonrpc": "2.0", "id": asked["id"], "result": said })).await;
    assert_eq!(text_of(&old.response(2).await.1["result"]), "Well.");
    // A client without one is not asked.
    let mut without = Old::session(&stage, json!({})).await;
    without.request(&stage, 3, "tools/call", saying("player", "sample")).await;
    let (before, response) = without.response(3).await;
    assert_eq!((methods(&before), text_of(&response["result"])), (vec![], "no model"));
}

#[tokio::test]
async fn an_old_client_cancels() {
    let stage = Stage::new().await;
    let mut old = Old::session(&stage, json!({})).await;
    old.request(&stage, 1, "tools/call", with_token(saying("player", "wait"))).await;
    assert_eq!(old.next().await["method"], "notifications/progress");
    let task = stage.only_task().await;
    let cancel =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } });
    old.post(&stage, &cancel).await;
    stage.until_state(&task, "CANCELED").await;
    old.request(&stage, 2, "ping", json!({})).await;
    assert_eq!(methods(&old.response(2).await.0), Vec::<&str>::new(), "it was answered");
}

#[tokio::test]
async fn two_old_clients_have_nothing_of_each_other() {
    let stage = Stage::new().await;
    let (mut one, mut two) = (Old::session(&stage, json!({})).await, Old::session(&stage, json!({})).await);
    assert_ne!(one.address, two.address);
    one.request(&stage, 1, "tools/call", saying("player", "one")).await;
    two.request(&stage, 1, "tools/call", saying("player", "two")).await;
    assert_eq!(text_of(&one.response(1).await.1["result"]), "one");
    assert_eq!(text_of(&two.response(1).await.1["result"]), "two");
}

#[tokio::test]
async fn an_address_is_good_for_as_long_as_its_stream() {
    let stage = Stage::with(|setup| setup.server.limits.max_body_bytes = 10_000).await;
    let ping = json!({ "jsonrpc": "2.0", "id": 7, "method": "ping" }).to_string();
    let send = async |address: &str| -> Answer { stage.send(post(address, &[], &ping)).await };
    for address in ["/messages?sessionId=nobody", "/messages?sessionId="] {
        assert_eq!(send(address).await.status, 404, "{address}");
    }
    assert_eq!(send("/messages").await.status, 400);
    let mut old = Old::session(&stage, json!({})).await;
    assert_eq!(send(&old.address).await.status, 202);
    let large = stage.send(post(&old.address, &[], "x".repeat(10_001))).await;
    assert_eq!(large.status, 413);
    old.request(&stage, 1, "tools/call", with_token(saying("player", "wait"))).await;
    while old.next().await["method"] != "notifications/progress" {}
    let Old { stream, address } = old;
    drop(stream);
    until("the end of the address", async || (send(&address).await.status == 404).then_some(())).await;
    // And nobody waits for what it asked.
    let task = stage.only_task().await;
    stage.until_state(&task, "CANCELED").await;
}
