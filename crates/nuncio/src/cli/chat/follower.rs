//! One run: follows a call to its end, comes back to it when it was cut, and passes answers on.
//!
//! A server that is away is waited for as long as it takes. What was certainly not carried out is begun again; what
//! may have been is begun again only where the message's id keeps it from being done twice.

use std::{sync::Arc, time::Duration};

use nuncio_client::peer::{CallEvent, CallHandle, Peer, PeerCall, PeerCallEnd, PeerCallRequest, PeerError};
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

/// The first wait for a server that is away, and the longest.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// The peer that stands for a server now. None before it was reached for the first time.
pub(super) type CurrentPeer = watch::Receiver<Option<Arc<dyn Peer>>>;

/// How a run starts.
#[derive(Debug, Clone)]
pub(super) enum RunStart {
    /// By a call. `again`: it may be begun twice, and is done once.
    Begin { begin: PeerCallRequest, again: bool },
    /// By what leads back to it.
    Resume(CallHandle),
}

/// What there is to tell about a run.
#[derive(Debug)]
pub(super) enum RunUpdate {
    Handle(CallHandle),
    Progress(Progress),
    Log(LogLine),
    Artifact(ArtifactChunk),
    Message(Message),
    Asks(Question),
    Settled(String),
    /// The server is away.
    Waiting(String),
    /// It is back.
    Back,
    /// What became of an answer.
    Answered {
        question: Question,
        result: Result<(), PeerError>,
    },
    /// What became of a cancel.
    Canceled(Result<(), PeerError>),
    Ended(PeerCallEnd),
    /// It is followed no more. `kept`: another try later may find it.
    Lost {
        error: PeerError,
        kept: bool,
    },
}

enum FollowerCommand {
    Answer(Question, Answer),
    Cancel,
}

/// Follows a run in the background until it is dropped.
#[derive(Debug)]
pub(super) struct RunFollower {
    orders: mpsc::UnboundedSender<FollowerCommand>,
    task: JoinHandle<()>,
}

impl RunFollower {
    /// Starts to follow on whatever peer stands for the server; what there is to tell goes to `tell`, under the run's
    /// number.
    pub(super) fn start(
        peer: CurrentPeer,
        run: u32,
        start: RunStart,
        tell: mpsc::Sender<(u32, Vec<RunUpdate>)>,
    ) -> Self {
        let (orders, wanted) = mpsc::unbounded_channel();
        let following = RunFollowerTask { peer, run, tell, wanted, unsent: vec![] };
        Self { orders, task: tokio::spawn(following.run(start)) }
    }

    /// Answers a question.
    pub(super) fn answer(&self, question: Question, answer: Answer) {
        let _ = self.orders.send(FollowerCommand::Answer(question, answer));
    }

    /// Stops the work.
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
    /// Answers that the server may not have: they are sent again when the same is asked again.
    unsent: Vec<(Question, Answer)>,
}

