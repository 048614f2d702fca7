//! The state that all bindings share (engine, options, caller authentication, stream slots) and the HTTP
//! router.

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    extract::{Path, State},
    http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header},
    routing::{any, delete, get, post},
};
use hyper::body::Incoming;
use nuncio_engine::{AccessKind, Action, Caller, Engine, Error, count_refusal};
use tokio::{sync::Semaphore, time::Instant};
use tower::ServiceExt;

use crate::{
    a2a::{
        grpc, jsonrpc,
        rest::{self, RestForm, RestRoute},
    },
    admin,
    auth::{
        self, AuthError, AuthFailureLog, Authenticator, BearerChallenge, ConnectionPeer, CredentialRecheck,
        RequestCredentials,
    },
    authorizations,
    base_path::BasePath,
    card_keys::KEY_SET_PATH,
    cards::{self, Cards},
    console::{Console, verify_session},
    cors::Cors,
    health,
    http_metrics::{HttpMetrics, HttpRoute, log_access},
    mcp::{self, Mcp, McpEndpoint, sse::SseConnections},
    open_streams::{self, OpenStreams, StreamSlot},
    options::{HttpLimits, ServerOptions},
    proxies,
    request_checks::{HostCheck, HttpRefusal},
    request_rate::RequestRate,
    responses,
};

pub(crate) struct App {
    pub(crate) engine: Engine,
    pub(crate) options: ServerOptions,
    pub(crate) cards: Cards,
    pub(crate) mcp: Arc<Mcp>,
    pub(crate) connections: SseConnections,
    pub(crate) challenge: BearerChallenge,
    pub(crate) console: Option<Console>,
    base_path: Option<BasePath>,
    hosts: HostCheck,
    cors: Option<Cors>,
    /// See [`grpc::MAX_PUBLIC_STREAMS`].
    pub(crate) public_streams: Arc<Semaphore>,
    streams: Arc<OpenStreams>,
    failures: AuthFailureLog,
    request_rate: RequestRate,
    http_metrics: HttpMetrics,
}

impl App {
    pub(crate) fn new(engine: Engine, mut options: ServerOptions, base_url: &str) -> Self {
        let depth = &mut options.limits.max_json_depth;
        *depth = (*depth).min(HttpLimits::DEEPEST);
        engine.catalog().surface().set_base_url(base_url);
        let secured = options.authenticator.is_some();
        let limits = &options.limits;
        let request_rate = match secured || options.optional_authenticator.is_some() {
            true => RequestRate::new(limits.requests_per_second, limits.requests_per_second_per_tenant),
            false => RequestRate::new(0, 0),
        };
        let each = secured.then_some(options.limits.max_streams_per_caller);
        let streams = OpenStreams::new(engine.clone(), options.limits.max_streams, each);
        if let Err(error) = open_streams::register_stream_resources(&streams) {
            // The schema is a constant that the tests compile.
            tracing::error!(%error, "could not register the open streams as resources");
        }
        Self {
            cards: Cards::new(base_url, secured, options.takes_client_certificates()),
            challenge: BearerChallenge::new(base_url, secured),
            console: options.console.then(|| Console::new(base_url)),
            base_path: options.base_path.as_deref().and_then(BasePath::new),
            hosts: HostCheck::new(&options),
            cors: Cors::new(&options.cors_origins),
            streams,
            public_streams: Arc::new(Semaphore::new(grpc::MAX_PUBLIC_STREAMS)),
            failures: AuthFailureLog::default(),
            request_rate,
            http_metrics: HttpMetrics::new(options.access_log),
            mcp: Mcp::new(engine.clone(), options.mcp.clone()),
            connections: SseConnections::default(),
            engine,
            options,
        }
    }

