//! The planner: makes a plan from a request. The request is divided into clauses (`clause.rs`), and each is
//! assigned to the agent whose skills, tags, examples and description share most of its words
//! (`skill_match.rs`). A part that matches no agent is reported, not guessed. An agent that is a demonstration is
//! given nothing unless the request names it: its results look like real work, and are none.
//!
//! A model or an agent may make the plan instead; this module then writes the prompt, and extracts the plan
//! file from the answer.

mod clause;
mod skill_match;

use std::{collections::HashSet, fmt::Write as _};

use serde_json::Value;

use super::{
    PlanOptions,
    check::Roster,
    file::{Plan, PlanBudget, PlanRetry, PlanTarget, PlanTask, PlanTaskInput, Synthesis},
};
use clause::{RequestClause, clauses};
use skill_match::SkillMatcher;

/// Further candidates that are listed beside the best match.
const OTHERS: usize = 3;
/// Maximum characters of a plan name that is derived from a request.
const NAME: usize = 60;

/// A generated plan, and the reasons for its assignments.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanDraft {
    /// The generated plan, ready to run.
    pub plan: Plan,
    /// For each task, the agent that matches its part of the request.
    pub matches: Vec<PlanMatch>,
}

/// The assignment of a part of a request to an agent.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanMatch {
    /// The id of the task made from the part.
    pub task: String,
    /// The part of the request, as written.
    pub part: String,
    /// The agent with the best match.
    pub agent: String,
    /// The id of the skill that matched.
    pub skill: String,
    /// The match score, from 0 to 1.
    pub score: f64,
    /// The words that the part and the skill share.
    pub words: Vec<String>,
    /// The next best agents, with their scores.
    pub others: Vec<(String, f64)>,
}

/// Why no plan could be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanMakeError {
    /// The request is empty.
    #[error("the request is empty: say what is to be done")]
    Empty,
    /// The request has too many parts: their number, and the limit.
    #[error("tasks_per_plan: the request has {0} parts, and a plan has at most {1} tasks")]
    TooMany(usize, usize),
    /// Some parts match no agent.
    #[error("{}", nobody(.0))]
    Nobody(Vec<UnmatchedPart>),
}

/// A part of a request that matches no agent.
#[derive(Debug, Clone, PartialEq)]
pub struct UnmatchedPart {
    /// The part of the request, as written.
    pub part: String,
    /// The most similar agent, with its score, which is too low.
    pub nearest: Option<(String, f64)>,
    /// The demonstration that would match, and is not named in the request.
    pub demo: Option<String>,
}

fn nobody(parts: &[UnmatchedPart]) -> String {
    let mut out = String::from("nobody here fits these parts of the request:");
    for part in parts {
        let near = match (&part.demo, &part.nearest) {
            (Some(demo), _) => {
                format!("{demo} would fit, and is a demonstration: name it in the request if it is meant")
            }
            (None, Some((agent, score))) => format!("nearest is {agent}, {score:.2}"),
            (None, None) => "no agent has any of its words".to_owned(),
        };
        let _ = write!(out, "\n- {:?} ({near})", part.part);
    }
    out.push_str(
        "\nrules only compare words: say it in words of the agents' cards (agents_list names them), write the plan by \
         hand, or let a model make it, which a request in another language than the cards' needs (by: the name of an \
         agent with a model)",
    );
    out
}

