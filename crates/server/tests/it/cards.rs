//! Cards over HTTP: which generation is served where, how long clients may keep them, and that what they do not
//! announce is refused.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use nuncio_engine::{Agent, AgentError, Outcome, Profile, TaskContext};
use serde_json::{Value, json};

use crate::{
    schema_0_1,
    site::{Setup, Site, message, request, unique},
    socket::{Answer, Piece, get, post},
};

const CARD: &str = "/.well-known/agent-card.json";
const LEGACY: &str = "/.well-known/agent.json";
/// Members that only one generation has.
const ONLY_0_3: [&str; 5] = [
    "protocolVersion",
    "url",
    "preferredTransport",
    "additionalInterfaces",
    "supportsAuthenticatedExtendedCard",
];
const ONLY_1_0: [&str; 1] = ["supportedInterfaces"];

#[track_caller]
fn has(card: &Value, members: &[&str], expected: bool) {
    for member in members {
        assert_eq!(card.get(member).is_some(), expected, "{member}: {card}");
    }
}

#[tokio::test]
async fn each_generation_gets_its_own() {
    let site = Site::new().await;
    let card = async |version: &str| site.get(CARD, &[("A2A-Version", version)]).await.json();

    let both = site.get(CARD, &[]).await.json();
    has(&both, &ONLY_0_3, true);
    has(&both, &ONLY_1_0, true);
    assert_eq!(both["protocolVersion"], "0.3.0");
    assert_eq!(both["capabilities"]["extendedAgentCard"], false);
    assert_eq!(both["capabilities"]["stateTransitionHistory"], false);
    for version in ["", "9", "nonsense"] {
        assert_eq!(card(version).await, both, "{version:?}");
    }
    for version in ["1.0", "1", "1.0.1"] {
        let v1 = card(version).await;
        has(&v1, &ONLY_0_3, false);
        has(&v1, &ONLY_1_0, true);
        has(&v1["capabilities"], &["stateTransitionHistory"], false);
        let versions: Vec<_> = v1["supportedInterfaces"]
            .as_array()
            .unwrap()
            .iter()
            .map(|interface| (interface["protocolBinding"].as_str(), interface["protocolVersion"].as_str()))
            .collect();
        let bindings = ["JSONRPC", "HTTP+JSON", "GRPC"];
        let expected = ["1.0", "0.3"].map(|version| bindings.map(|binding| (Some(binding), Some(version))));
        assert_eq!(versions, expected.concat());
    }
    for version in ["0.3", "0.3.0", "0.2.6"] {
        let v0_3 = card(version).await;
        has(&v0_3, &ONLY_0_3, true);
        has(&v0_3, &ONLY_1_0, false);
        has(&v0_3["capabilities"], &["extendedAgentCard"], false);
    }
    let oldest = [card("0.1").await, site.get(LEGACY, &[]).await.json()];
    for v0_1 in &oldest {
        schema_0_1::check("AgentCard", v0_1);
        has(v0_1, &["protocolVersion", "preferredTransport", "supportedInterfaces"], false);
        assert_eq!(v0_1["capabilities"]["streaming"], true);
        has(&v0_1["capabilities"], &["extensions"], false);
    }
    assert_eq!(oldest[0], oldest[1]);
}

#[tokio::test]
async fn strict_cards_are_of_1_0_alone() {
    let site = Site::with(|setup| setup.server.strict_cards = true).await;
    for path in [CARD, "/agents/actor/.well-known/agent-card.json"] {
        let strict = site.get(path, &[]).await.json();
        has(&strict, &ONLY_0_3, false);
        has(&strict, &ONLY_1_0, true);
        // Who asks for another is given it.
        has(&site.get(path, &[("A2A-Version", "0.3")]).await.json(), &ONLY_0_3, true);
    }
    schema_0_1::check("AgentCard", &site.get(LEGACY, &[]).await.json());
}

