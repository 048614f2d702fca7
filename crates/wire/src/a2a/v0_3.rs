//! A2A 0.3, and 0.2 with it: `message/send` and `message/stream`, objects have a `kind`.
//!
//! What the dialect cannot express, and what a reader gets instead:
//!
//! | engine | on the wire | read back as |
//! | --- | --- | --- |
//! | `Part::filename` and `media_type` of text and data | nothing; only files have them | `None` |
//! | data that is not an object | `{"value": …}`, metadata `data_part_compat`, as in the SDKs | itself |
//! | empty metadata of such a part | the mark alone | `None` |
//! | `Artifact::complete` of a whole artifact | nothing | `false` |
//! | `ArtifactChunk::index` | nothing | 0 |
//! | the page of `ListWebhooks` | nothing; all are listed | `None` |
//! | `A2aCall::List` | no such method | – |
//! | `SendMessage::client_task_id` | nothing; only servers create ids | `None` |
//!
//! Over REST and gRPC, whose JSON is that of the gRPC messages, also:
//!
//! | engine | on the wire | read back as |
//! | --- | --- | --- |
//! | `Message::reference_task_ids` | nothing | none |
//! | metadata of `Cancel` | nothing | `None` |
//! | a history length of 0 over gRPC, but for a query of REST | 0, which is absence | `None`: all |
//! | authentication of a webhook without schemes and credentials, over gRPC | nothing | `None` |
//! | the page of `ListWebhooks` | itself | itself |
//! | numbers in data and metadata, over gRPC | doubles | doubles |
//!
//! A stream begins with the Task and ends with the frame that has `final: true`, at the end of the task and when
//! the task waits for the caller. A webhook gets the Task whenever a turn ends.
