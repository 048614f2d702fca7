//! The user's answers to questions of runs: yes or no, a form field by field, a link to open, or a text that
//! a model or the user writes.
//!
//! At every field `!n` declines, `!n too dear` declines with a note, and `!c` cancels. Ctrl+C leaves the
//! question open and detaches from the run.

use std::process::Stdio;

use nuncio_engine::{
    Answer,
    question::{Ask, Question},
};
use serde_json::{Map, Value, json};
use url::Url;

use super::{
    arguments,
    complete::Vocabulary,
    input::{LineInput, LineRequest},
    line_renderer::{RunEvent, RunLabel, ScreenItem, details},
    session::{ChatSession, harmless},
};
use crate::{
    form::{PromptField, fields},
    text::plain,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChatQuestionOutcome {
    /// It was answered, or needs no answer any more.
    Done,
    /// It stays open: the user does not want to answer now, or there is no user.
    Left,
}

/// What the user entered at a field.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum FieldPromptOutcome {
    /// A value, or nothing where the field is optional.
    In(Option<Value>),
    /// The user wants more details.
    Details,
    /// With the user's note.
    Declined(Option<String>),
    Canceled,
    /// Ctrl+C, or the end of the input.
    Left,
}

impl ChatSession {
    /// Asks one question, and sends the answer.
    pub(super) async fn ask(&mut self, run: u32, question: &Question) -> ChatQuestionOutcome {
        let Some((who, task)) = self.runs.get(&run).map(|run| (run.label.clone(), run.task.clone())) else {
            self.questions.retain(|(asking, _)| *asking != run);
            return ChatQuestionOutcome::Done;
        };
        let answer = match &question.ask {
            Ask::Form { schema } => self.ask_form(&who, task.as_deref(), question, schema).await,
            Ask::Authorization { url } => self.ask_link(&who, task.as_deref(), question, url).await,
            Ask::Sample { system, max_tokens } => {
                self.ask_sample(&who, question, system.as_deref(), *max_tokens).await
            }
        };
        let is_open = |(asking, open): &(u32, Question)| *asking == run && open.id == question.id;
        if !self.questions.iter().any(is_open) {
            if answer.is_some() {
                self.show_remark("the question was closed, so the answer was not sent");
            }
            return ChatQuestionOutcome::Done;
        }
        let Some(answer) = answer else { return ChatQuestionOutcome::Left };
        self.questions.retain(|entry| !is_open(entry));
        let how = match &answer {
            Answer::Accept(_) => "answered",
            Answer::Decline(_) => "declined",
            Answer::Cancel => "canceled",
            Answer::Unavailable => "nobody was there to answer",
        };
        self.screen.show(&ScreenItem::Run(&who, RunEvent::Answered(&question.id, how)), true);
        if let Some(follower) = self.runs.get(&run).and_then(|run| run.follower.as_ref()) {
            follower.answer(question.clone(), answer);
        }
        ChatQuestionOutcome::Done
    }

    /// Whether the question on the screen needs no answer any more: it was answered elsewhere, or its run has
    /// ended.
    pub(super) fn is_question_closed(&self) -> bool {
        let is_open = |(run, question): &(u32, String)| {
            self.questions.iter().any(|(asking, open)| asking == run && open.id == *question)
        };
        self.asking.as_ref().is_some_and(|asking| !is_open(asking))
    }

    /// Discards a line that was typed for a question that is closed.
    fn discard(&mut self, line: &str) -> FieldPromptOutcome {
        if !line.trim().is_empty() && self.screen.is_terminal() {
            self.show_remark("not sent: what it was typed for needs no answer any more");
        }
        FieldPromptOutcome::Left
    }

    /// A form. If it requires nothing but a confirmation, it is asked as a yes-or-no question.
    async fn ask_form(
        &mut self,
        who: &RunLabel,
        task: Option<&str>,
        question: &Question,
        schema: &Value,
    ) -> Option<Answer> {
        let fields = fields(schema);
        let confirmation = confirmation(&fields);
        loop {
            let mut content = Map::new();
            if let Some(confirm) = confirmation {
                loop {
                    match self.confirm(confirm).await {
                        FieldPromptOutcome::In(_) => {
                            drop(confirm.map(|field| content.insert(field.name.to_owned(), true.into())));
                            break;
                        }
                        FieldPromptOutcome::Details => self.show_question_details(who, task, question),
                        ended => return answer_of(&ended),
                    }
                }
            }
            let rest = fields
                .iter()
                .filter(|field| confirmation.flatten().is_none_or(|confirm| confirm.name != field.name));
            for field in rest {
                loop {
                    match self.ask_field(field, if confirmation.is_some() { "" } else { "; !n, !c, ?" }).await
                    {
                        FieldPromptOutcome::In(value) => {
                            drop(value.map(|value| content.insert(field.name.to_owned(), value)));
                            break;
                        }
                        FieldPromptOutcome::Details => self.show_question_details(who, task, question),
                        ended => return answer_of(&ended),
                    }
                }
            }
            match arguments::check(schema, &content) {
                Ok(()) => return Some(Answer::Accept(Value::Object(content))),
                Err(why) => {
                    self.screen.show(&ScreenItem::Wrong(&format!("the form is not valid: {why}")), true);
                }
            }
        }
    }

