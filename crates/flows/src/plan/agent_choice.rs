//! Who does a subtask: the first of those meant who is not known to be down, then the fallbacks in their order, then
//! whoever else has a skill of the one that was meant. What is found is kept by the step that looked.

use std::collections::BTreeSet;

use nuncio_engine::clock::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    check::Roster,
    file::{PlanTarget, PlanTask},
    status::UnavailableAgent,
};
use crate::registry::Registry;

/// Who was picked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct AgentChoice {
    /// When.
    pub(crate) at: Timestamp,
    /// Who, and as which of the task's targets: 0 is the task's own, then come its fallbacks.
    pub(crate) agent: Option<(String, usize)>,
    /// Those before, and why not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) passed_over: Vec<UnavailableAgent>,
}

/// What is known of earlier tries.
#[derive(Debug, Clone, Default)]
pub(crate) struct AttemptHistory {
    /// The first target that is worth a try: those before it have failed for good.
    pub(crate) from: usize,
    /// The agent to try again, where it is not down.
    pub(crate) again: Option<String>,
    /// Who was found to be down, and why.
    pub(crate) down: Vec<UnavailableAgent>,
}

impl AttemptHistory {
    fn is_down(&self, agent: &str) -> bool {
        self.down.iter().any(|passed| passed.agent == agent)
    }
}

/// Picks somebody. `skills`: what those meant could do when the plan began, in case that they are gone.
pub(crate) fn pick(
    task: &PlanTask,
    tried: &AttemptHistory,
    skills: &BTreeSet<String>,
    roster: &Roster,
    registry: &Registry,
    at: Timestamp,
) -> AgentChoice {
    let mut passed_over: Vec<UnavailableAgent> = vec![];
    let mut is_well = |agent: &str| match registry.down_reason(agent) {
        _ if tried.is_down(agent) => false,
        None => true,
        Some(why) => {
            if !passed_over.iter().any(|passed| passed.agent == agent) {
                passed_over.push(UnavailableAgent { agent: agent.to_owned(), why });
            }
            false
        }
    };
    let targets: Vec<&PlanTarget> = [&task.by].into_iter().chain(&task.fallbacks).collect();
    let mut found = None;
    if let Some(again) = &tried.again
        && roster.get(again).is_some()
        && is_well(again)
    {
        found = Some((again.clone(), tried.from));
    }
    for (n, target) in targets.iter().enumerate().skip(tried.from) {
        if found.is_some() {
            break;
        }
        found = roster
            .matching_agents(target)
            .into_iter()
            .find(|agent| is_well(agent))
            .map(|agent| (agent.to_owned(), n));
    }
    // Whoever failed by their own word has no stand-in but those that the plan names. And whoever is meant by a skill
    // is everybody who has it with all tags that were asked for.
    if found.is_none() && tried.from == 0 && matches!(task.by, PlanTarget::Agent(_)) {
        let alike = |profile: &&std::sync::Arc<nuncio_engine::Profile>| {
            profile.skills.iter().any(|skill| skills.contains(&skill.id))
        };
        let mut alike = roster.agents().iter().filter(alike).map(|profile| profile.name.as_str());
        found = alike.find(|agent| is_well(agent)).map(|agent| (agent.to_owned(), 0));
    }
    AgentChoice { at, agent: found, passed_over }
}

/// The skills of the agent that a task means by its name.
pub(crate) fn skills_of(task: &PlanTask, roster: &Roster) -> BTreeSet<String> {
    match &task.by {
        PlanTarget::Skill { .. } => BTreeSet::new(),
        PlanTarget::Agent(name) => roster
            .get(name)
            .into_iter()
            .flat_map(|profile| &profile.skills)
            .map(|skill| skill.id.clone())
            .collect(),
    }
}
