//! Open calls whose task waits for an answer.
//!
//! A waiting task holds no resources and its agent is dropped, but a call may depend on its connection, as a
//! plain MCP call does. So the call is parked here, in this process, until its task runs again. It is still
//! read meanwhile: if the question is answered or the call ended at the peer, the question is withdrawn here
//! as well (`withdraw.rs`). Above the limit the oldest call is dropped; its task then resumes it by its
//! handle, or calls again.

use std::{collections::VecDeque, sync::Arc};

use nuncio_client::peer::{CallEvent, HAPPENED, PeerCall, PeerError};
use nuncio_engine::TaskId;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{RemoteSide, withdraw::RemoteQuestion};

/// The maximum number of parked calls.
pub(super) const WAITING_CALLS: usize = 1024;

/// A call, with the events already read from it.
pub(super) struct LiveCall {
    pub(super) call: PeerCall,
    pub(super) ahead: VecDeque<Result<CallEvent, PeerError>>,
    /// Keeps the peer in use as long as the call exists.
    _hold: Arc<()>,
}

impl LiveCall {
    pub(super) fn new(call: PeerCall, there: &RemoteSide) -> Self {
        Self::held(call, there.hold())
    }

    fn held(call: PeerCall, hold: Arc<()>) -> Self {
        Self { call, ahead: VecDeque::new(), _hold: hold }
    }
}

/// A parked call: its number in its task, and how to take it back.
struct ParkedCall {
    task: TaskId,
    nth: u32,
    back: oneshot::Sender<oneshot::Sender<LiveCall>>,
}

/// The parked calls, oldest first.
static WAITING: Mutex<VecDeque<ParkedCall>> = Mutex::new(VecDeque::new());

/// Parks a call until its task runs again. `question` is what the task waits for.
pub(super) fn park_call(task: TaskId, nth: u32, live: LiveCall, question: RemoteQuestion) {
    let (back, wanted) = oneshot::channel();
    let mut waiting = WAITING.lock();
    waiting.retain(|kept| kept.task != task);
    while waiting.len() >= WAITING_CALLS {
        waiting.pop_front();
    }
    waiting.push_back(ParkedCall { task, nth, back });
    tokio::spawn(watch_parked_call(live, wanted, question));
}

/// Takes a task's call back, if it is parked here: the one with this number, or any.
pub(super) async fn take_parked_call(task: TaskId, nth: Option<u32>) -> Option<LiveCall> {
    let kept = {
        let mut waiting = WAITING.lock();
        let is_it = |kept: u32| nth.is_none_or(|nth| nth == kept);
        let at = waiting.iter().position(|kept| kept.task == task && is_it(kept.nth))?;
        waiting.remove(at)?
    };
    let (give, given) = oneshot::channel();
    kept.back.send(give).ok()?;
    given.await.ok()
}

/// Reads a call until it is taken back. Drops it once nothing can take it back.
async fn watch_parked_call(
    mut live: LiveCall,
    mut wanted: oneshot::Receiver<oneshot::Sender<LiveCall>>,
    question: RemoteQuestion,
) {
    let mut over = false;
    let mut closed = live.ahead.iter().any(|happened| question.is_closed_by(happened));
    loop {
        let happened = tokio::select! {
            biased;
            wanted = &mut wanted => {
                if let Ok(give) = wanted {
                    let _ = give.send(live);
                }
                return;
            }
            () = question.withdraw(), if closed => {
                closed = false;
                continue;
            }
            happened = live.call.next(), if !over && live.ahead.len() < HAPPENED => happened,
        };
        over = matches!(happened, Err(_) | Ok(CallEvent::Ended(_)));
        closed |= question.is_closed_by(&happened);
        live.ahead.push_back(happened.map_err(forget_outage));
    }
}

/// An outage while the task waited: the peer may be back when the task goes on, so the call is then resumed
/// as after any disconnect.
fn forget_outage(error: PeerError) -> PeerError {
    match error {
        outage @ PeerError::Outage { .. } => PeerError::Cut(outage.to_string()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use nuncio_client::peer::CallDriver;

    use super::*;

    fn task(n: usize) -> TaskId {
        TaskId::parse(&format!("01900000-0000-7000-8000-{n:012x}")).unwrap()
    }

    fn kept(task: TaskId) -> CallDriver {
        let (call, driver) = PeerCall::new();
        park_call(task, 1, LiveCall::held(call, Arc::default()), RemoteQuestion::none());
        driver
    }

    #[tokio::test]
    async fn the_oldest_call_is_let_go_when_there_are_too_many() {
        let oldest = task(0);
        let first = kept(oldest);
        let others: Vec<_> = (1..WAITING_CALLS).map(task).collect();
        let drivers: Vec<_> = others.iter().map(|task| kept(*task)).collect();
        tokio::task::yield_now().await;
        assert!(!first.events.is_closed(), "there is a place for each of them");
        let youngest = task(WAITING_CALLS);
        let last = kept(youngest);
        first.events.closed().await;
        assert!(take_parked_call(oldest, None).await.is_none());
        assert!(!last.events.is_closed() && !drivers[0].events.is_closed());
        assert!(take_parked_call(youngest, Some(2)).await.is_none(), "it is another of its calls");
        assert!(take_parked_call(youngest, Some(1)).await.is_some());
        for task in others {
            assert!(take_parked_call(task, None).await.is_some());
        }
    }
}
