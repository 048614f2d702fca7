//! Texts to begin a conversation with.

use std::collections::BTreeMap;

use async_trait::async_trait;

use super::{ContentBlock, HandlerError, HandlerReply, HandlerRequest};
use crate::{access::Caller, content::Role};

/// A text to begin a conversation with, made of arguments.
#[async_trait]
pub trait Prompt: Send + Sync + 'static {
    /// How it presents itself. Read once, when it is offered.
    fn profile(&self) -> PromptProfile;

    /// The prompt with these arguments. The required ones are there.
    async fn get(&self, request: HandlerRequest) -> Result<HandlerReply<PromptOutput>, HandlerError>;

    /// Values of an argument that begin with `typed`, as far as the caller may see them, best first. `known`
    /// are the other arguments as far as they are chosen.
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

/// How a prompt presents itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptProfile {
    /// The name it is asked for by.
    pub name: String,
    /// A name for people.
    pub title: Option<String>,
    /// What it is for.
    pub description: String,
    /// What it is made of.
    pub arguments: Vec<PromptArgument>,
}

impl PromptProfile {
    /// A prompt without arguments.
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self { name: name.into(), title: None, description: description.into(), arguments: vec![] }
    }

    /// One more argument, which has to be given.
    #[must_use]
    pub fn argument(mut self, name: impl Into<String>, description: impl Into<String>) -> Self {
        let (name, description) = (name.into(), description.into());
        self.arguments.push(PromptArgument { name, description, required: true });
        self
    }
}

/// Something that a prompt is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptArgument {
    /// Its name.
    pub name: String,
    /// What to put there.
    pub description: String,
    /// Whether it has to be given.
    pub required: bool,
}

/// A prompt that is ready to be said.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PromptOutput {
    /// What it is, where that depends on the arguments.
    pub description: Option<String>,
    /// What is said.
    pub messages: Vec<PromptMessage>,
}

impl PromptOutput {
    /// Something that the user says.
    pub fn user(block: ContentBlock) -> Self {
        Self::default().and(Role::User, block)
    }

    /// Something more that is said.
    #[must_use]
    pub fn and(mut self, role: Role, content: ContentBlock) -> Self {
        self.messages.push(PromptMessage { role, content });
        self
    }
}

/// One turn of a prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptMessage {
    /// Who says it.
    pub role: Role,
    /// What is said.
    pub content: ContentBlock,
}
