//! The gate agent: applies refinement's gate to an artifact that was submitted through a tool. It is a task of
//! its own because the tests may run for a long time.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use nuncio_engine::{
    Agent, AgentError, Chunk, Outcome, Profile, TaskContext,
    surface::{ToolGroup, output_schema},
};
use serde_json::{Value, json};

use super::{SparcTaskInput, submit, who, workflows};
use crate::{
    resource::plain_value,
    retry::PATIENCE,
    sparc::{SparcShared, api::SparcSubmitAnswer, phase::SparcPhase, view},
};

/// The agent's name.
pub(in crate::sparc) const GATE: &str = "sparc-gate";
/// The time limit beyond that of the tests: each of its three steps may have to retry.
const BESIDE: Duration = Duration::from_secs(600 + 3 * PATIENCE.as_secs());

/// The agent that applies refinement's gate.
pub(super) struct GateAgent {
    options: Arc<SparcShared>,
}

impl GateAgent {
    pub(super) fn new(options: Arc<SparcShared>) -> Self {
        Self { options }
    }
}

#[async_trait]
impl Agent for GateAgent {
    fn profile(&self) -> Profile {
        let about = "Applies the gate of the refinement phase to an artifact: runs the configured tests and records \
                     what came of it. sparc_submit hands over to it.";
        let mut profile = Profile::new(GATE, about).tool_group(ToolGroup::Sparc).input(json!({
            "type": "object",
            "properties": {
                "contextId": { "type": "string", "description": "The workflow." },
                "artifact": { "type": "object", "description": "The artifact of its refinement phase." },
            },
            "required": ["contextId", "artifact"],
            "additionalProperties": false,
        }));
        profile.output_schema = Some(output_schema::<SparcSubmitAnswer>());
        profile.time_limit = Some(self.options.test_timeout + BESIDE);
        profile
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        let input = match SparcTaskInput::read(&cx) {
            Ok(input) => input,
            Err(why) => return Ok(Outcome::Rejected(why)),
        };
        let Some(artifact @ Value::Object(_)) = cx.argument("artifact").cloned() else {
            return Ok(Outcome::rejected("artifact: an object is wanted"));
        };
        let (who, workflows) = (who(&cx, GATE), workflows(cx.engine(), &self.options));
        cx.progress(0.0, None, "Running the tests of the refinement phase").await?;
        let phase = SparcPhase::Refinement;
        match submit(&cx, &workflows, &who, &input.context_id, phase, &artifact).await? {
            Err(why) => Ok(Outcome::Failed(why)),
            Ok(submitted) => {
                let value = plain_value(&view::submitted(&input.context_id, &submitted));
                cx.artifact(Chunk::data("gate", value).named("What the gate said").complete()).await?;
                Ok(Outcome::said(view::submitted_in_words(&submitted)))
            }
        }
    }
}
