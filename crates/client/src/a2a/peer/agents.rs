//! Agent discovery at an address: one agent by its card, or the agents that a Nuncio server lists.

use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use nuncio_engine::Skill;
use nuncio_wire::a2a::{Dialect, card::CURSOR_EXTENSION};
use parking_lot::Mutex;
use serde_json::Value;
use url::Url;

use super::{A2aPeerOptions, fault::peer_error};
use crate::{
    a2a::{
        A2aBinding, A2aClient, A2aClientError, A2aCredentials, A2aResponse, AgentCard, AgentInterface,
        CardFreshness, CardReference, WELL_KNOWN, http::A2aHttp, verify_card,
    },
    peer::{PeerCapability, PeerDescription, PeerError},
};

/// The well-known path of cards before 0.3.
const WELL_KNOWN_BEFORE: &str = "/.well-known/agent.json";
/// Cards that are fetched concurrently.
const AT_ONCE: usize = 8;
/// Agents of one server that are read.
const MOST: usize = 1000;

/// The agents found at an address.
pub(super) struct AgentDirectory {
    /// The name of the server, or of its only agent.
    pub(super) name: String,
    pub(super) agents: Vec<Arc<KnownAgent>>,
}

impl AgentDirectory {
    pub(super) fn agent(&self, name: &str) -> Option<Arc<KnownAgent>> {
        self.agents.iter().find(|agent| agent.offer.name == name).cloned()
    }
}

/// An agent whose card was read.
pub(super) struct KnownAgent {
    pub(super) offer: PeerCapability,
    pub(super) card: AgentCard,
    /// The protocol version in use.
    pub(super) dialect: Mutex<Dialect>,
    /// Whether that version is configured or named on the card, and not a guess.
    pub(super) certain: bool,
    /// The last client used, with the token that it sends.
    pub(super) client: Mutex<Option<(Option<String>, A2aClient)>>,
}

/// Discovers the agents at an address, with their cards.
pub(super) async fn find(
    url: &Url,
    options: &A2aPeerOptions,
    freshness: CardFreshness,
) -> Result<AgentDirectory, PeerError> {
    if let Some(index) = index(url, options).await {
        let name = index["server"].as_str().unwrap_or("nuncio").to_owned();
        let listed: Vec<Value> = index["agents"].as_array().cloned().unwrap_or_default();
        let cards =
            stream::iter(listed.into_iter().take(MOST)).map(|agent| listed_agent(agent, options, freshness));
        let agents = cards.buffered(AT_ONCE).try_collect().await?;
        return Ok(AgentDirectory { name, agents });
    }
    let card = card_at(url, options, freshness).await?;
    let agent = Arc::new(KnownAgent::new(card, options)?);
    Ok(AgentDirectory { name: agent.card.name.clone(), agents: vec![agent] })
}

/// Whether the address answers: the list of a server, or a card, is enough.
pub(super) async fn check_reachable(url: &Url, options: &A2aPeerOptions) -> Result<(), PeerError> {
    match index(url, options).await {
        Some(_) => Ok(()),
        None => card_at(url, options, CardFreshness::Revalidated).await.map(|_| ()),
    }
}

/// The card at an address, and its skills.
pub(super) async fn describe(url: &Url, options: &A2aPeerOptions) -> Result<PeerDescription, PeerError> {
    let card = card_at(url, options, CardFreshness::Revalidated).await?;
    let document: Value = serde_json::from_str(card.json.get())
        .map_err(|error| PeerError::Malformed { at: shown(url), why: error.to_string() })?;
    let skills = document["skills"].as_array().into_iter().flatten();
    let capabilities = skills.filter_map(|skill| skill["id"].as_str().map(str::to_owned)).collect();
    Ok(PeerDescription { document: Some(document), capabilities })
}

/// A URL for display: without credentials and query.
pub(super) fn shown(url: &Url) -> String {
    let origin = url.origin().ascii_serialization();
    format!("{origin}{}", url.path().trim_end_matches('/'))
}

/// The list of a Nuncio server's agents, if there is one.
async fn index(url: &Url, options: &A2aPeerOptions) -> Option<Value> {
    if !options.whole_server || url.path() != "/" || url.query().is_some() {
        return None;
    }
    let body = A2aHttp::new(&options.http, url).get(url, "application/json").await.ok()?;
    let index: Value = serde_json::from_slice(&body).ok()?;
    (index["server"] == "nuncio" && index["agents"].is_array()).then_some(index)
}

async fn listed_agent(
    listed: Value,
    options: &A2aPeerOptions,
    freshness: CardFreshness,
) -> Result<Arc<KnownAgent>, PeerError> {
    let at = listed["card"].as_str().unwrap_or_default();
    let url = Url::parse(at).map_err(|error| PeerError::Malformed {
        at: at.to_owned(),
        why: format!("the card of {} has no valid URL: {error}", listed["name"]),
    })?;
    let card = fetch(&url, options, freshness).await.map_err(peer_error)?;
    let mut known = KnownAgent::new(card, options)?;
    // The name in the list is the one that callers use.
    if let Some(name) = listed["name"].as_str() {
        known.offer.name = name.to_owned();
    }
    Ok(Arc::new(known))
}

