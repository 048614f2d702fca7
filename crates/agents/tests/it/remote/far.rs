//! Somebody elsewhere, who does what a script says and remembers what was asked of them.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use async_trait::async_trait;
use nuncio_client::peer::{
    CallCommand, CallDriver, CallEvent, CallHandle, Peer, PeerCall, PeerCallEnd, PeerCallRequest,
    PeerCapability, PeerDescription, PeerError, PeerProtocol,
};
use nuncio_engine::{
    Answer, Message, Role, State,
    question::{Ask, Question},
};
use serde_json::{Value, json};
use tokio::sync::Notify;

/// What they do next.
#[derive(Clone)]
pub(crate) enum Act {
    Tell(CallEvent),
    /// They tell it when they first come here, and not to whoever takes the call up later.
    TellOnce(CallEvent),
    Ask(Question),
    /// They ask, and go on without an answer of ours.
    Wonder(Question),
    /// Work, until they are let go on.
    Hold,
    /// The connection breaks.
    Cut,
    /// The connection breaks, when they first come here.
    CutOnce,
    /// The peer gives up after an outage, when they first come here.
    OutageOnce,
    /// They forget everything.
    Forget,
}

/// What was asked of them.
#[derive(Clone, Default)]
pub(crate) struct Asked {
    pub(crate) begin: Option<PeerCallRequest>,
    pub(crate) answers: Vec<(String, Answer)>,
    pub(crate) canceled: bool,
    /// What was said to them while they worked, by id and text.
    pub(crate) messages: Vec<(String, String)>,
    script: Vec<Act>,
    /// Where something was done that is done once.
    passed: Vec<usize>,
}

pub(crate) struct Far {
    pub(crate) offers: Mutex<Vec<PeerCapability>>,
    pub(crate) protocol: PeerProtocol,
    /// Whether there is a way back to their calls.
    pub(crate) keeps: bool,
    scripts: Mutex<VecDeque<Vec<Act>>>,
    asked: Mutex<Vec<Asked>>,
    /// How often they are not to be reached from now on.
    pub(crate) away: AtomicU32,
    pub(crate) resumed: AtomicU32,
    /// How many outages were reported.
    pub(crate) outages: AtomicU32,
    /// What the next calls are answered with once they were heard.
    pub(crate) refusals: Mutex<VecDeque<PeerError>>,
    /// How many answers are taken, and lost with the connection.
    pub(crate) deaf: AtomicU32,
    pub(crate) closed: AtomicBool,
    /// Whether an answer makes the whole call again.
    pub(crate) by_calling: AtomicBool,
    forgot: AtomicBool,
    /// Lets go on who holds.
    pub(crate) on: Notify,
    /// Breaks all connections.
    pub(crate) broken: Notify,
    pub(crate) offers_changed: Notify,
}

