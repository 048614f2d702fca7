//! The endpoint under load: a port of this machine, how it is spoken to, and whether it is encrypted.

use std::{path::Path, sync::Arc};

use anyhow::Context;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};
use tokio_rustls::TlsConnector;

use crate::{Flags, request::Dialect};

#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(crate) dialect: Dialect,
    pub(crate) port: u16,
    pub(crate) tls: Option<TlsConnector>,
}

impl Endpoint {
    pub(crate) fn new(flags: &Flags) -> anyhow::Result<Self> {
        let tls = flags.ca.as_deref().filter(|_| flags.tls);
        let tls = tls.map(|ca| connector(ca, flags.dialect.is_http2())).transpose()?;
        Ok(Self { dialect: flags.dialect, port: flags.port, tls })
    }

    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }
}

/// Trusts the certificates of one file and no others.
fn connector(ca: &Path, is_http2: bool) -> anyhow::Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(ca).with_context(|| ca.display().to_string())? {
        roots.add(certificate?)?;
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![if is_http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    Ok(TlsConnector::from(Arc::new(config)))
}