#[tokio::test]
async fn every_agent_has_cards_and_they_say_where_it_is() {
    let local = Site::new().await;
    let public =
        Site::with(|setup| setup.server.public_url = Some("https://agents.example.org/base/".into())).await;
    let local_url = format!("http://{}", local.address);
    for (site, base) in [(&local, local_url.as_str()), (&public, "https://agents.example.org/base")] {
        let urls = async |path: &str| {
            let both = site.get(path, &[]).await.json();
            let urls = [
                both["url"].clone(),
                both["supportedInterfaces"][0]["url"].clone(),
                both["supportedInterfaces"][1]["url"].clone(),
                both["additionalInterfaces"][0]["url"].clone(),
                both["additionalInterfaces"][1]["url"].clone(),
                site.get(&path.replace("agent-card", "agent"), &[]).await.json()["url"].clone(),
            ];
            assert!(urls.iter().all(|url| *url == urls[0]), "{urls:?}");
            (both["name"].as_str().unwrap().to_owned(), urls[0].as_str().unwrap().to_owned())
        };
        // The default agent is at the root, and under its own name.
        assert_eq!(urls(CARD).await, ("actor".to_owned(), format!("{base}/")));
        for name in ["actor", "unstreamed", "unpushed"] {
            let expected = (name.to_owned(), format!("{base}/agents/{name}"));
            assert_eq!(urls(&format!("/agents/{name}{CARD}")).await, expected);
            // The address itself answers with the card too.
            let short = site.get(&format!("/agents/{name}"), &[("A2A-Version", "1.0")]).await;
            let long = site.get(&format!("/agents/{name}{CARD}"), &[("A2A-Version", "1.0")]).await;
            assert_eq!(short.json(), long.json());
        }
        let index = site.get("/", &[]).await.json();
        assert_eq!(index["default"], "actor");
        let cards: Vec<_> = index["agents"].as_array().unwrap().iter().map(|agent| &agent["card"]).collect();
        assert_eq!(cards[0], &json!(format!("{base}/agents/actor{CARD}")));
        assert_eq!(cards.len(), 3);
    }
    for path in [CARD, LEGACY].map(|path| format!("/agents/nobody{path}")) {
        let answer = local.get(&path, &[]).await;
        assert_eq!(answer.status, 404);
        assert_eq!(answer.json()["error"]["message"], "there is no agent \"nobody\" here");
    }
}

#[tokio::test]
async fn cards_can_be_kept() {
    let site = Site::new().await;
    let tag = |answer: &Answer| answer.header("etag").to_owned();
    let mut tags = vec![];
    for version in ["", "1.0", "0.3", "0.1"] {
        let version = [("A2A-Version", version)];
        let first = site.get(CARD, &version).await;
        assert_eq!((first.status, first.header("content-type")), (200, "application/json"));
        assert_eq!(first.header("cache-control"), "public, max-age=300");
        assert_eq!(first.header("vary"), "A2A-Version");
        let date = first.header("last-modified");
        assert!(date.ends_with(" GMT") && date.len() == 29, "{date:?}");
        let etag = tag(&first);
        assert!(etag.starts_with('"') && etag.ends_with('"') && etag.len() > 10, "{etag}");

        for known in [etag.clone(), format!("W/{etag}"), format!("\"other\", {etag}"), "*".to_owned()] {
            let again = site.get(CARD, &[version[0], ("if-none-match", &known)]).await;
            assert_eq!((again.status, again.body.len()), (304, 0), "{known}");
            assert_eq!(tag(&again), etag);
            assert_eq!(again.header("vary"), "A2A-Version");
            assert_eq!(again.header("cache-control"), "public, max-age=300");
        }
        for other in ["\"other\"", "", "é", &etag[1..]] {
            assert_eq!(site.get(CARD, &[version[0], ("if-none-match", other)]).await.status, 200, "{other}");
        }
        tags.push(etag);
    }
    tags.sort();
    tags.dedup();
    assert_eq!(tags.len(), 4, "a card of another generation is another card");

    // Looking at the head alone gives the head alone.
    let head = String::from_utf8(get(CARD, &[("connection", "close")])).unwrap().replacen("GET", "HEAD", 1);
    let mut socket = site.socket().await;
    socket.send(head).await;
    let (status, headers) = socket.head().await.unwrap();
    assert_eq!((status, headers.contains_key("etag")), (200, true));
    assert!(socket.ended().await);
}

