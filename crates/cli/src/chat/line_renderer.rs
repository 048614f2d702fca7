//! The formatting of chat output: lines for people, JSON objects for programs. Prints nothing itself.
//!
//! Text of servers is shown without control characters. Text that arrives in pieces is shown line by line, each line
//! once it is complete; on a terminal that shows nothing else, word by word.

use std::{collections::HashMap, time::Duration};

use nuncio_client::peer::PeerCallEnd;
use nuncio_engine::{
    State,
    content::{Content, Message, Part},
    event::{ArtifactChunk, Level, LogLine, Progress},
    question::{Ask, Question},
};
use serde_json::{Value, json};

use super::{
    run_store::UnfinishedText,
    word_wrap::{WrappedText, wrap},
};
use crate::{
    form::{PromptField, example_answer, fields},
    program,
    server_connection::quoted,
    text::{plain, state_name},
};

/// The most bytes of an incomplete line that are held back.
const LONGEST_LINE: usize = 4096;

/// What identifies a run in the output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RunLabel {
    pub(super) run: u32,
    pub(super) offer: String,
    pub(super) server: String,
}

/// Something to show.
#[derive(Debug)]
pub(super) enum ScreenItem<'a> {
    /// A remark.
    Remark(&'a str),
    /// An error of the chat itself.
    Wrong(&'a str),
    /// The result of a command: for people, and for programs.
    Answer { text: String, data: Value },
    /// The state of a server: `up`, `away`, `back`, `changed`.
    Server { name: &'a str, address: &'a str, state: &'static str, text: &'a str },
    /// An event of a run.
    Run(&'a RunLabel, RunEvent<'a>),
}

/// An event of a run.
#[derive(Debug)]
pub(super) enum RunEvent<'a> {
    Begun,
    Resumed,
    /// The task's id became known.
    Task(&'a str),
    /// The run was detached; whether the next start resumes it.
    Detached(bool),
    Progress(&'a Progress),
    Log(&'a LogLine),
    Artifact(&'a ArtifactChunk),
    Message(&'a Message),
    Asks(&'a Question),
    Answered(&'a str, &'static str),
    Settled(&'a str),
    Waiting(&'a str),
    Back,
    /// With its time, where that is known.
    Ended(&'a PeerCallEnd, Option<Duration>),
    Lost(&'a str),
}

/// How lines are formatted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LineStyle {
    pub(super) colour: bool,
}

impl LineStyle {
    fn dim(self, text: &str) -> String {
        self.painted("2", text)
    }

    fn painted(self, code: &str, text: &str) -> String {
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// The prefix of all lines about a run.
    pub(super) fn head(self, who: &RunLabel) -> String {
        self.painted("1;36", &format!("[{} {}]", who.run, plain(&who.offer)))
    }
}

/// Formats lines, and buffers the incomplete last line, or the last word, of each text.
#[derive(Debug, Default)]
pub(super) struct LineRenderer {
    look: LineStyle,
    open: HashMap<u32, OpenText>,
    /// The run whose text ends within a line of the screen.
    streaming: Option<u32>,
}

/// A text that arrives in pieces.
#[derive(Debug)]
struct OpenText {
    artifact: String,
    /// What was not shown yet.
    rest: String,
    /// Where it stands, while it is shown word by word.
    shown: WrappedText,
}

impl OpenText {
    fn new(artifact: &str, rest: String) -> Self {
        Self { artifact: artifact.to_owned(), rest, shown: WrappedText::default() }
    }
}

/// How an item is shown.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LineLayout {
    /// The terminal's width, at which lines are broken; `None`: they are not.
    pub(super) width: Option<usize>,
    /// Whether a text may end within a line, until the next item.
    pub(super) streams: bool,
}

impl LineRenderer {
    pub(super) fn new(look: LineStyle) -> Self {
        Self { look, ..Self::default() }
    }

    /// The text of one item, with the end of a line that another item left open.
    pub(super) fn render(&mut self, shown: &ScreenItem<'_>, layout: LineLayout) -> String {
        if let ScreenItem::Run(who, RunEvent::Artifact(chunk)) = shown
            && layout.streams
        {
            return self.stream(who, chunk, layout.width);
        }
        let ended = match shown {
            ScreenItem::Run(
                who,
                RunEvent::Ended(..) | RunEvent::Lost(_) | RunEvent::Detached(_) | RunEvent::Asks(_),
            ) => self.end_text(who.run, layout.width),
            _ => String::new(),
        };
        let lines = self.render_item(shown);
        if lines.is_empty() {
            return ended;
        }
        let ended = if ended.is_empty() { self.end_line().to_owned() } else { ended };
        // Tables and documents keep their columns.
        let width = layout.width.filter(|_| !matches!(shown, ScreenItem::Answer { .. }));
        lines.iter().fold(ended, |text, line| text + &wrap(line, width) + "\n")
    }

    /// Whether the last line on the screen is incomplete.
    pub(super) fn is_within_line(&self) -> bool {
        self.streaming.is_some()
    }

    /// Ends the incomplete line on the screen. Its text goes on in the next one.
    pub(super) fn end_line(&mut self) -> &'static str {
        let Some(run) = self.streaming.take() else { return "" };
        if let Some(open) = self.open.get_mut(&run) {
            open.shown.begin_line();
        }
        "\n"
    }

    /// Shows the last word of a run's text, and ends its line, if that is the line on the screen.
    fn end_text(&mut self, run: u32, width: Option<usize>) -> String {
        if self.streaming != Some(run) {
            return String::new();
        }
        let mut text = String::new();
        if let Some(open) = self.open.get_mut(&run) {
            text = open.shown.write_all(std::mem::take(&mut open.rest).trim_end(), width);
        }
        text + self.end_line()
    }

    /// A piece of a text, to its last word.
    fn stream(&mut self, who: &RunLabel, chunk: &ArtifactChunk, width: Option<usize>) -> String {
        let goes_on = self.open.get(&who.run).is_some_and(|open| open.artifact == chunk.id) && chunk.append;
        let mut text = match goes_on {
            true if self.streaming == Some(who.run) => String::new(),
            true => self.end_line().to_owned(),
            false => self.end_text(who.run, width) + self.end_line(),
        };
        if !goes_on {
            let head = self.close(who.run).into_iter().chain([self.artifact_head(who, chunk)]);
            text.extend(head.map(|line| wrap(&line, width) + "\n"));
        }
        let open = self.open.entry(who.run).or_insert_with(|| OpenText::new(&chunk.id, String::new()));
        for part in &chunk.parts {
            if let Content::Text(piece) = &part.content {
                open.rest.push_str(piece);
                text.push_str(&open.shown.write(&mut open.rest, width, LONGEST_LINE));
                continue;
            }
            text.push_str(&open.shown.write_all(&std::mem::take(&mut open.rest), width));
            if open.shown.is_within_line() {
                text.push('\n');
                open.shown.begin_line();
            }
            text.extend(other(part).lines().map(|line| format!("  {line}\n")));
        }
        self.streaming = open.shown.is_within_line().then_some(who.run);
        if chunk.last {
            text.push_str(&self.end_text(who.run, width));
            text.extend(self.close(who.run).into_iter().map(|line| wrap(&line, width) + "\n"));
        }
        text
    }

    /// The lines of one item.
    pub(super) fn render_item(&mut self, shown: &ScreenItem<'_>) -> Vec<String> {
        match shown {
            ScreenItem::Remark(text) => vec![self.look.dim(&plain(text))],
            ScreenItem::Wrong(text) => vec![self.look.painted("31", &plain(text))],
            ScreenItem::Answer { text, .. } => {
                text.trim_end_matches('\n').lines().map(str::to_owned).collect()
            }
            ScreenItem::Server { name, state, text, .. } => {
                let colour = if *state == "away" { "33" } else { "2" };
                vec![self.look.painted(colour, &format!("{}: {}", plain(name), plain(text)))]
            }
            ScreenItem::Run(who, event) => self.about(who, event),
        }
    }

    /// The text of a run whose last line is incomplete.
    pub(super) fn unfinished(&self, run: u32) -> Option<UnfinishedText> {
        let open = self.open.get(&run)?;
        // Where a line was begun on this screen, the next process begins another.
        let is_begun = open.shown.is_within_line();
        let rest = if is_begun { open.rest.trim_start() } else { &open.rest };
        Some(UnfinishedText { artifact: open.artifact.clone(), rest: rest.to_owned() })
    }

    /// Continues a text that another process began to show.
    pub(super) fn restore_unfinished(&mut self, run: u32, unfinished: UnfinishedText) {
        let UnfinishedText { artifact, rest } = unfinished;
        self.open.entry(run).or_insert_with(|| OpenText::new(&artifact, rest));
    }

    fn about(&mut self, who: &RunLabel, event: &RunEvent<'_>) -> Vec<String> {
        if let RunEvent::Artifact(chunk) = event {
            return self.artifact(who, chunk);
        }
        let (head, look) = (self.look.head(who), self.look);
        let line = match event {
            RunEvent::Begun | RunEvent::Artifact(_) => return vec![],
            RunEvent::Resumed => look.dim(&format!("taken up again on {}", plain(&who.server))),
            RunEvent::Task(task) => look.dim(&format!("task {}", plain(task))),
            RunEvent::Detached(kept) => {
                let start = if *kept { ", and so does the next start" } else { "" };
                look.dim(&format!("goes on without you; `attach {}` comes back to it{start}", who.run))
            }
            RunEvent::Progress(progress) => measure(progress),
            RunEvent::Log(line) => {
                let colour = if line.level >= Level::Error {
                    "31"
                } else if line.level >= Level::Warning {
                    "33"
                } else {
                    "2"
                };
                look.painted(
                    colour,
                    &format!("{}: {}", level_name(line.level), plain(&line.text).replace('\n', " ")),
                )
            }
            RunEvent::Message(message) => plain(&message_text(message)),
            RunEvent::Asks(question) => format!("{} {}", look.painted("1", "asks:"), plain(&question.text)),
            RunEvent::Answered(_, how) => look.dim(how),
            RunEvent::Settled(_) => look.dim("needs no answer any more"),
            RunEvent::Waiting(why) => look.painted("33", &format!("waits for the server: {}", plain(why))),
            RunEvent::Back => look.dim("goes on: the server is back"),
            RunEvent::Ended(ended, took) => {
                let colour = if ended.state == State::Completed { "32" } else { "31" };
                let words = ended.message.as_ref().map(message_text).filter(|words| !words.trim().is_empty());
                let words = words.map(|words| format!(": {}", plain(words.trim_end()))).unwrap_or_default();
                let took = took.map(|took| format!(" in {}", seconds(took))).unwrap_or_default();
                format!("{}{took}{words}", look.painted(colour, state_name(ended.state)))
            }
            RunEvent::Lost(why) => look.painted("31", &format!("lost: {}", plain(why))),
        };
        let mut lines = match event {
            RunEvent::Ended(..) | RunEvent::Lost(_) | RunEvent::Detached(_) | RunEvent::Asks(_) => {
                self.close(who.run)
            }
            _ => vec![],
        };
        let mut parts = line.split('\n');
        lines.push(format!("{head} {}", parts.next().unwrap_or_default()));
        lines.extend(parts.map(|part| format!("  {part}")));
        lines
    }

    fn artifact(&mut self, who: &RunLabel, chunk: &ArtifactChunk) -> Vec<String> {
        let goes_on = self.open.get(&who.run).is_some_and(|open| open.artifact == chunk.id) && chunk.append;
        let mut lines = if goes_on { vec![] } else { self.close(who.run) };
        if !goes_on {
            lines.push(self.artifact_head(who, chunk));
        }
        let open = self.open.entry(who.run).or_insert_with(|| OpenText::new(&chunk.id, String::new()));
        for part in &chunk.parts {
            match &part.content {
                Content::Text(text) => {
                    let mut pieces = text.split('\n');
                    open.rest.push_str(pieces.next().unwrap_or_default());
                    for piece in pieces {
                        let line = std::mem::replace(&mut open.rest, piece.to_owned());
                        lines.push(format!("  {}", plain(line.trim_end_matches('\r'))));
                    }
                    // A very long line is shown in pieces.
                    if open.rest.len() > LONGEST_LINE {
                        lines.extend(rest(&mut open.rest));
                    }
                }
                _ => {
                    lines.extend(rest(&mut open.rest));
                    lines.extend(other(part).lines().map(|line| format!("  {line}")));
                }
            }
        }
        if chunk.last {
            lines.extend(self.close(who.run));
        }
        lines
    }

    /// The line above a text.
    fn artifact_head(&self, who: &RunLabel, chunk: &ArtifactChunk) -> String {
        let name = chunk.name.as_deref().unwrap_or(&chunk.id);
        let more = if chunk.append { " (continued)" } else { "" };
        format!("{} {}{more}:", self.look.head(who), self.look.painted("1", &plain(name)))
    }

    /// The buffered rest of a text that has ended.
    fn close(&mut self, run: u32) -> Vec<String> {
        self.open.remove(&run).and_then(|mut open| rest(&mut open.rest)).into_iter().collect()
    }
}

fn rest(rest: &mut String) -> Option<String> {
    (!rest.is_empty()).then(|| format!("  {}", plain(&std::mem::take(rest))))
}

/// The JSON object of one item.
pub(super) fn object(shown: &ScreenItem<'_>) -> Value {
    match shown {
        ScreenItem::Remark(text) => json!({ "event": "remark", "text": text }),
        ScreenItem::Wrong(text) => json!({ "event": "error", "message": text }),
        ScreenItem::Answer { data, .. } => data.clone(),
        ScreenItem::Server { name, address, state, text } => {
            json!({ "event": "server", "server": name, "address": address, "state": state, "text": text })
        }
        ScreenItem::Run(who, event) => {
            let mut object = match event {
                RunEvent::Begun => json!({ "event": "begun" }),
                RunEvent::Resumed => json!({ "event": "resumed" }),
                RunEvent::Task(task) => json!({ "event": "task", "task": task }),
                RunEvent::Detached(_) => json!({ "event": "detached" }),
                RunEvent::Progress(progress) => json!({
                    "event": "progress",
                    "done": progress.done,
                    "total": progress.total,
                    "text": progress.text,
                }),
                RunEvent::Log(line) => json!({ "event": "log", "level": line.level, "text": line.text }),
                RunEvent::Artifact(chunk) => json!({ "event": "artifact", "artifact": chunk }),
                RunEvent::Message(message) => json!({ "event": "message", "message": message }),
                RunEvent::Asks(question) => json!({ "event": "question", "question": question }),
                RunEvent::Answered(question, how) => {
                    json!({ "event": "answered", "question": question, "answer": how })
                }
                RunEvent::Settled(question) => json!({ "event": "settled", "question": question }),
                RunEvent::Waiting(why) => json!({ "event": "waiting", "why": why }),
                RunEvent::Back => json!({ "event": "back" }),
                RunEvent::Ended(ended, took) => json!({
                    "event": "ended",
                    "state": state_name(ended.state),
                    "message": ended.message,
                    "seconds": took.map(|took| took.as_secs_f64()),
                }),
                RunEvent::Lost(why) => json!({ "event": "lost", "why": why }),
            };
            object["run"] = who.run.into();
            object["offer"] = who.offer.as_str().into();
            object["server"] = who.server.as_str().into();
            object
        }
    }
}

/// The text of all parts of a message.
pub(super) fn message_text(message: &Message) -> String {
    let parts = message.parts.iter().map(|part| match &part.content {
        Content::Text(text) => text.clone(),
        _ => other(part),
    });
    parts.collect::<Vec<_>>().join("\n")
}

/// A part that is not text.
fn other(part: &Part) -> String {
    let name = part.filename.as_deref().map(|name| format!(" {}", plain(name))).unwrap_or_default();
    let media_type = part.media_type.as_deref().map(|kind| format!(", {}", plain(kind))).unwrap_or_default();
    match &part.content {
        Content::Text(text) => plain(text),
        Content::Data(data) => plain(&serde_json::to_string_pretty(data).unwrap_or_default()),
        Content::Bytes(bytes) => format!("file{name}: {} bytes{media_type}", bytes.len()),
        Content::Url(url) => format!("file{name}: {}{media_type}", plain(url)),
    }
}

/// All details of a question, for a user who wants to know more before answering.
pub(super) fn details(who: &RunLabel, task: Option<&str>, question: &Question) -> String {
    let wanted = match &question.ask {
        Ask::Form { schema } if !fields(schema).is_empty() => form_details(task, schema),
        Ask::Form { schema } => serde_json::to_string_pretty(schema).unwrap_or_default(),
        Ask::Sample { system, max_tokens } => {
            format!(
                "a text of at most {max_tokens} tokens; instructions: {}",
                system.as_deref().unwrap_or("none")
            )
        }
        Ask::Authorization { url } => format!("an authorization at {url}"),
    };
    let indented: String = plain(&wanted).lines().map(|line| format!("    {line}\n")).collect();
    format!(
        "  Asked by: {} on {}\n  Task: {}\n  Question: {} ({})\n  Wanted:\n{indented}",
        plain(&who.offer),
        plain(&who.server),
        task.map_or_else(|| "none".to_owned(), plain),
        plain(&question.text),
        plain(&question.id),
    )
}

/// The fields of a form, and how another terminal answers it.
fn form_details(task: Option<&str>, schema: &Value) -> String {
    let mut lines: Vec<String> = fields(schema).iter().map(PromptField::in_one_line).collect();
    if let (Some(task), Some(example)) = (task, example_answer(schema)) {
        let data = quoted(&example.to_string());
        lines.push(format!("elsewhere: {} send --task-id {} --data {data}", program(), quoted(task)));
    }
    lines.join("\n")
}

/// Progress in one line.
pub(super) fn measure(progress: &Progress) -> String {
    let text = progress.text.as_deref().map(|text| plain(text).replace('\n', " ")).unwrap_or_default();
    let figure = match percent(progress) {
        Some(percent) => format!("{percent:>3}%"),
        None => format!("{}", progress.done),
    };
    format!("{figure} {text}").trim_end().to_owned()
}

/// The percentage done, where the total is known.
pub(super) fn percent(progress: &Progress) -> Option<u64> {
    let total = progress.total.filter(|total| *total > 0.0)?;
    Some((progress.done / total * 100.0).clamp(0.0, 100.0) as u64)
}

/// A duration for people.
pub(super) fn seconds(took: Duration) -> String {
    match took.as_secs() {
        0..60 => format!("{:.1} s", took.as_secs_f64()),
        whole @ 60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        whole => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

/// The names of the levels, lowest first.
pub(super) fn level_name(level: Level) -> &'static str {
    match level {
        Level::Debug => "debug",
        Level::Info => "info",
        Level::Notice => "notice",
        Level::Warning => "warning",
        Level::Error => "error",
        Level::Critical => "critical",
        Level::Alert => "alert",
        Level::Emergency => "emergency",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who() -> RunLabel {
        RunLabel { run: 1, offer: "research_agent".into(), server: "local".into() }
    }

    fn chunk(text: &str, append: bool, last: bool) -> ArtifactChunk {
        let mut chunk = nuncio_client::peer::whole_artifact("report", vec![Part::text(text)]);
        (chunk.append, chunk.last, chunk.name) = (append, last, Some("Report".into()));
        chunk
    }

    #[test]
    fn text_in_pieces_is_shown_once_line_by_line() {
        let mut lines = LineRenderer::default();
        let who = who();
        let mut check = |event: RunEvent<'_>, expected: &[&str]| {
            assert_eq!(lines.render_item(&ScreenItem::Run(&who, event)), expected);
        };
        check(RunEvent::Artifact(&chunk("# A", false, false)), &["[1 research_agent] Report:"]);
        check(RunEvent::Artifact(&chunk("I\n\nmo", true, false)), &["  # AI", "  "]);
        check(
            RunEvent::Progress(&Progress {
                done: 1.0,
                total: Some(4.0),
                text: Some("Reading".into()),
                data: None,
            }),
            &["[1 research_agent]  25% Reading"],
        );
        check(RunEvent::Artifact(&chunk("re", true, true)), &["  more"]);
        let ended = PeerCallEnd {
            state: State::Failed,
            message: Some(Message::text("m", nuncio_engine::Role::Agent, "no\u{1b}[2J")),
        };
        check(
            RunEvent::Ended(&ended, Some(Duration::from_millis(1234))),
            &["[1 research_agent] failed in 1.2 s: no\u{fffd}[2J"],
        );
    }

    #[test]
    fn what_was_begun_and_left_is_shown_at_the_end() {
        let mut lines = LineRenderer::default();
        lines.render_item(&ScreenItem::Run(&who(), RunEvent::Artifact(&chunk("half", false, false))));
        let shown =
            lines.render_item(&ScreenItem::Run(&who(), RunEvent::Ended(&PeerCallEnd::completed(), None)));
        assert_eq!(
            shown,
            ["  half", "[1 research_agent] completed"],
            "a time that is not known is not shown"
        );
    }

    #[test]
    fn a_text_that_is_watched_is_shown_word_by_word_and_other_lines_end_its_line() {
        let mut lines = LineRenderer::default();
        let (who, other) = (who(), RunLabel { run: 2, offer: "other".into(), server: "local".into() });
        let layout = LineLayout { width: Some(30), streams: true };
        let mut check = |who: &RunLabel, event: RunEvent<'_>, expected: &str| {
            assert_eq!(lines.render(&ScreenItem::Run(who, event), layout), expected);
        };
        let begun = "[1 research_agent] Report:\n";
        check(&who, RunEvent::Artifact(&chunk("Twice thr", false, false)), &format!("{begun}  Twice"));
        check(&who, RunEvent::Artifact(&chunk("ee is six, as far", true, false)), " three is six, as");
        // Another run's line ends it; the text goes on below, with the word that was held back.
        check(&other, RunEvent::Task("t"), "\n[2 other] task t\n");
        check(&who, RunEvent::Artifact(&chunk(" as anybody knows", true, false)), "  far as anybody");
        let ended = PeerCallEnd::completed();
        let expected = " knows\n[1 research_agent] completed\n  in 0.0 s\n";
        check(&who, RunEvent::Ended(&ended, Some(Duration::ZERO)), expected);
        check(
            &who,
            RunEvent::Artifact(&chunk("all at once\n", false, true)),
            &format!("{begun}  all at once\n"),
        );
    }

    #[test]
    fn programs_get_one_object_an_event() {
        let progress = Progress { done: 1.0, total: None, text: None, data: None };
        let object = object(&ScreenItem::Run(&who(), RunEvent::Progress(&progress)));
        let expected = json!({
            "event": "progress", "done": 1.0, "total": null, "text": null,
            "run": 1, "offer": "research_agent", "server": "local",
        });
        assert_eq!(object, expected);
    }

    #[test]
    fn lengths_of_time_are_short() {
        let check =
            |seconds_: u64, expected: &str| assert_eq!(seconds(Duration::from_secs(seconds_)), expected);
        check(59, "59.0 s");
        check(61, "1 min 1 s");
        check(7260, "2 h 1 min");
    }
}
