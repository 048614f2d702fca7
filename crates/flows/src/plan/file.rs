//! The plan file: its format and its parser. TOML or JSON, with the same keys in both.
//!
//! The parser is written by hand and not derived, because people write plans: it reports all problems at once,
//! each with its task and key. Validation of the plan as a whole is in `check.rs`.

use std::time::Duration;

use nuncio_engine::duration;
use serde_json::{Map, Value, json};

use super::{
    PlanOptions,
    check::{PlanProblems, Roster},
};

/// A parsed plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The name of the plan, chosen by its author.
    pub name: String,
    /// The request that the plan was made for.
    pub request: Option<String>,
    /// The subtasks, in the order of the file.
    pub tasks: Vec<PlanTask>,
    /// The limits on retries and time.
    pub budget: PlanBudget,
    /// How the results of the subtasks are joined.
    pub synthesis: Synthesis,
}

/// One subtask of a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanTask {
    /// The id, unique within the plan.
    pub id: String,
    /// The ids of the subtasks that must be done first.
    pub needs: Vec<String>,
    /// The agent or skill that does it.
    pub by: PlanTarget,
    /// The input, with unresolved references.
    pub input: PlanTaskInput,
    /// The retry policy of the subtask.
    pub retry: PlanRetry,
    /// The time limit of one attempt.
    pub timeout: Option<Duration>,
    /// The agents or skills to use when the first target fails, in this order.
    pub fallbacks: Vec<PlanTarget>,
    /// Whether the plan continues if this subtask fails.
    pub optional: bool,
}

/// The agent or skill that a subtask is assigned to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanTarget {
    /// The agent with that name.
    Agent(String),
    /// An agent that has this skill, and all of these tags.
    Skill {
        /// The skill's id.
        skill: String,
        /// Tags that the skill must have.
        tags: Vec<String>,
    },
}

impl std::fmt::Display for PlanTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Agent(name) => f.write_str(name),
            Self::Skill { skill, tags } if tags.is_empty() => write!(f, "skill {skill}"),
            Self::Skill { skill, tags } => write!(f, "skill {skill} ({})", tags.join(", ")),
        }
    }
}

/// The input of a subtask: text, structured data, or both. References in it are replaced by earlier results.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PlanTaskInput {
    /// The text part of the message.
    pub text: Option<String>,
    /// The structured part of the message.
    pub data: Option<Value>,
}

/// The retry policy of a subtask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanRetry {
    /// Attempts with one agent, the first one included.
    pub attempts: u32,
    /// The wait before the second attempt; it doubles before each further one.
    pub backoff: Duration,
}

impl Default for PlanRetry {
    fn default() -> Self {
        Self { attempts: 1, backoff: Duration::from_secs(1) }
    }
}

/// The limits on a plan's retries and time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlanBudget {
    /// Retries of all subtasks together.
    pub retries: Option<u32>,
    /// The time from the start of the plan to its end.
    pub time: Option<Duration>,
}

/// How the results of the subtasks are joined.
#[derive(Debug, Clone, PartialEq)]
pub enum Synthesis {
    /// Every result under its own heading, with the agent that produced it.
    Parts,
    /// By a template with references.
    Template(String),
    /// By an agent, which gets all results and these instructions.
    By(PlanTarget, Option<String>),
    /// By the caller's model, or the configured one, with these instructions.
    Model(Option<String>),
}

/// The state of the parser: the current task, and the problems so far.
pub(super) struct PlanReader<'a> {
    pub(super) problems: &'a mut PlanProblems,
    pub(super) task: Option<String>,
}

