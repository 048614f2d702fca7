//! Translates A2A events to call events without repeating any.
//!
//! A whole task repeats its earlier events. So the translator remembers a digest of each artifact that was
//! reported, and reports only what is new.

use std::collections::HashMap;

use nuncio_engine::{
    content::{Artifact, Content, Message, Part},
    event::{ArtifactChunk, LogLine, Progress},
    task::State,
};
use nuncio_wire::a2a::{StatusUpdate, StreamEvent, TaskView};

use super::question::{A2aQuestion, digest};
use crate::peer::{CallEvent, PeerCallEnd, RESULT, whole_artifact};

/// What was already reported in a call.
#[derive(Default)]
pub(crate) struct EventTranslator {
    /// The digest of each artifact's content; `None` where the content is unknown.
    artifacts: HashMap<String, Option<String>>,
    /// Whether an earlier process reported the beginning, so that chunks may append to artifacts unknown
    /// here.
    resumed: bool,
    /// The last message text reported.
    last_text: Option<String>,
    /// The open question.
    pub(super) asked: Option<A2aQuestion>,
    /// A question that this client answered. It is not open, even if an older view of the task shows it.
    answered: Option<String>,
    /// Whether that question had no id: then another one with the same text is a new question.
    was_nameless: bool,
    /// The number of closed questions without ids.
    pub(super) nameless: u32,
    /// Whether a disconnect may have lost chunks: until a whole artifact has been read, only whole ones are
    /// reported.
    pub(super) unsure: bool,
}

impl EventTranslator {
    /// For a resumed call with that open question, after so many questions without ids.
    pub(super) fn resumed(asked: Option<A2aQuestion>, nameless: u32) -> Self {
        Self { asked, nameless, resumed: true, ..Self::default() }
    }

    /// For a call whose beginning was reported elsewhere, and whose questions arrive another way.
    pub(crate) fn after_others() -> Self {
        Self::resumed(None, 0)
    }

    /// The question of a task that waits with this message.
    pub(super) fn read(&self, state: State, message: Option<&Message>) -> A2aQuestion {
        A2aQuestion::read(state, message, self.nameless)
    }

    /// The call events of an A2A event. If the event ends the task, `Ended` is the last.
    pub(crate) fn translate_event(&mut self, event: &StreamEvent) -> Vec<CallEvent> {
        match event {
            StreamEvent::Task(task) => self.translate_task(task),
            StreamEvent::Message(said) => {
                let result = whole_artifact(RESULT, said.message.parts.clone());
                vec![CallEvent::Artifact(result), CallEvent::Ended(PeerCallEnd::completed())]
            }
            StreamEvent::Status(StatusUpdate { state, message, .. }) => self.status(*state, message.as_ref()),
            StreamEvent::Artifact(update) => self.chunk(&update.chunk).into_iter().collect(),
        }
    }

    /// The call events for what a task contains and was not reported yet.
    pub(super) fn translate_task(&mut self, task: &TaskView) -> Vec<CallEvent> {
        let ended = task.state.is_terminal();
        let mut happened: Vec<_> =
            task.artifacts.iter().filter_map(|artifact| self.artifact(artifact, ended)).collect();
        self.unsure = false;
        happened.extend(self.status(task.state, task.message.as_ref()));
        happened
    }

    /// Whether any artifact was reported.
    pub(super) fn has_artifacts(&self) -> bool {
        !self.artifacts.is_empty()
    }

    /// Marks a question as answered.
    pub(super) fn mark_answered(&mut self, question: &str) {
        self.was_nameless = self.asked.take().is_some_and(|asked| asked.nameless);
        self.answered = Some(question.to_owned());
    }

    /// Whether the task still waits for the answer that was sent.
    pub(super) fn waits_still(&self, task: &TaskView) -> bool {
        let waits_for = || self.read(task.state, task.message.as_ref()).question.id;
        task.state.is_interrupted() && self.answered == Some(waits_for())
    }

    /// Opens a question again whose answer was rejected.
    pub(super) fn reopen(&mut self, asked: A2aQuestion) {
        self.asked = Some(asked);
        (self.answered, self.was_nameless) = (None, false);
    }

    fn artifact(&mut self, artifact: &Artifact, ended: bool) -> Option<CallEvent> {
        let last = ended || artifact.complete;
        let now = content(&artifact.parts, last);
        if self.artifacts.get(&artifact.id).is_some_and(|told| told.as_ref() == Some(&now)) {
            return None;
        }
        self.artifacts.insert(artifact.id.clone(), Some(now));
        Some(CallEvent::Artifact(ArtifactChunk {
            last,
            name: artifact.name.clone(),
            description: artifact.description.clone(),
            metadata: artifact.metadata.clone(),
            extensions: artifact.extensions.clone(),
            ..whole_artifact(&artifact.id, joined_texts(&artifact.parts))
        }))
    }

