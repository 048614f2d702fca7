//! Why a server did not start. Each text says what to do.

use std::{io, net::SocketAddr, path::PathBuf};

use nuncio_agents::configured::SpecError;
use nuncio_engine::catalog::CatalogError;
use nuncio_store::{PostgresError, SqliteOpenError};

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is nothing to serve.
    #[error("there is no agent to serve: give the builder at least one")]
    NoAgents,
    /// An agent cannot be served, or the default one is none of them.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// An agent cannot be made of its configuration.
    #[error(transparent)]
    Configured(#[from] SpecError),
    /// The address is none.
    #[error("cannot listen on {0:?}: expected an address and a port, such as 127.0.0.1:8080")]
    Address(String),
    /// Others could reach the server, and nobody said that they may.
    #[error(
        "{0} can be reached from other machines: start with --allow-remote if that is meant, and make tokens for \
         those who may use it (nuncio token create), or listen on 127.0.0.1"
    )]
    Remote(SocketAddr),
    /// Others could reach the server, and would not be asked who they are.
    #[error(
        "{0} can be reached from other machines, and auth is off: everyone who reaches it could do everything. \
         Leave auth on and make tokens (nuncio token create), or listen on 127.0.0.1"
    )]
    Open(SocketAddr),
    /// What was set about who may call cannot be used.
    #[error("{0}")]
    Security(String),
    /// The server's own model cannot be used.
    #[error("the model cannot be used: {0}")]
    Model(String),
    /// The folder for the server's own files cannot be used.
    #[error("cannot use {}: {source}", path.display())]
    DataDir {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] SqliteOpenError),
    /// The database cannot be used.
    #[error(transparent)]
    Postgres(#[from] PostgresError),
    /// The engine cannot start.
    #[error(transparent)]
    Engine(#[from] nuncio_engine::Error),
    /// The address is taken, or not ours.
    #[error("cannot listen on {address}: {source}{}", hint_for(.source, *.address))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The Unix socket cannot be listened on.
    #[error("cannot listen on the socket {}: {source}: remove what is there, or name another path", path.display())]
    Socket {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Webhooks cannot be delivered.
    #[error(transparent)]
    Outbound(#[from] nuncio_client::outbound::OutboundError),
    /// Something the server needs from the system.
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
