//! The MCP peer: against nuncio's own server, and against servers that misbehave in exact ways.

mod coming_back;
mod odd;
mod one_server;
mod pipes;
mod proxy;
mod real;
mod stage;
