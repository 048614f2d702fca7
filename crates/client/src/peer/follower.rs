//! The follower of one call across its connections: it knows the handle to resume from, when to open the call again
//! after a cut, and which answers the peer may not have received.
//!
//! The caller owns the open [`PeerCall`], because callers differ in what they do beside it: a remote agent parks it
//! while its task waits, the chat reads it beside what is typed. What they have in common is here: a failure is recorded
//! once, and yields the pause before the next attempt or the end.

use std::time::Duration;

use nuncio_engine::question::{Answer, Question};
use nuncio_outbound::Backoff;
use tokio::time::{Instant, timeout};

use super::{CallEvent, CallHandle, Peer, PeerCall, PeerError};

/// How a call is followed.
#[derive(Debug, Clone, Copy)]
pub struct FollowOptions {
    /// The first pause before the call is opened again. The next ones double.
    pub first_pause: Duration,
    /// The longest pause, unless the peer names a longer one.
    pub longest_pause: Duration,
    /// The longest pause that the peer may name.
    pub longest_named_pause: Duration,
    /// How long the call may be closed, from the first failure until an event arrives.
    pub limit: Duration,
    /// Whether an outage that the peer itself has waited for ([`PeerError::Outage`]) is waited for further.
    pub outlasts_outage: bool,
    /// Whether a call without a handle may be begun again: doing it twice has the effect of doing it once.
    pub begins_again: bool,
    /// How long a connection has to last to end an outage, though nothing happened in the call meanwhile. `None`: only
    /// what happens in the call ends an outage.
    pub stable_after: Option<Duration>,
    /// Whether the second question repeats the first one, so that the answer to the first is sent again.
    pub is_repeat: fn(&Question, &Question) -> bool,
}

/// Follows a call across its connections.
#[derive(Debug)]
pub struct CallFollower {
    options: FollowOptions,
    handle: Option<CallHandle>,
    backoff: Backoff,
    /// Whether the call has made progress since it was opened.
    has_progressed: bool,
    opened: Option<Instant>,
    /// Answers that the peer may not have received, each with its question.
    answers: Vec<(Question, Answer)>,
}

/// An event of a followed call.
#[derive(Debug, Clone, PartialEq)]
pub enum FollowedEvent {
    /// To be handed over.
    Event(CallEvent),
    /// The peer asks again what was answered: this answer is to be sent again. It is forgotten here: if it may be lost
    /// once more, record it.
    AskedAgain(Question, Answer),
}

impl CallFollower {
    /// A follower of a call that has this handle, or none yet.
    pub fn new(handle: Option<CallHandle>, options: FollowOptions) -> Self {
        let backoff = Backoff::new(options.first_pause, options.longest_pause, options.limit);
        Self { options, handle, backoff, has_progressed: false, opened: None, answers: vec![] }
    }

    /// The handle to resume the call from, after the last event.
    pub fn handle(&self) -> Option<&CallHandle> {
        self.handle.as_ref()
    }

    /// Opens the call again by its handle, in the time that is left.
    pub async fn resume(&self, peer: &dyn Peer) -> Result<PeerCall, PeerError> {
        let Some(handle) = &self.handle else {
            return Err(PeerError::Gone("the call went with the process that made it".into()));
        };
        let limit = self.backoff.attempt_limit();
        match timeout(limit, peer.resume(handle)).await {
            Ok(resumed) => resumed,
            Err(_) => {
                let why = format!("it did not answer within {} s", limit.as_secs_f32());
                Err(PeerError::Unreachable { at: peer.address(), why })
            }
        }
    }

    /// Records that the call is open, begun or resumed.
    pub fn record_open(&mut self) {
        self.opened = Some(Instant::now());
    }

    /// Records an event of the open call. Questions that repeat an answered one are answered again.
    pub fn receive(&mut self, event: CallEvent) -> FollowedEvent {
        // These come with every connection, whether or not the work goes on.
        self.has_progressed |=
            !matches!(event, CallEvent::HandleUpdated(_) | CallEvent::Context(_) | CallEvent::Question(_));
        match &event {
            CallEvent::HandleUpdated(handle) => self.handle = Some(handle.clone()),
            CallEvent::QuestionClosed(question) => self.forget_answer(question),
            CallEvent::Question(question) => {
                let is_repeat = self.options.is_repeat;
                if let Some(at) = self.answers.iter().position(|(asked, _)| is_repeat(asked, question)) {
                    return FollowedEvent::AskedAgain(question.clone(), self.answers.remove(at).1);
                }
            }
            _ => {}
        }
        FollowedEvent::Event(event)
    }

    /// Records an answer that the peer may not receive. It replaces an earlier one to the same question.
    pub fn record_answer(&mut self, question: Question, answer: Answer) {
        self.forget_answer(&question.id);
        self.answers.push((question, answer));
    }

    /// The answer to this question is not sent again.
    pub fn forget_answer(&mut self, question: &str) {
        self.answers.retain(|(asked, _)| asked.id != question);
    }

    /// The first answer that the peer may not have received.
    pub fn first_answer(&self) -> Option<&(Question, Answer)> {
        self.answers.first()
    }

    /// Records that the call could not be opened by an attempt that began at that time. Returns the pause before the
    /// next one; `None`: another attempt does not help, or the limit has passed.
    pub fn record_failure(&mut self, began: Instant, error: &PeerError) -> Option<Duration> {
        let may_go_on = match error {
            PeerError::Unreachable { .. } | PeerError::NoCard { .. } | PeerError::Busy { .. } => true,
            // Without a handle it is unknown whether the call arrived.
            PeerError::Cut(_) => self.handle.is_some() || self.options.begins_again,
            PeerError::Outage { .. } => {
                self.options.outlasts_outage && (self.handle.is_some() || self.options.begins_again)
            }
            _ => false,
        };
        if !may_go_on {
            return None;
        }
        let named = error.retry_after().map(|pause| pause.min(self.options.longest_named_pause));
        self.backoff.fail(began, named)
    }