/// Makes a plan by rules, without a model.
pub fn make(request: &str, roster: &Roster, options: &PlanOptions) -> Result<PlanDraft, PlanMakeError> {
    let (everybody, roster) = (roster, &roster.for_request(request));
    let fits = SkillMatcher::new(roster);
    let clauses = clauses(request, |part| fits.best(part).is_some_and(|best| best.score >= options.fit));
    if clauses.is_empty() {
        return Err(PlanMakeError::Empty);
    }
    if clauses.len() > options.tasks_per_plan {
        return Err(PlanMakeError::TooMany(clauses.len(), options.tasks_per_plan));
    }
    let (mut tasks, mut matches, mut unfit) = (vec![], vec![], vec![]);
    let mut ids = HashSet::new();
    let mut named: Vec<String> = vec![];
    for clause in &clauses {
        let mut all = fits.all(&clause.text).into_iter();
        let best = match all.next() {
            Some(best) if best.score >= options.fit => best,
            other => {
                let nearest = other.filter(|best| best.score > 0.0).map(|best| (best.agent, best.score));
                unfit.push(UnmatchedPart { part: clause.text.clone(), nearest, demo: None });
                named.push(String::new());
                continue;
            }
        };
        let id = id(&clause.text, &mut ids);
        named.push(id.clone());
        let needs: Vec<String> =
            clause.after.iter().map(|n| named[*n].clone()).filter(|need| !need.is_empty()).collect();
        tasks.push(task(&id, clause, needs, &best, roster));
        let others =
            all.filter(|other| other.score > 0.0).take(OTHERS).map(|other| (other.agent, other.score));
        matches.push(PlanMatch {
            task: id,
            part: clause.text.clone(),
            others: others.collect(),
            agent: best.agent,
            skill: best.skill,
            score: best.score,
            words: best.words,
        });
    }
    if !unfit.is_empty() {
        let fits = SkillMatcher::new(everybody);
        for part in &mut unfit {
            let best = fits.best(&part.part).filter(|best| best.score >= options.fit).map(|best| best.agent);
            part.demo = best.filter(|agent| everybody.get(agent).is_some_and(|profile| profile.demo));
        }
        return Err(PlanMakeError::Nobody(unfit));
    }
    let plan = Plan {
        name: name(request),
        request: Some(request.trim().to_owned()),
        tasks,
        budget: PlanBudget::default(),
        synthesis: Synthesis::Parts,
    };
    Ok(PlanDraft { plan, matches })
}

fn task(
    id: &str,
    clause: &RequestClause,
    needs: Vec<String>,
    best: &skill_match::SkillMatch,
    roster: &Roster,
) -> PlanTask {
    // Where several agents have the skill, any of them will do.
    let by_skill = PlanTarget::Skill { skill: best.skill.clone(), tags: vec![] };
    let alike = roster.matching_agents(&by_skill);
    let by = match alike.len() > 1 && alike.contains(&best.agent.as_str()) {
        true => by_skill,
        false => PlanTarget::Agent(best.agent.clone()),
    };
    let mut text = clause.text.clone();
    for need in &needs {
        let _ = write!(text, "\n\nWhat came of {need}:\n{{{{ tasks.{need}.text }}}}");
    }
    PlanTask {
        id: id.to_owned(),
        needs,
        by,
        input: PlanTaskInput { text: Some(text), data: None },
        retry: PlanRetry::default(),
        timeout: None,
        fallbacks: vec![],
        optional: false,
    }
}

/// A short id, made from the first significant words of a clause.
fn id(clause: &str, known: &mut HashSet<String>) -> String {
    let words: Vec<String> =
        skill_match::plain_words(clause).into_iter().filter(|word| word.is_ascii()).take(3).collect();
    let mut base: String = words.join("-").chars().take(40).collect();
    if base.is_empty() {
        base = "part".into();
    }
    let numbered = (2..).map(|n| format!("{base}-{n}"));
    let id = [base.clone()].into_iter().chain(numbered).find(|id| !known.contains(id)).unwrap_or(base);
    known.insert(id.clone());
    id
}

fn name(request: &str) -> String {
    let line = request.trim().lines().next().unwrap_or_default().trim();
    if line.chars().count() <= NAME {
        return line.to_owned();
    }
    line.chars().take(NAME - 1).chain(['…']).collect()
}

