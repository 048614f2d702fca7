//! The protocol session with one process of a program, from the input to the end.
//!
//! The program's messages go to the task's context, which has recorded what happened before: a completed
//! step does not run again, an answered question is not asked again. So a program that is restarted from the
//! top gets to where it was.

use std::{future::Future, time::Duration};

use nuncio_engine::{AgentError, Message, Outcome, StepContext, TaskContext};
use serde_json::{Value, json};

use super::{
    super::protocol::{self, ProgramMessage, ProgramReply, ReportTarget},
    program::{AgentProcess, ProcessInputCapacity, describe},
    slots::ProcessSlot,
};

/// How a session ended.
pub(super) enum ProcessSessionEnd {
    /// With this outcome.
    With(Outcome),
    /// The program exited without a final message; why.
    Crashed(String),
    /// The program exited successfully but without a final message: a restart would do the same.
    Silent(String),
    /// The task is canceled, and the program has not received that yet.
    Canceled,
}

/// The session with one process.
pub(super) struct ProcessSession<'a> {
    pub(super) cx: &'a TaskContext,
    pub(super) program: &'a mut AgentProcess,
    slot: &'a mut ProcessSlot,
    written: Vec<String>,
    /// Whether the program accepts messages of the caller while it works, and how many it has received.
    listens: bool,
    given: u64,
}

/// The next input of a session.
enum ProcessSessionInput {
    Said(Box<ProgramMessage>),
    Ended(ProcessSessionEnd),
}

impl<'a> ProcessSession<'a> {
    pub(super) fn new(cx: &'a TaskContext, program: &'a mut AgentProcess, slot: &'a mut ProcessSlot) -> Self {
        Self { cx, program, slot, written: vec![], listens: false, given: 0 }
    }

    /// Handles the program's messages until the session ends.
    pub(super) async fn run(&mut self) -> Result<ProcessSessionEnd, AgentError> {
        loop {
            let said = match self.next().await? {
                ProcessSessionInput::Said(said) => *said,
                ProcessSessionInput::Ended(ended) => return Ok(ended),
            };
            let Some(said) = ReportTarget::Task(self.cx).pass_on(said, &mut self.written).await? else {
                continue;
            };
            if let Some(outcome) = protocol::outcome(&said)? {
                if let ProgramMessage::Done { data: Some(data), .. } = said {
                    ReportTarget::Task(self.cx).result(data).await?;
                }
                return Ok(ProcessSessionEnd::With(outcome));
            }
            if let Some(ended) = self.handle_message(said).await? {
                return Ok(ended);
            }
        }
    }

    /// The next message of the program. Meanwhile the program receives the caller's messages.
    async fn next(&mut self) -> Result<ProcessSessionInput, AgentError> {
        let said = loop {
            let room = self.program.room();
            tokio::select! {
                biased;
                () = self.cx.canceled() => return Ok(ProcessSessionInput::Ended(ProcessSessionEnd::Canceled)),
                () = message_due(self.cx, &room, self.given), if self.listens => self.give_message().await?,
                said = self.program.next_message() => match said? {
                    Some(ProgramMessage::Listen) => {
                        self.listens = true;
                        self.cx.receive_messages();
                        self.cx.wait_for_messages().await;
                    }
                    said => break said,
                },
            }
        };
        match said {
            Some(said) => Ok(ProcessSessionInput::Said(Box::new(said))),
            None => self.silence().await.map(ProcessSessionInput::Ended),
        }
    }

    /// Sends the next message of the caller to the program, if one is due.
    async fn give_message(&mut self) -> Result<(), AgentError> {
        match self.cx.next_message(self.given)? {
            Some(message) => self.send_message(&message).await,
            None => Ok(()),
        }
    }

    async fn send_message(&mut self, message: &Message) -> Result<(), AgentError> {
        self.given += 1;
        self.program.send(&ProgramReply::Message(protocol::caller_message(message, self.given))).await
    }

    /// Sends the messages that arrived during the step, the call or the sleep whose end the program is about
    /// to receive.
    async fn give_messages_within(&mut self) -> Result<(), AgentError> {
        while self.listens
            && let Some(message) = self.cx.next_message_within(self.given)?
        {
            self.send_message(&message).await?;
        }
        Ok(())
    }

