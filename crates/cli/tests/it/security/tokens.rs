//! Tokens by a clock of the test's own: their end, and how soon every node knows of it.

use std::{sync::Arc, time::Duration};

use nuncio::{
    engine::{AccessKind, Action, Caller, Grants},
    security::ServerTokens,
};
use nuncio_server::{
    AuthError,
    auth::{NewToken, TokenAdminError},
};
use nuncio_store::{SqliteOptions, SqliteStore};
use serde_json::Value;

use super::Hands;

/// Two nodes on one store.
fn nodes(dir: &tempfile::TempDir) -> (Arc<Hands>, ServerTokens, ServerTokens) {
    let clock = Arc::new(Hands::new());
    let store = Arc::new(SqliteStore::open(dir.path(), SqliteOptions::default()).unwrap());
    let node = || ServerTokens::new(Arc::clone(&store) as _, Arc::clone(&clock) as _);
    (Arc::clone(&clock), node(), node())
}

fn wish(name: &str, expires_in: u64) -> NewToken {
    NewToken { name: name.into(), expires_in: Some(expires_in), ..NewToken::default() }
}

fn shown(made: &Value) -> &str {
    made["token"].as_str().unwrap()
}

fn why(refused: Result<Caller, AuthError>) -> String {
    match refused {
        Err(AuthError::Invalid(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_token_ends_at_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let (clock, here, _) = nodes(&dir);
    let operator = Caller::local();
    let made = here.create(&operator, wish("ada", 3600)).await.unwrap();
    let caller = here.verify(shown(&made)).await.unwrap();
    assert_eq!((caller.owner(), caller.tenant()), ("ada", "home"));
    assert!(
        caller.may(Action::Write, AccessKind::Memory, "x")
            && !caller.may(Action::Read, AccessKind::Admin, "audit")
    );
    clock.pass(Duration::from_millis(3_599_999));
    here.verify(shown(&made)).await.unwrap();
    clock.pass(Duration::from_millis(1));
    assert!(why(here.verify(shown(&made)).await).contains("expired"));
    let usual = here.create(&operator, NewToken { name: "b".into(), ..NewToken::default() }).await.unwrap();
    clock.pass(Duration::from_secs(90 * 86_400 - 1));
    here.verify(shown(&usual)).await.unwrap();
    clock.pass(Duration::from_secs(1));
    assert!(why(here.verify(shown(&usual)).await).contains("expired"));
}

#[tokio::test]
async fn a_token_that_was_taken_back_is_refused_here_at_once_and_elsewhere_within_five_seconds() {
    let dir = tempfile::tempdir().unwrap();
    let (clock, here, there) = nodes(&dir);
    let operator = Caller::local();
    let made = here.create(&operator, wish("ada", 0)).await.unwrap();
    there.verify(shown(&made)).await.unwrap();
    here.verify(shown(&made)).await.unwrap();
    here.revoke(&operator, made["id"].as_str().unwrap()).await.unwrap();
    assert!(why(here.verify(shown(&made)).await).contains("revoked"));
    clock.pass(Duration::from_secs(5));
    assert!(why(there.verify(shown(&made)).await).contains("revoked"));
    // Taking it back again changes nothing.
    here.revoke(&operator, made["id"].as_str().unwrap()).await.unwrap();
}

#[tokio::test]
async fn only_the_whole_token_is_good() {
    let dir = tempfile::tempdir().unwrap();
    let (_, here, _) = nodes(&dir);
    let made = here.create(&Caller::local(), wish("ada", 0)).await.unwrap();
    let other = here.create(&Caller::local(), wish("ada", 0)).await.unwrap();
    let token = shown(&made);
    let id = made["id"].as_str().unwrap();
    let secret = shown(&other).rsplit_once(&format!("{}_", other["id"].as_str().unwrap())).unwrap().1;
    let swapped = format!("nun_{id}_{secret}");
    let shortened = &token[..token.len() - 1];
    for wrong in [
        shortened,
        &swapped,
        &format!("{token}x"),
        &format!("nun_{id}_"),
        &format!("nun_{id}"),
        "nun__",
        "",
        "nun_aaaaaaaaaaaa_x",
    ] {
        why(here.verify(wrong).await);
    }
    here.verify(token).await.unwrap();
}

#[tokio::test]
async fn an_administrator_hands_on_no_more_than_it_has_and_only_in_its_tenant() {
    let dir = tempfile::tempdir().unwrap();
    let (_, here, _) = nodes(&dir);
    let admin = Caller::named("acme/root").limited_to(Grants::parse("*:admin read:memory:team-*").unwrap());
    let with = |tenant: Option<&str>, scope: &str| NewToken {
        name: "x".into(),
        tenant: tenant.map(str::to_owned),
        scopes: vec![scope.into()],
        expires_in: None,
    };
    let made = here.create(&admin, with(None, "read:memory:team-a")).await.unwrap();
    assert_eq!(here.verify(shown(&made)).await.unwrap().owner(), "acme/x");
    for (tenant, scope) in [
        (None, "read:memory"),
        (None, "write:memory:team-a"),
        (Some("globex"), "read:memory:team-a"),
        (Some("home"), "read:memory:team-a"),
    ] {
        let refused = here.create(&admin, with(tenant, scope)).await;
        assert!(matches!(refused, Err(TokenAdminError::Invalid(_))), "{tenant:?} {scope}: {refused:?}");
    }
    // A name of administration that does not exist is a mistake, and not a right to nothing.
    let refused = here.create(&Caller::local(), with(None, "read:admin:foo")).await;
    let Err(TokenAdminError::Invalid(why)) = refused else { panic!("{refused:?}") };
    assert!(why.contains("admin has no name \"foo\": its names are audit, cards, metrics"), "{why}");
    let theirs = here.create(&Caller::local(), with(Some("globex"), "*:*")).await.unwrap();
    let refused = here.revoke(&admin, theirs["id"].as_str().unwrap()).await;
    assert!(matches!(refused, Err(TokenAdminError::NoSuchToken(_))), "{refused:?}");
    let listed = here.list(&admin).await.unwrap();
    assert_eq!(listed["tokens"].as_array().unwrap().len(), 1, "{listed}");
    assert!(!listed.to_string().contains("digest"));
}