impl Far {
    pub(crate) fn new(protocol: PeerProtocol, keeps: bool, scripts: Vec<Vec<Act>>) -> Arc<Self> {
        Arc::new(Self {
            offers: Mutex::new(vec![offer("far", None)]),
            protocol,
            keeps,
            scripts: Mutex::new(scripts.into()),
            asked: Mutex::default(),
            away: AtomicU32::new(0),
            resumed: AtomicU32::new(0),
            outages: AtomicU32::new(0),
            refusals: Mutex::default(),
            deaf: AtomicU32::new(0),
            closed: AtomicBool::new(false),
            by_calling: AtomicBool::new(false),
            forgot: AtomicBool::new(false),
            on: Notify::new(),
            broken: Notify::new(),
            offers_changed: Notify::new(),
        })
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    pub(crate) fn forget(&self) {
        self.forgot.store(true, Ordering::SeqCst);
    }

    /// Whether they come to that place of the script for the first time.
    fn is_first(&self, task: usize, at: usize) -> bool {
        let passed = &mut self.asked.lock().unwrap()[task].passed;
        let first = !passed.contains(&at);
        passed.push(at);
        first
    }

    fn handle(&self, task: usize, at: usize) -> CallEvent {
        let state = json!({ "task": task, "at": at });
        CallEvent::HandleUpdated(CallHandle { offer: "far".into(), task: Some(task.to_string()), state })
    }
}

/// Takes one away, if there is one.
fn is_left(count: &AtomicU32) -> bool {
    count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

pub(crate) fn offer(name: &str, input_schema: Option<Value>) -> PeerCapability {
    PeerCapability {
        name: name.into(),
        title: None,
        description: format!("Does {name}."),
        input_schema,
        output_schema: None,
        skills: vec![nuncio_engine::Skill::new(name, name, "As they say.")],
        idempotent: false,
    }
}

pub(crate) fn form(id: &str, text: &str) -> Act {
    Act::Ask(question(id, text))
}

pub(crate) fn question(id: &str, text: &str) -> Question {
    let schema =
        json!({ "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"] });
    Question { id: id.into(), text: text.into(), ask: Ask::Form { schema }, callback: None }
}

pub(crate) fn ended(state: State, words: &str) -> Act {
    let message = Some(Message::text("last", Role::Agent, words)).filter(|_| !words.is_empty());
    Act::Tell(CallEvent::Ended(PeerCallEnd { state, message }))
}

/// A peer whose other side is that. Another one is another process that comes to the same.
pub(crate) struct FarPeer(pub(crate) Arc<Far>);

#[async_trait]
impl Peer for FarPeer {
    fn protocol(&self) -> PeerProtocol {
        self.0.protocol
    }

    fn address(&self) -> String {
        "far away".into()
    }

    fn name(&self) -> Option<String> {
        None
    }

    async fn list_capabilities(&self) -> Result<Vec<PeerCapability>, PeerError> {
        Ok(self.0.offers.lock().unwrap().clone())
    }

    async fn wait_for_change(&self) {
        self.0.offers_changed.notified().await;
    }

    async fn check_reachable(&self) -> Result<(), PeerError> {
        Ok(())
    }

    async fn describe(&self) -> Result<PeerDescription, PeerError> {
        Ok(PeerDescription::default())
    }

    async fn begin(&self, begin: PeerCallRequest) -> Result<PeerCall, PeerError> {
        let far = &self.0;
        if is_left(&far.away) {
            return Err(PeerError::Unreachable { at: self.address(), why: "nobody is there".into() });
        }
        far.forgot.store(false, Ordering::SeqCst);
        if let Some(error) = far.refusals.lock().unwrap().pop_front() {
            far.asked.lock().unwrap().push(Asked { begin: Some(begin), ..Asked::default() });
            return Err(error);
        }
        let script = far.scripts.lock().unwrap().pop_front().expect("no more calls than scripts");
        let task = {
            let mut asked = far.asked.lock().unwrap();
            asked.push(Asked { begin: Some(begin), script, ..Asked::default() });
            asked.len() - 1
        };
        let (call, driver) = PeerCall::new();
        tokio::spawn(act(Arc::clone(far), driver, task, 0));
        Ok(call)
    }

    async fn resume(&self, handle: &CallHandle) -> Result<PeerCall, PeerError> {
        let far = &self.0;
        let number = |name: &str| handle.state[name].as_u64().unwrap() as usize;
        if far.forgot.load(Ordering::SeqCst) {
            return Err(PeerError::Gone("no such task".into()));
        }
        far.resumed.fetch_add(1, Ordering::SeqCst);
        let (call, driver) = PeerCall::new();
        tokio::spawn(act(Arc::clone(far), driver, number("task"), number("at")));
        Ok(call)
    }

    fn answer_repeats_call(&self, _: &CallHandle) -> bool {
        self.0.by_calling.load(Ordering::SeqCst)
    }

