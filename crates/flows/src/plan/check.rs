//! Validation of a plan as a whole: unique ids, known dependencies without a cycle, references only to
//! predecessors, and agents and skills that exist. All problems are reported at once.

use std::{
    collections::{HashMap, HashSet},
    fmt,
};

use nuncio_engine::{Engine, Message, Part, Profile, Role, catalog::RegisteredAgent};
use std::sync::Arc;

use super::{
    PlanOptions,
    api::PlanProblem,
    file::{Plan, PlanTarget, PlanTask, Synthesis},
    graph::PlanGraph,
    reference::{self, PlanReference},
};

/// Maximum bytes of a task's id.
const ID: usize = 64;
/// Maximum problems reported for one plan.
pub const PROBLEMS: usize = 50;

impl fmt::Display for PlanProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.task {
            Some(task) => write!(f, "task {task}, {}: {}", self.key, self.why),
            None => write!(f, "{}: {}", self.key, self.why),
        }
    }
}

/// All problems of a plan.
#[derive(Debug, Clone, Default, PartialEq, Eq, thiserror::Error)]
pub struct PlanProblems(pub Vec<PlanProblem>);

impl fmt::Display for PlanProblems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(PlanProblem::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl PlanProblems {
    pub(super) fn one(key: &str, why: impl Into<String>) -> Self {
        let mut problems = Self::default();
        problems.add(None, key, why);
        problems
    }

    pub(super) fn add(&mut self, task: Option<&str>, key: impl Into<String>, why: impl Into<String>) {
        if self.are_enough() {
            return;
        }
        let problem = PlanProblem { task: task.map(str::to_owned), key: key.into(), why: why.into() };
        if self.0.contains(&problem) {
            return;
        }
        self.0.push(problem);
        if self.0.len() == PROBLEMS {
            let why = format!("these are the first {PROBLEMS}; put them right to see what else is wrong");
            self.0.push(PlanProblem { task: None, key: "problems".into(), why });
        }
    }

    /// Whether the limit of reported problems is reached, so that checking can stop.
    pub(super) fn are_enough(&self) -> bool {
        self.0.len() > PROBLEMS
    }

    pub(super) fn into_result(self) -> Result<(), Self> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }
}

/// The agents that are available to a plan.
#[derive(Debug, Clone, Default)]
pub struct Roster {
    profiles: Vec<Arc<Profile>>,
    /// The agents themselves, where they come from an engine.
    registered: Vec<Arc<RegisteredAgent>>,
}

impl Roster {
    /// The current agents of an engine, sorted by name.
    pub fn of(engine: &Engine) -> Self {
        let registered: Vec<_> = engine.catalog().iter().collect();
        Self { profiles: registered.iter().map(|agent| Arc::clone(&agent.profile)).collect(), registered }
    }

    /// A roster of these profiles, without an engine.
    pub fn new(profiles: impl IntoIterator<Item = Profile>) -> Self {
        Self { profiles: profiles.into_iter().map(Arc::new).collect(), registered: vec![] }
    }

    /// The agents to which a request may be given: demonstrations only where the request has their name as a word.
    pub(super) fn for_request(&self, request: &str) -> Self {
        let in_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let words: HashSet<String> = request.split(|c| !in_name(c)).map(str::to_ascii_lowercase).collect();
        let is_meant =
            |profile: &Profile| !profile.demo || words.contains(&profile.name.to_ascii_lowercase());
        Self {
            profiles: self.profiles.iter().filter(|profile| is_meant(profile)).cloned().collect(),
            registered: self.registered.iter().filter(|agent| is_meant(&agent.profile)).cloned().collect(),
        }
    }

    /// The profiles of all agents.
    pub fn agents(&self) -> &[Arc<Profile>] {
        &self.profiles
    }

    /// The profile of the agent with that name.
    pub fn get(&self, name: &str) -> Option<&Arc<Profile>> {
        self.profiles.iter().find(|profile| profile.name == name)
    }

    /// The names of the agents that match a target. A skill is not that of a demonstration where another agent
    /// has it.
    pub fn matching_agents(&self, target: &PlanTarget) -> Vec<&str> {
        let fits = |profile: &&Arc<Profile>| match target {
            PlanTarget::Agent(name) => profile.name == *name,
            PlanTarget::Skill { skill, tags } => profile.skills.iter().any(|known| {
                known.id == *skill && tags.iter().all(|tag| known.tags.iter().any(|known| known == tag))
            }),
        };
        let found: Vec<&Arc<Profile>> = self.profiles.iter().filter(fits).collect();
        let only_demos = found.iter().all(|profile| profile.demo);
        let chosen = found.into_iter().filter(|profile| only_demos || !profile.demo);
        chosen.map(|profile| profile.name.as_str()).collect()
    }

