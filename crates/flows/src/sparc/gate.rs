//! The gate at the end of a phase: the template's JSON Schema, then what a schema cannot say, such as that every
//! requirement is covered. For refinement the tests have to run as well; that is `command.rs`.
//!
//! A gate that refuses names everything that is wrong, where it is, in words that a model or a person can act on.

use std::collections::{BTreeMap, BTreeSet};

use nuncio_engine::clock::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{command::CommandReport, phase::Phase, templates::Template};

/// Violations that a verdict names; how many more there are is said in the last.
pub const MAX_VIOLATIONS: usize = 200;

/// Something that is wrong with an artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// Where, as a JSON pointer; empty: the artifact as a whole.
    pub path: String,
    /// What.
    pub message: String,
}

impl Violation {
    fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.path.as_str() {
            "" => f.write_str(&self.message),
            path => write!(f, "{path}: {}", self.message),
        }
    }
}

/// What a gate says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Whether the phase has passed.
    pub passed: bool,
    /// When it was judged.
    pub checked_at: Timestamp,
    /// What was wrong; empty where it passed.
    pub violations: Vec<Violation>,
    /// How the tests went, where they ran.
    pub command: Option<CommandReport>,
}

impl Verdict {
    /// The verdict on an artifact, with how its tests went.
    pub fn new(mut violations: Vec<Violation>, command: Option<CommandReport>, at: Timestamp) -> Self {
        violations.extend(command.as_ref().and_then(CommandReport::violation));
        if violations.len() > MAX_VIOLATIONS {
            let more = violations.len() - MAX_VIOLATIONS;
            violations.truncate(MAX_VIOLATIONS);
            violations.push(Violation::new("", format!("and {more} more violations")));
        }
        Self { passed: violations.is_empty(), checked_at: at, violations, command }
    }

    /// The violations, one a line.
    pub fn in_words(&self) -> String {
        self.violations.iter().map(|violation| format!("- {violation}\n")).collect()
    }

    /// The first violation, and how many more there are.
    pub fn in_short(&self) -> String {
        match &self.violations[..] {
            [] => "nothing is wrong".into(),
            [only] => only.to_string(),
            [first, rest @ ..] => format!("{first} (and {} more)", rest.len()),
        }
    }
}

/// The artifacts of earlier phases that have passed.
pub(super) type Earlier = BTreeMap<Phase, Value>;

/// What is wrong with an artifact, all of it, as far as that can be seen without running anything.
pub(super) fn inspect(phase: Phase, artifact: &Value, earlier: &Earlier) -> Vec<Violation> {
    let shape = &Template::of(phase).shape;
    let mut found: Vec<Violation> =
        shape.violations(artifact).map(|(path, message)| Violation { path, message }).collect();
    match phase {
        Phase::Specification => specification(artifact, &mut found),
        Phase::Pseudocode => pseudocode(artifact, earlier, &mut found),
        Phase::Architecture => architecture(artifact, earlier, &mut found),
        Phase::Refinement => refinement(artifact, earlier, &mut found),
        Phase::Completion => completion(artifact, earlier, &mut found),
    }
    found
}

fn specification(artifact: &Value, found: &mut Vec<Violation>) {
    let requirements = names(artifact, "requirements", "id", found);
    names(artifact, "acceptanceCriteria", "id", found);
    let mut criteria = BTreeSet::new();
    for (at, criterion) in items(artifact, "acceptanceCriteria") {
        if let Some(requirement) = criterion["requirement"].as_str() {
            criteria.insert(requirement);
            if !requirements.contains(requirement) {
                let path = format!("/acceptanceCriteria/{at}/requirement");
                found.push(unknown(path, "requirement", requirement, &requirements));
            }
        }
    }
    for id in requirements.iter().filter(|id| !criteria.contains(**id)) {
        let message =
            format!("no criterion is about requirement {id:?}: say how one will know that it is met");
        found.push(Violation::new("/acceptanceCriteria", message));
    }
}

fn pseudocode(artifact: &Value, earlier: &Earlier, found: &mut Vec<Violation>) {
    let steps = names(artifact, "steps", "id", found);
    let requirements = ids(earlier, Phase::Specification, "requirements", "id");
    let outputs: BTreeSet<&str> =
        items(artifact, "steps").flat_map(|(_, step)| texts(&step["outputs"])).collect();
    let inputs: BTreeSet<&str> = texts(&artifact["inputs"]).collect();
    let mut covered = BTreeSet::new();
    for (at, step) in items(artifact, "steps") {
        for (n, requirement) in texts(&step["requirements"]).enumerate() {
            covered.insert(requirement);
            if !requirements.contains(requirement) {
                let path = format!("/steps/{at}/requirements/{n}");
                found.push(unknown(path, "requirement", requirement, &requirements));
            }
        }
        for (n, next) in texts(&step["next"]).enumerate().filter(|(_, next)| !steps.contains(next)) {
            found.push(unknown(format!("/steps/{at}/next/{n}"), "step", next, &steps));
        }
        for (n, input) in texts(&step["inputs"]).enumerate() {
            if !inputs.contains(input) && !outputs.contains(input) {
                let message = format!(
                    "{input:?} comes from nowhere: it is neither an input of the flow nor an output of a step"
                );
                found.push(Violation::new(format!("/steps/{at}/inputs/{n}"), message));
            }
        }
    }
    for (n, output) in texts(&artifact["outputs"]).enumerate().filter(|(_, output)| !outputs.contains(output))
    {
        found.push(Violation::new(format!("/outputs/{n}"), format!("no step has the output {output:?}")));
    }
    for id in requirements.iter().filter(|id| !covered.contains(**id)) {
        let message =
            format!("no step covers requirement {id:?}: name it in the requirements of the step that does");
        found.push(Violation::new("/steps", message));
    }
}

