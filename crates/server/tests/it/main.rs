//! The server crate against real sockets and a real store.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod access;
mod agent_tasks;
mod auth;
mod authorizations;
mod cards;
mod console;
mod dialects;
mod equivalence;
mod extensions;
mod grpc;
mod grpc_client;
mod guests;
mod health;
mod hostile;
mod http2;
mod idempotency;
mod limits;
mod lingering;
mod mcp;
mod push;
mod receiver;
mod refusals;
mod replies;
mod rest;
mod rest_0_3;
mod schema_0_1;
mod shares;
mod signed_cards;
mod site;
mod socket;
mod stopping;
mod streams;
mod task_view;
mod tenants;
mod tls;
mod tls_client;
mod webhook_configs;
