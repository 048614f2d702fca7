//! The registry over the network: agents and servers in this process that are stopped and come back.

use std::{
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::Bytes,
    http::{HeaderMap, Method, StatusCode, header},
    routing::{any, get},
};
use nuncio_engine::surface::SurfaceChange;
use nuncio_flows::registry::{
    Breaker, Registry, RegistryEntry, RegistryOptions, RegistryRemote, RemoteKind, URI,
};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::test_engine::{TestEngine, until};

/// Somebody far away, who can be stopped with all of their connections.
struct Far {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    stopped: std::thread::JoinHandle<()>,
}

impl Far {
    fn start(at: &str, router: Router) -> Self {
        let listener = TcpListener::bind(at).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, told) = oneshot::channel::<()>();
        let stopped = std::thread::spawn(move || {
            // A runtime of its own: what is left of the connections ends with it.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                listener.set_nonblocking(true).unwrap();
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                tokio::select! {
                    served = axum::serve(listener, router) => served.unwrap(),
                    _ = told => {}
                }
            });
        });
        Self { address, stop, stopped }
    }

    fn stop(self) -> String {
        let _ = self.stop.send(());
        self.stopped.join().unwrap();
        self.address.to_string()
    }
}

fn agent(version: &'static str) -> Router {
    Router::new().route(
        "/agents/far/.well-known/agent-card.json",
        get(async move || {
            json!({
                "name": "far", "description": "Far away.", "version": version,
                "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
                "capabilities": {}, "supportedInterfaces": [],
                "skills": [{ "id": "sums", "name": "Sums", "description": "Adds.", "tags": [] }],
            })
            .to_string()
        }),
    )
}

type Seen = Arc<Mutex<Vec<String>>>;

/// An MCP server with sessions, or without; it notes what it is asked.
fn mcp(with_sessions: bool, seen: &Seen) -> Router {
    let seen = Arc::clone(seen);
    Router::new().route(
        "/mcp",
        any(async move |method: Method, headers: HeaderMap, body: Bytes| {
            let note = |what: &str| seen.lock().unwrap().push(what.to_owned());
            if method == Method::DELETE {
                note(&format!("end {}", headers["mcp-session-id"].to_str().unwrap()));
                return (StatusCode::NO_CONTENT, HeaderMap::new(), String::new());
            }
            let request: Value = serde_json::from_slice(&body).unwrap();
            let asked = request["method"].as_str().unwrap();
            note(asked);
            let mut answer = HeaderMap::new();
            let info = json!({ "name": "toolbox", "version": "2" });
            let capabilities = json!({ "tools": {}, "prompts": {} });
            let result = match (asked, with_sessions) {
                ("initialize", true) => {
                    answer.insert("mcp-session-id", "s1".parse().unwrap());
                    json!({ "protocolVersion": "2025-11-25", "serverInfo": info, "capabilities": capabilities })
                }
                ("server/discover", false) => {
                    let meta = json!({ "io.modelcontextprotocol/serverInfo": info });
                    json!({ "supportedVersions": ["2026-07-28"], "capabilities": capabilities, "_meta": meta })
                }
                _ => return (StatusCode::BAD_REQUEST, answer, "what?".into()),
            };
            let response = json!({ "jsonrpc": "2.0", "id": request["id"], "result": result });
            if with_sessions {
                answer.insert(header::CONTENT_TYPE, "text/event-stream".parse().unwrap());
                return (StatusCode::OK, answer, format!("event: message\ndata: {response}\n\n"));
            }
            answer.insert(header::CONTENT_TYPE, "application/json".parse().unwrap());
            (StatusCode::OK, answer, response.to_string())
        }),
    )
}

/// A registry with one remote that is probed often.
async fn watching(kind: RemoteKind, url: String) -> (TestEngine, Arc<Registry>) {
    let here = TestEngine::start(vec![]).await;
    let options = RegistryOptions {
        remotes: vec![RegistryRemote {
            name: "far".into(),
            url: url.parse().unwrap(),
            kind,
            authorizer: None,
            card_keys: None,
            tls: nuncio_outbound::TlsClientOptions::default(),
        }],
        interval: Duration::from_millis(20),
        longest_pause: Duration::from_millis(50),
        ..RegistryOptions::default()
    };
    let registry = Arc::new(Registry::new(options));
    registry.install(&here.engine, here.engine.catalog().surface()).unwrap();
    (here, registry)
}

