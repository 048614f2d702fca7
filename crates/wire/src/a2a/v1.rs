//! A2A 1.0: ProtoJSON. Methods have the names of the gRPC service, enums those of the proto file, and what an
//! object is stands in the name of the member that holds it.
//!
//! What the dialect cannot say, and what a reader gets instead:
//!
//! | engine | on the wire | read back as |
//! | --- | --- | --- |
//! | `Artifact::complete` of a whole artifact | nothing | `false` |
//! | `ArtifactChunk::index` | nothing | 0 |
//! | `Authentication::schemes` after the first | nothing | the first alone |
//! | `Authentication` without any scheme | nothing | `None` |
//! | that an update ends its stream | nothing; the state says it | `StatusUpdate::last` is `false` |
//! | `Send::client_task_id` | nothing; only servers make ids | `None` |
//!
//! A stream begins with the Task. It ends with the frame of a terminal state and with no other: when the task
//! waits for the caller, [`Frame::ends_turn`](super::Frame::ends_turn) says so, and whether that ends the
//! stream is for the server to say. (The official Python server ends the stream of the message then and leaves
//! subscriptions open; the Java server leaves both open.) A webhook gets what a stream gets, as
//! `application/a2a+json`.