impl PlanReader<'_> {
    pub(super) fn wrong(&mut self, key: impl Into<String>, why: impl Into<String>) {
        self.problems.add(self.task.as_deref(), key, why);
    }

    /// Reports members that are unknown here.
    fn only(&mut self, at: &str, members: &Map<String, Value>, known: &[&str]) {
        for name in members.keys().filter(|name| !known.contains(&name.as_str())) {
            let near = super::check::nearest(name, known.iter().copied());
            let near = near.map(|near| format!(" (is {near:?} meant?)")).unwrap_or_default();
            self.wrong(
                format!("{at}{name}"),
                format!("there is no such key{near}; there are: {}", known.join(", ")),
            );
        }
    }

    fn text(&mut self, key: &str, value: Option<&Value>) -> Option<String> {
        match value? {
            Value::String(text) => Some(text.clone()),
            other => {
                self.wrong(key, format!("a text is wanted, not {}", kind(other)));
                None
            }
        }
    }

    fn texts(&mut self, key: &str, value: Option<&Value>) -> Vec<String> {
        match value {
            None => vec![],
            Some(Value::Array(items)) => items
                .iter()
                .enumerate()
                .filter_map(|(n, item)| self.text(&format!("{key}[{n}]"), Some(item)))
                .collect(),
            Some(other) => {
                self.wrong(key, format!("a list of texts is wanted, not {}", kind(other)));
                vec![]
            }
        }
    }

    fn flag(&mut self, key: &str, value: Option<&Value>) -> bool {
        match value {
            None => false,
            Some(Value::Bool(flag)) => *flag,
            Some(other) => {
                self.wrong(key, format!("true or false is wanted, not {}", kind(other)));
                false
            }
        }
    }

    fn count(&mut self, key: &str, value: Option<&Value>, least: u32, most: u32) -> Option<u32> {
        let value = value?;
        let count = value.as_u64().and_then(|count| u32::try_from(count).ok());
        match count.filter(|count| (least..=most).contains(count)) {
            Some(count) => Some(count),
            None => {
                self.wrong(key, format!("a whole number from {least} to {most} is wanted, not {value}"));
                None
            }
        }
    }

    fn time(&mut self, key: &str, value: Option<&Value>) -> Option<Duration> {
        let read = match value? {
            Value::String(text) => duration::parse(text).ok(),
            Value::Number(seconds) => {
                seconds.as_f64().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            }
            _ => None,
        };
        match read.filter(|time| *time <= LONGEST && !time.is_zero()) {
            Some(time) => Some(time),
            None => {
                let value = value.unwrap_or(&Value::Null);
                self.wrong(
                    key,
                    format!("a time up to 365d is wanted, such as \"30s\" or \"5m\", not {value}"),
                );
                None
            }
        }
    }

    fn object<'v>(&mut self, key: &str, value: &'v Value) -> Option<&'v Map<String, Value>> {
        let object = value.as_object();
        if object.is_none() {
            self.wrong(key, format!("a table is wanted, not {}", kind(value)));
        }
        object
    }

    fn target(&mut self, key: &str, members: &Map<String, Value>) -> Option<PlanTarget> {
        let prefix = if key.is_empty() { String::new() } else { format!("{key}.") };
        let agent = self.text(&format!("{prefix}agent"), members.get("agent"));
        let skill = self.text(&format!("{prefix}skill"), members.get("skill"));
        let tags = self.texts(&format!("{prefix}tags"), members.get("tags"));
        match (agent, skill) {
            (Some(_), Some(_)) => {
                self.wrong(format!("{prefix}skill"), "there is an agent already: give one or the other");
                None
            }
            (Some(_), None) if !tags.is_empty() => {
                self.wrong(
                    format!("{prefix}tags"),
                    "tags narrow a skill; an agent is named by its name alone",
                );
                None
            }
            (Some(agent), None) => Some(PlanTarget::Agent(agent)),
            (None, Some(skill)) => Some(PlanTarget::Skill { skill, tags }),
            (None, None) => {
                if !members.contains_key("agent") && !members.contains_key("skill") {
                    self.wrong(format!("{prefix}agent"), "who does it? give an agent or a skill");
                }
                None
            }
        }
    }

    fn retry(&mut self, value: Option<&Value>, default: PlanRetry, options: &PlanOptions) -> PlanRetry {
        let Some(members) = value.and_then(|value| self.object("retry", value)) else { return default };
        self.only("retry.", members, &["attempts", "backoff"]);
        let attempts =
            self.count("retry.attempts", members.get("attempts"), 1, options.attempts_per_task.max(1));
        let backoff = self.time("retry.backoff", members.get("backoff"));
        PlanRetry {
            attempts: attempts.unwrap_or(default.attempts),
            backoff: backoff.unwrap_or(default.backoff).min(options.longest_backoff),
        }
    }

    fn input(&mut self, value: Option<&Value>) -> PlanTaskInput {
        match value {
            None => PlanTaskInput::default(),
            Some(Value::String(text)) => PlanTaskInput { text: Some(text.clone()), data: None },
            Some(value) => {
                let Some(members) = self.object("input", value) else { return PlanTaskInput::default() };
                self.only("input.", members, &["text", "data"]);
                PlanTaskInput {
                    text: self.text("input.text", members.get("text")),
                    data: members.get("data").cloned(),
                }
            }
        }
    }

    fn fallbacks(&mut self, value: Option<&Value>) -> Vec<PlanTarget> {
        let items = match value {
            None => return vec![],
            Some(Value::Array(items)) => items,
            Some(other) => {
                self.wrong("fallbacks", format!("a list is wanted, not {}", kind(other)));
                return vec![];
            }
        };
        let mut targets = vec![];
        for (n, item) in items.iter().enumerate() {
            let key = format!("fallbacks[{n}]");
            match item {
                Value::String(agent) => targets.push(PlanTarget::Agent(agent.clone())),
                item => {
                    let Some(members) = self.object(&key, item) else { continue };
                    self.only(&format!("{key}."), members, &["agent", "skill", "tags"]);
                    targets.extend(self.target(&key, members));
                }
            }
        }
        targets
    }

    fn planned(
        &mut self,
        n: usize,
        value: &Value,
        retry: PlanRetry,
        options: &PlanOptions,
    ) -> Option<PlanTask> {
        self.task = Some(format!("#{}", n + 1));
        let members = self.object("tasks", value)?;
        let id = self.text("id", members.get("id"));
        if !members.contains_key("id") {
            self.wrong("id", "every task needs an id");
        }
        if let Some(id) = &id {
            self.task = Some(id.clone());
        }
        self.only(
            "",
            members,
            &["id", "needs", "agent", "skill", "tags", "input", "retry", "timeout", "fallbacks", "optional"],
        );
        let by = self.target("", members);
        let planned = PlanTask {
            id: id.clone().unwrap_or_default(),
            needs: self.texts("needs", members.get("needs")),
            by: by.clone().unwrap_or(PlanTarget::Agent(String::new())),
            input: self.input(members.get("input")),
            retry: self.retry(members.get("retry"), retry, options),
            timeout: self.time("timeout", members.get("timeout")),
            fallbacks: self.fallbacks(members.get("fallbacks")),
            optional: self.flag("optional", members.get("optional")),
        };
        self.task = None;
        id.and(by).map(|_| planned)
    }

    fn synthesis(&mut self, value: Option<&Value>) -> Synthesis {
        let members = match value {
            None => return Synthesis::Parts,
            Some(Value::String(template)) => return Synthesis::Template(template.clone()),
            Some(value) => match self.object("synthesis", value) {
                Some(members) => members,
                None => return Synthesis::Parts,
            },
        };
        self.only("synthesis.", members, &["template", "agent", "skill", "tags", "model", "prompt"]);
        let template = self.text("synthesis.template", members.get("template"));
        let prompt = self.text("synthesis.prompt", members.get("prompt"));
        let model = self.flag("synthesis.model", members.get("model"));
        let by = members.contains_key("agent") || members.contains_key("skill");
        if [template.is_some(), by, model].into_iter().filter(|given| *given).count() > 1 {
            self.wrong("synthesis", "give one of: template, agent, skill, model");
        }
        if template.is_some() && prompt.is_some() {
            self.wrong("synthesis.prompt", "a template has no prompt");
        }
        match template {
            Some(template) => Synthesis::Template(template),
            None if by => match self.target("synthesis", members) {
                Some(target) => Synthesis::By(target, prompt),
                None => Synthesis::Parts,
            },
            None if model => Synthesis::Model(prompt),
            None => Synthesis::Parts,
        }
    }
}

