//! The MCP task methods: the experimental ones of 2025-11-25, and the extension of 2026-07-28. Both use the
//! same task as A2A.

use std::sync::Arc;

use nuncio_engine::{Error, List, Task};
use nuncio_wire::{
    json,
    jsonrpc::{self, RpcId},
    mcp::{
        self, ClientCapabilities, EVENTS, ListParams, McpFault, McpTaskView, McpVersion, ProgressToken,
        UpdateTaskParams, answer_in_result, write_task,
    },
};

use super::{
    Mcp,
    call::OriginalRequest,
    call_stream::CallStream,
    client::McpClient,
    dispatch::{McpReply, McpRequest, McpResponse},
    task_stream::{TaskStream, TaskStreamPurpose},
};

impl Mcp {
    pub(super) async fn task_request(
        self: &Arc<Self>,
        client: &McpClient,
        request: &McpRequest<'_>,
    ) -> Result<McpReply, McpFault> {
        let (version, id) = (client.version, &request.id);
        let known = match request.method {
            "tasks/get" | "tasks/cancel" => true,
            "tasks/update" => version.is_stateless(),
            _ => !version.is_stateless(),
        };
        if !known || version < McpVersion::V2025_11_25 {
            return Err(McpFault::unknown_method(version, request.method));
        }
        if version.is_stateless() && !client.capabilities.tasks {
            return Err(McpFault::missing_capability(
                client.version,
                ClientCapabilities { tasks: true, ..ClientCapabilities::default() },
            ));
        }
        let done = |body: Vec<u8>| Ok(McpReply::Now(McpResponse::result(body)));
        if request.method == "tasks/list" {
            return done(self.list_tasks(client, id, mcp::read_params(request.params)?).await?);
        }
        let params: UpdateTaskParams = mcp::read_params(request.params)?;
        let name = &params.task_id;
        match request.method {
            "tasks/get" => {
                let task = self.engine.get(&client.caller, name).await?;
                let view = self.view(client, &task, true);
                done(self.result(version, id, |result| write_task(result, &task, view)))
            }
            "tasks/cancel" => done(self.cancel_task(client, id, name).await?),
            "tasks/update" => {
                let task = self.engine.get(&client.caller, name).await?;
                for (question, response) in params.input_responses.iter().flatten() {
                    // Answers to questions that are not open, or no longer open, are ignored.
                    if task.questions.iter().any(|(_, open)| open.id == *question) {
                        let answer = answer_in_result(response).map_err(|why| {
                            McpFault::invalid_params(format!("inputResponses.{question}: {why}"))
                        })?;
                        self.give_answer(client, name, question, answer).await?;
                    }
                }
                done(acknowledged(id))
            }
            _ => {
                let after = request.meta.events.as_ref().and_then(|cursors| cursors.get(name)).copied();
                self.task_result(client, id, name, after).await
            }
        }
    }

    /// The response to a call that created a task.
    pub(super) fn created(&self, client: &McpClient, id: &RpcId, task: &Task) -> Vec<u8> {
        let version = client.version;
        let view = self.view(client, task, false);
        if version.is_stateless() {
            return self.result_of(version, id, "task", |result| write_task(result, task, view), |_| {});
        }
        self.result(version, id, |result| {
            result.object("task", |object| mcp::write_new_task(object, task, view));
        })
    }

    /// The view of a task for that client.
    pub(super) fn view(&self, client: &McpClient, task: &Task, detailed: bool) -> McpTaskView {
        let created_at = task.origin.id.made_at();
        // Retained for the retention time after its end; until then, without limit.
        let retention = self.engine.retention_of(&task.origin.agent, task.state).as_millis() as i64;
        let ttl_ms = task
            .state
            .is_terminal()
            .then(|| {
                u64::try_from(task.status_at.0.saturating_sub(created_at.0).saturating_add(retention)).ok()
            })
            .flatten();
        let poll_ms = self.options.poll_interval.as_millis() as u64;
        McpTaskView { version: client.version, created_at, ttl_ms, poll_ms, detailed }
    }

