//! The flags of a client's TLS: a CA to trust beside the system's, and the client's own certificate.

use std::path::PathBuf;

use clap::Args;
use nuncio_outbound::{TlsClientFiles, TlsClientOptions};

use super::error::CliError;

/// The environment variables of the flags.
pub(crate) const CA_CERT: &str = "NUNCIO_CA_CERT";
pub(crate) const CLIENT_CERT: &str = "NUNCIO_CLIENT_CERT";
pub(crate) const CLIENT_KEY: &str = "NUNCIO_CLIENT_KEY";

#[derive(Args, Debug, Clone, Default)]
pub(crate) struct TlsFlags {
    /// A PEM file with CAs to trust beside the system's, or with a server's self-signed certificate
    #[arg(long, global = true, env = CA_CERT, value_name = "FILE")]
    ca_cert: Option<PathBuf>,
    /// A PEM file with the certificate to show to the server (mutual TLS)
    #[arg(long, global = true, env = CLIENT_CERT, value_name = "FILE")]
    client_cert: Option<PathBuf>,
    /// A PEM file with the key of that certificate
    #[arg(long, global = true, env = CLIENT_KEY, value_name = "FILE")]
    client_key: Option<PathBuf>,
}

impl TlsFlags {
    /// Whether the server gets to see a certificate of the user's.
    pub(crate) fn shows_certificate(&self) -> bool {
        self.client_cert.is_some()
    }

    /// Reads the files.
    pub(crate) fn read(&self) -> Result<TlsClientOptions, CliError> {
        let given = |path: &Option<PathBuf>| path.clone().filter(|path| !path.as_os_str().is_empty());
        let files = TlsClientFiles {
            ca: given(&self.ca_cert),
            certificate: given(&self.client_cert),
            key: given(&self.client_key),
        };
        files
            .read()
            .map_err(|why| CliError::Usage(format!("{why} (--ca-cert, --client-cert and --client-key)")))
    }
}