async fn until_far(registry: &Registry, what: &str, is: impl Fn(&RegistryEntry) -> bool) -> RegistryEntry {
    until(what, async || registry.agent("far").filter(|known| is(known))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_agent_turns_unhealthy_its_breaker_opens_and_it_comes_back_by_itself() {
    let far = Far::start("127.0.0.1:0", agent("1"));
    let (here, registry) = watching(RemoteKind::A2a, format!("http://{}/agents/far", far.address)).await;
    let seen = until_far(&registry, "card", |known| known.healthy).await;
    assert_eq!((seen.card.unwrap()["version"].clone(), seen.capabilities), (json!("1"), vec!["sums".into()]));
    assert!(seen.latency.unwrap() > Duration::ZERO);

    let mut changes = here.engine.catalog().surface().changes();
    let address = far.stop();
    let ill = until_far(&registry, "failed probe", |known| !known.healthy).await;
    assert!(ill.card.is_some() && ill.last_error.is_some(), "{ill:?}");
    let open = until_far(&registry, "open breaker", |known| known.breaker == Breaker::Open).await;
    assert_eq!(open.last_seen, ill.last_seen, "nobody has seen it since");

    let back = Far::start(&address, agent("2"));
    let well = until_far(&registry, "good probe", |known| known.healthy).await;
    assert_eq!((well.breaker, well.last_error), (Breaker::Closed, None));
    assert_eq!(well.card.unwrap()["version"], "2", "its card is read again");
    assert!(well.last_seen > open.last_seen);
    let mut told = 0;
    while let Ok(change) = changes.try_recv() {
        told += usize::from(matches!(change, SurfaceChange::Updated(updated) if &*updated.uri == URI));
    }
    assert_eq!(told, 3, "ill, open, well");
    back.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_mcp_server_is_given_up_and_comes_back_as_well() {
    for with_sessions in [false, true] {
        let seen = Seen::default();
        let far = Far::start("127.0.0.1:0", mcp(with_sessions, &seen));
        let (_here, registry) = watching(RemoteKind::Mcp, format!("http://{}/mcp", far.address)).await;
        let well = until_far(&registry, "good probe", |known| known.healthy).await;
        assert_eq!(well.server_info, Some(json!({ "name": "toolbox", "version": "2" })));
        assert_eq!((well.card, well.capabilities), (None, vec!["tools".into(), "prompts".into()]));

        let address = far.stop();
        until_far(&registry, "open breaker", |known| known.breaker == Breaker::Open).await;
        let back = Far::start(&address, mcp(with_sessions, &seen));
        until_far(&registry, "good probe", |known| known.healthy).await;
        back.stop();
        // Who has sessions is asked about them once, and then greeted at once; every session that began is ended.
        let seen = seen.lock().unwrap();
        let count = |what: &str| seen.iter().filter(|asked| *asked == what).count();
        if with_sessions {
            assert_eq!((&*seen[0], &*seen[1], &*seen[2]), ("server/discover", "initialize", "end s1"));
            assert_eq!(count("server/discover"), 1, "{seen:?}");
            assert!(count("initialize") - count("end s1") <= 1, "{seen:?}");
        } else {
            assert_eq!(count("server/discover"), seen.len(), "{seen:?}");
        }
    }
}

/// What is there and is no agent is no agent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_else_at_the_address_is_told_of_in_words() {
    let far = Far::start("127.0.0.1:0", Router::new().route("/", get(async || "hello")));
    for (kind, words) in [(RemoteKind::A2a, "HTTP 404"), (RemoteKind::Mcp, "HTTP 405")] {
        let (_here, registry) = watching(kind, format!("http://{}/", far.address)).await;
        let known = until_far(&registry, "probe", |known| known.last_error.is_some()).await;
        assert!(known.last_error.as_ref().unwrap().contains(words), "{known:?}");
    }
    far.stop();
}
