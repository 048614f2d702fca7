//! What an agent's events mean in the words of the engine, and what of it was told already.
//!
//! A whole task repeats what its events said. So it is remembered, by a digest, what was told of each artifact, and
//! only what is new is told.

use std::collections::HashMap;

use nuncio_engine::{
    content::{Artifact, Message, Part},
    event::{ArtifactChunk, LogLine, Progress},
    task::State,
};
use nuncio_wire::a2a::{StatusUpdate, StreamEvent, TaskView};

use super::question::{A2aQuestion, digest};
use crate::peer::{CallEvent, PeerCallEnd, RESULT, whole_artifact};

/// What was told of a call.
#[derive(Default)]
pub(crate) struct EventTranslator {
    /// What is there of each artifact, by a digest; `None` where that is not known.
    artifacts: HashMap<String, Option<String>>,
    /// Whether others were told what came before, so that pieces may follow what is not known here.
    resumed: bool,
    /// The words that were told last.
    last_text: Option<String>,
    /// The question that is open.
    pub(super) asked: Option<A2aQuestion>,
    /// A question that was answered from here: it is not open, whatever an older view says.
    answered: Option<String>,
    /// Whether that one had no name: then the next in the same words is another.
    was_nameless: bool,
    /// How many questions without names are over.
    pub(super) nameless: u32,
    /// Whether a cut may have swallowed pieces of artifacts: only whole ones are told until they were seen.
    pub(super) unsure: bool,
}

impl EventTranslator {
    /// Of a call that was begun elsewhere, in which that question is open, after so many without names.
    pub(super) fn resumed(asked: Option<A2aQuestion>, nameless: u32) -> Self {
        Self { asked, nameless, resumed: true, ..Self::default() }
    }

    /// Of a call whose beginning others were told, where questions come another way.
    pub(crate) fn after_others() -> Self {
        Self::resumed(None, 0)
    }

    /// What a task that waits with this message asks.
    pub(super) fn read(&self, state: State, message: Option<&Message>) -> A2aQuestion {
        A2aQuestion::read(state, message, self.nameless)
    }

    /// What an event says. The end is the last.
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

    /// What a task holds that was not told yet.
    pub(super) fn translate_task(&mut self, task: &TaskView) -> Vec<CallEvent> {
        let ended = task.state.is_terminal();
        let mut happened: Vec<_> =
            task.artifacts.iter().filter_map(|artifact| self.artifact(artifact, ended)).collect();
        self.unsure = false;
        happened.extend(self.status(task.state, task.message.as_ref()));
        happened
    }

    /// Whether any artifact was told.
    pub(super) fn has_artifacts(&self) -> bool {
        !self.artifacts.is_empty()
    }

    /// That question is answered.
    pub(super) fn mark_answered(&mut self, question: &str) {
        self.was_nameless = self.asked.take().is_some_and(|asked| asked.nameless);
        self.answered = Some(question.to_owned());
    }

    /// Whether the task still waits for what was answered.
    pub(super) fn waits_still(&self, task: &TaskView) -> bool {
        let waits_for = || self.read(task.state, task.message.as_ref()).question.id;
        task.state.is_interrupted() && self.answered == Some(waits_for())
    }

    /// That question could not be answered after all.
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
            ..whole_artifact(&artifact.id, artifact.parts.clone())
        }))
    }

    fn chunk(&mut self, chunk: &ArtifactChunk) -> Option<CallEvent> {
        if chunk.append && self.unsure {
            return None;
        }
        // What appends to nothing begins it.
        let begun = self.artifacts.contains_key(&chunk.id);
        let append = chunk.append && (begun || self.resumed);
        let now = (!append).then(|| content(&chunk.parts, chunk.last));
        self.artifacts.insert(chunk.id.clone(), now);
        Some(CallEvent::Artifact(ArtifactChunk { append, ..chunk.clone() }))
    }

    fn status(&mut self, state: State, message: Option<&Message>) -> Vec<CallEvent> {
        if let Some(line) = message.and_then(log_line) {
            // It says nothing about where the task stands.
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

    /// Words on the way: figures where a Nuncio agent says them.
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

/// The log line that a message is (`LOG_EXTENSION`).
fn log_line(message: &Message) -> Option<LogLine> {
    let level = serde_json::from_value(message.data()?.get("log")?.clone()).ok()?;
    Some(LogLine { level, text: message.joined_text() })
}

fn content(parts: &[Part], last: bool) -> String {
    let json = serde_json::to_string(parts).unwrap_or_default();
    digest(&[&json, if last { "last" } else { "" }])
}
