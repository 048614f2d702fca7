//! Routes messages that arrive outside of a request's own stream: all of them on pipes, those of the
//! session's stream over HTTP.
//!
//! Responses go to the pending request. Progress goes to the call with its token, a message that names a
//! task to the call of that task. A question or a log line that names nothing goes to the only call that it
//! can belong to. If there are several it is not delivered, because it may belong to another caller.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use nuncio_wire::{
    jsonrpc::METHOD_NOT_FOUND,
    mcp::{
        ClientResponse, McpMessage, McpPeerResponse, ServerNotification, ServerRequest, TaskEventNotification,
    },
};
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::Instant,
};

use super::error::McpRequestError;

/// Messages buffered for one call. Beyond that, progress and log lines are dropped and questions rejected,
/// so that one call without a reader does not block the others on the same pipe.
const INBOX: usize = 1024;
/// How long after a cancellation a message that names nothing may still belong to the cancelled call.
const TAKEN_BACK: Duration = Duration::from_secs(10);
/// Abandoned calls that are remembered. While there is one, a message that names nothing is not assigned by
/// guess.
const MAX_LEFT: usize = 1024;

/// Routes messages to calls and pending requests.
pub(super) struct MessageRouter {
    state: Mutex<RouterState>,
    /// Counts possible changes of the tools.
    changes: watch::Sender<u64>,
    /// Whether a question arrived that does not name its call.
    asks: AtomicBool,
}

#[derive(Default)]
struct RouterState {
    next: u64,
    calls: Vec<RoutedCall>,
    abandoned: Vec<AbandonedCall>,
    waiting: Vec<(Value, oneshot::Sender<Result<McpPeerResponse, McpRequestError>>)>,
    closed: Option<McpRequestError>,
}

struct RoutedCall {
    key: u64,
    token: String,
    task: Option<String>,
    inbox: mpsc::Sender<McpMessage>,
    /// Set when an event of its task was dropped; all later events are dropped, too.
    missed: Arc<AtomicBool>,
}

/// A call without a follower that the server may still be working on.
struct AbandonedCall {
    token: String,
    request: Value,
    /// When it is forgotten; `None` if the server was not asked to cancel it.
    until: Option<Instant>,
}

impl RouterState {
    /// The number of calls that a message without a name can belong to, followed or not.
    fn at_work(&mut self) -> usize {
        let now = Instant::now();
        self.abandoned.retain(|left| left.until.is_none_or(|until| now < until));
        self.calls.len() + self.abandoned.len()
    }
}

/// The result of [`MessageRouter::take`].
pub(super) enum RouteResult {
    /// It needs no further handling.
    Done,
    /// This reply has to be sent.
    Reply(Value),
    /// It belongs to a call.
    ForCall(McpMessage),
}

