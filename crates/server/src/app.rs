//! What all bindings share: the engine, the options, who is calling, and the places for streams.

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    extract::{Path, State},
    http::{HeaderMap, Method, Request, Response, StatusCode},
    routing::{any, get, post},
};
use hyper::body::Incoming;
use nuncio_engine::{Caller, Engine, Error};
use tower::ServiceExt;

use crate::{
    admin,
    cards::{self, Cards},
    gate::{HostCheck, Refusal},
    health,
    mcp::{self, Mcp, sse::Connections},
    options::{HttpLimits, ServerOptions},
    rpc,
    streams::{self, Place, Streams},
};

pub(crate) struct App {
    pub(crate) engine: Engine,
    pub(crate) options: ServerOptions,
    pub(crate) cards: Cards,
    pub(crate) mcp: Arc<Mcp>,
    pub(crate) connections: Connections,
    hosts: HostCheck,
    streams: Arc<Streams>,
}

impl App {
    pub(crate) fn new(engine: Engine, mut options: ServerOptions, base_url: &str) -> Self {
        let depth = &mut options.limits.max_json_depth;
        *depth = (*depth).min(HttpLimits::DEEPEST);
        engine.catalog().surface().set_base_url(base_url);
        let streams = Streams::new(engine.clone(), options.limits.max_streams);
        if let Err(error) = streams::offer(&streams) {
            // The schema is a constant that the tests compile.
            tracing::error!(%error, "the open streams are not offered");
        }
        Self {
            cards: Cards::new(engine.catalog(), base_url),
            hosts: HostCheck::new(&options),
            streams,
            mcp: Mcp::new(engine.clone(), options.mcp.clone()),
            connections: Connections::default(),
            engine,
            options,
        }
    }

    /// Who is calling. Before any authentication is configured there is one caller.
    #[allow(clippy::unused_self, reason = "the seam where tokens will be verified")]
    pub(crate) fn caller(&self, _headers: &HeaderMap) -> Caller {
        Caller::local()
    }

    /// A place for one more stream.
    pub(crate) fn place_for_stream(&self) -> Result<Place, Error> {
        self.streams.place()
    }

    /// How many streams are open.
    pub(crate) fn open_streams(&self) -> usize {
        self.streams.taken()
    }
}

/// Everything that is served at one address.
pub(crate) struct Site {
    app: Arc<App>,
    router: Router,
}

impl Site {
    pub(crate) fn new(app: App) -> Self {
        let app = Arc::new(app);
        let router = Router::new()
            .route("/", any(root).get(cards::index))
            .route("/agents/{name}", any(rpc::named).get(cards::named))
            .route("/agents/{name}/", any(rpc::named).get(cards::named))
            .route("/.well-known/agent-card.json", get(cards::root))
            .route("/.well-known/agent.json", get(cards::root_legacy))
            .route("/agents/{name}/.well-known/agent-card.json", get(cards::named))
            .route("/agents/{name}/.well-known/agent.json", get(cards::named_legacy))
            .route("/mcp", any(mcp_endpoint))
            .route("/sse", get(mcp::sse::open))
            .route("/messages", post(mcp::sse::message))
            .route("/schemas/{name}", get(schema))
            .route("/healthz", get(health::alive))
            .route("/readyz", get(health::ready))
            .route("/metrics", get(health::metrics))
            .route("/admin/dead-letters", get(admin::dead_letters))
            .route("/admin/dead-letters/replay", post(admin::replay))
            .fallback(not_found)
            .method_not_allowed_fallback(method_not_allowed)
            .with_state(Arc::clone(&app));
        Self { app, router }
    }

    /// Answers one request.
    pub(crate) async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        if let Some(why) = self.app.hosts.refuse(request.headers()) {
            return rpc::refuse(&Refusal { status: StatusCode::FORBIDDEN, message: why.into() });
        }
        // Where most requests go: the router's boxes and clones cost as much as a small task does.
        if request.method() == Method::POST && request.uri().path() == "/" {
            return rpc::root(&self.app, request).await;
        }
        if request.method() == Method::POST && request.uri().path() == "/mcp" {
            return mcp::http::serve(&self.app, request).await;
        }
        let answered = self.router.clone().oneshot(request.map(Body::new)).await;
        answered.unwrap_or_else(|never| match never {})
    }
}

async fn root(State(app): State<Arc<App>>, request: Request<Body>) -> Response<Body> {
    rpc::root(&app, request).await
}

async fn mcp_endpoint(State(app): State<Arc<App>>, request: Request<Body>) -> Response<Body> {
    mcp::http::serve(&app, request).await
}

/// A JSON Schema that the surface publishes.
async fn schema(State(app): State<Arc<App>>, Path(file): Path<String>) -> Response<Body> {
    let named = file.strip_suffix(".json").and_then(|name| app.engine.catalog().surface().schema(name));
    match named {
        Some(schema) => rpc::json(schema.to_string()),
        None => not_found().await,
    }
}

async fn not_found() -> Response<Body> {
    let message = "there is nothing here: agents are at / and /agents/{name}, MCP at /mcp, cards at \
                   /.well-known/agent-card.json, health at /healthz and /readyz";
    rpc::refuse(&Refusal { status: StatusCode::NOT_FOUND, message: message.into() })
}

async fn method_not_allowed() -> Response<Body> {
    let message = "this address has another method: the Allow header of this answer names it";
    rpc::refuse(&Refusal { status: StatusCode::METHOD_NOT_ALLOWED, message: message.into() })
}
