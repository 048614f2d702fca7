//! What a caller asks for, in words of no dialect.

use nuncio_engine::{
    clock::Timestamp,
    content::{Message, Metadata},
    task::State,
    webhook::WebhookConfig,
};

/// A request.
#[derive(Debug, Clone, PartialEq)]
pub enum A2aCall {
    /// Take a message and answer with the task.
    Send(Box<SendMessage>),
    /// Take a message and stream what comes of it.
    Stream(Box<SendMessage>),
    /// Show a task.
    Get {
        /// Its id.
        task: String,
        /// How much of the history.
        history_length: Option<usize>,
    },
    /// Show the caller's tasks.
    List(ListTasks),
    /// Stop a task.
    Cancel {
        /// Its id.
        task: String,
        /// Attributes of the request.
        metadata: Option<Metadata>,
    },
    /// Stream a task that is there.
    Subscribe {
        /// Its id.
        task: String,
    },
    /// Tell this address what happens to a task.
    SetWebhook {
        /// The task's id.
        task: String,
        /// The address. An empty id: the server names it.
        config: WebhookConfig,
    },
    /// Show one webhook of a task.
    GetWebhook {
        /// The task's id.
        task: String,
        /// The webhook's id; `None`: the only one, or the first.
        id: Option<String>,
    },
    /// Show the webhooks of a task.
    ListWebhooks {
        /// The task's id.
        task: String,
        /// At most so many.
        page_size: Option<usize>,
        /// Where the page begins.
        page_token: Option<String>,
    },
    /// Stop telling that address.
    DeleteWebhook {
        /// The task's id.
        task: String,
        /// The webhook's id.
        id: String,
    },
    /// Show the card for callers that are known.
    ExtendedCard,
}

/// A message with how it is to be handled.
#[derive(Debug, Clone, PartialEq)]
pub struct SendMessage {
    /// The id that the client made for its task (0.1 only): it continues the task of that id, or makes it.
    pub client_task_id: Option<String>,
    /// The task that is continued: it must exist. Never set in 0.1.
    pub task_id: Option<String>,
    /// The conversation.
    pub context_id: Option<String>,
    /// What is said. In 0.1 messages have no id: it is empty, and whoever takes the message names it.
    pub message: Message,
    /// Whether the caller wants to wait for the end of the turn. 0.1 cannot say it and answers at once.
    pub blocking: bool,
    /// How much of the history the answer shows.
    pub history_length: Option<usize>,
    /// Media types that the caller takes. Empty: any.
    pub accepted_output_modes: Vec<String>,
    /// An address to be told what happens. An empty id: the server names it.
    pub webhook: Option<WebhookConfig>,
    /// Attributes of the request.
    pub metadata: Option<Metadata>,
}

impl SendMessage {
    /// A message that begins a task, with nothing else said.
    pub fn new(message: Message) -> Self {
        Self {
            client_task_id: None,
            task_id: None,
            context_id: None,
            message,
            blocking: true,
            history_length: None,
            accepted_output_modes: vec![],
            webhook: None,
            metadata: None,
        }
    }
}

/// Which tasks to list, and how much of each.
#[derive(Debug, Clone, PartialEq)]
pub struct ListTasks {
    /// Only of this conversation.
    pub context: Option<String>,
    /// Only in this state.
    pub state: Option<State>,
    /// How many, from 1 to [`List::MAX_PAGE_SIZE`].
    pub page_size: usize,
    /// Where the page begins: what the page before gave.
    pub page_token: Option<String>,
    /// How much of each history.
    pub history_length: Option<usize>,
    /// Only those whose status changed at or after this.
    pub since: Option<Timestamp>,
    /// Whether the artifacts are shown.
    pub include_artifacts: bool,
}

impl ListTasks {
    /// The size of a page where the caller names none.
    pub const DEFAULT_PAGE_SIZE: usize = 50;
    /// The largest page.
    pub const MAX_PAGE_SIZE: usize = 100;
}

impl Default for ListTasks {
    fn default() -> Self {
        Self {
            context: None,
            state: None,
            page_size: Self::DEFAULT_PAGE_SIZE,
            page_token: None,
            history_length: None,
            since: None,
            include_artifacts: false,
        }
    }
}
