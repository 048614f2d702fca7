//! Prompts: text templates that begin a conversation.

use std::collections::BTreeMap;

use async_trait::async_trait;

use super::{ContentBlock, HandlerError, HandlerReply, HandlerRequest};
use crate::{access::Caller, content::Role};

/// A template that begins a conversation, filled in with arguments.
#[async_trait]
pub trait Prompt: Send + Sync + 'static {
    /// Its listing entry. Read once, when the prompt is registered.
    fn profile(&self) -> PromptProfile;

    /// Renders the prompt with these arguments. The required ones are present.
    async fn get(&self, request: HandlerRequest) -> Result<HandlerReply<PromptOutput>, HandlerError>;

    /// Completions of an argument that begin with `typed` and that the caller may see, best first. `known` holds
    /// the other arguments chosen so far.
    async fn complete(
        &self,
        caller: &Caller,
        argument: &str,
        typed: &str,
        known: &BTreeMap<String, String>,
    ) -> Vec<String> {
        let _ = (caller, argument, typed, known);
        vec![]
    }
}

/// The listing entry of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptProfile {
    /// The name that clients pass to `prompts/get`.
    pub name: String,
    /// A display name.
    pub title: Option<String>,
    /// What it is for.
    pub description: String,
    /// The arguments that it takes.
    pub arguments: Vec<PromptArgument>,
}

impl PromptProfile {
    /// A prompt without arguments.
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self { name: name.into(), title: None, description: description.into(), arguments: vec![] }
    }

    /// Adds a required argument.
    #[must_use]
    pub fn argument(mut self, name: impl Into<String>, description: impl Into<String>) -> Self {
        let (name, description) = (name.into(), description.into());
        self.arguments.push(PromptArgument { name, description, required: true });
        self
    }
}

/// An argument of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptArgument {
    /// The argument's name.
    pub name: String,
    /// The value it expects.
    pub description: String,
    /// Whether it must be given.
    pub required: bool,
}

/// A rendered prompt.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PromptOutput {
    /// A description that depends on the arguments.
    pub description: Option<String>,
    /// The conversation so far, in order.
    pub messages: Vec<PromptMessage>,
}

impl PromptOutput {
    /// A prompt with one message of the user.
    pub fn user(block: ContentBlock) -> Self {
        Self::default().and(Role::User, block)
    }

    /// Adds a message.
    #[must_use]
    pub fn and(mut self, role: Role, content: ContentBlock) -> Self {
        self.messages.push(PromptMessage { role, content });
        self
    }
}

/// One message of a prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptMessage {
    /// The sender: the user or the agent.
    pub role: Role,
    /// The message's content block.
    pub content: ContentBlock,
}
