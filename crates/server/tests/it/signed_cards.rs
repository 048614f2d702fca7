//! The keys that sign cards, the cards that they sign, and the cards for authenticated callers. Whether the signatures
//! verify is tested by the clients: the crate `nuncio-client`, and the official SDKs in `tests/interop`.

use std::sync::Arc;

use async_trait::async_trait;
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use nuncio_engine::{Agent, AgentError, ExtendedCard, Outcome, Profile, Skill, TaskContext};
use serde_json::{Value, json};

use crate::{
    guests::{As, audit, site_with},
    site::Site,
    socket::{Answer, bare, get, post},
};

const CARD: &str = "/.well-known/agent-card.json";
const KEYS: &str = "/.well-known/jwks.json";

/// A request of the operator.
async fn operator(site: &Site, method: &str, path: &str) -> Answer {
    site.send(bare(method, path, &[("authorization", "Bearer operator")])).await
}

/// The ids of the keys in the key set.
async fn published(site: &Site) -> Vec<String> {
    let set = site.get(KEYS, &[]).await;
    assert_eq!((set.status, set.header("cache-control")), (200, "public, max-age=300"));
    let set = set.json();
    for key in set["keys"].as_array().unwrap() {
        let members: Vec<_> = key.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(members, ["crv", "kty", "x", "y", "kid", "alg", "use"], "no private half");
    }
    set["keys"].as_array().unwrap().iter().map(|key| key["kid"].as_str().unwrap().to_owned()).collect()
}

/// The protected headers of a card's signatures.
fn headers(card: &Value) -> Vec<Value> {
    let signatures = card["signatures"].as_array().cloned().unwrap_or_default();
    let header = |signature: &Value| {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(signature["protected"].as_str().unwrap()).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    };
    signatures.iter().map(header).collect()
}

/// The ids of the keys that signed a card, in order.
fn signers(card: &Value) -> Vec<String> {
    let mut signers: Vec<_> =
        headers(card).iter().map(|header| header["kid"].as_str().unwrap().to_owned()).collect();
    signers.dedup();
    signers
}

#[tokio::test]
async fn cards_are_signed_by_the_keys_that_are_valid() {
    let site = Site::with(|setup| setup.server.admin_token = Some("operator".into())).await;
    let card = async || site.get(CARD, &[]).await;
    let unsigned = card().await;
    assert_eq!(published(&site).await, [""; 0]);
    assert!(unsigned.json().get("signatures").is_none());
    let refused = operator(&site, "POST", "/admin/card-keys/rotate").await;
    assert_eq!(refused.status, 400, "{}", refused.text());

    let created = operator(&site, "POST", "/admin/card-keys").await.json();
    let first = created["keys"][0]["kid"].as_str().unwrap().to_owned();
    assert!(!created.to_string().contains("pkcs8"), "{created}");
    assert_eq!(published(&site).await, [first.as_str()]);
    let signed = card().await;
    assert_ne!(signed.header("etag"), unsigned.header("etag"));
    let jku = format!("http://{}{KEYS}", site.address);
    for header in headers(&signed.json()) {
        assert_eq!(header, json!({ "alg": "ES256", "typ": "JOSE", "kid": first, "jku": jku }));
    }
    for (version, is_signed) in [("1.0", true), ("0.3", true), ("0.1", false)] {
        let card = site.get(CARD, &[("A2A-Version", version)]).await.json();
        assert_eq!(card.get("signatures").is_some(), is_signed, "{version}: {card}");
    }
    assert_eq!(card().await.body, signed.body, "nothing has changed, so no bytes have");
    assert_eq!(operator(&site, "POST", "/admin/card-keys").await.status, 400, "it has one");

    // During the overlap both sign.
    let rotated = operator(&site, "POST", "/admin/card-keys/rotate?overlapSeconds=3600").await.json();
    let second = rotated["keys"][0]["kid"].as_str().unwrap().to_owned();
    assert_ne!(first, second);
    assert_eq!(rotated["keys"][1]["state"], "previous", "{rotated}");
    assert_eq!(published(&site).await, [second.as_str(), first.as_str()]);
    let both = card().await;
    assert_ne!(both.header("etag"), signed.header("etag"));
    assert_eq!(signers(&both.json()), [second.as_str(), first.as_str()]);

    let retired = operator(&site, "DELETE", &format!("/admin/card-keys/{first}")).await;
    assert_eq!(retired.status, 200, "{}", retired.text());
    assert_eq!(published(&site).await, [second.as_str()]);
    let alone = card().await;
    assert_eq!(signers(&alone.json()), [second.as_str()]);
    assert_ne!(alone.header("etag"), both.header("etag"));
    assert_eq!(operator(&site, "DELETE", &format!("/admin/card-keys/{first}")).await.status, 400);
    // A rotation without an overlap leaves nothing of the previous key.
    let rotated = operator(&site, "POST", "/admin/card-keys/rotate?overlapSeconds=0").await.json();
    let third = rotated["keys"][0]["kid"].as_str().unwrap();
    assert_eq!(
        (rotated["keys"].as_array().unwrap().len(), published(&site).await),
        (1, vec![third.to_owned()])
    );
    operator(&site, "DELETE", &format!("/admin/card-keys/{third}")).await;
    assert_eq!(card().await.body, unsigned.body, "without a key, cards are as they were");
    assert_eq!(operator(&site, "GET", "/admin/card-keys").await.json(), json!({ "keys": [] }));
}

