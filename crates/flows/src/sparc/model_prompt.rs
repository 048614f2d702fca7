//! The prompts that ask a model for an artifact, and the extraction of JSON from its answer.

use serde_json::Value;

use super::{gate::EarlierArtifacts, phase::SparcPhase, prompts::task, templates::PhaseTemplate};

/// The longest answer that is requested, in tokens.
pub(super) const MAX_TOKENS: u32 = 16_384;
/// Maximum bytes of a gate's violations that are quoted to a person.
pub(super) const MAX_QUOTED: usize = 8 * 1024;

/// The system prompt for a phase.
pub(super) fn system(phase: SparcPhase) -> String {
    format!(
        "You are the {} of a team that works by SPARC. You write for those who come after you: complete, concrete and \
         checkable. You answer with JSON only.",
        phase.role().name()
    )
}

/// The prompt for a phase's artifact.
pub(super) fn prompt(phase: SparcPhase, goal: &str, earlier: &EarlierArtifacts) -> String {
    let earlier: String = earlier
        .iter()
        .map(|(phase, artifact)| {
            format!("The {phase}, which has passed its gate:\n```json\n{artifact}\n```\n\n")
        })
        .collect();
    let brief = PhaseTemplate::of(phase).brief();
    format!("{}\n\nThe goal:\n{goal}\n\n{earlier}{brief}", task(phase))
}

/// The prompt after the gate has refused an artifact.
pub(super) fn retry_prompt(prompt: &str, before: Option<&Value>, wrong: &str) -> String {
    let before = before.map(|artifact| format!("Your last artifact:\n```json\n{artifact}\n```\n\n"));
    let before = before.unwrap_or_default();
    format!(
        "{prompt}\n{before}It did not pass its gate:\n{wrong}\nCorrect all of this, and answer with the whole artifact."
    )
}

/// A text truncated to the length of a question.
pub(super) fn shortened(text: &str) -> String {
    if text.len() <= MAX_QUOTED {
        return text.to_owned();
    }
    let mut end = MAX_QUOTED;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}… (the workflow's resource has all of it)", &text[..end])
}

/// The JSON object in a text: the whole text, or a code fence, or from the first brace to the last.
pub(super) fn json_in(text: &str) -> Option<Value> {
    let object = |text: &str| serde_json::from_str::<Value>(text.trim()).ok().filter(Value::is_object);
    let fenced = || {
        let mut fences = text.split("```").skip(1).step_by(2);
        fences.find_map(|block| {
            // The first line may name the language.
            object(block).or_else(|| object(block.split_once('\n')?.1))
        })
    };
    let between = || {
        let (first, last) = (text.find('{')?, text.rfind('}')?);
        object(text.get(first..=last)?)
    };
    object(text).or_else(fenced).or_else(between)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_is_found_in_what_a_model_says() {
        let check = |text: &str, found: Option<Value>| assert_eq!(json_in(text), found, "{text}");
        check(r#"{"a":1}"#, Some(json!({ "a": 1 })));
        check("Here it is:\n```json\n{\"a\": \"```\"}\n```", Some(json!({ "a": "```" })));
        check("Here it is:\n```json\n{\"a\": 1}\n```\nAnything else?", Some(json!({ "a": 1 })));
        check("```\n{\"a\": 1}\n```", Some(json!({ "a": 1 })));
        check("Sure! {\"a\": {\"b\": 2}} is what I would write.", Some(json!({ "a": { "b": 2 } })));
        check("I use {braces} for fun", None);
        check("[1, 2]", None);
        check("{\"a\": {\"b\": 1}, \"c\": [", None);
        check("} {", None);
        check("", None);
    }

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        let long = format!("x{}", "ü".repeat(MAX_QUOTED));
        assert!(shortened(&long).len() < MAX_QUOTED + 100);
        assert_eq!(shortened("short"), "short");
    }
}
