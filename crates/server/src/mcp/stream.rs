//! The stream of one call: what is told meanwhile, and then the response.

use std::{sync::Arc, time::Duration};

use tokio::{sync::mpsc, task::AbortHandle};

use super::{Mcp, task_stream::TaskStream};

/// One message of a stream.
pub(crate) struct Frame {
    /// Where a client goes on that has seen it.
    pub(super) id: Option<String>,
    /// The message. Empty: there is none, only an id.
    pub(super) data: Vec<u8>,
    /// When a client that loses the stream is to come again.
    pub(super) retry: Option<Duration>,
}

impl Frame {
    pub(super) fn plain(data: Vec<u8>) -> Self {
        Self { id: None, data, retry: None }
    }
}

/// The stream of one call.
pub(crate) enum CallStream {
    /// Of an agent.
    Task(Box<TaskStream>),
    /// Of a handler that asks.
    Handler(HandlerStream),
}

impl CallStream {
    /// The next message; `None` ends the stream. Safe to drop at any point.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        match self {
            Self::Task(stream) => stream.next().await,
            Self::Handler(stream) => stream.frames.recv().await,
        }
    }
}

/// The stream of a handler that asks within a session. When it is dropped, nobody works on it any more.
pub(crate) struct HandlerStream {
    frames: mpsc::Receiver<Frame>,
    work: Option<AbortHandle>,
    _mcp: Arc<Mcp>,
}

impl HandlerStream {
    pub(super) fn new(mcp: Arc<Mcp>) -> (mpsc::Sender<Frame>, Self) {
        let (send, frames) = mpsc::channel(4);
        (send, Self { frames, work: None, _mcp: mcp })
    }

    pub(super) fn of(mut self, work: AbortHandle) -> Self {
        self.work = Some(work);
        self
    }
}

impl Drop for HandlerStream {
    fn drop(&mut self) {
        if let Some(work) = &self.work {
            work.abort();
        }
    }
}
