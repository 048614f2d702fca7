//! A tool call, from its arguments to its first response.
//!
//! A plain tool responds at once. An agent gets a task, whatever becomes of the call: the caller waits for the
//! task, polls it later, or gets a link to its result at once.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use nuncio_engine::{
    Event, List, Message, Part, Role, StartedTask, State, Submit, TaskUse,
    catalog::RegisteredAgent,
    event::Entry,
    surface::{Abilities, HandlerError, SurfaceTool, ToolOutput},
};
use nuncio_wire::{
    jsonrpc::{METHOD_NOT_FOUND, RpcId},
    mcp::{self, CallOutput, ClientCapabilities, McpFault, McpVersion, ToolCallParams, answer_in_result},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;

use super::{
    Mcp,
    call_stream::CallStream,
    client::McpClient,
    dispatch::{McpReply, McpRequest, McpResponse},
    handler::{CallOptions, HandlerCall},
    request_state::digest,
    task_resource::task_uri,
    task_stream::{CancelOnDrop, TaskStream, TaskStreamPurpose},
};

/// The part of the original request that a task stores, so that its stream can be resumed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct OriginalRequest {
    /// The request's id, as JSON.
    pub(super) id: String,
    /// The progress token, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) token: Option<String>,
    /// The context of its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) session: Option<String>,
    /// Whether the caller waits for the result of the call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) waits: bool,
}

/// A call of an agent.
struct AgentCall<'a> {
    client: &'a McpClient,
    id: &'a RpcId,
    agent: Arc<RegisteredAgent>,
    /// An object.
    arguments: Value,
    options: CallOptions,
    digest: String,
}

impl Mcp {
    pub(super) async fn call(
        self: &Arc<Self>,
        client: &McpClient,
        request: &McpRequest<'_>,
    ) -> Result<McpReply, McpFault> {
        let mut call: ToolCallParams = mcp::read_params(request.params)?;
        let arguments = call.arguments.take().unwrap_or_default();
        let along = CallOptions {
            token: request.meta.progress.clone(),
            trace: request.meta.trace.clone(),
            background: request.meta.background,
            events: request.meta.events.is_some(),
            as_task: client.version == McpVersion::V2025_11_25 && call.task.is_some(),
            idempotency_key: request.meta.idempotency_key.clone(),
        };
        let endpoint = &client.endpoint;
        let tool = self.surface().tool(&call.name).filter(|tool| endpoint.reaches_tool(&tool.profile));
        // Computed only for a stateless call that may be repeated with answers: the arguments may be large.
        let digest = |arguments: &Map<String, Value>| match client.version.is_stateless() {
            true => digest("tools/call", &call.name, arguments),
            false => String::new(),
        };
        if let Some(state) = call.request_state.as_ref().filter(|_| client.version.is_stateless()) {
            let (now, digest) = (self.engine.clock().now(), digest(&arguments));
            let kept = self.state_signer.verify_state(&client.caller, &digest, now, state)?;
            if let Some(task) = kept.task {
                // The task is that of the called agent, or of an agent that a tool handed the call over to.
                let responses = call.input_responses.unwrap_or_default();
                return self.resume_stateless_call(client, request, &task, responses, digest).await;
            }
            if tool.is_none() {
                return Err(McpFault::invalid_params("requestState: it belongs to another request"));
            }
        }
        if let Some(tool) = tool {
            return self.call_tool(client, &request.id, tool, call, arguments, along).await;
        }
        let agent = self.engine.catalog().get(&call.name);
        let agent = agent
            .ok()
            .filter(|agent| endpoint.reaches_agent(&agent.profile.name))
            .ok_or_else(|| McpFault::invalid_params(endpoint.no_tool(&call.name)))?;
        let digest = digest(&arguments);
        let arguments = Value::Object(arguments);
        if let Some(refused) = refuse_arguments(client.version, &agent, &arguments)? {
            return Ok(self.tool_error(client, &request.id, refused));
        }
        let call = AgentCall { client, id: &request.id, agent, arguments, options: along, digest };
        self.call_agent(call).await
    }

