//! Peers: what they tell of a call, whoever is at the other end and whatever happens on the way.

mod nuncio;
mod site;
mod stranger;

use std::{
    future::Future,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use nuncio_client::peer::{CallEvent, CallHandle, Peer, PeerCall, PeerCallEnd, PeerCallRequest, PeerError};
use nuncio_engine::{
    Message, Part, Role,
    question::{Answer, Question},
};

/// Far more than anything here takes.
const DEADLINE: Duration = Duration::from_secs(30);

pub(crate) async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, work).await.expect("this should have come long ago")
}

fn begin(offer: &str, text: &str) -> PeerCallRequest {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    let id = format!("message-{}", MADE.fetch_add(1, Ordering::Relaxed));
    PeerCallRequest {
        offer: offer.into(),
        input: Message::text(id, Role::User, text),
        context: None,
        trace: None,
    }
}

/// What a call came to.
#[derive(Debug, Default)]
struct Story {
    /// Everything, in order.
    all: Vec<CallEvent>,
    handles: Vec<CallHandle>,
    asked: Vec<Question>,
    /// The text of each artifact, by its id, as its chunks make it.
    artifacts: Vec<(String, String)>,
    progress: usize,
    said: Vec<String>,
    ended: Option<PeerCallEnd>,
}

impl Story {
    fn take(&mut self, happened: CallEvent) {
        self.all.push(happened.clone());
        match happened {
            CallEvent::HandleUpdated(handle) => self.handles.push(handle),
            CallEvent::Progress(_) => self.progress += 1,
            CallEvent::Message(message) => self.said.push(message.joined_text()),
            CallEvent::Question(question) => self.asked.push(question),
            CallEvent::Ended(ended) => self.ended = Some(ended),
            CallEvent::Artifact(chunk) => {
                let text: String = chunk.parts.iter().filter_map(Part::as_text).collect();
                match self.artifacts.iter_mut().find(|(id, _)| *id == chunk.id) {
                    Some((_, known)) if chunk.append => known.push_str(&text),
                    Some((_, known)) => *known = text,
                    None => {
                        assert!(!chunk.append, "an artifact begins with its beginning");
                        self.artifacts.push((chunk.id, text));
                    }
                }
            }
            CallEvent::Context(_) | CallEvent::Log(_) | CallEvent::QuestionClosed(_) => {}
        }
    }

    /// What had been told when the call was kept like that.
    fn told_before(&self, handle: &CallHandle) -> Vec<CallEvent> {
        let kept =
            |happened: &&CallEvent| !matches!(happened, CallEvent::HandleUpdated(kept) if kept == handle);
        self.all.iter().take_while(kept).cloned().collect()
    }

    fn words(&self) -> String {
        let message = self.ended.as_ref().and_then(|ended| ended.message.as_ref());
        message.map(Message::joined_text).unwrap_or_default()
    }

    fn text(&self) -> &str {
        self.artifacts.first().map_or("", |(_, text)| text)
    }
}

/// Follows a call until it asks or has ended.
async fn turn(call: &mut PeerCall, story: &mut Story) -> Result<(), PeerError> {
    within(async {
        loop {
            let happened = call.next().await?;
            let rests = matches!(happened, CallEvent::Ended(_) | CallEvent::Question(_));
            story.take(happened);
            if rests {
                return Ok(());
            }
        }
    })
    .await
}

/// Follows a call to its end, and gives these answers.
async fn to_end(call: &mut PeerCall, answers: Vec<Answer>) -> Result<Story, PeerError> {
    let mut story = Story::default();
    let mut answers = answers.into_iter();
    turn(call, &mut story).await?;
    while story.ended.is_none() {
        let question = story.asked.last().expect("it asks").id.clone();
        within(call.answer(&question, answers.next().expect("no more questions than answers"))).await?;
        turn(call, &mut story).await?;
    }
    Ok(story)
}

/// A whole call.
async fn call(peer: &dyn Peer, offer: &str, text: &str, answers: Vec<Answer>) -> Result<Story, PeerError> {
    to_end(&mut within(peer.begin(begin(offer, text))).await?, answers).await
}
