//! Calls of other agents: waits for the called task, and relays its questions to this task's caller.
//!
//! A call is identified by its position, so a run that starts from the top waits for the same task. While the
//! called task asks a question, this one may be parked too.

use std::future::Future;

use futures_util::{
    FutureExt as _,
    future::{BoxFuture, pending},
};

use super::{BarrierGuard, TaskContext};
use crate::{
    agent::AgentError,
    clock::Timestamp,
    commands::{child_questions::child_question_id, submit::Submit},
    content::Message,
    error::Error,
    event::Event,
    journal::JournalEntry,
    question::{Question, QuestionOutcome},
    task::{State, Task, TaskId},
};

/// A future that may complete while a called task works. It yields the work to do before that task is canceled.
pub(crate) type CancelTrigger<'a> = BoxFuture<'a, BoxFuture<'a, ()>>;

/// A call in progress, for callers that hold a resource which they release while the called task asks. Others use
/// [`TaskContext::call`].
pub struct Call<'a> {
    cx: &'a TaskContext,
    at: String,
    submit: Submit,
    /// The deadline after which the called task is canceled.
    until: Option<Timestamp>,
    /// Another reason to cancel it.
    unless: Option<CancelTrigger<'a>>,
    /// The question that the called task had open when it was last read.
    asks: Option<(TaskId, Question)>,
    _occupied: BarrierGuard<'a>,
}

impl TaskContext {
    /// Calls another agent of this server, as a task of its own, and waits for its end. Its questions are relayed
    /// to this task's caller. Canceling this task cancels the called one. The call is made in the caller's name:
    /// if the caller may not send to that agent, the call is refused.
    pub async fn call(&self, agent: &str, input: Message) -> Result<Task, AgentError> {
        self.begin_call(agent, input)?.run_to_end().await
    }

    /// Like [`TaskContext::call`], for a fixed part of a composition: the agent's author chose the called agent,
    /// and a caller that may send to the whole needs no grant for its parts. Never use it for a name from the
    /// request.
    pub async fn call_wired(&self, agent: &str, input: Message) -> Result<Task, AgentError> {
        let call = self.begin_call(agent, input)?;
        Call { submit: call.submit.clone().wired(), ..call }.run_to_end().await
    }

    /// Like [`TaskContext::call`], with a deadline at which the called task is canceled. A refusal is journaled
    /// like an end. The deadline must be the same after a restart: take it from a step.
    pub async fn call_until(
        &self,
        agent: &str,
        input: Message,
        until: Option<Timestamp>,
    ) -> Result<CallResult, AgentError> {
        self.call_unless(agent, input, until, pending()).await
    }

    /// Like [`TaskContext::call_until`]; the called task is also canceled when `happens` completes while it
    /// works. The work that the future yields is run to its end first. A caller that must know after a restart
    /// why the task was canceled journals the reason there, in a step of another scope.
    pub async fn call_unless<'a>(
        &'a self,
        agent: &str,
        input: Message,
        until: Option<Timestamp>,
        happens: impl Future<Output = BoxFuture<'a, ()>> + Send + 'a,
    ) -> Result<CallResult, AgentError> {
        let mut call = Call { until, unless: Some(happens.boxed()), ..self.begin_call(agent, input)? };
        let (ended, replayed) = match call.replayed()? {
            Some(ended) => (ended.map(|task| *task), true),
            None => (call.end().await?, false),
        };
        let end = match ended {
            // Decided by the task alone, so that it is the same after a crash between the two commits.
            Ok(task)
                if task.state == State::Canceled && until.is_some_and(|until| task.status_at >= until) =>
            {
                CallEnd::Late(task)
            }
            Ok(task) => CallEnd::Ended(task),
            Err(why) => CallEnd::Refused(why),
        };
        Ok(CallResult { end, replayed })
    }

    /// A call in pieces: [`Call::end_or_question`] until there is an end, and after each question
    /// [`Call::relay_question`].
    pub fn begin_call(&self, agent: &str, mut input: Message) -> Result<Call<'_>, AgentError> {
        let (at, occupied) = self.next_barrier()?;
        // Identified by its position, so that a replayed call is the same call.
        input.id = format!("{}{at}", self.run.origin.id);
        let submit = Submit::child(&self.run, agent, input, &at);
        Ok(Call { cx: self, at, submit, until: None, unless: None, asks: None, _occupied: occupied })
    }
}

