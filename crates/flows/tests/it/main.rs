//! What is shared, over a real store.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod batch;