fn architecture(artifact: &Value, earlier: &Earlier, found: &mut Vec<Violation>) {
    let components = names(artifact, "components", "name", found);
    let steps = ids(earlier, Phase::Pseudocode, "steps", "id");
    let mut implemented = BTreeSet::new();
    for (at, component) in items(artifact, "components") {
        for (n, other) in texts(&component["dependencies"]).enumerate() {
            let path = format!("/components/{at}/dependencies/{n}");
            if Some(other) == component["name"].as_str() {
                found.push(Violation::new(path, "a component does not depend on itself"));
            } else if !components.contains(other) {
                found.push(unknown(path, "component", other, &components));
            }
        }
        for (n, step) in texts(&component["implements"]).enumerate() {
            implemented.insert(step);
            if !steps.contains(step) {
                found.push(unknown(format!("/components/{at}/implements/{n}"), "step", step, &steps));
            }
        }
    }
    for id in steps.iter().filter(|id| !implemented.contains(**id)) {
        let message = format!("no component implements step {id:?} of the pseudocode");
        found.push(Violation::new("/components", message));
    }
}

fn refinement(artifact: &Value, earlier: &Earlier, found: &mut Vec<Violation>) {
    let components = ids(earlier, Phase::Architecture, "components", "name");
    let criteria = ids(earlier, Phase::Specification, "acceptanceCriteria", "id");
    for (at, change) in items(artifact, "changes") {
        if let Some(component) = change["component"].as_str().filter(|name| !components.contains(name)) {
            found.push(unknown(format!("/changes/{at}/component"), "component", component, &components));
        }
    }
    for (at, test) in items(artifact, "tests") {
        for (n, criterion) in texts(&test["covers"]).enumerate().filter(|(_, id)| !criteria.contains(id)) {
            let path = format!("/tests/{at}/covers/{n}");
            found.push(unknown(path, "acceptance criterion", criterion, &criteria));
        }
    }
}

fn completion(artifact: &Value, earlier: &Earlier, found: &mut Vec<Violation>) {
    let criteria = ids(earlier, Phase::Specification, "acceptanceCriteria", "id");
    let judged = names(artifact, "validation", "criterion", found);
    for (at, judgement) in items(artifact, "validation") {
        let Some(criterion) = judgement["criterion"].as_str() else { continue };
        let path = format!("/validation/{at}");
        if !criteria.contains(criterion) {
            found.push(unknown(format!("{path}/criterion"), "acceptance criterion", criterion, &criteria));
        }
        if judgement["validated"] == false {
            let message = format!(
                "criterion {criterion:?} is not validated: meet it, or go back to the phase where it has to be changed"
            );
            found.push(Violation::new(format!("{path}/validated"), message));
        }
    }
    for id in criteria.iter().filter(|id| !judged.contains(**id)) {
        let message =
            format!("acceptance criterion {id:?} is not there: say whether it is validated, with evidence");
        found.push(Violation::new("/validation", message));
    }
}

/// The names in a list; one that is there twice is a violation.
fn names<'a>(artifact: &'a Value, list: &str, name: &str, found: &mut Vec<Violation>) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    for (at, item) in items(artifact, list) {
        if let Some(value) = item[name].as_str()
            && !seen.insert(value)
        {
            let message = format!("{value:?} is there twice: give each its own {name}");
            found.push(Violation::new(format!("/{list}/{at}/{name}"), message));
        }
    }
    seen
}

fn ids<'a>(earlier: &'a Earlier, phase: Phase, list: &str, name: &str) -> BTreeSet<&'a str> {
    let artifact = earlier.get(&phase);
    artifact
        .into_iter()
        .flat_map(|artifact| items(artifact, list))
        .filter_map(|(_, item)| item[name].as_str())
        .collect()
}

fn items<'a>(artifact: &'a Value, list: &str) -> impl Iterator<Item = (usize, &'a Value)> {
    artifact[list].as_array().into_iter().flatten().enumerate()
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn unknown(path: String, what: &str, name: &str, known: &BTreeSet<&str>) -> Violation {
    let known = known.iter().copied().collect::<Vec<_>>().join(", ");
    let known = if known.is_empty() { "none".into() } else { known };
    Violation { path, message: format!("there is no {what} {name:?}: there are {known}") }
}

#[cfg(test)]
mod tests;