impl PlanDraft {
    /// The plan as a TOML file, with comments that explain the assignments.
    pub fn to_toml(&self) -> String {
        let mut head = self.plan.clone();
        head.tasks.clear();
        let mut value = head.to_value();
        if let Value::Object(members) = &mut value {
            members.remove("tasks");
        }
        let mut out = toml::to_string(&value).unwrap_or_default();
        for (task, found) in self.plan.tasks.iter().zip(&self.matches) {
            let others: Vec<String> =
                found.others.iter().map(|(agent, score)| format!("{agent} {score:.2}")).collect();
            let others = if others.is_empty() { "none".to_owned() } else { others.join(", ") };
            let _ = write!(
                out,
                "\n# {}\n# {} fits by {:.2} (skill {}: {}); next: {others}\n[[tasks]]\n",
                found.part.replace(['\n', '\r'], " "),
                found.agent,
                found.score,
                found.skill,
                found.words.join(", "),
            );
            out.push_str(&toml::to_string(&task.to_value()).unwrap_or_default());
        }
        out
    }
}

/// The prompt for a model or an agent that makes a plan.
pub(super) fn prompt(request: &str, roster: &Roster) -> String {
    let mut out = String::from(
        "Make a plan for the request below: cut it into tasks, and give each to one of the agents listed. Answer with one \
         JSON object and nothing else:\n\
         {\"name\": TEXT, \"request\": TEXT, \"tasks\": [{\"id\": SHORT_ID, \"needs\": [IDS], \"agent\": NAME, \"input\": \
         TEXT}], \"synthesis\": {\"template\": TEXT}}\n\
         Rules: ids have letters, digits, - and _; needs name tasks whose results are used; in input and template, \
         {{ request }} stands for the request and {{ tasks.ID.text }} for the result of a task that is needed; tasks that \
         do not need each other run at the same time; synthesis may be left out.\n\nAgents:\n",
    );
    let roster = roster.for_request(request);
    for profile in roster.agents().iter().filter(|profile| profile.name != super::AGENT) {
        let _ = writeln!(out, "- {}: {}", profile.name, profile.description);
        for skill in &profile.skills {
            let _ = writeln!(out, "  skill {} ({}): {}", skill.id, skill.tags.join(", "), skill.description);
        }
    }
    let _ = write!(out, "\nRequest:\n{request}\n");
    out
}

/// The prompt for a second attempt, with the problems of the first.
pub(super) fn repair(prompt: &str, said: &str, wrong: &str) -> String {
    format!(
        "{prompt}\nYou answered:\n{said}\n\nThat is not a valid plan:\n{wrong}\n\nAnswer with the whole plan, corrected, \
         as one JSON object."
    )
}

/// The plan file in an answer: the fenced block, or from the first brace to the last, or the whole text.
pub(super) fn file_in(said: &str) -> &str {
    if let Some((_, after)) = said.split_once("```")
        && let Some((fenced, _)) = after.split_once("```")
    {
        return match fenced.split_once('\n') {
            Some((language, file)) if !language.contains(['{', '=', '[']) => file,
            _ => fenced,
        };
    }
    if said.contains("[[tasks]]") {
        return said;
    }
    match (said.find('{'), said.rfind('}')) {
        (Some(from), Some(to)) if from < to => &said[from..=to],
        _ => said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_found_in_what_a_model_says() {
        let check = |said: &str, file: &str| assert_eq!(file_in(said).trim(), file);
        check("{\"tasks\": []}", "{\"tasks\": []}");
        check("Sure! Here it is:\n{\"a\": {}}\nHave fun", "{\"a\": {}}");
        check("```json\n{\"a\": 1}\n```", "{\"a\": 1}");
        check("As TOML:\n```\n[[tasks]]\nid = \"a\"\n```\nbye", "[[tasks]]\nid = \"a\"");
        check("[[tasks]]\ninput = \"{}\"", "[[tasks]]\ninput = \"{}\"");
        check("no plan", "no plan");
    }
}
