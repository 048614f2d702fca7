//! One tool call, from its request to its end.
//!
//! A single loop owns the call. It reads the request's stream and the router's inbox, sends events to the
//! follower, and accepts the follower's commands meanwhile, also while the follower is slow to read. A call
//! is either a pending request, or waits to be sent again with answers, or has become a task (`task.rs`).

mod events;
mod questions;
mod task;

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use http::HeaderMap;
use nuncio_engine::{
    content::{Message, Part, Role},
    task::State,
};
use nuncio_wire::{
    jsonrpc::RpcErrorObject,
    mcp::{
        ClientRequest, HEADER_MISMATCH, McpMessage, McpPeerResponse, McpTaskSnapshot, ServerNotification,
        ServerRequest, ToolCallReply, ToolCallRequest, ToolResult, URL_REQUIRED,
    },
};
use serde_json::Value;
use tokio::{sync::oneshot, time::Instant};

use self::task::McpTask;
use super::{
    connection::{McpConnection, McpTransport},
    connection_pool::McpConnectionPool,
    error::{McpRequestError, refusal},
    exchange::{ExchangeEvent, McpPeerExchange},
    question::OpenQuestion,
    resume_state::{CallResend, ResumeState, ResumeVia},
    router::{CallInbox, InboxItem},
};
use crate::peer::{
    CallCommand, CallDriver, CallEvent, HAPPENED, PeerCallEnd, PeerError, RESULT, whole_artifact,
};

/// How long a cancellation waits for the server to report whether the call is a task, before the request is
/// cancelled.
const BEFORE_TAKING_BACK: Duration = Duration::from_secs(3);

/// A running call.
pub(super) struct McpCall {
    shared: Arc<McpConnectionPool>,
    connection: Arc<McpConnection>,
    inbox: CallInbox,
    /// The tool's name.
    name: String,
    token: String,
    phase: McpCallPhase,
    /// The pending request with its id.
    exchange: Option<(Value, McpPeerExchange)>,
    /// The id of the last event on its stream.
    cursor: Option<String>,
    open: Vec<OpenQuestion>,
    /// Names of questions whose answers the server has accepted.
    answered: HashSet<String>,
    /// Events that the follower has not received yet.
    outbox: VecDeque<CallEvent>,
    driver: CallDriver,
    /// When the last message for this call arrived.
    last_received: Instant,
    /// Whether the user declined to visit a link that the call needs.
    turned_down: bool,
    /// Whether the call was already retried because of a transient error.
    retried: bool,
    /// Whether the tool declares that calling it twice has the same effect as calling it once.
    idempotent: bool,
    /// The request that the server may still be working on; and whether its cancellation was sent.
    unanswered: Option<Value>,
    taken_back: bool,
    /// Cancel commands that wait until it is known whether the call is a task; and their deadline.
    cancels: Vec<oneshot::Sender<Result<(), PeerError>>>,
    cancel_by: Option<Instant>,
    /// Whether any message other than the response arrived for it.
    streams: bool,
}

/// The state of a call.
#[allow(clippy::large_enum_variant, reason = "there is one of a call, inside a struct that is larger")]
enum McpCallPhase {
    /// Its request is pending, or waits to be sent again.
    Call(CallResend),
    /// It runs as a task.
    Task(McpTask),
}

/// The next thing that the loop handles.
enum McpCallStep {
    Told,
    Heard(Result<ExchangeEvent, McpRequestError>),
    Routed(McpMessage),
    /// Task events were dropped because the inbox was full.
    Missed,
    Order(CallCommand),
    /// The call no longer has a follower.
    LetGo,
    Due,
    /// The deadline passed before the server reported whether the call is a task.
    Cancel,
    /// No message arrived for too long.
    Silent,
    Polled(Result<McpTaskSnapshot, McpRequestError>),
}

