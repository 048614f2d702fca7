//! The transport-free core: tasks, their event logs, and the engine that runs them. No HTTP, no SQL, no wire
//! types.
//!
//! A task is a fold of its public events. Everything that a client sees of it, in any protocol, is a
//! projection of that log from a cursor. Start at [`Engine`].

pub mod access;
pub mod access_control;
pub mod admin;
pub mod agent;
pub mod authorization;
mod byte_budget;
pub mod catalog;
pub mod clock;
pub mod commands;
mod commit;
pub mod content;
pub mod context;
pub mod cpu_share;
pub mod duration;
pub mod engine;
pub mod error;
pub mod event;
mod finished_cache;
pub mod follow;
mod journal;
pub mod knowledge;
mod master_key;
pub mod memory;
pub mod metric;
pub mod outbox;
mod outline;
pub mod question;
pub mod question_limit;
pub mod records;
pub mod redact;
pub mod refusal_log;
mod run;
pub mod runner;
pub mod sent_by;
pub mod store;
mod stored_json;
pub mod surface;
pub mod task;
mod task_header;
pub mod tenant_store;
pub mod trace;
pub mod usage;
pub mod webhook;

pub use access::{AccessKind, Action, Caller, Grants};
pub use access_control::{AccessOptions, AccessRequest, AuditLevel, Rate};
pub use agent::{
    Agent, AgentError, AgentExtension, AgentProvider, ExtendedCard, Outcome, Probe, Profile, Sampler, Skill,
    TaskFacts, TaskUse,
};
pub use byte_budget::BytePermit;
pub use catalog::Catalog;
pub use commands::{
    fork::{Fork, ForkError, ForkPoint, ForkRefusal},
    list::List,
    reply::Reply,
    submit::Submit,
    withdraw::QuestionWithdrawer,
};
pub use content::{Artifact, Content, Message, Part, Role};
pub use context::{CallEnd, CallResult, Chunk, StepContext, TaskContext};
pub use engine::{Engine, EngineParts, Options, StartedTask, StorageMeter, TASK_LOG_TARGET, TaskSummary};
pub use error::Error;
pub use event::{Event, Level};
pub use follow::{Follower, Next, Nudge};
pub use memory::{Memory, MemoryLimits};
pub use question::{Answer, QuestionOutcome};
pub use question_limit::QuestionLimit;
pub use refusal_log::count_refusal;
pub use sent_by::SentBy;
pub use surface::Surface;
pub use task::{State, Task, TaskId};
pub use usage::{MeteredResource, Share, TenantUsage, UsageLedger, UsageLimits, UsagePermit};
