//! The agent cards: rebuilt when the agents change, and served with validators so that clients can cache them.

mod dates;
mod signatures;

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    body::{Body, Bytes},
    extract::{Path, State},
    http::{HeaderMap, HeaderValue, Response, StatusCode, header},
};
use nuncio_engine::{Catalog, Engine, Error, Profile};
use nuncio_wire::a2a::{
    Dialect,
    card::{self, CardContext, GrpcAddress},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::Mutex as AsyncMutex;

use self::dates::CardDates;
use self::signatures::{CardSigner, UnsignedCard};
use crate::{
    app::App,
    card_keys::{ActiveCardKeys, CardSigningKeys, KEY_SET_PATH},
    request_checks::HttpRefusal,
    responses,
};

/// Whether a path is that of a card, or of the list of agents.
pub(crate) fn is_card_path(path: &str) -> bool {
    matches!(path, "/" | "/.well-known/agent-card.json" | "/.well-known/agent.json")
        || path.starts_with("/agents/")
}

/// The cache of all agents' cards, rebuilt on request when the catalog or the keys have changed.
pub(crate) struct Cards {
    /// The keys that sign them.
    pub(crate) keys: CardSigningKeys,
    base_url: String,
    callers: CallerCredentials,
    card_set: Mutex<Option<Arc<CardSet>>>,
    /// Held by the request that rebuilds the cards.
    rebuilding: AsyncMutex<()>,
}

/// The credentials that cards announce.
#[derive(Debug, Clone, Copy)]
struct CallerCredentials {
    bearer: bool,
    mutual_tls: bool,
}

/// The cards of all agents, in every generation of the protocol.
struct CardSet {
    /// The generation of the catalog that they were built from.
    catalog_generation: u64,
    /// The ids of the keys that signed them.
    key_ids: Vec<String>,
    agents: BTreeMap<String, CardVersions>,
    /// The cards of the default agent with the address of the root, and its name.
    default: Option<(String, CardVersions)>,
    index: CardDocument,
}

struct CardVersions {
    both: CardDocument,
    v1: CardDocument,
    v0_3: CardDocument,
    v0_1: CardDocument,
    extended: Option<ExtendedCards>,
}

/// The cards for authenticated callers. They are results of calls, so they have no tags and dates.
struct ExtendedCards {
    v1: Arc<Value>,
    v0_3: Arc<Value>,
}

struct CardDocument {
    body: Bytes,
    etag: HeaderValue,
    /// When it last changed, in seconds since 1970.
    modified: i64,
}

impl CardDocument {
    fn new(value: &Value) -> Self {
        let body = value.to_string();
        let digest = Sha256::digest(body.as_bytes());
        let hex: String = digest[..12].iter().map(|byte| format!("{byte:02x}")).collect();
        let etag = HeaderValue::from_str(&format!("\"{hex}\"")).unwrap_or(HeaderValue::from_static("\"0\""));
        Self { body: body.into(), etag, modified: 0 }
    }
}

impl CardVersions {
    /// Builds and signs the cards of an agent. `id`: under which its signatures are stored.
    async fn new(
        signer: &mut CardSigner<'_>,
        id: &str,
        profile: &Profile,
        url: String,
        callers: CallerCredentials,
        grpc: Option<GrpcAddress>,
    ) -> Self {
        let CallerCredentials { bearer, mutual_tls } = callers;
        let extended = card::extended(profile);
        let scopes = if bearer { vec![format!("execute:a2a:{}", profile.name)] } else { vec![] };
        let extended_card = extended.is_some();
        let cx = CardContext { bearer, mutual_tls, scopes, extended_card, grpc, ..CardContext::new(url) };
        let mut both = card::combined(profile, &cx);
        let mut v1 = card::v1(profile, &cx);
        let mut v0_3 = card::v0_3(profile, &cx);
        let mut extended = extended.map(|profile| (card::v1(&profile, &cx), card::v0_3(&profile, &cx)));
        let mut unsigned = vec![
            UnsignedCard { card: &mut both, readers: &[Dialect::V1, Dialect::V0_3] },
            UnsignedCard { card: &mut v1, readers: &[Dialect::V1] },
            UnsignedCard { card: &mut v0_3, readers: &[Dialect::V0_3] },
        ];
        if let Some((v1, v0_3)) = &mut extended {
            unsigned.push(UnsignedCard { card: v1, readers: &[Dialect::V1] });
            unsigned.push(UnsignedCard { card: v0_3, readers: &[Dialect::V0_3] });
        }
        signer.sign(id, unsigned).await;
        Self {
            both: CardDocument::new(&both),
            v1: CardDocument::new(&v1),
            v0_3: CardDocument::new(&v0_3),
            v0_1: CardDocument::new(&card::v0_1(profile, &cx)),
            extended: extended.map(|(v1, v0_3)| ExtendedCards { v1: Arc::new(v1), v0_3: Arc::new(v0_3) }),
        }
    }

    fn documents(&mut self) -> [(&'static str, &mut CardDocument); 4] {
        let Self { both, v1, v0_3, v0_1, .. } = self;
        [("any", both), ("1.0", v1), ("0.3", v0_3), ("0.1", v0_1)]
    }
}

impl Cards {
    /// `base_url`: where clients reach the server, without a trailing slash. `bearer`: whether they need a
    /// token. `mutual_tls`: whether a certificate serves as well.
    pub(crate) fn new(base_url: &str, bearer: bool, mutual_tls: bool) -> Self {
        Self {
            keys: CardSigningKeys::default(),
            base_url: base_url.to_owned(),
            callers: CallerCredentials { bearer, mutual_tls },
            card_set: Mutex::default(),
            rebuilding: AsyncMutex::default(),
        }
    }

    /// The cards of the current agents.
    async fn current(&self, engine: &Engine) -> Arc<CardSet> {
        let keys = self.keys.active(engine).await;
        if let Some(made) = self.made(engine, &keys) {
            return made;
        }
        let _turn = self.rebuilding.lock().await;
        // Read again: they may have changed while another request rebuilt the cards.
        let keys = self.keys.active(engine).await;
        if let Some(made) = self.made(engine, &keys) {
            return made;
        }
        let signer = CardSigner::new(engine, &keys, format!("{}{KEY_SET_PATH}", self.base_url));
        let mut card_set = CardSet::new(engine.catalog(), &self.base_url, self.callers, signer).await;
        card_set.key_ids = keys.iter().map(|key| key.kid.clone()).collect();
        card_set.date(engine).await;
        let card_set = Arc::new(card_set);
        *self.card_set.lock() = Some(Arc::clone(&card_set));
        card_set
    }

    /// The cards, unless the agents or the keys have changed since they were built.
    fn made(&self, engine: &Engine, keys: &ActiveCardKeys) -> Option<Arc<CardSet>> {
        let made = self.card_set.lock().clone()?;
        let is_current = made.catalog_generation == engine.catalog().generation()
            && made.key_ids.iter().eq(keys.iter().map(|key| &key.kid));
        is_current.then_some(made)
    }

    /// The public card of the default agent in 0.3, if there is such an agent.
    pub(crate) async fn default_0_3(&self, engine: &Engine) -> Option<Bytes> {
        let made = self.current(engine).await;
        made.default.as_ref().map(|(_, cards)| cards.v0_3.body.clone())
    }

    /// The extended card of an agent in a generation of the protocol. `at_root`: with the addresses of the root, where the
    /// default agent is.
    pub(crate) async fn extended(
        &self,
        engine: &Engine,
        agent: &str,
        at_root: bool,
        dialect: Dialect,
    ) -> Option<Arc<Value>> {
        let made = self.current(engine).await;
        let cards = match at_root {
            // The default agent may be another by now, which this caller may not have been allowed to read.
            true => made.default.as_ref().filter(|(name, _)| name == agent).map(|(_, cards)| cards),
            false => made.agents.get(agent),
        };
        let extended = cards?.extended.as_ref()?;
        Some(Arc::clone(if dialect >= Dialect::V1 { &extended.v1 } else { &extended.v0_3 }))
    }
}

impl CardSet {
    async fn new(
        catalog: &Catalog,
        base_url: &str,
        callers: CallerCredentials,
        mut signer: CardSigner<'_>,
    ) -> Self {
        // Read before the agents: a concurrent change then causes another rebuild.
        let catalog_generation = catalog.generation();
        let grpc = |tenant| Some(GrpcAddress { authority: grpc_authority(base_url)?, tenant });
        let registered: Vec<_> = catalog.iter().collect();
        let mut agents = BTreeMap::new();
        for agent in &registered {
            let (profile, name) = (&agent.profile, &agent.profile.name);
            let (url, grpc) = (format!("{base_url}/agents/{name}"), grpc(Some(name.clone())));
            agents.insert(
                name.clone(),
                CardVersions::new(&mut signer, name, profile, url, callers, grpc).await,
            );
        }
        // The default agent's card names the root, so that a client that knows only the server finds it.
        let default = catalog.default_agent();
        let at_root = match &default {
            Some(agent) => {
                let url = format!("{base_url}/");
                let cards =
                    CardVersions::new(&mut signer, "/", &agent.profile, url, callers, grpc(None)).await;
                Some((agent.profile.name.clone(), cards))
            }
            None => None,
        };
        let index = json!({
            "server": "nuncio",
            "version": env!("CARGO_PKG_VERSION"),
            "default": default.as_ref().map(|agent| agent.profile.name.as_str()),
            "agents": registered.iter().map(|agent| json!({
                "name": agent.profile.name,
                "description": agent.profile.description,
                "url": format!("{base_url}/agents/{}", agent.profile.name),
                "card": format!("{base_url}/agents/{}/.well-known/agent-card.json", agent.profile.name),
            })).collect::<Vec<_>>(),
        });
        Self {
            catalog_generation,
            key_ids: vec![],
            agents,
            default: at_root,
            index: CardDocument::new(&index),
        }
    }

    /// Sets the dates of all documents: since when each is as it is now.
    async fn date(&mut self, engine: &Engine) {
        let mut dates = CardDates::new(engine);
        for (name, cards) in &mut self.agents {
            dates.assign(name, &mut cards.documents()).await;
        }
        if let Some((_, cards)) = &mut self.default {
            dates.assign("/", &mut cards.documents()).await;
        }
        dates.assign("/index", &mut [("index", &mut self.index)]).await;
    }
}

/// The host and port at which gRPC is reached; `None` behind a path, which gRPC clients cannot call.
fn grpc_authority(base_url: &str) -> Option<String> {
    let (scheme, authority) = base_url.split_once("://")?;
    let host_ends = authority.rfind(']').map_or(0, |bracket| bracket + 1);
    match (authority.contains('/'), authority[host_ends..].contains(':'), scheme) {
        (true, ..) => None,
        (false, true, _) => Some(authority.to_owned()),
        (false, false, "https") => Some(format!("{authority}:443")),
        (false, false, _) => Some(format!("{authority}:80")),
    }
}

impl CardDocument {
    /// Whether the client has this document already (RFC 9110 §13.2.2). A date counts only if no tag is given: a tag is
    /// exact.
    fn is_known(&self, headers: &HeaderMap) -> bool {
        if let Some(known) = headers.get(header::IF_NONE_MATCH) {
            let etag = self.etag.to_str().unwrap_or_default();
            return known.to_str().is_ok_and(|known| {
                known
                    .split(',')
                    .map(|tag| tag.trim().trim_start_matches("W/"))
                    .any(|tag| tag == etag || tag == "*")
            });
        }
        let since = headers.get(header::IF_MODIFIED_SINCE).and_then(dates::read);
        since.is_some_and(|since| self.modified <= since)
    }

    fn serve(&self, app: &App, headers: &HeaderMap) -> Response<Body> {
        let (document, unchanged) = (self, self.is_known(headers));
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
        headers.insert(header::LAST_MODIFIED, dates::write(document.modified));
        headers.insert(header::VARY, HeaderValue::from_static("A2A-Version"));
        response
    }
}

/// The card of an agent, or of the default one, in the chosen generation.
async fn card(
    app: &App,
    agent: Option<&str>,
    headers: &HeaderMap,
    pick: impl FnOnce(&CardVersions) -> &CardDocument,
) -> Response<Body> {
    let made = app.cards.current(&app.engine).await;
    let cards = match agent {
        Some(name) => made.agents.get(name).ok_or_else(|| Error::NoSuchAgent(name.into()).to_string()),
        None => made
            .default
            .as_ref()
            .map(|(_, cards)| cards)
            .ok_or_else(|| "this server has no agents".to_owned()),
    };
    match cards {
        Ok(cards) => pick(cards).serve(app, headers),
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
    card(&app, None, &headers, |cards| by_version(&app, cards, &headers)).await
}

/// `/.well-known/agent.json`, the path of 0.1 and 0.2.
pub(crate) async fn root_legacy(State(app): State<Arc<App>>, headers: HeaderMap) -> Response<Body> {
    card(&app, None, &headers, |cards| &cards.v0_1).await
}

/// `/agents/{name}/.well-known/agent-card.json`
pub(crate) async fn named(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response<Body> {
    card(&app, Some(&name), &headers, |cards| by_version(&app, cards, &headers)).await
}

/// `/agents/{name}/.well-known/agent.json`
pub(crate) async fn named_legacy(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response<Body> {
    card(&app, Some(&name), &headers, |cards| &cards.v0_1).await
}

/// `/.well-known/jwks.json`: the keys that sign the cards. Public also where cards are not.
pub(crate) async fn key_set(State(app): State<Arc<App>>, headers: HeaderMap) -> Response<Body> {
    let document = CardDocument::new(&app.cards.keys.key_set(&app.engine).await);
    let known = headers.get(header::IF_NONE_MATCH).is_some_and(|known| *known == document.etag);
    let mut response = match known {
        true => Response::new(Body::empty()),
        false => responses::json(document.body),
    };
    if known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    response.headers_mut().insert(header::ETAG, document.etag);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
    response
}

/// `/`: the list of agents for programs, and the console for a person with a browser.
pub(crate) async fn index(State(app): State<Arc<App>>, headers: HeaderMap) -> Response<Body> {
    if let Some(console) = app.console.as_ref().filter(|_| asks_for_page(&headers)) {
        return console.redirect(StatusCode::SEE_OTHER);
    }
    app.cards.current(&app.engine).await.index.serve(&app, &headers)
}

/// Whether a page is what the client shows best: a browser that follows a link, and no program.
fn asks_for_page(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accepted.split(',').next().is_some_and(|first| first.trim().starts_with("text/html"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_is_at_the_host_and_port_of_the_base() {
        for (base, authority) in [
            ("http://127.0.0.1:8080", Some("127.0.0.1:8080")),
            ("https://agents.example", Some("agents.example:443")),
            ("http://agents.example", Some("agents.example:80")),
            ("http://[::1]:8080", Some("[::1]:8080")),
            ("http://[::1]", Some("[::1]:80")),
            ("https://example.com/nuncio", None),
        ] {
            assert_eq!(grpc_authority(base).as_deref(), authority, "{base}");
        }
    }
}
