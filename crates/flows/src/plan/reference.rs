//! References in a plan: `{{ tasks.research.text }}` in a text stands for the result of the subtask `research`.
//!
//! The syntax is small and has no expressions: `request`, `plan.name`, and of a task `text`, `data` with a path
//! below it, `agent`, `state` and `id`. A text that consists of a single reference to data becomes that data itself.

use std::fmt;

use serde_json::{Map, Value};

/// The longest path below `data`.
const DEPTH: usize = 16;

/// A parsed reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PlanReference {
    /// The request that the plan was made for.
    Request,
    /// The plan's name.
    Name,
    /// A property of a task.
    Task {
        /// The task's id in the plan.
        id: String,
        what: TaskProperty,
    },
}

/// A property of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TaskProperty {
    /// The text of its result.
    Text,
    /// Its structured result, or the value at a path in it.
    Data(Vec<String>),
    /// The agent that did it.
    Agent,
    /// Its final state.
    State,
    /// The id of its task on the server.
    Id,
}

impl PlanReference {
    /// The task that the reference names.
    pub(crate) fn task(&self) -> Option<&str> {
        match self {
            Self::Task { id, .. } => Some(id),
            _ => None,
        }
    }

    fn read(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{{{{ {text} }}}} is no reference; there are: request, plan.name, and tasks.ID.text, .data, .data.PATH, \
                 .agent, .state and .id"
            )
        };
        let parts: Vec<&str> = text.split('.').map(str::trim).collect();
        match parts.as_slice() {
            ["request"] => Ok(Self::Request),
            ["plan", "name"] => Ok(Self::Name),
            ["tasks", id, rest @ ..] if !id.is_empty() => {
                let what = match rest {
                    ["text"] => TaskProperty::Text,
                    ["agent"] => TaskProperty::Agent,
                    ["state"] => TaskProperty::State,
                    ["id"] => TaskProperty::Id,
                    ["data", path @ ..]
                        if path.len() <= DEPTH && path.iter().all(|part| !part.is_empty()) =>
                    {
                        TaskProperty::Data(path.iter().map(|part| (*part).to_owned()).collect())
                    }
                    _ => return Err(wrong()),
                };
                Ok(Self::Task { id: (*id).to_owned(), what })
            }
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for PlanReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request => f.write_str("{{ request }}"),
            Self::Name => f.write_str("{{ plan.name }}"),
            Self::Task { id, what } => match what {
                TaskProperty::Text => write!(f, "{{{{ tasks.{id}.text }}}}"),
                TaskProperty::Data(path) if path.is_empty() => write!(f, "{{{{ tasks.{id}.data }}}}"),
                TaskProperty::Data(path) => write!(f, "{{{{ tasks.{id}.data.{} }}}}", path.join(".")),
                TaskProperty::Agent => write!(f, "{{{{ tasks.{id}.agent }}}}"),
                TaskProperty::State => write!(f, "{{{{ tasks.{id}.state }}}}"),
                TaskProperty::Id => write!(f, "{{{{ tasks.{id}.id }}}}"),
            },
        }
    }
}

/// A piece of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TemplatePiece {
    /// Literal text.
    Plain(String),
    /// A reference to resolve.
    Reference(PlanReference),
}

impl TemplatePiece {
    pub(crate) fn reference(self) -> Option<PlanReference> {
        match self {
            Self::Reference(reference) => Some(reference),
            Self::Plain(_) => None,
        }
    }
}

/// Parses a template. `\{{` is an escaped `{{`.
pub(crate) fn read(text: &str) -> Result<Vec<TemplatePiece>, String> {
    let (mut pieces, mut plain, mut rest) = (vec![], String::new(), text);
    while let Some(at) = rest.find("{{") {
        if let Some(before) = rest[..at].strip_suffix('\\') {
            plain.push_str(before);
            plain.push_str("{{");
            rest = &rest[at + 2..];
            continue;
        }
        plain.push_str(&rest[..at]);
        let inner = &rest[at + 2..];
        let end =
            inner.find("}}").ok_or("there is a {{ without a }}; \\{{ stands for the braces themselves")?;
        if !plain.is_empty() {
            pieces.push(TemplatePiece::Plain(std::mem::take(&mut plain)));
        }
        pieces.push(TemplatePiece::Reference(PlanReference::read(inner[..end].trim())?));
        rest = &inner[end + 2..];
    }
    plain.push_str(rest);
    if !plain.is_empty() {
        pieces.push(TemplatePiece::Plain(plain));
    }
    Ok(pieces)
}

/// Resolves references to values.
pub(crate) trait ReferenceResolver {
    /// The value, or why there is none.
    fn resolve(&self, reference: &PlanReference) -> Result<Value, String>;
}

