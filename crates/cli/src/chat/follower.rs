//! The follower of one run: follows a call to its end, reconnects when the connection is lost, and sends
//! answers.
//!
//! It waits for an unreachable server without a deadline. A call that was certainly not executed is retried.
//! A call that may have been executed is retried only where the message's id makes it idempotent.

use std::{sync::Arc, time::Duration};

use nuncio_client::peer::{
    CallEvent, CallFollower, CallHandle, FollowOptions, FollowedEvent, Peer, PeerCall, PeerCallEnd,
    PeerCallRequest, PeerError,
};
use nuncio_engine::{
    Answer,
    content::Message,
    event::{ArtifactChunk, LogLine, Progress},
    question::Question,
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{Instant, sleep},
};

/// The first and the longest backoff while a server is unreachable.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// The current connection to a server; `None` before the first one.
pub(super) type CurrentPeer = watch::Receiver<Option<Arc<dyn Peer>>>;

/// How a run starts.
#[derive(Debug, Clone)]
pub(super) enum RunStart {
    /// By a call. `again`: it is idempotent, so it may be retried.
    Begin { begin: PeerCallRequest, again: bool },
    /// By the handle of an earlier call.
    Resume(CallHandle),
}

/// An update about a run.
#[derive(Debug)]
pub(super) enum RunUpdate {
    Handle(CallHandle),
    /// The server's id of the conversation.
    Context(String),
    Progress(Progress),
    Log(LogLine),
    Artifact(ArtifactChunk),
    Message(Message),
    Asks(Question),
    Settled(String),
    /// The server is unreachable.
    Waiting(String),
    /// The server is reachable again.
    Back,
    /// The result of sending an answer.
    Answered {
        question: Question,
        result: Result<(), PeerError>,
    },
    /// The result of a cancel request.
    Canceled(Result<(), PeerError>),
    Ended(PeerCallEnd),
    /// The run is no longer followed. `kept`: a later attempt may find it.
    Lost {
        error: PeerError,
        kept: bool,
    },
}

enum FollowerCommand {
    Answer(Box<Question>, Answer),
    Cancel,
}

/// Follows a run in the background until this is dropped.
#[derive(Debug)]
pub(super) struct RunFollower {
    orders: mpsc::UnboundedSender<FollowerCommand>,
    task: JoinHandle<()>,
}

impl RunFollower {
    /// Starts to follow a run on the server's current connection. Updates go to `tell`, under the run's
    /// number.
    pub(super) fn start(
        peer: CurrentPeer,
        run: u32,
        start: RunStart,
        tell: mpsc::Sender<(u32, Vec<RunUpdate>)>,
    ) -> Self {
        let (orders, wanted) = mpsc::unbounded_channel();
        let (begin, begins_again, handle) = match start {
            RunStart::Begin { begin, again } => (Some(begin), again, None),
            RunStart::Resume(handle) => (None, false, Some(handle)),
        };
        let follower = CallFollower::new(handle, follow_options(begins_again));
        let following = RunFollowerTask { peer, run, tell, wanted, follower };
        Self { orders, task: tokio::spawn(following.run(begin)) }
    }

    /// Sends the answer to a question.
    pub(super) fn answer(&self, question: Question, answer: Answer) {
        let _ = self.orders.send(FollowerCommand::Answer(Box::new(question), answer));
    }

    /// Cancels the run.
    pub(super) fn cancel(&self) {
        let _ = self.orders.send(FollowerCommand::Cancel);
    }
}

impl Drop for RunFollower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct RunFollowerTask {
    peer: CurrentPeer,
    run: u32,
    tell: mpsc::Sender<(u32, Vec<RunUpdate>)>,
    wanted: mpsc::UnboundedReceiver<FollowerCommand>,
    follower: CallFollower,
}

/// How a run is followed: without a deadline, because the user may leave it at any time.
fn follow_options(begins_again: bool) -> FollowOptions {
    FollowOptions {
        first_pause: FIRST_WAIT,
        longest_pause: LONGEST_WAIT,
        longest_named_pause: LONGEST_WAIT,
        limit: Duration::MAX,
        outlasts_outage: true,
        begins_again,
        stable_after: Some(LONGEST_WAIT),
        // An agent may ask the next question under the same id.
        is_repeat: |one, other| one == other,
    }
}