#[tokio::test]
async fn there_is_a_limit_to_keys_and_to_overlaps() {
    let site = Site::with(|setup| setup.server.admin_token = Some("operator".into())).await;
    operator(&site, "POST", "/admin/card-keys").await;
    for _ in 0..3 {
        let rotated = operator(&site, "POST", "/admin/card-keys/rotate").await;
        assert_eq!(rotated.status, 200, "{}", rotated.text());
    }
    let refused = operator(&site, "POST", "/admin/card-keys/rotate").await;
    assert!(refused.status == 400 && refused.text().contains("at most 4 keys"), "{}", refused.text());
    let refused = operator(&site, "POST", "/admin/card-keys/rotate?overlapSeconds=31536001").await;
    assert!(refused.status == 400 && refused.text().contains("at most 365 days"), "{}", refused.text());
}

/// A signature has a random number in it: what is served must not depend on which node made it, or when.
#[tokio::test]
async fn a_restart_changes_no_signature() {
    let url = "https://agents.example.org";
    let host = [("host", "agents.example.org")];
    let site = Site::with(|setup| {
        setup.server.public_url = Some(url.into());
        setup.server.admin_token = Some("operator".into());
    })
    .await;
    let authorized = [host[0], ("authorization", "Bearer operator")];
    assert_eq!(site.send(bare("POST", "/admin/card-keys", &authorized)).await.status, 200);
    let before = site.get(CARD, &host).await;
    assert_eq!(signers(&before.json()).len(), 1);
    let folder = site.begin_stop().finish().await;
    let site = Site::with(|setup| {
        setup.server.public_url = Some(url.into());
        setup.folder = folder;
    })
    .await;
    let after = site.get(CARD, &host).await;
    assert_eq!((after.header("etag"), &after.body), (before.header("etag"), &before.body));
    assert_eq!(after.header("last-modified"), before.header("last-modified"));
}

#[tokio::test]
async fn only_administrators_of_home_reach_the_keys() {
    let site = site_with(|_| {}).await;
    for (token, status) in [
        ("ada;*:*", 403),
        ("ada;read:admin:cards", 403),
        ("ada;write:admin:webhooks", 403),
        ("ada;write:admin:cards", 200),
    ] {
        let authorization = format!("Bearer {token}");
        let made = site.send(bare("POST", "/admin/card-keys", &[("authorization", &authorization)])).await;
        assert_eq!(made.status, status, "{token}: {}", made.text());
    }
    assert_eq!(site.send(bare("POST", "/admin/card-keys", &[])).await.status, 401);
    // Public keys are for everybody.
    assert_eq!(published(&site).await.len(), 1);
}

/// An agent with something that only authenticated callers read of.
struct Discreet;

#[async_trait]
impl Agent for Discreet {
    fn profile(&self) -> Profile {
        let extended_card = Some(ExtendedCard {
            description: Some("Does more than it says.".into()),
            skills: vec![Skill::new("more", "More", "For those who are known.")],
        });
        Profile { extended_card, ..Profile::new("discreet", "Does what it says.") }
    }

    async fn run(&self, _: TaskContext) -> Result<Outcome, AgentError> {
        Ok(Outcome::done())
    }
}

/// Asks for the extended card in every binding and generation: the responses.
async fn extended(site: &Site, agent: &str, headers: &[(&str, &str)]) -> Vec<(&'static str, Answer)> {
    let rpc = |method: &str| json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": {} }).to_string();
    let with = |version: &'static str| [headers, &[("a2a-version", version)]].concat();
    let at = format!("/agents/{agent}");
    let requests = [
        ("JSON-RPC 1.0", post(&at, &with("1.0"), rpc("GetExtendedAgentCard"))),
        ("JSON-RPC 0.3", post(&at, &with("0.3"), rpc("agent/getAuthenticatedExtendedCard"))),
        ("REST 1.0", get(&format!("{at}/extendedAgentCard"), &with("1.0"))),
        ("REST 0.3", get(&format!("{at}/v1/card"), &with("0.3"))),
    ];
    let mut answers = vec![];
    for (name, request) in requests {
        answers.push((name, site.send(request).await));
    }
    answers
}