    /// Checks that an agent matches the target; otherwise reports the most similar name.
    pub(super) fn known(&self, key: &str, target: &PlanTarget) -> Result<(), PlanProblems> {
        let mut problems = PlanProblems::default();
        self.check(None, key, target, &mut problems);
        problems.into_result()
    }

    fn check(&self, task: Option<&str>, key: &str, target: &PlanTarget, problems: &mut PlanProblems) {
        if !self.matching_agents(target).is_empty() {
            return;
        }
        let (what, name, all): (&str, &str, Vec<&str>) = match target {
            PlanTarget::Agent(name) => {
                ("agent", name, self.profiles.iter().map(|profile| &*profile.name).collect())
            }
            PlanTarget::Skill { skill, tags } => {
                let skills = self.profiles.iter().flat_map(|profile| &profile.skills);
                if skills.clone().any(|known| known.id == *skill) {
                    let why = format!("nobody has the skill {skill:?} with the tags {}", tags.join(", "));
                    return problems.add(task, key, why);
                }
                ("skill", skill, skills.map(|skill| &*skill.id).collect())
            }
        };
        let near = nearest(name, all.iter().copied());
        let hint = match near {
            Some(near) => format!("is {near:?} meant?"),
            None => format!("there are: {}", all.join(", ")),
        };
        problems.add(task, key, format!("there is no {what} {name:?}; {hint}"));
    }

