//! Text for people that scripts can parse: one `Label: value` per line, and blocks for longer content
//! (`Label:`, the content, an empty line). Text of agents is shown without control characters.

use std::fmt::Write as _;

use nuncio_engine::{
    clock::Timestamp,
    content::{Artifact, Content, Message, Part, Role},
    task::State,
};
use nuncio_wire::a2a::{AddressedMessage, TaskView};
use serde_json::Value;

use super::form::fields;

#[derive(Default)]
pub(crate) struct TextOutput(pub(crate) String);

impl TextOutput {
    /// A `Label: value` line.
    pub(crate) fn field(&mut self, label: &str, value: &str) {
        if value.trim_end().contains('\n') {
            return self.block(label, value);
        }
        let _ = writeln!(self.0, "{label}: {}", plain(value.trim_end()));
    }

    /// Several lines, closed by an empty one.
    pub(crate) fn block(&mut self, label: &str, content: &str) {
        let _ = write!(self.0, "{label}:\n{}\n\n", plain(content.trim_end_matches('\n')));
    }

    /// An empty line between things.
    pub(crate) fn gap(&mut self) {
        if !self.0.is_empty() && !self.0.ends_with("\n\n") {
            self.0.push('\n');
        }
    }

    /// The lines that every text about a task starts with.
    pub(crate) fn ids(&mut self, task: &str, context: Option<&str>, state: &str) {
        self.field("Task", task);
        if let Some(context) = context {
            self.field("Context", context);
        }
        self.field("State", state);
    }

    /// A whole task.
    pub(crate) fn task(&mut self, task: &TaskView, verbose: bool, history: bool) {
        let state = shown_state(task.state, task.unknown_state.as_ref());
        self.ids(&task.id, task.context.as_deref(), state);
        if let Some(at) = task.at {
            self.field("Updated", &time(at));
        }
        if let Some(message) = &task.message {
            self.status_message(message, verbose);
        }
        for artifact in &task.artifacts {
            self.artifact(artifact, verbose);
        }
        if verbose || history {
            for message in &task.history {
                self.gap();
                self.message(message, verbose);
            }
        }
        if verbose && let Some(metadata) = &task.metadata {
            self.block("Metadata", &pretty(&Value::Object(metadata.clone())));
        }
    }

    /// An answer without a task.
    pub(crate) fn answer(&mut self, answer: &AddressedMessage, verbose: bool) {
        if let Some(context) = &answer.context {
            self.field("Context", context);
        }
        self.message(&answer.message, verbose);
    }

    fn message(&mut self, message: &Message, verbose: bool) {
        self.field("From", if message.role == Role::User { "user" } else { "agent" });
        if verbose {
            self.field("Message id", &message.id);
        }
        for part in &message.parts {
            self.part(part, verbose);
        }
    }

    /// The agent's message about the state. Progress numbers are a line, not a block.
    pub(crate) fn status_message(&mut self, message: &Message, verbose: bool) {
        if verbose {
            self.field("Message id", &message.id);
        }
        for part in &message.parts {
            match &part.content {
                Content::Text(text) => self.field("Message", text),
                Content::Data(data) if !verbose && progress(data).is_some() => {
                    self.field("Progress", &progress(data).unwrap_or_default());
                }
                Content::Data(data) if !verbose && asked_form(data).is_some() => {
                    for field in asked_form(data).map(fields).unwrap_or_default() {
                        self.field("Field", &field.in_one_line());
                    }
                }
                _ => self.part(part, verbose),
            }
        }
    }

    fn artifact(&mut self, artifact: &Artifact, verbose: bool) {
        self.gap();
        self.artifact_head(&artifact.id, artifact.name.as_deref());
        if let Some(description) = &artifact.description {
            self.field("Description", description);
        }
        for part in &artifact.parts {
            self.part(part, verbose);
        }
    }

    pub(crate) fn artifact_head(&mut self, id: &str, name: Option<&str>) {
        match name.filter(|name| *name != id) {
            Some(name) => self.field("Artifact", &format!("{id} ({name})")),
            None => self.field("Artifact", id),
        }
    }

    /// A part of any kind: none is left out.
    pub(crate) fn part(&mut self, part: &Part, verbose: bool) {
        let media_type = part.media_type.as_deref();
        if verbose
            && let (Content::Text(_) | Content::Data(_), Some(media_type)) = (&part.content, media_type)
        {
            self.field("Media type", media_type);
        }
        let name = part.filename.as_deref().unwrap_or("unnamed");
        let media_type = media_type.unwrap_or("unknown type");
        match &part.content {
            Content::Text(text) => self.block("Text", text),
            Content::Data(data) => self.block("Data", &pretty(data)),
            Content::Bytes(bytes) => {
                self.field("File", &format!("{name} ({media_type}, {} bytes)", bytes.len()));
            }
            Content::Url(url) => self.field("File", &format!("{name} ({media_type}, at {url})")),
        }
        if verbose && let Some(metadata) = &part.metadata {
            self.block("Metadata", &pretty(&Value::Object(metadata.clone())));
        }
    }
}

/// A state as it is shown: by its short name, or as received if this version does not know it.
pub(crate) fn shown_state(state: State, unknown: Option<&String>) -> &str {
    unknown.map_or(state_name(state), String::as_str)
}

