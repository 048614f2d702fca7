//! The questions of runs: which one is asked, whether it is still open, and where its answer goes. How one is asked is in
//! `crate::questions`; a text that a model or the user writes is in `sampling.rs`. Ctrl+C leaves a question open and
//! detaches from the run.

use nuncio_engine::{
    Answer,
    question::{Ask, Question},
};
use serde_json::json;

use super::{
    complete::Vocabulary,
    input::{LineInput, LineRequest},
    line_renderer::{RunEvent, RunLabel, ScreenItem, details},
    session::{ChatSession, harmless},
};
use crate::{
    form::PromptField,
    questions::{self, QuestionTerminal, TypedLine},
    text::plain,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChatQuestionOutcome {
    /// It was answered, or needs no answer any more.
    Done,
    /// It stays open: the user does not want to answer now, or there is no user.
    Left,
}

impl ChatSession {
    /// Asks one question, and sends the answer.
    pub(super) async fn ask(&mut self, run: u32, question: &Question) -> ChatQuestionOutcome {
        let Some(who) = self.runs.get(&run).map(|run| run.label.clone()) else {
            self.questions.retain(|(asking, _)| *asking != run);
            return ChatQuestionOutcome::Done;
        };
        let answer = match &question.ask {
            Ask::Sample { system, max_tokens } => {
                self.ask_sample(&who, question, system.as_deref(), *max_tokens).await
            }
            Ask::Form { .. } | Ask::Authorization { .. } => questions::ask(self, question).await,
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

    /// The run whose question is on the screen, and its task.
    fn asking_run(&self) -> Option<(RunLabel, Option<String>)> {
        let run = self.runs.get(&self.asking.as_ref()?.0)?;
        Some((run.label.clone(), run.task.clone()))
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
}

impl QuestionTerminal for ChatSession {
    async fn read_line(&mut self, prompt: String, choices: Vec<String>) -> TypedLine {
        let vocabulary = match choices.is_empty() {
            true => Vocabulary::None,
            false => Vocabulary::Choices(harmless(choices)),
        };
        match self.read(LineRequest { prompt, vocabulary, ..LineRequest::default() }).await {
            LineInput::Line(line) if self.is_question_closed() => {
                if !line.trim().is_empty() && self.screen.is_terminal() {
                    self.show_remark("not sent: what it was typed for needs no answer any more");
                }
                TypedLine::Left
            }
            LineInput::Line(line) => TypedLine::Line(line),
            LineInput::Interrupted | LineInput::End => TypedLine::Left,
        }
    }

    fn show_wrong(&mut self, text: &str) {
        self.screen.show(&ScreenItem::Wrong(text), true);
    }

    fn show_note(&mut self, text: &str) {
        self.screen.show(&ScreenItem::Remark(text), true);
    }

    fn show_details(&mut self, question: &Question) {
        let Some((who, task)) = self.asking_run() else { return };
        let data = json!({ "event": "details", "run": who.run, "task": task, "question": question });
        let text = details(&who, task.as_deref(), question);
        self.screen.show(&ScreenItem::Answer { text, data }, true);
    }

    fn show_link(&mut self, host: &str, url: &str) {
        let Some((who, _)) = self.asking_run() else { return };
        let text = format!("  Host: {}\n  Link: {}", plain(host), plain(url));
        let data = json!({ "event": "link", "run": who.run, "host": host, "url": url });
        self.screen.show(&ScreenItem::Answer { text, data }, true);
    }
}