impl MessageRouter {
    pub(super) fn new(changes: watch::Sender<u64>) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), changes, asks: AtomicBool::new(false) })
    }

    /// An inbox for a call. `token`: its progress token.
    pub(super) fn open_inbox(self: &Arc<Self>, token: &str, task: Option<&str>) -> CallInbox {
        let mut seats = self.lock();
        self.add_inbox(&mut seats, token, task)
    }

    /// An inbox for a call on a connection without other calls. `None`: there is another call.
    pub(super) fn open_exclusive_inbox(self: &Arc<Self>, token: &str) -> Option<CallInbox> {
        let mut seats = self.lock();
        (seats.at_work() == 0).then(|| self.add_inbox(&mut seats, token, None))
    }

    fn add_inbox(self: &Arc<Self>, seats: &mut RouterState, token: &str, task: Option<&str>) -> CallInbox {
        let (inbox, heard) = mpsc::channel(INBOX);
        seats.next += 1;
        let key = seats.next;
        let (token, task) = (token.to_owned(), task.map(str::to_owned));
        let missed = Arc::new(AtomicBool::new(false));
        // The abandoned call is resumed.
        seats.abandoned.retain(|left| left.token != token);
        seats.calls.push(RoutedCall { key, token, task, inbox, missed: Arc::clone(&missed) });
        CallInbox { hub: Arc::clone(self), key, inbox: heard, missed }
    }

    /// Registers a pending request whose response arrives through the router.
    pub(super) fn expect_response(self: &Arc<Self>, id: &Value) -> PendingResponse {
        let (tell, told) = oneshot::channel();
        let mut seats = self.lock();
        match &seats.closed {
            Some(fail) => drop(tell.send(Err(fail.clone()))),
            None => seats.waiting.push((id.clone(), tell)),
        }
        PendingResponse { hub: Arc::clone(self), id: id.clone(), response: told }
    }

    /// Closes the router. Pending requests fail with this error.
    pub(super) fn close(&self, fail: &McpRequestError) {
        let mut seats = self.lock();
        seats.closed.get_or_insert_with(|| fail.clone());
        for (_, tell) in seats.waiting.drain(..) {
            let _ = tell.send(Err(fail.clone()));
        }
    }

    /// Why the router is closed, if it is.
    pub(super) fn closed(&self) -> Option<McpRequestError> {
        self.lock().closed.clone()
    }

    /// The number of calls with a follower.
    pub(super) fn calls(&self) -> usize {
        self.lock().calls.len()
    }

    /// Whether all remaining calls are abandoned.
    pub(super) fn is_deserted(&self) -> bool {
        let mut seats = self.lock();
        seats.calls.is_empty() && seats.at_work() > 0
    }

    /// Whether all remaining calls are abandoned, and the server was not asked to cancel at least one of
    /// them.
    pub(super) fn was_left(&self) -> bool {
        let seats = self.lock();
        seats.calls.is_empty() && seats.abandoned.iter().any(|left| left.until.is_none())
    }

    /// Whether the server has sent a question that does not name its call.
    pub(super) fn asks(&self) -> bool {
        self.asks.load(Ordering::Acquire)
    }

    /// Records that the tools may have changed.
    pub(super) fn notify_changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Handles messages that belong to no call.
    pub(super) fn take(&self, message: McpMessage) -> RouteResult {
        match message {
            McpMessage::Request { id, request } => match request {
                ServerRequest::Ping => RouteResult::Reply(ClientResponse::Pong.to_message(&id)),
                ServerRequest::ListRoots => RouteResult::Reply(ClientResponse::NoRoots.to_message(&id)),
                ServerRequest::Input(_) => RouteResult::ForCall(McpMessage::Request { id, request }),
                ServerRequest::Unknown(method) => {
                    RouteResult::Reply(refuse(&id, &format!("unknown method {method:?}")))
                }
            },
            McpMessage::Notification(ServerNotification::ToolsChanged) => {
                self.notify_changed();
                RouteResult::Done
            }
            other => RouteResult::ForCall(other),
        }
    }

    /// Delivers a message. Returns the reply to send, if any.
    pub(super) fn route(&self, message: McpMessage) -> Option<Value> {
        match self.take(message) {
            RouteResult::Done => None,
            RouteResult::Reply(reply) => Some(reply),
            RouteResult::ForCall(McpMessage::Answer(answer)) => {
                self.answer(answer);
                None
            }
            RouteResult::ForCall(McpMessage::Notification(notification)) => {
                self.deliver_notification(&notification);
                None
            }
            RouteResult::ForCall(McpMessage::Request { id, request }) => {
                let task = match &request {
                    ServerRequest::Input(input) => input.related_task(),
                    _ => None,
                };
                if task.is_none() {
                    self.asks.store(true, Ordering::Release);
                }
                let why = match self.addressee(task) {
                    Ok(inbox) => match inbox.try_send(McpMessage::Request { id: id.clone(), request }) {
                        Ok(()) => return None,
                        Err(_) => NOBODY,
                    },
                    Err(why) => why,
                };
                Some(refuse(&id, why))
            }
        }
    }

    fn answer(&self, answer: McpPeerResponse) {
        let mut seats = self.lock();
        match seats.waiting.iter().position(|(id, _)| *id == answer.id) {
            Some(at) => drop(seats.waiting.swap_remove(at).1.send(Ok(answer))),
            None => {
                seats.abandoned.retain(|left| left.request != answer.id);
                tracing::debug!(id = %answer.id, "a response to an unknown request");
            }
        }
    }

    fn deliver_notification(&self, notification: &ServerNotification) {
        let inboxes: Vec<mpsc::Sender<McpMessage>> = match notification {
            ServerNotification::TaskEvent(event) => return self.deliver_event(event),
            ServerNotification::Progress { token, .. } => {
                self.inbox(|call| Some(&call.token) == token.as_ref()).into_iter().collect()
            }
            // Each call knows whether the elicitation is its own.
            ServerNotification::ElicitationComplete(_)
            | ServerNotification::Cancelled(_)
            | ServerNotification::Subscribed { .. } => {
                self.lock().calls.iter().map(|call| call.inbox.clone()).collect()
            }
            ServerNotification::Task(task) => {
                self.inbox(|call| call.task == task.id && task.id.is_some()).into_iter().collect()
            }
            ServerNotification::Log { task, .. } => self.addressee(task.as_deref()).into_iter().collect(),
            ServerNotification::ToolsChanged
            | ServerNotification::ResourceUpdated(_)
            | ServerNotification::Unknown(_) => vec![],
        };
        for inbox in inboxes {
            if let Err(error) = inbox.try_send(McpMessage::Notification(notification.clone())) {
                tracing::warn!(%error, "dropped a notification: its call does not take it");
            }
        }
    }

    /// Delivers a task event to the call of that task. After the first event that does not fit the call gets
    /// no more, to preserve the order: it reconnects with its cursor.
    fn deliver_event(&self, event: &TaskEventNotification) {
        let seats = self.lock();
        let call = seats.calls.iter().rev().find(|call| call.task == event.task && event.task.is_some());
        let Some(call) = call.filter(|call| !call.missed.load(Ordering::Acquire)) else { return };
        let event = McpMessage::Notification(ServerNotification::TaskEvent(event.clone()));
        if call.inbox.try_send(event).is_err() {
            call.missed.store(true, Ordering::Release);
        }
    }

    /// The inbox for a message that names this task, or nothing.
    fn addressee(&self, task: Option<&str>) -> Result<mpsc::Sender<McpMessage>, &'static str> {
        if task.is_some() {
            return self.inbox(|call| call.task.as_deref() == task).ok_or(NOBODY);
        }
        let mut seats = self.lock();
        match (seats.at_work(), seats.calls.first()) {
            (1, Some(call)) => Ok(call.inbox.clone()),
            (_, None) => Err(NOBODY),
            _ => Err(SEVERAL),
        }
    }

    /// The newest call that matches.
    fn inbox(&self, fits: impl Fn(&RoutedCall) -> bool) -> Option<mpsc::Sender<McpMessage>> {
        self.lock().calls.iter().rev().find(|call| fits(call)).map(|call| call.inbox.clone())
    }

    fn lock(&self) -> MutexGuard<'_, RouterState> {
        self.state.lock()
    }
}

