//! The five phases, in order, and the role that works on each.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One phase of a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SparcPhase {
    /// What is to be made, and how its success is verified.
    Specification,
    /// How it works, step by step.
    Pseudocode,
    /// The components that it consists of.
    Architecture,
    /// The implementation, with passing tests.
    Refinement,
    /// The verification against the specification, and the documentation.
    Completion,
}

impl SparcPhase {
    /// All phases, in order.
    pub const ALL: [Self; 5] =
        [Self::Specification, Self::Pseudocode, Self::Architecture, Self::Refinement, Self::Completion];

    /// Its name in URIs and documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Specification => "specification",
            Self::Pseudocode => "pseudocode",
            Self::Architecture => "architecture",
            Self::Refinement => "refinement",
            Self::Completion => "completion",
        }
    }

    /// The position of the phase, from 0.
    pub fn index(self) -> usize {
        self as usize
    }

    /// The next phase.
    pub fn next(self) -> Option<Self> {
        Self::ALL.get(self.index() + 1).copied()
    }

    /// The phases before it.
    pub fn earlier(self) -> &'static [Self] {
        &Self::ALL[..self.index()]
    }

    /// The role that works on it.
    pub fn role(self) -> SparcRole {
        match self {
            Self::Specification => SparcRole::Researcher,
            Self::Pseudocode | Self::Refinement => SparcRole::Coder,
            Self::Architecture | Self::Completion => SparcRole::Analyst,
        }
    }
}

impl std::fmt::Display for SparcPhase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for SparcPhase {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|phase| phase.name() == text);
        found.ok_or_else(|| format!("{text:?} is not a phase: the phases are {}", names(&Self::ALL)))
    }
}

/// The names of phases as text.
pub(super) fn names(phases: &[SparcPhase]) -> String {
    phases.iter().map(|phase| phase.name()).collect::<Vec<_>>().join(", ")
}

/// The role of a SPARC agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SparcRole {
    /// Researches the requirements.
    Researcher,
    /// Designs the algorithm, and implements it.
    Coder,
    /// Designs the architecture, and reviews the whole.
    Analyst,
    /// Drives all phases.
    Coordinator,
}

impl SparcRole {
    /// All roles.
    pub const ALL: [Self; 4] = [Self::Researcher, Self::Coder, Self::Analyst, Self::Coordinator];

    /// Its name, which is also that of its agent.
    pub fn name(self) -> &'static str {
        match self {
            Self::Researcher => "researcher",
            Self::Coder => "coder",
            Self::Analyst => "analyst",
            Self::Coordinator => "coordinator",
        }
    }

    /// The phases that it works on. The coordinator drives all of them.
    pub fn phases(self) -> Vec<SparcPhase> {
        let works = |phase: &SparcPhase| self == Self::Coordinator || phase.role() == self;
        SparcPhase::ALL.into_iter().filter(works).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_is_found_by_its_name_and_has_one_role_that_works_on_it() {
        for phase in SparcPhase::ALL {
            assert_eq!(phase.name().parse(), Ok(phase));
            assert!(phase.role().phases().contains(&phase));
            assert_eq!(phase.earlier().len(), phase.index());
        }
        assert!("Specification".parse::<SparcPhase>().is_err_and(|why| why.contains("pseudocode")));
        assert_eq!(SparcRole::Coordinator.phases(), SparcPhase::ALL);
        assert_eq!(SparcPhase::Completion.next(), None);
    }
}
