//! Cards: each generation finds its own words, also in the document for two of them.

use nuncio_engine::agent::{Profile, Skill};
use nuncio_wire::a2a::card::{self, CardContext, GrpcAddress};
use serde_json::{Value, json};

pub(crate) fn sample() -> (Profile, CardContext) {
    let mut profile = Profile::new("travel", "Books trips");
    profile.version = "1.2.3".to_owned();
    profile.skills =
        vec![Skill { examples: vec!["To Lisbon".to_owned()], ..Skill::new("book", "Book", "Books a trip") }];
    let cx = CardContext {
        extended_card: true,
        bearer: true,
        provider: Some(("Example".to_owned(), "https://example.com".to_owned())),
        documentation_url: Some("https://example.com/docs".to_owned()),
        ..CardContext::new("https://example.com/agents/travel")
    };
    (profile, cx)
}

#[test]
fn cards_of_every_generation() {
    let (profile, cx) = sample();
    insta::assert_json_snapshot!("card_0_1", card::v0_1(&profile, &cx));
    insta::assert_json_snapshot!("card_0_3", card::v0_3(&profile, &cx));
    insta::assert_json_snapshot!("card_1_0", card::v1(&profile, &cx));
}

/// Whether everything that `part` says is said in `whole`.
fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            part.iter().all(|(key, value)| whole.get(key).is_some_and(|found| contains(found, value)))
        }
        _ => whole == part,
    }
}

#[test]
fn one_document_says_what_both_say() {
    let (profile, cx) = sample();
    let both = card::combined(&profile, &cx);
    insta::assert_json_snapshot!("card_both", both);
    assert!(contains(&both, &card::v1(&profile, &cx)));
    assert!(contains(&both, &card::v0_3(&profile, &cx)));
}

#[test]
fn an_open_agent_asks_for_nothing() {
    let mut profile = Profile::new("echo", "Says it again");
    profile.streaming = false;
    let both = card::combined(&profile, &CardContext::new("http://127.0.0.1:4040/"));
    assert_eq!(both["capabilities"]["streaming"], false);
    assert_eq!(both["capabilities"]["extensions"], json!([]), "cursors are of streams");
    for key in ["securitySchemes", "security", "securityRequirements", "provider"] {
        assert!(both.get(key).is_none(), "{key}");
    }
}

/// gRPC has no path: an agent is its tenant there, which 0.3 does not have.
#[test]
fn grpc_is_where_a_client_can_call_the_agent() {
    let profile = Profile::new("echo", "Says it again");
    let card = |tenant: Option<&str>| {
        let grpc = GrpcAddress { authority: "h:1".to_owned(), tenant: tenant.map(str::to_owned) };
        card::combined(&profile, &CardContext { grpc: Some(grpc), ..CardContext::new("http://h:1/") })
    };
    let grpc = |card: &Value, list: &str, key: &str| -> Vec<Value> {
        card[list].as_array().unwrap().iter().filter(|interface| interface[key] == "GRPC").cloned().collect()
    };
    let newer = json!({ "url": "h:1", "protocolBinding": "GRPC", "protocolVersion": "1.0" });
    let older = json!({ "url": "h:1", "protocolBinding": "GRPC", "protocolVersion": "0.3" });
    let root = card(None);
    assert_eq!(grpc(&root, "supportedInterfaces", "protocolBinding"), [newer.clone(), older]);
    assert_eq!(
        grpc(&root, "additionalInterfaces", "transport"),
        [json!({ "url": "h:1", "transport": "GRPC" })]
    );
    let own = card(Some("echo"));
    let mut tenant = newer;
    tenant["tenant"] = "echo".into();
    assert_eq!(grpc(&own, "supportedInterfaces", "protocolBinding"), [tenant]);
    assert!(grpc(&own, "additionalInterfaces", "transport").is_empty());
}

#[test]
fn every_skill_names_the_scopes_that_its_agent_needs() {
    let (profile, cx) = sample();
    let cx = CardContext { scopes: vec!["execute:a2a:travel".to_owned()], ..cx };
    let newer = json!([{ "schemes": { "bearer": { "list": ["execute:a2a:travel"] } } }]);
    let older = json!([{ "bearer": ["execute:a2a:travel"] }]);
    assert_eq!(card::v1(&profile, &cx)["skills"][0]["securityRequirements"], newer);
    assert_eq!(card::v0_3(&profile, &cx)["skills"][0]["security"], older);
    let both = card::combined(&profile, &cx);
    assert_eq!(both["skills"][0]["securityRequirements"], newer, "{both}");
    assert_eq!(both["skills"][0]["security"], older, "{both}");
    assert!(card::v0_1(&profile, &cx)["skills"][0].get("security").is_none());
}
