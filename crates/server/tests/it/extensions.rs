//! Protocol extensions: those that a request activates are named in its response, and those that an agent
//! requires must be named by the request.

use std::sync::Arc;

use async_trait::async_trait;
use nuncio_engine::{Agent, AgentError, AgentExtension, Chunk, Outcome, Profile, TaskContext};
use nuncio_wire::a2a::card::{CURSOR_EXTENSION, LOG_EXTENSION};
use serde_json::{Value, json};

use crate::{
    site::{Site, message, request},
    socket::{Answer, post},
};

const OWN: &str = "urn:ext:own";
const REQUIRED: &str = "urn:ext:required";

/// Makes an artifact and a final message, and says which extensions it was told of.
struct Extended {
    name: &'static str,
    required: bool,
}

#[async_trait]
impl Agent for Extended {
    fn profile(&self) -> Profile {
        let extension = |uri: &str, required| AgentExtension {
            uri: uri.into(),
            description: None,
            required,
            params: None,
        };
        let mut profile = Profile::new(self.name, "has extensions");
        profile.extensions = vec![extension(OWN, false)];
        if self.required {
            profile.extensions.push(extension(REQUIRED, true));
        }
        profile
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        cx.artifact(Chunk::text("made", "x").complete()).await?;
        Ok(Outcome::said(cx.extensions().join(" ")))
    }
}

async fn site() -> Site {
    Site::with(|setup| {
        setup.agents.push(Arc::new(Extended { name: "optional", required: false }));
        setup.agents.push(Arc::new(Extended { name: "strict", required: true }));
    })
    .await
}

async fn send(site: &Site, agent: &str, headers: &[(&str, &str)]) -> Answer {
    let old = headers.iter().any(|(_, value)| *value == "0.3");
    let (method, message) = match old {
        true => {
            let parts = json!([{ "kind": "text", "text": "go" }]);
            ("message/send", json!({ "messageId": crate::site::unique("m"), "role": "user", "parts": parts }))
        }
        false => ("SendMessage", message("go")),
    };
    let body = request(method, &json!({ "message": message }));
    site.send(post(&format!("/agents/{agent}"), headers, body)).await
}

#[tokio::test]
async fn a_response_names_the_active_extensions_and_so_do_messages_and_artifacts() {
    let site = site().await;
    let asked = format!("urn:ext:unknown, {OWN},{LOG_EXTENSION}");
    let active = format!("{OWN}, {LOG_EXTENSION}");
    for (version, header) in [("1.0", "a2a-extensions"), ("0.3", "x-a2a-extensions")] {
        let answer = send(&site, "optional", &[("A2A-Version", version), (header, &asked)]).await;
        assert_eq!(answer.header(header), active, "{}", answer.text());
        let body = answer.json();
        let task = body["result"].get("task").unwrap_or(&body["result"]);
        let list = json!([OWN, LOG_EXTENSION]);
        assert_eq!(task["status"]["message"]["extensions"], list, "{task}");
        assert_eq!(task["artifacts"][0]["extensions"], list, "{task}");
        assert_eq!(task["status"]["message"]["parts"][0]["text"], format!("{OWN} {LOG_EXTENSION}"), "{task}");
    }
}

#[tokio::test]
async fn a_response_to_a_request_without_extensions_names_none() {
    let site = site().await;
    for headers in
        [vec![("A2A-Version", "1.0")], vec![("A2A-Version", "1.0"), ("A2A-Extensions", "urn:x, ,")]]
    {
        let answer = send(&site, "optional", &headers).await;
        assert!(answer.headers.get("a2a-extensions").is_none(), "{:?}", answer.headers);
        let task = answer.json()["result"]["task"].clone();
        assert!(task["artifacts"][0].get("extensions").is_none(), "{task}");
    }
}

