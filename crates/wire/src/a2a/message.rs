//! Messages and their roles.

use nuncio_engine::content::{Message, Metadata, Role};
use serde::Deserialize;

use super::{
    Dialect, TaskIds,
    input::{EnumValue, JsonPath, MalformedInput, non_empty},
    part::{self, PartIn},
};
use crate::json;

/// Role names before 1.0, without numbers.
const PLAIN: [(Role, &str, i64); 2] = [(Role::User, "user", i64::MIN), (Role::Agent, "agent", i64::MIN)];
/// Role names and numbers of 1.0.
const PROTO: [(Role, &str, i64); 2] = [(Role::User, "ROLE_USER", 1), (Role::Agent, "ROLE_AGENT", 2)];

fn roles(dialect: Dialect) -> &'static [(Role, &'static str, i64); 2] {
    if dialect >= Dialect::V1 { &PROTO } else { &PLAIN }
}

/// Writes a message. `ids` names the task it belongs to, if known; 0.1 messages have no such member.
pub(super) fn write(out: &mut Vec<u8>, dialect: Dialect, ids: MessageIds<'_>, message: &Message) {
    let (_, role, _) = roles(dialect)[usize::from(message.role == Role::Agent)];
    json::object(out, |object| {
        if dialect == Dialect::V0_3 {
            object.value("kind", "message");
        }
        if dialect > Dialect::V0_1 {
            object.value("messageId", &message.id);
            object.optional("contextId", ids.context);
            object.optional("taskId", ids.task);
        }
        object.value("role", role);
        object.array("parts", &message.parts, |out, part| part::write(out, dialect, part));
        object.optional("metadata", message.metadata.as_ref());
        if dialect > Dialect::V0_1 {
            object.list("extensions", &message.extensions);
            object.list("referenceTaskIds", &message.reference_task_ids);
        }
    });
}

/// The ids of the task and context that a message belongs to, as far as known.
#[derive(Clone, Copy)]
pub(super) struct MessageIds<'a> {
    pub(super) task: Option<&'a str>,
    pub(super) context: Option<&'a str>,
}

impl<'a> From<TaskIds<'a>> for MessageIds<'a> {
    fn from(ids: TaskIds<'a>) -> Self {
        Self { task: Some(ids.task), context: Some(ids.context) }
    }
}

/// A message of any generation.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
pub(super) struct MessageIn<'a> {
    #[serde(alias = "message_id")]
    message_id: Option<String>,
    #[serde(alias = "context_id")]
    context_id: Option<String>,
    #[serde(alias = "task_id")]
    task_id: Option<String>,
    #[serde(borrow)]
    role: Option<EnumValue<'a>>,
    #[serde(borrow)]
    parts: Option<Vec<PartIn<'a>>>,
    metadata: Option<Metadata>,
    extensions: Option<Vec<String>>,
    #[serde(alias = "reference_task_ids")]
    reference_task_ids: Option<Vec<String>>,
}

/// A message with the task and the conversation that it names.
#[derive(Debug, Clone, PartialEq)]
pub struct AddressedMessage {
    /// The message itself.
    pub message: Message,
    /// The id of the task that it continues.
    pub task: Option<String>,
    /// The id of the conversation that it belongs to.
    pub context: Option<String>,
}

impl MessageIn<'_> {
    /// Reads the members that are present. Only requests must have an id and parts: other servers omit them.
    pub(super) fn read(self, dialect: Dialect, at: JsonPath<'_>) -> Result<AddressedMessage, MalformedInput> {
        let role = at.required("role", self.role)?;
        let table = roles(dialect);
        let role = role.find(table).ok_or_else(|| {
            at.member("role").malformed(format!("expected {:?} or {:?}", table[0].1, table[1].1))
        })?;
        let path = at.member("parts");
        let parts = self.parts.unwrap_or_default().into_iter().enumerate();
        let parts =
            parts.map(|(index, part)| part.read(dialect, path.element(index))).collect::<Result<_, _>>()?;
        let mut message = Message::of("", role, parts);
        message.metadata = self.metadata;
        if dialect == Dialect::V0_1 {
            return Ok(AddressedMessage { message, task: None, context: None });
        }
        message.id = self.message_id.unwrap_or_default();
        message.extensions = self.extensions.unwrap_or_default();
        message.reference_task_ids = self.reference_task_ids.unwrap_or_default();
        let (task, context) = (non_empty(self.task_id), non_empty(self.context_id));
        Ok(AddressedMessage { message, task, context })
    }

    /// Reads a message sent to an agent: it must be the user's, and have an id (except in 0.1) and at least one part.
    pub(super) fn read_sent(
        self,
        dialect: Dialect,
        at: JsonPath<'_>,
    ) -> Result<AddressedMessage, MalformedInput> {
        let addressed = self.read(dialect, at)?;
        // It would stand in the history as the agent's own.
        if addressed.message.role == Role::Agent {
            let [(_, user, _), (_, agent, _)] = roles(dialect);
            return Err(at.member("role").malformed(format!(
                "{agent:?} is the role of the agent's own messages: a message to an agent has the role {user:?}"
            )));
        }
        if dialect > Dialect::V0_1 && addressed.message.id.is_empty() {
            return Err(at.member("messageId").malformed("is required"));
        }
        if addressed.message.parts.is_empty() {
            return Err(at.member("parts").malformed("a message needs at least one part"));
        }
        Ok(addressed)
    }
}
