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

use super::question::{Asked, digest};
use crate::peer::{Ended, Happened, RESULT, whole};

/// What was told of a call.
#[derive(Default)]
pub(crate) struct Told {
    /// What is there of each artifact, by a digest; `None` where that is not known.
    artifacts: HashMap<String, Option<String>>,
    /// Whether others were told what came before, so that pieces may follow what is not known here.
    resumed: bool,
    /// The words that were told last.
    words: Option<String>,
    /// The question that is open.
    pub(super) asked: Option<Asked>,
    /// A question that was answered from here: it is not open, whatever an older view says.
    answered: Option<String>,
    /// Whether that one had no name: then the next in the same words is another.
    was_nameless: bool,
    /// How many questions without names are over.
    pub(super) nameless: u32,
    /// Whether a cut may have swallowed pieces of artifacts: only whole ones are told until they were seen.
    pub(super) unsure: bool,
}

impl Told {
    /// Of a call that was begun elsewhere, in which that question is open, after so many without names.
    pub(super) fn resumed(asked: Option<Asked>, nameless: u32) -> Self {
        Self { asked, nameless, resumed: true, ..Self::default() }
    }

    /// Of a call whose beginning others were told, where questions come another way.
    pub(crate) fn after_others() -> Self {
        Self::resumed(None, 0)
    }

    /// What a task that waits with this message asks.
    pub(super) fn read(&self, state: State, message: Option<&Message>) -> Asked {
        Asked::read(state, message, self.nameless)
    }

    /// What an event says. The end is the last.
    pub(crate) fn event(&mut self, event: &StreamEvent) -> Vec<Happened> {
        match event {
            StreamEvent::Task(task) => self.task(task),
            StreamEvent::Message(said) => {
                let result = whole(RESULT, said.message.parts.clone());
                vec![Happened::Artifact(result), Happened::Ended(Ended::completed())]
            }
            StreamEvent::Status(StatusUpdate { state, message, .. }) => self.status(*state, message.as_ref()),
            StreamEvent::Artifact(update) => self.chunk(&update.chunk).into_iter().collect(),
        }
    }

    /// What a task holds that was not told yet.
    pub(super) fn task(&mut self, task: &TaskView) -> Vec<Happened> {
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
    pub(super) fn settle(&mut self, question: &str) {
        self.was_nameless = self.asked.take().is_some_and(|asked| asked.nameless);
        self.answered = Some(question.to_owned());
    }

    /// Whether the task still waits for what was answered.
    pub(super) fn waits_still(&self, task: &TaskView) -> bool {
        let waits_for = || self.read(task.state, task.message.as_ref()).question.id;
        task.state.is_interrupted() && self.answered == Some(waits_for())
    }

    /// That question could not be answered after all.
    pub(super) fn reopen(&mut self, asked: Asked) {
        self.asked = Some(asked);
        (self.answered, self.was_nameless) = (None, false);
    }

    fn artifact(&mut self, artifact: &Artifact, ended: bool) -> Option<Happened> {
        let last = ended || artifact.complete;
        let now = content(&artifact.parts, last);
        if self.artifacts.get(&artifact.id).is_some_and(|told| told.as_ref() == Some(&now)) {
            return None;
        }
        self.artifacts.insert(artifact.id.clone(), Some(now));
        Some(Happened::Artifact(ArtifactChunk {
            last,
            name: artifact.name.clone(),
            description: artifact.description.clone(),
            metadata: artifact.metadata.clone(),
            extensions: artifact.extensions.clone(),
            ..whole(&artifact.id, artifact.parts.clone())
        }))
    }

    fn chunk(&mut self, chunk: &ArtifactChunk) -> Option<Happened> {
        if chunk.append && self.unsure {
            return None;
        }
        // What appends to nothing begins it.
        let begun = self.artifacts.contains_key(&chunk.id);
        let append = chunk.append && (begun || self.resumed);
        let now = (!append).then(|| content(&chunk.parts, chunk.last));
        self.artifacts.insert(chunk.id.clone(), now);
        Some(Happened::Artifact(ArtifactChunk { append, ..chunk.clone() }))
    }

    fn status(&mut self, state: State, message: Option<&Message>) -> Vec<Happened> {
        if let Some(line) = message.and_then(log_line) {
            // It says nothing about where the task stands.
            return vec![Happened::Log(line)];
        }
        if state.is_interrupted() {
            let asked = self.read(state, message);
            let known = self.asked.as_ref().is_some_and(|open| open.question.id == asked.question.id);
            if known || self.answered.as_ref() == Some(&asked.question.id) {
                return vec![];
            }
            let question = asked.question.clone();
            let before = self.asked.replace(asked);
            let settled = before.map(|asked| Happened::Settled(asked.question.id));
            return settled.into_iter().chain([Happened::Asks(question)]).collect();
        }
        let settled = self.asked.take();
        if std::mem::take(&mut self.was_nameless) || settled.as_ref().is_some_and(|asked| asked.nameless) {
            (self.answered, self.nameless) = (None, self.nameless.saturating_add(1));
        }
        let mut happened: Vec<_> =
            settled.map(|asked| Happened::Settled(asked.question.id)).into_iter().collect();
        if state.is_terminal() {
            happened.push(Happened::Ended(Ended { state, message: message.cloned() }));
        } else if let Some(message) = message {
            happened.extend(self.word(message));
        }
        happened
    }

    /// Words on the way: figures where a Nuncio agent says them.
    fn word(&mut self, message: &Message) -> Option<Happened> {
        let known = if message.id.is_empty() { content(&message.parts, false) } else { message.id.clone() };
        if self.words.as_ref() == Some(&known) {
            return None;
        }
        self.words = Some(known);
        let Some(done) = message.data().and_then(|data| data["progress"].as_f64()) else {
            return Some(Happened::Said(message.clone()));
        };
        let text = message.joined_text();
        Some(Happened::Progress(Progress {
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
