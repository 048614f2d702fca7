//! How often a card is fetched, and what an agent gets that requires an extension.

use std::sync::{Arc, Mutex};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use nuncio_client::{
    a2a::{
        A2aClientError, A2aCredentials, A2aHttpOptions, A2aPeer, A2aPeerOptions, AgentCard, CardCache,
        CardFreshness, CardReference,
    },
    peer::{Peer, PeerCallRequest, PeerError},
};
use nuncio_engine::{Message, Role};
use serde_json::{Value, json};
use url::Url;

use crate::peer::within;

/// An agent whose card has these headers, and what it was asked.
#[derive(Clone, Default)]
struct Seen {
    /// The `If-None-Match` of every request for the card.
    cards: Arc<Mutex<Vec<Option<String>>>>,
    /// The headers of every call.
    calls: Arc<Mutex<Vec<HeaderMap>>>,
    name: Arc<Mutex<String>>,
    cache_control: Option<&'static str>,
    required: Option<&'static str>,
}

struct CardServer {
    seen: Seen,
    url: Url,
}

impl CardServer {
    async fn start(seen: Seen) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        *seen.name.lock().unwrap() = "first".into();
        let app = Router::new()
            .route("/.well-known/agent-card.json", get(card))
            .route("/", post(answer))
            .with_state((seen.clone(), url.clone()));
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { seen, url }
    }

    /// The `If-None-Match` of the requests since the last time.
    fn asked(&self) -> Vec<Option<String>> {
        std::mem::take(&mut self.seen.cards.lock().unwrap())
    }

    fn rename(&self, name: &str) {
        *self.seen.name.lock().unwrap() = name.into();
    }

    async fn card(
        &self,
        cache: &CardCache,
        bearer: Option<&str>,
        freshness: CardFreshness,
    ) -> Result<AgentCard, A2aClientError> {
        let reference = CardReference::parse(self.url.as_str()).unwrap();
        let credentials = A2aCredentials { bearer: bearer.map(str::to_owned), ..A2aCredentials::default() };
        let options = A2aHttpOptions::default();
        within(cache.card(&reference, &options, &credentials, freshness)).await.map(|card| card.value)
    }
}

