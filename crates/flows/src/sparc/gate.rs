//! The gate at the end of a phase: the template's JSON Schema, then checks that a schema cannot express, such
//! as that every requirement is covered. For refinement the tests have to pass as well (`command.rs`).
//!
//! A refusal lists what is wrong and where, in text that a model or a person can act on: all violations of the
//! schema, or else all that the later checks find, limited in number and in length.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{Arguments, Write as _},
};

use nuncio_engine::{
    clock::Timestamp,
    surface::{BoundedText, MAX_EXPLANATION},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{api::Violation, command::CommandReport, phase::SparcPhase, templates::PhaseTemplate};

/// Maximum violations in a verdict; the last one states how many more there are.
pub const MAX_VIOLATIONS: usize = 50;
/// Maximum known names that a violation lists.
const MAX_KNOWN: usize = 10;

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.path.as_str() {
            "" => f.write_str(&self.message),
            path => write!(f, "{path}: {}", self.message),
        }
    }
}

/// The verdict of a gate on an artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateVerdict {
    /// Whether the phase has passed.
    pub passed: bool,
    /// When the gate was applied.
    pub checked_at: Timestamp,
    /// The violations; empty if it passed.
    pub violations: Vec<Violation>,
    /// The report of the tests, if they ran.
    pub command: Option<CommandReport>,
}

impl GateVerdict {
    /// The verdict on an artifact, with the report of its tests.
    pub fn new(mut violations: Vec<Violation>, command: Option<CommandReport>, at: Timestamp) -> Self {
        violations.extend(command.as_ref().and_then(CommandReport::violation));
        Self { passed: violations.is_empty(), checked_at: at, violations, command }
    }

    /// The violations, one per line.
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
pub(super) type EarlierArtifacts = BTreeMap<SparcPhase, Value>;

/// The violations that can be found without running anything. The checks beyond the schema run only on an
/// artifact that satisfies the schema, which bounds their input.
pub(super) fn inspect(phase: SparcPhase, artifact: &Value, earlier: &EarlierArtifacts) -> Vec<Violation> {
    let (wrong, more) = PhaseTemplate::of(phase).shape.violations(artifact, MAX_VIOLATIONS);
    let wrong = wrong.into_iter().map(|(path, message)| Violation { path, message });
    let mut found = ViolationCollector { violations: wrong.collect(), more };
    if found.violations.is_empty() {
        match phase {
            SparcPhase::Specification => specification(artifact, &mut found),
            SparcPhase::Pseudocode => pseudocode(artifact, earlier, &mut found),
            SparcPhase::Architecture => architecture(artifact, earlier, &mut found),
            SparcPhase::Refinement => refinement(artifact, earlier, &mut found),
            SparcPhase::Completion => completion(artifact, earlier, &mut found),
        }
    }
    found.all()
}

/// The violations found so far. Beyond the limit they are counted, not stored.
struct ViolationCollector {
    violations: Vec<Violation>,
    more: usize,
}

impl ViolationCollector {
    fn push(&mut self, path: Arguments<'_>, message: Arguments<'_>) {
        if self.violations.len() >= MAX_VIOLATIONS {
            self.more += 1;
            return;
        }
        let mut text = BoundedText::new(MAX_EXPLANATION);
        // An error means that the text has reached its length limit.
        let _ = text.write_fmt(message);
        self.violations.push(Violation { path: path.to_string(), message: text.into_text() });
    }

    fn unknown(&mut self, path: Arguments<'_>, what: &str, name: &str, known: &BTreeSet<&str>) {
        self.push(path, format_args!("there is no {what} {name:?}: there are {}", KnownNames(known)));
    }