#[tokio::test]
async fn a_stream_names_the_active_extensions() {
    let site = site().await;
    let body = request("SendStreamingMessage", &json!({ "message": message("go") }));
    let headers = [("A2A-Version", "1.0"), ("A2A-Extensions", CURSOR_EXTENSION)];
    let answer = site.send(post("/agents/optional", &headers, body)).await;
    assert_eq!(answer.header("a2a-extensions"), CURSOR_EXTENSION);
    assert!(answer.text().contains(&format!("\"extensions\":[\"{CURSOR_EXTENSION}\"]")), "{}", answer.text());
}

#[tokio::test]
async fn a_request_that_does_not_name_a_required_extension_is_refused() {
    let site = site().await;
    let code = |answer: &Answer| answer.json()["error"]["code"].clone();
    for headers in [vec![("A2A-Version", "1.0")], vec![("A2A-Version", "1.0"), ("A2A-Extensions", OWN)]] {
        let answer = send(&site, "strict", &headers).await;
        assert_eq!(code(&answer), -32008, "{}", answer.text());
        assert!(answer.text().contains(REQUIRED), "{}", answer.text());
        let body = request("SendStreamingMessage", &json!({ "message": message("go") }));
        let answer = site.send(post("/agents/strict", &headers, body)).await;
        assert_eq!(code(&answer), -32008, "{}", answer.text());
    }
    assert_eq!(code(&send(&site, "strict", &[("A2A-Version", "0.3")]).await), -32004);
    assert_eq!(site.total().await, 0, "a refused request makes no task");
    let answer = send(&site, "strict", &[("A2A-Version", "1.0"), ("A2A-Extensions", REQUIRED)]).await;
    assert_eq!(
        answer.json()["result"]["task"]["status"]["state"],
        "TASK_STATE_COMPLETED",
        "{}",
        answer.text()
    );
    let answer = send(&site, "strict", &[("A2A-Version", "0.3"), ("X-A2A-Extensions", REQUIRED)]).await;
    assert_eq!(answer.json()["result"]["status"]["state"], "completed", "{}", answer.text());
}

#[tokio::test]
async fn rest_names_and_requires_extensions_as_well() {
    let site = site().await;
    let send = async |agent: &str, extension: &str| {
        let headers = [("A2A-Version", "1.0"), ("A2A-Extensions", extension)];
        let body = json!({ "message": message("go") }).to_string();
        site.send(post(&format!("/agents/{agent}/message:send"), &headers, body)).await
    };
    let answer = send("optional", OWN).await;
    assert_eq!((answer.status, answer.header("a2a-extensions")), (200, OWN), "{}", answer.text());
    let answer = send("strict", OWN).await;
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert!(answer.text().contains("EXTENSION_SUPPORT_REQUIRED"), "{}", answer.text());
    assert!(answer.headers.get("a2a-extensions").is_none(), "{:?}", answer.headers);
}

#[tokio::test]
async fn what_a_card_does_not_offer_is_refused_with_the_errors_of_the_specification() {
    let site = Site::new().await;
    let stream = json!({ "message": message("go") });
    let answer: Value = site.call_at("/agents/unstreamed", "1.0", "SendStreamingMessage", stream).await;
    assert_eq!(answer["error"]["code"], -32004, "{answer}");
    let sent =
        site.call_at("/agents/unpushed", "1.0", "SendMessage", json!({ "message": message("go") })).await;
    let url = "https://example.org/hook";
    // Also of a task that does not exist: what the card offers is asked first.
    for id in [&sent["result"]["task"]["id"], &json!("none")] {
        for (method, params) in [
            ("CreateTaskPushNotificationConfig", json!({ "taskId": id, "id": "c", "url": url })),
            ("GetTaskPushNotificationConfig", json!({ "taskId": id, "id": "c" })),
            ("ListTaskPushNotificationConfigs", json!({ "taskId": id })),
            ("DeleteTaskPushNotificationConfig", json!({ "taskId": id, "id": "c" })),
        ] {
            let answer = site.call_at("/agents/unpushed", "1.0", method, params).await;
            assert_eq!(answer["error"]["code"], -32003, "{method} {id}: {answer}");
        }
    }
}
