//! The MCP resources: those that a program registers, and every task as `a2a://tasks/{taskId}`.

use std::sync::Arc;

use nuncio_engine::{
    Error, List,
    surface::{Prompt, PromptProfile, ResourceContent, SurfaceItem, access_of, matches},
};
use nuncio_wire::{
    jsonrpc::RpcId,
    mcp::{self, GetPromptParams, McpFault, ReadResourceParams, SubscribeParams},
};
use serde_json::{Map, Value};

use super::{
    Mcp,
    client::McpClient,
    dispatch::{McpReply, McpRequest, McpResponse},
    handler::{CallOptions, HandlerCall},
    session::McpSessionState,
    task_resource::{self, task_of},
};
use crate::resource_subscription::{MAX_URI, SubscriptionRefusal, check_subscription};

impl Mcp {
    pub(super) async fn read_resource(
        self: &Arc<Self>,
        client: &McpClient,
        request: &McpRequest<'_>,
    ) -> Result<McpReply, McpFault> {
        let read: ReadResourceParams = mcp::read_params(request.params)?;
        let ReadResourceParams { uri, input_responses, request_state } = read;
        let version = client.version;
        if uri.len() > MAX_URI {
            return Err(McpFault::invalid_params(format!("uri: at most {MAX_URI} bytes")));
        }
        // An alias names the same resource; the response uses the URI of the request.
        let asked = uri;
        let uri = self.surface().canonical(&asked).into_owned();
        if !client.endpoint.reaches_resource(&uri) {
            return Err(McpFault::no_resource(version, &asked));
        }
        if let Some(task) = task_of(&uri) {
            let task = match self.engine.get(&client.caller, task).await {
                Err(Error::NoSuchTask(_)) => return Err(McpFault::no_resource(version, &asked)),
                task => task?,
            };
            let contents = [task_resource::content(&self.engine, &client.caller, &asked, &task).await?];
            let body = self.result(version, &request.id, |result| {
                mcp::write_contents(result, &contents);
                if version.is_stateless() {
                    self.cache_hints(result, 0, "private");
                }
            });
            return Ok(McpReply::Now(McpResponse::result(body)));
        }
        let (fresh, handler): (Option<u64>, super::handler::McpHandler<Vec<ResourceContent>>);
        let mut arguments = Map::new();
        if let Some(resource) = self.surface().resource(&uri) {
            fresh = resource.profile.fresh_ms;
            handler = Arc::new(move |round| {
                let resource = Arc::clone(&resource);
                Box::pin(async move { resource.handler.read(round).await })
            });
        } else {
            let found = self.surface().templates().into_iter().find_map(|template| {
                let variables = matches(&template.profile.uri, &uri)?;
                Some((template, variables))
            });
            let Some((template, variables)) = found else {
                return Err(McpFault::no_resource(version, &asked));
            };
            arguments = variables.into_iter().map(|(name, value)| (name, Value::String(value))).collect();
            fresh = template.profile.fresh_ms;
            let uri = uri.clone();
            handler = Arc::new(move |round| {
                let (template, uri) = (Arc::clone(&template), uri.clone());
                Box::pin(async move { template.handler.read(&uri, round).await })
            });
        }
        let meant = uri.clone();
        let handling = HandlerCall {
            method: "resources/read",
            name: uri,
            arguments,
            input_responses,
            request_state,
            options: CallOptions::default(),
            handler,
            write: Arc::new(move |mcp, client, id, said| match said {
                Ok(mut contents) => {
                    for content in &mut contents {
                        if content.uri == meant && meant != asked {
                            content.uri.clone_from(&asked);
                        }
                    }
                    mcp.contents(client, id, &contents, fresh)
                }
                Err(fault) => McpResponse::fault(Some(id), fault),
            }),
        };
        self.handle(client, &request.id, handling).await
    }

    fn contents(
        &self,
        client: &McpClient,
        id: &RpcId,
        contents: &[ResourceContent],
        fresh: Option<u64>,
    ) -> McpResponse {
        McpResponse::result(self.result(client.version, id, |result| {
            mcp::write_contents(result, contents);
            if client.version.is_stateless() {
                // A fixed resource may be cached publicly only if it can be read without any grant.
                let open = contents.iter().all(|content| is_public_uri(&content.uri));
                let scope = if fresh.is_some() && open { "public" } else { "private" };
                self.cache_hints(result, fresh.unwrap_or(0), scope);
            }
        }))
    }