    fn all(mut self) -> Vec<Violation> {
        if self.more > 0 {
            let message = format!("and {} more violations", self.more);
            self.violations.push(Violation { path: String::new(), message });
        }
        self.violations
    }
}

/// The known names, or the first of them.
struct KnownNames<'a>(&'a BTreeSet<&'a str>);

impl std::fmt::Display for KnownNames<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        for (n, name) in self.0.iter().take(MAX_KNOWN).enumerate() {
            write!(f, "{}{name}", if n == 0 { "" } else { ", " })?;
        }
        match self.0.len().saturating_sub(MAX_KNOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

fn specification(artifact: &Value, found: &mut ViolationCollector) {
    let requirements = names(artifact, "requirements", "id", found);
    names(artifact, "acceptanceCriteria", "id", found);
    let mut criteria = BTreeSet::new();
    for (at, criterion) in items(artifact, "acceptanceCriteria") {
        if let Some(requirement) = criterion["requirement"].as_str() {
            criteria.insert(requirement);
            if !requirements.contains(requirement) {
                found.unknown(
                    format_args!("/acceptanceCriteria/{at}/requirement"),
                    "requirement",
                    requirement,
                    &requirements,
                );
            }
        }
    }
    for id in requirements.iter().filter(|id| !criteria.contains(**id)) {
        found.push(
            format_args!("/acceptanceCriteria"),
            format_args!("no criterion is about requirement {id:?}: say how one will know that it is met"),
        );
    }
}

fn pseudocode(artifact: &Value, earlier: &EarlierArtifacts, found: &mut ViolationCollector) {
    let steps = names(artifact, "steps", "id", found);
    let requirements = ids(earlier, SparcPhase::Specification, "requirements", "id");
    let outputs: BTreeSet<&str> =
        items(artifact, "steps").flat_map(|(_, step)| texts(&step["outputs"])).collect();
    let inputs: BTreeSet<&str> = texts(&artifact["inputs"]).collect();
    let mut covered = BTreeSet::new();
    for (at, step) in items(artifact, "steps") {
        for (n, requirement) in texts(&step["requirements"]).enumerate() {
            covered.insert(requirement);
            if !requirements.contains(requirement) {
                found.unknown(
                    format_args!("/steps/{at}/requirements/{n}"),
                    "requirement",
                    requirement,
                    &requirements,
                );
            }
        }
        for (n, next) in texts(&step["next"]).enumerate().filter(|(_, next)| !steps.contains(next)) {
            found.unknown(format_args!("/steps/{at}/next/{n}"), "step", next, &steps);
        }
        for (n, input) in texts(&step["inputs"]).enumerate() {
            if !inputs.contains(input) && !outputs.contains(input) {
                found.push(format_args!("/steps/{at}/inputs/{n}"), format_args!("{input:?} comes from nowhere: it is neither an input of the flow nor an output of a step"));
            }
        }
    }
    for (n, output) in texts(&artifact["outputs"]).enumerate().filter(|(_, output)| !outputs.contains(output))
    {
        found.push(format_args!("/outputs/{n}"), format_args!("no step has the output {output:?}"));
    }
    for id in requirements.iter().filter(|id| !covered.contains(**id)) {
        found.push(
            format_args!("/steps"),
            format_args!(
                "no step covers requirement {id:?}: name it in the requirements of the step that does"
            ),
        );
    }
}

fn architecture(artifact: &Value, earlier: &EarlierArtifacts, found: &mut ViolationCollector) {
    let components = names(artifact, "components", "name", found);
    let steps = ids(earlier, SparcPhase::Pseudocode, "steps", "id");
    let mut implemented = BTreeSet::new();
    for (at, component) in items(artifact, "components") {
        for (n, other) in texts(&component["dependencies"]).enumerate() {
            let path = format_args!("/components/{at}/dependencies/{n}");
            if Some(other) == component["name"].as_str() {
                found.push(path, format_args!("a component does not depend on itself"));
            } else if !components.contains(other) {
                found.unknown(path, "component", other, &components);
            }
        }
        for (n, step) in texts(&component["implements"]).enumerate() {
            implemented.insert(step);
            if !steps.contains(step) {
                found.unknown(format_args!("/components/{at}/implements/{n}"), "step", step, &steps);
            }
        }
    }
    for id in steps.iter().filter(|id| !implemented.contains(**id)) {
        found.push(
            format_args!("/components"),
            format_args!("no component implements step {id:?} of the pseudocode"),
        );
    }
}

fn refinement(artifact: &Value, earlier: &EarlierArtifacts, found: &mut ViolationCollector) {
    let components = ids(earlier, SparcPhase::Architecture, "components", "name");
    let criteria = ids(earlier, SparcPhase::Specification, "acceptanceCriteria", "id");
    for (at, change) in items(artifact, "changes") {
        if let Some(component) = change["component"].as_str().filter(|name| !components.contains(name)) {
            found.unknown(format_args!("/changes/{at}/component"), "component", component, &components);
        }
    }
    for (at, test) in items(artifact, "tests") {
        for (n, criterion) in texts(&test["covers"]).enumerate().filter(|(_, id)| !criteria.contains(id)) {
            found.unknown(
                format_args!("/tests/{at}/covers/{n}"),
                "acceptance criterion",
                criterion,
                &criteria,
            );
        }
    }
}

fn completion(artifact: &Value, earlier: &EarlierArtifacts, found: &mut ViolationCollector) {
    let criteria = ids(earlier, SparcPhase::Specification, "acceptanceCriteria", "id");
    let judged = names(artifact, "validation", "criterion", found);
    for (at, judgement) in items(artifact, "validation") {
        let Some(criterion) = judgement["criterion"].as_str() else { continue };
        if !criteria.contains(criterion) {
            found.unknown(
                format_args!("/validation/{at}/criterion"),
                "acceptance criterion",
                criterion,
                &criteria,
            );
        }
        if judgement["validated"] == false {
            found.push(format_args!("/validation/{at}/validated"), format_args!("criterion {criterion:?} is not validated: meet it, or go back to the phase where it has to be changed"));
        }
    }
    for id in criteria.iter().filter(|id| !judged.contains(**id)) {
        found.push(
            format_args!("/validation"),
            format_args!(
                "acceptance criterion {id:?} is not there: say whether it is validated, with evidence"
            ),
        );
    }
}

/// The names in a list; a duplicate is a violation.
fn names<'a>(
    artifact: &'a Value,
    list: &str,
    name: &str,
    found: &mut ViolationCollector,
) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    for (at, item) in items(artifact, list) {
        if let Some(value) = item[name].as_str()
            && !seen.insert(value)
        {
            found.push(
                format_args!("/{list}/{at}/{name}"),
                format_args!("{value:?} is there twice: give each its own {name}"),
            );
        }
    }
    seen
}

fn ids<'a>(earlier: &'a EarlierArtifacts, phase: SparcPhase, list: &str, name: &str) -> BTreeSet<&'a str> {
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

#[cfg(test)]
mod tests;
