//! The bindings over HTTP and pipes: A2A and MCP, agent cards, webhook delivery, limits.
//!
//! A binding defines how messages travel. `nuncio_wire` defines their content, and `nuncio_engine` what they
//! cause.

mod a2a;
mod admin;
mod app;
pub mod audit;
pub mod auth;
mod authorizations;
mod base_path;
mod card_keys;
mod cards;
mod charged_body;
mod console;
mod cors;
mod health;
mod http;
mod http2;
mod http_metrics;
mod http_version;
mod lingering_close;
mod mcp;
mod open_streams;
mod options;
mod proxies;
pub mod push;
mod request_checks;
mod request_rate;
mod resource_subscription;
mod responses;
pub mod signature;
mod similar_name;
mod stall_guard;
mod tls;
pub mod webhook_keys;

use std::{future::Future, io, sync::Arc};

pub use admin::tenants::order as order_json;
use app::{App, Site};
pub use auth::{AuthError, Authenticator};
pub use mcp::{McpOptions, ToolListFilter, ToolListFilterError, serve_pipe};
use nuncio_engine::Engine;
pub use options::{EffectiveSetting, HttpLimits, ServerOptions};
pub use proxies::{Network, TrustedProxy};
pub use tls::{ClientCertificate, ServerTls, TlsError, TlsOptions};
use tokio::net::{TcpListener, UnixListener};

/// An engine served over HTTP.
pub struct Server {
    engine: Engine,
    options: ServerOptions,
}

impl Server {
    /// Creates a server for `engine`; it accepts nothing before [`Server::run`].
    pub fn new(engine: Engine, options: ServerOptions) -> Self {
        Self { engine, options }
    }

    /// The base URL that cards name: the public one from the options, or the address of `listener`.
    pub fn base_url(&self, listener: &TcpListener) -> io::Result<String> {
        match &self.options.public_url {
            Some(url) => Ok(url.trim_end_matches('/').to_owned()),
            None => {
                let scheme = if self.options.tls.is_some() { "https" } else { "http" };
                Ok(format!("{scheme}://{}", listener.local_addr()?))
            }
        }
    }

    /// Serves until `shutdown` resolves; then streams end with their cursor and open requests are answered. The
    /// caller stops the engine.
    pub async fn run(self, listener: TcpListener, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        self.run_with_socket(listener, None, shutdown).await
    }

    /// Like [`Server::run`], on a Unix socket as well.
    pub async fn run_with_socket(
        self,
        listener: TcpListener,
        socket: Option<UnixListener>,
        shutdown: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let base_url = self.base_url(&listener)?;
        let engine = self.engine.clone();
        engine.set_node_address(&listener.local_addr()?.to_string());
        let limits = self.options.limits.clone();
        let trusted = self.options.trusted_proxies.clone();
        let tls = self.options.tls.clone();
        let site = Arc::new(Site::new(App::new(self.engine, self.options, &base_url)));
        let stop = async {
            shutdown.await;
            engine.begin_stop();
        };
        let drain = engine.options().stop_within / 2;
        let bounds = http::ConnectionLimits { limits: &limits, trusted };
        let listeners = http::Listeners { tcp: listener, unix: socket, tls: tls.clone() };
        let files = async {
            match &tls {
                Some(tls) => tls.follow_files().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = http::serve(listeners, site, bounds, stop, drain) => {}
            () = files => {}
        }
        Ok(())
    }
}