    /// Yes or no.
    async fn confirm(&mut self, field: Option<PromptField<'_>>) -> FieldPromptOutcome {
        let about = field.map_or_else(String::new, |field| {
            let about = field.about().map(|about| format!(" ({})", plain(about))).unwrap_or_default();
            format!("{}{about} ", plain(field.title()))
        });
        loop {
            let prompt = format!("{about}[y, n, d for details, !c]: ");
            match self.read(LineRequest { prompt, ..LineRequest::default() }).await {
                LineInput::Line(line) if self.is_question_closed() => return self.discard(&line),
                LineInput::Line(line) if declined(&line).is_some() => {
                    return FieldPromptOutcome::Declined(declined(&line).flatten());
                }
                LineInput::Line(line) => match &*line.trim().to_lowercase() {
                    "y" | "yes" | "true" => return FieldPromptOutcome::In(None),
                    "n" | "no" | "false" => return FieldPromptOutcome::Declined(None),
                    "d" | "?" | "details" => return FieldPromptOutcome::Details,
                    "!c" | "c" => return FieldPromptOutcome::Canceled,
                    _ => self.screen.show(&ScreenItem::Remark("y: yes, n: no, d: details, !c: cancel"), true),
                },
                LineInput::Interrupted | LineInput::End => return FieldPromptOutcome::Left,
            }
        }
    }

    /// Asks for one field until the value is valid.
    pub(super) async fn ask_field(&mut self, field: &PromptField<'_>, more: &str) -> FieldPromptOutcome {
        let prompt = match field.prompt().strip_suffix("]: ") {
            Some(before) => format!("{before}{more}]: "),
            None if more.is_empty() => field.prompt(),
            None => {
                format!("{} [{}]: ", field.prompt().trim_end_matches(": "), more.trim_start_matches("; "))
            }
        };
        let choices = match field.kind() {
            "boolean" => vec!["y".to_owned(), "n".to_owned()],
            _ => harmless(field.choices()),
        };
        loop {
            let vocabulary = Vocabulary::Choices(choices.clone());
            let line =
                match self.read(LineRequest { prompt: prompt.clone(), vocabulary, command: false }).await {
                    LineInput::Line(line) if self.is_question_closed() => return self.discard(&line),
                    LineInput::Line(line) => line,
                    LineInput::Interrupted | LineInput::End => return FieldPromptOutcome::Left,
                };
            if let Some(note) = declined(&line) {
                return FieldPromptOutcome::Declined(note);
            }
            match line.trim() {
                "!c" => return FieldPromptOutcome::Canceled,
                "?" | "!d" => return FieldPromptOutcome::Details,
                // A value that begins with `!` is typed with two.
                text => match field
                    .read(text.strip_prefix('!').filter(|rest| rest.starts_with('!')).unwrap_or(text))
                {
                    Ok(value) => return FieldPromptOutcome::In(value),
                    Err(why) => self.screen.show(&ScreenItem::Wrong(&format!("  {why}")), true),
                },
            }
        }
    }

    /// A link to go to.
    async fn ask_link(
        &mut self,
        who: &RunLabel,
        task: Option<&str>,
        question: &Question,
        url: &str,
    ) -> Option<Answer> {
        let host = Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned));
        let host = host.unwrap_or_else(|| "no host that could be read".to_owned());
        let shown = format!("  Host: {}\n  Link: {}", plain(&host), plain(url));
        let data = json!({ "event": "link", "run": who.run, "host": host, "url": url });
        self.screen.show(&ScreenItem::Answer { text: shown, data }, true);
        loop {
            let prompt = "Open it? [y, n, d for details, o: I go there myself, !c]: ".to_owned();
            let line = match self.read(LineRequest { prompt, ..LineRequest::default() }).await {
                LineInput::Line(_) if self.is_question_closed() => return None,
                LineInput::Line(line) => line,
                LineInput::Interrupted | LineInput::End => return None,
            };
            if let Some(note) = declined(&line) {
                return Some(Answer::Decline(note));
            }
            match &*line.trim().to_lowercase() {
                "y" | "yes" => {
                    if !open_in_browser(url) {
                        self.show_remark("there is nothing here that opens links: open it yourself");
                    }
                    break;
                }
                "o" => break,
                "n" | "no" => return Some(Answer::Decline(None)),
                "c" | "!c" => return Some(Answer::Cancel),
                "d" | "?" => self.show_question_details(who, task, question),
                _ => self.show_remark("y: open it, o: I open it myself, n: no, d: details, !c: cancel"),
            }
        }
        let prompt = "Enter when you are done there [!n, !c]: ".to_owned();
        match self.read(LineRequest { prompt, ..LineRequest::default() }).await {
            LineInput::Line(line) => Some(match (declined(&line), line.trim()) {
                (Some(note), _) => Answer::Decline(note),
                (None, "!c") => Answer::Cancel,
                (None, _) => Answer::Accept(json!({})),
            }),
            LineInput::Interrupted | LineInput::End => None,
        }
    }

    /// The full description of an argument.
    pub(super) fn show_field(&mut self, field: &PromptField<'_>) {
        let about = field.about().map(|about| format!("\n  {}", plain(about))).unwrap_or_default();
        let schema = serde_json::to_string(field.schema()).unwrap_or_default();
        let text =
            format!("  {}{about}\n  {}", plain(field.prompt().trim_end_matches([':', ' '])), plain(&schema));
        let data = json!({ "event": "details", "argument": field.name, "schema": field.schema() });
        self.screen.show(&ScreenItem::Answer { text, data }, true);
    }

    fn show_question_details(&mut self, who: &RunLabel, task: Option<&str>, question: &Question) {
        let data = json!({ "event": "details", "run": who.run, "task": task, "question": question });
        self.screen.show(&ScreenItem::Answer { text: details(who, task, question), data }, true);
    }
}

