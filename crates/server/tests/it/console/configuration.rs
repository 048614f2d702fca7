//! The settings in force and the server's own tokens.

use std::sync::Arc;

use async_trait::async_trait;
use nuncio_engine::{AccessKind, AccessRequest, Action, Caller, Engine};
use nuncio_server::{
    EffectiveSetting,
    auth::{NewToken, TokenAdmin, TokenAdminError},
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{API, refused};
use crate::{guests, socket::bare};

const OPERATOR: [(&str, &str); 1] = [("Authorization", "Bearer operator")];

fn setting(key: &str, value: Value, source: &'static str, from: Option<&str>) -> EffectiveSetting {
    EffectiveSetting {
        key: key.into(),
        value,
        source,
        from: from.map(str::to_owned),
        about: format!("what {key} is for"),
    }
}

#[tokio::test]
async fn settings_are_shown_to_the_operator_without_secrets() {
    let site = guests::site_with(|setup| {
        setup.server.settings = vec![
            setting("listen", json!("127.0.0.1:1"), "flag", Some("--listen")),
            setting(
                "store",
                json!("postgres://ada:geheim@db/x?password=geheim"),
                "environment",
                Some("NUNCIO_STORE"),
            ),
            setting("otlp.endpoint", json!("https://geheim@traces.example/v1"), "file", Some("nuncio.toml")),
            setting("max-running", json!(10_000), "default", None),
            setting("redact", json!(["geheim-[0-9]+"]), "file", Some("nuncio.toml")),
            setting("x.secret", json!("geheim"), "file", Some("nuncio.toml")),
        ];
    })
    .await;
    let answer = site.console("config", &OPERATOR).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(!answer.text().contains("geheim"), "{}", answer.text());
    let settings = answer.json()["settings"].clone();
    assert_eq!(
        settings[0],
        json!({ "key": "listen", "value": "127.0.0.1:1", "source": "flag", "from": "--listen",
            "about": "what listen is for" })
    );
    assert_eq!(settings[1]["value"], "postgres://[redacted]@db/x?[redacted]");
    assert_eq!((&settings[3]["value"], &settings[3]["source"]), (&json!(10_000), &json!("default")));
    for token in ["Bearer acme/root;*:*+*:admin", "Bearer eve;*:*"] {
        site.console_refuses("config", &[("Authorization", token)], 403, "scope_missing").await;
    }
    site.console_refuses("config", &[], 401, "unauthorized").await;
}

/// Tokens in memory, for callers that the engine allows.
struct FewTokens {
    engine: Mutex<Option<Engine>>,
    tokens: Mutex<Vec<Value>>,
}

impl FewTokens {
    fn allow(&self, caller: &Caller, action: Action) -> Result<(), TokenAdminError> {
        let (kind, name, operation) = (AccessKind::Admin, "tokens", "token.test");
        let access = AccessRequest { action, kind, name, operation, resource: &"admin://tokens" };
        let engine = self.engine.lock().clone().unwrap();
        Ok(engine.allow(caller, &access)?)
    }
}

#[async_trait]
impl TokenAdmin for FewTokens {
    async fn create(&self, caller: &Caller, wish: NewToken) -> Result<Value, TokenAdminError> {
        self.allow(caller, Action::Write)?;
        if wish.name.is_empty() {
            return Err(TokenAdminError::Invalid("name: \"\" is no name".into()));
        }
        let token = json!({ "id": "t1", "name": wish.name, "scopes": wish.scopes, "lastUsedAt": null });
        self.tokens.lock().push(token.clone());
        let mut shown = token;
        shown["token"] = "nun_t1_geheim".into();
        Ok(shown)
    }

    async fn list(&self, caller: &Caller) -> Result<Value, TokenAdminError> {
        self.allow(caller, Action::Read)?;
        Ok(json!({ "tokens": *self.tokens.lock() }))
    }

    async fn revoke(&self, caller: &Caller, id: &str, stop: bool) -> Result<Value, TokenAdminError> {
        self.allow(caller, Action::Write)?;
        let mut tokens = self.tokens.lock();
        let at = tokens.iter().position(|token| token["id"] == *id);
        let mut revoked = tokens.remove(at.ok_or_else(|| TokenAdminError::NoSuchToken(id.to_owned()))?);
        revoked["stopped"] = stop.into();
        Ok(revoked)
    }
}

#[tokio::test]
async fn tokens_are_made_shown_once_and_revoked() {
    let tokens = Arc::new(FewTokens { engine: Mutex::default(), tokens: Mutex::default() });
    let admin = Arc::clone(&tokens);
    let site = guests::site_with(|setup| setup.server.tokens = Some(admin)).await;
    *tokens.engine.lock() = Some(site.engine.clone());
    let wish = json!({ "name": "ada", "scopes": ["read:memory:team-*"], "expiresIn": 60 });
    let made = site.console_post("tokens", &OPERATOR, &wish).await;
    assert_eq!((made.status, made.header("cache-control")), (200, "no-store"));
    let made = made.json();
    assert_eq!(
        (&made["token"], &made["scopesInWords"]),
        (&json!("nun_t1_geheim"), &json!(["may read memory team-*"]))
    );
    let listed = site.console("tokens", &OPERATOR).await;
    assert!(!listed.text().contains("geheim"));
    assert_eq!(listed.json()["tokens"][0]["scopesInWords"], json!(["may read memory team-*"]));
    let error =
        refused(&site.console_post("tokens", &OPERATOR, &json!({ "name": "" })).await, 400, "bad_request");
    assert_eq!(error["field"], "name");
    refused(
        &site.console_post("tokens", &OPERATOR, &json!({ "name": "a", "admin": true })).await,
        400,
        "bad_request",
    );
    let reader = [("Authorization", "Bearer eve;read:admin:tokens")];
    assert_eq!(site.console("tokens", &reader).await.status, 200);
    let error = refused(&site.console_post("tokens", &reader, &wish).await, 403, "scope_missing");
    assert_eq!(error["scope"], "write:admin:tokens");
    site.console_refuses("tokens", &[("Authorization", "Bearer eve;*:*")], 403, "scope_missing").await;
    let delete = async |path: &str, headers: &[(&str, &str)]| {
        site.send(bare("DELETE", &format!("{API}/{path}"), headers)).await
    };
    refused(&delete("tokens/t1", &reader).await, 403, "scope_missing");
    refused(&delete("tokens/t1?stop=1", &OPERATOR).await, 400, "bad_request");
    assert_eq!(delete("tokens/t1?stop=true", &OPERATOR).await.json()["stopped"], true);
    refused(&delete("tokens/t1", &OPERATOR).await, 404, "not_found");
}

#[tokio::test]
async fn a_server_without_tokens_of_its_own_says_so() {
    let site = guests::site().await;
    site.console_refuses("tokens", &OPERATOR, 404, "not_found").await;
}
