//! The stream of one call: messages while it runs, then the response.

use std::{sync::Arc, time::Duration};

use nuncio_wire::jsonrpc::RpcId;
use tokio::{sync::mpsc, task::AbortHandle};

use super::{session::McpSession, task_stream::TaskStream};

/// One message of a stream.
pub(crate) struct McpFrame {
    /// The cursor that a client resumes with after this message.
    pub(super) id: Option<String>,
    /// The message. Empty if the frame carries only an id.
    pub(super) data: Vec<u8>,
    /// The reconnection delay for a client that loses the stream.
    pub(super) retry: Option<Duration>,
}

impl McpFrame {
    pub(super) fn plain(data: Vec<u8>) -> Self {
        Self { id: None, data, retry: None }
    }

    /// Whether the frame carries only a reconnection delay.
    pub(super) fn is_hint(&self) -> bool {
        self.id.is_none() && self.data.is_empty()
    }

    /// The task event that the frame stands for, parsed from the id that clients resume with: `task.seq…`.
    pub(super) fn log_position(&self) -> (Option<Arc<str>>, Option<u64>) {
        let Some((task, rest)) = self.id.as_deref().and_then(|id| id.split_once('.')) else {
            return (None, None);
        };
        (Some(task.into()), rest.split('.').next().and_then(|seq| seq.parse().ok()))
    }
}

/// The stream of one call.
pub(crate) enum CallStream {
    /// The call of an agent.
    Task(Box<TaskStream>),
    /// The call of a handler that asks questions.
    Handler(HandlerStream),
}

impl CallStream {
    /// The next message; `None` ends the stream. Cancel-safe: a message that was not returned is returned next
    /// time.
    pub(crate) async fn next(&mut self) -> Option<McpFrame> {
        match self {
            Self::Task(stream) => stream.next().await,
            Self::Handler(stream) => stream.frames.recv().await,
        }
    }
}

/// The stream of a handler that asks questions within a session. Dropping it stops the handler.
pub(crate) struct HandlerStream {
    frames: mpsc::Receiver<McpFrame>,
    work: Option<AbortHandle>,
    /// The session, and the request that the handler answers.
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