const NOBODY: &str = "no call is under way here that could answer";
const SEVERAL: &str = "several calls are under way here, and this does not say which of them it belongs to";

/// The response to a request that is not answered here.
fn refuse(id: &Value, why: &str) -> Value {
    ClientResponse::Refused { code: METHOD_NOT_FOUND, message: why.to_owned() }.to_message(id)
}

/// The inbox of a call.
pub(super) struct CallInbox {
    hub: Arc<MessageRouter>,
    key: u64,
    inbox: mpsc::Receiver<McpMessage>,
    missed: Arc<AtomicBool>,
}

/// An item in the inbox of a call.
pub(super) enum InboxItem {
    /// A routed message.
    Message(McpMessage),
    /// Events of its task were dropped because the inbox was full.
    Missed,
}

impl CallInbox {
    /// The next item for the call. Never ends.
    pub(super) async fn next(&mut self) -> InboxItem {
        if self.inbox.is_empty() && self.missed.swap(false, Ordering::AcqRel) {
            return InboxItem::Missed;
        }
        match self.inbox.recv().await {
            Some(message) => InboxItem::Message(message),
            None => std::future::pending().await,
        }
    }

    /// The call stops without a response to that request. `told`: the cancellation was sent to the server.
    pub(super) fn abandon_call(&self, token: &str, request: Value, told: bool) {
        let mut seats = self.hub.lock();
        if seats.abandoned.len() < MAX_LEFT {
            let until = told.then(|| Instant::now() + TAKEN_BACK);
            seats.abandoned.push(AbandonedCall { token: token.to_owned(), request, until });
        }
    }

