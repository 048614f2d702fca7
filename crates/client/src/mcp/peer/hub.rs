//! Who hears what a server says outside of a request's own stream: on pipes everything, over HTTP what comes on the
//! session's stream.
//!
//! Answers go to whoever made the request. Progress goes to the call that has its token, what names a task to the
//! call of that task; a question or a log line that names nothing goes to the newest call, because sessions have no
//! other way to say which they mean.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nuncio_wire::jsonrpc::METHOD_NOT_FOUND;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    fail::Fail,
    incoming::{Answer, Incoming, reply},
};

/// Messages that wait for one call. Progress and log lines beyond them are dropped, questions refused, so that one
/// call which nobody follows does not hold up the others on the same pipe.
const INBOX: usize = 1024;

/// Where messages go.
pub(super) struct Hub {
    seats: Mutex<Seats>,
    /// Counts what may have changed in the offers.
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct Seats {
    next: u64,
    calls: Vec<CallSeat>,
    waiting: Vec<(Value, oneshot::Sender<Result<Answer, Fail>>)>,
    closed: Option<Fail>,
}

struct CallSeat {
    key: u64,
    token: String,
    task: Option<String>,
    inbox: mpsc::Sender<Incoming>,
}

/// What became of a message that needs nobody in particular.
pub(super) enum Taken {
    /// It is dealt with.
    Done,
    /// This is to be sent back.
    Reply(Value),
    /// It is for a call.
    Rest(Incoming),
}

impl Hub {
    pub(super) fn new(changes: watch::Sender<u64>) -> Arc<Self> {
        Arc::new(Self { seats: Mutex::default(), changes })
    }

    /// A call's place. `token`: what its progress carries.
    pub(super) fn sit(self: &Arc<Self>, token: &str, task: Option<&str>) -> Seat {
        let (inbox, heard) = mpsc::channel(INBOX);
        let mut seats = self.lock();
        seats.next += 1;
        let key = seats.next;
        let (token, task) = (token.to_owned(), task.map(str::to_owned));
        seats.calls.push(CallSeat { key, token, task, inbox });
        Seat { hub: Arc::clone(self), key, heard }
    }

    /// Where the answer to that request will come, where answers come by the hub.
    pub(super) fn expect(self: &Arc<Self>, id: &Value) -> Expected {
        let (tell, told) = oneshot::channel();
        let mut seats = self.lock();
        match &seats.closed {
            Some(fail) => drop(tell.send(Err(fail.clone()))),
            None => seats.waiting.push((id.clone(), tell)),
        }
        Expected { hub: Arc::clone(self), id: id.clone(), told }
    }

    /// Nothing comes any more. Whoever waits is told why.
    pub(super) fn close(&self, fail: &Fail) {
        let mut seats = self.lock();
        seats.closed.get_or_insert_with(|| fail.clone());
        for (_, tell) in seats.waiting.drain(..) {
            let _ = tell.send(Err(fail.clone()));
        }
    }

    /// Why nothing comes any more, where that is so.
    pub(super) fn closed(&self) -> Option<Fail> {
        self.lock().closed.clone()
    }

    /// Whether calls are under way.
    pub(super) fn is_busy(&self) -> bool {
        !self.lock().calls.is_empty()
    }

    /// What is offered may have changed.
    pub(super) fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Deals with what concerns no call.
    pub(super) fn take(&self, message: Incoming) -> Taken {
        match message {
            Incoming::Request { id, method, params } => match method.as_str() {
                "ping" => Taken::Reply(reply(&id, Ok(json!({})))),
                "roots/list" => Taken::Reply(reply(&id, Ok(json!({ "roots": [] })))),
                "elicitation/create" | "sampling/createMessage" => {
                    Taken::Rest(Incoming::Request { id, method, params })
                }
                _ => {
                    let why = format!("there is no method {method:?} here");
                    Taken::Reply(reply(&id, Err((METHOD_NOT_FOUND, why))))
                }
            },
            Incoming::Notice { method, .. } if method == "notifications/tools/list_changed" => {
                self.changed();
                Taken::Done
            }
            other => Taken::Rest(other),
        }
    }

    /// Gives a message to whoever it is for. Returns what is to be sent back.
    pub(super) fn route(&self, message: Incoming) -> Option<Value> {
        match self.take(message) {
            Taken::Done => None,
            Taken::Reply(reply) => Some(reply),
            Taken::Rest(Incoming::Answer(answer)) => {
                self.answer(answer);
                None
            }
            Taken::Rest(Incoming::Notice { method, params }) => {
                self.tell(&method, &params);
                None
            }
            Taken::Rest(Incoming::Request { id, method, params }) => {
                let task = related_task(&params).map(str::to_owned);
                let inbox = self.inbox(|call| task.is_none() || call.task == task);
                let asked = Incoming::Request { id: id.clone(), method, params };
                if inbox.is_some_and(|inbox| inbox.try_send(asked).is_ok()) {
                    return None;
                }
                let why = "no call is under way here that could answer".to_owned();
                Some(reply(&id, Err((METHOD_NOT_FOUND, why))))
            }
        }
    }

    fn answer(&self, answer: Answer) {
        let mut seats = self.lock();
        match seats.waiting.iter().position(|(id, _)| *id == answer.id) {
            Some(at) => drop(seats.waiting.swap_remove(at).1.send(Ok(answer))),
            None => tracing::debug!(id = %answer.id, "an answer to nothing that was asked"),
        }
    }

