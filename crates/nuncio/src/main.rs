//! The `nuncio` binary: the server, and a client that follows the community's `a2a-cli` specification.

mod cli;
mod config;
mod duration;
mod logs;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::main()
}
