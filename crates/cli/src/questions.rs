//! Questions at a terminal: yes or no, a form field by field, or a link to open. One asker for the commands and for
//! the chat, which differ in where lines come from and how text is shown ([`QuestionTerminal`]).
//!
//! At every field `!n` declines, `!n too dear` declines with a note, `!c` cancels, and `?` shows the whole question. The
//! end of the input leaves the question open.

use std::process::Stdio;

use nuncio_engine::{
    Answer,
    question::{Ask, Question},
    surface::check_foreign_cost,
};
use serde_json::{Map, Value};
use url::Url;

use crate::{
    form::{PromptField, fields},
    text::plain,
};

/// A line at a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TypedLine {
    Line(String),
    /// The input ended, the user interrupted it, or the question needs no answer any more.
    Left,
}

/// Where questions are asked.
pub(crate) trait QuestionTerminal {
    /// Reads a line. `choices` can be completed.
    async fn read_line(&mut self, prompt: String, choices: Vec<String>) -> TypedLine;

    /// Shows why a line is not accepted.
    fn show_wrong(&mut self, text: &str);

    fn show_note(&mut self, text: &str);

    /// Shows the whole question.
    fn show_details(&mut self, question: &Question);

    /// Shows a link and its host.
    fn show_link(&mut self, host: &str, url: &str);
}

/// What the user entered at a field.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum FieldPromptOutcome {
    /// A value, or nothing where the field is optional.
    In(Option<Value>),
    /// The user wants more details.
    Details,
    /// With the user's note.
    Declined(Option<String>),
    Canceled,
    /// The question stays open.
    Left,
}

/// Asks for a form or a link. `None`: the question stays open. Requests for a text of a model are not for this.
pub(crate) async fn ask(terminal: &mut impl QuestionTerminal, question: &Question) -> Option<Answer> {
    match &question.ask {
        Ask::Form { schema } => ask_form(terminal, question, schema).await,
        Ask::Authorization { url } => ask_link(terminal, question, url).await,
        Ask::Sample { .. } => None,
    }
}

/// A form. If it requires nothing but a confirmation, it is asked as a yes-or-no question.
async fn ask_form(
    terminal: &mut impl QuestionTerminal,
    question: &Question,
    schema: &Value,
) -> Option<Answer> {
    let fields = fields(schema);
    let confirmation = confirmation(&fields);
    loop {
        let mut content = Map::new();
        if let Some(confirm) = confirmation {
            loop {
                match ask_confirmation(terminal, confirm).await {
                    FieldPromptOutcome::In(_) => {
                        drop(confirm.map(|field| content.insert(field.name.to_owned(), true.into())));
                        break;
                    }
                    FieldPromptOutcome::Details => terminal.show_details(question),
                    ended => return answer_of(&ended),
                }
            }
        }
        let rest = fields
            .iter()
            .filter(|field| confirmation.flatten().is_none_or(|confirm| confirm.name != field.name));
        for field in rest {
            loop {
                let more = if confirmation.is_some() { "" } else { "; !n, !c, ?" };
                match ask_field(terminal, field, more).await {
                    FieldPromptOutcome::In(value) => {
                        drop(value.map(|value| content.insert(field.name.to_owned(), value)));
                        break;
                    }
                    FieldPromptOutcome::Details => terminal.show_details(question),
                    ended => return answer_of(&ended),
                }
            }
        }
        match check_form(schema, &content) {
            Ok(()) => return Some(Answer::Accept(Value::Object(content))),
            Err(why) => terminal.show_wrong(&format!("the form is not valid: {why}")),
        }
    }
}