    /// Authenticates the caller. The operator presents the secret of the data folder. Where no credentials are
    /// required, a request without any acts in the operator's name but cannot administer.
    pub(crate) async fn caller(
        &self,
        headers: &HeaderMap,
        peer: &ConnectionPeer,
        path: &str,
    ) -> Result<Caller, AuthError> {
        if self.is_operator(headers) {
            return Ok(peer.attach_address(Caller::local()));
        }
        if let RequestCredentials::ConsoleSession(token) = RequestCredentials::of_request(headers, peer) {
            let caller = verify_session(&self.engine, &token).await;
            if let Err(error) = &caller {
                self.failures.record_failure(&self.engine, peer, path, error);
            }
            return caller.map(|caller| peer.attach_address(caller));
        }
        let Some(authenticator) = self.authenticator_of(headers) else {
            return Ok(peer.attach_address(Caller::unverified()));
        };
        if is_own_process(headers, peer) {
            return Ok(peer.attach_address(Caller::unverified()));
        }
        let credentials = RequestCredentials::of_request(headers, peer);
        match credentials.authenticate(&**authenticator, &self.engine, headers, peer.ip()).await {
            Ok(caller) => match self.engine.check_tenant(caller.tenant()) {
                Ok(()) => Ok(peer.attach_address(caller)),
                Err(closed) => {
                    let error = AuthError::Suspended(closed.to_string());
                    self.failures.record_failure(&self.engine, peer, path, &error);
                    Err(error)
                }
            },
            Err(error) => {
                self.failures.record_failure(&self.engine, peer, path, &error);
                Err(error)
            }
        }
    }

    /// What verifies the credentials of this request. `None`: they are not required, and it presents none, or none are
    /// verified here.
    pub(crate) fn authenticator_of(&self, headers: &HeaderMap) -> Option<&Arc<dyn Authenticator>> {
        let presents = headers.contains_key(header::AUTHORIZATION);
        let optional = self.options.optional_authenticator.as_ref().filter(|_| presents);
        self.options.authenticator.as_ref().or(optional)
    }

    /// Like `caller`, but refuses a caller without an identity.
    async fn known_caller(
        &self,
        headers: &HeaderMap,
        peer: &ConnectionPeer,
        path: &str,
    ) -> Result<Caller, AuthError> {
        match self.authenticator_of(headers).is_some() || self.is_operator(headers) {
            true => self.caller(headers, peer, path).await,
            false => Err(AuthError::Missing),
        }
    }

    /// Whether a caller that was let in may read cards; where they are private, only if callers are asked who they are.
    pub(crate) fn shows_cards(&self) -> bool {
        !self.options.private_cards || self.options.authenticator.is_some()
    }

    /// Rechecks the credentials of a request for as long as its response lasts.
    pub(crate) fn start_recheck(&self, headers: &HeaderMap, peer: &ConnectionPeer) -> CredentialRecheck {
        match self.authenticator_of(headers) {
            Some(authenticator) if !self.is_operator(headers) && !is_own_process(headers, peer) => {
                CredentialRecheck::of_request(authenticator, &self.engine, headers, peer)
            }
            _ => CredentialRecheck::none(),
        }
    }

    /// Whether the request presents the operator's own secret.
    pub(crate) fn is_operator(&self, headers: &HeaderMap) -> bool {
        let (token, shown) = (self.options.admin_token.as_deref(), auth::bearer(headers));
        token
            .zip(shown)
            .is_some_and(|(token, shown)| auth::constant_time_eq(token.as_bytes(), shown.as_bytes()))
    }

    /// The reason to refuse a request because of the proxy it came through, if there is one.
    fn refuse_proxied(&self, headers: &HeaderMap, peer: &ConnectionPeer) -> Option<String> {
        if self.options.authenticator.is_some() || self.is_operator(headers) {
            return None;
        }
        let header = proxies::forwarding_header(headers)?;
        if proxies::is_trusted(&self.options.trusted_proxies, peer) {
            return None;
        }
        Some(format!(
            "the request came through a proxy (it has the header {header}), and this server asks nobody for a token: \
             set auth = \"on\" in nuncio.toml and make tokens (nuncio token create), or name the proxy in \
             trusted-proxies if everybody who reaches it may use the agents"
        ))
    }

    /// Charges a request of any method to the caller's rate limit, or returns when to retry. If the caller's
    /// tenant uses more than its share of the processor, the request waits. The operator's requests never wait.
    pub(crate) async fn admit_request(&self, caller: &Caller) -> Result<(), Error> {
        if caller.is_local() {
            return Ok(());
        }
        self.request_rate.take(caller)?;
        self.engine.cpu().admit(caller.owner()).await;
        Ok(())
    }

