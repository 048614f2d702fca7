//! Startup errors. Each message says what to do.

use std::{io, net::SocketAddr, path::PathBuf};

use nuncio_agents::configured::SpecError;
use nuncio_engine::catalog::CatalogError;
use nuncio_store::StoreOpenError;

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The server has no agent.
    #[error(
        "there is no agent to serve: configure one ([[agent]] in nuncio.toml), or leave out builtin-agents = false; \
         a program gives the builder at least one"
    )]
    NoAgents,
    /// An agent cannot be served, or the default agent does not exist.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The list of tools names an agent that is not served.
    #[error("mcp.tools: {0}")]
    Tools(#[from] nuncio_server::ToolListFilterError),
    /// An agent cannot be built from its configuration.
    #[error(transparent)]
    Configured(#[from] SpecError),
    /// The listen address cannot be parsed or resolved.
    #[error("cannot listen on {0:?}: expected an address and a port, such as 127.0.0.1:8080")]
    Address(String),
    /// Other machines could reach the server, and `allow_remote` is not set.
    #[error(
        "{0} can be reached from other machines: start with --allow-remote if that is meant, and make tokens for \
         those who may use it (nuncio token create), or listen on 127.0.0.1"
    )]
    Remote(SocketAddr),
    /// Other machines could reach the server, and authentication is off.
    #[error(
        "{0} can be reached from other machines, and auth is off: everyone who reaches it could do everything. \
         Leave auth on and make tokens (nuncio token create), or listen on 127.0.0.1"
    )]
    Open(SocketAddr),
    /// The authentication settings cannot be used.
    #[error("{0}")]
    Security(String),
    /// The certificate, its key, or the CA of clients cannot be used.
    #[error(transparent)]
    Tls(#[from] nuncio_server::TlsError),
    /// The server's own model cannot be used.
    #[error("the model cannot be used: {0}")]
    Model(String),
    /// The folder for the server's own files cannot be used.
    #[error("cannot use {}: {source}", path.display())]
    DataDir {
        /// The file or folder.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreOpenError),
    /// The engine cannot start.
    #[error(transparent)]
    Engine(#[from] nuncio_engine::Error),
    /// The address is in use, or does not belong to this machine.
    #[error("cannot listen on {address}: {source}{}", hint_for(.source, *.address))]
    Listen {
        /// The address that could not be bound.
        address: SocketAddr,
        /// The I/O error.
        source: io::Error,
    },
    /// The server cannot listen on the Unix socket.
    #[error("cannot listen on the socket {}: {source}: remove what is there, or name another path", path.display())]
    Socket {
        /// The path of the socket.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// Webhooks cannot be delivered.
    #[error(transparent)]
    Outbound(#[from] nuncio_outbound::OutboundError),
    /// The operating system refused something that the server needs.
    #[error("{0}")]
    System(String),
}

fn hint_for(source: &io::Error, address: SocketAddr) -> String {
    if source.kind() != io::ErrorKind::AddrInUse {
        return String::new();
    }
    let free = SocketAddr::new(address.ip(), 0);
    format!(": stop what listens there, or choose another port (--listen {free} takes a free one)")
}
