//! The A2A binding over JSON-RPC, written once; the dialect is chosen per request.
//!
//! Wire in, `read_call`, one engine call, `write_…`, wire out. `nuncio_wire::a2a` holds the differences between
//! the protocol generations; this module carries a call over HTTP.

use std::{borrow::Cow, sync::Arc, time::Duration};

use axum::{
    BoxError,
    body::{Body, Bytes, HttpBody},
    extract::{Path, State},
    http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header, request::Parts},
};
use nuncio_engine::{
    Caller, Error, List, Reply, Submit, Task, catalog::RegisteredAgent, error::whole_seconds,
    webhook::WebhookConfig,
};
use nuncio_wire::{
    a2a::{
        A2aCall, A2aFault, A2aProblem, Dialect, DialectChoice, SendMessage, TaskDetail, TaskListPage,
        card::LOG_EXTENSION, choose_dialect,
    },
    jsonrpc::{self, RpcId},
    sse,
};

use crate::{
    app::{App, peer_of},
    auth::{self, AuthError, ConnectionPeer},
    charged_body::{self, charge_response},
    request_checks::{self, HttpRefusal},
    stream::{A2aEventStream, EXTENSIONS, StreamStart, event_stream},
};

/// The id of a webhook that was set without one: setting it again replaces it.
const DEFAULT_WEBHOOK: &str = "default";

/// Bytes that are read of an unauthenticated request, for its id and its dialect.
const GLANCE: usize = 64 * 1024;

/// The endpoint of the default agent.
pub(crate) async fn root<B>(app: &Arc<App>, request: Request<B>, peer: &ConnectionPeer) -> Response<Body>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    match app.engine.catalog().default_agent() {
        Some(agent) => serve(app, &agent, request, peer).await,
        None => refuse(&HttpRefusal {
            status: StatusCode::NOT_FOUND,
            message: "this server has no agents".into(),
        }),
    }
}

/// The endpoint of the agent of that name.
pub(crate) async fn named(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    request: Request<Body>,
) -> Response<Body> {
    let peer = peer_of(&request);
    match app.engine.catalog().get(&name) {
        Ok(agent) => serve(&app, &agent, request, &peer).await,
        Err(error) => refuse(&HttpRefusal { status: StatusCode::NOT_FOUND, message: error.to_string() }),
    }
}

async fn serve<B>(
    app: &Arc<App>,
    agent: &RegisteredAgent,
    request: Request<B>,
    peer: &ConnectionPeer,
) -> Response<Body>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let limits = &app.options.limits;
    let (parts, body) = request.into_parts();
    let headers = &parts.headers;
    if parts.method != Method::POST {
        let message = "an A2A endpoint takes POST requests with a JSON-RPC body".into();
        let mut response = refuse(&HttpRefusal { status: StatusCode::METHOD_NOT_ALLOWED, message });
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET,HEAD,POST"));
        return response;
    }
    if !request_checks::is_json(headers) {
        let message = "the Content-Type of a request is application/json".into();
        return refuse(&HttpRefusal { status: StatusCode::UNSUPPORTED_MEDIA_TYPE, message });
    }
    // Authenticated before any of the body is read.
    let caller = match app.caller(headers, peer, parts.uri.path()).await {
        Ok(caller) => caller,
        Err(error) => {
            let body = request_checks::take_arrived_body(headers, body, limits.max_body_bytes.min(GLANCE));
            return unauthenticated(app, headers, body.as_deref(), &error);
        }
    };
    if let Err(error) = app.admit_request(&caller).await {
        return refuse_busy(&error);
    }
    let served = serve_caller(app, agent, &parts, peer, body, caller.clone());
    let response = app.engine.cpu().meter(caller.owner(), served).await;
    charge_response(&app.engine, &caller, response)
}