    fn tell(&self, method: &str, params: &Value) {
        let inboxes: Vec<mpsc::Sender<Incoming>> = match method {
            "notifications/progress" => {
                let token = params["progressToken"].as_str();
                self.inbox(|call| Some(call.token.as_str()) == token).into_iter().collect()
            }
            // Which of the calls is meant is known there.
            "notifications/elicitation/complete"
            | "notifications/cancelled"
            | "notifications/subscriptions/acknowledged" => {
                self.lock().calls.iter().map(|call| call.inbox.clone()).collect()
            }
            "notifications/tasks" | "notifications/tasks/status" => {
                let task = params["taskId"].as_str();
                self.inbox(|call| call.task.as_deref() == task && task.is_some()).into_iter().collect()
            }
            "notifications/message" => {
                let task = related_task(params);
                let inbox = self.inbox(|call| task.is_none() || call.task.as_deref() == task);
                inbox.into_iter().collect()
            }
            _ => vec![],
        };
        for inbox in inboxes {
            let notice = Incoming::Notice { method: method.to_owned(), params: params.clone() };
            if inbox.try_send(notice).is_err() {
                tracing::warn!(method, "dropped: nobody follows the call that it is for");
            }
        }
    }

    /// The newest call that fits.
    fn inbox(&self, fits: impl Fn(&CallSeat) -> bool) -> Option<mpsc::Sender<Incoming>> {
        self.lock().calls.iter().rev().find(|call| fits(call)).map(|call| call.inbox.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task that a message says it belongs to (2025-11-25).
fn related_task(params: &Value) -> Option<&str> {
    params["_meta"]["io.modelcontextprotocol/related-task"]["taskId"].as_str()
}

/// A call's place.
pub(super) struct Seat {
    hub: Arc<Hub>,
    key: u64,
    heard: mpsc::Receiver<Incoming>,
}

impl Seat {
    /// The next message for the call. It never ends.
    pub(super) async fn next(&mut self) -> Incoming {
        match self.heard.recv().await {
            Some(message) => message,
            None => std::future::pending().await,
        }
    }

    /// The call has become a task.
    pub(super) fn is_task(&self, task: &str) {
        if let Some(call) = self.hub.lock().calls.iter_mut().find(|call| call.key == self.key) {
            call.task = Some(task.to_owned());
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.hub.lock().calls.retain(|call| call.key != self.key);
    }
}

/// An answer that will come.
pub(super) struct Expected {
    hub: Arc<Hub>,
    id: Value,
    told: oneshot::Receiver<Result<Answer, Fail>>,
}

impl Expected {
    pub(super) async fn answer(&mut self) -> Result<Answer, Fail> {
        (&mut self.told).await.unwrap_or_else(|_| Err(Fail::cut("nobody answers any more")))
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.hub.lock().waiting.retain(|(id, _)| *id != self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(token: &str) -> Incoming {
        let params = json!({ "progressToken": token, "progress": 1 });
        Incoming::Notice { method: "notifications/progress".into(), params }
    }

    fn question(params: Value) -> Incoming {
        Incoming::Request { id: 7.into(), method: "elicitation/create".into(), params }
    }

    #[test]
    fn everything_goes_to_whom_it_is_for() {
        let hub = Hub::new(watch::Sender::new(0));
        let mut first = hub.sit("one", None);
        let mut second = hub.sit("two", Some("t"));
        assert!(hub.route(progress("one")).is_none());
        assert_eq!(first.heard.try_recv().unwrap(), progress("one"));
        assert!(second.heard.try_recv().is_err());
        // What names nothing goes to the newest call, what names a task to that one.
        let _third = hub.sit("three", None);
        let meta = json!({ "_meta": { "io.modelcontextprotocol/related-task": { "taskId": "t" } } });
        assert!(hub.route(question(meta.clone())).is_none());
        assert_eq!(second.heard.try_recv().unwrap(), question(meta));
        drop((first, second, _third));
        let refused = hub.route(question(json!({}))).unwrap();
        assert_eq!(refused["error"]["code"], -32601, "{refused}");
    }

    #[test]
    fn what_concerns_no_call_is_answered_here() {
        let changes = watch::Sender::new(0);
        let hub = Hub::new(changes.clone());
        let ask = |method: &str| {
            hub.route(Incoming::Request { id: 1.into(), method: method.into(), params: Value::Null })
        };
        assert_eq!(ask("ping").unwrap()["result"], json!({}));
        assert_eq!(ask("roots/list").unwrap()["result"], json!({ "roots": [] }));
        assert_eq!(ask("tasks/list").unwrap()["error"]["code"], -32601);
        let changed =
            Incoming::Notice { method: "notifications/tools/list_changed".into(), params: Value::Null };
        assert!(hub.route(changed).is_none());
        assert_eq!(*changes.borrow(), 1);
    }

    #[tokio::test]
    async fn whoever_waits_when_it_closes_is_told_why() {
        let hub = Hub::new(watch::Sender::new(0));
        let mut early = hub.expect(&1.into());
        hub.close(&Fail::cut("it died"));
        let mut late = hub.expect(&2.into());
        for expected in [&mut early, &mut late] {
            let fail = expected.answer().await.unwrap_err().into_peer("there");
            assert_eq!(fail, crate::peer::PeerError::Cut("it died".into()));
        }
    }
}
