//! The display of a task while it runs, and the report at its end.

use std::collections::HashSet;

use nuncio_client::a2a::{A2aClient, A2aTaskEvents};
use nuncio_engine::{
    content::{Content, Message},
    event::ArtifactChunk,
    task::State,
};
use nuncio_wire::a2a::{StreamEvent, TaskView};

use super::{
    connection::AgentConnection,
    error::CliError,
    form,
    output::{self, note},
    program,
    server_connection::quoted,
    text::{self, TextOutput, shown_state},
};

/// When to stop following a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FollowUntil {
    /// After the turn that a message began: at the first question, or at the end.
    Turn,
    /// After the whole history from a cursor on. A question that was answered long ago does not end it.
    History,
}

/// Shows every event as it arrives. Returns when the task has ended or waits for input; a stream that stops
/// before that is an error.
pub(crate) async fn show(
    connection: &AgentConnection,
    client: &A2aClient,
    mut events: A2aTaskEvents,
    ending: FollowUntil,
) -> Result<(), CliError> {
    let (mut live, mut last, mut said) = (LiveText::default(), None, None);
    loop {
        let next = events.next().await.map_err(|error| connection.failed(error))?;
        let Some(item) = next else {
            // Some agents end the stream there; what follows is in another one.
            if last == Some(State::AuthRequired) && connection.wait_auth {
                events = follow_authorized(connection, client).await?;
                continue;
            }
            break;
        };
        let event = &item.event.value;
        let state = match event {
            StreamEvent::Task(task) => {
                connection.record_task(&task.id, task.context.as_deref(), item.cursor.as_deref());
                said.clone_from(&task.message);
                Some(task.state)
            }
            StreamEvent::Status(update) => {
                connection.record_task(&update.task, update.context.as_deref(), item.cursor.as_deref());
                said.clone_from(&update.message);
                Some(update.state)
            }
            StreamEvent::Artifact(update) => {
                connection.record_task(&update.task, update.context.as_deref(), item.cursor.as_deref());
                None
            }
            StreamEvent::Message(_) => None,
        };
        if connection.output.is_json() {
            output::json(&item.event.json)?;
        } else {
            output::text(&live.event(event, connection.output.verbose))?;
        }
        last = state.or(last);
        let waits = |state: State| state.is_interrupted() && connection.wait_options().is_idle(state);
        if state.is_some_and(waits) && waits_now(connection, client, ending).await? {
            break;
        }
    }
    let seen = connection.resume_point();
    let (Some(task), Some(state)) = (&seen.task, last) else {
        // The agent answered with a message.
        return output::text(&live.close());
    };
    if !connection.output.is_json() {
        let mut text = TextOutput(live.close());
        text.gap();
        text.ids(task, seen.context.as_deref(), shown_state(state, None));
        output::text(&text.0)?;
    }
    end(connection, task, state, said.as_ref())
}

/// Waits until the authorization is given, and follows the task from the last event on.
async fn follow_authorized(
    connection: &AgentConnection,
    client: &A2aClient,
) -> Result<A2aTaskEvents, CliError> {
    let seen = connection.resume_point();
    let task = seen.task.unwrap_or_default();
    let failed = |error| connection.failed(error);
    while client.get(&task, Some(0)).await.map_err(failed)?.value.state == State::AuthRequired {
        tokio::time::sleep(connection.poll_interval).await;
    }
    let cursor = seen.cursor.filter(|_| client.has_cursors());
    client.subscribe(&task, cursor.as_deref()).await.map_err(failed)
}

/// Whether a task that waited for input still does.
async fn waits_now(
    connection: &AgentConnection,
    client: &A2aClient,
    ending: FollowUntil,
) -> Result<bool, CliError> {
    let Some(task) = connection.resume_point().task.filter(|_| ending == FollowUntil::History) else {
        return Ok(true);
    };
    let now = client.get(&task, Some(0)).await.map_err(|error| connection.failed(error))?;
    Ok(now.value.state.is_interrupted())
}

/// The report after a printed task: how to continue, and whether it succeeded.
pub(crate) fn show_settled(connection: &AgentConnection, task: &TaskView) -> Result<(), CliError> {
    end(connection, &task.id, task.state, task.message.as_ref())
}

/// `said`: the message about the state, with the question that the task asks.
fn end(
    connection: &AgentConnection,
    task: &str,
    state: State,
    said: Option<&Message>,
) -> Result<(), CliError> {
    connection.record_final_state(state);
    match state {
        State::InputRequired | State::AuthRequired if !connection.output.is_json() => {
            let send = format!("{} send --task-id {task}{}", program(), connection.target.flags);
            let mut text = TextOutput::default();
            text.field("Resume", &format!("{send} \"<reply>\""));
            let form = said.and_then(Message::data).and_then(text::asked_form);
            if let Some(example) = form.and_then(form::example_answer) {
                text.field("Answer", &format!("{send} --data {}", quoted(&example.to_string())));
            }
            output::text(&text.0)?;
        }
        _ => {}
    }
    let outcome = match state {
        State::InputRequired => "the task waits for an answer",
        State::AuthRequired => "the task waits for an authorization",
        State::Failed => "the task failed",
        State::Rejected => "the agent rejected the task",
        State::Canceled => "the task was canceled",
        State::Submitted | State::Working | State::Completed | State::Replied => return Ok(()),
    };
    note(&format!("warning: {outcome}"));
    Ok(())
}

