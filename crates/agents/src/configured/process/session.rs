//! The conversation with one process of a program, from the input to the end.
//!
//! What it says goes to the task's context, which knows what was said and done before: a step that is done is not
//! run again, a question that is answered is not put again. So a program that was started again from the top comes
//! to where it was.

use std::{future::Future, time::Duration};

use nuncio_engine::{AgentError, Message, Outcome, StepContext, TaskContext};
use serde_json::{Value, json};

use super::{
    super::protocol::{self, ProgramMessage, ProgramReply, ReportTarget},
    program::{AgentProcess, ProcessInputCapacity, describe},
    slots::ProcessSlot,
};

/// How a conversation ended.
pub(super) enum ProcessSessionEnd {
    /// With these words.
    With(Outcome),
    /// The program ended without a word; why.
    Crashed(String),
    /// The program ended of its own will, and without a word: once more would be the same.
    Silent(String),
    /// The task is to end, and the program has not been told.
    Canceled,
}

/// A conversation.
pub(super) struct ProcessSession<'a> {
    pub(super) cx: &'a TaskContext,
    pub(super) program: &'a mut AgentProcess,
    slot: &'a mut ProcessSlot,
    written: Vec<String>,
    /// Whether it takes messages of the caller while it works, and how many it was given.
    listens: bool,
    given: u64,
}

/// What comes next.
enum ProcessSessionInput {
    Said(ProgramMessage),
    Ended(ProcessSessionEnd),
}

impl<'a> ProcessSession<'a> {
    pub(super) fn new(cx: &'a TaskContext, program: &'a mut AgentProcess, slot: &'a mut ProcessSlot) -> Self {
        Self { cx, program, slot, written: vec![], listens: false, given: 0 }
    }

    /// Listens and answers until it is over.
    pub(super) async fn run(&mut self) -> Result<ProcessSessionEnd, AgentError> {
        loop {
            let said = match self.next().await? {
                ProcessSessionInput::Said(said) => said,
                ProcessSessionInput::Ended(ended) => return Ok(ended),
            };
            let Some(said) = ReportTarget::Task(self.cx).pass_on(said, &mut self.written).await? else {
                continue;
            };
            if let Some(outcome) = protocol::outcome(&said) {
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

    /// The next thing that it says. Meanwhile it is given what the caller says.
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
            Some(said) => Ok(ProcessSessionInput::Said(said)),
            None => self.silence().await.map(ProcessSessionInput::Ended),
        }
    }

    /// Gives it the next message of the caller, if one is due.
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

    /// Gives it what came within the step, the call or the sleep that it is about to be told the end of.
    async fn give_messages_within(&mut self) -> Result<(), AgentError> {
        while self.listens
            && let Some(message) = self.cx.next_message_within(self.given)?
        {
            self.send_message(&message).await?;
        }
        Ok(())
    }

    /// Waits for something that is done for the program. Meanwhile it is given what the caller says.
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

    /// What it means that the program prints no more.
    async fn silence(&mut self) -> Result<ProcessSessionEnd, AgentError> {
        let status = self.program.wait_for_exit().await.map_err(AgentError::failed)?;
        let why = format!("the program {} without saying that it is done", describe(status));
        Ok(match status {
            Some(status) if !status.success() => ProcessSessionEnd::Crashed(why),
            _ => ProcessSessionEnd::Silent(why),
        })
    }

    /// Does what the program waits for, and tells it.
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
                // Whoever is called may be this very agent, and need the place.
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
                    "it says that step {name:?} has ended, which was not begun, or was done before"
                )));
            }
            other => return Err(unexpected(&other, "is not expected here")),
        }
        Ok(None)
    }

    /// Asks the memory bank, in the name of whoever called. What it refuses is for the program to know.
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

    /// A step: the result of an earlier run, or the program does it now.
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
                        // Whatever is no failure leaves the step undone.
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
            // It knows what it said itself.
            Ok(_) | Err(AgentError::Failed(_)) if ran => {}
            Ok(result) => self.program.send(&ProgramReply::DoneBefore { name, result }).await?,
            Err(AgentError::Failed(error)) => {
                self.program.send(&ProgramReply::FailedBefore { name, error }).await?
            }
            Err(error) => return Err(error),
        }
        Ok(None)
    }

    /// Listens while a step goes on: how it ended, or how the program did.
    async fn within(
        &mut self,
        name: &str,
        step: &StepContext,
    ) -> Result<Result<Result<Value, String>, ProcessSessionEnd>, AgentError> {
        loop {
            let said = match self.next().await? {
                ProcessSessionInput::Said(said) => said,
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

    /// Tells the program that the task is to end, and waits for what it says to that: for so long by itself, then
    /// it is asked to end as any process is. Whoever waits no longer drops it, and it is killed.
    pub(super) async fn cancel(&mut self, grace: Duration) -> Outcome {
        let words = async {
            self.program.send(&ProgramReply::Cancel).await.ok()?;
            loop {
                let said = self.program.next_message().await.ok()??;
                if let Some(outcome) = protocol::outcome(&said) {
                    return Some(outcome);
                }
            }
        };
        let outcome = tokio::time::timeout(grace, words).await;
        match outcome {
            // Not everything that it made is kept, so that would be no end to rely on.
            Ok(Some(Outcome::Completed(message))) => {
                return Outcome::Canceled(message.map(|message| message.joined_text()));
            }
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

/// Waits for a message of the caller that the program is to be given now, and for room to tell it.
async fn message_due(cx: &TaskContext, room: &ProcessInputCapacity, given: u64) {
    cx.wait_for_message(given).await;
    room.wait().await;
}

fn unexpected(said: &ProgramMessage, why: &str) -> AgentError {
    AgentError::Misuse(format!("{:?} {why}", said.type_name()))
}
