//! A request that is under way: what comes for it, until its answer.

use tokio::{sync::mpsc, task::AbortHandle};

use super::{fail::Fail, hub::Expected, incoming::Incoming};

/// Something that came for a request.
#[derive(Debug)]
pub(super) enum Heard {
    /// A message.
    Message(Incoming),
    /// Everything up to this event of the stream has been given: where to go on after a cut.
    Cursor(String),
}

/// A request that is under way. Dropped, nobody hears of it any more; over stateless HTTP that cancels it.
pub(super) enum Exchange {
    /// It has a stream of its own.
    Stream {
        /// What comes.
        heard: mpsc::Receiver<Result<Heard, Fail>>,
        /// Its answer, should the server send it on the session's own stream.
        elsewhere: Expected,
        /// Whoever reads the stream.
        _reader: AbortOnDrop,
    },
    /// Its answer comes by the hub.
    Hub(Expected),
}

impl Exchange {
    /// What comes next. Nothing does after the answer or an error.
    pub(super) async fn next(&mut self) -> Result<Heard, Fail> {
        match self {
            Self::Stream { heard, elsewhere, .. } => tokio::select! {
                biased;
                heard = heard.recv() => match heard {
                    Some(heard) => heard,
                    None => Err(Fail::cut("the call broke off without an end")),
                },
                answer = elsewhere.answer() => answer.map(|answer| Heard::Message(Incoming::Answer(answer))),
            },
            Self::Hub(expected) => {
                expected.answer().await.map(|answer| Heard::Message(Incoming::Answer(answer)))
            }
        }
    }
}

/// Work that ends with whoever holds this.
pub(super) struct AbortOnDrop(pub(super) AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
