//! The agent itself, and what its card announces.

use clap::ValueEnum;
use nuncio::{
    engine::{AgentExtension, ExtendedCard, Skill},
    prelude::*,
};

use super::behaviour::Behaviour;

/// The extension that the kit names in its requests.
pub(crate) const REQUIRED_EXTENSION: &str = "urn:a2a:tck:required-extension";

/// What the card announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CardProfile {
    /// Streaming and push notifications.
    Full,
    /// Neither.
    Plain,
    /// Everything, and an extension that requests must name.
    RequiredExtension,
    /// Everything, and an extended card.
    ExtendedCard,
}

/// The agent in one of its profiles.
pub(crate) struct ConformanceAgent {
    pub(crate) profile: CardProfile,
    pub(crate) ask_by_default: bool,
}

#[async_trait]
impl Agent for ConformanceAgent {
    fn profile(&self) -> Profile {
        let mut profile = Profile::new("conformance", "Does what the id of the message says.").replies();
        if self.profile == CardProfile::Plain {
            (profile.streaming, profile.push_notifications) = (false, false);
        }
        if self.profile == CardProfile::RequiredExtension {
            profile.extensions = vec![AgentExtension {
                uri: REQUIRED_EXTENSION.into(),
                description: Some("Every request names it.".into()),
                required: true,
                params: None,
            }];
        }
        if self.profile == CardProfile::ExtendedCard {
            profile.extended_card = Some(ExtendedCard {
                description: Some("Does what the id of the message says, for callers that it knows.".into()),
                skills: vec![Skill::new("known", "For known callers", "Is on the extended card only.")],
            });
        }
        profile
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        match Behaviour::of(&cx.input().id) {
            Some(behaviour) => behaviour.run(&cx).await,
            None if self.ask_by_default => loop {
                cx.ask_text("What else?").await?;
            },
            None => Behaviour::Complete.run(&cx).await,
        }
    }
}