    async fn close(&self) {
        self.0.closed.store(true, Ordering::SeqCst);
    }
}

/// Does what the script says, from that place on.
async fn act(far: Arc<Far>, driver: CallDriver, task: usize, from: usize) {
    let broken = Arc::clone(&far);
    tokio::select! {
        () = broken.broken.notified() => {}
        () = play(far, driver, task, from) => {}
    }
}

async fn play(far: Arc<Far>, mut side: CallDriver, task: usize, from: usize) {
    let script = far.asked()[task].script.clone();
    for (at, act) in script.into_iter().enumerate().skip(from) {
        if far.keeps && side.events.send(Ok(far.handle(task, at))).await.is_err() {
            return;
        }
        match act {
            Act::Tell(happened) => drop(side.events.send(Ok(happened)).await),
            Act::TellOnce(happened) => {
                if far.is_first(task, at) {
                    let _ = side.events.send(Ok(happened)).await;
                }
            }
            Act::Wonder(question) => drop(side.events.send(Ok(CallEvent::Question(question))).await),
            Act::Cut => {
                let _ = side.events.send(Err(PeerError::Cut("the connection broke".into()))).await;
                return;
            }
            Act::CutOnce => {
                if far.is_first(task, at) {
                    let _ = side.events.send(Err(PeerError::Cut("the connection broke".into()))).await;
                    return;
                }
            }
            Act::OutageOnce => {
                if far.is_first(task, at) {
                    let (at, why) = ("far away".into(), "nobody is there".into());
                    let outage = PeerError::Outage { at, lasted: std::time::Duration::from_secs(300), why };
                    let _ = side.events.send(Err(outage)).await;
                    far.outages.fetch_add(1, Ordering::SeqCst);
                    return;
                }
            }
            Act::Forget => far.forget(),
            Act::Hold => {
                let canceled = async {
                    while let Some(order) = side.commands.recv().await {
                        match order {
                            CallCommand::Cancel { told } => {
                                let _ = told.send(Ok(()));
                                return;
                            }
                            CallCommand::Message { message, taken } => {
                                let said = (message.id.clone(), message.joined_text());
                                far.asked.lock().unwrap()[task].messages.push(said);
                                let _ = taken.send(Ok(()));
                            }
                            CallCommand::Answer { .. } => {}
                        }
                    }
                    std::future::pending::<()>().await;
                };
                let go_on = tokio::select! {
                    () = far.on.notified() => true,
                    () = canceled => false,
                };
                if !go_on {
                    return stop(&far, &side, task).await;
                }
            }
            Act::Ask(question) => {
                if far.asked()[task].answers.iter().any(|(id, _)| *id == question.id) {
                    continue;
                }
                let _ = side.events.send(Ok(CallEvent::Question(question.clone()))).await;
                if far.keeps {
                    let _ = side.events.send(Ok(far.handle(task, at))).await;
                }
                let order = loop {
                    match side.commands.recv().await {
                        Some(CallCommand::Answer { question: other, taken, .. }) if other != question.id => {
                            let _ = taken.send(Err(PeerError::Gone("that is not asked".into())));
                        }
                        order => break order,
                    }
                };
                match order {
                    Some(CallCommand::Answer { taken, .. }) if is_left(&far.deaf) => {
                        let _ = taken.send(Ok(()));
                        let cut = PeerError::Cut("the connection broke".into());
                        let _ = side.events.send(Err(cut)).await;
                        return;
                    }
                    Some(CallCommand::Answer { question, answer, taken }) => {
                        far.asked.lock().unwrap()[task].answers.push((question, answer));
                        let _ = taken.send(Ok(()));
                    }
                    Some(CallCommand::Message { taken, .. }) => {
                        let _ = taken.send(Err(PeerError::Gone("this waits for an answer".into())));
                    }
                    Some(CallCommand::Cancel { told }) => {
                        let _ = told.send(Ok(()));
                        return stop(&far, &side, task).await;
                    }
                    None => return,
                }
            }
        }
    }
}

async fn stop(far: &Far, side: &CallDriver, task: usize) {
    far.asked.lock().unwrap()[task].canceled = true;
    let message = Some(Message::text("last", Role::Agent, "stopped over there"));
    let _ = side.events.send(Ok(CallEvent::Ended(PeerCallEnd { state: State::Canceled, message }))).await;
}
