//! The Streamable HTTP transport in both of its forms: with sessions (2025-03-26 to 2025-11-25) and stateless
//! (2026-07-28).
//!
//! The server's endpoint and those of single agents are served alike; [`McpEndpoint`] is the difference.
//! A request that names its revision, in a header or in its `_meta`, is stateless; any other opens a session or
//! belongs to one.

use std::{borrow::Cow, convert::Infallible, sync::Arc};

use axum::{
    BoxError,
    body::{Body, Bytes, HttpBody},
    http::{
        HeaderMap, HeaderValue, Method, Request as HttpRequest, Response as HttpResponse, StatusCode, header,
    },
};
use futures_util::{
    StreamExt,
    stream::{self, BoxStream},
};
use nuncio_engine::{Caller, error::whole_seconds};
use nuncio_wire::{
    jsonrpc::{self, RpcId, RpcMessage, RpcMessages},
    mcp::{
        ClientCapabilities, FORBIDDEN, InitializeParams, McpFault, McpVersion, RequestMeta, read_meta,
        read_params,
    },
    sse,
};
use serde::Deserialize;
use tokio::time::Instant;

use super::{
    Mcp, McpEndpoint,
    call_stream::{CallStream, McpFrame},
    client::{McpClient, info_of},
    dispatch::{McpReply, McpRequest, McpResponse, null_id},
    header_match,
    listen::ListenStream,
};
use crate::{
    app::App,
    auth::{self, ConnectionPeer},
    charged_body::{self, charge_response},
    open_streams::{STREAM_ID, StreamSlot, params_of, type_of},
    request_checks::{self, HttpRefusal},
    responses,
    responses::event_stream,
};

const SESSION: &str = "mcp-session-id";
const VERSION: &str = "mcp-protocol-version";

/// Answers a request at an MCP endpoint.
pub(crate) async fn serve<B>(
    app: &Arc<App>,
    request: HttpRequest<B>,
    peer: &ConnectionPeer,
) -> HttpResponse<Body>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let (parts, body) = request.into_parts();
    if !matches!(parts.method, Method::POST | Method::GET | Method::DELETE) {
        let message = "the MCP endpoint takes POST, GET and DELETE".into();
        let mut response =
            responses::refuse(&HttpRefusal { status: StatusCode::METHOD_NOT_ALLOWED, message });
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET,POST,DELETE"));
        return response;
    }
    // Authenticated before any of the body is read.
    let caller = match app.caller(&parts.headers, peer, parts.uri.path()).await {
        Ok(caller) => caller,
        Err(error) => {
            let mut response = responses::json(McpResponse::fault(None, auth::fault(&error)).body);
            app.challenge.refuse(&mut response, &McpEndpoint::protected_path(parts.uri.path()), &error);
            return response;
        }
    };
    if let Err(error) = app.admit_request(&caller).await {
        return responses::refuse_busy(&error);
    }
    let endpoint = match McpEndpoint::find(&app.mcp, &parts.uri, &caller) {
        Ok(endpoint) => endpoint,
        Err(refusal) => return responses::refuse(&refusal),
    };
    let caller = endpoint.limit(caller);
    let exchange = McpExchange { app, mcp: &app.mcp, headers: &parts.headers, peer, caller, endpoint };
    let answered = async {
        match parts.method {
            Method::POST => exchange.post(body).await,
            Method::GET => exchange.get().await,
            _ => exchange.delete().await,
        }
    };
    let answered = app.engine.cpu().meter(exchange.caller.owner(), answered).await;
    let response = answered.unwrap_or_else(|fault| exchange.respond(McpResponse::fault(None, fault)));
    charge_response(&app.engine, &exchange.caller, response)
}

/// The tool that a request calls, if it can be read.
fn tool_of<'a>(request: &jsonrpc::RpcRequest<'a>) -> Option<Cow<'a, str>> {
    #[derive(Deserialize)]
    struct Named<'a> {
        #[serde(borrow)]
        name: Cow<'a, str>,
    }
    let params = request.params.filter(|_| request.method == "tools/call")?;
    serde_json::from_str::<Named<'a>>(params.get()).ok().map(|named| named.name)
}

/// One HTTP request and its context.
pub(super) struct McpExchange<'a> {
    pub(super) app: &'a Arc<App>,
    pub(super) mcp: &'a Arc<Mcp>,
    headers: &'a HeaderMap,
    peer: &'a ConnectionPeer,
    caller: Caller,
    endpoint: McpEndpoint,
}

