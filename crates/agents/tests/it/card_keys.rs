//! The keys of an `[[agent]]` table that its card shows.

use nuncio_agents::configured::{AgentSpec, remote::card_keys};
use nuncio_engine::{Content, Part, State};
use nuncio_wire::a2a::card::{self, CardContext};
use serde_json::{Value, json};

use crate::{
    program::{Program, agent, extend},
    server::{Server, ending},
};

fn table(keys: Value) -> Value {
    let mut table = json!({ "name": "carded", "kind": "process", "command": ["true"] });
    extend(&mut table, keys);
    table
}

fn whole_card() -> Value {
    table(json!({
        "input-modes": ["text/plain", "image/*"],
        "output-modes": ["application/pdf"],
        "streaming": false,
        "push-notifications": false,
        "replies": true,
        "provider": { "organization": "Example", "url": "https://example.org" },
        "documentation-url": "https://example.org/docs",
        "icon-url": "https://example.org/icon.png",
        "extensions": [
            { "uri": "urn:ext:a", "description": "what it does", "required": true, "params": { "depth": 3 } },
            { "uri": "urn:ext:b" },
        ],
        "skills": [{ "id": "s", "input-modes": ["image/png"], "output-modes": ["text/html"] }],
    }))
}

#[test]
fn the_card_says_what_the_table_says() {
    let profile = agent(whole_card()).profile();
    let cx = CardContext::new("https://host/agents/carded");
    for card in [card::v1(&profile, &cx), card::v0_3(&profile, &cx), card::combined(&profile, &cx)] {
        assert_eq!(card["defaultInputModes"], json!(["text/plain", "image/*"]), "{card}");
        assert_eq!(card["defaultOutputModes"], json!(["application/pdf"]), "{card}");
        assert_eq!(card["provider"], json!({ "organization": "Example", "url": "https://example.org" }));
        assert_eq!(card["documentationUrl"], "https://example.org/docs", "{card}");
        assert_eq!(card["iconUrl"], "https://example.org/icon.png", "{card}");
        let capabilities = &card["capabilities"];
        assert_eq!(capabilities["streaming"], false, "{card}");
        assert_eq!(capabilities["pushNotifications"], false, "{card}");
        assert_eq!(
            capabilities["extensions"],
            json!([
                { "uri": "urn:ext:a", "description": "what it does", "required": true, "params": { "depth": 3 } },
                { "uri": "urn:ext:b", "required": false },
            ])
        );
        let skill = &card["skills"][0];
        assert_eq!(
            (&skill["inputModes"], &skill["outputModes"]),
            (&json!(["image/png"]), &json!(["text/html"]))
        );
    }
}

#[test]
fn a_wrong_value_on_a_card_is_named() {
    for (keys, words) in [
        (json!({ "input-modes": [] }), "input-modes: expected at least one"),
        (json!({ "output-modes": ["pdf"] }), "output-modes: \"pdf\" is no media type"),
        (json!({ "skills": [{ "id": "s", "input-modes": ["png"] }] }), "skills: \"png\" is no media type"),
        (json!({ "skills": [{ "id": "s", "modes": ["a/b"] }] }), "skills: unknown field"),
        (json!({ "streaming": "no" }), "streaming: invalid type"),
        (json!({ "icon-url": "icon.png" }), "icon-url: expected a URL"),
        (json!({ "documentation-url": "javascript:alert(1)" }), "documentation-url: expected a URL"),
        (json!({ "provider": { "organization": "E" } }), "missing field `url`"),
        (json!({ "extensions": [{ "uri": "a,b" }] }), "extensions: \"a,b\" is no URI"),
        (json!({ "extensions": [{ "uri": "urn:a" }, { "uri": "urn:a" }] }), "is there twice"),
        (json!({ "extensions": [{ "uri": "urn:a", "must": true }] }), "extensions: unknown field"),
        (
            json!({ "extensions": [{ "uri": "urn:a", "params": { "key": "${SECRET}" } }] }),
            "takes no variable",
        ),
    ] {
        let Value::Object(table) = table(keys.clone()) else { panic!("a table") };
        let why = AgentSpec::read(&table, &|_| Some("s3cret".into())).unwrap_err().to_string();
        assert!(why.contains(words), "{keys}: {why}");
        assert!(!why.contains("s3cret"), "{why}");
    }
}

#[tokio::test]
async fn a_program_takes_every_media_type_unless_its_table_says_otherwise() {
    let image = || Part { media_type: Some("image/x-rare".into()), ..Part::from(Content::Bytes(vec![1])) };
    let program =
        Program::python("say(type=\"done\", text=given[\"messages\"][0][\"parts\"][0][\"mediaType\"])");
    let server = Server::with(vec![program.agent(json!({}))]).await;
    let task = server.send("program", image()).await;
    assert_eq!(ending(&task), (State::Completed, "image/x-rare".into(), vec![]));
    let server = Server::with(vec![program.agent(json!({ "input-modes": ["text/plain"] }))]).await;
    let refused =
        server.engine.submit(&crate::server::caller(), crate::server::submit("program", image())).await;
    assert!(refused.unwrap_err().to_string().contains("text/plain"));
}

#[test]
fn what_is_extended_is_on_the_extended_card_alone() {
    let profile = agent(table(json!({
        "description": "For all.",
        "extended-description": "For some.",
        "skills": [{ "id": "open" }, { "id": "closed", "extended": true }],
    })))
    .profile();
    let cx = CardContext::new("https://host/agents/carded");
    let public = card::combined(&profile, &cx);
    assert_eq!((&public["description"], public["skills"].as_array().unwrap().len()), (&json!("For all."), 1));
    let extended = card::v1(&card::extended(&profile).unwrap(), &cx);
    assert_eq!(extended["description"], "For some.");
    assert_eq!(
        (&extended["skills"][0]["id"], &extended["skills"][1]["id"]),
        (&json!("open"), &json!("closed"))
    );
    // A table whose skills are all extended keeps the public one that every agent has.
    let profile = agent(table(json!({ "skills": [{ "id": "closed", "extended": true }] }))).profile();
    assert_eq!(profile.skills[0].id, "carded");
    assert!(card::extended(&agent(whole_card()).profile()).is_none());
}

#[test]
fn card_keys_are_read_with_the_table() {
    let table =
        |keys: &str| json!({ "name": "far", "kind": "a2a", "url": "https://far.example", "card-keys": keys });
    let spec = |keys: &str| {
        let Value::Object(table) = table(keys) else { unreachable!() };
        AgentSpec::read(&table, &|_| None).unwrap()
    };
    let refused = |keys: &str| card_keys(&spec(keys)).unwrap_err().to_string();
    assert!(card_keys(&spec("https://far.example/jwks.json")).unwrap().is_some());
    assert!(
        refused("http://far.example/jwks.json").contains("agent \"far\": card-keys: "),
        "{}",
        refused("{}")
    );
    assert!(refused("{}").contains("there is no key for ES256, EdDSA or RS256"), "{}", refused("{}"));
    assert!(refused("missing.json").contains("cannot be read"));
}