async fn serve_caller<B>(
    app: &Arc<App>,
    agent: &RegisteredAgent,
    parts: &Parts,
    peer: &ConnectionPeer,
    body: B,
    caller: Caller,
) -> Response<Body>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let (limits, headers) = (&app.options.limits, &parts.headers);
    let (body, permit) = match charged_body::read_body(&app.engine, &caller, headers, body, limits).await {
        Ok(read) => read,
        Err(refusal) => return *refusal,
    };
    let request = match jsonrpc::parse_request(&body, limits.max_json_depth) {
        Ok(request) => request,
        Err(error) => {
            let mut out = Vec::new();
            jsonrpc::write_error(&mut out, error.id.as_ref(), error.code(), &error.message, None);
            return json(out);
        }
    };
    let in_query = || parts.uri.query().and_then(version_in_query).map(Cow::Borrowed);
    let version = header_text(headers, "a2a-version").or_else(in_query);
    // A client that omits the id waits for a response all the same: over HTTP every request has one.
    let id = request.id.clone().unwrap_or_else(RpcId::null);
    let exchange = A2aExchange { app, agent, headers, peer, caller, id };
    let choice = match choose_dialect(version.as_deref(), &request.method) {
        Ok(choice) => choice,
        Err(unchosen) => return exchange.fault(unchosen.dialect, &unchosen.fault),
    };
    let dialect = match choice {
        DialectChoice::Fixed(dialect) => dialect,
        DialectChoice::ByTask => match exchange.dialect_of_task(&request).await {
            Ok(dialect) => dialect,
            Err(error) => return exchange.error(Dialect::V0_3, &error),
        },
    };
    let call = dialect.read_call(&request.method, request.params);
    // Freed early: the response may take long, and no longer needs it.
    drop(request);
    drop((body, permit));
    match call {
        Ok(call) => exchange.answer(dialect, call).await,
        Err(fault) => exchange.fault(dialect, &fault),
    }
}

/// The response to an unauthenticated request, with its id and in its dialect if they can be read.
fn unauthenticated(app: &App, headers: &HeaderMap, body: Option<&[u8]>, error: &AuthError) -> Response<Body> {
    let request = body.and_then(|body| jsonrpc::parse_request(body, app.options.limits.max_json_depth).ok());
    let (method, id) = match &request {
        Some(request) => (&*request.method, request.id.clone().unwrap_or_else(RpcId::null)),
        None => ("", RpcId::null()),
    };
    let dialect = match choose_dialect(header_text(headers, "a2a-version").as_deref(), method) {
        Ok(choice) => choice.resolve(None),
        Err(unchosen) => unchosen.dialect,
    };
    let problem = match error {
        AuthError::Unavailable(_) => A2aProblem::Unavailable,
        AuthError::Suspended(_) => A2aProblem::Forbidden,
        AuthError::Missing | AuthError::Invalid(_) => A2aProblem::Unauthenticated,
    };
    let mut out = Vec::new();
    dialect.write_fault(&mut out, Some(&id), &dialect.problem(problem, auth::message(error)));
    let mut response = json(out);
    app.challenge.refuse(&mut response, "", error);
    response
}

/// One request and the context of its response.
struct A2aExchange<'a> {
    app: &'a Arc<App>,
    agent: &'a RegisteredAgent,
    headers: &'a HeaderMap,
    peer: &'a ConnectionPeer,
    caller: Caller,
    id: RpcId,
}