    async fn call_tool(
        self: &Arc<Self>,
        client: &McpClient,
        id: &RpcId,
        tool: Arc<SurfaceTool>,
        call: ToolCallParams,
        arguments: Map<String, Value>,
        along: CallOptions,
    ) -> Result<McpReply, McpFault> {
        check_task_use(client, tool.profile.tasks, &along)?;
        let given = Value::Object(arguments);
        if let Some(why) = tool.input.refuse(&given) {
            let why = format!("the arguments do not fit the tool's input schema: {why}");
            return match client.version >= McpVersion::V2025_11_25 {
                true => Ok(self.tool_error(client, id, why)),
                false => Err(McpFault::invalid_params(why)),
            };
        }
        let Value::Object(arguments) = given else {
            return Err(McpFault::invalid_params("arguments: expected an object"));
        };
        let (handler, checked) = (Arc::clone(&tool), tool);
        self.handle(
            client,
            id,
            HandlerCall {
                method: "tools/call",
                name: call.name,
                arguments,
                input_responses: call.input_responses,
                request_state: call.request_state,
                options: along,
                handler: Arc::new(move |round| {
                    let tool = Arc::clone(&handler);
                    Box::pin(async move {
                        match tool.handler.call(round).await {
                            // A tool error, not a fault: a model may read it and try something else.
                            Err(HandlerError::Failed(why)) => {
                                let output = ToolOutput { is_error: true, ..ToolOutput::text(why) };
                                Ok(nuncio_engine::surface::HandlerReply::Done(output))
                            }
                            said => said,
                        }
                    })
                }),
                write: Arc::new(move |mcp, client, id, said| match said {
                    Ok(output) => mcp.tool_result(client, id, &checked, &output),
                    Err(fault) => McpResponse::fault(Some(id), fault),
                }),
            },
        )
        .await
    }

    fn tool_result(
        &self,
        client: &McpClient,
        id: &RpcId,
        tool: &SurfaceTool,
        output: &ToolOutput,
    ) -> McpResponse {
        if let (Some(shape), Some(value), false) = (&tool.output, &output.structured, output.is_error)
            && let Some(why) = shape.refuse(value)
        {
            tracing::error!(tool = tool.profile.name, why, "a tool's result does not fit its output schema");
            let fault = McpFault::internal("the tool's result does not fit its own output schema");
            return McpResponse::fault(Some(id), fault);
        }
        let version = client.version;
        McpResponse::result(self.result(version, id, |result| {
            mcp::write_output(result, version, CallOutput::Tool(output));
        }))
    }

    fn tool_error(&self, client: &McpClient, id: &RpcId, why: String) -> McpReply {
        let output = ToolOutput { is_error: true, ..ToolOutput::text(why) };
        let version = client.version;
        McpReply::Now(McpResponse::result(self.result(version, id, |result| {
            mcp::write_output(result, version, CallOutput::Tool(&output));
        })))
    }

    /// Hands the call of a handler that has all its answers over to an agent. The digest is that of the
    /// client's request.
    pub(super) async fn hand_over(
        self: &Arc<Self>,
        client: &McpClient,
        id: &RpcId,
        agent: &str,
        arguments: Map<String, Value>,
        along: CallOptions,
        digest: String,
    ) -> Result<McpReply, McpFault> {
        let agent = self.engine.catalog().get(agent)?;
        let arguments = Value::Object(arguments);
        self.call_agent(AgentCall { client, id, agent, arguments, options: along, digest }).await
    }

    async fn call_agent(self: &Arc<Self>, mut call: AgentCall<'_>) -> Result<McpReply, McpFault> {
        let arguments = std::mem::take(&mut call.arguments);
        let AgentCall { client, id, agent, .. } = &call;
        let (version, profile) = (client.version, &agent.profile);
        let takes_task = takes_task(client, profile.tasks, &call.options);
        check_task_use(client, profile.tasks, &call.options)?;
        let waits = !takes_task && !call.options.background;
        let submit = submit(&call, message(arguments), waits, self.options.state_ttl);
        let (begun, guard) = match waits && version.is_stateless() {
            true => self.begin_or_cancel(client, submit).await?,
            false => (self.engine.begin(&client.caller, submit).await?, None),
        };
        if waits
            && client.session.as_ref().is_some_and(|session| session.is_cancelled(id) || session.has_ended())
        {
            // The cancellation, or the end of the session, arrived before the task existed.
            let _ = self.engine.cancel(&client.caller, &begun.task.origin.id.to_string()).await;
        }
        if call.options.background {
            return Ok(self.link(client, id, &begun));
        }
        // In the extension the server decides: a task that is already terminal needs no second request.
        let ended = begun.task.state.is_terminal() && !begun.task.is_fault();
        // A client that follows by cursor wants the events as well, which only a task has.
        let at_once =
            version.is_stateless() && profile.tasks == TaskUse::Offered && ended && !call.options.events;
        if takes_task && !at_once {
            return Ok(McpReply::Now(McpResponse::result(self.created(client, id, &begun.task))));
        }
        self.wait_for_task(call, begun, guard).await
    }