#[tokio::test]
async fn authenticated_callers_read_the_extended_card_in_every_binding() {
    let site = site_with(|setup| setup.agents = vec![Arc::new(Discreet)]).await;
    operator(&site, "POST", "/admin/card-keys").await;
    for (version, flag) in
        [("1.0", "/capabilities/extendedAgentCard"), ("0.3", "/supportsAuthenticatedExtendedCard")]
    {
        let has = async |agent: &str| {
            let card = site.get(&format!("/agents/{agent}{CARD}"), &[("a2a-version", version)]).await.json();
            assert!(!card.to_string().contains("More"), "{card}");
            card.pointer(flag).cloned()
        };
        assert_eq!((has("discreet").await, has("actor").await), (Some(true.into()), Some(false.into())));
    }
    // Nothing else shows it either.
    for path in ["/", "/agents/discreet", "/agents/discreet/.well-known/agent.json"] {
        assert!(!site.get(path, &[]).await.text().contains("more"), "{path}");
    }
    for (binding, refused) in extended(&site, "discreet", &[]).await {
        assert_eq!(refused.status, 401, "{binding}: {}", refused.text());
        assert!(!refused.text().contains("More"), "{binding}: {}", refused.text());
    }
    for (binding, answer) in extended(&site, "discreet", &[("authorization", "Bearer ada")]).await {
        assert_eq!((answer.status, answer.header("cache-control")), (200, "no-store"), "{binding}");
        let mut card = answer.json();
        if binding.starts_with("JSON") {
            card = card["result"].take();
        }
        assert_eq!(card["description"], "Does more than it says.", "{binding}: {card}");
        let skills: Vec<_> = card["skills"].as_array().unwrap().iter().map(|skill| &skill["id"]).collect();
        assert_eq!(skills, ["discreet", "more"], "{binding}");
        assert_eq!(signers(&card).len(), 1, "{binding}: {card}");
        // A skill needs what a message to its agent needs.
        let (requirement, expected) = match binding.ends_with("1.0") {
            true => (
                "securityRequirements",
                json!([{ "schemes": { "bearer": { "list": ["execute:a2a:discreet"] } } }]),
            ),
            false => ("security", json!([{ "bearer": ["execute:a2a:discreet"] }])),
        };
        assert_eq!(card["skills"][1][requirement], expected, "{binding}: {card}");
    }
    // A caller must be allowed to read the agent.
    for (binding, refused) in
        extended(&site, "discreet", &[("authorization", "Bearer eve;read:memory")]).await
    {
        assert_eq!(refused.status, 403, "{binding}: {}", refused.text());
    }
    for (binding, none) in extended(&site, "actor", &[("authorization", "Bearer ada")]).await {
        let code = if binding.ends_with("1.0") { -32004 } else { -32007 };
        match binding.starts_with("JSON") {
            true => assert_eq!(none.json()["error"]["code"], code, "{binding}"),
            false => assert!((400..500).contains(&none.status), "{binding}: {}", none.status),
        }
    }
    let lines = audit(&site).await;
    assert!(lines.iter().any(|line| line.operation == "card.extended"), "{lines:?}");
    let ada = As { site: &site, token: "ada" };
    let at_root = ada.a2a("1.0", "GetExtendedAgentCard", &json!({})).await.json();
    assert_eq!(at_root["error"]["code"], -32004, "the default agent has none: {at_root}");
}

/// Where no caller is authenticated, every one acts in the operator's name, and there is nobody to hide from.
#[tokio::test]
async fn without_authentication_the_extended_card_is_for_everybody() {
    let site = Site::with(|setup| setup.agents = vec![Arc::new(Discreet)]).await;
    for (binding, answer) in extended(&site, "discreet", &[]).await {
        assert!(answer.status == 200 && answer.text().contains("More"), "{binding}: {}", answer.text());
        assert!(!answer.text().contains("execute:a2a"), "no scope is needed, so none is announced");
    }
}

#[tokio::test]
async fn the_scope_that_a_skill_announces_is_the_one_that_is_enforced() {
    let site = site_with(|setup| setup.agents = vec![Arc::new(Discreet)]).await;
    let card = site.get(&format!("/agents/discreet{CARD}"), &[("a2a-version", "1.0")]).await.json();
    let scope =
        card["skills"][0]["securityRequirements"][0]["schemes"]["bearer"]["list"][0].as_str().unwrap();
    let send = json!({ "message": { "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "x" }] } });
    for (token, status) in [(format!("ada;{scope}"), 200), ("ada;execute:a2a:other".to_owned(), 403)] {
        let authorization = format!("Bearer {token}");
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": send }).to_string();
        let headers = [("authorization", authorization.as_str()), ("a2a-version", "1.0")];
        let answer = site.send(post("/agents/discreet", &headers, body)).await;
        assert_eq!(answer.status, status, "{token}: {}", answer.text());
    }
}
