//! The dispatch of one MCP request: finds its method, and wraps the result in a response.

use std::sync::Arc;

use nuncio_wire::{
    json::{self, JsonObject},
    jsonrpc::{self, RpcId},
    mcp::{self, McpFault, McpVersion, RequestMeta, parse_level},
};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    Mcp, call_stream::CallStream, client::McpClient, listen::ListenStream, session::McpSessionState,
};

/// The reply to a request.
pub(crate) enum McpReply {
    /// A complete response.
    Now(McpResponse),
    /// A response that takes time, with the messages before it.
    Call(CallStream),
    /// A stream of changes that lasts until the client disconnects.
    Listen(Box<ListenStream>),
}

/// A complete response: a result or an error.
pub(crate) struct McpResponse {
    pub(super) body: Vec<u8>,
    /// The fault, if it is one: its HTTP status and when to retry.
    pub(super) fault: Option<McpFault>,
}

impl McpResponse {
    pub(super) fn result(body: Vec<u8>) -> Self {
        Self { body, fault: None }
    }

    pub(super) fn fault(id: Option<&RpcId>, fault: McpFault) -> Self {
        let mut body = Vec::with_capacity(256);
        jsonrpc::write_error(&mut body, id, fault.code, &fault.message, fault.data.as_ref());
        Self { body, fault: Some(fault) }
    }
}

/// The request that `notifications/cancelled` names.
pub(super) fn cancelled_id(params: Option<&RawValue>) -> Option<RpcId> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Cancelled<'a> {
        #[serde(borrow)]
        request_id: &'a RawValue,
    }
    let cancelled: Cancelled<'_> = serde_json::from_str(params?.get()).ok()?;
    RpcId::from_json(cancelled.request_id.get())
}

/// Why a request with the id `null` is refused: a client could not tell its response from that to an unreadable
/// request.
pub(super) fn null_id() -> McpFault {
    McpFault::invalid_request("id: a request's id is a string or an integer")
}

/// One parsed request.
pub(crate) struct McpRequest<'a> {
    pub(super) id: RpcId,
    pub(super) method: &'a str,
    pub(super) params: Option<&'a RawValue>,
    pub(super) meta: RequestMeta,
}

impl Mcp {
    /// Answers a request; a fault becomes an error response.
    pub(super) async fn answer(self: &Arc<Self>, client: &McpClient, request: McpRequest<'_>) -> McpReply {
        let id = request.id.clone();
        match self.try_answer(client, request).await {
            Ok(answered) => answered,
            Err(fault) => McpReply::Now(McpResponse::fault(Some(&id), fault)),
        }
    }

    async fn try_answer(
        self: &Arc<Self>,
        client: &McpClient,
        request: McpRequest<'_>,
    ) -> Result<McpReply, McpFault> {
        let McpRequest { id, method, params, .. } = &request;
        let (version, params) = (client.version, *params);
        let stateless = version.is_stateless();
        let done = |body: Vec<u8>| Ok(McpReply::Now(McpResponse::result(body)));
        match *method {
            "tools/call" => Box::pin(self.call(client, &request)).await,
            "resources/read" => Box::pin(self.read_resource(client, &request)).await,
            "prompts/get" => Box::pin(self.get_prompt(client, &request)).await,
            "tools/list" => done(self.list_tools(client, id, &mcp::read_params(params)?)?),
            "resources/list" => done(self.list_resources(client, id, &mcp::read_params(params)?).await?),
            "resources/templates/list" => {
                done(self.list_templates(client, id, &mcp::read_params(params)?)?)
            }
            "prompts/list" => done(self.list_prompts(client, id, &mcp::read_params(params)?)?),
            "completion/complete" => done(self.complete(client, id, mcp::read_params(params)?).await?),
            "server/discover" if stateless => done(self.discover(id)),
            "subscriptions/listen" if stateless => {
                Ok(McpReply::Listen(Box::new(self.listen(client, &request).await?)))
            }
            "ping" if !stateless => done(self.result(version, id, |_| {})),
            "logging/setLevel" if !stateless => done(self.set_level(client, id, params).await?),
            "resources/subscribe" if !stateless => {
                done(self.subscribe(client, id, mcp::read_params(params)?, true).await?)
            }
            "resources/unsubscribe" if !stateless => {
                done(self.subscribe(client, id, mcp::read_params(params)?, false).await?)
            }
            "tasks/get" | "tasks/cancel" | "tasks/update" | "tasks/result" | "tasks/list" => {
                Box::pin(self.task_request(client, &request)).await
            }
            other => Err(McpFault::unknown_method(version, other)),
        }
    }

    /// Handles a notification. It has no response, so errors are ignored.
    pub(super) fn handle_notification(
        self: &Arc<Self>,
        client: &McpClient,
        method: &str,
        params: Option<&RawValue>,
    ) {
        if method == "notifications/cancelled"
            && let Some(id) = cancelled_id(params)
        {
            self.cancel_call(client, &id);
        }
    }

    /// Writes a result: the members that the revision requires in every result, and those that the closure
    /// adds.
    pub(super) fn result(
        &self,
        version: McpVersion,
        id: &RpcId,
        members: impl FnOnce(&mut JsonObject<'_>),
    ) -> Vec<u8> {
        self.result_of(version, id, "complete", members, |_| {})
    }

    /// As `result`, of another type or with additional `_meta`.
    pub(crate) fn result_of(
        &self,
        version: McpVersion,
        id: &RpcId,
        result_type: &str,
        members: impl FnOnce(&mut JsonObject<'_>),
        meta: impl FnOnce(&mut JsonObject<'_>),
    ) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        jsonrpc::write_result(&mut out, id, |out| {
            json::object(out, |result| {
                if version.is_stateless() {
                    result.value("resultType", result_type);
                }
                members(result);
                let mut inner = Vec::new();
                json::object(&mut inner, |object| {
                    if version.is_stateless() {
                        object.value(mcp::SERVER_INFO, &self.info);
                    }
                    meta(object);
                });
                if inner.len() > 2 {
                    result.key("_meta").extend_from_slice(&inner);
                }
            });
        });
        out
    }

    fn discover(&self, id: &RpcId) -> Vec<u8> {
        let version = McpVersion::V2026_07_28;
        self.result(version, id, |result| {
            mcp::write_discover_result(result, version, self.options.instructions.as_ref());
            self.cache_hints(result, self.options.list_ttl.as_millis() as u64, "public");
        })
    }

    /// The response to `initialize`.
    pub(super) fn initialized(&self, version: McpVersion, id: &RpcId) -> Vec<u8> {
        self.result(version, id, |result| {
            mcp::write_initialize_result(result, version, &self.info, self.options.instructions.as_ref());
        })
    }

    /// Writes for how long, and for whom, a client may cache a result.
    pub(super) fn cache_hints(&self, result: &mut JsonObject<'_>, ttl_ms: u64, scope: &str) {
        result.value("ttlMs", &ttl_ms);
        result.value("cacheScope", scope);
    }

    async fn set_level(
        &self,
        client: &McpClient,
        id: &RpcId,
        params: Option<&RawValue>,
    ) -> Result<Vec<u8>, McpFault> {
        #[derive(Default, Deserialize)]
        struct SetLevel {
            level: String,
        }
        let level = parse_level(&mcp::read_params::<SetLevel>(params)?.level)?;
        if let Some(session) = &client.session {
            let set = |state: &mut McpSessionState| {
                state.level = Some(level);
                Ok(())
            };
            self.sessions.change(session, set).await?;
        }
        Ok(self.result(client.version, id, |_| {}))
    }
}