    async fn cancel_task(&self, client: &McpClient, id: &RpcId, name: &str) -> Result<Vec<u8>, McpFault> {
        let version = client.version;
        let task = match self.engine.cancel(&client.caller, name).await {
            Ok(task) => task,
            // The extension requires the same response whether the cancellation was in time or not; 2025-11-25
            // does not.
            Err(Error::NotCancelable(_)) if version.is_stateless() => {
                return Ok(acknowledged(id));
            }
            Err(error) => return Err(error.into()),
        };
        if version.is_stateless() {
            return Ok(acknowledged(id));
        }
        if !task.state.is_terminal() {
            // The cancellation is durable; but the response would have to show the task as cancelled.
            return Err(McpFault::internal("the task is still ending: ask for it again"));
        }
        let view = self.view(client, &task, true);
        Ok(self.result(version, id, |result| write_task(result, &task, view)))
    }

    /// Waits for the result of a task, and sends its questions meanwhile (2025-11-25). With `after`, the events
    /// that follow that one are sent before the result.
    async fn task_result(
        self: &Arc<Self>,
        client: &McpClient,
        id: &RpcId,
        name: &str,
        after: Option<u64>,
    ) -> Result<McpReply, McpFault> {
        let task = self.engine.get(&client.caller, name).await?;
        let made = self
            .engine
            .task_summary(&client.caller, name)
            .await?
            .request
            .and_then(|made| OriginalRequest::read(&made));
        let token = made.and_then(|made| made.token).and_then(|token| ProgressToken::from_json(&token));
        let named = (task.origin.id, task.origin.agent.clone());
        let mut stream = TaskStream::new(
            Arc::clone(self),
            client.clone(),
            id.clone(),
            named,
            token,
            TaskStreamPurpose::Result,
        );
        if let Some(after) = after {
            if after > task.seq {
                return Err(unknown_cursor(name, after, task.seq));
            }
            stream.follow_by_cursor(&task, after);
            stream.follow(Some(self.engine.follow(&client.caller, name, after).await?));
            return Ok(McpReply::Call(CallStream::Task(Box::new(stream))));
        }
        if task.state.is_terminal() {
            return Ok(McpReply::Now(stream.response(&task)));
        }
        stream.resume(&task, task.seq);
        stream.follow(Some(self.engine.follow(&client.caller, name, task.seq).await?));
        if client.session.as_ref().is_some_and(|session| session.is_stored()) {
            stream.prime(task.seq);
        }
        Ok(McpReply::Call(CallStream::Task(Box::new(stream))))
    }

    async fn list_tasks(
        &self,
        client: &McpClient,
        id: &RpcId,
        page: ListParams,
    ) -> Result<Vec<u8>, McpFault> {
        let query = List {
            page_token: page.cursor,
            page_size: self.options.page_size.clamp(1, nuncio_engine::commands::list::MAX_PAGE),
            without_artifacts: true,
            history: Some(0),
            ..List::default()
        };
        let listed = self.engine.list(&client.caller, query).await?;
        Ok(self.result(client.version, id, |result| {
            result.array("tasks", &listed.tasks, |out, task| {
                json::object(out, |object| write_task(object, task, self.view(client, task, false)));
            });
            result.optional("nextCursor", listed.next_page_token.as_ref());
        }))
    }
}

/// Why a cursor that the task never had is refused: a client that skips unseen events would lose them silently.
pub(super) fn unknown_cursor(task: &str, after: u64, last: u64) -> McpFault {
    McpFault::invalid_params(format!(
        "_meta.{EVENTS}: the task {task} has no event {after}, its last one is {last}: begin after 0"
    ))
}

/// The empty acknowledgement (2026-07-28). It has no other members: rmcp parses one with a `_meta` as the
/// result of a tool.
fn acknowledged(id: &RpcId) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    jsonrpc::write_result(&mut out, id, |out| {
        json::object(out, |result| result.value("resultType", "complete"));
    });
    out
}
