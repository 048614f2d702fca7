//! A long-running agent that reports each step.
//!
//! Every step is journaled, so that a restart continues where the work stopped. A follower of the log from
//! level `info` on receives each step once; every tenth is a `warning`, and `debug` adds a line to every
//! fifth.

use async_trait::async_trait;
use nuncio_engine::{Agent, AgentError, Chunk, Level, Outcome, Part, Profile, TaskContext};
use serde_json::{Value, json};

use crate::{
    AgentOptions,
    pace::StepPace,
    redirect::{Redirect, Redirects},
};

const STEPS: u32 = 50;
const MOST_STEPS: u32 = 1_000;
const DETAIL_EVERY: u32 = 5;
const WARNING_EVERY: u32 = 10;

/// Does fifty steps of simulated work, or as many as requested.
#[derive(Debug, Clone)]
pub struct LongRunningAgent {
    pace: StepPace,
}

impl LongRunningAgent {
    /// An agent with the step length of the options.
    pub fn new(options: &AgentOptions) -> Self {
        Self { pace: StepPace::new(options) }
    }
}

#[async_trait]
impl Agent for LongRunningAgent {
    fn profile(&self) -> Profile {
        let mut profile = Profile::new(
            "long_running_agent",
            "Does 50 steps of simulated work, with progress and a log line for each. Disconnect, or restart \
             the server: it goes on where it was.",
        )
        .demo();
        profile.input_schema = Some(json!({
            "type": "object",
            "properties": {
                "steps": {
                    "type": "integer",
                    "description": "How many steps.",
                    "minimum": 1,
                    "maximum": MOST_STEPS,
                    "default": STEPS,
                }
            },
        }));
        profile.time_limit = Some(self.pace.limit(MOST_STEPS));
        let skill = &mut profile.skills[0];
        skill.id = "long_work".into();
        skill.name = "Long work".into();
        skill.tags = vec!["long-running".into(), "progress".into(), "logging".into(), "resume".into()];
        skill.examples = vec!["Start".into()];
        profile
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        let mut steps = match cx.argument("steps") {
            None | Some(Value::Null) => STEPS,
            Some(given) => match given.as_u64().and_then(|given| u32::try_from(given).ok()) {
                Some(steps @ 1..=MOST_STEPS) => steps,
                _ => {
                    return Ok(Outcome::Rejected(format!(
                        "steps: 1 to {MOST_STEPS} are wanted, not {given}"
                    )));
                }
            },
        };
        let (mut redirects, mut n) = (Redirects::new(), 0);
        while n < steps {
            n += 1;
            let level = if n % WARNING_EVERY == 0 { Level::Warning } else { Level::Info };
            // Outside the step: a step that is repeated would log it again.
            cx.log(level, format!("Processing step {n}/{steps} ({}%)", n * 100 / steps)).await?;
            if n % DETAIL_EVERY == 0 {
                cx.log(Level::Debug, format!("{} steps are journaled", n - 1)).await?;
            }
            let heard = self.pace.step(&cx, &redirects, &format!("step-{n}")).await?;
            let wanted = steps;
            for redirect in redirects.take(&cx, heard, "steps").await? {
                match redirect {
                    // Half of what is left.
                    Redirect::Shorter => steps = n + (steps - n) / 2,
                    Redirect::Stop => steps = n,
                    Redirect::Subject(other) => {
                        if let Ok(other @ 1..=MOST_STEPS) = other.parse::<u32>() {
                            steps = other.max(n);
                        }
                    }
                    Redirect::Unclear(_) => {}
                }
            }
            cx.progress(n.into(), Some(steps.into()), format!("Step {n} of {steps} is done")).await?;
            if wanted != steps && n == steps {
                cx.log(Level::Notice, format!("The work ends here, at step {n} of {wanted}")).await?;
            }
        }
        let result = Part::data(json!({ "steps": steps }));
        cx.artifact(Chunk::parts("result", vec![result]).named("Result").complete()).await?;
        Ok(Outcome::said(format!("All {steps} steps are done.")))
    }
}