    pub(super) async fn get_prompt(
        self: &Arc<Self>,
        client: &McpClient,
        request: &McpRequest<'_>,
    ) -> Result<McpReply, McpFault> {
        let get: GetPromptParams = mcp::read_params(request.params)?;
        let prompt = self.prompt(client, &get.name).ok_or_else(|| {
            McpFault::invalid_params(format!(
                "there is no prompt {:?}: prompts/list names those that there are",
                get.name
            ))
        })?;
        let arguments = get.arguments.unwrap_or_default();
        let missing: Vec<&str> = prompt
            .profile
            .arguments
            .iter()
            .filter(|argument| argument.required && !arguments.contains_key(&argument.name))
            .map(|argument| argument.name.as_str())
            .collect();
        if !missing.is_empty() {
            return Err(McpFault::invalid_params(format!("arguments: {} must be given", missing.join(", "))));
        }
        let handling = HandlerCall {
            method: "prompts/get",
            name: get.name,
            arguments,
            input_responses: get.input_responses,
            request_state: get.request_state,
            options: CallOptions::default(),
            handler: Arc::new(move |round| {
                let prompt = Arc::clone(&prompt);
                Box::pin(async move { prompt.handler.get(round).await })
            }),
            write: Arc::new(|server, client, id, said| match said {
                Ok(output) => McpResponse::result(server.result(client.version, id, |result| {
                    mcp::write_prompt_output(result, client.version, &output);
                })),
                Err(fault) => McpResponse::fault(Some(id), fault),
            }),
        };
        self.handle(client, &request.id, handling).await
    }

    /// Subscribes to a resource, or unsubscribes (to 2025-11-25). The session stores its subscriptions.
    pub(super) async fn subscribe(
        &self,
        client: &McpClient,
        id: &RpcId,
        SubscribeParams { uri }: SubscribeParams,
        on: bool,
    ) -> Result<Vec<u8>, McpFault> {
        let Some(session) = &client.session else {
            return Err(McpFault::unknown_method(client.version, "resources/subscribe"));
        };
        let known = if on { Some(self.known_up_to(client, &uri).await?) } else { None };
        let max = self.options.max_subscriptions;
        let change = |state: &mut McpSessionState| {
            match known {
                None => drop(state.subscriptions.remove(&uri)),
                Some(_) if !state.subscriptions.contains_key(&uri) && state.subscriptions.len() >= max => {
                    return Err(McpFault::invalid_params(format!(
                        "a session follows at most {max} resources (max_subscriptions)"
                    )));
                }
                Some(seq) => drop(state.subscriptions.insert(uri.clone(), seq)),
            }
            Ok(())
        };
        self.sessions.change(session, change).await?;
        Ok(self.result(client.version, id, |_| {}))
    }

    /// The prompt of that name. The endpoint of an agent has none.
    pub(super) fn prompt(
        &self,
        client: &McpClient,
        name: &str,
    ) -> Option<Arc<SurfaceItem<dyn Prompt, PromptProfile>>> {
        self.surface().prompt(name).filter(|_| client.endpoint.agent().is_none())
    }

    /// The last event that a subscriber would know by reading the resource now. The resource must exist.
    pub(super) async fn known_up_to(&self, client: &McpClient, uri: &str) -> Result<u64, McpFault> {
        if !client.endpoint.reaches_resource(&self.surface().canonical(uri)) {
            return Err(McpFault::no_resource(client.version, uri));
        }
        check_subscription(&self.engine, &client.caller, uri).await.map_err(|refusal| match refusal {
            SubscriptionRefusal::TooLong => McpFault::invalid_params(format!("uri: at most {MAX_URI} bytes")),
            SubscriptionRefusal::NotFound => McpFault::no_resource(client.version, uri),
            SubscriptionRefusal::Engine(error) => error.into(),
        })
    }

    /// Ids of the caller's newest tasks that begin with the typed prefix.
    pub(super) async fn complete_task(
        &self,
        client: &McpClient,
        typed: &str,
    ) -> Result<Vec<String>, McpFault> {
        let query = List { page_size: 100, ..List::default() };
        let listed = self.engine.list_ids(&client.caller, query).await?;
        let ids = listed.ids.iter().map(ToString::to_string);
        Ok(ids.filter(|id| id.starts_with(typed)).collect())
    }
}

/// Whether a resource can be read without any grant.
fn is_public_uri(uri: &str) -> bool {
    access_of(uri).is_none() && !uri.starts_with("sparc://") && !uri.starts_with("mcp://")
}
