//! TLS on the server's port: the certificate and key of the files that the operator names, read again when they change,
//! and the certificates of clients.
//!
//! A handshake belongs to its connection's task. What comes after it is the HTTP of any other connection: the client's
//! first bytes say which version, as they do without TLS.

mod client_certificate;
mod files;

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use nuncio_engine::{clock::Timestamp, metric};
use rustls::{ServerConfig, server::danger::ClientCertVerifier, sign::SingleCertAndKey};
use sha2::{Digest as _, Sha256};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

pub use self::{client_certificate::ClientCertificate, files::TlsError};
use self::{
    client_certificate::PresentedChain,
    files::{TlsFiles, TlsFilesDigest},
};

/// The protocols that are agreed on in the handshake, best first.
const ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];
/// The first byte of a handshake (RFC 8446, section 5.1).
const HANDSHAKE_RECORD: u8 = 22;

/// The files of TLS.
#[derive(Debug, Clone)]
pub struct TlsOptions {
    /// The certificate and its chain, the server's own first, in PEM.
    pub certificate: PathBuf,
    /// The private key of the certificate, in PEM.
    pub key: PathBuf,
    /// The CAs whose client certificates name a caller, in PEM. Without it no client is asked for a certificate.
    pub client_ca: Option<PathBuf>,
    /// How often the files are read to find out whether they have changed.
    pub reload_interval: Duration,
}

impl TlsOptions {
    /// How often the files are read, where nothing else is set.
    pub const RELOAD_INTERVAL: Duration = Duration::from_secs(10);

    /// A certificate and its key, without client certificates.
    pub fn new(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self {
            certificate: certificate.into(),
            key: key.into(),
            client_ca: None,
            reload_interval: Self::RELOAD_INTERVAL,
        }
    }
}

/// The certificate that new connections get.
pub struct ServerTls {
    options: TlsOptions,
    current: watch::Sender<Arc<LoadedTls>>,
}

/// What the files held when they were read last and fitted together.
struct LoadedTls {
    config: Arc<ServerConfig>,
    clients: Option<Arc<dyn ClientCertVerifier>>,
    /// The SHA-256 of the certificate, in hexadecimal digits.
    fingerprint: String,
    expires: Option<Timestamp>,
    digest: TlsFilesDigest,
}

/// A connection after its first bytes.
pub(crate) enum TlsStart<S> {
    /// The handshake is done.
    Encrypted(Box<TlsStream<S>>, Option<Arc<ClientCertificate>>),
    /// The client speaks something else, probably HTTP.
    Plain(S),
}

impl ServerTls {
    /// Reads the files. An error names the file, what is wrong with it, and what to do.
    pub fn load(options: TlsOptions) -> Result<Arc<Self>, TlsError> {
        let loaded = LoadedTls::new(&options, &TlsFiles::read(&options)?)?;
        loaded.show_expiry();
        let (current, _) = watch::channel(Arc::new(loaded));
        Ok(Arc::new(Self { options, current }))
    }

    /// Whether clients may show certificates.
    pub fn takes_client_certificates(&self) -> bool {
        self.options.client_ca.is_some()
    }

    /// The SHA-256 of the certificate that new connections get, in hexadecimal digits.
    pub fn fingerprint(&self) -> String {
        self.current.borrow().fingerprint.clone()
    }

    /// Waits until new connections get another certificate than that one, and returns its SHA-256.
    pub async fn wait_for_other_certificate(&self, fingerprint: &str) -> String {
        let mut current = self.current.subscribe();
        loop {
            let now = current.borrow_and_update().fingerprint.clone();
            if now != fingerprint {
                return now;
            }
            // It fails when the sender is gone, which is borrowed here.
            let _ = current.changed().await;
        }
    }

    fn loaded(&self) -> Arc<LoadedTls> {
        Arc::clone(&self.current.borrow())
    }

    /// Does the handshake of a connection. `first`: its first byte. The caller sets the deadline.
    pub(crate) async fn accept<S>(self: &Arc<Self>, first: Option<u8>, stream: S) -> io::Result<TlsStart<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        if first != Some(HANDSHAKE_RECORD) {
            return Ok(TlsStart::Plain(stream));
        }
        let loaded = self.loaded();
        let stream = TlsAcceptor::from(Arc::clone(&loaded.config)).accept(stream).await?;
        let chain = stream.get_ref().1.peer_certificates().and_then(PresentedChain::new);
        let certificate =
            chain.map(|chain| Arc::new(ClientCertificate::new(chain, self, loaded.digest.client_ca)));
        Ok(TlsStart::Encrypted(Box::new(stream), certificate))
    }

    /// Reads the files again and again. A pair that does not fit together is logged once, and changes nothing.
    pub(crate) async fn follow_files(&self) {
        let mut refused = None;
        loop {
            tokio::time::sleep(self.options.reload_interval).await;
            let options = self.options.clone();
            let known = self.loaded().digest;
            // Reading files blocks, and a key may lie on a network's disk.
            let read = tokio::task::spawn_blocking(move || {
                let files = TlsFiles::read(&options)?;
                match files.digest() == known {
                    true => Ok(None),
                    false => LoadedTls::new(&options, &files).map(Some),
                }
            });
            match read.await {
                Ok(Ok(None)) => refused = None,
                Ok(Ok(Some(loaded))) => {
                    refused = None;
                    tracing::info!(fingerprint = loaded.fingerprint, "the certificate was loaded again");
                    loaded.show_expiry();
                    self.current.send_replace(Arc::new(loaded));
                }
                Ok(Err(error)) => {
                    let text = error.to_string();
                    if refused.as_ref() != Some(&text) {
                        tracing::warn!("{text}; connections get the certificate that was loaded before");
                    }
                    refused = Some(text);
                }
                Err(error) => tracing::warn!(%error, "the files of TLS could not be read"),
            }
        }
    }
}

impl LoadedTls {
    fn new(options: &TlsOptions, files: &TlsFiles) -> Result<Self, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let certified = files.certified_key(options, &provider)?;
        let clients = files.client_verifier(options, &provider)?;
        let certificate = certified.end_entity_cert();
        let certificate =
            certificate.map_err(|error| TlsError::of_certificate(options, error.to_string()))?;
        files::warn_about(options, certificate);
        let fingerprint = Sha256::digest(certificate).iter().map(|byte| format!("{byte:02x}")).collect();
        let expires = client_certificate::validity_of(certificate).map(|(_, until)| until);
        let builder = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::of_certificate(options, error.to_string()))?;
        let builder = match &clients {
            Some(verifier) => builder.with_client_cert_verifier(Arc::clone(verifier)),
            None => builder.with_no_client_auth(),
        };
        // A fresh configuration has no sessions: none is resumed that an earlier CA vouched for.
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        config.alpn_protocols = ALPN.map(<[u8]>::to_vec).into();
        Ok(Self { config: Arc::new(config), clients, fingerprint, expires, digest: files.digest() })
    }

    /// Shows in the metrics when the certificate expires.
    fn show_expiry(&self) {
        if let Some(expires) = self.expires {
            metric::TLS_CERTIFICATE_EXPIRY.gauge(&[]).set(expires.0 as f64 / 1000.0);
        }
    }
}
