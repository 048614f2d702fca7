//! Calling another agent: the called task is waited for, and what it asks is asked here.
//!
//! A call is found again by its place, so a run that starts from the top waits for the same task. While that one asks
//! something, this one may be parked as well.

use super::{Occupied, TaskContext};
use crate::{
    agent::AgentError,
    commands::{pass_on::passed_on, submit::Submit},
    content::Message,
    error::Error,
    event::Event,
    journal::Record,
    question::Question,
    task::{Task, TaskId},
};

/// A call under way, for callers that hold something which they give back while the called task asks. Others use
/// [`TaskContext::call`].
pub struct Call<'a> {
    cx: &'a TaskContext,
    at: String,
    submit: Submit,
    /// What the called task asked when it was last looked at.
    asks: Option<(TaskId, Question)>,
    _occupied: Occupied<'a>,
}

impl TaskContext {
    /// Gives a piece of work to another agent of this server, as a task of its own, and waits for its end.
    /// What that one asks is asked here. When this task is canceled, so is that one.
    pub async fn call(&self, agent: &str, input: Message) -> Result<Task, AgentError> {
        let mut call = self.begin_call(agent, input)?;
        loop {
            if let Some(task) = call.end_or_question().await? {
                return Ok(task);
            }
            call.pass_on().await?;
        }
    }

    /// The same call, in pieces: [`Call::end_or_question`] until there is an end, and after each question
    /// [`Call::pass_on`].
    pub fn begin_call(&self, agent: &str, mut input: Message) -> Result<Call<'_>, AgentError> {
        let (at, occupied) = self.place()?;
        // Named by its place, so that a replayed call is the same call.
        input.id = format!("{}{at}", self.run.origin.id);
        let submit = Submit::child(&self.run, agent, input, &at);
        Ok(Call { cx: self, at, submit, asks: None, _occupied: occupied })
    }
}

impl Call<'_> {
    /// Waits until the called task has ended, and returns it; or until it asks something, and returns nothing.
    pub async fn end_or_question(&mut self) -> Result<Option<Task>, AgentError> {
        let (run, at, agent) = (&self.cx.run, &self.at, &self.submit.agent);
        if let Some(task) = run.replayed(|replay| replay.called(at, agent))? {
            return Ok(Some(task));
        }
        run.born().await;
        let calling = run.calling();
        let task = run.engine.call(&self.submit).await.map_err(|error| match error {
            Error::KeyReused => AgentError::Nondeterministic(format!(
                "at {at:?} it called with other words than before the restart"
            )),
            error => AgentError::failed(error),
        })?;
        if run.is_canceled() {
            return Err(AgentError::Canceled);
        }
        if let Some((_, question)) = task.questions.first().filter(|_| !task.state.is_terminal()) {
            self.asks = Some((task.origin.id, question.clone()));
            return Ok(None);
        }
        let record = Record::Called { at: at.clone(), agent: agent.clone(), task: Box::new(task.clone()) };
        run.record(record, None).await?;
        drop(calling);
        Ok(Some(task))
    }

    /// Asks what the called task asks, and answers it there. Waiting for a person is not work: this task may be
    /// parked as that one is.
    pub async fn pass_on(&mut self) -> Result<(), AgentError> {
        let Some((called, question)) = self.asks.take() else { return Ok(()) };
        let run = &self.cx.run;
        let id = passed_on(called, &question.id);
        if !run.replayed(|replay| replay.asked(&id, &question.text))? {
            let passed = Question { id: id.clone(), ..question.clone() };
            let record = Record::Asked { at: id.clone(), text: question.text.clone() };
            run.record(record, Some(Event::Question(passed))).await?;
        }
        let (engine, caller) = (&run.engine, run.caller());
        let busy = run.busy();
        engine.still_asked(&caller, run.origin.id, called, &question).await.map_err(AgentError::failed)?;
        drop(busy);
        let answer = tokio::select! {
            biased;
            answer = run.answer(&id, &self.cx.scope) => answer,
            () = run.canceled() => return Err(AgentError::Canceled),
        };
        let _busy = run.busy();
        loop {
            match engine.answer_called(&caller, called, &question, &answer).await {
                Ok(()) => return Ok(()),
                Err(Error::Busy { retry_after, .. }) => tokio::time::sleep(retry_after).await,
                Err(error) => return Err(AgentError::failed(error)),
            }
        }
    }
}