impl Call<'_> {
    async fn run_to_end(mut self) -> Result<Task, AgentError> {
        loop {
            if let Some(task) = self.end_or_question().await? {
                return Ok(task);
            }
            self.relay_question().await?;
        }
    }

    /// Waits until the called task ends, and returns it, or until it asks a question, and returns `None`.
    pub async fn end_or_question(&mut self) -> Result<Option<Task>, AgentError> {
        match self.replayed()? {
            Some(Ok(task)) => Ok(Some(*task)),
            Some(Err(why)) => Err(AgentError::Failed(why)),
            None => self.poll_child().await?.map_err(AgentError::failed),
        }
    }

    /// How the call ended before a restart.
    fn replayed(&self) -> Result<Option<Result<Box<Task>, String>>, AgentError> {
        self.cx.run.replayed(|replay| replay.called(&self.at, &self.submit.agent))
    }

    /// Waits for the end. The inner error is the reason of a refusal, which is journaled.
    async fn end(&mut self) -> Result<Result<Task, String>, AgentError> {
        loop {
            match self.poll_child().await? {
                Ok(Some(task)) => return Ok(Ok(task)),
                Ok(None) => self.relay_question().await?,
                Err(error) => {
                    let (at, agent, why) = (self.at.clone(), self.submit.agent.clone(), error.to_string());
                    self.cx.run.record(JournalEntry::Refused { at, agent, why: why.clone() }, None).await?;
                    return Ok(Err(why));
                }
            }
        }
    }

    /// Waits for the end or a question, and journals the end. The inner error: the call was refused, which is not
    /// journaled here.
    async fn poll_child(&mut self) -> Result<Result<Option<Task>, Error>, AgentError> {
        let (run, at, agent) = (&self.cx.run, &self.at, &self.submit.agent);
        self.cx.wait_until_effects_allowed().await;
        let calling = run.calling();
        let task = match run.engine.call(&self.submit, self.until, &mut self.unless).await {
            Ok(task) => task,
            Err(Error::KeyReused) => {
                return Err(AgentError::Nondeterministic(format!(
                    "at {at:?} it called with other words than before the restart"
                )));
            }
            // A task that was not created yet is not created after a cancel.
            Err(_) if run.is_canceled() => return Err(AgentError::Canceled),
            // The call was not made: the next runner of this task makes it.
            Err(_) if run.engine.is_closing() => std::future::pending().await,
            Err(error @ Error::Internal(_)) => return Err(AgentError::failed(error)),
            Err(error) => return Ok(Err(error)),
        };
        if run.is_canceled() {
            return Err(AgentError::Canceled);
        }
        if let Some((_, question)) = task.questions.first().filter(|_| !task.state.is_terminal()) {
            self.asks = Some((task.origin.id, question.clone()));
            return Ok(Ok(None));
        }
        // Relayed before a restart, and answered at the called task since: nothing else closes it here.
        let relayed = format!("{}.", task.origin.id);
        for question in run.open_questions().into_iter().filter(|open| open.starts_with(&relayed)) {
            let withdrawn = run.engine.withdraw_question(&run.caller(), run.origin.id, &question).await;
            // It is closed at the latest when this task ends.
            if let Err(error) = withdrawn {
                tracing::warn!(task = %run.origin.id, %error, "could not withdraw a question that has its answer");
            }
        }
        // No need to wait for this write: until it is durable, the same call finds the same task, which has
        // ended.
        let record =
            JournalEntry::Called { at: at.clone(), agent: agent.clone(), task: Box::new(task.clone()) };
        self.cx.note(record)?;
        drop(calling);
        Ok(Ok(Some(task)))
    }

    /// Relays the called task's question to this task's caller, and the answer back. Waiting for a person is not
    /// work: this task may be parked like the called one.
    pub async fn relay_question(&mut self) -> Result<(), AgentError> {
        let Some((called, question)) = self.asks.take() else { return Ok(()) };
        let run = &self.cx.run;
        let id = child_question_id(called, &question.id);
        if !run.replayed(|replay| replay.asked(&id, &question.text))? {
            let passed = Question { id: id.clone(), ..question.clone() };
            let record = JournalEntry::Asked { at: id.clone(), text: question.text.clone(), emitted: None };
            run.record(record, Some(Event::Question(passed))).await?;
        }
        let (engine, caller) = (&run.engine, run.caller());
        let busy = run.busy();
        engine
            .withdraw_if_not_asked(&caller, run.origin.id, called, &question)
            .await
            .map_err(AgentError::failed)?;
        drop(busy);
        let outcome = tokio::select! {
            biased;
            outcome = run.wait_for_outcome_until(&id, &self.cx.scope, self.until) => outcome,
            () = run.canceled() => return Err(AgentError::Canceled),
        };
        // The deadline has passed: the task is canceled at its next poll. Or the called task has withdrawn its
        // question.
        let Some(QuestionOutcome::Answered(answer)) = outcome else { return Ok(()) };
        let _busy = run.busy();
        loop {
            match engine.answer_child(&caller, called, &question, &answer).await {
                Ok(()) => return Ok(()),
                Err(Error::Busy { retry_after, .. }) => tokio::time::sleep(retry_after).await,
                Err(error) => return Err(AgentError::failed(error)),
            }
        }
    }
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct CallResult {
    /// How the call ended, with the called task.
    pub end: CallEnd,
    /// Whether it had ended before this run began.
    pub replayed: bool,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq)]
pub enum CallEnd {
    /// The called task ended by itself, in any terminal state.
    Ended(Task),
    /// The call's deadline passed, and the called task was canceled.
    Late(Task),
    /// The task was not created, for this reason.
    Refused(String),
}