    /// Checks that at least one matching agent accepts the task's input.
    fn check_input(&self, task: &str, target: &PlanTarget, input: &Message, problems: &mut PlanProblems) {
        let meant = self.matching_agents(target);
        let taken = self.registered.iter().filter(|agent| meant.contains(&&*agent.profile.name));
        let mut refused = None;
        for agent in taken {
            match agent.check_input(input) {
                Ok(()) => return,
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        if let Some(error) = refused {
            problems.add(Some(task), "input", error.to_string());
        }
    }
}

/// The input of a task, where it contains no references.
fn fixed_input(task: &PlanTask) -> Option<Message> {
    let is_fixed = |text: &str| {
        reference::read(text).is_ok_and(|pieces| pieces.into_iter().all(|piece| piece.reference().is_none()))
    };
    if !texts(task).iter().all(|(_, text)| is_fixed(text)) {
        return None;
    }
    let text = task.input.text.clone().map(Part::text);
    let data = task.input.data.clone().map(Part::data);
    let parts: Vec<Part> = text.into_iter().chain(data).collect();
    (!parts.is_empty()).then(|| Message::of("", Role::User, parts))
}

impl Plan {
    /// Checks that every target of the plan matches an agent.
    pub fn check(&self, roster: &Roster) -> Result<(), PlanProblems> {
        let mut problems = PlanProblems::default();
        self.check_into(roster, &mut problems);
        problems.into_result()
    }

    pub(super) fn check_into(&self, roster: &Roster, problems: &mut PlanProblems) {
        for task in &self.tasks {
            let id = Some(task.id.as_str());
            let key = if matches!(task.by, PlanTarget::Agent(_)) { "agent" } else { "skill" };
            roster.check(id, key, &task.by, problems);
            for (n, target) in task.fallbacks.iter().enumerate() {
                roster.check(id, &format!("fallbacks[{n}]"), target, problems);
            }
            if let Some(input) = fixed_input(task) {
                for target in std::iter::once(&task.by).chain(&task.fallbacks) {
                    roster.check_input(&task.id, target, &input, problems);
                }
            }
        }
        if let Synthesis::By(target, _) = &self.synthesis {
            roster.check(None, "synthesis", target, problems);
        }
    }
}

/// Checks everything that does not depend on the available agents.
pub(super) fn structure(plan: &Plan, options: &PlanOptions, problems: &mut PlanProblems) {
    let mut seen = HashMap::new();
    for (n, task) in plan.tasks.iter().enumerate() {
        let id = task.id.as_str();
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if id.is_empty() || id.len() > ID || !id.chars().all(legal) {
            problems.add(
                Some(id),
                "id",
                format!("an id is 1 to {ID} letters, digits, '-' and '_', not {id:?}"),
            );
        }
        if let Some(before) = seen.insert(id, n) {
            problems.add(
                Some(id),
                "id",
                format!("there are two tasks of this id, the {} and the {}", nth(before), nth(n)),
            );
        }
        if task.fallbacks.len() > options.fallbacks_per_task {
            let most = options.fallbacks_per_task;
            problems.add(Some(id), "fallbacks_per_task", format!("a task has at most {most} fallbacks"));
        }
        let size = task.input.text.as_ref().map_or(0, String::len)
            + task.input.data.as_ref().map_or(0, nuncio_engine::content::json_size);
        if size > options.input_bytes {
            problems.add(
                Some(id),
                "input_bytes",
                format!("an input has at most {} bytes, not {size}", options.input_bytes),
            );
        }
    }
    let ids = || plan.tasks.iter().map(|task| task.id.as_str());
    for task in &plan.tasks {
        if task.needs.len() > options.tasks_per_plan {
            let (most, many) = (options.tasks_per_plan, task.needs.len());
            problems.add(
                Some(&task.id),
                "tasks_per_plan",
                format!("there are at most {most} tasks to need, not {many}"),
            );
            continue;
        }
        for (n, need) in task.needs.iter().enumerate() {
            if problems.are_enough() {
                return;
            }
            let key = format!("needs[{n}]");
            if *need == task.id {
                problems.add(Some(&task.id), key, "a task cannot need itself");
            } else if !seen.contains_key(need.as_str()) {
                let hint = hint(need, ids());
                problems.add(Some(&task.id), key, format!("there is no task {need:?}{hint}"));
            }
        }
    }
    let graph = PlanGraph::of(plan);
    if let Some(circle) = graph.find_cycle() {
        let path: Vec<&str> = circle.iter().map(|n| plan.tasks[*n].id.as_str()).collect();
        problems.add(Some(path[0]), "needs", format!("these need each other: {}", path.join(" -> ")));
    }
    let before = graph.before();
    for (n, task) in plan.tasks.iter().enumerate() {
        for (key, text) in texts(task) {
            for reference in read(&text, Some(&task.id), &key, problems) {
                if problems.are_enough() {
                    return;
                }
                let Some(id) = reference.task() else { continue };
                match seen.get(id).copied() {
                    None => {
                        let hint = hint(id, ids());
                        problems.add(
                            Some(&task.id),
                            &key,
                            format!("{reference}: there is no task {id:?}{hint}"),
                        );
                    }
                    Some(other) if !before.is_before(other, n) => problems.add(
                        Some(&task.id),
                        &key,
                        format!("{reference}: {id:?} is not done before this task; add it to needs"),
                    ),
                    Some(_) => {}
                }
            }
        }
    }
    let words = match &plan.synthesis {
        Synthesis::Template(template) => Some(("synthesis.template", template)),
        Synthesis::By(_, Some(prompt)) | Synthesis::Model(Some(prompt)) => Some(("synthesis.prompt", prompt)),
        _ => None,
    };
    if let Some((key, words)) = words {
        for reference in read(words, None, key, problems) {
            if let Some(id) = reference.task().filter(|id| !seen.contains_key(id)) {
                let hint = hint(id, ids());
                problems.add(None, key, format!("{reference}: there is no task {id:?}{hint}"));
            }
        }
    }
}

/// Every text of a task that may contain references, with its key.
pub(super) fn texts(task: &PlanTask) -> Vec<(String, String)> {
    let mut texts = vec![];
    texts.extend(task.input.text.iter().map(|text| ("input.text".to_owned(), text.clone())));
    if let Some(data) = &task.input.data {
        collect("input.data", data, &mut texts);
    }
    texts
}

fn collect(at: &str, value: &serde_json::Value, texts: &mut Vec<(String, String)>) {
    match value {
        serde_json::Value::String(text) => texts.push((at.to_owned(), text.clone())),
        serde_json::Value::Array(items) => {
            for (n, item) in items.iter().enumerate() {
                collect(&format!("{at}[{n}]"), item, texts);
            }
        }
        serde_json::Value::Object(members) => {
            for (name, item) in members {
                collect(&format!("{at}.{name}"), item, texts);
            }
        }
        _ => {}
    }
}

fn read(text: &str, task: Option<&str>, key: &str, problems: &mut PlanProblems) -> Vec<PlanReference> {
    match reference::read(text) {
        Ok(pieces) => pieces.into_iter().filter_map(reference::TemplatePiece::reference).collect(),
        Err(why) => {
            problems.add(task, key, why);
            vec![]
        }
    }
}

fn hint<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    nearest(name, known).map(|near| format!("; is {near:?} meant?")).unwrap_or_default()
}

fn nth(n: usize) -> String {
    match n + 1 {
        1 => "1st".into(),
        2 => "2nd".into(),
        3 => "3rd".into(),
        n => format!("{n}th"),
    }
}

/// The known name that is most similar to `name`, if one is similar enough.
pub(super) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // A longer name is not a typing error, and would be slow to compare.
    if name.len() > ID {
        return None;
    }
    let lower = name.to_lowercase();
    let by_distance =
        known.filter(|known| known.len() <= ID).map(|known| (distance(&lower, &known.to_lowercase()), known));
    let (distance, nearest) = by_distance.min()?;
    let contained = nearest.len() >= 3 && (lower.contains(nearest) || nearest.contains(&lower));
    (distance <= 2.max(name.chars().count() / 3) || (contained && lower.len() >= 3)).then_some(nearest)
}

/// The edit distance: insertions, deletions and substitutions of characters.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut before = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let changed = before + usize::from(from != *to);
            before = row[j + 1];
            row[j + 1] = changed.min(before + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
