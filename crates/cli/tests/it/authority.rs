//! An authorization server that is a stand-in: it grants whatever is asked for, and checks how it is asked. What it
//! issues are JWTs, so that a real server takes them.

use std::{
    collections::BTreeMap,
    net::TcpListener,
    path::Path,
    sync::{Arc, Mutex, MutexGuard},
    time::{SystemTime, UNIX_EPOCH},
};

use axum::{
    Router,
    body::Bytes,
    extract::{Query, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use base64::{Engine as _, prelude::BASE64_STANDARD, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::{
    http::client,
    security::issuer::{Key, jwks},
};

/// The client that acts for itself.
pub(crate) const CLIENT: (&str, &str) = ("host", "s3cret-of-the-host");

type Parameters = BTreeMap<String, String>;

/// What it was told, and how it behaves.
pub(crate) struct Told {
    key: Key,
    /// Who somebody becomes that says yes.
    pub(crate) subject: String,
    /// The client that ID tokens are for.
    pub(crate) id_token_for: String,
    /// How long tokens are good.
    pub(crate) lifetime: u64,
    pub(crate) renews: bool,
    pub(crate) registrations: usize,
    pub(crate) visits: Vec<Parameters>,
    /// Whether the code of the device flow was used, and how often it was asked for.
    pub(crate) is_activated: bool,
    pub(crate) polls: usize,
    /// The kinds of grants that became tokens.
    pub(crate) granted: Vec<String>,
    pub(crate) tokens: Vec<String>,
}

pub(crate) struct Authority {
    pub(crate) url: String,
    told: Arc<Mutex<Told>>,
}

type Shared = (String, Arc<Mutex<Told>>);

impl Authority {
    /// Starts one; it lives as long as the test's process.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let told = Arc::new(Mutex::new(Told {
            key: Key::es256("k"),
            subject: "ada".into(),
            id_token_for: "cli".into(),
            lifetime: 600,
            renews: true,
            registrations: 0,
            visits: vec![],
            is_activated: false,
            polls: 0,
            granted: vec![],
            tokens: vec![],
        }));
        let router = Router::new()
            .route("/.well-known/oauth-authorization-server", get(metadata))
            .route("/jwks", get(keys))
            .route("/register", post(register))
            .route("/authorize", get(authorize))
            .route("/token", post(token))
            .route("/device", post(device))
            .route("/device-with-program", post(device_with_program))
            .route("/activate", get(activate))
            .route("/.well-known/openid-configuration", get(metadata))
            .with_state((url.clone(), Arc::clone(&told)));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                listener.set_nonblocking(true).unwrap();
                axum::serve(tokio::net::TcpListener::from_std(listener).unwrap(), router).await.unwrap();
            });
        });
        Self { url, told }
    }

    pub(crate) fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap()
    }

    /// Writes the configuration of a server that takes its tokens.
    pub(crate) fn trusted_in(&self, dir: &Path) {
        let url = &self.url;
        let config = format!(
            "auth = \"on\"\n[jwt]\nissuer = \"{url}\"\naudience = \"nuncio\"\njwks-url = \"{url}/jwks\"\n\
             allow-private-jwks = true\ndefault-scopes = [\"*:*\"]\n"
        );
        std::fs::create_dir_all(dir).unwrap();
        std::fs::write(dir.join("nuncio.toml"), config).unwrap();
    }
}

/// Somebody's browser: goes to a link, says yes, and comes back. What the page says that they end at.
pub(crate) fn visit(link: &str) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let consent = client().get(link).send().await.unwrap();
        let back = match consent.headers().get(header::LOCATION) {
            Some(back) => back.to_str().unwrap().to_owned(),
            None => return consent.text().await.unwrap(),
        };
        client().get(back).send().await.unwrap().text().await.unwrap()
    })
}

/// A page that somebody else opens.
pub(crate) fn open(link: &str) -> u16 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { client().get(link).send().await.unwrap().status().as_u16() })
}

