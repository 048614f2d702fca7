//! The stream of an agent call: its task's log from a cursor, each event as a message, the end as the response.
//!
//! In a session every message carries the cursor as its id, so that a client that lost the stream resumes after
//! the last message it received, on any node. A stateless call cannot be resumed: a client that disconnects has
//! cancelled it.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use nuncio_engine::{
    Event, Follower, Message, Next, Nudge, State, Task, TaskId,
    event::{ArtifactChunk, Entry, EntryBatch, LogLine, Progress},
    question::{Ask, Question},
};
use nuncio_wire::{
    a2a::TaskIds,
    jsonrpc::{self, RpcId},
    mcp::{
        self, ClientCapabilities, McpFault, McpQuestion, ProgressToken, TaskEventRequest, text_of_parts,
        write_input_requests, write_log, write_progress, write_task_event,
    },
};
use parking_lot::Mutex;

use super::{
    Mcp,
    call_stream::McpFrame,
    client::McpClient,
    dispatch::McpResponse,
    progress_numbers::ProgressNumbers,
    questions::question_id,
    request_state::RequestState,
    resume::event_id,
    session::{SessionStreamSlot, StreamTopic},
};

/// The kind of request that a stream answers.
pub(super) enum TaskStreamPurpose {
    /// A call in a session.
    Call,
    /// `tasks/result` of 2025-11-25: the ids of its messages mark that, and name the request that it answers.
    Result,
    /// A stateless call, with the digest of its request.
    Stateless {
        digest: String,
        /// Cancels the task when the client disconnects.
        guard: Box<CancelOnDrop>,
    },
}

/// The stream of an agent call.
pub(crate) struct TaskStream {
    pub(super) mcp: Arc<Mcp>,
    pub(super) client: McpClient,
    /// The request that is answered.
    pub(super) id: RpcId,
    pub(super) task: TaskId,
    pub(super) agent: String,
    pub(super) token: Option<ProgressToken>,
    pub(super) purpose: TaskStreamPurpose,
    follower: Option<Follower>,
    /// Its slot among the streams of its session.
    seat: Option<SessionStreamSlot>,
    pending: VecDeque<McpFrame>,
    /// The end of the log when the open questions were read: an earlier question is sent only if it was still
    /// open then.
    known: u64,
    open: HashSet<String>,
    /// The last event that the client received before it resumed: events up to here only update the progress.
    seen: u64,
    /// Whether questions must be sent again.
    again: bool,
    /// The numbers of its progress notifications.
    numbers: ProgressNumbers,
    /// Whether a question appeared in a stateless call.
    asked: bool,
    /// Whether the client follows by cursor: every event is a notification with its number, and none has an id,
    /// because the client resumes with the cursor.
    by_cursor: bool,
    context: String,
    done: bool,
    /// The number of the task's last event, once the task is terminal.
    end: Option<u64>,
}

impl TaskStream {
    pub(super) fn new(
        mcp: Arc<Mcp>,
        client: McpClient,
        id: RpcId,
        (task, agent): (TaskId, String),
        token: Option<ProgressToken>,
        purpose: TaskStreamPurpose,
    ) -> Self {
        Self {
            mcp,
            client,
            id,
            task,
            agent,
            token,
            purpose,
            follower: None,
            seat: None,
            pending: VecDeque::new(),
            known: 0,
            open: HashSet::new(),
            seen: 0,
            again: false,
            numbers: ProgressNumbers::default(),
            asked: false,
            by_cursor: false,
            context: String::new(),
            done: false,
            end: None,
        }
    }

    /// Follows the task from there on, and replaces an older stream that answers the same request.
    pub(super) fn follow(&mut self, follower: Option<Follower>) {
        let tells = StreamTopic::Task(self.task, self.id.clone());
        self.seat = self.client.session.as_ref().map(|session| session.open_stream_slot(tells));
        self.follower = follower;
    }

    /// Sends every event of the task from now on, with its number. The client has received the events up to
    /// `after`.
    pub(super) fn follow_by_cursor(&mut self, task: &Task, after: u64) {
        self.by_cursor = true;
        self.context.clone_from(&task.origin.context);
        self.resume(task, after);
    }

