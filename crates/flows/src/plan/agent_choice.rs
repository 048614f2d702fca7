//! The choice of an agent for a subtask: the first healthy agent of the target, then the fallbacks in order,
//! then any agent that shares a skill with the named one. The calling step journals the choice.

use std::collections::BTreeSet;

use nuncio_engine::clock::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    api::UnavailableAgent,
    check::Roster,
    file::{PlanTarget, PlanTask},
};
use crate::registry::Registry;

/// The chosen agent, if any.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct AgentChoice {
    /// When the choice was made.
    pub(crate) at: Timestamp,
    /// The agent, and the index of the target that it matched: 0 is the task's own, then come its fallbacks.
    pub(crate) agent: Option<(String, usize)>,
    /// The agents that were considered earlier, each with why it was unavailable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) passed_over: Vec<UnavailableAgent>,
}

/// The history of earlier attempts.
#[derive(Debug, Clone, Default)]
pub(crate) struct AttemptHistory {
    /// The first target that is still eligible: the targets before it have failed permanently.
    pub(crate) from: usize,
    /// The agent to retry, unless it is down.
    pub(crate) again: Option<String>,
    /// The agents that were found to be down, and why.
    pub(crate) down: Vec<UnavailableAgent>,
}

impl AttemptHistory {
    fn is_down(&self, agent: &str) -> bool {
        self.down.iter().any(|passed| passed.agent == agent)
    }
}

/// Chooses an agent. `skills`: the skills of the named agent when the plan began, in case it has been removed since.
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
    // An agent that itself reported the failure is replaced only by the fallbacks of the plan. A target that
    // names a skill already includes every agent with that skill and all requested tags. A demonstration replaces
    // nothing but a demonstration.
    if found.is_none()
        && tried.from == 0
        && let PlanTarget::Agent(named) = &task.by
    {
        let takes_demos = roster.get(named).is_some_and(|profile| profile.demo);
        let alike = |profile: &&std::sync::Arc<nuncio_engine::Profile>| {
            (takes_demos || !profile.demo) && profile.skills.iter().any(|skill| skills.contains(&skill.id))
        };
        let mut alike = roster.agents().iter().filter(alike).map(|profile| profile.name.as_str());
        found = alike.find(|agent| is_well(agent)).map(|agent| (agent.to_owned(), 0));
    }
    AgentChoice { at, agent: found, passed_over }
}

/// The skills of the agent that a task names.
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