    /// Begins a task that is cancelled when its caller disconnects, even while it is being created. Runs in a
    /// spawned task, so that a disconnect cannot leave a task behind.
    async fn begin_or_cancel(
        self: &Arc<Self>,
        client: &McpClient,
        submit: Submit,
    ) -> Result<(StartedTask, Option<CancelOnDrop>), McpFault> {
        let (mcp, client) = (Arc::clone(self), client.clone());
        let (tell, told) = oneshot::channel();
        tokio::spawn(async move {
            let begun = mcp.engine.begin(&client.caller, submit).await;
            // If the caller has disconnected, the guard is dropped here and cancels the task.
            let _ = tell.send(begun.map(|begun| {
                let task = begun.task.origin.id;
                let guard = CancelOnDrop::new(mcp, client, task);
                (begun, Some(guard))
            }));
        });
        Ok(told.await.map_err(|_| McpFault::internal("the call broke off"))??)
    }

    /// Waits for the result, and streams events to the client meanwhile.
    async fn wait_for_task(
        self: &Arc<Self>,
        call: AgentCall<'_>,
        begun: StartedTask,
        guard: Option<CancelOnDrop>,
    ) -> Result<McpReply, McpFault> {
        let AgentCall { client, id, options: CallOptions { token, .. }, digest, .. } = call;
        let StartedTask { task, entries, .. } = &begun;
        let task_id = task.origin.id;
        if let Some(entries) = entries
            && task.state.is_terminal()
            && !sends_messages(client, token.is_some(), entries)
        {
            if let Some(mut guard) = guard {
                guard.disarm();
            }
            return Ok(McpReply::Now(self.task_response(client, id, task, false)));
        }
        let purpose = match client.version.is_stateless() {
            true => {
                let new = || CancelOnDrop::new(Arc::clone(self), client.clone(), task_id);
                TaskStreamPurpose::Stateless { digest, guard: Box::new(guard.unwrap_or_else(new)) }
            }
            false => TaskStreamPurpose::Call,
        };
        let named = (task_id, task.origin.agent.clone());
        let mut stream = TaskStream::new(Arc::clone(self), client.clone(), id.clone(), named, token, purpose);
        let resumable = client.session.as_ref().is_some_and(|session| session.is_stored());
        let known = entries.is_some();
        if let Some(entries) = entries {
            stream.begin(entries);
            stream.mark_asked(task);
            if stream.is_quiet() && task.state.is_terminal() {
                stream.disarm();
                return Ok(McpReply::Now(stream.response(task)));
            }
            if stream.is_quiet() && stream.has_asked() {
                stream.disarm();
                return Ok(McpReply::Now(stream.input_required().await));
            }
        }
        let mut follower = None;
        if !task.state.is_terminal() || !known {
            let after = if known { task.seq } else { 0 };
            follower = Some(self.engine.follow_started(&client.caller, begun, after).await?.1);
        }
        stream.follow(follower);
        if resumable && client.version >= McpVersion::V2025_11_25 {
            stream.prime(0);
        }
        Ok(McpReply::Call(CallStream::Task(Box::new(stream))))
    }

