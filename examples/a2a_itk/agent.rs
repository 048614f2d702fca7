//! The agent: reads the instruction in a message, follows it, and responds with what it gathered.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use nuncio::prelude::*;

use super::{
    call,
    instruction::{CallInstruction, Instruction},
};

/// How long a held task works before it completes by itself.
const HELD: Duration = Duration::from_secs(10);
/// Says that a held task has responded.
pub(crate) const FINISHED: &str = "task-finished";

pub(crate) struct ItkAgent;

#[async_trait]
impl Agent for ItkAgent {
    fn profile(&self) -> Profile {
        let mut profile = Profile::new("itk", "Follows the instructions of the A2A integration test kit.");
        profile.input_modes = vec!["application/x-protobuf".into(), "text/plain".into()];
        profile
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        let Some(instruction) = cx.input().parts.iter().find_map(read_instruction) else {
            return Ok(Outcome::failed("no valid instruction found in request"));
        };
        let (mut response, mut calls) = (vec![], 0);
        let mut ahead = vec![&instruction];
        while let Some(next) = ahead.pop() {
            match next {
                Instruction::Respond { text, .. } => response.push(text.clone()),
                Instruction::Series(steps) => ahead.extend(steps.iter().rev()),
                Instruction::Call(call) => {
                    calls += 1;
                    response.extend(call_agent(&cx, call, calls).await?);
                }
            }
        }
        let mut response = response.join("\n");
        if instruction.holds() {
            response = format!("{response}\n{FINISHED}");
            cx.progress(0.0, None, &response).await?;
            cx.sleep(HELD).await?;
        }
        Ok(Outcome::said(response))
    }
}

/// Calls the next agent, once: after a restart, its response is what it was.
async fn call_agent(
    cx: &TaskContext,
    instruction: &CallInstruction,
    number: usize,
) -> Result<Vec<String>, AgentError> {
    let name = format!("call {} over {}", instruction.card_uri, instruction.transport);
    cx.step(&name, async |_| {
        let called = call::call(instruction, format!("{}-{number}", cx.task_id())).await;
        called.map_err(|error| {
            AgentError::failed(format!("the call of {} failed: {error}", instruction.card_uri))
        })
    })
    .await
}

/// The instruction in a part: bytes, or base64 in a text. Clients of a2a-sdk 0.3 for Python send base64 as bytes.
fn read_instruction(part: &Part) -> Option<Instruction> {
    let from_base64 = |text: &[u8]| Instruction::decode(&BASE64_STANDARD.decode(text.trim_ascii()).ok()?);
    match &part.content {
        Content::Bytes(bytes) => Instruction::decode(bytes).or_else(|| from_base64(bytes)),
        Content::Text(text) => from_base64(text.as_bytes()),
        Content::Url(_) | Content::Data(_) => None,
    }
}