    fn chunk(&mut self, chunk: &ArtifactChunk) -> Option<CallEvent> {
        if chunk.append && self.unsure {
            return None;
        }
        // A chunk that appends to an unknown artifact begins it.
        let begun = self.artifacts.contains_key(&chunk.id);
        let append = chunk.append && (begun || self.resumed);
        let now = (!append).then(|| content(&chunk.parts, chunk.last));
        self.artifacts.insert(chunk.id.clone(), now);
        Some(CallEvent::Artifact(ArtifactChunk { append, ..chunk.clone() }))
    }

    fn status(&mut self, state: State, message: Option<&Message>) -> Vec<CallEvent> {
        if let Some(line) = message.and_then(log_line) {
            // A log line does not change the task's state.
            return vec![CallEvent::Log(line)];
        }
        if state.is_interrupted() {
            let asked = self.read(state, message);
            let known = self.asked.as_ref().is_some_and(|open| open.question.id == asked.question.id);
            if known || self.answered.as_ref() == Some(&asked.question.id) {
                return vec![];
            }
            let question = asked.question.clone();
            let before = self.asked.replace(asked);
            let settled = before.map(|asked| CallEvent::QuestionClosed(asked.question.id));
            return settled.into_iter().chain([CallEvent::Question(question)]).collect();
        }
        let settled = self.asked.take();
        if std::mem::take(&mut self.was_nameless) || settled.as_ref().is_some_and(|asked| asked.nameless) {
            (self.answered, self.nameless) = (None, self.nameless.saturating_add(1));
        }
        let mut happened: Vec<_> =
            settled.map(|asked| CallEvent::QuestionClosed(asked.question.id)).into_iter().collect();
        if state.is_terminal() {
            happened.push(CallEvent::Ended(PeerCallEnd { state, message: message.cloned() }));
        } else if let Some(message) = message {
            happened.extend(self.word(message));
        }
        happened
    }

    /// An intermediate message, or progress if a Nuncio agent sends figures with it.
    fn word(&mut self, message: &Message) -> Option<CallEvent> {
        let known = if message.id.is_empty() { content(&message.parts, false) } else { message.id.clone() };
        if self.last_text.as_ref() == Some(&known) {
            return None;
        }
        self.last_text = Some(known);
        let Some(done) = message.data().and_then(|data| data["progress"].as_f64()) else {
            return Some(CallEvent::Message(message.clone()));
        };
        let text = message.joined_text();
        Some(CallEvent::Progress(Progress {
            done,
            total: message.data().and_then(|data| data["total"].as_f64()),
            text: (!text.is_empty()).then_some(text),
            data: message.data().and_then(|data| data.get("event")).cloned(),
        }))
    }
}

/// The log line in a message (`LOG_EXTENSION`).
fn log_line(message: &Message) -> Option<LogLine> {
    let level = serde_json::from_value(message.data()?.get("log")?.clone()).ok()?;
    Some(LogLine { level, text: message.joined_text() })
}

fn content(parts: &[Part], last: bool) -> String {
    let json = serde_json::to_string(parts).unwrap_or_default();
    digest(&[&json, if last { "last" } else { "" }])
}

/// The parts of an artifact in a whole task. Adjacent bare texts are one, because some agents keep the pieces of a
/// streamed text apart there: the artifact is the same, whether it was streamed or read after a cut.
fn joined_texts(parts: &[Part]) -> Vec<Part> {
    let mut joined: Vec<Part> = Vec::with_capacity(parts.len());
    for part in parts {
        if let (
            Some(Part { content: Content::Text(text), metadata: None, filename: None, media_type: None }),
            Part { content: Content::Text(more), metadata: None, filename: None, media_type: None },
        ) = (joined.last_mut(), part)
        {
            text.push_str(more);
        } else {
            joined.push(part.clone());
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_a_text_are_one_part_and_everything_else_stays_apart() {
        let named = Part { filename: Some("a.txt".into()), ..Part::text("named") };
        let parts = [Part::text("1 "), Part::text("2 "), named.clone(), Part::text("3 "), Part::text("4 ")];
        assert_eq!(joined_texts(&parts), [Part::text("1 2 "), named, Part::text("3 4 ")]);
    }
}