    /// Waits for an operation on behalf of the program. Meanwhile the program receives the caller's
    /// messages.
    async fn await_with_messages<T>(
        &mut self,
        work: impl Future<Output = Result<T, AgentError>>,
    ) -> Result<T, AgentError> {
        let mut work = std::pin::pin!(work);
        let result = loop {
            let room = self.program.room();
            tokio::select! {
                biased;
                result = &mut work => break result?,
                () = message_due(self.cx, &room, self.given), if self.listens => self.give_message().await?,
            }
        };
        self.give_messages_within().await?;
        Ok(result)
    }

    /// How the session ends when the program's output has ended.
    async fn silence(&mut self) -> Result<ProcessSessionEnd, AgentError> {
        let status = self.program.wait_for_exit().await.map_err(AgentError::failed)?;
        let why = format!("the program {} without saying that it is done", describe(status));
        Ok(match status {
            Some(status) if !status.success() => ProcessSessionEnd::Crashed(why),
            _ => ProcessSessionEnd::Silent(why),
        })
    }

    /// Performs an operation for the program and sends it the result.
    async fn handle_message(
        &mut self,
        said: ProgramMessage,
    ) -> Result<Option<ProcessSessionEnd>, AgentError> {
        let cx = self.cx;
        match said {
            ProgramMessage::Step { name } => return self.step(&name).await,
            ProgramMessage::Ask { text, schema } => {
                let answer = cx.ask(text, protocol::form(schema)).await?;
                self.program.send(&ProgramReply::Answer(protocol::render_answer(&answer))).await?;
            }
            ProgramMessage::Sample { text, system, max_tokens } => {
                let answer = cx.sample(text, system, protocol::sample_tokens(max_tokens)).await?;
                self.program.send(&ProgramReply::Answer(protocol::render_answer(&answer))).await?;
            }
            ProgramMessage::Authorize { text, url } => {
                let answer = cx.authorize(text, url).await?;
                self.program.send(&ProgramReply::Answer(protocol::render_answer(&answer))).await?;
            }
            ProgramMessage::Call { agent, text, data } => {
                // The called agent may be this one, and need the slot.
                self.slot.release();
                let task = self.await_with_messages(cx.call(&agent, protocol::message(text, data))).await?;
                self.slot.reacquire(cx).await?;
                self.program.send(&ProgramReply::Called(protocol::render_called_task(&task))).await?;
            }
            ProgramMessage::Sleep { seconds } => {
                let length = Duration::try_from_secs_f64(seconds)
                    .map_err(|error| AgentError::Misuse(format!("sleep: {seconds} seconds: {error}")))?;
                self.await_with_messages(cx.sleep(length)).await?;
                self.program.send(&ProgramReply::Awake).await?;
            }
            ProgramMessage::MemoryGet { .. }
            | ProgramMessage::MemoryStore { .. }
            | ProgramMessage::MemoryDelete { .. } => {
                let told = self.access_memory(said).await?;
                self.program.send(&ProgramReply::Memory(told)).await?;
            }
            ProgramMessage::StepDone { name, .. } | ProgramMessage::StepFailed { name, .. } => {
                return Err(AgentError::Misuse(format!(
                    "it reported the end of step {name:?}, which was not begun or had ended before"
                )));
            }
            other => return Err(unexpected(&other, "is not expected here")),
        }
        Ok(None)
    }

    /// Accesses the memory bank with the caller's permissions. A refusal is a result for the program.
    async fn access_memory(&self, said: ProgramMessage) -> Result<Value, AgentError> {
        let told = match said {
            ProgramMessage::MemoryGet { namespace, key } => {
                self.cx.memory(namespace).get(&key).await.map(|entry| match entry {
                    Some(entry) => json!({ "value": entry.value, "version": entry.version }),
                    None => json!({ "value": null, "version": 0 }),
                })
            }
            ProgramMessage::MemoryStore { namespace, key, value, ttl_seconds } => {
                let ttl = ttl_seconds.map(Duration::from_secs);
                let stored = self.cx.memory(namespace).store(&key, &value, ttl).await;
                stored.map(|version| json!({ "version": version }))
            }
            ProgramMessage::MemoryDelete { namespace, key } => {
                let deleted = self.cx.memory(namespace).delete(&key).await;
                deleted.map(|deleted| json!({ "deleted": deleted }))
            }
            other => return Err(unexpected(&other, "is nothing to remember")),
        };
        match told {
            Err(AgentError::Failed(error)) => Ok(json!({ "error": error })),
            told => told,
        }
    }

