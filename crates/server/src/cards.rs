//! The agent cards: rebuilt when the agents change, and served with validators so that clients can cache them.

use std::{collections::BTreeMap, sync::Arc, time::SystemTime};

use axum::{
    body::{Body, Bytes},
    extract::{Path, State},
    http::{HeaderMap, HeaderValue, Response, StatusCode, header},
};
use jiff::{Timestamp, fmt::rfc2822};
use nuncio_engine::{Catalog, Error, Profile, catalog::RegisteredAgent};
use nuncio_wire::a2a::{
    Dialect,
    card::{self, CardContext},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{app::App, request_checks::HttpRefusal, responses};

/// Whether a path is that of a card, or of the list of agents.
pub(crate) fn is_card_path(path: &str) -> bool {
    matches!(path, "/" | "/.well-known/agent-card.json" | "/.well-known/agent.json")
        || path.starts_with("/agents/")
}

/// The cache of all agents' cards, rebuilt on request when the catalog has changed.
pub(crate) struct Cards {
    base_url: String,
    bearer: bool,
    card_set: Mutex<Arc<CardSet>>,
}

/// The cards of all agents, in every generation of the protocol.
struct CardSet {
    /// The generation of the catalog that they were built from.
    catalog_generation: u64,
    agents: BTreeMap<String, CardVersions>,
    default: Option<CardVersions>,
    index: CardDocument,
    last_modified: HeaderValue,
}

#[derive(Clone)]
struct CardVersions {
    both: CardDocument,
    v1: CardDocument,
    v0_3: CardDocument,
    v0_1: CardDocument,
}

#[derive(Clone)]
struct CardDocument {
    body: Bytes,
    etag: HeaderValue,
}

impl CardDocument {
    fn new(value: &Value) -> Self {
        let body = value.to_string();
        let digest = Sha256::digest(body.as_bytes());
        let hex: String = digest[..12].iter().map(|byte| format!("{byte:02x}")).collect();
        let etag = HeaderValue::from_str(&format!("\"{hex}\"")).unwrap_or(HeaderValue::from_static("\"0\""));
        Self { body: body.into(), etag }
    }
}

impl CardVersions {
    fn new(profile: &Profile, url: String, bearer: bool) -> Self {
        let cx = CardContext { bearer, ..CardContext::new(url) };
        Self {
            both: CardDocument::new(&card::combined(profile, &cx)),
            v1: CardDocument::new(&card::v1(profile, &cx)),
            v0_3: CardDocument::new(&card::v0_3(profile, &cx)),
            v0_1: CardDocument::new(&card::v0_1(profile, &cx)),
        }
    }
}

impl Cards {
    /// `base_url`: where clients reach the server, without a trailing slash. `bearer`: whether they need a
    /// token.
    pub(crate) fn new(catalog: &Catalog, base_url: &str, bearer: bool) -> Self {
        let card_set = Mutex::new(Arc::new(CardSet::new(catalog, base_url, bearer)));
        Self { base_url: base_url.to_owned(), bearer, card_set }
    }

    /// The cards of the current agents.
    fn current(&self, catalog: &Catalog) -> Arc<CardSet> {
        let mut made = self.card_set.lock();
        if made.catalog_generation != catalog.generation() {
            *made = Arc::new(CardSet::new(catalog, &self.base_url, self.bearer));
        }
        Arc::clone(&made)
    }
}

impl CardSet {
    fn new(catalog: &Catalog, base_url: &str, bearer: bool) -> Self {
        // Read before the agents: a concurrent change then causes another rebuild.
        let catalog_generation = catalog.generation();
        let card_of = |registered: &RegisteredAgent| {
            let url = format!("{base_url}/agents/{}", registered.profile.name);
            CardVersions::new(&registered.profile, url, bearer)
        };
        let agents = catalog.iter().map(|agent| (agent.profile.name.clone(), card_of(&agent))).collect();
        // The default agent's card names the root, so that a client that knows only the server finds it.
        let default = catalog.default_agent();
        let index = json!({
            "server": "nuncio",
            "version": env!("CARGO_PKG_VERSION"),
            "default": default.as_ref().map(|agent| agent.profile.name.as_str()),
            "agents": catalog.iter().map(|agent| json!({
                "name": agent.profile.name,
                "description": agent.profile.description,
                "url": format!("{base_url}/agents/{}", agent.profile.name),
                "card": format!("{base_url}/agents/{}/.well-known/agent-card.json", agent.profile.name),
            })).collect::<Vec<_>>(),
        });
        let made = Timestamp::try_from(SystemTime::now()).unwrap_or_default();
        let made = rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&made).unwrap_or_default();
        Self {
            catalog_generation,
            agents,
            default: default.map(|agent| CardVersions::new(&agent.profile, format!("{base_url}/"), bearer)),
            index: CardDocument::new(&index),
            last_modified: HeaderValue::from_str(&made).unwrap_or(HeaderValue::from_static("")),
        }
    }

    fn serve(&self, app: &App, document: &CardDocument, headers: &HeaderMap) -> Response<Body> {
        let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
        let etag = document.etag.to_str().unwrap_or_default();
        let unchanged = known.is_some_and(|known| {
            known
                .split(',')
                .map(|tag| tag.trim().trim_start_matches("W/"))
                .any(|tag| tag == etag || tag == "*")
        });
        let mut response = match unchanged {
            true => Response::new(Body::empty()),
            false => responses::json(document.body.clone()),
        };
        if unchanged {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        }
        let headers = response.headers_mut();
        headers.insert(header::ETAG, document.etag.clone());
        let policy = if app.options.private_cards { "private, max-age=300" } else { "public, max-age=300" };
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(policy));
        headers.insert(header::LAST_MODIFIED, self.last_modified.clone());
        headers.insert(header::VARY, HeaderValue::from_static("A2A-Version"));
        response
    }
}

