//! A2A: the service without a transport (`handler`), and the bindings around it.
//!
//! A binding reads a call from its wire, gives it to [`handler::A2aHandler`], and writes what comes back. There are three
//! bindings, `jsonrpc`, `rest` and `grpc`. What they share is in `exchange` and `agent_address`; the events of a task are
//! `event_stream`, which `sse` sends for the first two. The differences between the protocol generations are in
//! `nuncio_wire::a2a`.

mod agent_address;
pub(crate) mod event_stream;
mod exchange;
pub(crate) mod extensions;
pub(crate) mod grpc;
pub(crate) mod handler;
pub(crate) mod jsonrpc;
pub(crate) mod rest;
mod sse;