/// A text with its references resolved.
pub(crate) fn render(text: &str, meaning: &dyn ReferenceResolver) -> Result<String, String> {
    let mut out = String::new();
    for piece in read(text)? {
        match piece {
            TemplatePiece::Plain(plain) => out.push_str(&plain),
            TemplatePiece::Reference(reference) => match meaning.resolve(&reference)? {
                Value::String(text) => out.push_str(&text),
                Value::Null => {}
                other => out.push_str(&other.to_string()),
            },
        }
    }
    Ok(out)
}

/// A value with the references in its strings resolved.
pub(crate) fn render_value(value: &Value, meaning: &dyn ReferenceResolver) -> Result<Value, String> {
    Ok(match value {
        Value::String(text) => match read(text)?.as_slice() {
            [TemplatePiece::Reference(reference)] => meaning.resolve(reference)?,
            _ => Value::String(render(text, meaning)?),
        },
        Value::Array(items) => {
            items.iter().map(|item| render_value(item, meaning)).collect::<Result<Vec<_>, _>>()?.into()
        }
        Value::Object(members) => {
            let rendered =
                members.iter().map(|(name, value)| Ok((name.clone(), render_value(value, meaning)?)));
            rendered.collect::<Result<Map<_, _>, String>>()?.into()
        }
        other => other.clone(),
    })
}

/// The value at a path; or an error with the part of the path that exists, and what is there instead.
pub(crate) fn at_path<'a>(value: &'a Value, path: &[String]) -> Result<&'a Value, String> {
    let mut here = value;
    for (n, part) in path.iter().enumerate() {
        let next = match here {
            Value::Object(members) => members.get(part),
            Value::Array(items) => part.parse().ok().and_then(|n: usize| items.get(n)),
            _ => None,
        };
        here = next.ok_or_else(|| {
            let there = match here {
                Value::Object(members) => {
                    format!(
                        "there are: {}",
                        members.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
                    )
                }
                Value::Array(items) => format!("there is a list of {}", items.len()),
                other => format!("there is {other}"),
            };
            let before = if n == 0 { "data".to_owned() } else { format!("data.{}", path[..n].join(".")) };
            format!("there is no {part:?} in {before}; {there}")
        })?;
    }
    Ok(here)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    struct Known;

    impl ReferenceResolver for Known {
        fn resolve(&self, reference: &PlanReference) -> Result<Value, String> {
            let data = json!({ "price": 12.5, "names": ["a", "b"], "none": null });
            match reference {
                PlanReference::Request => Ok("the request".into()),
                PlanReference::Task { id, what: TaskProperty::Data(path) } if id == "a" => {
                    at_path(&data, path).cloned()
                }
                PlanReference::Task { what: TaskProperty::Text, .. } => Ok("words".into()),
                other => Err(format!("{other}?")),
            }
        }
    }

    #[test]
    fn references_stand_for_what_came_before() {
        let check = |text: &str, expected: Result<&str, &str>| {
            assert_eq!(render(text, &Known).as_deref().map_err(String::as_str), expected, "{text}");
        };
        check("plain", Ok("plain"));
        check("{{ request }}: {{tasks.a.text}}.", Ok("the request: words."));
        check("{{ tasks.a.data.price }} {{ tasks.a.data.names.1 }}{{ tasks.a.data.none }}", Ok("12.5 b"));
        check("{{ tasks.a.data.names }}", Ok(r#"["a","b"]"#));
        check(r"\{{ request }}", Ok("{{ request }}"));
        check("{{ request", Err("there is a {{ without a }}; \\{{ stands for the braces themselves"));
        check("{{ tasks.a.data.cost }}", Err("there is no \"cost\" in data; there are: price, names, none"));
        check("{{ tasks.a.data.names.7 }}", Err("there is no \"7\" in data.names; there is a list of 2"));
    }

    #[test]
    fn a_lone_reference_keeps_its_kind() {
        let value = json!({ "n": "{{ tasks.a.data.price }}", "s": "{{ tasks.a.data.price }} EUR", "l": ["{{ request }}", 1] });
        let rendered = render_value(&value, &Known).unwrap();
        assert_eq!(rendered, json!({ "n": 12.5, "s": "12.5 EUR", "l": ["the request", 1] }));
    }

    #[test]
    fn what_is_no_reference_is_said() {
        for wrong in
            ["{{ task.a.text }}", "{{ tasks.a }}", "{{ tasks..text }}", "{{ tasks.a.data. }}", "{{ }}"]
        {
            let why = read(wrong).unwrap_err();
            assert!(why.contains("is no reference; there are: request, plan.name"), "{wrong}: {why}");
        }
    }
}