/// A client that has no tag, or a cache on the way, asks by date.
#[tokio::test]
async fn a_card_that_has_not_changed_since_is_not_sent_again() {
    let agent = |name, version| -> Arc<dyn Agent> { Arc::new(Versioned(name, version)) };
    let site = Site::with(|setup| setup.agents = vec![agent("versioned", "1")]).await;
    let path = format!("/agents/versioned{CARD}");
    let first = site.get(&path, &[]).await;
    let modified = first.header("last-modified").to_owned();
    for since in [modified.as_str(), "Fri, 01 Jan 2100 00:00:00 GMT"] {
        for path in [path.as_str(), CARD, LEGACY, "/"] {
            let again = site.get(path, &[("if-modified-since", since)]).await;
            assert_eq!((again.status, again.body.len()), (304, 0), "{path} {since}");
            assert!(!again.header("etag").is_empty() && !again.header("last-modified").is_empty());
        }
    }
    for since in ["Thu, 01 Jan 1970 00:00:00 GMT", "yesterday", "", "2100-01-01"] {
        assert_eq!(site.get(&path, &[("if-modified-since", since)]).await.status, 200, "{since}");
    }
    // A tag is exact, and a date is not asked beside it.
    let other = [("if-none-match", "\"other\""), ("if-modified-since", modified.as_str())];
    assert_eq!(site.get(&path, &other).await.status, 200);
    let both = [("if-none-match", first.header("etag")), ("if-modified-since", "yesterday")];
    assert_eq!(site.get(&path, &both).await.status, 304);

    // Dates have seconds: a later one has to be another.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    site.engine.catalog().change(vec![agent("later", "1")], &[]).unwrap();
    let beside = site.get(&path, &[]).await;
    assert_eq!(beside.header("last-modified"), modified, "another agent's card is not this one");
    let later = site.get(&format!("/agents/later{CARD}"), &[]).await;
    assert_ne!(later.header("last-modified"), modified);
    let later = later.header("last-modified").to_owned();

    tokio::time::sleep(Duration::from_millis(1100)).await;
    let folder = site.begin_stop().finish().await;
    let agents = || vec![agent("versioned", "1"), agent("later", "2")];
    // The address is in the card, and each site of this test has another.
    let fixed = |setup: &mut Setup| setup.server.public_url = Some("https://agents.example.org".into());
    let site = Site::with(|setup| {
        fixed(setup);
        (setup.folder, setup.agents) = (folder, agents());
    })
    .await;
    let dates = async |site: &Site| {
        let read = async |name: &str| {
            let path = format!("/agents/{name}{CARD}");
            site.get(&path, &[("host", "agents.example.org")]).await.header("last-modified").to_owned()
        };
        (read("versioned").await, read("later").await)
    };
    let before = dates(&site).await;
    assert_ne!(before.1, later, "it has another version");
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let folder = site.begin_stop().finish().await;
    let site = Site::with(|setup| {
        fixed(setup);
        (setup.folder, setup.agents) = (folder, agents());
    })
    .await;
    assert_eq!(dates(&site).await, before, "a restart changes no card");
}

/// An agent of this name and version.
struct Versioned(&'static str, &'static str);

#[async_trait]
impl Agent for Versioned {
    fn profile(&self) -> Profile {
        Profile { version: self.1.into(), ..Profile::new(self.0, "Has a version.") }
    }

    async fn run(&self, _: TaskContext) -> Result<Outcome, AgentError> {
        Ok(Outcome::done())
    }
}

fn plain(kind: &str) -> Value {
    json!({ "messageId": unique("m"), "role": "user", "parts": [{ kind: "text", "text": "x" }] })
}

#[tokio::test]
async fn what_a_card_does_not_announce_about_streams_is_refused() {
    let site = Site::new().await;
    let path = "/agents/unstreamed";
    for version in ["", "1.0", "0.3", "0.1"] {
        let card = site.get(&format!("{path}{CARD}"), &[("A2A-Version", version)]).await.json();
        assert_eq!(card["capabilities"]["streaming"], false);
        assert_eq!(card["capabilities"]["pushNotifications"], true);
    }
    // Without a stream the agent works.
    let sent = json!({ "message": message("x") });
    let sent = site.call_at(path, "1.0", "SendMessage", sent).await;
    let task = &sent["result"]["task"]["id"];
    let before = site.total().await;
    for (version, method, params, code) in [
        ("0.1", "tasks/sendSubscribe", json!({ "id": "t", "message": plain("type") }), -32006),
        ("0.1", "tasks/resubscribe", json!({ "id": task }), -32006),
        ("0.3", "message/stream", json!({ "message": plain("kind") }), -32004),
        ("0.3", "tasks/resubscribe", json!({ "id": task }), -32004),
        ("1.0", "SendStreamingMessage", json!({ "message": message("x") }), -32004),
        ("1.0", "SubscribeToTask", json!({ "id": task }), -32004),
    ] {
        let body = request(method, &params);
        let answer = site.send(post(path, &[("A2A-Version", version)], body)).await;
        assert_eq!(answer.status, 200);
        // The official 0.3 client reads errors of streams from the stream.
        let response = if version == "0.3" {
            assert_eq!(answer.header("content-type"), "text/event-stream");
            let Piece::Event { id, data } = Piece::read(answer.text().trim_end()) else {
                panic!("{answer:?}")
            };
            assert_eq!(id, None, "it is no event of the task");
            data
        } else {
            assert_eq!(answer.header("content-type"), "application/json");
            answer.json()
        };
        assert_eq!(response["id"], 1);
        assert_eq!(response["error"]["code"], code, "{version} {method}: {response}");
        let said = response["error"]["message"].as_str().unwrap();
        assert!(said.contains("streaming: false"), "{said}");
        if version == "0.1" {
            schema_0_1::check("SendTaskStreamingResponse", &response);
        }
        assert_eq!(site.total().await, before, "{version} {method}: there is a task");
    }
}

