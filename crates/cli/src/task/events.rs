//! `nuncio task events` and `nuncio task log`: the events of a task, or its agent's log lines with the standard error of
//! its program, from any event on. With `--follow` until the task has ended, also over a restart of the server.

use clap::{Args, ValueEnum};
use serde_json::Value;

use super::show::{ServerTask, TaskServerFlags};
use crate::{console_client::TaskEventReader, error::CliError, output, program, table::cell, text::plain};

/// Events of a page, the most that the console API has.
const PAGE: usize = 1000;
/// Bytes of an event's data in text, and in JSON. There a longer one is read by itself.
const TEXT_PREVIEW: usize = 2048;
const JSON_PREVIEW: usize = 1024 * 1024;

#[derive(Args)]
pub(crate) struct TaskFollowFlags {
    /// The task
    #[arg(value_name = "TASK", env = "A2ACLI_TASK_ID")]
    task: String,
    /// Go on until the task has ended. The server may be restarted meanwhile
    #[arg(short = 'f', long)]
    follow: bool,
    /// Start after this event; 0 starts at the beginning
    #[arg(long, value_name = "N", default_value_t = 0)]
    after: u64,
    #[command(flatten)]
    pub(super) server: TaskServerFlags,
}

#[derive(Args)]
pub(crate) struct TaskEventFlags {
    /// Only events of this kind. Repeatable
    #[arg(long = "kind", value_name = "KIND")]
    kinds: Vec<ShownEventKind>,
    #[command(flatten)]
    pub(super) follow: TaskFollowFlags,
}

#[derive(Args)]
pub(crate) struct TaskLogFlags {
    #[command(flatten)]
    pub(super) follow: TaskFollowFlags,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ShownEventKind {
    Message,
    Status,
    Artifact,
    Progress,
    Log,
    Question,
    Answer,
    Withdrawn,
}

impl ShownEventKind {
    /// The kind's name in events.
    fn name(self) -> &'static str {
        match self {
            Self::Message => "message",
            Self::Status => "status",
            Self::Artifact => "artifact",
            Self::Progress => "progress",
            Self::Log => "log",
            Self::Question => "question",
            Self::Answer => "answer",
            Self::Withdrawn => "withdrawn",
        }
    }
}

impl TaskEventFlags {
    pub(super) async fn run(self) -> Result<(), CliError> {
        let kinds = self.kinds.into_iter().map(ShownEventKind::name).collect();
        let printer = EventPrinter { command: "events", kinds, line: event_line };
        printer.run(self.follow).await
    }
}

impl TaskLogFlags {
    pub(super) async fn run(self) -> Result<(), CliError> {
        let printer =
            EventPrinter { command: "log", kinds: vec![ShownEventKind::Log.name()], line: log_line };
        printer.run(self.follow).await
    }
}

/// Prints events of some kinds, or of all.
struct EventPrinter {
    /// The subcommand, for the command that resumes.
    command: &'static str,
    kinds: Vec<&'static str>,
    line: fn(&Value) -> String,
}

impl EventPrinter {
    async fn run(&self, flags: TaskFollowFlags) -> Result<(), CliError> {
        let TaskFollowFlags { task, follow, after, server } = flags;
        let print = async |task: ServerTask<'_>| match follow {
            true => self.follow(&task, after).await,
            false => self.pages(&task, after).await,
        };
        server.run_with_task(task, print).await
    }

    /// Prints the events that there are.
    async fn pages(&self, task: &ServerTask<'_>, mut after: u64) -> Result<(), CliError> {
        loop {
            let mut query = vec![
                ("after", after.to_string()),
                ("limit", PAGE.to_string()),
                ("preview", preview(task).to_string()),
            ];
            query.extend(self.kinds.iter().map(|kind| ("kind", (*kind).to_owned())));
            let mut page: Value = task.console.get(&["tasks", &task.id, "events"], &query).await?;
            if let Value::Array(events) = page["events"].take() {
                self.print(task, events).await?;
            }
            let (read, last) = (page["after"].as_u64().unwrap_or(0), page["last"].as_u64().unwrap_or(0));
            if read >= last || read <= after {
                return Ok(());
            }
            after = read;
        }
    }

    /// Prints events until the task has ended.
    async fn follow(&self, task: &ServerTask<'_>, after: u64) -> Result<(), CliError> {
        let mut reader = TaskEventReader::new(task.console, &task.id, after, preview(task));
        let resume = |after: u64| {
            let flags = &task.flags;
            format!("{} task {} {}{flags} --follow --after {after}", program(), self.command, task.id)
        };
        task.connection.record_command(&task.id, resume(after));
        while let Some(events) = reader.next().await? {
            let wanted = |event: &Value| {
                self.kinds.is_empty() || self.kinds.iter().any(|kind| event["type"] == **kind)
            };
            self.print(task, events.into_iter().filter(wanted).collect()).await?;
            // Once they are printed: what the command resumes after was seen.
            task.connection.record_command(&task.id, resume(reader.cursor()));
        }
        Ok(())
    }

    async fn print(&self, task: &ServerTask<'_>, events: Vec<Value>) -> Result<(), CliError> {
        if !task.connection.output.is_json() {
            let lines: String = events.iter().map(|event| (self.line)(event) + "\n").collect();
            return output::text(&lines);
        }
        for mut event in events {
            if event.get("data").is_none() {
                let number = cell(&event["seq"]);
                event = task.console.get(&["tasks", &task.id, "events", &number], &[]).await?;
            }
            output::json_text(&event.to_string())?;
        }
        Ok(())
    }
}