/// The card of the agent at an address: at its well-known path, at the address itself, or at the well-known
/// path of the host if that card names the address. The error is that of the first location.
async fn card_at(
    url: &Url,
    options: &A2aPeerOptions,
    freshness: CardFreshness,
) -> Result<A2aResponse<AgentCard>, PeerError> {
    let mut first = None;
    for place in places(url) {
        match fetch(&place.url, options, freshness).await {
            Ok(card) if !place.must_name || names(&card.value, url) => return Ok(card),
            Ok(_) => {}
            // The host is unreachable, so no other path is tried.
            Err(error @ (A2aClientError::Unreachable { .. } | A2aClientError::Timeout { .. })) => {
                return Err(peer_error(error));
            }
            Err(error) => drop(first.get_or_insert(error)),
        }
    }
    Err(first.map_or_else(
        || PeerError::NoCard { at: shown(url), why: "the card of the host names another address".into() },
        peer_error,
    ))
}

/// A location where a card may be.
struct CardLocation {
    url: Url,
    /// Whether the card counts only if it names the given address.
    must_name: bool,
}

fn places(url: &Url) -> Vec<CardLocation> {
    let at = |path: &str| {
        let mut place = url.clone();
        place.set_path(path);
        place.set_query(None);
        place
    };
    let exact = CardLocation { url: url.clone(), must_name: false };
    if url.path().ends_with(".json") || url.query().is_some() {
        return vec![exact];
    }
    let folder = url.path().trim_end_matches('/');
    let below = |name: &str| CardLocation { url: at(&format!("{folder}{name}")), must_name: false };
    let mut places = vec![below(WELL_KNOWN), below(WELL_KNOWN_BEFORE)];
    if !folder.is_empty() {
        places.push(exact);
        places.extend(
            [WELL_KNOWN, WELL_KNOWN_BEFORE].map(|path| CardLocation { url: at(path), must_name: true }),
        );
    }
    places
}

fn names(card: &AgentCard, url: &Url) -> bool {
    let path = |url: &Url| url.path().trim_end_matches('/').to_owned();
    card.interfaces.iter().any(|interface| path(&interface.url) == path(url))
}

/// Fetches a card and, where the options name keys, verifies it: what no trusted key has signed is not used.
async fn fetch(
    url: &Url,
    options: &A2aPeerOptions,
    freshness: CardFreshness,
) -> Result<A2aResponse<AgentCard>, A2aClientError> {
    let received = fetch_unverified(url, options, freshness).await?;
    match &options.card_keys {
        Some(keys) => Ok(verify_card(received, keys, &options.http).await?.0),
        None => Ok(received),
    }
}

/// Fetches a card. Credentials are sent only after the host has asked for them.
async fn fetch_unverified(
    url: &Url,
    options: &A2aPeerOptions,
    freshness: CardFreshness,
) -> Result<A2aResponse<AgentCard>, A2aClientError> {
    let reference = CardReference::Url(url.clone());
    match options.cards.card(&reference, &options.http, &A2aCredentials::default(), freshness).await {
        Err(error @ A2aClientError::Unauthorized { .. }) => {
            let Some(authorizer) = &options.authorizer else { return Err(error) };
            let Some(bearer) = authorizer.token(url).await else { return Err(error) };
            let credentials = A2aCredentials { bearer: Some(bearer), ..A2aCredentials::default() };
            options.cards.card(&reference, &options.http, &credentials, freshness).await
        }
        answered => answered,
    }
}

impl KnownAgent {
    fn new(received: A2aResponse<AgentCard>, options: &A2aPeerOptions) -> Result<Self, PeerError> {
        let A2aResponse { json, value: mut card } = received;
        let json: Value = serde_json::from_str(json.get()).unwrap_or_default();
        let is_chosen =
            |one: &&AgentInterface| options.transport.is_none_or(|binding| binding == one.binding);
        let first = card.interfaces.iter().find(is_chosen).or(card.interfaces.first());
        let dialect = options.dialect.or(first.map(|first| first.dialect)).unwrap_or(Dialect::V1);
        // No card can declare 0.1, so the configured version overrides the card.
        let older = card.interfaces.iter().find(|one| one.binding == A2aBinding::JsonRpc);
        if let (Some(Dialect::V0_1), Some(older)) = (options.dialect, older.cloned()) {
            card.interfaces.push(AgentInterface { dialect: Dialect::V0_1, ..older });
        }
        Ok(Self {
            offer: offer(&json, &card),
            certain: options.dialect.is_some()
                || json["protocolVersion"].is_string()
                || json["supportedInterfaces"].is_array(),
            card,
            dialect: Mutex::new(dialect),
            client: Mutex::default(),
        })
    }
}

fn offer(json: &Value, card: &AgentCard) -> PeerCapability {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let skills = json["skills"].as_array().into_iter().flatten().map(|skill| Skill {
        id: text(&skill["id"]),
        name: text(&skill["name"]),
        description: text(&skill["description"]),
        tags: texts(&skill["tags"]),
        examples: texts(&skill["examples"]),
        input_modes: texts(&skill["inputModes"]),
        output_modes: texts(&skill["outputModes"]),
    });
    PeerCapability {
        name: card.name.clone(),
        title: None,
        description: text(&json["description"]),
        input_schema: None,
        output_schema: None,
        skills: skills.filter(|skill| !skill.id.is_empty()).collect(),
        // Agents with cursors also have idempotency keys: the same message is the same task.
        idempotent: card.extensions.iter().any(|uri| uri == CURSOR_EXTENSION),
    }
}