    /// Sends the client the cursor to resume from before there is a message: that of the event before the
    /// stream's first.
    pub(super) fn prime(&mut self, after: u64) {
        let (id, retry) = (Some(self.cursor(after)), Some(self.mcp.options.retry));
        self.pending.push_front(McpFrame { id, data: vec![], retry });
    }

    /// Queues the events that were committed with the task.
    pub(super) fn begin(&mut self, entries: &[Entry]) {
        self.queue_entries(1, entries);
    }

    /// Sends the questions again that were open when the client disconnected.
    pub(super) fn resume(&mut self, task: &Task, after: u64) {
        (self.known, self.seen) = (task.seq, after);
        if let Some((seq, progress)) = task.progress.as_ref().filter(|(seq, _)| *seq <= after) {
            self.numbers.of_progress(*seq, progress);
        }
        self.open = task.questions.iter().map(|(_, question)| question.id.clone()).collect();
        for (seq, question) in &task.questions {
            if *seq <= after {
                self.ask(after, question);
            }
        }
    }

    /// Whether no message precedes the response.
    pub(super) fn is_quiet(&self) -> bool {
        self.pending.is_empty()
    }

    pub(super) async fn next(&mut self) -> Option<McpFrame> {
        loop {
            if let Some(frame) = self.pending.pop_front() {
                return Some(frame);
            }
            if self.done {
                return None;
            }
            if self.asked {
                let response = self.input_required().await;
                return Some(self.final_frame(response));
            }
            if self.again {
                self.requeue_questions().await;
                self.again = false;
                continue;
            }
            let Some(follower) = &mut self.follower else {
                if self.client.session.as_ref().is_some_and(|session| session.is_cancelled(&self.id)) {
                    // The client has cancelled the request.
                    return None;
                }
                let response = self.finish().await;
                return Some(self.final_frame(response));
            };
            let next = match &mut self.seat {
                None => follower.next().await,
                Some(seat) => tokio::select! {
                    next = follower.next() => next,
                    // The client has reconnected.
                    () = seat.wait_until_replaced() => return None,
                },
            };
            match next {
                Ok(Next::Batch(EntryBatch { first_seq, entries })) => self.queue_entries(first_seq, &entries),
                Ok(Next::End) => self.follower = None,
                // The client of a session reconnects, with the cursor of what it received.
                Ok(Next::Closing) if !self.is_stateless() => return None,
                Ok(Next::Closing) => {
                    // The response asks the client to call again, so the task of this call must not continue.
                    let _ = self.mcp.engine.cancel(&self.client.caller, &self.task.to_string()).await;
                    let fault = McpFault::internal("the server is stopping: call again").with_status(503);
                    return Some(self.final_frame(McpResponse::fault(Some(&self.id), fault)));
                }
                Ok(Next::Nudge(Nudge::ReleaseFollowers)) if self.is_resumable() => {
                    self.done = true;
                    let retry = Some(self.mcp.options.retry);
                    return Some(McpFrame { id: None, data: vec![], retry });
                }
                Ok(Next::Nudge(Nudge::AskAgain)) if !self.is_stateless() => self.again = true,
                Ok(Next::Nudge(_)) => {}
                Err(error) => {
                    // The guard stays armed: no client waits for the task any longer.
                    self.done = true;
                    let response = McpResponse::fault(Some(&self.id), error.into());
                    return Some(McpFrame::plain(response.body));
                }
            }
        }
    }

    fn is_stateless(&self) -> bool {
        matches!(self.purpose, TaskStreamPurpose::Stateless { .. })
    }

    /// Whether the client can resume the stream. A client on a pipe cannot: it has no other connection.
    fn is_resumable(&self) -> bool {
        !self.is_stateless()
            && !self.by_cursor
            && self.client.session.as_ref().is_some_and(|session| session.is_stored())
    }

