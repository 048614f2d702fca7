//! Bindings over HTTP and pipes: A2A and MCP, cards, push delivery, limits.
//!
//! A binding says how messages travel; what they say is `nuncio_wire`'s, and what happens is
//! `nuncio_engine`'s.

mod admin;
mod app;
pub mod audit;
pub mod auth;
mod cards;
mod charged;
mod cors;
mod gate;
mod health;
mod http;
mod mcp;
mod options;
pub mod push;
mod request_rate;
mod rpc;
pub mod signature;
mod stall;
mod stream;
mod streams;

use std::{future::Future, io, sync::Arc};

use app::{App, Site};
pub use auth::{AuthError, Authenticator};
pub use mcp::{McpOptions, serve_pipe};
use nuncio_engine::Engine;
pub use options::{HttpLimits, ServerOptions};
use tokio::net::TcpListener;

/// An engine behind HTTP.
pub struct Server {
    engine: Engine,
    options: ServerOptions,
}

impl Server {
    /// A server for that engine.
    pub fn new(engine: Engine, options: ServerOptions) -> Self {
        Self { engine, options }
    }

    /// The address that cards name: the public one, or the one that is listened on.
    pub fn base_url(&self, listener: &TcpListener) -> io::Result<String> {
        match &self.options.public_url {
            Some(url) => Ok(url.trim_end_matches('/').to_owned()),
            None => Ok(format!("http://{}", listener.local_addr()?)),
        }
    }

    /// Serves until `shutdown`; then streams end with their cursor and open requests are answered. The engine
    /// is the caller's to stop.
    pub async fn run(self, listener: TcpListener, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        let base_url = self.base_url(&listener)?;
        let engine = self.engine.clone();
        let limits = self.options.limits.clone();
        let site = Arc::new(Site::new(App::new(self.engine, self.options, &base_url)));
        let stop = async {
            shutdown.await;
            engine.begin_stop();
        };
        let drain = engine.options().stop_within / 2;
        http::serve(listener, site, &limits, stop, drain).await;
        Ok(())
    }
}