/// The longest duration that a plan can contain.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

impl Plan {
    /// Parses a file: JSON if it begins like JSON, else TOML.
    pub fn parse(text: &str, options: &PlanOptions) -> Result<Self, PlanProblems> {
        Self::parse_for(text, options, None)
    }

    /// Parses a file and checks that every target matches an agent; reports all problems at once.
    pub fn parse_for(
        text: &str,
        options: &PlanOptions,
        roster: Option<&Roster>,
    ) -> Result<Self, PlanProblems> {
        if text.len() > options.plan_bytes {
            return Err(PlanProblems::one(
                "plan_bytes",
                format!("a plan has at most {} bytes, not {}", options.plan_bytes, text.len()),
            ));
        }
        let value: Result<Value, String> = match text.trim_start().starts_with('{') {
            true => serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}")),
            false => toml::from_str(text).map_err(|error| format!("it is not TOML: {error}")),
        };
        Self::read_for(&value.map_err(|why| PlanProblems::one("file", why.trim_end()))?, options, roster)
    }

    /// Parses a plan that is already a JSON value.
    pub fn read(value: &Value, options: &PlanOptions) -> Result<Self, PlanProblems> {
        Self::read_for(value, options, None)
    }

    /// Parses a JSON value and checks that every target matches an agent; reports all problems at once.
    pub fn read_for(
        value: &Value,
        options: &PlanOptions,
        roster: Option<&Roster>,
    ) -> Result<Self, PlanProblems> {
        let mut problems = PlanProblems::default();
        let size = nuncio_engine::content::json_size(value);
        if size > options.plan_bytes {
            let most = options.plan_bytes;
            return Err(PlanProblems::one(
                "plan_bytes",
                format!("a plan has at most {most} bytes, not {size}"),
            ));
        }
        let mut reading = PlanReader { problems: &mut problems, task: None };
        let Some(members) = reading.object("plan", value) else { return Err(problems) };
        reading.only("", members, &["name", "request", "tasks", "retry", "budget", "synthesis"]);
        let name = reading.text("name", members.get("name")).unwrap_or_else(|| "plan".into());
        let request = reading.text("request", members.get("request"));
        let retry = reading.retry(members.get("retry"), PlanRetry::default(), options);
        let mut tasks = vec![];
        match members.get("tasks") {
            None => reading.wrong("tasks", "a plan has at least one task"),
            Some(Value::Array(items)) if items.len() > options.tasks_per_plan => reading.wrong(
                "tasks_per_plan",
                format!("a plan has at most {} tasks, not {}", options.tasks_per_plan, items.len()),
            ),
            Some(Value::Array(items)) => {
                let read = items.iter().enumerate();
                tasks = read.filter_map(|(n, item)| reading.planned(n, item, retry, options)).collect();
                if items.is_empty() {
                    reading.wrong("tasks", "a plan has at least one task");
                }
            }
            Some(other) => reading.wrong("tasks", format!("a list is wanted, not {}", kind(other))),
        }
        let mut budget = PlanBudget::default();
        if let Some(members) = members.get("budget").and_then(|value| reading.object("budget", value)) {
            reading.only("budget.", members, &["retries", "time"]);
            budget.retries = reading.count("budget.retries", members.get("retries"), 0, u32::MAX);
            budget.time = reading.time("budget.time", members.get("time"));
        }
        let synthesis = reading.synthesis(members.get("synthesis"));
        let plan = Self { name, request, tasks, budget, synthesis };
        super::check::structure(&plan, options, &mut problems);
        if let Some(roster) = roster {
            plan.check_into(roster, &mut problems);
        }
        problems.into_result().map(|()| plan)
    }

    /// The plan as a JSON value that parses back to the same plan.
    pub fn to_value(&self) -> Value {
        let mut value = json!({ "name": self.name });
        if let Some(request) = &self.request {
            value["request"] = json!(request);
        }
        let mut budget = Map::new();
        budget.extend(self.budget.retries.map(|retries| ("retries".into(), json!(retries))));
        budget.extend(self.budget.time.map(|time| ("time".into(), json!(duration::format(time)))));
        if !budget.is_empty() {
            value["budget"] = budget.into();
        }
        let mut synthesis = match &self.synthesis {
            Synthesis::Parts => Value::Null,
            Synthesis::Template(template) => json!({ "template": template }),
            Synthesis::By(target, _) => target.to_value(),
            Synthesis::Model(_) => json!({ "model": true }),
        };
        if let Synthesis::By(_, Some(prompt)) | Synthesis::Model(Some(prompt)) = &self.synthesis {
            synthesis["prompt"] = json!(prompt);
        }
        if !synthesis.is_null() {
            value["synthesis"] = synthesis;
        }
        value["tasks"] = self.tasks.iter().map(PlanTask::to_value).collect();
        value
    }

    /// The plan as a TOML file.
    pub fn to_toml(&self) -> String {
        // Strings, numbers, booleans, lists and tables all exist in TOML; only a null inside `data` does not.
        toml::to_string(&without_null(self.to_value())).unwrap_or_else(|_| format!("{:#}", self.to_value()))
    }

    /// The task with that id.
    pub fn task(&self, id: &str) -> Option<&PlanTask> {
        self.tasks.iter().find(|task| task.id == id)
    }
}

