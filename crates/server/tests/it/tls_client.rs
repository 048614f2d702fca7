//! A TLS client, and the files of a server with TLS.

use std::{fs, io, path::PathBuf, sync::Arc, time::Duration};

use nuncio_server::{ServerTls, TlsOptions};
use nuncio_testkit::certificates::{PemPair, TestAuthority};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    version::{TLS12, TLS13},
};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{
    site::{Setup, Site},
    socket::{Socket, within},
};

/// How often the tests' servers read their files.
const RELOAD: Duration = Duration::from_millis(20);

/// The folder of a server's certificate, and the authority that signed it.
pub(crate) struct TlsFolder {
    pub(crate) folder: TempDir,
    pub(crate) authority: TestAuthority,
    /// The authority of clients.
    pub(crate) clients: TestAuthority,
}

impl TlsFolder {
    pub(crate) fn new() -> Self {
        let here = Self {
            folder: tempfile::tempdir().unwrap(),
            authority: TestAuthority::new("servers"),
            clients: TestAuthority::new("clients"),
        };
        here.write_pair(&here.authority.issue(&["localhost"]));
        here.write("clients.pem", &here.clients.pem());
        here
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    /// Writes a file as a whole.
    pub(crate) fn write(&self, file: &str, text: &str) {
        let draft = self.path("draft");
        fs::write(&draft, text).unwrap();
        fs::rename(draft, self.path(file)).unwrap();
    }

    pub(crate) fn write_pair(&self, pair: &PemPair) {
        self.write("key.pem", &pair.key);
        self.write("cert.pem", &pair.certificate);
    }

    pub(crate) fn options(&self) -> TlsOptions {
        let options = TlsOptions::new(self.path("cert.pem"), self.path("key.pem"));
        TlsOptions { reload_interval: RELOAD, ..options }
    }

    /// Gives a server this certificate, and with `mutual` the authority of clients.
    pub(crate) fn install(&self, setup: &mut Setup, mutual: bool) {
        let client_ca = mutual.then(|| self.path("clients.pem"));
        setup.server.tls = Some(ServerTls::load(TlsOptions { client_ca, ..self.options() }).unwrap());
    }

    /// A client that trusts the authority.
    pub(crate) fn client(&self) -> TlsClient {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.authority.pem().as_bytes()).unwrap()).unwrap();
        TlsClient { roots, identity: None, alpn: vec![], old: false }
    }
}

#[derive(Clone)]
pub(crate) struct TlsClient {
    roots: RootCertStore,
    identity: Option<PemPair>,
    alpn: Vec<Vec<u8>>,
    /// Whether it speaks TLS 1.2 alone.
    old: bool,
}

impl TlsClient {
    pub(crate) fn alpn(self, protocols: &[&str]) -> Self {
        Self { alpn: protocols.iter().map(|name| name.as_bytes().to_vec()).collect(), ..self }
    }

    pub(crate) fn tls_1_2(self) -> Self {
        Self { old: true, ..self }
    }

    pub(crate) fn showing(&self, pair: &PemPair) -> Self {
        Self { identity: Some(pair.clone()), ..self.clone() }
    }

    /// Connects; an error where the handshake fails. With TLS 1.3 a refused client certificate shows only in the first
    /// read.
    pub(crate) async fn try_connect(&self, site: &Site) -> io::Result<TlsStream<TcpStream>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let versions = if self.old { &[&TLS12][..] } else { &[&TLS13] };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(self.roots.clone());
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some(pair) => {
                let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes());
                let chain = chain.collect::<Result<_, _>>().unwrap();
                let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        config.alpn_protocols.clone_from(&self.alpn);
        let stream = TcpStream::connect(site.address).await?;
        let connector = TlsConnector::from(Arc::new(config));
        within("a handshake", connector.connect("localhost".try_into().unwrap(), stream)).await
    }

    pub(crate) async fn connect(&self, site: &Site) -> TlsStream<TcpStream> {
        self.try_connect(site).await.unwrap()
    }

    pub(crate) async fn socket(&self, site: &Site) -> Socket {
        Socket::over(self.connect(site).await)
    }
}

/// The certificate that a server showed.
pub(crate) fn shown(stream: &TlsStream<TcpStream>) -> CertificateDer<'static> {
    stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
}

/// The certificate of a pair.
pub(crate) fn der(pair: &PemPair) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap()
}