/// The short name of a state.
pub(crate) fn state_name(state: State) -> &'static str {
    match state {
        State::Submitted => "submitted",
        State::Working => "working",
        State::InputRequired => "input-required",
        State::AuthRequired => "auth-required",
        State::Completed => "completed",
        State::Failed => "failed",
        State::Canceled => "canceled",
        State::Rejected => "rejected",
        State::Replied => "replied",
    }
}

/// The form that a question asks for, from the data of its message.
pub(crate) fn asked_form(data: &Value) -> Option<&Value> {
    data.get("questionId").filter(|id| id.is_string())?;
    data.get("schema").filter(|schema| schema["properties"].as_object().is_some_and(|all| !all.is_empty()))
}

/// `25 of 100`, where the data contains only that.
fn progress(data: &Value) -> Option<String> {
    let figures = data.as_object()?;
    let done = figures.get("progress").filter(|done| done.is_number())?;
    match figures.get("total") {
        Some(total) if figures.len() == 2 && total.is_number() => Some(format!("{done} of {total}")),
        None if figures.len() == 1 => Some(done.to_string()),
        _ => None,
    }
}

/// A message in one line, for notes on the standard error.
pub(crate) fn in_one_line(message: &Message) -> String {
    let texts = message.parts.iter().filter_map(Part::as_text).map(str::to_owned);
    let figures = message.data().and_then(progress).map(|figures| format!("({figures})"));
    plain(&texts.chain(figures).collect::<Vec<_>>().join(" ")).replace('\n', " ")
}

pub(crate) fn time(at: Timestamp) -> String {
    jiff::Timestamp::from_millisecond(at.0).map_or_else(|_| at.0.to_string(), |time| time.to_string())
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string())
}

/// Whether a terminal shows a character literally. A terminal obeys control characters; characters that
/// change the writing direction, join others or have no width make one text look like another.
pub(crate) fn is_safe(c: char) -> bool {
    match c {
        '\n' | '\t' => true,
        // Soft hyphen, combining grapheme joiner, Arabic letter mark, Hangul and Mongolian fillers.
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180b}'..='\u{180f}' => false,
        // Zero-width space and joiners, marks, embeddings and overrides; separators; isolates; invisible operators.
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => false,
        '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' => false,
        // Tags, and variation selectors without a glyph of their own.
        '\u{e0000}'..='\u{e0fff}' => false,
        c => !c.is_control(),
    }
}

/// Removes control sequences: an agent's text may contain them, and a terminal must not obey them.
pub(crate) fn plain(text: &str) -> String {
    if text.chars().all(is_safe) {
        return text.to_owned();
    }
    text.replace("\r\n", "\n").chars().map(|c| if is_safe(c) { c } else { '\u{fffd}' }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn terminals_obey_nobody() {
        let mut text = TextOutput::default();
        text.field("Message", "a\u{1b}[31mb\u{7}");
        text.block("Text", "x\r\ny\u{9b}z\n");
        assert_eq!(text.0, "Message: a\u{fffd}[31mb\u{fffd}\nText:\nx\ny\u{fffd}z\n\n");
    }

    #[test]
    fn what_turns_or_hides_text_is_shown_as_such() {
        for odd in
            ["\u{202e}", "\u{2066}", "\u{200b}", "\u{200d}", "\u{feff}", "\u{61c}", "\u{e0041}", "\u{ad}"]
        {
            assert_eq!(plain(&format!("pay{odd}pal")), "pay\u{fffd}pal", "{odd:?}");
        }
        assert_eq!(
            plain("שלום, العربية, ñ, 日本, e\u{301}, ✔\u{fe0f}"),
            "שלום, العربية, ñ, 日本, e\u{301}, ✔\u{fe0f}"
        );
    }

    #[test]
    fn what_has_lines_is_a_block() {
        let mut text = TextOutput::default();
        text.field("Message", "one line\n");
        text.field("Message", "two\nlines");
        assert_eq!(text.0, "Message: one line\nMessage:\ntwo\nlines\n\n");
    }

    #[test]
    fn a_question_is_shown_as_its_fields() {
        let schema = json!({ "properties": { "confirm": { "type": "boolean" } }, "required": ["confirm"] });
        let asked = json!({ "questionId": "q1", "schema": schema });
        let message = Message::of("m", Role::Agent, vec![Part::text("Sure?"), Part::data(asked)]);
        let mut text = TextOutput::default();
        text.status_message(&message, false);
        assert_eq!(text.0, "Message: Sure?\nField: confirm [y/n]\n");
        let mut text = TextOutput::default();
        text.status_message(&message, true);
        assert!(text.0.contains("Data:\n{") && !text.0.contains("Field:"), "{}", text.0);
    }

    #[test]
    fn every_part_is_shown() {
        let mut file = Part::from(Content::Bytes(vec![0; 12]));
        file.filename = Some("a.png".into());
        file.media_type = Some("image/png".into());
        let link = Part::from(Content::Url("https://x/y".into()));
        let message = Message::of("m", Role::Agent, vec![Part::text("hi"), Part::data(json!(1)), file, link]);
        let mut text = TextOutput::default();
        text.message(&message, false);
        assert_eq!(
            text.0,
            "From: agent\nText:\nhi\n\nData:\n1\n\nFile: a.png (image/png, 12 bytes)\n\
             File: unnamed (unknown type, at https://x/y)\n"
        );
    }
}
