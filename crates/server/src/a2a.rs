//! A2A: the service without a transport (`handler`), and the bindings around it.
//!
//! A binding reads a call from its wire, gives it to [`handler::A2aHandler`], and writes what comes back. There are
//! two bindings, `jsonrpc` and `rest`, with `sse` for their streams. The differences between the protocol generations are in
//! `nuncio_wire::a2a`.

pub(crate) mod extensions;
pub(crate) mod handler;
pub(crate) mod jsonrpc;
pub(crate) mod rest;
pub(crate) mod sse;