/// Names of boolean fields that confirm something begin like this. For these, "no" declines the question.
const CONFIRMS: [&str; 8] = ["confirm", "approve", "accept", "agree", "proceed", "allow", "continue", "ok"];

/// Whether a form asks for a confirmation: the only required field is a boolean that confirms, with optional
/// text fields beside it. Returns that boolean, where the form has one.
fn confirmation<'a>(fields: &[PromptField<'a>]) -> Option<Option<PromptField<'a>>> {
    let is_note =
        |field: &PromptField<'_>| field.kind() == "string" && field.choices().is_empty() && !field.required;
    let mut switches = fields.iter().filter(|field| field.kind() == "boolean");
    let (switch, other) = (switches.next(), switches.next());
    let rest = fields.iter().filter(|field| field.kind() != "boolean");
    let confirms = |field: &PromptField<'_>| {
        let name = field.name.to_lowercase();
        field.required && CONFIRMS.iter().any(|word| name.starts_with(word))
    };
    let is_asked = switch.is_some_and(confirms) || fields.is_empty();
    let is_one = other.is_none() && is_asked && rest.clone().all(is_note);
    is_one.then(|| switch.copied())
}

/// Whether a line declines, and the note after it: `!n too expensive`.
fn declined(line: &str) -> Option<Option<String>> {
    let note = line.trim().strip_prefix("!n").filter(|rest| rest.is_empty() || rest.starts_with(' '))?.trim();
    Some((!note.is_empty()).then(|| note.to_owned()))
}

fn answer_of(filled: &FieldPromptOutcome) -> Option<Answer> {
    match filled {
        FieldPromptOutcome::Declined(note) => Some(Answer::Decline(note.clone())),
        FieldPromptOutcome::Canceled => Some(Answer::Cancel),
        FieldPromptOutcome::In(_) | FieldPromptOutcome::Details | FieldPromptOutcome::Left => None,
    }
}

/// Opens a link, if a program for that is installed.
pub(super) fn open_in_browser(url: &str) -> bool {
    // Other schemes might start a program: the user sees the whole link and decides.
    let is_web = Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
    let opener = || {
        std::process::Command::new("xdg-open")
            .arg(url)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
    };
    is_web && opener().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_that_wants_a_yes_is_known() {
        #[track_caller]
        fn check(properties: &Value, required: &[&str], expected: Option<Option<&str>>) {
            let schema = json!({ "properties": properties, "required": required });
            let fields = fields(&schema);
            assert_eq!(confirmation(&fields).map(|switch| switch.map(|field| field.name)), expected);
        }
        let (switch, text) = (json!({ "type": "boolean" }), json!({ "type": "string" }));
        check(&json!({ "confirm": switch, "notes": text }), &["confirm"], Some(Some("confirm")));
        check(&json!({}), &[], Some(None));
        check(&json!({ "confirm": switch, "name": text }), &["confirm", "name"], None);
        check(&json!({ "one": switch, "other": switch }), &["one"], None);
        check(&json!({ "notes": text }), &[], None);
        // For these, "no" is a valid answer.
        check(&json!({ "subscribe": switch, "notes": text }), &["subscribe"], None);
        check(&json!({ "confirm": switch }), &[], None);
        check(&json!({ "confirm": switch, "mood": { "enum": ["good", "bad"] } }), &["confirm"], None);
    }

    #[test]
    fn a_line_declines_with_what_stands_behind_it() {
        let note = |text: &str| Some(Some(text.to_owned()));
        for (line, expected) in [
            ("!n", Some(None)),
            (" !n  ", Some(None)),
            ("!n too dear", note("too dear")),
            ("!no", None),
            ("n", None),
            ("!!n too dear", None),
        ] {
            assert_eq!(declined(line), expected, "{line}");
        }
    }
}
