//! The requests of A2A, independent of the dialect.

use nuncio_engine::{
    clock::Timestamp,
    content::{Message, Metadata},
    task::State,
    webhook::WebhookConfig,
};

/// A request of a client.
#[derive(Debug, Clone, PartialEq)]
pub enum A2aCall {
    /// Send a message; the response is the task.
    Send(Box<SendMessage>),
    /// Send a message; the response is a stream of events.
    Stream(Box<SendMessage>),
    /// Get a task.
    Get {
        /// The task's public id.
        task: String,
        /// The most history messages to return; `None`: all.
        history_length: Option<usize>,
    },
    /// List the caller's tasks.
    List(ListTasks),
    /// Cancel a task.
    Cancel {
        /// The task's public id.
        task: String,
        /// Metadata of the request.
        metadata: Option<Metadata>,
    },
    /// Stream an existing task.
    Subscribe {
        /// The task's public id.
        task: String,
    },
    /// Register a webhook for a task.
    SetWebhook {
        /// The task's public id.
        task: String,
        /// The webhook. If its id is empty, the server assigns one.
        config: WebhookConfig,
    },
    /// Get one webhook of a task.
    GetWebhook {
        /// The task's public id.
        task: String,
        /// The webhook's id; `None`: the only one, or the first.
        id: Option<String>,
    },
    /// List the webhooks of a task.
    ListWebhooks {
        /// The task's public id.
        task: String,
        /// The most webhooks to return.
        page_size: Option<usize>,
        /// The token from the previous page.
        page_token: Option<String>,
    },
    /// Delete a webhook.
    DeleteWebhook {
        /// The task's public id.
        task: String,
        /// The webhook's id.
        id: String,
    },
    /// Get the extended card for authenticated callers.
    ExtendedCard,
}

/// A message with its send options.
#[derive(Debug, Clone, PartialEq)]
pub struct SendMessage {
    /// The task id that the client chose (0.1 only): continues the task of that id, or creates it.
    pub client_task_id: Option<String>,
    /// The task to continue; it must exist. Never set in 0.1.
    pub task_id: Option<String>,
    /// The conversation to continue.
    pub context_id: Option<String>,
    /// The message to send. In 0.1 messages have no id: it is empty, and the server assigns one.
    pub message: Message,
    /// Whether the response waits for the end of the turn. 0.1 cannot express it and responds at once.
    pub blocking: bool,
    /// The most history messages in the response; `None`: all.
    pub history_length: Option<usize>,
    /// Media types that the caller accepts. Empty: any.
    pub accepted_output_modes: Vec<String>,
    /// A webhook to register. If its id is empty, the server assigns one.
    pub webhook: Option<WebhookConfig>,
    /// Metadata of the request.
    pub metadata: Option<Metadata>,
}

impl SendMessage {
    /// A message that begins a task, with default options.
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

/// The filter and the page of a task list.
#[derive(Debug, Clone, PartialEq)]
pub struct ListTasks {
    /// Only tasks of this conversation.
    pub context: Option<String>,
    /// Only tasks in this state.
    pub state: Option<State>,
    /// The page size, from 1 to [`ListTasks::MAX_PAGE_SIZE`].
    pub page_size: usize,
    /// The token from the previous page.
    pub page_token: Option<String>,
    /// The most history messages of each task; `None`: all.
    pub history_length: Option<usize>,
    /// Only tasks whose status changed at or after this time.
    pub since: Option<Timestamp>,
    /// Whether artifacts are included.
    pub include_artifacts: bool,
}

impl ListTasks {
    /// The page size if the caller gives none.
    pub const DEFAULT_PAGE_SIZE: usize = 50;
    /// The largest page size.
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