    /// A step: replays the recorded result, or lets the program do it now.
    async fn step(&mut self, name: &str) -> Result<Option<ProcessSessionEnd>, AgentError> {
        let (mut ran, mut ended) = (false, None);
        let cx = self.cx;
        let result: Result<Value, AgentError> = cx
            .step(name, async |step| {
                ran = true;
                self.program.send(&ProgramReply::Run { name, key: step.idempotency_key() }).await?;
                match self.within(name, &step).await? {
                    Ok(result) => result.map_err(AgentError::Failed),
                    Err(cut) => {
                        ended = Some(cut);
                        // Any other error leaves the step undone.
                        Err(AgentError::Canceled)
                    }
                }
            })
            .await;
        if ended.is_some() {
            return Ok(ended);
        }
        if !ran {
            self.give_messages_within().await?;
        }
        match result {
            // The program knows the result that it sent itself.
            Ok(_) | Err(AgentError::Failed(_)) if ran => {}
            Ok(result) => self.program.send(&ProgramReply::DoneBefore { name, result }).await?,
            Err(AgentError::Failed(error)) => {
                self.program.send(&ProgramReply::FailedBefore { name, error }).await?;
            }
            Err(error) => return Err(error),
        }
        Ok(None)
    }

    /// Handles messages during a step: returns how the step ended, or how the program did.
    async fn within(
        &mut self,
        name: &str,
        step: &StepContext,
    ) -> Result<Result<Result<Value, String>, ProcessSessionEnd>, AgentError> {
        loop {
            let said = match self.next().await? {
                ProcessSessionInput::Said(said) => *said,
                ProcessSessionInput::Ended(ended) => return Ok(Err(ended)),
            };
            match ReportTarget::Step(step).pass_on(said, &mut self.written).await? {
                None => {}
                Some(ProgramMessage::StepDone { name: done, result }) if done == name => {
                    return Ok(Ok(Ok(result)));
                }
                Some(ProgramMessage::StepFailed { name: failed, error }) if failed == name => {
                    return Ok(Ok(Err(error)));
                }
                Some(other) => {
                    let why =
                        format!("is not expected within step {name:?}: say step-done or step-failed first");
                    return Err(unexpected(&other, &why));
                }
            }
        }
    }

    /// Sends the cancellation to the program and waits for its reaction: for the grace period, then after
    /// SIGTERM. If the engine drops this earlier, the process is killed.
    pub(super) async fn cancel(&mut self, grace: Duration) -> Outcome {
        let words = async {
            self.program.send(&ProgramReply::Cancel).await.ok()?;
            loop {
                let said = self.program.next_message().await.ok()??;
                if let Some(outcome) = protocol::outcome(&said).ok()? {
                    return Some(outcome);
                }
            }
        };
        let outcome = tokio::time::timeout(grace, words).await;
        match outcome {
            // Some of its artifacts may not be stored, so the task does not count as completed.
            Ok(Some(Outcome::Completed(message))) => {
                return Outcome::Canceled(message.map(|message| message.joined_text()));
            }
            Ok(Some(Outcome::Replied(message))) => return Outcome::Canceled(Some(message.joined_text())),
            Ok(Some(Outcome::Failed(why) | Outcome::Rejected(why))) => return Outcome::Canceled(Some(why)),
            Ok(Some(canceled)) => return canceled,
            Ok(None) | Err(_) => {}
        }
        self.program.terminate();
        let _ = tokio::time::timeout(grace / 2, self.program.wait()).await;
        self.program.kill();
        Outcome::Canceled(None)
    }
}

/// Waits until a message of the caller is due and the program's input has capacity for it.
async fn message_due(cx: &TaskContext, room: &ProcessInputCapacity, given: u64) {
    cx.wait_for_message(given).await;
    room.wait().await;
}

fn unexpected(said: &ProgramMessage, why: &str) -> AgentError {
    AgentError::Misuse(format!("{:?} {why}", said.type_name()))
}