impl McpCall {
    pub(super) fn new(
        shared: &Arc<McpConnectionPool>,
        (connection, inbox): (Arc<McpConnection>, CallInbox),
        name: &str,
        token: String,
        again: CallResend,
        driver: CallDriver,
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
            connection,
            inbox,
            name: name.to_owned(),
            token,
            phase: McpCallPhase::Call(again),
            exchange: None,
            cursor: None,
            open: vec![],
            answered: HashSet::new(),
            outbox: VecDeque::new(),
            driver,
            last_received: Instant::now(),
            turned_down: false,
            retried: false,
            idempotent: false,
            unanswered: None,
            taken_back: false,
            cancels: vec![],
            cancel_by: None,
            streams: false,
        }
    }

    /// Sends the call and follows it to its end.
    pub(super) async fn begin(mut self) {
        let end = match self.call().await {
            Ok(()) => self.work().await,
            Err(fail) => Err(fail.into_peer(&self.connection.at)),
        };
        self.end(end).await;
    }

    /// Resumes a call that another process left.
    pub(super) async fn resume(mut self, kept: ResumeState, task: Option<&str>) {
        self.open = kept.questions;
        for open in &mut self.open {
            open.again = true;
        }
        let begun = match kept.way {
            ResumeVia::Stream { request, event } => match &self.connection.link {
                McpTransport::Http(http) => {
                    self.unanswered = Some(request.clone());
                    self.exchange = Some((request.clone(), http.resume(request, event.clone())));
                    self.cursor = Some(event);
                    Ok(())
                }
                McpTransport::Wire(_) => Err(PeerError::Gone("a call on pipes ends with them".into()).into()),
            },
            ResumeVia::Again(again) => {
                self.phase = McpCallPhase::Call(again);
                if self.open.is_empty() { self.call().await } else { Ok(()) }
            }
            ResumeVia::Sent => Err(PeerError::Gone("the call cannot be resumed".into()).into()),
            ResumeVia::Task => {
                self.join(task.unwrap_or_default(), kept.after).await;
                Ok(())
            }
        };
        let end = match begun {
            Ok(()) => {
                self.emit_handle();
                self.ask_again();
                self.work().await
            }
            Err(fail) => Err(fail.into_peer(&self.connection.at)),
        };
        self.end(end).await;
    }

    /// Sends the request: for the first time, or again with answers.
    async fn call(&mut self) -> Result<(), McpRequestError> {
        let McpCallPhase::Call(again) = &mut self.phase else { return Ok(()) };
        again.round += 1;
        let made_again = again.round > 1;
        let tool = self.shared.tool(&self.connection, &self.name).await?;
        self.idempotent = tool.offer.idempotent;
        let version = self.connection.version;
        let request = ToolCallRequest {
            name: &self.name,
            arguments: again.arguments.clone(),
            progress_token: Some(&self.token),
            with_events: self.connection.has_events(),
            idempotency_key: again.key.as_deref().filter(|_| tool.takes_key),
            trace: again.trace.as_deref(),
            answers: again.answers.clone(),
            state: again.state.as_deref(),
            as_task: self.connection.about.capabilities.wants_task_request(version, tool.tasks),
        };
        let mirrored = if version.is_stateless() { tool.headers(&again.arguments) } else { HeaderMap::new() };
        let (id, exchange) = self.connection.exchange(ClientRequest::CallTool(request), mirrored).await?;
        self.unanswered = Some(id.clone());
        self.exchange = Some((id, exchange));
        if made_again {
            // The stored handle would send the call once more; replace it.
            self.emit_handle();
        }
        Ok(())
    }

    /// Follows the call. `None`: no follower is left to receive the end.
    async fn work(&mut self) -> Result<Option<PeerCallEnd>, PeerError> {
        let mut closed = self.shared.closing();
        loop {
            let step = tokio::select! {
                step = self.step() => step,
                () = closed.closed() => {
                    return Err(PeerError::Cut(format!("the connection to {} was closed", self.connection.at)));
                }
            };
            if let McpCallStep::Heard(_) | McpCallStep::Routed(_) | McpCallStep::Order(_) = &step {
                self.last_received = Instant::now();
            }
            let ended = match step {
                McpCallStep::Told => None,
                McpCallStep::Missed => {
                    self.resume_task_stream().await;
                    None
                }
                McpCallStep::LetGo => return Ok(None),
                McpCallStep::Order(order) => self.order(order).await?,
                McpCallStep::Routed(message) => self.message(message).await?,
                McpCallStep::Heard(Ok(ExchangeEvent::Message(message))) => self.message(message).await?,
                McpCallStep::Heard(Ok(ExchangeEvent::Cursor(cursor))) => {
                    self.cursor = Some(cursor);
                    self.emit_handle();
                    None
                }
                McpCallStep::Heard(Err(fail)) => self.broke(fail).await?,
                McpCallStep::Silent => return Err(self.silent().await),
                McpCallStep::Cancel => self.cancel_wanted().await,
                McpCallStep::Due => {
                    self.poll();
                    None
                }
                McpCallStep::Polled(polled) => self.polled(polled).await?,
            };
            if ended.is_some() {
                return Ok(ended);
            }
        }
    }

    async fn step(&mut self) -> McpCallStep {
        let room = self.outbox.len() < HAPPENED;
        let (due, polling) = match &mut self.phase {
            McpCallPhase::Task(task) => (task.due(), task.polling.as_mut()),
            McpCallPhase::Call(_) => (None, None),
        };
        // The reader of an HTTP stream has its own timeout; on a shared channel only this one applies.
        let shared = matches!((&self.connection.link, &self.exchange), (McpTransport::Wire(_), Some(_)));
        let silent = (shared && polling.is_none() && due.is_none() && self.open.is_empty())
            .then(|| self.last_received + self.connection.options.silence);
        tokio::select! {
            biased;
            permit = self.driver.events.reserve(), if !self.outbox.is_empty() => match permit {
                Ok(permit) => {
                    permit.send_first(&mut self.outbox);
                    McpCallStep::Told
                }
                Err(_) => McpCallStep::LetGo,
            },
            order = self.driver.commands.recv() => order.map_or(McpCallStep::LetGo, McpCallStep::Order),
            next = self.inbox.next(), if room => match next {
                InboxItem::Message(message) => McpCallStep::Routed(message),
                InboxItem::Missed => McpCallStep::Missed,
            },
            heard = next(&mut self.exchange), if room => McpCallStep::Heard(heard),
            polled = polled(polling), if room => McpCallStep::Polled(polled),
            () = sleep(due) => McpCallStep::Due,
            () = sleep(self.cancel_by) => McpCallStep::Cancel,
            () = sleep(silent) => McpCallStep::Silent,
        }
    }

    /// Handles a message.
    async fn message(&mut self, message: McpMessage) -> Result<Option<PeerCallEnd>, PeerError> {
        self.streams |= !matches!(message, McpMessage::Answer(_));
        match message {
            McpMessage::Answer(answer) => return self.answered(answer).await,
            McpMessage::Request { id, request: ServerRequest::Input(request) } => {
                self.asked(&id, request).await;
            }
            McpMessage::Notification(notification) => return self.notified(notification).await,
            // The router answers all other requests.
            McpMessage::Request { .. } => {}
        }
        Ok(None)
    }

    async fn notified(&mut self, notification: ServerNotification) -> Result<Option<PeerCallEnd>, PeerError> {
        match notification {
            ServerNotification::Progress { token, progress } => {
                if token.as_ref() == Some(&self.token) {
                    self.outbox.push_back(CallEvent::Progress(progress));
                }
            }
            ServerNotification::Log { line, .. } => self.outbox.push_back(CallEvent::Log(line)),
            ServerNotification::ElicitationComplete(elicitation) => self.visited(&elicitation).await?,
            // The server withdraws its question.
            ServerNotification::Cancelled(request) => self.withdrawn(&request),
            ServerNotification::Task(task) => return self.task_told(*task).await,
            ServerNotification::Subscribed { tasks, .. } => self.listened(&tasks),
            ServerNotification::TaskEvent(event) => return self.task_event(&event),
            ServerNotification::ToolsChanged | ServerNotification::ResourceUpdated(_) => {}
            ServerNotification::Unknown(method) => {
                tracing::debug!(method, "{}: ignoring an unknown notification", self.connection.at);
            }
        }
        Ok(None)
    }

    /// Handles the response that the call waits for.
    async fn answered(&mut self, answer: McpPeerResponse) -> Result<Option<PeerCallEnd>, PeerError> {
        (self.exchange, self.unanswered) = (None, None);
        if let McpCallPhase::Task(_) = &self.phase {
            return self.task_answered(answer);
        }
        let result = match answer.outcome {
            Ok(result) => result,
            Err(error) => return self.refused(error).await,
        };
        match ToolCallReply::read(result) {
            ToolCallReply::InputRequired(required) => self.input_required(required).await.map(|()| None),
            ToolCallReply::Task(task) => self.enter_task(*task).await,
            ToolCallReply::Complete(result) => Ok(Some(self.completed(&result))),
            ToolCallReply::Unknown(kind) => {
                let why = format!("a result of the type {kind:?}");
                Err(PeerError::Malformed { at: self.connection.at.clone(), why })
            }
        }
    }

    /// Switches to following a task, and cancels it if that was requested before its id was known.
    async fn enter_task(&mut self, task: McpTaskSnapshot) -> Result<Option<PeerCallEnd>, PeerError> {
        match self.enter(task).await? {
            None if !self.cancels.is_empty() => Ok(self.cancel_wanted().await),
            ended => Ok(ended),
        }
    }

    /// The end of a call with this tool result.
    fn completed(&mut self, result: &ToolResult) -> PeerCallEnd {
        let mut parts = result.parts();
        if result.is_error {
            if parts.is_empty() {
                parts.push(Part::text("the tool failed, and does not say why"));
            }
            let message = Some(Message::of(&*self.token, Role::Agent, parts));
            return PeerCallEnd { state: State::Failed, message };
        }
        if !parts.is_empty() {
            self.outbox.push_back(CallEvent::Artifact(whole_artifact(RESULT, parts)));
        }
        PeerCallEnd::completed()
    }

    /// Handles a JSON-RPC error of the server.
    async fn refused(&mut self, error: RpcErrorObject) -> Result<Option<PeerCallEnd>, PeerError> {
        if error.code == i64::from(URL_REQUIRED) {
            return self.links_required(error);
        }
        if error.code == i64::from(HEADER_MISMATCH) && !self.retried {
            // The list of arguments that go into headers may have changed.
            self.retried = true;
            self.shared.forget_tools();
            return self.make_again().await.map(|()| None);
        }
        match refusal(&self.connection.at, &error) {
            Some(refused) => Err(refused),
            None => Ok(Some(self.failed(&error.message))),
        }
    }

    fn failed(&self, why: &str) -> PeerCallEnd {
        PeerCallEnd { state: State::Failed, message: Some(Message::text(&*self.token, Role::Agent, why)) }
    }

    /// Handles a broken request: its response will not arrive.
    async fn broke(&mut self, fail: McpRequestError) -> Result<Option<PeerCallEnd>, PeerError> {
        self.exchange = None;
        if !matches!(
            fail,
            McpRequestError::Peer(PeerError::Cut(_) | PeerError::Outage { .. })
                | McpRequestError::Status { status: 500.., .. }
        ) {
            self.unanswered = None;
        }
        if let McpCallPhase::Task(_) = &self.phase {
            return self.task_broke(fail);
        }
        match fail {
            McpRequestError::Rpc(error) => self.refused(error).await,
            // The server rejected the request, so it is sent again in a new session.
            McpRequestError::SessionLost if self.cursor.is_none() && !self.retried => {
                self.retried = true;
                self.reconnect().await?;
                self.make_again().await.map(|()| None)
            }
            fail => {
                let error = fail.into_peer(&self.connection.at);
                if error.is_transient() && matches!(&self.phase, McpCallPhase::Call(again) if again.round > 1)
                {
                    // The server did not receive it, so it can be sent again as before.
                    self.emit_handle();
                }
                Err(error)
            }
        }
    }

    async fn silent(&mut self) -> PeerError {
        let limit = self.connection.options.silence;
        if let Some((id, _)) = self.exchange.take() {
            self.taken_back = true;
            self.connection.cancel(&id, "it took too long").await;
        }
        let (at, name) = (&self.connection.at, &self.name);
        PeerError::Cut(format!("{at}: {name} sent no message for {} s", limit.as_secs_f32()))
    }

    async fn make_again(&mut self) -> Result<(), PeerError> {
        self.call().await.map_err(|fail| fail.into_peer(&self.connection.at))
    }

    /// Switches to a working connection.
    async fn reconnect(&mut self) -> Result<(), PeerError> {
        self.shared.forget(&self.connection).await;
        (self.connection, self.inbox) = self.shared.open_inbox(&self.token).await?;
        if let McpCallPhase::Task(task) = &self.phase {
            self.inbox.set_task(&task.id);
        }
        Ok(())
    }

    /// Cancels the work. A task reports its own end; a cancelled request gets no response.
    async fn cancel(&mut self) -> Result<Option<PeerCallEnd>, PeerError> {
        if let McpCallPhase::Task(task) = &mut self.phase {
            task.soon();
            let told = self.connection.request(ClientRequest::CancelTask(&task.id)).await;
            return told.map(|_| None).map_err(|fail| fail.into_peer(&self.connection.at));
        }
        if let Some((id, exchange)) = self.exchange.take() {
            self.taken_back = true;
            self.connection.cancel(&id, "the caller cancelled it").await;
            drop(exchange);
        }
        Ok(Some(PeerCallEnd { state: State::Canceled, message: None }))
    }

    /// Cancels the work and reports that to every caller that requested it.
    async fn cancel_wanted(&mut self) -> Option<PeerCallEnd> {
        self.cancel_by = None;
        let stopped = self.cancel().await;
        let told = stopped.as_ref().map(|_| ()).map_err(Clone::clone);
        for cancel in self.cancels.drain(..) {
            let _ = cancel.send(told.clone());
        }
        stopped.unwrap_or_default()
    }

    /// Whether the response may still turn the call into a task. A call that streams does not become one.
    fn may_become_task(&self) -> bool {
        matches!(self.phase, McpCallPhase::Call(_))
            && self.exchange.is_some()
            && self.cursor.is_none()
            && !self.streams
            && self.connection.has_tasks()
    }

    async fn order(&mut self, order: CallCommand) -> Result<Option<PeerCallEnd>, PeerError> {
        match order {
            CallCommand::Answer { question, answer, taken } => {
                let answered = self.answer(&question, answer).await;
                let go_on = answered.is_ok();
                let _ = taken.send(answered);
                if go_on { self.all_answered().await.map(|()| None) } else { Ok(None) }
            }
            CallCommand::Message { taken, .. } => {
                let why = "MCP knows no message to a call that goes on".to_owned();
                let _ = taken.send(Err(PeerError::Refused(why)));
                Ok(None)
            }
            CallCommand::Cancel { told } => {
                self.cancels.push(told);
                if self.may_become_task() {
                    // If the request were cancelled now, the work could continue on the server as a task
                    // whose id is unknown here.
                    self.cancel_by.get_or_insert_with(|| Instant::now() + BEFORE_TAKING_BACK);
                    return Ok(None);
                }
                Ok(self.cancel_wanted().await)
            }
        }
    }

    /// Queues the handle that resumes the call, if it can be resumed.
    fn emit_handle(&mut self) {
        let session = self.connection.session().map(str::to_owned);
        let (way, task) = match (&self.phase, &self.exchange, &self.cursor) {
            (McpCallPhase::Task(task), ..) => (ResumeVia::Task, Some(task.id.as_str())),
            (McpCallPhase::Call(_), Some((request, _)), Some(event)) => {
                (ResumeVia::Stream { request: request.clone(), event: event.clone() }, None)
            }
            (McpCallPhase::Call(again), None, _) => (ResumeVia::Again(again.clone()), None),
            (McpCallPhase::Call(again), Some(_), None) if again.round > 1 => match self.idempotent {
                true => (ResumeVia::Again(again.clone()), None),
                false => (ResumeVia::Sent, None),
            },
            (McpCallPhase::Call(_), Some(_), None) => return,
        };
        let kept = ResumeState {
            version: self.connection.version.name().to_owned(),
            session,
            token: self.token.clone(),
            questions: self.open.clone(),
            way,
            after: match &self.phase {
                McpCallPhase::Task(task) => task.after(),
                McpCallPhase::Call(_) => None,
            },
        };
        let handle = kept.handle(&self.name, task);
        // Only the last of several handles counts.
        if let Some(CallEvent::HandleUpdated(last)) = self.outbox.back_mut() {
            *last = handle;
        } else {
            self.outbox.push_back(CallEvent::HandleUpdated(handle));
        }
    }

    /// Registers an unanswered call with the router: later messages without a call's name may belong to it.
    fn abandon_call(&mut self) {
        if let (McpCallPhase::Call(_), Some(request)) = (&self.phase, self.unanswered.take())
            && !self.connection.version.is_stateless()
        {
            self.inbox.abandon_call(&self.token, request, self.taken_back);
        }
    }

    /// Sends the remaining events, and the end.
    async fn end(mut self, end: Result<Option<PeerCallEnd>, PeerError>) {
        self.shared.forget_questions(self.open.iter().map(|open| open.id.as_str()));
        let last = match end {
            Ok(None) => return self.abandon_call(),
            Ok(Some(ended)) => Ok(CallEvent::Ended(ended)),
            Err(error) => Err(error),
        };
        // The call is over for the server; the follower may read the rest at its own pace.
        if let (Some((id, _)), McpTransport::Wire(_)) = (self.exchange.take(), &self.connection.link)
            && matches!(self.phase, McpCallPhase::Task(_))
        {
            self.connection.cancel(&id, "the task has ended").await;
        }
        self.abandon_call();
        drop(self.inbox);
        let CallDriver { events: happened, commands: mut orders } = self.driver;
        let (mut rest, mut last) = (self.outbox, Some(last));
        while last.is_some() {
            tokio::select! {
                permit = happened.reserve() => {
                    let Ok(permit) = permit else { return };
                    match rest.is_empty() {
                        true => if let Some(last) = last.take() { permit.send(last) },
                        false => permit.send_first(&mut rest),
                    }
                }
                Some(order) = orders.recv() => {
                    let over = PeerError::Gone("the call is over".into());
                    let _ = match order {
                        CallCommand::Answer { taken, .. } | CallCommand::Message { taken, .. } => taken.send(Err(over)),
                        CallCommand::Cancel { told } => told.send(Err(over)),
                    };
                }
            }
        }
    }
}

async fn next(exchange: &mut Option<(Value, McpPeerExchange)>) -> Result<ExchangeEvent, McpRequestError> {
    match exchange {
        Some((_, exchange)) => exchange.next().await,
        None => std::future::pending().await,
    }
}

async fn polled(polling: Option<&mut task::TaskPoll>) -> Result<McpTaskSnapshot, McpRequestError> {
    match polling {
        Some(polling) => polling.await,
        None => std::future::pending().await,
    }
}

async fn sleep(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
