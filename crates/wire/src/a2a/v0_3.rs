//! A2A 0.3, and 0.2 with it: `message/send` and `message/stream`, objects have a `kind`.
//!
//! What the dialect cannot say, and what a reader gets instead:
//!
//! | engine | on the wire | read back as |
//! | --- | --- | --- |
//! | `Part::filename` and `media_type` of text and data | nothing; only files have them | `None` |
//! | a data part that is no object | `{"value": …}`, marked `data_part_compat` in its metadata, as the official SDKs do | itself |
//! | empty metadata of such a part | the mark alone | `None` |
//! | `Artifact::complete` of a whole artifact | nothing | `false` |
//! | `ArtifactChunk::index` | nothing | 0 |
//! | the page of `ListWebhooks` | nothing; all are listed | `None` |
//! | `List` | no such method | – |
//! | `Send::client_task_id` | nothing; only servers make ids | `None` |
//!
//! A stream begins with the Task and ends with the frame that says `final: true`, at the end of the task and
//! when the task waits for the caller. A webhook gets the Task, whenever a turn ends.
