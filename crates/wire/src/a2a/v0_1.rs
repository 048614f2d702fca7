//! A2A 0.1, the first: `tasks/send` and `tasks/sendSubscribe`, the client chooses the task id, parts have a
//! `type`.
//!
//! What the dialect cannot express, and what a reader gets instead:
//!
//! | engine | on the wire | read back as |
//! | --- | --- | --- |
//! | `Message::id`, `extensions`, `reference_task_ids` | nothing | empty; the server names the messages it takes |
//! | `Part::filename` and `media_type` of text and data | nothing; only files have them | `None` |
//! | a data part that is not an object | wrapped, see [`v0_3`](super::v0_3) | itself |
//! | state rejected | `failed` | failed |
//! | state auth-required | `input-required` | input-required |
//! | `Artifact::id`, `extensions` | the position, `index` | the position as a text; none |
//! | the context of an update | nothing; only the Task has `sessionId` | `None` |
//! | `WebhookConfig::id` | nothing; a task has one webhook | empty |
//! | `SendMessage::task_id` | `id`, as `client_task_id` | `client_task_id` |
//! | `SendMessage::blocking`, `accepted_output_modes` | nothing | `false`, none |
//! | `A2aCall::GetWebhook::id` | nothing | `None` |
//! | `List`, `ListWebhooks`, `DeleteWebhook`, `ExtendedCard` of `A2aCall` | no such method | – |
//!
//! A stream begins with a status update, because a 0.1 stream cannot contain a task. It ends with the frame that
//! has `final: true`, at the end of the task and when the task waits for the caller. A webhook gets the Task,
//! with its id also under `taskId`, where early receivers expect it.