    /// Refuses a caller without any grant, so that it holds no session and no stream.
    pub(crate) fn check_any_grant(&self, caller: &Caller) -> Result<(), Error> {
        let may = |kind| Action::ALL.into_iter().any(|action| caller.grants().allow_some(action, kind));
        match AccessKind::ALL.into_iter().any(may) {
            true => Ok(()),
            false => Err(Error::Forbidden("read:a2a".into())),
        }
    }

    /// Reserves a slot for one more stream of that caller.
    pub(crate) fn reserve_stream_slot(&self, caller: &Caller) -> Result<StreamSlot, Error> {
        self.check_any_grant(caller)?;
        self.streams.reserve_slot(caller)
    }

    /// The streams that are open on this node.
    pub(crate) fn streams(&self) -> &OpenStreams {
        &self.streams
    }

    pub(crate) fn open_streams(&self) -> usize {
        self.streams.count_open()
    }
}

/// Whether the request comes from a process of the server's own user and carries no other credentials. Such a
/// process could read the folder's secret. It may also be a proxy, so it must present the secret to administer.
fn is_own_process(headers: &HeaderMap, peer: &ConnectionPeer) -> bool {
    peer.is_own_user()
        && !headers.contains_key(header::AUTHORIZATION)
        && proxies::forwarding_header(headers).is_none()
}

/// All routes that are served at one address.
pub(crate) struct Site {
    app: Arc<App>,
    router: Router,
}

impl Site {
    pub(crate) fn new(app: App) -> Self {
        let app = Arc::new(app);
        let router = Router::new()
            .route("/", any(root).get(cards::index))
            .route("/agents/{name}", any(jsonrpc::named).get(cards::named))
            .route("/agents/{name}/", any(jsonrpc::named).get(cards::named))
            .route("/.well-known/agent-card.json", get(cards::root))
            .route("/.well-known/agent.json", get(cards::root_legacy))
            .route("/agents/{name}/.well-known/agent-card.json", get(cards::named))
            .route("/agents/{name}/.well-known/agent.json", get(cards::named_legacy))
            .route(KEY_SET_PATH, get(cards::key_set))
            .route("/mcp", any(mcp_endpoint))
            .route("/agents/{name}/mcp", any(mcp_endpoint))
            .route("/sse", get(mcp::sse::open))
            .route("/messages", post(mcp::sse::message))
            .route("/schemas/{name}", get(schema))
            .route("/authorizations/{ticket}", get(authorizations::show).post(authorizations::complete))
            .route("/healthz", get(health::alive))
            .route("/readyz", get(health::ready))
            .route("/metrics", get(health::metrics))
            .route("/admin/dead-letters", get(admin::dead_letters))
            .route("/admin/dead-letters/replay", post(admin::replay))
            .route("/admin/tokens", get(admin::tokens).post(admin::create_token))
            .route("/admin/tokens/{id}", delete(admin::revoke_token))
            .route("/admin/audit", get(admin::audit))
            .route("/admin/card-keys", get(admin::card_keys::list).post(admin::card_keys::create))
            .route("/admin/card-keys/rotate", post(admin::card_keys::rotate))
            .route("/admin/card-keys/{kid}", delete(admin::card_keys::retire))
            .route("/admin/webhook-key", get(admin::webhooks::show))
            .route("/admin/webhook-key/rotate", post(admin::webhooks::rotate))
            .route("/admin/tasks", get(admin::tasks::list))
            .route("/admin/tasks/{id}", get(admin::tasks::get).delete(admin::tasks::delete))
            .route("/admin/tasks/{id}/cancel", post(admin::tasks::cancel))
            .route("/admin/tasks/{id}/authorize", post(admin::tasks::authorize))
            .route("/admin/tenants", get(admin::tenants::list))
            .route("/admin/tenants/{name}", get(admin::tenants::get))
            .route("/admin/tenants/{name}/suspend", post(admin::tenants::suspend))
            .route("/admin/tenants/{name}/resume", post(admin::tenants::resume))
            .route("/admin/tenants/{name}/erase", post(admin::tenants::erase))
            .route("/admin/tenants/{name}/export", get(admin::tenants::export))
            .route("/.well-known/oauth-protected-resource", get(resource_metadata))
            .route("/.well-known/oauth-protected-resource/mcp", get(mcp_metadata))
            .route("/.well-known/oauth-protected-resource/agents/{name}/mcp", get(agent_mcp_metadata))
            .fallback(not_found)
            .method_not_allowed_fallback(method_not_allowed)
            .with_state(Arc::clone(&app));
        Self { app, router }
    }

