//! The stream of one call: what is told meanwhile, and then the response.

use std::{sync::Arc, time::Duration};

use nuncio_wire::jsonrpc::RpcId;
use tokio::{sync::mpsc, task::AbortHandle};

use super::{session::McpSession, task_stream::TaskStream};

/// One message of a stream.
pub(crate) struct McpFrame {
    /// Where a client goes on that has seen it.
    pub(super) id: Option<String>,
    /// The message. Empty: there is none, only an id.
    pub(super) data: Vec<u8>,
    /// When a client that loses the stream is to come again.
    pub(super) retry: Option<Duration>,
}

impl McpFrame {
    pub(super) fn plain(data: Vec<u8>) -> Self {
        Self { id: None, data, retry: None }
    }

    /// Whether it is no event, only a word about when to come again.
    pub(super) fn is_hint(&self) -> bool {
        self.id.is_none() && self.data.is_empty()
    }

    /// The event of a task that it stands for, by the id that clients resume with: `task.seq…`.
    pub(super) fn log_position(&self) -> (Option<Arc<str>>, Option<u64>) {
        let Some((task, rest)) = self.id.as_deref().and_then(|id| id.split_once('.')) else {
            return (None, None);
        };
        (Some(task.into()), rest.split('.').next().and_then(|seq| seq.parse().ok()))
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
    /// The next message; `None` ends the stream. Safe to drop at any point: what was not told is told next time.
    pub(crate) async fn next(&mut self) -> Option<McpFrame> {
        match self {
            Self::Task(stream) => stream.next().await,
            Self::Handler(stream) => stream.frames.recv().await,
        }
    }
}

/// The stream of a handler that asks within a session. When it is dropped, nobody works on it any more.
pub(crate) struct HandlerStream {
    frames: mpsc::Receiver<McpFrame>,
    work: Option<AbortHandle>,
    /// Whose it is, and which request it answers.
    call: Option<(Arc<McpSession>, RpcId)>,
}

impl HandlerStream {
    pub(super) fn new() -> (mpsc::Sender<McpFrame>, Self) {
        let (send, frames) = mpsc::channel(4);
        (send, Self { frames, work: None, call: None })
    }

    pub(super) fn of(mut self, work: AbortHandle, session: Option<Arc<McpSession>>, request: RpcId) -> Self {
        self.work = Some(work);
        self.call = session.map(|session| (session, request));
        self
    }
}

impl Drop for HandlerStream {
    fn drop(&mut self) {
        match &self.call {
            Some((session, request)) => drop(session.stop_handler(request)),
            None => self.work.iter().for_each(AbortHandle::abort),
        }
    }
}