impl A2aExchange<'_> {
    /// Chooses the dialect of `tasks/get` and the like without a version: 0.1 if the task was created in it,
    /// otherwise 0.3.
    async fn dialect_of_task(&self, request: &jsonrpc::RpcRequest<'_>) -> Result<Dialect, Error> {
        // Both dialects name the task in the same place; the chosen one reports any other error.
        let call = Dialect::V0_1.read_call(&request.method, request.params);
        let Ok(A2aCall::Get { task, .. } | A2aCall::Cancel { task, .. } | A2aCall::Subscribe { task }) = call
        else {
            return Ok(DialectChoice::ByTask.resolve(None));
        };
        match self.app.engine.origin(&self.caller, &task).await {
            Ok(origin) => Ok(DialectChoice::ByTask.resolve(Some(&origin.dialect))),
            Err(Error::NoSuchTask(_)) => Ok(DialectChoice::ByTask.resolve(None)),
            Err(error) => Err(error),
        }
    }

    async fn answer(&self, dialect: Dialect, call: A2aCall) -> Response<Body> {
        let streams = matches!(call, A2aCall::Stream(_) | A2aCall::Subscribe { .. });
        // Boxed separately, so that the future of a small call is not as large as the largest: it is moved more
        // than once on its way into the connection.
        let answered = match call {
            A2aCall::Get { task, history_length } => {
                self.get(dialect, &task, TaskDetail::history(history_length)).await
            }
            A2aCall::Send(send) => Box::pin(self.send(dialect, *send)).await,
            A2aCall::Stream(send) => Box::pin(self.stream(dialect, *send)).await,
            A2aCall::Subscribe { task } => Box::pin(self.subscribe(dialect, &task)).await,
            A2aCall::ExtendedCard => {
                let message = "this agent has no extended card";
                return self.fault(dialect, &dialect.problem(A2aProblem::ExtendedCardUnsupported, message));
            }
            call => Box::pin(self.handle_task_call(dialect, call)).await,
        };
        match answered {
            Ok(response) => response,
            // The official 0.3 client reports a plain JSON body as an opaque error, so the error is sent as an
            // event. An error with its own HTTP status is not.
            Err(error) if streams && dialect == Dialect::V0_3 && !has_status(&error) => {
                let mut out = Vec::new();
                sse::write_numbered_event(&mut out, None, |out| {
                    dialect.write_fault(out, Some(&self.id), &fault_of(dialect, &error));
                });
                event_stream(Body::from(out))
            }
            Err(error) => self.error(dialect, &error),
        }
    }

    async fn get(&self, dialect: Dialect, task: &str, view: TaskDetail) -> Result<Response<Body>, Error> {
        let task = self.app.engine.get(&self.caller, task).await?;
        let mut out = Vec::with_capacity(1024);
        self.result(&mut out, |out| dialect.write_task(out, &task, view));
        Ok(json(out))
    }

    async fn send(&self, dialect: Dialect, send: SendMessage) -> Result<Response<Body>, Error> {
        let (blocking, view) = (send.blocking, TaskDetail::history(send.history_length));
        let mut task = self.submit_message(dialect, send).await?;
        if blocking {
            task = self.app.engine.wait_until_idle(&self.caller, task).await?;
        }
        let mut out = Vec::with_capacity(1024);
        self.result(&mut out, |out| dialect.write_sent(out, &task, view));
        Ok(json(out))
    }

    /// The calls about tasks: cancel, list, webhooks.
    async fn handle_task_call(&self, dialect: Dialect, call: A2aCall) -> Result<Response<Body>, Error> {
        let engine = &self.app.engine;
        let mut out = Vec::with_capacity(1024);
        match call {
            A2aCall::Cancel { task, .. } => {
                let task = engine.cancel(&self.caller, &task).await?;
                self.result(&mut out, |out| dialect.write_task(out, &task, TaskDetail::default()));
            }
            A2aCall::List(list) => {
                let view =
                    TaskDetail { history_length: list.history_length, artifacts: list.include_artifacts };
                let page_size = list.page_size;
                let query = List {
                    context: list.context,
                    state: list.state,
                    agent: None,
                    since: list.since,
                    page_token: list.page_token,
                    page_size,
                    without_artifacts: !list.include_artifacts,
                    history: list.history_length,
                };
                let listed = engine.list(&self.caller, query).await?;
                let next = listed.next_page_token.as_deref();
                let page = TaskListPage { tasks: &listed.tasks, view, page_size, total: listed.total, next };
                self.result(&mut out, |out| dialect.write_list(out, &page));
            }
            A2aCall::SetWebhook { task, config } => {
                let config = engine.put_webhook(&self.caller, &task, named_webhook(config)).await?;
                self.result(&mut out, |out| dialect.write_webhook(out, &task, &config));
            }
            A2aCall::GetWebhook { task, id } => {
                let config = engine.webhook(&self.caller, &task, id.as_deref()).await?;
                self.result(&mut out, |out| dialect.write_webhook(out, &task, &config));
            }
            A2aCall::ListWebhooks { task, page_size, page_token } => {
                let configs = engine.webhooks(&self.caller, &task).await?;
                let (page, next) = page_of(&configs, page_size, page_token.as_deref());
                self.result(&mut out, |out| dialect.write_webhooks(out, &task, page, next));
            }
            A2aCall::DeleteWebhook { task, id } => {
                engine.delete_webhook(&self.caller, &task, &id).await?;
                self.result(&mut out, |out| dialect.write_deleted(out));
            }
            A2aCall::Get { .. }
            | A2aCall::Send(_)
            | A2aCall::Stream(_)
            | A2aCall::Subscribe { .. }
            | A2aCall::ExtendedCard => {
                return Err(Error::Internal("a call that is answered elsewhere".into()));
            }
        }
        Ok(json(out))
    }

    /// Submits a message to the engine: for a new task, or for one that exists.
    async fn submit_message(&self, dialect: Dialect, send: SendMessage) -> Result<Task, Error> {
        let webhooks: Vec<WebhookConfig> = send.webhook.map(named_webhook).into_iter().collect();
        let idempotency_key = self.idempotency_key()?;
        if let Some(task) = send.task_id {
            let (context, message) = (send.context_id, send.message);
            let reply = Reply { task, context, message, idempotency_key, webhooks };
            return self.app.engine.reply(&self.caller, reply).await;
        }
        let mut submit = Submit::new(&self.agent.profile.name, send.message);
        submit.context = send.context_id;
        submit.client_id = send.client_task_id;
        submit.metadata = send.metadata;
        submit.dialect = dialect.name().to_owned();
        submit.idempotency_key = idempotency_key;
        submit.webhooks = webhooks;
        submit.accepted_output_modes = send.accepted_output_modes;
        submit.trace = header_text(self.headers, "traceparent").map(Cow::into_owned);
        self.app.engine.submit(&self.caller, submit).await
    }

    async fn stream(&self, dialect: Dialect, send: SendMessage) -> Result<Response<Body>, Error> {
        self.check_streaming()?;
        // Reserved before the message is submitted: a refusal must not leave a task behind.
        let place = self.app.reserve_stream_slot(&self.caller)?;
        let follow_up = send.task_id.is_some();
        let task = self.submit_message(dialect, send).await?;
        let existed = follow_up || task.history.len() > 1;
        let (name, after) = (task.origin.id.to_string(), if existed { task.seq } else { 0 });
        let follower = self.app.engine.follow(&self.caller, &name, after).await?;
        let stream = A2aEventStream {
            dialect,
            id: self.id.clone(),
            origin: task.origin.clone(),
            follower,
            begin: if existed { StreamStart::Current(Arc::new(task)) } else { StreamStart::Birth },
            one_turn: true,
            logs: self.wants_logs(),
            keep_alive: self.app.options.limits.keep_alive,
            live: place.open(&self.caller, "a2a", self.headers),
            recheck: self.app.start_recheck(self.headers, self.peer),
        };
        Ok(stream.respond())
    }

    async fn subscribe(&self, dialect: Dialect, name: &str) -> Result<Response<Body>, Error> {
        self.check_streaming()?;
        let place = self.app.reserve_stream_slot(&self.caller)?;
        let engine = &self.app.engine;
        let (origin, after, begin) = match self.last_event_id()? {
            Some(cursor) => (engine.origin(&self.caller, name).await?, cursor, StreamStart::Nothing),
            None => {
                let task = engine.get(&self.caller, name).await?;
                if task.state.is_terminal() && dialect == Dialect::V1 {
                    return Err(Error::Unsupported(format!(
                        "the task has ended ({:?}): get it, or resume its stream with Last-Event-ID",
                        task.state
                    )));
                }
                (task.origin.clone(), task.seq, StreamStart::Current(task))
            }
        };
        let stream = A2aEventStream {
            dialect,
            id: self.id.clone(),
            origin,
            follower: engine.follow(&self.caller, name, after).await?,
            begin,
            one_turn: false,
            logs: self.wants_logs(),
            keep_alive: self.app.options.limits.keep_alive,
            live: place.open(&self.caller, "a2a", self.headers),
            recheck: self.app.start_recheck(self.headers, self.peer),
        };
        Ok(stream.respond())
    }

    fn check_streaming(&self) -> Result<(), Error> {
        match self.agent.profile.streaming {
            true => Ok(()),
            false => Err(Error::StreamingUnsupported),
        }
    }

    /// Whether the request activates the extension for log messages.
    fn wants_logs(&self) -> bool {
        let named = self.headers.get_all(EXTENSIONS).iter().filter_map(|value| value.to_str().ok());
        named.flat_map(|value| value.split(',')).any(|uri| uri.trim() == LOG_EXTENSION)
    }

    /// The cursor after which a stream continues.
    fn last_event_id(&self) -> Result<Option<u64>, Error> {
        let Some(id) = header_text(self.headers, "last-event-id").filter(|id| !id.is_empty()) else {
            return Ok(None);
        };
        match id.parse() {
            Ok(cursor) => Ok(Some(cursor)),
            Err(_) => {
                Err(Error::Invalid(format!("Last-Event-ID: {id:?} is not an id of this server's events")))
            }
        }
    }

    /// The idempotency key of a send. An invalid key is refused: without it a repeat would create a second
    /// task, or answer another question.
    fn idempotency_key(&self) -> Result<Option<String>, Error> {
        match self.headers.get("idempotency-key").map(HeaderValue::to_str) {
            None => Ok(None),
            Some(Ok(key)) if !key.is_empty() => Ok(Some(format!("key:{key}"))),
            Some(_) => {
                Err(Error::Invalid("Idempotency-Key: expected printable ASCII, for example a UUID".into()))
            }
        }
    }

    fn result(&self, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
        jsonrpc::write_result(out, &self.id, write);
    }

    fn error(&self, dialect: Dialect, error: &Error) -> Response<Body> {
        let mut response = self.fault(dialect, &fault_of(dialect, error));
        let (status, retry_after) = match error {
            Error::Busy { retry_after, .. } => (StatusCode::SERVICE_UNAVAILABLE, retry_after),
            Error::TooFast { retry_after, .. } => (StatusCode::TOO_MANY_REQUESTS, retry_after),
            Error::Forbidden(scope) | Error::NotOperator(scope) => {
                self.app.challenge.forbid(&mut response, "", scope);
                return response;
            }
            Error::Suspended(..) => {
                *response.status_mut() = StatusCode::FORBIDDEN;
                return response;
            }
            _ => return response,
        };
        *response.status_mut() = status;
        response.headers_mut().insert(header::RETRY_AFTER, whole_seconds(*retry_after).into());
        response
    }

    fn fault(&self, dialect: Dialect, fault: &A2aFault) -> Response<Body> {
        let mut out = Vec::new();
        dialect.write_fault(&mut out, Some(&self.id), fault);
        json(out)
    }
}