    /// The same for an open call whose connection was lost. A call that has made progress has the whole limit again.
    pub fn record_cut(&mut self, error: &PeerError) -> Option<Duration> {
        let lasted = self.opened.take().map_or(Duration::ZERO, |opened| opened.elapsed());
        let is_stable = self.options.stable_after.is_some_and(|least| lasted > least);
        if std::mem::take(&mut self.has_progressed) || is_stable {
            self.backoff.reset();
        }
        self.record_failure(Instant::now(), error)
    }
}

#[cfg(test)]
mod tests {
    use nuncio_engine::{event::Progress, question::Ask};
    use serde_json::json;

    use super::*;

    const fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    fn options() -> FollowOptions {
        FollowOptions {
            first_pause: ms(100),
            longest_pause: ms(400),
            longest_named_pause: ms(500),
            limit: ms(1000),
            outlasts_outage: false,
            begins_again: false,
            stable_after: None,
            is_repeat: |one, other| one == other,
        }
    }

    fn handle(note: u64) -> CallHandle {
        serde_json::from_value(json!({ "offer": "echo", "task": "t", "state": { "after": note } })).unwrap()
    }

    fn question(id: &str, text: &str) -> Question {
        Question { id: id.into(), text: text.into(), ask: Ask::Form { schema: json!({}) }, callback: None }
    }

    fn progress() -> CallEvent {
        CallEvent::Progress(Progress { done: 1.0, total: None, text: None, data: None })
    }

    fn cut() -> PeerError {
        PeerError::Cut("cut".into())
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_opened_again_where_that_is_safe() {
        let (unreachable, busy) = (
            PeerError::Unreachable { at: "a".into(), why: "down".into() },
            PeerError::Busy { why: "busy".into(), retry_after: Some(ms(60_000)) },
        );
        let outage = PeerError::Outage { at: "a".into(), lasted: ms(1), why: "down".into() };
        let check =
            |handle: Option<CallHandle>, options: FollowOptions, error: &PeerError, pause: Option<u64>| {
                let mut follower = CallFollower::new(handle, options);
                assert_eq!(follower.record_failure(Instant::now(), error), pause.map(ms), "{error}");
            };
        let again = FollowOptions { begins_again: true, ..options() };
        let patient = FollowOptions { outlasts_outage: true, ..options() };
        check(None, options(), &unreachable, Some(100));
        check(None, options(), &busy, Some(500));
        check(None, options(), &cut(), None);
        check(None, again, &cut(), Some(100));
        check(Some(handle(1)), options(), &cut(), Some(100));
        check(Some(handle(1)), options(), &outage, None);
        check(Some(handle(1)), patient, &outage, Some(100));
        check(None, patient, &outage, None);
        check(Some(handle(1)), again, &PeerError::Gone("gone".into()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn only_progress_gives_the_whole_time_again() {
        let mut follower = CallFollower::new(Some(handle(1)), options());
        let mut pauses = vec![];
        while let Some(pause) = follower.record_cut(&cut()) {
            pauses.push(pause);
            tokio::time::sleep(pause).await;
            // What every connection begins with is no progress.
            follower.receive(CallEvent::HandleUpdated(handle(2)));
            follower.receive(CallEvent::Question(question("q", "well?")));
        }
        assert_eq!(pauses, [ms(100), ms(200), ms(400), ms(300)]);
        follower.receive(progress());
        assert_eq!(follower.record_cut(&cut()), Some(ms(100)));
        assert_eq!(follower.handle(), Some(&handle(2)), "it goes on from the last event");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_lasted_ends_an_outage_where_that_is_wanted() {
        let check = |stable_after: Option<Duration>, pauses: [u64; 3]| async move {
            let mut follower =
                CallFollower::new(Some(handle(1)), FollowOptions { stable_after, ..options() });
            for pause in pauses {
                follower.record_open();
                tokio::time::sleep(ms(60)).await;
                assert_eq!(follower.record_cut(&cut()), Some(ms(pause)));
            }
        };
        check(None, [100, 200, 400]).await;
        check(Some(ms(50)), [100, 100, 100]).await;
        check(Some(ms(70)), [100, 200, 400]).await;
    }

    #[tokio::test]
    async fn what_is_asked_again_is_answered_again_until_it_is_closed() {
        let mut follower = CallFollower::new(None, options());
        let (asked, answer) = (question("q", "well?"), Answer::Accept(json!({ "x": 1 })));
        let event = |question: &Question| CallEvent::Question(question.clone());
        assert_eq!(follower.receive(event(&asked)), FollowedEvent::Event(event(&asked)));
        follower.record_answer(asked.clone(), answer.clone());
        follower.record_answer(asked.clone(), Answer::Cancel);
        follower.record_answer(asked.clone(), answer.clone());
        assert_eq!(
            follower.receive(event(&asked)),
            FollowedEvent::AskedAgain(asked.clone(), answer),
            "the last one"
        );
        assert_eq!(
            follower.receive(event(&asked)),
            FollowedEvent::Event(event(&asked)),
            "it was not recorded again"
        );
        follower.record_answer(asked.clone(), Answer::Cancel);
        let other = question("q", "and now?");
        assert_eq!(follower.receive(event(&other)), FollowedEvent::Event(event(&other)), "another question");
        follower.receive(CallEvent::QuestionClosed("q".into()));
        assert_eq!(follower.receive(event(&asked)), FollowedEvent::Event(event(&asked)));
    }
}