    /// The call has become a task.
    pub(super) fn set_task(&self, task: &str) {
        if let Some(call) = self.hub.lock().calls.iter_mut().find(|call| call.key == self.key) {
            call.task = Some(task.to_owned());
        }
    }
}

impl Drop for CallInbox {
    fn drop(&mut self) {
        self.hub.lock().calls.retain(|call| call.key != self.key);
    }
}

/// A response that is still to arrive.
pub(super) struct PendingResponse {
    hub: Arc<MessageRouter>,
    id: Value,
    response: oneshot::Receiver<Result<McpPeerResponse, McpRequestError>>,
}

impl PendingResponse {
    pub(super) async fn answer(&mut self) -> Result<McpPeerResponse, McpRequestError> {
        (&mut self.response).await.unwrap_or_else(|_| Err(McpRequestError::cut("the connection was closed")))
    }
}

impl Drop for PendingResponse {
    fn drop(&mut self) {
        self.hub.lock().waiting.retain(|(id, _)| *id != self.id);
    }
}

#[cfg(test)]
mod tests {
    use nuncio_wire::mcp::{EVENT_NOTIFICATION, read_messages};
    use serde_json::json;

    use super::*;

    fn message(message: &Value) -> McpMessage {
        let mut messages = read_messages(message.to_string().as_bytes()).unwrap();
        messages.remove(0)
    }

    fn notification(method: &str, params: &Value) -> McpMessage {
        message(&json!({ "method": method, "params": params }))
    }

    fn progress(token: &str) -> McpMessage {
        notification("notifications/progress", &json!({ "progressToken": token, "progress": 1 }))
    }

    fn question(params: &Value) -> McpMessage {
        message(&json!({ "id": 7, "method": "elicitation/create", "params": params }))
    }

    fn line() -> McpMessage {
        notification("notifications/message", &json!({ "level": "info", "data": "words" }))
    }

    #[test]
    fn everything_goes_to_whom_it_is_for() {
        let hub = MessageRouter::new(watch::Sender::new(0));
        let mut first = hub.open_inbox("one", None);
        let mut second = hub.open_inbox("two", Some("t"));
        assert!(hub.route(progress("one")).is_none());
        assert_eq!(first.inbox.try_recv().unwrap(), progress("one"));
        assert!(second.inbox.try_recv().is_err());
        // With several calls, a message that names nothing is not delivered; one that names a task is.
        let third = hub.open_inbox("three", None);
        let refused = hub.route(question(&json!({}))).unwrap();
        assert!(refused["error"]["message"].as_str().unwrap().starts_with("several calls"), "{refused}");
        assert!(hub.route(line()).is_none());
        let meta = json!({ "_meta": { "io.modelcontextprotocol/related-task": { "taskId": "t" } } });
        assert!(hub.route(question(&meta)).is_none());
        assert_eq!(second.inbox.try_recv().unwrap(), question(&meta));
        drop((second, third));
        for message in [question(&json!({})), line()] {
            assert!(hub.route(message.clone()).is_none());
            assert_eq!(first.inbox.try_recv().unwrap(), message, "it can be meant for no other");
        }
        drop(first);
        let refused = hub.route(question(&json!({}))).unwrap();
        assert_eq!(refused["error"]["code"], -32601, "{refused}");
    }

