//! An agent server with durable tasks: one binary, and a library to embed it.
//!
//! Write an [`Agent`](prelude::Agent) and add it to [`Nuncio`]. Every request becomes a durable task that
//! continues after a crash, and that clients can follow from any event.
//!
//! ```no_run
//! use nuncio::prelude::*;
//!
//! struct Greeter;
//!
//! #[async_trait]
//! impl Agent for Greeter {
//!     fn profile(&self) -> Profile {
//!         Profile::new("greeter", "Greets whoever writes.")
//!     }
//!
//!     async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
//!         Ok(Outcome::said(format!("Hello! You said: {}", cx.input().joined_text())))
//!     }
//! }
//!
//! # async fn main_() -> Result<(), nuncio::StartError> {
//! nuncio::Nuncio::new().agent(Greeter).serve().await
//! # }
//! ```

mod builder;
pub mod data_dir;
mod descriptors;
mod error;
mod otlp;
mod running_server;
pub mod security;
mod socket;

pub use builder::Nuncio;
pub use descriptors::raise_limit as raise_descriptor_limit;
pub use error::StartError;
pub use nuncio_agents as agents;
pub use nuncio_client as client;
pub use nuncio_client::model::{ModelOptions, Provider, UnknownProvider};
pub use nuncio_engine as engine;
pub use nuncio_flows::{self as flows, FlowsOptions};
pub use nuncio_server::{
    EffectiveSetting, HttpLimits, McpOptions, ServerOptions, TlsOptions, ToolListFilter, ToolListFilterError,
    TrustedProxy,
};
pub use nuncio_store::{PostgresOptions, StoreLocation};
pub use otlp::OtlpOptions;
pub use running_server::{RunningServer, ServerEnd, ShutdownSignals};
pub use security::{AuthMode, SecurityOptions};

/// The imports that an agent is written with.
pub mod prelude {
    pub use async_trait::async_trait;
    pub use nuncio_engine::{
        Agent, AgentError, Answer, Artifact, Chunk, Content, Level, Message, Outcome, Part, Profile, Role,
        Skill, StepContext, Surface, TaskContext, TaskUse,
    };
    pub use serde_json::{Value, json};
}