    /// The event id of a message: the cursor that its client resumes with.
    fn cursor(&self, seq: u64) -> String {
        event_id(self.task, seq, matches!(self.purpose, TaskStreamPurpose::Result).then_some(&self.id))
    }

    fn queue_message(&mut self, seq: u64, data: Vec<u8>) {
        let id = (!self.is_stateless() && !self.by_cursor).then(|| self.cursor(seq));
        self.pending.push_back(McpFrame { id, data, retry: None });
    }

    fn queue_entries(&mut self, first_seq: u64, entries: &[Entry]) {
        let is_end =
            |entry: &Entry| matches!(entry.event(), Event::Status(status) if status.state.is_terminal());
        let ends = entries.iter().any(is_end);
        for (seq, entry) in (first_seq..).zip(entries) {
            if seq <= self.seen {
                match entry.event() {
                    Event::Progress(progress) => drop(self.numbers.of_progress(seq, progress)),
                    Event::Artifact(_) => drop(self.numbers.of_chunk(seq)),
                    _ => {}
                }
                continue;
            }
            let mut data = Vec::new();
            if self.by_cursor {
                self.queue_event(seq, entry);
            }
            match entry.event() {
                Event::Progress(_) | Event::Log(_) if self.by_cursor => continue,
                Event::Progress(progress) => {
                    let Some(token) = &self.token else { continue };
                    let Some(done) = self.numbers.of_progress(seq, progress) else { continue };
                    data.reserve(192);
                    let progress = Progress { done, ..progress.clone() };
                    write_progress(&mut data, token, &progress, self.related().as_deref());
                }
                // The result follows at once, with the whole artifact.
                Event::Artifact(_) if ends => continue,
                Event::Artifact(chunk) => match self.partial_result(seq, chunk) {
                    Some(partial) => data = partial,
                    None => continue,
                },
                Event::Log(line) if self.client.wants_level(line.level) => {
                    data.reserve(192);
                    write_log(&mut data, &self.agent, line, self.related().as_deref());
                }
                Event::Question(question) => {
                    let answered = |later: &Entry| match later.event() {
                        Event::Answer(answered) => answered.question == question.id,
                        Event::Withdrawn(withdrawn) => withdrawn.question == question.id,
                        _ => false,
                    };
                    let past = seq <= self.known && !self.open.contains(&question.id);
                    if !past && !entries.iter().any(answered) {
                        self.ask(seq, question);
                    }
                    continue;
                }
                Event::Status(status) if status.state.is_terminal() => {
                    self.follower = None;
                    return;
                }
                Event::Message(_)
                | Event::Status(_)
                | Event::Log(_)
                | Event::Answer(_)
                | Event::Withdrawn(_) => continue,
            }
            self.queue_message(seq, data);
        }
    }

    /// A part of the result of a call that the client waits for: the message of a progress notification if the
    /// call has a token, otherwise a log message at the level that the client requested. For a task only the
    /// result is sent.
    fn partial_result(&mut self, seq: u64, chunk: &ArtifactChunk) -> Option<Vec<u8>> {
        if matches!(self.purpose, TaskStreamPurpose::Result) {
            return None;
        }
        let text = text_of_parts(&chunk.parts);
        if text.is_empty() {
            return None;
        }
        let mut data = Vec::with_capacity(192 + text.len());
        if let Some(token) = &self.token {
            let done = self.numbers.of_chunk(seq);
            let progress = Progress { done, total: self.numbers.total, text: Some(text), data: None };
            write_progress(&mut data, token, &progress, None);
        } else {
            let line = LogLine { level: self.client.asked_level()?, text };
            write_log(&mut data, &self.agent, &line, None);
        }
        Some(data)
    }

    /// Sends an event unchanged, to a client that follows by cursor.
    fn queue_event(&mut self, seq: u64, entry: &Entry) {
        if matches!(entry.event(), Event::Log(line) if !self.client.wants_level(line.level)) {
            return;
        }
        let task = self.task.to_string();
        let ids = TaskIds { task: &task, context: &self.context };
        let mut data = Vec::with_capacity(384);
        if write_task_event(&mut data, &ids, seq, entry, TaskEventRequest::Task) {
            self.queue_message(seq, data);
        }
    }