/// The card of an agent, or of the default one, in the chosen generation.
fn card(
    app: &App,
    agent: Option<&str>,
    headers: &HeaderMap,
    pick: impl FnOnce(&CardVersions) -> &CardDocument,
) -> Response<Body> {
    let made = app.cards.current(app.engine.catalog());
    let cards = match agent {
        Some(name) => made.agents.get(name).ok_or_else(|| Error::NoSuchAgent(name.into()).to_string()),
        None => made.default.as_ref().ok_or_else(|| "this server has no agents".to_owned()),
    };
    match cards {
        Ok(cards) => made.serve(app, pick(cards), headers),
        Err(message) => responses::refuse(&HttpRefusal { status: StatusCode::NOT_FOUND, message }),
    }
}

/// The card in the version that the client names. Without a known version, the one that most clients can read.
fn by_version<'a>(app: &App, cards: &'a CardVersions, headers: &HeaderMap) -> &'a CardDocument {
    let version = headers.get("a2a-version").and_then(|value| value.to_str().ok());
    match version.and_then(Dialect::from_version) {
        Some(Dialect::V1) => &cards.v1,
        Some(Dialect::V0_3) => &cards.v0_3,
        Some(Dialect::V0_1) => &cards.v0_1,
        None if app.options.strict_cards => &cards.v1,
        None => &cards.both,
    }
}

/// `/.well-known/agent-card.json`
pub(crate) async fn root(State(app): State<Arc<App>>, headers: HeaderMap) -> Response<Body> {
    card(&app, None, &headers, |cards| by_version(&app, cards, &headers))
}

/// `/.well-known/agent.json`, the path of 0.1 and 0.2.
pub(crate) async fn root_legacy(State(app): State<Arc<App>>, headers: HeaderMap) -> Response<Body> {
    card(&app, None, &headers, |cards| &cards.v0_1)
}

/// `/agents/{name}/.well-known/agent-card.json`
pub(crate) async fn named(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response<Body> {
    card(&app, Some(&name), &headers, |cards| by_version(&app, cards, &headers))
}

/// `/agents/{name}/.well-known/agent.json`
pub(crate) async fn named_legacy(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response<Body> {
    card(&app, Some(&name), &headers, |cards| &cards.v0_1)
}

/// `/`: the list of agents.
pub(crate) async fn index(State(app): State<Arc<App>>, headers: HeaderMap) -> Response<Body> {
    let made = app.cards.current(app.engine.catalog());
    made.serve(&app, &made.index, &headers)
}