/// A stream as text. The text of an artifact that arrives in pieces is one growing block.
#[derive(Default)]
struct LiveText {
    /// The artifact whose text block is open.
    open: Option<String>,
    /// Artifacts that were shown before.
    known: HashSet<String>,
}

impl LiveText {
    fn event(&mut self, event: &StreamEvent, verbose: bool) -> String {
        if let StreamEvent::Artifact(update) = event {
            return self.chunk(&update.chunk, verbose);
        }
        let mut text = TextOutput(self.close());
        match event {
            StreamEvent::Task(task) => {
                text.task(task, verbose, false);
                self.known.extend(task.artifacts.iter().map(|artifact| artifact.id.clone()));
            }
            StreamEvent::Message(answer) => text.answer(answer, verbose),
            StreamEvent::Status(update) => {
                text.field("State", shown_state(update.state, update.unknown_state.as_ref()));
                if let Some(message) = &update.message {
                    text.status_message(message, verbose);
                }
            }
            StreamEvent::Artifact(_) => {}
        }
        text.0
    }

    fn chunk(&mut self, chunk: &ArtifactChunk, verbose: bool) -> String {
        let goes_on = chunk.append && self.open.as_ref() == Some(&chunk.id);
        let mut text = TextOutput(if goes_on { String::new() } else { self.close() });
        if !goes_on && (!chunk.append || !self.known.contains(&chunk.id)) {
            text.artifact_head(&chunk.id, chunk.name.as_deref());
        }
        self.known.insert(chunk.id.clone());
        for part in &chunk.parts {
            match &part.content {
                Content::Text(piece) => {
                    if self.open.is_none() {
                        text.0.push_str("Text:\n");
                        self.open = Some(chunk.id.clone());
                    }
                    text.0.push_str(&text::plain(piece));
                }
                _ => {
                    text.0.push_str(&self.close());
                    text.part(part, verbose);
                }
            }
        }
        text.0
    }

    /// The text that closes the open block.
    fn close(&mut self) -> String {
        if self.open.take().is_some() { "\n\n".to_owned() } else { String::new() }
    }
}

/// Notes about a waiting command, on the standard error.
pub(crate) struct WaitNotes {
    loud: bool,
    /// The last note: what comes again, as after a reconnect, is not repeated.
    last: String,
}

impl WaitNotes {
    pub(crate) fn new(connection: &AgentConnection, task: &str) -> Self {
        let loud = !connection.output.is_json();
        if loud {
            note(&format!("waiting for task {task}"));
        }
        Self { loud, last: String::new() }
    }

    pub(crate) fn event(&mut self, event: &StreamEvent) {
        if let (true, StreamEvent::Status(update)) = (self.loud, event)
            && let Some(message) = &update.message
        {
            let state = shown_state(update.state, update.unknown_state.as_ref());
            let line = format!("{state}: {}", text::in_one_line(message));
            if line != self.last {
                note(&line);
                self.last = line;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use nuncio_engine::content::Part;
    use nuncio_wire::a2a::{ArtifactUpdate, StatusUpdate};
    use serde_json::json;

    use super::*;

    fn chunk(id: &str, append: bool, part: Part) -> StreamEvent {
        let chunk = ArtifactChunk {
            id: id.into(),
            index: 0,
            parts: vec![part],
            append,
            last: false,
            name: None,
            description: None,
            metadata: None,
            extensions: vec![],
        };
        StreamEvent::Artifact(ArtifactUpdate { task: "t".into(), context: None, chunk })
    }

    #[test]
    fn text_in_pieces_is_one_block() {
        let working = StreamEvent::Status(StatusUpdate {
            task: "t".into(),
            context: None,
            state: State::Working,
            unknown_state: None,
            message: None,
            at: None,
            last: false,
        });
        let events = [
            chunk("a", false, Part::text("Hel")),
            chunk("a", true, Part::text("lo")),
            working,
            chunk("a", true, Part::text("!")),
            chunk("b", false, Part::data(json!({ "x": 1 }))),
        ];
        let mut live = LiveText::default();
        let mut shown: String = events.iter().map(|event| live.event(event, false)).collect();
        shown.push_str(&live.close());
        assert_eq!(
            shown,
            "Artifact: a\nText:\nHello\n\nState: working\nText:\n!\n\nArtifact: b\nData:\n{\n  \"x\": 1\n}\n\n"
        );
    }
}