#[tokio::test]
async fn what_a_card_does_not_announce_about_push_notifications_is_refused() {
    let site = Site::new().await;
    let path = "/agents/unpushed";
    for version in ["", "1.0", "0.3", "0.1"] {
        let card = site.get(&format!("{path}{CARD}"), &[("A2A-Version", version)]).await.json();
        assert_eq!(card["capabilities"]["pushNotifications"], false);
        assert_eq!(card["capabilities"]["streaming"], true);
    }
    let sent = json!({ "message": message("ask") });
    let sent = site.call_at(path, "1.0", "SendMessage", sent).await;
    let task = &sent["result"]["task"]["id"];
    let before = site.total().await;
    let hook = json!({ "url": "https://example.com/hook" });
    let in_1_0 = json!({ "taskPushNotificationConfig": hook });
    let in_0_3 = json!({ "pushNotificationConfig": hook });
    let with_id = json!({ "id": task, "pushNotificationConfigId": "x", "pushNotificationConfig": hook });
    let with_task =
        json!({ "id": "x", "taskId": task, "url": "https://example.com", "pushNotificationConfig": hook });
    let set = "tasks/pushNotificationConfig";
    for (version, method, params) in [
        (
            "0.1",
            "tasks/send".to_owned(),
            json!({ "id": "t", "message": plain("type"), "pushNotification": hook }),
        ),
        ("0.1", "tasks/pushNotification/set".to_owned(), with_id.clone()),
        ("0.1", "tasks/pushNotification/get".to_owned(), with_id.clone()),
        ("0.3", "message/send".to_owned(), json!({ "message": plain("kind"), "configuration": in_0_3 })),
        ("0.3", "message/stream".to_owned(), json!({ "message": plain("kind"), "configuration": in_0_3 })),
        ("0.3", format!("{set}/set"), with_task.clone()),
        ("0.3", format!("{set}/get"), with_id.clone()),
        ("0.3", format!("{set}/list"), with_id.clone()),
        ("0.3", format!("{set}/delete"), with_id.clone()),
        ("1.0", "SendMessage".to_owned(), json!({ "message": message("x"), "configuration": in_1_0 })),
        ("1.0", "CreateTaskPushNotificationConfig".to_owned(), with_task.clone()),
        ("1.0", "GetTaskPushNotificationConfig".to_owned(), with_task.clone()),
        ("1.0", "ListTaskPushNotificationConfigs".to_owned(), with_task.clone()),
        ("1.0", "DeleteTaskPushNotificationConfig".to_owned(), with_task.clone()),
    ] {
        let answer = site.send(post(path, &[("A2A-Version", version)], request(&method, &params))).await;
        let response = match method == "message/stream" {
            true => serde_json::from_str(answer.text().strip_prefix("data: ").unwrap()).unwrap(),
            false => answer.json(),
        };
        assert_eq!(response["error"]["code"], -32003, "{version} {method}: {response}");
        let said = response["error"]["message"].as_str().unwrap();
        assert!(said.contains("pushNotifications: false"), "{said}");
        assert_eq!(site.total().await, before, "{version} {method}: there is a task");
    }
    // Also with a message to a task that waits for one: nothing is heard of it.
    let mut answer = message("yes");
    answer["taskId"] = task.clone();
    let params = json!({ "message": answer, "configuration": in_1_0 });
    let refused = site.call_at(path, "1.0", "SendMessage", params).await;
    assert_eq!(refused["error"]["code"], -32003);
    site.until_state(task.as_str().unwrap(), "INPUT_REQUIRED").await;
}