fn preview(task: &ServerTask<'_>) -> usize {
    if task.connection.output.is_json() { JSON_PREVIEW } else { TEXT_PREVIEW }
}

/// A line of the log: when, how serious, and what.
pub(crate) fn log_line(event: &Value) -> String {
    let data = &event["data"];
    let text = data["text"].as_str().or(event["preview"].as_str()).unwrap_or_default();
    let level = data["level"].as_str().unwrap_or("-");
    plain(&format!("{} {level:<7} {}", cell(&event["timestamp"]), in_line(text)))
}

/// An event in one line: its number, when, its kind, and what it says.
fn event_line(event: &Value) -> String {
    let number = cell(&event["seq"]);
    let kind = event["type"].as_str().unwrap_or("-");
    let by = event["by"]["caller"].as_str().map(|caller| format!(" (by {caller})")).unwrap_or_default();
    let line = format!(
        "{number:>5}  {}  {kind:<9}  {}{by}",
        cell(&event["timestamp"]),
        in_line(&content(kind, event))
    );
    plain(line.trim_end()).replace('\n', " ")
}

fn in_line(text: &str) -> String {
    text.trim_end().replace(['\n', '\t'], " ")
}

/// What an event says.
fn content(kind: &str, event: &Value) -> String {
    let Some(data) = event.get("data") else {
        // Too long to be sent here.
        return format!("{}… ({} bytes)", cell(&event["preview"]), cell(&event["size"]));
    };
    let with = |first: String, rest: String| if rest.is_empty() { first } else { format!("{first}: {rest}") };
    match kind {
        "message" => with(cell(&data["role"]), parts(&data["parts"])),
        "status" => with(cell(&data["state"]), parts(&data["message"]["parts"])),
        "artifact" => with(
            data["name"].as_str().or(data["id"].as_str()).unwrap_or("-").to_owned(),
            parts(&data["parts"]),
        ),
        "progress" => {
            let total =
                if data["total"].is_null() { String::new() } else { format!(" of {}", data["total"]) };
            with(
                format!("{}{total}", cell(&data["done"])),
                data["text"].as_str().unwrap_or_default().to_owned(),
            )
        }
        "log" => with(cell(&data["level"]), cell(&data["text"])),
        "question" => with(cell(&data["id"]), cell(&data["text"])),
        "answer" => with(cell(&data["question"]), cell(&data["answer"])),
        "withdrawn" => cell(&data["question"]),
        _ => data.to_string(),
    }
}

/// The parts of a message or an artifact: its texts, and what else there is.
fn parts(parts: &Value) -> String {
    let shown = |part: &Value| {
        let name = part["filename"].as_str().map(|name| format!(" {name}")).unwrap_or_default();
        match part {
            part if part["text"].is_string() => cell(&part["text"]),
            part if part["url"].is_string() => format!("[file{name} at {}]", cell(&part["url"])),
            part if part["bytes"].is_string() => format!("[file{name}]"),
            part => part["data"].to_string(),
        }
    };
    parts.as_array().into_iter().flatten().map(shown).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_kind_of_event_is_a_line() {
        let check = |kind: &str, data: Value, expected: &str| {
            let event = json!({ "seq": 7, "timestamp": "T", "type": kind, "data": data });
            assert_eq!(event_line(&event), format!("    7  T  {kind:<9}  {expected}"));
        };
        check(
            "message",
            json!({ "role": "user", "parts": [{ "text": "a\nb" }, { "data": [1] }] }),
            "user: a b [1]",
        );
        check("status", json!({ "state": "working" }), "working");
        check(
            "status",
            json!({ "state": "failed", "message": { "parts": [{ "text": "no" }] } }),
            "failed: no",
        );
        check(
            "artifact",
            json!({ "id": "a", "parts": [{ "bytes": "AA", "filename": "f.txt" }] }),
            "a: [file f.txt]",
        );
        check("progress", json!({ "done": 1.0, "total": 3.0, "text": "one" }), "1.0 of 3.0: one");
        check("log", json!({ "level": "info", "text": "line\u{1b}[31m" }), "info: line\u{fffd}[31m");
        check("question", json!({ "id": "q1", "text": "which?" }), "q1: which?");
        check("answer", json!({ "question": "q1", "answer": "decline" }), "q1: decline");
        check("withdrawn", json!({ "question": "q1" }), "q1");
        let long =
            json!({ "seq": 1, "timestamp": "T", "type": "log", "size": 9000, "preview": "{\"level\":" });
        assert_eq!(event_line(&long), "    1  T  log        {\"level\":… (9000 bytes)");
        let sent = json!({ "seq": 1, "timestamp": "T", "type": "status", "data": { "state": "canceled" },
                           "by": { "caller": "acme/ada", "dialect": "a2a/1.0" } });
        assert_eq!(event_line(&sent), "    1  T  status     canceled (by acme/ada)");
    }

    #[test]
    fn a_log_line_has_its_level() {
        let event = json!({ "timestamp": "T", "data": { "level": "error", "text": "no\nroute\n" } });
        assert_eq!(log_line(&event), "T error   no route");
    }
}