    #[test]
    fn a_call_that_was_left_is_not_taken_for_another() {
        let hub = MessageRouter::new(watch::Sender::new(0));
        let refused = || hub.route(question(&json!({}))).is_some();
        hub.open_inbox("gone", None).abandon_call("gone", 1.into(), false);
        hub.open_inbox("stopped", None).abandon_call("stopped", 2.into(), true);
        assert!(hub.is_deserted() && hub.was_left() && hub.open_exclusive_inbox("other").is_none());
        let other = hub.open_inbox("other", None);
        assert!(refused());
        // The server was asked to cancel one of them, and answers the other.
        for left in hub.lock().abandoned.iter_mut().filter(|left| left.until.is_some()) {
            left.until = Some(Instant::now());
        }
        assert!(refused());
        hub.route(McpMessage::Answer(McpPeerResponse { id: 1.into(), outcome: Ok(json!({})) }));
        assert!(!refused());
        other.abandon_call("other", 3.into(), false);
        drop(other);
        assert!(hub.open_exclusive_inbox("other").is_none(), "whether it is back is known by its seat");
        let _back = hub.open_inbox("other", None);
        assert!(!refused());
    }

    #[test]
    fn what_concerns_no_call_is_answered_here() {
        let changes = watch::Sender::new(0);
        let hub = MessageRouter::new(changes.clone());
        let ask = |method: &str| hub.route(message(&json!({ "id": 1, "method": method })));
        assert_eq!(ask("ping").unwrap()["result"], json!({}));
        assert_eq!(ask("roots/list").unwrap()["result"], json!({ "roots": [] }));
        assert_eq!(ask("tasks/list").unwrap()["error"]["code"], -32601);
        assert!(hub.route(notification("notifications/tools/list_changed", &Value::Null)).is_none());
        assert_eq!(*changes.borrow(), 1);
    }

    #[tokio::test]
    async fn a_call_that_is_slow_to_listen_knows_that_events_were_dropped() {
        let hub = MessageRouter::new(watch::Sender::new(0));
        let mut inbox = hub.open_inbox("one", Some("t"));
        let event = |seq: usize| notification(EVENT_NOTIFICATION, &json!({ "taskId": "t", "seq": seq }));
        for seq in 0..INBOX + 2 {
            assert!(hub.route(event(seq)).is_none());
        }
        let InboxItem::Message(first) = inbox.next().await else { panic!("there is room for {INBOX}") };
        assert_eq!(first, event(0));
        // There is room again, but events are missing before the next one.
        hub.route(event(INBOX + 2));
        for seq in 1..INBOX {
            assert!(matches!(inbox.next().await, InboxItem::Message(message) if message == event(seq)));
        }
        assert!(matches!(inbox.next().await, InboxItem::Missed));
        hub.route(event(7));
        assert!(matches!(inbox.next().await, InboxItem::Message(message) if message == event(7)));
    }

    #[tokio::test]
    async fn whoever_waits_when_it_closes_is_told_why() {
        let hub = MessageRouter::new(watch::Sender::new(0));
        let mut early = hub.expect_response(&1.into());
        hub.close(&McpRequestError::cut("it died"));
        let mut late = hub.expect_response(&2.into());
        for expected in [&mut early, &mut late] {
            let fail = expected.answer().await.unwrap_err().into_peer("there");
            assert_eq!(fail, crate::peer::PeerError::Cut("it died".into()));
        }
    }
}
