//! The templates of the phases' artifacts: sections, guidelines, a worked example, and the JSON Schema that the
//! gate applies. One example, a URL shortener whose links expire, runs through all five phases.

use std::sync::LazyLock;

use nuncio_engine::surface::CompiledSchema;
use serde_json::{Map, Value, json};

use super::phase::SparcPhase;

/// The template of one phase.
pub struct PhaseTemplate {
    /// The phase of the artifact.
    pub phase: SparcPhase,
    /// The description of each section.
    pub sections: Map<String, Value>,
    /// How to write a good artifact, as text for a model or a person.
    pub guidelines: String,
    /// Worked examples, each with a title and an artifact that passes the gate.
    pub examples: Vec<Value>,
    /// The JSON Schema of an artifact.
    pub validation: Value,
    /// The schema, compiled.
    pub shape: CompiledSchema,
}

static ALL: LazyLock<[PhaseTemplate; 5]> = LazyLock::new(|| {
    [
        read(SparcPhase::Specification, include_str!("templates/specification.json")),
        read(SparcPhase::Pseudocode, include_str!("templates/pseudocode.json")),
        read(SparcPhase::Architecture, include_str!("templates/architecture.json")),
        read(SparcPhase::Refinement, include_str!("templates/refinement.json")),
        read(SparcPhase::Completion, include_str!("templates/completion.json")),
    ]
});

/// Parses a template that is embedded in the binary; the tests guarantee that it parses.
#[allow(clippy::expect_used, reason = "a constant of the program, which a test reads")]
fn read(phase: SparcPhase, text: &str) -> PhaseTemplate {
    let value: Value = serde_json::from_str(text).expect("a template is JSON");
    let shape = CompiledSchema::compile(&value["validation"]).expect("a template's schema can be used");
    PhaseTemplate {
        phase,
        sections: value["template"].as_object().cloned().unwrap_or_default(),
        guidelines: value["guidelines"].as_array().into_iter().flatten().filter_map(Value::as_str).fold(
            String::new(),
            |all, line| if all.is_empty() { line.to_owned() } else { format!("{all}\n{line}") },
        ),
        examples: value["examples"].as_array().cloned().unwrap_or_default(),
        validation: value["validation"].clone(),
        shape,
    }
}

impl PhaseTemplate {
    /// The template of a phase.
    pub fn of(phase: SparcPhase) -> &'static Self {
        &ALL[phase.index()]
    }

    /// The artifact of the first worked example.
    pub fn example(&self) -> &Value {
        self.examples.first().map_or(&Value::Null, |example| &example["artifact"])
    }

    /// The JSON of the template's resource.
    pub fn to_json(&self) -> Value {
        json!({
            "phase": self.phase,
            "template": self.sections,
            "guidelines": self.guidelines,
            "examples": self.examples,
            "validation": self.validation,
        })
    }

    /// The template as a brief for a model or a person: sections, guidelines and an example.
    pub fn brief(&self) -> String {
        let sections: String = self
            .sections
            .iter()
            .map(|(name, text)| format!("- {name}: {}\n", text.as_str().unwrap_or_default()))
            .collect();
        let example = serde_json::to_string_pretty(self.example()).unwrap_or_default();
        let schema = serde_json::to_string(&self.validation).unwrap_or_default();
        format!(
            "Sections of the artifact:\n{sections}\nGuidelines:\n{}\n\nA worked example (of another goal):\n\
             ```json\n{example}\n```\n\nJSON Schema of the artifact:\n```json\n{schema}\n```\n",
            self.guidelines
        )
    }
}