/// Yes or no.
async fn ask_confirmation(
    terminal: &mut impl QuestionTerminal,
    field: Option<PromptField<'_>>,
) -> FieldPromptOutcome {
    let about = field.map_or_else(String::new, |field| {
        let about = field.about().map(|about| format!(" ({})", plain(about))).unwrap_or_default();
        format!("{}{about} ", plain(field.title()))
    });
    loop {
        let prompt = format!("{about}[y, n, d for details, !c]: ");
        let TypedLine::Line(line) = terminal.read_line(prompt, vec![]).await else {
            return FieldPromptOutcome::Left;
        };
        if let Some(note) = declined(&line) {
            return FieldPromptOutcome::Declined(note);
        }
        match &*line.trim().to_lowercase() {
            "y" | "yes" | "true" => return FieldPromptOutcome::In(None),
            "n" | "no" | "false" => return FieldPromptOutcome::Declined(None),
            "d" | "?" | "details" => return FieldPromptOutcome::Details,
            "!c" | "c" => return FieldPromptOutcome::Canceled,
            _ => terminal.show_note("y: yes, n: no, d: details, !c: cancel"),
        }
    }
}

/// Asks for one field until the value is valid. `more` is added to the prompt.
pub(crate) async fn ask_field(
    terminal: &mut impl QuestionTerminal,
    field: &PromptField<'_>,
    more: &str,
) -> FieldPromptOutcome {
    let prompt = match field.prompt().strip_suffix("]: ") {
        Some(before) => format!("{before}{more}]: "),
        None if more.is_empty() => field.prompt(),
        None => format!("{} [{}]: ", field.prompt().trim_end_matches(": "), more.trim_start_matches("; ")),
    };
    let choices = match field.kind() {
        "boolean" => vec!["y".to_owned(), "n".to_owned()],
        _ => field.choices(),
    };
    loop {
        let TypedLine::Line(line) = terminal.read_line(prompt.clone(), choices.clone()).await else {
            return FieldPromptOutcome::Left;
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
                Err(why) => terminal.show_wrong(&format!("  {why}")),
            },
        }
    }
}

/// A link to go to. The answer only says whether the user was there.
async fn ask_link(terminal: &mut impl QuestionTerminal, question: &Question, url: &str) -> Option<Answer> {
    let host = Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned));
    terminal.show_link(&host.unwrap_or_else(|| "no host that could be read".to_owned()), url);
    loop {
        let prompt = "Open it? [y, n, d for details, o: I go there myself, !c]: ".to_owned();
        let TypedLine::Line(line) = terminal.read_line(prompt, vec![]).await else { return None };
        if let Some(note) = declined(&line) {
            return Some(Answer::Decline(note));
        }
        match &*line.trim().to_lowercase() {
            "y" | "yes" => {
                if !open_in_browser(url) {
                    terminal.show_note("there is nothing here that opens links: open it yourself");
                }
                break;
            }
            "o" => break,
            "n" | "no" => return Some(Answer::Decline(None)),
            "c" | "!c" => return Some(Answer::Cancel),
            "d" | "?" => terminal.show_details(question),
            _ => terminal.show_note("y: open it, o: I open it myself, n: no, d: details, !c: cancel"),
        }
    }
    let prompt = "Enter when you are done there [!n, !c]: ".to_owned();
    let TypedLine::Line(line) = terminal.read_line(prompt, vec![]).await else { return None };
    Some(match (declined(&line), line.trim()) {
        (Some(note), _) => Answer::Decline(note),
        (None, "!c") => Answer::Cancel,
        (None, _) => Answer::Accept(serde_json::json!({})),
    })
}

/// Checks a whole form, or the arguments of a call, against its schema. One that costs too much to check is left to the
/// server.
pub(crate) fn check_form(schema: &Value, content: &Map<String, Value>) -> Result<(), String> {
    if check_foreign_cost(schema).is_err() {
        return Ok(());
    }
    let question = Question {
        id: String::new(),
        text: String::new(),
        ask: Ask::Form { schema: schema.clone() },
        callback: None,
    };
    let checked = question.check(Answer::Accept(Value::Object(content.clone())));
    checked
        .map(drop)
        .map_err(|error| error.to_string().replacen("the answer does not fit the question's schema: ", "", 1))
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
pub(crate) fn open_in_browser(url: &str) -> bool {
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
    use serde_json::json;

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