/// Whether an error also sets the HTTP status of the response.
fn has_status(error: &Error) -> bool {
    matches!(
        error,
        Error::Busy { .. }
            | Error::TooFast { .. }
            | Error::Forbidden(_)
            | Error::NotOperator(_)
            | Error::Suspended(..)
    )
}

/// Renders an engine error for the caller; an internal error is also logged for the operator.
pub(crate) fn fault_of(dialect: Dialect, error: &Error) -> A2aFault {
    if let Error::Internal(why) = error {
        tracing::error!(%why, "a request failed with an internal error");
    }
    dialect.fault(error)
}

/// A header as text. Invalid bytes are shown as such, so that the value is refused and not ignored.
fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> Option<Cow<'a, str>> {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()))
}

fn named_webhook(mut config: WebhookConfig) -> WebhookConfig {
    if config.id.is_empty() {
        config.id = DEFAULT_WEBHOOK.to_owned();
    }
    config
}

/// A page of webhooks; the token is the last id of the previous page. There are few enough to cut here.
fn page_of<'a>(
    configs: &'a [WebhookConfig],
    size: Option<usize>,
    token: Option<&str>,
) -> (&'a [WebhookConfig], Option<&'a str>) {
    let start = match token.filter(|token| !token.is_empty()) {
        Some(token) => configs.partition_point(|config| config.id.as_str() <= token),
        None => 0,
    };
    let rest = &configs[start..];
    let size = size.filter(|size| *size > 0).unwrap_or(rest.len()).min(rest.len());
    let next = (size < rest.len()).then(|| rest[size - 1].id.as_str());
    (&rest[..size], next)
}