    pub(crate) async fn answer(
        &self,
        mut request: Request<Incoming>,
        peer: &ConnectionPeer,
    ) -> Response<Body> {
        if let Some(base_path) = &self.app.base_path {
            base_path.remove_from(&mut request);
        }
        let began = Instant::now();
        let is_get = request.method() == Method::GET;
        let is_grpc = grpc::is_grpc(request.headers());
        let path = request.uri().path();
        let rest = RestRoute::parse(path).filter(|_| !is_grpc);
        let route = HttpRoute::of(path, is_grpc, rest.as_ref());
        let called = is_grpc.then(|| grpc::metrics::method_label(path));
        let metrics = &self.app.http_metrics;
        let logged = metrics.logs_access().then(|| (request.method().clone(), path.to_owned()));
        let form = rest.as_ref().map(|route| RestForm::new(route, request.headers()));
        let client = proxies::client_of(&self.app.options.trusted_proxies, peer, request.headers());
        let seen = client.as_ref().unwrap_or(peer);
        let mut response = match self.app.refuse_proxied(request.headers(), peer) {
            Some(message) => {
                count_refusal("trusted-proxies");
                responses::refuse(&HttpRefusal { status: StatusCode::FORBIDDEN, message })
            }
            None => self.answer_page(request, rest, seen).await,
        };
        if let Some(form) = form {
            response = form.apply(response);
        }
        if let Some(method) = called {
            response = grpc::metrics::count(grpc::finish(response), method);
        }
        protect(response.headers_mut(), is_get);
        let took = began.elapsed();
        metrics.record(route, response.status(), took);
        if let Some(logged) = &logged {
            log_access(route, logged, seen, response.status(), took);
        }
        response
    }

    /// Answers a request whose peer is known, including cross-origin requests of browser pages.
    async fn answer_page(
        &self,
        request: Request<Incoming>,
        rest: Option<RestRoute>,
        peer: &ConnectionPeer,
    ) -> Response<Body> {
        // Without CORS: its pages are served here, and no others may read its answers.
        if Console::path_of(request.uri().path()).is_some() {
            if let Some(refused) = self.app.hosts.refuse(request.headers(), peer, false) {
                return refused.into_response();
            }
            return match &self.app.console {
                Some(console) => Box::pin(console.serve(&self.app, request, peer)).await,
                None => {
                    let message =
                        "this server has no console: its configuration says console = \"off\"".into();
                    responses::refuse(&HttpRefusal { status: StatusCode::NOT_FOUND, message })
                }
            };
        }
        let Some(cors) = &self.app.cors else { return self.answer_here(request, rest, peer, false).await };
        let Some(origin) = cors.allowed(request.headers()) else {
            return self.answer_here(request, rest, peer, false).await;
        };
        let mut response = match cors.preflight(&request) {
            Some(preflight) if self.app.hosts.refuse(request.headers(), peer, true).is_none() => preflight,
            _ => self.answer_here(request, rest, peer, true).await,
        };
        cors.mark(&mut response, origin);
        response
    }