    /// The task that messages belong to, where the revision requires it.
    fn related(&self) -> Option<String> {
        matches!(self.purpose, TaskStreamPurpose::Result).then(|| self.task.to_string())
    }

    fn ask(&mut self, seq: u64, question: &Question) {
        if self.is_stateless() {
            self.asked = true;
            return;
        }
        let asked = McpQuestion::Question(question);
        if !asked.is_supported_by(self.client.capabilities) {
            // The question can still be answered over another protocol.
            return;
        }
        static NONCE: AtomicU64 = AtomicU64::new(0);
        // Requests of one session have unique ids, also on another node and after a restart.
        let nonce =
            (self.mcp.engine.clock().now().0 as u64) << 12 | NONCE.fetch_add(1, Ordering::Relaxed) & 0xfff;
        let id = question_id(self.task, &question.id, nonce);
        let mut data = Vec::with_capacity(256);
        jsonrpc::write_request(&mut data, &id, asked.method(), |out| {
            let name = id.as_text().unwrap_or_default();
            asked.write_params(out, self.client.version, &name, self.related().as_deref());
        });
        self.queue_message(seq, data);
    }

    /// Sends questions again that were answered wrongly.
    async fn requeue_questions(&mut self) {
        let name = self.task.to_string();
        let Ok(task) = self.mcp.engine.get(&self.client.caller, &name).await else { return };
        let cursor = self.follower.as_ref().map_or(0, Follower::cursor);
        for (seq, question) in &task.questions {
            if self.mcp.wrong_answers.contains(&name, &question.id) {
                self.ask((*seq).max(cursor), question);
            }
        }
    }

    /// The response, which ends the stream. If the task is terminal, it is also the end of the task's log.
    fn final_frame(&mut self, response: McpResponse) -> McpFrame {
        self.done = true;
        if let TaskStreamPurpose::Stateless { guard, .. } = &mut self.purpose {
            guard.disarm();
        }
        let id = self.end.filter(|_| !self.is_stateless() && !self.by_cursor).map(|seq| self.cursor(seq));
        McpFrame { id, data: response.body, retry: None }
    }

    /// The result of the task, which is terminal.
    pub(super) async fn finish(&mut self) -> McpResponse {
        match self.mcp.engine.get(&self.client.caller, &self.task.to_string()).await {
            Ok(task) => {
                self.end = Some(task.seq);
                self.response(&task)
            }
            Err(error) => McpResponse::fault(Some(&self.id), error.into()),
        }
    }

    /// The response for a terminal task.
    pub(super) fn response(&self, task: &Task) -> McpResponse {
        let is_related = matches!(self.purpose, TaskStreamPurpose::Result);
        self.mcp.task_response(&self.client, &self.id, task, is_related)
    }

    /// The response of a stateless call that waits for input of its client.
    pub(super) async fn input_required(&mut self) -> McpResponse {
        let task = match self.mcp.engine.get(&self.client.caller, &self.task.to_string()).await {
            Ok(task) => task,
            Err(error) => return McpResponse::fault(Some(&self.id), error.into()),
        };
        if task.state.is_terminal() {
            return self.response(&task);
        }
        let TaskStreamPurpose::Stateless { digest, .. } = &self.purpose else {
            return McpResponse::fault(
                Some(&self.id),
                McpFault::internal("only stateless calls end with a question"),
            );
        };
        let version = self.client.version;
        let missing = missing_for(&task, self.client.capabilities);
        if missing != ClientCapabilities::default() {
            return McpResponse::fault(Some(&self.id), McpFault::missing_capability(version, missing));
        }
        let now = self.mcp.engine.clock().now();
        let kept = RequestState { task: Some(self.task.to_string()), answers: BTreeMap::new(), state: None };
        let until = now.after(self.mcp.options.state_ttl);
        let state = self.mcp.state_signer.sign_state(&self.client.caller, digest, until, kept);
        McpResponse::result(self.mcp.result_of(
            version,
            &self.id,
            "input_required",
            |result| {
                write_input_requests(result, version, McpQuestion::all_of(&task));
                result.value("requestState", &state);
            },
            |_| {},
        ))
    }

