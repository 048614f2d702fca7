//! The MCP prompts of the phases: each template as a brief, for clients that use their own model.

use async_trait::async_trait;
use nuncio_engine::{
    Surface,
    surface::{
        ContentBlock, HandlerError, HandlerReply, HandlerRequest, Prompt, PromptArgument, PromptOutput,
        PromptProfile,
    },
};

use super::{phase::SparcPhase, templates::PhaseTemplate};

/// Registers the prompts.
pub(super) fn install(surface: &Surface) {
    for phase in SparcPhase::ALL {
        surface.add_prompt(PhasePrompt(phase));
    }
}

struct PhasePrompt(SparcPhase);

#[async_trait]
impl Prompt for PhasePrompt {
    fn profile(&self) -> PromptProfile {
        let about = format!(
            "Writes the artifact of the {} phase of a SPARC workflow: template, guidelines and a worked example.",
            self.0
        );
        let mut profile = PromptProfile::new(format!("sparc_{}", self.0), about)
            .argument("goal", "What is to be achieved.");
        profile.title = Some(format!("SPARC: {}", self.0));
        profile.arguments.push(PromptArgument {
            name: "context".into(),
            description: "What is known already, such as the artifacts of earlier phases.".into(),
            required: false,
        });
        profile
    }

    async fn get(&self, request: HandlerRequest) -> Result<HandlerReply<PromptOutput>, HandlerError> {
        let goal = request.text("goal").map(str::trim).unwrap_or_default();
        if goal.is_empty() {
            return Err(HandlerError::Invalid("goal: it must not be empty".into()));
        }
        let known = match request.text("context").map(str::trim).unwrap_or_default() {
            "" => String::new(),
            known => format!("What is known already:\n{known}\n\n"),
        };
        let text =
            format!("{}\n\nThe goal:\n{goal}\n\n{known}{}", task(self.0), PhaseTemplate::of(self.0).brief());
        Ok(HandlerReply::Done(PromptOutput::user(ContentBlock::Text(text))))
    }
}

/// The task of a phase, as text for a model.
pub(super) fn task(phase: SparcPhase) -> String {
    format!(
        "Write the artifact of the {phase} phase of a SPARC workflow (specification, pseudocode, architecture, \
         refinement, completion). Answer with one JSON object that satisfies the JSON Schema below, and with \
         nothing else."
    )
}
