//! The way from a 401 to a token, at an authorization server that is made for the tests and checks what it is told.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use axum::{
    Router,
    body::Bytes,
    extract::{Query, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use nuncio_client::{
    auth::Authorizer,
    oauth::{
        Consent, ConsentVisit, FileTokenStore, LoopbackConsent, MemoryTokenStore, OAuth, OAuthOptions,
        TokenStore,
    },
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use url::Url;

type Parameters = BTreeMap<String, String>;

/// What the server was told, and how it behaves.
#[derive(Default)]
struct World {
    base: String,
    registrations: Vec<Value>,
    authorizations: Vec<Parameters>,
    tokens: Vec<Parameters>,
    /// The tokens that the resource takes, with their scopes.
    good: BTreeMap<String, String>,
    expires_in: Option<u64>,
    refuses_refresh: bool,
    /// What happens while a token is being renewed.
    during_refresh: Option<Box<dyn FnOnce() + Send>>,
    keeps_refresh: bool,
    issuer_in_metadata: Option<String>,
    iss: Option<String>,
    resource: Option<String>,
}

type Shared = Arc<Mutex<World>>;

fn lock(world: &Shared) -> std::sync::MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve() -> (Url, Shared) {
    let world = Shared::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    lock(&world).base.clone_from(&base);
    let router = Router::new()
        .route("/.well-known/oauth-protected-resource/mcp", get(resource))
        .route("/.well-known/oauth-authorization-server", get(metadata))
        .route("/register", post(register))
        .route("/authorize", get(authorize))
        .route("/token", post(token))
        .with_state(Arc::clone(&world));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (Url::parse(&format!("{base}/mcp")).unwrap(), world)
}

fn json_of(value: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

async fn resource(State(world): State<Shared>) -> Response {
    let world = lock(&world);
    let resource = world.resource.clone().unwrap_or_else(|| format!("{}/mcp", world.base));
    json_of(
        &json!({ "resource": resource, "authorization_servers": [world.base], "scopes_supported": ["read"] }),
    )
}

async fn metadata(State(world): State<Shared>) -> Response {
    let world = lock(&world);
    let base = &world.base;
    json_of(&json!({
        "issuer": world.issuer_in_metadata.as_ref().unwrap_or(base),
        "authorization_endpoint": format!("{base}/authorize"),
        "token_endpoint": format!("{base}/token"),
        "registration_endpoint": format!("{base}/register"),
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": ["client_secret_post"],
        "scopes_supported": ["read", "offline_access"],
        "authorization_response_iss_parameter_supported": true,
    }))
}

async fn register(State(world): State<Shared>, body: Bytes) -> Response {
    let mut world = lock(&world);
    world.registrations.push(serde_json::from_slice(&body).unwrap());
    let id = format!("client-{}", world.registrations.len());
    json_of(&json!({
        "client_id": id, "client_secret": "s3cret", "token_endpoint_auth_method": "client_secret_post",
    }))
}

async fn authorize(State(world): State<Shared>, Query(asked): Query<Parameters>) -> Response {
    let mut world = lock(&world);
    let mut back = Url::parse(&asked["redirect_uri"]).unwrap();
    back.query_pairs_mut()
        .append_pair("code", &format!("code-{}", world.authorizations.len()))
        .append_pair("state", &asked["state"])
        .append_pair("iss", world.iss.as_ref().unwrap_or(&world.base));
    world.authorizations.push(asked);
    (StatusCode::FOUND, [(header::LOCATION, back.to_string())]).into_response()
}

async fn token(State(world): State<Shared>, _headers: HeaderMap, body: Bytes) -> Response {
    let mut world = lock(&world);
    let asked: Parameters = url::form_urlencoded::parse(&body).into_owned().collect();
    let n = world.tokens.len();
    let refuse =
        |error: &str| (StatusCode::BAD_REQUEST, json!({ "error": error }).to_string()).into_response();
    let scope = match asked["grant_type"].as_str() {
        "authorization_code" => {
            let authorized = world.authorizations.last().unwrap();
            let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(asked["code_verifier"].as_bytes()));
            if authorized["code_challenge"] != challenge
                || authorized["redirect_uri"] != asked["redirect_uri"]
            {
                return refuse("invalid_grant");
            }
            authorized.get("scope").cloned().unwrap_or_default()
        }
        "refresh_token" if world.refuses_refresh => return refuse("invalid_grant"),
        _ => {
            if let Some(during) = world.during_refresh.take() {
                during();
            }
            "read".to_owned()
        }
    };
    world.tokens.push(asked);
    world.good.insert(format!("token-{n}"), scope);
    let refresh = (n == 0 || !world.keeps_refresh).then(|| format!("refresh-{n}"));
    json_of(&json!({
        "access_token": format!("token-{n}"), "token_type": "Bearer", "refresh_token": refresh,
        "expires_in": world.expires_in,
    }))
}

/// A person who says yes to everything.
struct Yes;

struct YesVisit;

#[async_trait]
impl Consent for Yes {
    async fn prepare(&self, _: Option<&str>) -> Result<Box<dyn ConsentVisit>, String> {
        Ok(Box::new(YesVisit))
    }
}

#[async_trait]
impl ConsentVisit for YesVisit {
    fn redirect_uri(&self) -> &str {
        "http://127.0.0.1:9/callback"
    }

    async fn ask(self: Box<Self>, url: &Url) -> Result<Url, String> {
        let client =
            reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build();
        let answer = client.unwrap().get(url.clone()).send().await.unwrap();
        Ok(Url::parse(answer.headers()[header::LOCATION].to_str().unwrap()).unwrap())
    }
}

fn oauth(keeper: &Arc<dyn TokenStore>) -> OAuth {
    OAuth::new(OAuthOptions::default(), Arc::clone(keeper), Arc::new(Yes)).unwrap()
}

fn memory() -> Arc<dyn TokenStore> {
    Arc::new(MemoryTokenStore::default())
}

#[tokio::test]
async fn a_person_is_asked_once_and_what_they_granted_is_kept() {
    let (resource, world) = serve().await;
    let dir = tempfile::tempdir().unwrap();
    let keeper: Arc<dyn TokenStore> = Arc::new(FileTokenStore::new(dir.path().join("tokens")));
    let first = oauth(&keeper);
    assert_eq!(first.token(&resource).await, None);
    assert!(first.challenged(&resource, 401, Some("Bearer")).await.unwrap());
    assert_eq!(first.token(&resource).await.as_deref(), Some("token-0"));
    {
        let world = lock(&world);
        let (asked, exchanged) = (&world.authorizations[0], &world.tokens[0]);
        assert_eq!(asked["scope"], "offline_access read", "what the resource takes, and a token that lasts");
        assert_eq!(
            (&asked["resource"], &exchanged["resource"]),
            (&resource.to_string(), &resource.to_string())
        );
        assert_eq!(
            (&exchanged["client_id"], &exchanged["client_secret"]),
            (&"client-1".into(), &"s3cret".into())
        );
        assert_eq!(world.registrations[0]["application_type"], "native");
    }
    // Another process, another day.
    assert_eq!(oauth(&keeper).token(&resource).await.as_deref(), Some("token-0"));
    assert_eq!(lock(&world).authorizations.len(), 1);
    let file = std::fs::read_dir(dir.path().join("tokens")).unwrap().next().unwrap().unwrap();
    use std::os::unix::fs::PermissionsExt as _;
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn a_token_that_ends_is_renewed_and_one_that_cannot_be_is_asked_for_again() {
    let (resource, world) = serve().await;
    lock(&world).expires_in = Some(10);
    let client = oauth(&memory());
    client.challenged(&resource, 401, None).await.unwrap();
    assert_eq!(client.token(&resource).await.as_deref(), Some("token-1"), "it ends soon, so it is renewed");
    assert_eq!(lock(&world).tokens[1]["refresh_token"], "refresh-0");
    lock(&world).expires_in = None;
    assert_eq!(client.token(&resource).await.as_deref(), Some("token-2"));
    lock(&world).refuses_refresh = true;
    assert!(client.challenged(&resource, 401, None).await.unwrap());
    assert_eq!(client.token(&resource).await.as_deref(), Some("token-3"));
    let world = lock(&world);
    assert_eq!((world.authorizations.len(), world.registrations.len()), (2, 1), "known there, asked again");
}

#[tokio::test]
async fn what_is_forgotten_while_it_is_renewed_stays_forgotten() {
    let (resource, world) = serve().await;
    let dir = tempfile::tempdir().unwrap();
    for renewed_by_rejection in [false, true] {
        lock(&world).expires_in = (!renewed_by_rejection).then_some(10);
        let files = Arc::new(FileTokenStore::new(dir.path().join("tokens")));
        let keeper: Arc<dyn TokenStore> = files.clone();
        let client = oauth(&keeper);
        client.challenged(&resource, 401, None).await.unwrap();
        if renewed_by_rejection {
            client.token(&resource).await.unwrap();
        }
        lock(&world).during_refresh = Some(Box::new(move || assert_eq!(files.forget_all().unwrap(), 1)));
        match renewed_by_rejection {
            true => assert!(client.challenged(&resource, 401, None).await.unwrap()),
            false => assert!(client.token(&resource).await.is_some(), "for the request that is under way"),
        }
        assert!(lock(&world).during_refresh.is_none(), "it was renewed");
        assert_eq!(keeper.load(&resource).await.map(|_| ()), None);
        assert_eq!(client.token(&resource).await, None);
    }
}

#[tokio::test]
async fn more_is_asked_for_when_it_is_wanted_and_only_once() {
    let (resource, world) = serve().await;
    let client = oauth(&memory());
    client.challenged(&resource, 401, Some("Bearer scope=\"read\"")).await.unwrap();
    client.token(&resource).await.unwrap();
    let more = "Bearer error=\"insufficient_scope\", scope=\"write\"";
    assert!(client.challenged(&resource, 403, Some(more)).await.unwrap());
    assert_eq!(lock(&world).authorizations[1]["scope"], "offline_access read write");
    let why = client.challenged(&resource, 403, Some(more)).await.unwrap_err();
    assert!(why.contains("write"), "{why}");
    assert!(!client.challenged(&resource, 403, Some("Bearer")).await.unwrap(), "no token would help");
    assert_eq!(lock(&world).authorizations.len(), 2);
}

#[tokio::test]
async fn who_is_not_who_they_say_gets_nothing() {
    type Change = fn(&mut World);
    let set: [(&str, Change); 3] = [
        ("that of", |world| world.issuer_in_metadata = Some("https://evil.example.org".into())),
        ("sent by", |world| world.iss = Some(format!("{}/", world.base))),
        ("would not be for this server", |world| {
            world.resource = Some("https://evil.example.org/mcp".into());
        }),
    ];
    for (words, change) in set {
        let (resource, world) = serve().await;
        change(&mut lock(&world));
        let client = oauth(&memory());
        let why = client.challenged(&resource, 401, None).await.unwrap_err();
        assert!(why.contains(words), "{why}");
        assert!(lock(&world).tokens.is_empty(), "{words}: no code was given away");
        assert_eq!(client.token(&resource).await, None);
    }
}

#[tokio::test]
async fn credentials_of_one_issuer_are_not_shown_to_another() {
    let (resource, world) = serve().await;
    let keeper = memory();
    let client = oauth(&keeper);
    client.challenged(&resource, 401, None).await.unwrap();
    // The resource has moved to another issuer.
    let mut kept = keeper.load(&resource).await.unwrap();
    let known = kept.clients.remove(&lock(&world).base).unwrap();
    kept.clients.insert("https://old.example.org".into(), known);
    let mut grant = kept.grant.take().unwrap();
    (grant.issuer, grant.refresh_token) = ("https://old.example.org".into(), None);
    kept.grant = Some(grant);
    keeper.store(&resource, &kept).await;
    client.token(&resource).await.unwrap();
    assert!(client.challenged(&resource, 401, None).await.unwrap());
    let world = lock(&world);
    assert_eq!(world.registrations.len(), 2);
    assert_eq!(world.tokens[1]["client_id"], "client-2");
}

#[tokio::test]
async fn a_person_comes_back_to_a_port_of_their_own_machine() {
    let (resource, world) = serve().await;
    // The browser of the person: it asks for an icon first, and opens a connection that it does not use.
    let open = Arc::new(|url: &Url| {
        let url = url.clone();
        tokio::spawn(async move {
            let redirect = url.query_pairs().find(|(key, _)| key == "redirect_uri").unwrap().1.into_owned();
            let back = Url::parse(&redirect).unwrap();
            let _unused = tokio::net::TcpStream::connect(("127.0.0.1", back.port().unwrap())).await.unwrap();
            let client = reqwest::Client::builder().no_proxy().build().unwrap();
            let icon = client.get(back.join("/favicon.ico").unwrap()).send().await.unwrap();
            assert_eq!(icon.status(), 404);
            let page = client.get(url).send().await.unwrap();
            assert!(page.text().await.unwrap().contains("close this page"));
        });
    });
    let keeper = memory();
    let client =
        OAuth::new(OAuthOptions::default(), Arc::clone(&keeper), Arc::new(LoopbackConsent { open })).unwrap();
    assert!(client.challenged(&resource, 401, None).await.unwrap());
    assert_eq!(client.token(&resource).await.as_deref(), Some("token-0"));
    let (registered, asked) = {
        let world = lock(&world);
        (world.registrations[0]["redirect_uris"][0].clone(), world.authorizations[0]["redirect_uri"].clone())
    };
    assert_eq!(registered, asked);
}

#[tokio::test]
async fn what_has_run_out_is_shown_to_nobody() {
    let (resource, world) = serve().await;
    (lock(&world).expires_in, lock(&world).refuses_refresh) = (Some(0), true);
    let client = oauth(&memory());
    assert!(client.challenged(&resource, 401, None).await.unwrap());
    assert_eq!(client.token(&resource).await, None);
    // Having had its time it was not refused: it is asked for as often as it ends.
    for _ in 0..5 {
        assert!(client.challenged(&resource, 401, None).await.unwrap());
    }
}

#[tokio::test]
async fn a_refresh_token_that_stays_the_same_is_kept() {
    let (resource, world) = serve().await;
    lock(&world).keeps_refresh = true;
    let keeper = memory();
    let client = oauth(&keeper);
    client.challenged(&resource, 401, None).await.unwrap();
    client.token(&resource).await.unwrap();
    assert!(client.challenged(&resource, 401, None).await.unwrap());
    assert_eq!(client.token(&resource).await.as_deref(), Some("token-1"));
    assert_eq!(
        keeper.load(&resource).await.unwrap().grant.unwrap().refresh_token.as_deref(),
        Some("refresh-0")
    );
    assert_eq!(lock(&world).authorizations.len(), 1);
    // The renewed one is refused as well: now a person is asked.
    assert!(client.challenged(&resource, 401, None).await.unwrap());
    assert_eq!(lock(&world).authorizations.len(), 2);
}

#[tokio::test]
async fn a_server_that_names_another_issuer_is_shown_nothing() {
    let (resource, world) = serve().await;
    let client = nuncio_client::oauth::OAuthClient {
        id: "c".into(),
        secret: Some("s3cret".into()),
        method: None,
        redirect_uri: None,
    };
    let options = |issuer: &str| OAuthOptions {
        client: Some(client.clone()),
        for_itself: true,
        issuer: Some(issuer.into()),
        ..OAuthOptions::default()
    };
    let other = OAuth::new(options("https://issuer.example"), memory(), Arc::new(Yes)).unwrap();
    let why = other.challenged(&resource, 401, None).await.unwrap_err();
    assert!(why.contains("issuer.example") && !why.contains("s3cret"), "{why}");
    assert!(lock(&world).tokens.is_empty());
    let base = lock(&world).base.clone();
    let right = OAuth::new(options(&base), memory(), Arc::new(Yes)).unwrap();
    assert!(right.challenged(&resource, 401, None).await.unwrap());
    assert_eq!(lock(&world).tokens[0]["grant_type"], "client_credentials");
}

/// A person who takes a moment.
struct Slow(Arc<tokio::sync::Semaphore>);

struct SlowVisit(Arc<tokio::sync::Semaphore>);

#[async_trait]
impl Consent for Slow {
    async fn prepare(&self, _: Option<&str>) -> Result<Box<dyn ConsentVisit>, String> {
        Ok(Box::new(SlowVisit(Arc::clone(&self.0))))
    }
}

#[async_trait]
impl ConsentVisit for SlowVisit {
    fn redirect_uri(&self) -> &str {
        "http://127.0.0.1:9/callback"
    }

    async fn ask(self: Box<Self>, url: &Url) -> Result<Url, String> {
        self.0.acquire().await.unwrap().forget();
        Box::new(YesVisit).ask(url).await
    }
}

#[tokio::test]
async fn a_person_has_more_time_than_the_request_that_needs_them() {
    let (resource, world) = serve().await;
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let client = OAuth::new(OAuthOptions::default(), memory(), Arc::new(Slow(Arc::clone(&gate)))).unwrap();
    let short = std::time::Duration::from_millis(300);
    assert!(tokio::time::timeout(short, client.challenged(&resource, 401, None)).await.is_err());
    // Nobody else waits for that person.
    let elsewhere = Url::parse("http://127.0.0.1:1/other").unwrap();
    assert_eq!(tokio::time::timeout(short, client.token(&elsewhere)).await, Ok(None));
    gate.add_permits(1);
    assert!(client.challenged(&resource, 401, None).await.unwrap());
    assert!(client.token(&resource).await.is_some());
    assert_eq!(lock(&world).authorizations.len(), 1, "they were asked once");
}
