//! The echo agent: returns its input.

use async_trait::async_trait;
use nuncio_engine::{Agent, AgentError, Chunk, Outcome, Profile, TaskContext};
use serde_json::json;

/// Returns its input: text, data and files, part by part.
///
/// It ends in its first poll, without a step or a sleep, so that its whole task is one commit.
#[derive(Debug, Clone, Copy, Default)]
pub struct EchoAgent;

#[async_trait]
impl Agent for EchoAgent {
    fn profile(&self) -> Profile {
        let mut profile = Profile::new(
            "echo",
            "Returns the parts of your message, unchanged, as one artifact. Good for a first call and for \
             checking a client.",
        )
        .demo();
        let modes = [
            "text/plain",
            "text/markdown",
            "application/json",
            "application/pdf",
            "application/octet-stream",
            "image/png",
            "image/jpeg",
        ];
        profile.input_modes = modes.map(String::from).into();
        profile.output_modes.clone_from(&profile.input_modes);
        profile.input_schema = Some(json!({
            "type": "object",
            "properties": { "text": { "type": "string", "description": "What to say back." } },
            "required": ["text"],
        }));
        let skill = &mut profile.skills[0];
        skill.name = "Echo".into();
        skill.tags = vec!["echo".into(), "test".into()];
        skill.examples = vec!["Hello, is anybody there?".into()];
        profile
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        cx.artifact(Chunk::parts("echo", cx.input().parts.clone()).named("echo").complete()).await?;
        Ok(Outcome::done())
    }
}