impl McpExchange<'_> {
    async fn post<B>(&self, body: B) -> Result<HttpResponse<Body>, McpFault>
    where
        B: HttpBody<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        let limits = &self.app.options.limits;
        if !request_checks::is_json(self.headers) {
            return Err(McpFault::invalid_request("the Content-Type of a request is application/json")
                .with_status(415));
        }
        let read = charged_body::read_body(&self.app.engine, &self.caller, self.headers, body, limits).await;
        let (body, _permit) = match read {
            Ok(read) => read,
            Err(refusal) => return Ok(*refusal),
        };
        let messages = match jsonrpc::parse_messages(&body, limits.max_json_depth) {
            Ok(messages) => messages,
            Err(error) => {
                let fault = McpFault::new(error.code(), error.message).with_status(400);
                return Ok(self.respond(McpResponse::fault(error.id.as_ref(), fault)));
            }
        };
        match messages {
            RpcMessages::One(RpcMessage::Request(request)) => self.request(request).await,
            RpcMessages::One(RpcMessage::Response(response)) => {
                let client = self.session().await?;
                self.mcp.handle_response(&client, response).await.map_err(|fault| match fault.status {
                    200 => fault.with_status(400),
                    _ => fault,
                })?;
                Ok(accepted())
            }
            RpcMessages::Batch(batch) => {
                let client = self.session().await?;
                if client.version != McpVersion::V2025_03_26 {
                    return Err(McpFault::invalid_request(
                        "batches are of 2025-03-26 alone: send one message at a time",
                    ));
                }
                self.batch(&client, batch).await
            }
        }
    }

    async fn request(&self, request: jsonrpc::RpcRequest<'_>) -> Result<HttpResponse<Body>, McpFault> {
        let meta = read_meta(request.params);
        let declared = self.header(VERSION);
        let said = meta.as_ref().ok().and_then(|meta| meta.version.as_deref());
        let modern = said.is_some()
            || declared.is_some_and(|name| McpVersion::parse(name).is_none_or(McpVersion::is_stateless));
        let id = request.id.clone();
        let answered =
            if modern { self.stateless(&request, meta).await } else { self.in_session(&request, meta).await };
        // A fault of the request is answered under its id.
        answered.or_else(|fault| Ok(self.respond(McpResponse::fault(id.as_ref(), fault))))
    }

    async fn stateless(
        &self,
        request: &jsonrpc::RpcRequest<'_>,
        meta: Result<RequestMeta, McpFault>,
    ) -> Result<HttpResponse<Body>, McpFault> {
        let meta = meta.map_err(|fault| fault.with_status(400))?;
        let client = McpClient::stateless(&self.caller, &self.endpoint, &meta)?;
        let subject = header_match::check_headers(self.headers, request, &meta)?;
        let client = client?;
        let Some(id) = request.id.clone().filter(|id| *id != RpcId::null()) else {
            if request.id.is_some() {
                return Err(null_id());
            }
            return Ok(accepted());
        };
        let tool = subject.as_deref().filter(|_| request.method == "tools/call");
        if let Some(tool) = tool {
            header_match::check_arguments(self.mcp.engine.catalog(), self.headers, tool, request.params)?;
        }
        let place = self.slot_if_streamed(tool)?.map(|place| place.of_client(client.info()));
        let request = McpRequest { id, method: &request.method, params: request.params, meta };
        let answered = self.mcp.answer(&client, request).await;
        self.answer(answered, place, None)
    }

    async fn in_session(
        &self,
        request: &jsonrpc::RpcRequest<'_>,
        meta: Result<RequestMeta, McpFault>,
    ) -> Result<HttpResponse<Body>, McpFault> {
        if request.method == "initialize" {
            let id = request
                .id
                .as_ref()
                .ok_or_else(|| McpFault::invalid_request("initialize: an id is wanted"))?;
            if *id == RpcId::null() {
                return Err(null_id());
            }
            return self.initialize(id, read_params(request.params)?).await;
        }
        let client = self.session().await?;
        let Some(id) = request.id.clone() else {
            self.mcp.handle_notification(&client, &request.method, request.params);
            return Ok(accepted());
        };
        if id == RpcId::null() {
            return Err(null_id());
        }
        let tool = tool_of(request);
        let place = self.slot_if_streamed(tool.as_deref())?.map(|place| place.of_client(client.info()));
        let request = McpRequest { id, method: &request.method, params: request.params, meta: meta? };
        let answered = self.mcp.answer(&client, request).await;
        self.answer(answered, place, client.session.as_ref().map(|session| session.id()))
    }

    async fn initialize(&self, id: &RpcId, params: InitializeParams) -> Result<HttpResponse<Body>, McpFault> {
        self.app.check_any_grant(&self.caller)?;
        let version = McpVersion::negotiate(&params.protocol_version);
        let capabilities = ClientCapabilities::read(&params.capabilities, version);
        let session = self
            .mcp
            .sessions
            .create(&self.caller, &self.endpoint, version, capabilities, info_of(&params.client_info))
            .await?;
        let mut response = self.respond(McpResponse::result(self.mcp.initialized(version, id)));
        // Always valid: the id consists of hexadecimal digits.
        if let Ok(value) = HeaderValue::from_str(session.id()) {
            response.headers_mut().insert(SESSION, value);
        }
        Ok(response)
    }

    /// The client of the session that the request names.
    async fn session(&self) -> Result<McpClient, McpFault> {
        if self.headers.get_all(SESSION).iter().count() > 1 {
            return Err(McpFault::invalid_request("there is more than one Mcp-Session-Id header"));
        }
        let Some(id) = self.header(SESSION) else {
            return Err(McpFault::invalid_request(
                "the request belongs to no session: begin with initialize and send Mcp-Session-Id from then on, \
                 or speak MCP 2026-07-28 with its headers",
            ));
        };
        let session = self.mcp.sessions.find(&self.caller, &self.endpoint, id).await?;
        let session = session.ok_or_else(|| {
            McpFault::invalid_request(
                "there is no such session at this endpoint, or it has ended: begin again with initialize",
            )
            .with_status(404)
        })?;
        let version = session.version();
        if let Some(name) = self.header(VERSION) {
            match McpVersion::parse(name) {
                Some(said) if said == version => {}
                // Before 2025-06-18 the header did not exist, and some clients send a fixed value.
                Some(_) if version < McpVersion::V2025_06_18 => {}
                Some(_) => {
                    return Err(McpFault::invalid_request(format!(
                        "MCP-Protocol-Version: the session speaks {}, not {name}",
                        version.name()
                    )));
                }
                None => return Err(McpFault::unsupported_version(name)),
            }
        }
        let capabilities = session.capabilities();
        let (caller, endpoint) = (self.caller.clone().over(version.dialect()), self.endpoint.clone());
        let session = Some(session);
        Ok(McpClient { version, caller, endpoint, capabilities, session, level: None, info: None })
    }

    /// Opens the session's own stream, or resumes a disconnected one.
    async fn get(&self) -> Result<HttpResponse<Body>, McpFault> {
        if self.header(SESSION).is_none() {
            let message = "GET belongs to a session: begin with initialize by POST. Clients of 2024-11-05 find \
                           their stream at /sse";
            let mut response = responses::refuse(&HttpRefusal {
                status: StatusCode::METHOD_NOT_ALLOWED,
                message: message.into(),
            });
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
            return Ok(response);
        }
        let client = self.session().await?;
        let accepts = self.header("accept").unwrap_or("*/*");
        if !accepts.contains("text/event-stream") && !accepts.contains("*/*") {
            return Err(
                McpFault::invalid_request("the stream is text/event-stream: accept it").with_status(406)
            );
        }
        let place = self.app.reserve_stream_slot(&self.caller)?;
        let place = place.of_client(client.info());
        let session = client.session.as_ref().map(|session| session.id().to_owned());
        let answered = match self.header("last-event-id").filter(|id| !id.is_empty()) {
            Some(cursors) if cursors.contains(',') => {
                return self.resume_batch(&client, cursors, place).await;
            }
            Some(cursor) => {
                McpReply::Call(CallStream::Task(Box::new(self.mcp.resume(&client, cursor).await?)))
            }
            None => McpReply::Listen(Box::new(self.mcp.listen_in_session(&client))),
        };
        self.answer(answered, Some(place), session.as_deref())
    }

    /// Ends a session: the calls it waits for are cancelled, its tasks continue.
    async fn delete(&self) -> Result<HttpResponse<Body>, McpFault> {
        let client = self.session().await?;
        if let Some(session) = &client.session {
            self.mcp.sessions.end(session).await?;
            self.mcp.cancel_calls(&client).await;
        }
        let mut response = HttpResponse::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        Ok(response)
    }

    /// Reserves the slot of a request that creates a task before the task exists: a refusal must not leave a
    /// task behind. Any other request reserves its slot when it becomes a stream; a list, a ping or a handshake
    /// needs none.
    fn slot_if_streamed(&self, tool: Option<&str>) -> Result<Option<StreamSlot>, McpFault> {
        match tool.is_some_and(|tool| self.mcp.engine.catalog().get(tool).is_ok()) {
            true => Ok(Some(self.app.reserve_stream_slot(&self.caller)?)),
            false => Ok(None),
        }
    }

    fn answer(
        &self,
        answered: McpReply,
        place: Option<StreamSlot>,
        session: Option<&str>,
    ) -> Result<HttpResponse<Body>, McpFault> {
        let begin = |place: Option<StreamSlot>| match place {
            Some(place) => Ok(place),
            None => self.app.reserve_stream_slot(&self.caller),
        };
        let mut response = match answered {
            McpReply::Now(response) if response.fault.is_none() && self.prefers_stream() => {
                let mut out = Vec::with_capacity(response.body.len() + 16);
                sse::write_event(&mut out, None, |out| out.extend_from_slice(&response.body));
                event_stream(Body::from(out))
            }
            McpReply::Now(response) => return Ok(self.respond(response)),
            McpReply::Call(call) => self.stream(McpStreamSource::Call(call), begin(place)?),
            McpReply::Listen(listen) => self.stream(McpStreamSource::Listen(listen), begin(place)?),
        };
        if let Some(Ok(session)) = session.map(HeaderValue::from_str) {
            response.headers_mut().insert(SESSION, session);
        }
        Ok(response)
    }

    pub(super) fn stream(&self, source: McpStreamSource, place: StreamSlot) -> HttpResponse<Body> {
        let keep_alive = self.app.options.limits.keep_alive;
        let live = place.open(&self.caller, source.kind(), self.headers);
        let name = live.header();
        let vigil = self.app.start_recheck(self.headers, self.peer);
        let frames = stream::unfold((source, live, vigil), move |(mut source, live, mut vigil)| async move {
            let quiet_until = Instant::now() + keep_alive;
            let next = tokio::select! {
                biased;
                () = vigil.wait_until_invalid() => return None,
                next = tokio::time::timeout_at(quiet_until, source.next()) => next,
            };
            let bytes = match next {
                Err(_) => Bytes::from_static(sse::KEEP_ALIVE),
                Ok(frame) => {
                    let frame = frame?;
                    if !frame.is_hint() {
                        let (task, seq) = frame.log_position();
                        let data = params_of(&frame.data);
                        live.record_event_with_data(type_of(&frame.data), task.as_ref(), seq, &data);
                    }
                    written(&frame).into()
                }
            };
            Some((Ok::<_, Infallible>(bytes), (source, live, vigil)))
        });
        let mut response = event_stream(Body::from_stream(frames));
        response.headers_mut().insert(STREAM_ID, name);
        response
    }

    /// Renders a complete response over HTTP.
    pub(super) fn respond(&self, response: McpResponse) -> HttpResponse<Body> {
        let fault = response.fault;
        let mut http = responses::json(response.body);
        let Some(fault) = fault else { return http };
        *http.status_mut() = StatusCode::from_u16(fault.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if let Some(after) = fault.retry_after {
            http.headers_mut().insert(header::RETRY_AFTER, whole_seconds(after).into());
        }
        if fault.code == FORBIDDEN {
            let scope =
                fault.data.as_ref().and_then(|data| data["requiredScope"].as_str()).unwrap_or_default();
            self.app.challenge.forbid(&mut http, &self.endpoint.path(), scope);
        }
        http
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Whether the client prefers a stream where either form will do: its `Accept` names the stream first.
    fn prefers_stream(&self) -> bool {
        let accepts = self.header("accept").unwrap_or_default();
        match (accepts.find("text/event-stream"), accepts.find("application/json")) {
            (Some(stream), Some(json)) => stream < json,
            (stream, None) => stream.is_some(),
            (None, Some(_)) => false,
        }
    }
}

/// The source of a stream's messages.
pub(super) enum McpStreamSource {
    Call(CallStream),
    Listen(Box<ListenStream>),
    Batch(BoxStream<'static, McpFrame>),
}

impl McpStreamSource {
    /// The name of the stream's kind in the list of open streams.
    fn kind(&self) -> &'static str {
        match self {
            Self::Call(_) => "mcp-call",
            Self::Listen(_) => "mcp-listen",
            Self::Batch(_) => "mcp-batch",
        }
    }

    async fn next(&mut self) -> Option<McpFrame> {
        match self {
            Self::Call(call) => call.next().await,
            Self::Listen(listen) => listen.next().await,
            Self::Batch(frames) => frames.next().await,
        }
    }
}

/// Renders a message as an SSE event.
fn written(frame: &McpFrame) -> Vec<u8> {
    let mut out = Vec::with_capacity(frame.data.len() + 96);
    if let Some(retry) = frame.retry {
        out.extend_from_slice(format!("retry: {}\n", retry.as_millis()).as_bytes());
    }
    if frame.is_hint() {
        out.push(b'\n');
        return out;
    }
    let id = frame.id.as_ref().map(|id| id as &dyn std::fmt::Display);
    sse::write_event(&mut out, id, |out| out.extend_from_slice(&frame.data));
    out
}

pub(super) fn accepted() -> HttpResponse<Body> {
    let mut response = HttpResponse::new(Body::empty());
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}