impl RunFollowerTask {
    async fn run(mut self, start: RunStart) {
        let (begin, again, mut handle) = match start {
            RunStart::Begin { begin, again } => (Some(begin), again, None),
            RunStart::Resume(handle) => (None, false, Some(handle)),
        };
        let mut wait = FIRST_WAIT;
        let mut is_waiting = false;
        loop {
            let peer = self.peer.borrow_and_update().clone();
            let called = match (peer, &handle, &begin) {
                (None, ..) => Err(PeerError::Unreachable {
                    at: "the server".into(),
                    why: "it was not reached yet".into(),
                }),
                (Some(peer), Some(handle), _) => peer.resume(handle).await,
                (Some(peer), None, Some(begin)) => peer.begin(begin.clone()).await,
                (Some(_), None, None) => return,
            };
            let error = match called {
                Ok(call) => {
                    if std::mem::take(&mut is_waiting) {
                        self.send_update(RunUpdate::Back).await;
                    }
                    let since = Instant::now();
                    let Err(error) = self.follow_call(call, &mut handle).await else { return };
                    if since.elapsed() > LONGEST_WAIT {
                        wait = FIRST_WAIT;
                    }
                    error
                }
                Err(error) => error,
            };
            // Without a way back it is not known whether the call arrived.
            let goes_on =
                error.is_transient() || (matches!(error, PeerError::Cut(_)) && (handle.is_some() || again));
            if !goes_on {
                let kept = matches!(error, PeerError::Unauthorized { .. });
                return self.send_update(RunUpdate::Lost { error, kept }).await;
            }
            if !std::mem::replace(&mut is_waiting, true) {
                self.send_update(RunUpdate::Waiting(error.to_string())).await;
            }
            self.pause(retry_after(&error).unwrap_or(wait)).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    /// Tells what happens in a call, until its end. An error: it was cut.
    async fn follow_call(
        &mut self,
        mut call: PeerCall,
        handle: &mut Option<CallHandle>,
    ) -> Result<(), PeerError> {
        let orders = call.control();
        loop {
            let happened = tokio::select! {
                happened = call.next_batch() => happened?,
                Some(order) = self.wanted.recv() => {
                    let (orders, tell, run) = (orders.clone(), self.tell.clone(), self.run);
                    if let FollowerCommand::Answer(question, answer) = &order {
                        self.unsent.retain(|(open, _)| open.id != question.id);
                        self.unsent.push((question.clone(), answer.clone()));
                    }
                    // Beside what happens, so that neither waits for the other.
                    tokio::spawn(async move {
                        let news = match order {
                            FollowerCommand::Answer(question, answer) => {
                                let result = orders.answer(&question.id, answer).await;
                                RunUpdate::Answered { question, result }
                            }
                            FollowerCommand::Cancel => RunUpdate::Canceled(orders.cancel().await),
                        };
                        let _ = tell.send((run, vec![news])).await;
                    });
                    continue;
                }
            };
            // What belongs together goes on together, so that what is shown and where to go on are recorded at once.
            let mut news = vec![];
            let mut is_over = false;
            for happened in happened {
                news.push(match happened {
                    CallEvent::HandleUpdated(now) => {
                        *handle = Some(now.clone());
                        RunUpdate::Handle(now)
                    }
                    CallEvent::Progress(progress) => RunUpdate::Progress(progress),
                    CallEvent::Log(line) => RunUpdate::Log(line),
                    CallEvent::Artifact(chunk) => RunUpdate::Artifact(chunk),
                    // The chat names its conversation itself.
                    CallEvent::Context(_) => continue,
                    CallEvent::Message(message) => RunUpdate::Message(message),
                    CallEvent::Question(question) => match self.answered(&question) {
                        Some(answer) => {
                            let orders = orders.clone();
                            // What became of it shows: the work goes on, or the same is asked once more.
                            tokio::spawn(async move { orders.answer(&question.id, answer).await });
                            continue;
                        }
                        None => RunUpdate::Asks(question),
                    },
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

    /// The answer that was given already, and that the server may not have.
    fn answered(&self, question: &Question) -> Option<Answer> {
        self.unsent.iter().find(|(asked, _)| asked == question).map(|(_, answer)| answer.clone())
    }

    /// Waits for a server that is away. What is ordered meanwhile cannot be passed on.
    async fn pause(&mut self, wait: Duration) {
        let until = Instant::now() + wait;
        loop {
            tokio::select! {
                () = sleep(until.saturating_duration_since(Instant::now())) => return,
                // The server is there again.
                Ok(()) = self.peer.changed() => return,
                Some(order) = self.wanted.recv() => match order {
                    // It is sent when the same is asked again.
                    FollowerCommand::Answer(question, answer) => self.unsent.push((question, answer)),
                    FollowerCommand::Cancel => {
                        let error = PeerError::Cut("the server is away: try again when it is back".into());
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

fn retry_after(error: &PeerError) -> Option<Duration> {
    match error {
        PeerError::Busy { retry_after, .. } => retry_after.map(|after| after.min(LONGEST_WAIT)),
        _ => None,
    }
}