impl PlanTask {
    pub(super) fn to_value(&self) -> Value {
        let mut value = json!({ "id": self.id });
        if !self.needs.is_empty() {
            value["needs"] = json!(self.needs);
        }
        if let (Value::Object(value), Value::Object(by)) = (&mut value, self.by.to_value()) {
            value.extend(by);
        }
        match (&self.input.text, &self.input.data) {
            (Some(text), None) => value["input"] = json!(text),
            (None, Some(data)) => value["input"] = json!({ "data": data }),
            (Some(text), Some(data)) => value["input"] = json!({ "text": text, "data": data }),
            (None, None) => {}
        }
        if self.retry != PlanRetry::default() {
            value["retry"] =
                json!({ "attempts": self.retry.attempts, "backoff": duration::format(self.retry.backoff) });
        }
        if let Some(timeout) = self.timeout {
            value["timeout"] = json!(duration::format(timeout));
        }
        if !self.fallbacks.is_empty() {
            value["fallbacks"] = self.fallbacks.iter().map(PlanTarget::to_value).collect();
        }
        if self.optional {
            value["optional"] = json!(true);
        }
        value
    }
}

impl PlanTarget {
    fn to_value(&self) -> Value {
        match self {
            Self::Agent(agent) => json!({ "agent": agent }),
            Self::Skill { skill, tags } if tags.is_empty() => json!({ "skill": skill }),
            Self::Skill { skill, tags } => json!({ "skill": skill, "tags": tags }),
        }
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a table",
    }
}

fn without_null(value: Value) -> Value {
    match value {
        Value::Object(members) => members
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name, without_null(value)))
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(items) => {
            items.into_iter().filter(|item| !item.is_null()).map(without_null).collect::<Vec<_>>().into()
        }
        other => other,
    }
}
