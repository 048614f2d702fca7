//! A2A 1.0: ProtoJSON. Methods have the names of the gRPC service, enums those of the proto file, and the member
//! that holds an object names its type.
//!
//! What the dialect cannot express, and what a reader gets instead:
//!
//! | engine | on the wire | read back as |
//! | --- | --- | --- |
//! | `Artifact::complete` of a whole artifact | nothing | `false` |
//! | `ArtifactChunk::index` | nothing | 0 |
//! | `Authentication::schemes` after the first | nothing | the first alone |
//! | `Authentication` without any scheme | nothing | `None` |
//! | that an update ends its stream | nothing; the state implies it | `StatusUpdate::last` is `false` |
//! | `SendMessage::client_task_id` | nothing; only servers create ids | `None` |
//!
//! A stream begins with the Task. It ends with the frame of a terminal state and with no other. When the task
//! waits for the caller, [`A2aFrame::ends_turn`](super::A2aFrame::ends_turn) is set, and the server decides
//! whether that ends the stream. (The official Python server then ends the stream of the message and leaves
//! subscriptions open; the Java server leaves both open.) A webhook gets what a stream gets, as
//! `application/a2a+json`.