fn version_in_query(query: &str) -> Option<&str> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| key.eq_ignore_ascii_case("a2a-version")).map(|(_, value)| value)
}

/// A JSON response.
pub(crate) fn json(body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::from(body.into()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The response to a request that exceeds a capacity or rate limit, before any of it was read.
pub(crate) fn refuse_busy(error: &Error) -> Response<Body> {
    let (status, after) = match error {
        Error::TooFast { retry_after, .. } => (StatusCode::TOO_MANY_REQUESTS, *retry_after),
        Error::Busy { retry_after, .. } => (StatusCode::SERVICE_UNAVAILABLE, *retry_after),
        _ => (StatusCode::SERVICE_UNAVAILABLE, Duration::from_secs(1)),
    };
    let mut response = refuse(&HttpRefusal { status, message: error.to_string() });
    response.headers_mut().insert(header::RETRY_AFTER, whole_seconds(after).into());
    response
}

/// The response to a request that was refused unread, with a body that JSON-RPC clients can parse.
pub(crate) fn refuse(refusal: &HttpRefusal) -> Response<Body> {
    let mut out = Vec::new();
    jsonrpc::write_error(&mut out, None, jsonrpc::INVALID_REQUEST, &refusal.message, None);
    let mut response = json(out);
    *response.status_mut() = refusal.status;
    response
}