fn json_of(value: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

async fn metadata(State((url, _)): State<Shared>) -> Response {
    json_of(&json!({
        "issuer": url,
        "authorization_endpoint": format!("{url}/authorize"),
        "token_endpoint": format!("{url}/token"),
        "registration_endpoint": format!("{url}/register"),
        "device_authorization_endpoint": format!("{url}/device"),
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
    }))
}

async fn keys(State((_, told)): State<Shared>) -> Response {
    json_of(&jwks(&[&told.lock().unwrap().key]))
}

async fn register(State((_, told)): State<Shared>) -> Response {
    let mut told = told.lock().unwrap();
    told.registrations += 1;
    json_of(
        &json!({ "client_id": format!("client-{}", told.registrations), "token_endpoint_auth_method": "none" }),
    )
}

async fn authorize(State((_, told)): State<Shared>, Query(asked): Query<Parameters>) -> Response {
    let back = format!(
        "{}?code=c{}&state={}",
        asked["redirect_uri"],
        told.lock().unwrap().visits.len(),
        asked["state"]
    );
    told.lock().unwrap().visits.push(asked);
    (StatusCode::FOUND, [(header::LOCATION, back)]).into_response()
}

async fn device(State((url, _)): State<Shared>, body: Bytes) -> Response {
    let asked: Parameters = url::form_urlencoded::parse(&body).into_owned().collect();
    assert!(asked.contains_key("client_id") && asked.contains_key("resource"), "{asked:?}");
    json_of(&json!({
        "device_code": "d", "user_code": "ABCD-EFGH", "verification_uri": format!("{url}/activate"),
        "verification_uri_complete": format!("{url}/activate?code=ABCD-EFGH"), "expires_in": 60, "interval": 0,
    }))
}

/// The same, with a link that would start a program.
async fn device_with_program() -> Response {
    json_of(&json!({
        "device_code": "d", "user_code": "ABCD-EFGH", "verification_uri": "steam://run/1", "expires_in": 60,
    }))
}

async fn activate(State((_, told)): State<Shared>) -> &'static str {
    told.lock().unwrap().is_activated = true;
    "done"
}

async fn token(State((url, told)): State<Shared>, headers: HeaderMap, body: Bytes) -> Response {
    let mut told = told.lock().unwrap();
    let asked: Parameters = url::form_urlencoded::parse(&body).into_owned().collect();
    let refuse = |why: &str| (StatusCode::BAD_REQUEST, json!({ "error": why }).to_string()).into_response();
    let kind = asked["grant_type"].clone();
    let subject = match kind.as_str() {
        "authorization_code" => {
            let Some(visit) = asked["code"][1..].parse().ok().and_then(|n: usize| told.visits.get(n)) else {
                return refuse("invalid_grant");
            };
            let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(asked["code_verifier"].as_bytes()));
            if visit["code_challenge"] != challenge || visit["redirect_uri"] != asked["redirect_uri"] {
                return refuse("invalid_grant");
            }
            told.subject.clone()
        }
        "refresh_token" if told.renews && asked["refresh_token"] == "r" => told.subject.clone(),
        "urn:ietf:params:oauth:grant-type:device_code" if asked["device_code"] == "d" => {
            told.polls += 1;
            if !told.is_activated {
                return refuse("authorization_pending");
            }
            told.subject.clone()
        }
        "client_credentials" => {
            let shown = headers.get(header::AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
            let both = format!("Basic {}", BASE64_STANDARD.encode(format!("{}:{}", CLIENT.0, CLIENT.1)));
            if shown != Some(both) {
                return refuse("invalid_client");
            }
            "the-host".to_owned()
        }
        _ => return refuse("invalid_grant"),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let (nth, lifetime) = (told.tokens.len(), told.lifetime);
    let claims = json!({ "iss": url, "aud": "nuncio", "sub": subject, "exp": now + 600, "jti": nth });
    let token = told.key.sign(&claims);
    told.granted.push(kind.clone());
    told.tokens.push(token.clone());
    let mut granted = json!({ "access_token": token, "token_type": "Bearer", "expires_in": lifetime });
    if kind != "client_credentials" {
        granted["refresh_token"] = "r".into();
        let claims = json!({ "iss": url, "aud": told.id_token_for, "sub": told.subject, "exp": now + 600 });
        granted["id_token"] = told.key.sign(&claims).into();
    }
    json_of(&granted)
}