    async fn answer_here(
        &self,
        mut request: Request<Incoming>,
        rest: Option<RestRoute>,
        peer: &ConnectionPeer,
        origin_allowed: bool,
    ) -> Response<Body> {
        if let Some(refused) = self.app.hosts.refuse(request.headers(), peer, origin_allowed) {
            // A probe names the address of a pod or a machine.
            if let Some(answer) = health::answer_any_host(&self.app, &request).await {
                return answer;
            }
            if !grpc::is_health(&request) || request.headers().contains_key(header::ORIGIN) {
                return refused.into_response();
            }
        }
        if grpc::is_grpc(request.headers()) {
            return Box::pin(grpc::serve(&self.app, request, peer)).await;
        }
        // The hot path: the router's boxes and clones cost as much as a small task does.
        if request.method() == Method::POST && request.uri().path() == "/" {
            return jsonrpc::root(&self.app, request, peer).await;
        }
        if request.method() == Method::POST && request.uri().path() == "/mcp" {
            return mcp::http::serve(&self.app, request, peer).await;
        }
        if let Some(route) = rest {
            return Box::pin(rest::serve(&self.app, route, request, peer)).await;
        }
        if self.app.options.private_cards
            && request.method() == Method::GET
            && cards::is_card_path(request.uri().path())
            && let Err(error) = self.app.known_caller(request.headers(), peer, request.uri().path()).await
        {
            let message = "cards are shown to known callers alone (cards = \"private\"): show a token";
            let refusal = HttpRefusal { status: StatusCode::UNAUTHORIZED, message: message.into() };
            let mut response = responses::refuse(&refusal);
            self.app.challenge.refuse(&mut response, "", &error);
            return response;
        }
        request.extensions_mut().insert(peer.clone());
        let answered = self.router.clone().oneshot(request.map(Body::new)).await;
        answered.unwrap_or_else(|never| match never {})
    }
}

/// Sets the headers that stop browsers and caches from sniffing another type, framing the page, or caching it.
fn protect(headers: &mut HeaderMap, is_get: bool) {
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    // Only on responses that a browser can be led to display.
    if is_get {
        let policy = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
        headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(policy);
        headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    }
}

/// The peer of the connection that a request arrived on.
pub(crate) fn peer_of<B>(request: &Request<B>) -> ConnectionPeer {
    request.extensions().get::<ConnectionPeer>().cloned().unwrap_or_else(ConnectionPeer::unknown)
}

async fn resource_metadata(State(app): State<Arc<App>>) -> Response<Body> {
    metadata_of(&app, "").await
}

async fn mcp_metadata(State(app): State<Arc<App>>) -> Response<Body> {
    metadata_of(&app, "/mcp").await
}

/// The same for the endpoint of one agent, whether there is such an agent or not: a caller without a token does not
/// learn which agents there are.
async fn agent_mcp_metadata(State(app): State<Arc<App>>, Path(name): Path<String>) -> Response<Body> {
    match McpEndpoint::path_of_agent(&name) {
        Some(path) => metadata_of(&app, &path).await,
        None => not_found().await,
    }
}

/// RFC 9728: the metadata that names where clients get a token for the resource at that path.
async fn metadata_of(app: &App, path: &str) -> Response<Body> {
    match &app.options.authenticator {
        Some(authenticator) => {
            responses::json(app.challenge.metadata(path, &authenticator.issuers()).to_string())
        }
        None => not_found().await,
    }
}

async fn root(State(app): State<Arc<App>>, request: Request<Body>) -> Response<Body> {
    let peer = peer_of(&request);
    jsonrpc::root(&app, request, &peer).await
}

async fn mcp_endpoint(State(app): State<Arc<App>>, request: Request<Body>) -> Response<Body> {
    let peer = peer_of(&request);
    mcp::http::serve(&app, request, &peer).await
}

/// Serves a JSON Schema that the surface publishes.
async fn schema(State(app): State<Arc<App>>, Path(file): Path<String>) -> Response<Body> {
    let named = file.strip_suffix(".json").and_then(|name| app.engine.catalog().surface().schema(name));
    match named {
        Some(schema) => responses::json(schema.to_string()),
        None => not_found().await,
    }
}

pub(crate) async fn not_found() -> Response<Body> {
    let message = "there is nothing here: agents are at / and /agents/{name}, MCP at /mcp and /agents/{name}/mcp, \
                   cards at /.well-known/agent-card.json, health at /healthz and /readyz";
    responses::refuse(&HttpRefusal { status: StatusCode::NOT_FOUND, message: message.into() })
}

async fn method_not_allowed() -> Response<Body> {
    let message = "this address has another method: the Allow header of this answer names it";
    responses::refuse(&HttpRefusal { status: StatusCode::METHOD_NOT_ALLOWED, message: message.into() })
}