impl RunFollowerTask {
    async fn run(mut self, begin: Option<PeerCallRequest>) {
        let mut is_waiting = false;
        loop {
            let peer = self.peer.borrow_and_update().clone();
            let began = Instant::now();
            let called = match (peer, self.follower.handle(), &begin) {
                (None, ..) => Err(PeerError::Unreachable {
                    at: "the server".into(),
                    why: "it was not reached yet".into(),
                }),
                (Some(peer), Some(_), _) => self.follower.resume(&*peer).await,
                (Some(peer), None, Some(begin)) => peer.begin(begin.clone()).await,
                (Some(_), None, None) => return,
            };
            // A stream that ended, or was cut, is opened again at once: the server is away only if that fails.
            let is_away = called.is_err();
            let (error, pause) = match called {
                Ok(call) => {
                    if std::mem::take(&mut is_waiting) {
                        self.send_update(RunUpdate::Back).await;
                    }
                    self.follower.record_open();
                    let Err(error) = self.follow_call(call).await else { return };
                    let pause = self.follower.record_cut(&error);
                    (error, pause)
                }
                Err(error) => {
                    let pause = self.follower.record_failure(began, &error);
                    (error, pause)
                }
            };
            let Some(pause) = pause else {
                let kept = matches!(error, PeerError::Unauthorized { .. });
                return self.send_update(RunUpdate::Lost { error, kept }).await;
            };
            if is_away && !std::mem::replace(&mut is_waiting, true) {
                self.send_update(RunUpdate::Waiting(error.to_string())).await;
            }
            self.pause(pause).await;
        }
    }

    /// Forwards the events of a call until its end. An error: the connection was lost.
    async fn follow_call(&mut self, mut call: PeerCall) -> Result<(), PeerError> {
        let orders = call.control();
        loop {
            let happened = tokio::select! {
                happened = call.next_batch() => happened?,
                Some(order) = self.wanted.recv() => {
                    let (orders, tell, run) = (orders.clone(), self.tell.clone(), self.run);
                    if let FollowerCommand::Answer(question, answer) = &order {
                        // It is sent again if the same question comes again.
                        self.follower.record_answer(Question::clone(question), answer.clone());
                    }
                    // In a task of its own, so that events and answers do not wait for each other.
                    tokio::spawn(async move {
                        let news = match order {
                            FollowerCommand::Answer(question, answer) => {
                                let result = orders.answer(&question.id, answer).await;
                                RunUpdate::Answered { question: *question, result }
                            }
                            FollowerCommand::Cancel => RunUpdate::Canceled(orders.cancel().await),
                        };
                        let _ = tell.send((run, vec![news])).await;
                    });
                    continue;
                }
            };
            // Events that arrive together are sent together, so that output and cursor are saved in one
            // write.
            let mut news = vec![];
            let mut is_over = false;
            for happened in happened {
                let happened = match self.follower.receive(happened) {
                    FollowedEvent::Event(happened) => happened,
                    FollowedEvent::AskedAgain(question, answer) => {
                        self.follower.record_answer(question.clone(), answer.clone());
                        let orders = orders.clone();
                        // The result shows by itself: the task continues, or the same question comes again.
                        tokio::spawn(async move { orders.answer(&question.id, answer).await });
                        continue;
                    }
                };
                news.push(match happened {
                    CallEvent::HandleUpdated(now) => RunUpdate::Handle(now),
                    CallEvent::Progress(progress) => RunUpdate::Progress(progress),
                    CallEvent::Log(line) => RunUpdate::Log(line),
                    CallEvent::Artifact(chunk) => RunUpdate::Artifact(chunk),
                    CallEvent::Context(context) => RunUpdate::Context(context),
                    CallEvent::Message(message) => RunUpdate::Message(message),
                    CallEvent::Question(question) => RunUpdate::Asks(question),
                    CallEvent::QuestionClosed(question) => RunUpdate::Settled(question),
                    CallEvent::Ended(ended) => {
                        is_over = true;
                        RunUpdate::Ended(ended)
                    }
                });
            }
            let _ = self.tell.send((self.run, news)).await;
            if is_over {
                return Ok(());
            }
        }
    }

    /// Waits for an unreachable server. A cancel meanwhile cannot be sent, an answer is stored.
    async fn pause(&mut self, wait: Duration) {
        let until = Instant::now() + wait;
        loop {
            tokio::select! {
                () = sleep(until.saturating_duration_since(Instant::now())) => return,
                // The server is reachable again.
                Ok(()) = self.peer.changed() => return,
                Some(order) = self.wanted.recv() => match order {
                    // It is sent when the same question comes again.
                    FollowerCommand::Answer(question, answer) => self.follower.record_answer(*question, answer),
                    FollowerCommand::Cancel => {
                        let error = PeerError::Cut("the server is unreachable: try again when it is back".into());
                        self.send_update(RunUpdate::Canceled(Err(error))).await;
                    }
                },
            }
        }
    }

    async fn send_update(&self, news: RunUpdate) {
        let _ = self.tell.send((self.run, vec![news])).await;
    }
}