    /// Resumes the task of a stateless call that comes back with answers.
    async fn resume_stateless_call(
        self: &Arc<Self>,
        client: &McpClient,
        request: &McpRequest<'_>,
        name: &str,
        responses: std::collections::BTreeMap<String, Value>,
        digest: String,
    ) -> Result<McpReply, McpFault> {
        let before = self.engine.get(&client.caller, name).await?;
        for (question, response) in &responses {
            // Answers to questions that are not open are ignored.
            if before.questions.iter().any(|(_, open)| open.id == *question) {
                let answer = answer_in_result(response)
                    .map_err(|why| McpFault::invalid_params(format!("inputResponses.{question}: {why}")))?;
                self.give_answer(client, name, question, answer).await?;
            }
        }
        let task = self.engine.get(&client.caller, name).await?;
        let task_id = task.origin.id;
        let guard = CancelOnDrop::new(Arc::clone(self), client.clone(), task_id);
        let named = (task_id, task.origin.agent.clone());
        let token = request.meta.progress.clone();
        let purpose = TaskStreamPurpose::Stateless { digest, guard: Box::new(guard) };
        let mut stream =
            TaskStream::new(Arc::clone(self), client.clone(), request.id.clone(), named, token, purpose);
        if task.state.is_terminal() {
            stream.disarm();
            return Ok(McpReply::Now(stream.response(&task)));
        }
        stream.mark_asked(&task);
        if stream.has_asked() {
            stream.disarm();
            return Ok(McpReply::Now(stream.input_required().await));
        }
        stream.follow(Some(self.engine.follow(&client.caller, name, before.seq).await?));
        Ok(McpReply::Call(CallStream::Task(Box::new(stream))))
    }

    /// The response to a call that continues in the background.
    fn link(&self, client: &McpClient, id: &RpcId, begun: &StartedTask) -> McpReply {
        let (version, task) = (client.version, begun.task.origin.id.to_string());
        let uri = task_uri(&task);
        let write = |result: &mut nuncio_wire::json::JsonObject<'_>| {
            mcp::write_output(result, version, CallOutput::Link(&uri));
        };
        let meta = |meta: &mut nuncio_wire::json::JsonObject<'_>| meta.value("nuncio/taskId", &task);
        McpReply::Now(McpResponse::result(self.result_of(version, id, "complete", write, meta)))
    }

    /// Cancels the call of that request id, on whichever node it runs. Spawned, because an agent may take its
    /// time to clean up.
    pub(super) fn cancel_call(self: &Arc<Self>, client: &McpClient, id: &RpcId) {
        let Some(session) = &client.session else { return };
        session.cancel_request(id);
        if session.stop_handler(id) {
            return;
        }
        let (mcp, client, id) = (Arc::clone(self), client.clone(), id.clone());
        tokio::spawn(async move {
            for (task, made) in mcp.list_waiting_calls(&client).await {
                if made.id == id.as_json() {
                    let _ = mcp.engine.cancel(&client.caller, &task).await;
                }
            }
        });
    }

    /// Cancels all calls that the session waits for.
    pub(super) async fn cancel_calls(&self, client: &McpClient) {
        let tasks = self.list_waiting_calls(client).await;
        // Concurrently: each may take as long as its agent may clean up.
        join_all(tasks.iter().map(|(task, _)| self.engine.cancel(&client.caller, task))).await;
    }

    /// The unfinished tasks of the session whose result it waits for, with their requests.
    async fn list_waiting_calls(&self, client: &McpClient) -> Vec<(String, OriginalRequest)> {
        let mut found = vec![];
        // Listed twice: a task that changes state during the first pass is found in the second.
        let states = [State::Submitted, State::Working, State::InputRequired, State::AuthRequired];
        for state in states.into_iter().chain(states) {
            let mut page_token = None;
            loop {
                let query = List {
                    context: client.context(),
                    state: Some(state),
                    page_token: page_token.take(),
                    page_size: 100,
                    ..List::default()
                };
                let Ok(listed) = self.engine.list_ids(&client.caller, query).await else { break };
                for name in listed.ids.iter().map(ToString::to_string) {
                    if let Ok(about) = self.engine.task_summary(&client.caller, &name).await
                        && let Some(made) = about.request.and_then(|made| OriginalRequest::read(&made))
                        && made.waits
                    {
                        found.push((name, made));
                    }
                }
                page_token = listed.next_page_token;
                if page_token.is_none() {
                    break;
                }
            }
        }
        found
    }
}

impl OriginalRequest {
    pub(super) fn read(made: &Value) -> Option<Self> {
        serde_json::from_value(made.get("mcp")?.clone()).ok()
    }
}