    /// Marks a stateless call as asking, if its task does.
    pub(super) fn mark_asked(&mut self, task: &Task) {
        self.asked = self.is_stateless() && !task.questions.is_empty() && task.state != State::Working;
    }

    /// Whether a stateless call ends with a question.
    pub(super) fn has_asked(&self) -> bool {
        self.asked
    }

    /// Closes the stream: there are no more messages.
    pub(super) fn close(&mut self) {
        self.done = true;
    }

    /// The call is over for the client, and its task continues.
    pub(super) fn disarm(&mut self) {
        if let TaskStreamPurpose::Stateless { guard, .. } = &mut self.purpose {
            guard.disarm();
        }
    }
}

impl Mcp {
    /// The response to a call whose task is terminal. A related one names its task as the revision requires it.
    pub(super) fn task_response(
        &self,
        client: &McpClient,
        id: &RpcId,
        task: &Task,
        is_related: bool,
    ) -> McpResponse {
        let Some(output) = mcp::output_of(task) else {
            let why = task.status_message.as_ref().map(Message::joined_text);
            return McpResponse::fault(Some(id), McpFault::internal(why.unwrap_or_default()));
        };
        let version = client.version;
        McpResponse::result(self.result_of(
            version,
            id,
            "complete",
            |result| mcp::write_output(result, version, output),
            |meta| {
                meta.value("nuncio/taskId", &task.origin.id);
                if is_related {
                    mcp::write_related(meta, &task.origin.id.to_string());
                }
            },
        ))
    }
}

/// The capabilities that the client lacks for the questions of a task.
fn missing_for(task: &Task, client: ClientCapabilities) -> ClientCapabilities {
    let mut missing = ClientCapabilities::default();
    for (_, question) in &task.questions {
        if McpQuestion::Question(question).is_supported_by(client) {
            continue;
        }
        match question.ask {
            Ask::Form { .. } => missing.form = true,
            Ask::Sample { .. } => missing.sampling = true,
            Ask::Authorization { .. } => missing.url = true,
        }
    }
    missing
}

/// Stateless calls that wait, by their task: the newest waits, the earlier ones were replaced.
#[derive(Default)]
pub(super) struct StatelessWaiters {
    next: AtomicU64,
    newest: Mutex<HashMap<TaskId, u64>>,
}

impl StatelessWaiters {
    fn enter(&self, task: TaskId) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.newest.lock().insert(task, number);
        number
    }

    /// Removes a waiter; returns whether it was the newest.
    fn leave(&self, task: TaskId, number: u64) -> bool {
        let mut newest = self.newest.lock();
        let was = newest.get(&task) == Some(&number);
        if was {
            newest.remove(&task);
        }
        was
    }
}

/// Cancels a task when it is dropped, because its client has disconnected, unless the client has called again
/// meanwhile over another connection.
pub(super) struct CancelOnDrop {
    mcp: Arc<Mcp>,
    client: McpClient,
    task: TaskId,
    number: u64,
    armed: bool,
}

impl CancelOnDrop {
    pub(super) fn new(mcp: Arc<Mcp>, client: McpClient, task: TaskId) -> Self {
        let number = mcp.stateless_waiters.enter(task);
        Self { mcp, client, task, number, armed: true }
    }

    pub(super) fn disarm(&mut self) {
        self.armed = false;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let newest = self.mcp.stateless_waiters.leave(self.task, self.number);
        let (true, Ok(runtime)) = (self.armed && newest, tokio::runtime::Handle::try_current()) else {
            return;
        };
        let (mcp, client, task) = (Arc::clone(&self.mcp), self.client.clone(), self.task);
        runtime.spawn(async move {
            if let Err(error) = mcp.engine.cancel(&client.caller, &task.to_string()).await {
                tracing::debug!(%task, %error, "could not cancel the call of a disconnected client");
            }
        });
    }
}
