//! The binary as its users have it: real processes, real sockets, real files.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "seeds, and the one line that sums a long run up")]

mod authority;
mod batch_crash;
mod caller;
mod card_signatures;
mod chat;
mod cli_spec;
mod client;
mod cluster;
mod command;
mod config;
mod configured;
mod console;
mod crash;
mod crowd;
mod delivery;
mod exposition;
mod fake_agent;
mod following;
mod http;
mod knowledge;
mod mcp;
mod memory_use;
mod metrics;
mod nginx;
mod output;
mod plan;
mod planted;
mod push;
mod random;
mod recording_relay;
mod registry;
mod reserved_port;
mod resume;
mod secrets;
mod security;
mod serve;
mod served;
mod server_choice;
mod server_process;
mod sparc_crash;
mod store_maintenance;
mod stored_cards;
mod stores;
mod streams;
mod task_views;
mod test_agents;
mod tls;
mod traces;
mod unanswered;
mod webhook_keys;
