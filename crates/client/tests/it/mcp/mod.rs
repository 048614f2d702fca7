//! The MCP peer: against nuncio's own server, and against servers that misbehave in exact ways.

mod real;
mod stage;