async fn card(State((seen, url)): State<(Seen, Url)>, headers: HeaderMap) -> Response {
    let known = headers.get(header::IF_NONE_MATCH).map(|value| value.to_str().unwrap().to_owned());
    seen.cards.lock().unwrap().push(known.clone());
    let name = seen.name.lock().unwrap().clone();
    let etag = format!("\"{name}\"");
    let extensions: Vec<Value> =
        seen.required.iter().map(|uri| json!({ "uri": uri, "required": true })).collect();
    let card = json!({
        "name": name, "description": "", "version": "1", "skills": [],
        "capabilities": { "extensions": extensions },
        "supportedInterfaces": [{ "url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }],
    });
    let mut response = match known.as_ref() == Some(&etag) {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => card.to_string().into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(header::ETAG, etag.parse().unwrap());
    if let Some(rule) = seen.cache_control {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(rule));
    }
    response
}

async fn answer(State((seen, _)): State<(Seen, Url)>, headers: HeaderMap, body: Bytes) -> String {
    seen.calls.lock().unwrap().push(headers);
    let request: Value = serde_json::from_slice(&body).unwrap();
    let task = json!({ "id": "t", "status": { "state": "TASK_STATE_COMPLETED" } });
    json!({ "jsonrpc": "2.0", "id": request["id"], "result": { "task": task } }).to_string()
}

#[tokio::test]
async fn a_card_is_used_without_a_request_while_it_is_fresh_and_then_asked_for_by_its_tag() {
    let rule = Some("public, max-age=300");
    let server = CardServer::start(Seen { cache_control: rule, ..Seen::default() }).await;
    let cache = CardCache::default();
    for _ in 0..3 {
        assert_eq!(server.card(&cache, None, CardFreshness::Fresh).await.unwrap().name, "first");
    }
    assert_eq!(server.asked(), [None]);
    let same = server.card(&cache, None, CardFreshness::Revalidated).await.unwrap();
    assert_eq!((same.name.as_str(), server.asked()), ("first", vec![Some("\"first\"".to_owned())]));
    server.rename("second");
    assert_eq!(server.card(&cache, None, CardFreshness::Fresh).await.unwrap().name, "first");
    let changed = server.card(&cache, None, CardFreshness::Revalidated).await.unwrap();
    assert_eq!((changed.name.as_str(), server.asked().len()), ("second", 1));
    assert_eq!(server.card(&cache, None, CardFreshness::Fresh).await.unwrap().name, "second");
    assert!(server.asked().is_empty());
}

#[tokio::test]
async fn without_a_time_every_use_is_a_conditional_request_and_no_store_is_obeyed() {
    let server = CardServer::start(Seen::default()).await;
    let cache = CardCache::default();
    for _ in 0..2 {
        server.card(&cache, None, CardFreshness::Fresh).await.unwrap();
    }
    assert_eq!(server.asked(), [None, Some("\"first\"".to_owned())]);
    let secret = CardServer::start(Seen { cache_control: Some("no-store"), ..Seen::default() }).await;
    for _ in 0..2 {
        secret.card(&cache, None, CardFreshness::Fresh).await.unwrap();
    }
    assert_eq!(secret.asked(), [None, None]);
}

#[tokio::test]
async fn a_card_is_for_the_credentials_that_it_was_fetched_with() {
    let rule = Some("private, max-age=300");
    let server = CardServer::start(Seen { cache_control: rule, ..Seen::default() }).await;
    let cache = CardCache::default();
    for bearer in [None, Some("ada"), Some("eve"), Some("ada"), None] {
        server.card(&cache, bearer, CardFreshness::Fresh).await.unwrap();
    }
    assert_eq!(server.asked(), [None, None, None], "one each, and none with the tag of another");
}

#[tokio::test]
async fn a_peer_asks_again_only_whether_the_card_has_changed() {
    let rule = Some("max-age=300");
    let server = CardServer::start(Seen { cache_control: rule, ..Seen::default() }).await;
    let options = A2aPeerOptions { whole_server: false, ..A2aPeerOptions::default() };
    let peer = A2aPeer::new(server.url.clone(), options);
    within(peer.check_reachable()).await.unwrap();
    assert_eq!(within(peer.list_capabilities()).await.unwrap()[0].name, "first");
    assert_eq!(server.asked(), [None]);
    within(peer.check_reachable()).await.unwrap();
    assert_eq!(
        server.asked(),
        [Some("\"first\"".to_owned())],
        "reachable is what answers, not what is stored"
    );
}

fn hello(offer: &str) -> PeerCallRequest {
    let input = Message::text("m", Role::User, "hello");
    PeerCallRequest { offer: offer.into(), input, context: None, trace: None }
}

#[tokio::test]
async fn a_peer_declares_the_extensions_that_the_agent_requires_or_refuses_it_by_their_name() {
    const URI: &str = "https://strange.example/ext/v1";
    let server = CardServer::start(Seen { required: Some(URI), ..Seen::default() }).await;
    let peer = |extensions: Vec<String>| {
        let options = A2aPeerOptions { whole_server: false, extensions, ..A2aPeerOptions::default() };
        A2aPeer::new(server.url.clone(), options)
    };
    let refused = within(peer(vec![]).begin(hello("first"))).await.err().unwrap();
    assert!(matches!(&refused, PeerError::Unsupported(why) if why.contains(URI)), "{refused:?}");
    assert!(server.seen.calls.lock().unwrap().is_empty(), "no request was made");
    within(peer(vec![URI.to_owned()]).begin(hello("first"))).await.unwrap();
    assert_eq!(server.seen.calls.lock().unwrap()[0]["a2a-extensions"], URI);
    let known = "https://nuncio.dev/extensions/log/v1";
    let own = CardServer::start(Seen { required: Some(known), ..Seen::default() }).await;
    let options = A2aPeerOptions { whole_server: false, ..A2aPeerOptions::default() };
    within(A2aPeer::new(own.url.clone(), options).begin(hello("first"))).await.unwrap();
    assert_eq!(own.seen.calls.lock().unwrap()[0]["a2a-extensions"], known);
}
