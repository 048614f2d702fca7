//! Messages that reach an agent while it works: shorter, stop after this step, or another subject.
//!
//! They are read at the end of a step and journaled with its result, so that a restart reads them at the
//! same point.

use nuncio_engine::{AgentError, Level, Message, TaskContext};
use serde_json::Value;

/// Messages of the caller that an agent has not used yet, and the number of those that it has.
#[derive(Debug, Default)]
pub(crate) struct Redirects {
    read: usize,
}

/// A request of the caller to the working agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// Less of everything that is not done yet.
    Shorter,
    /// No further step.
    Stop,
    /// Another subject, such as a destination or a topic.
    Subject(String),
    /// Text that the agent does not understand.
    Unclear(String),
}

impl Redirects {
    /// The message that created the task is not a redirect.
    pub(crate) fn new() -> Self {
        Self { read: 1 }
    }

    /// How many messages were used.
    pub(crate) fn read(&self) -> usize {
        self.read
    }

    /// Takes the messages that arrived during a step. `subject` is the name of the argument that may be
    /// changed.
    pub(crate) async fn take(
        &mut self,
        cx: &TaskContext,
        messages: Vec<Message>,
        subject: &str,
    ) -> Result<Vec<Redirect>, AgentError> {
        self.read += messages.len();
        let redirects: Vec<Redirect> =
            messages.iter().map(|message| Redirect::of(message, subject)).collect();
        for redirect in &redirects {
            let line = match redirect {
                Redirect::Shorter => "Shorter from here on, as asked".to_owned(),
                Redirect::Stop => "Stopping after this step, as asked".to_owned(),
                Redirect::Subject(other) => format!("Changing the {subject} to {other}, as asked"),
                Redirect::Unclear(text) => {
                    format!(
                        "Not understood while at work: {text:?}; try \"shorter\", \"stop after this step\" or \"{subject}: …\""
                    )
                }
            };
            cx.log(Level::Notice, line).await?;
        }
        Ok(redirects)
    }
}

impl Redirect {
    fn of(message: &Message, subject: &str) -> Self {
        if let Some(Value::String(other)) = message.data().and_then(|data| data.get(subject)) {
            return Self::subject(other);
        }
        let text = message.joined_text();
        let text = text.trim();
        let lower = text.to_lowercase();
        let has = |word: &str| lower.split(|c: char| !c.is_alphanumeric()).any(|other| other == word);
        if let Some((name, other)) = text.split_once(':')
            && name.trim().eq_ignore_ascii_case(subject)
        {
            return Self::subject(other);
        }
        if has("shorter") || has("briefer") || has("brief") {
            return Self::Shorter;
        }
        if has("stop") || has("enough") {
            return Self::Stop;
        }
        for before in
            ["change to ", "instead to ", "rather to ", "go to ", "make it ", "look into ", "switch to "]
        {
            if let Some(at) = lower.find(before).filter(|_| lower.len() == text.len()) {
                let rest = text[at + before.len()..].trim_end_matches(|c: char| !c.is_alphanumeric());
                return Self::subject(rest.trim_end_matches("instead"));
            }
        }
        if let Some(other) = lower.strip_suffix("instead").filter(|_| lower.len() == text.len()) {
            return Self::subject(&text[..other.len()]);
        }
        Self::Unclear(text.chars().take(100).collect())
    }

    fn subject(text: &str) -> Self {
        let text = text.trim_matches(|c: char| c.is_whitespace() || ".,;:!?\"'".contains(c));
        let text: String = text.chars().take(200).collect();
        if text.is_empty() { Self::Unclear(text) } else { Self::Subject(text) }
    }
}

#[cfg(test)]
mod tests {
    use nuncio_engine::{Part, Role};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_redirect_is_found_in_words_and_in_arguments() {
        let check = |part: Part, expected: Redirect| {
            assert_eq!(Redirect::of(&Message::of("m", Role::User, vec![part]), "destination"), expected);
        };
        let to = |place: &str| Redirect::Subject(place.into());
        check(Part::text("Shorter, please"), Redirect::Shorter);
        check(Part::text("stop after this step"), Redirect::Stop);
        check(Part::text("destination: Oslo"), to("Oslo"));
        check(Part::text("Oslo instead"), to("Oslo"));
        check(Part::text("please make it New York instead!"), to("New York"));
        check(Part::data(json!({ "destination": "Rome" })), to("Rome"));
        check(Part::text("how are you?"), Redirect::Unclear("how are you?".into()));
    }
}