fn submit(call: &AgentCall<'_>, message: Message, waits: bool, state_ttl: Duration) -> Submit {
    let AgentCall { client, id, agent, options: along, .. } = call;
    let made = OriginalRequest {
        id: id.as_json().to_owned(),
        token: along.token.as_ref().map(|token| token.as_json().to_owned()),
        session: client.context(),
        waits,
    };
    let mut submit = Submit::new(&agent.profile.name, message);
    submit.dialect = client.version.dialect().to_owned();
    submit.context = client.context();
    // The context is the session's: a repeat over another connection is the same call all the same.
    submit.context_of_connection = true;
    submit.idempotency_key = along.idempotency_key.as_ref().map(|key| format!("mcp:{key}"));
    submit.trace.clone_from(&along.trace);
    submit.request = Some(json!({ "mcp": made }));
    submit.waiting = (waits && client.version.is_stateless()).then_some(state_ttl);
    let can = client.abilities();
    // A client that waits is asked only what it can answer. So is a client that gets a task without having
    // requested one: the task would wait for ever. A client that requested a task gets one that parks until a
    // question is answered.
    let wanted = along.background || along.as_task;
    submit.abilities = if wanted { Abilities { ask: true, authorize: true, ..can } } else { can };
    submit
}

/// Whether the client gets a task instead of a result, if there is anything to wait for.
fn takes_task(client: &McpClient, tasks: TaskUse, along: &CallOptions) -> bool {
    match client.version.is_stateless() {
        true => client.capabilities.tasks && tasks != TaskUse::Never,
        false => along.as_task,
    }
}

/// Checks whether the tool may be called in this way.
fn check_task_use(client: &McpClient, tasks: TaskUse, along: &CallOptions) -> Result<(), McpFault> {
    let takes = takes_task(client, tasks, along);
    if takes && tasks == TaskUse::Never {
        return Err(McpFault::new(
            METHOD_NOT_FOUND,
            "this tool is not called as a task: leave out params.task",
        ));
    }
    if takes || tasks != TaskUse::Required || along.background {
        return Ok(());
    }
    Err(match client.version.is_stateless() {
        true => McpFault::missing_capability(
            client.version,
            ClientCapabilities { tasks: true, ..ClientCapabilities::default() },
        ),
        false => McpFault::new(METHOD_NOT_FOUND, "this tool is only called as a task: give params.task"),
    })
}

/// Whether the events of a finished call are messages that precede its response, or may be: then the call has a
/// [`TaskStream`].
fn sends_messages(client: &McpClient, has_token: bool, entries: &[Entry]) -> bool {
    entries.iter().any(|entry| match entry.event() {
        Event::Progress(_) => has_token,
        Event::Log(line) => client.wants_level(line.level),
        Event::Question(_) => true,
        // The result has the artifacts.
        Event::Artifact(_)
        | Event::Message(_)
        | Event::Status(_)
        | Event::Answer(_)
        | Event::Withdrawn(_) => false,
    })
}

/// The arguments as a message: a text part if there is nothing else, otherwise data.
fn message(mut arguments: Value) -> Message {
    let only = arguments.as_object_mut().filter(|all| all.len() == 1).and_then(|all| all.get_mut("text"));
    let part = match only {
        Some(Value::String(text)) => Part::text(std::mem::take(text)),
        _ => Part::data(arguments),
    };
    Message::of("", Role::User, vec![part])
}

/// Why the arguments of an agent are refused. Newer revisions want that in a result, where a model can read it.
fn refuse_arguments(
    version: McpVersion,
    agent: &RegisteredAgent,
    arguments: &Value,
) -> Result<Option<String>, McpFault> {
    let why = match &agent.input {
        Some(shape) => shape.refuse(arguments),
        // As `tools/list` describes an agent that takes text.
        None if arguments.get("text").is_some_and(Value::is_string) => None,
        None => Some("text: a string is wanted".to_owned()),
    };
    let Some(why) = why else { return Ok(None) };
    let why = format!("the arguments do not fit the tool's input schema: {why}");
    if version >= McpVersion::V2025_11_25 { Ok(Some(why)) } else { Err(McpFault::invalid_params(why)) }
}
