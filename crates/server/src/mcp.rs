//! The MCP binding, every revision at each endpoint: each agent is a tool, with the same durable task behind a
//! call as behind an A2A message.
//!
//! `http`, `sse` and `pipe` are the transports; `dispatch` answers one request of any transport; `call` and
//! `task_stream` carry a tool call from its arguments to its result. The store holds the sessions (to
//! 2025-11-25), and the stream of a call is its task's log from a cursor, so that both survive a restart. `endpoint`
//! decides what a client reaches, `tool_list_filter` what is listed of it, and `tool_access` what the caller may use.

mod batch;
mod call;
mod call_stream;
mod client;
mod dispatch;
pub(crate) mod duplex;
mod endpoint;
mod handler;
mod header_match;
pub(crate) mod http;
mod listen;
mod lists;
mod options;
mod pipe;
mod progress_numbers;
mod questions;
mod request_state;
mod resources;
mod resume;
mod session;
pub(crate) mod sse;
mod task_resource;
mod task_stream;
mod tasks;
mod tool_access;
mod tool_list_filter;

use std::sync::Arc;

use nuncio_engine::{Engine, Surface};
use nuncio_wire::mcp::Implementation;

pub(crate) use self::{
    endpoint::McpEndpoint, progress_numbers::ProgressNumbers, session::SessionView, task_resource::task_of,
};
pub use self::{
    options::McpOptions,
    pipe::serve_pipe,
    tool_list_filter::{ToolListFilter, ToolListFilterError},
};
use self::{
    questions::{ClientQuestions, WrongAnswers},
    request_state::RequestStateSigner,
    session::McpSessions,
    task_stream::StatelessWaiters,
};

/// The MCP request handler that all transports share.
pub(crate) struct Mcp {
    pub(crate) engine: Engine,
    pub(crate) options: McpOptions,
    info: Implementation,
    /// The tools that are listed where the client chooses none.
    listed: Arc<ToolListFilter>,
    state_signer: RequestStateSigner,
    pub(crate) sessions: McpSessions,
    client_questions: ClientQuestions,
    wrong_answers: WrongAnswers,
    stateless_waiters: StatelessWaiters,
}

impl Mcp {
    /// The sessions in use on this node, of owners that `seen` accepts.
    pub(crate) fn session_views(&self, seen: impl Fn(&str) -> bool) -> Vec<SessionView> {
        self.sessions.views(seen)
    }

    pub(crate) fn new(engine: Engine, mut options: McpOptions) -> Arc<Self> {
        if options.secret.is_empty() {
            // Valid for as long as this process lives.
            let clock = engine.clock();
            options.secret = [clock.new_id().into_bytes(), clock.new_id().into_bytes()].concat();
        }
        let info = Implementation { name: "nuncio".into(), version: env!("CARGO_PKG_VERSION").into() };
        task_resource::publish(engine.catalog().surface());
        let seal = RequestStateSigner::new(&options.secret);
        let sessions = McpSessions::new(engine.clone(), &options);
        Arc::new(Self {
            engine,
            listed: Arc::new(options.tools.clone()),
            options,
            info,
            state_signer: seal,
            sessions,
            client_questions: ClientQuestions::default(),
            wrong_answers: WrongAnswers::default(),
            stateless_waiters: StatelessWaiters::default(),
        })
    }

    /// The endpoint of a connection that has no address: everything, with the configured lists.
    pub(crate) fn endpoint(&self) -> McpEndpoint {
        McpEndpoint::of_server(Arc::clone(&self.listed))
    }

    fn surface(&self) -> &Surface {
        self.engine.catalog().surface()
    }
}
