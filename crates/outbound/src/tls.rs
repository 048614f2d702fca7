//! TLS of a client beyond the system's CAs: further CAs, the client's own certificate, and certificates of servers that
//! are known by their digest.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    ClientConfig, DigitallySignedStruct, Error as RustlsError, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
    sign::{CertifiedKey, SingleCertAndKey},
};
use rustls_platform_verifier::Verifier;
use sha2::{Digest as _, Sha256};
use url::Url;

use crate::{error::OutboundError, http::origin};

/// Whether a certificate with this SHA-256, in hexadecimal digits, is known.
type KnownCertificates = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Whom a client trusts beside the system's CAs, and the certificate that it shows.
#[derive(Clone, Default)]
pub struct TlsClientOptions {
    roots: Vec<CertificateDer<'static>>,
    identity: Option<Arc<CertifiedKey>>,
    /// The origin that the client's certificate is for; `None`: any.
    identity_origin: Option<String>,
    known: Option<KnownCertificates>,
}

/// The files of a client's TLS, as an operator or a user names them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsClientFiles {
    /// CAs to trust beside the system's, in PEM.
    pub ca: Option<PathBuf>,
    /// The client's certificate with its chain, in PEM.
    pub certificate: Option<PathBuf>,
    /// The key of that certificate, in PEM.
    pub key: Option<PathBuf>,
}

impl TlsClientFiles {
    /// Reads the files. An error names the file, and what is wrong with it.
    pub fn read(&self) -> Result<TlsClientOptions, String> {
        let roots = self.ca.as_deref().map(certificates).transpose()?.unwrap_or_default();
        let identity = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => Some(Arc::new(identity(certificate, key)?)),
            (None, None) => None,
            (Some(_), None) => return Err("a client certificate needs its key as well".to_owned()),
            (None, Some(_)) => return Err("a client key needs its certificate as well".to_owned()),
        };
        Ok(TlsClientOptions { roots, identity, ..TlsClientOptions::default() })
    }
}

impl TlsClientOptions {
    /// Also accepts a server certificate that the function knows, whatever name it bears. The function gets its SHA-256
    /// in hexadecimal digits.
    #[must_use]
    pub fn accept_known(mut self, is_known: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        self.known = Some(Arc::new(is_known));
        self
    }

    /// Shows the client's certificate to servers of this URL's origin alone: a credential belongs to one origin.
    #[must_use]
    pub fn identity_for(mut self, url: &Url) -> Self {
        self.identity_origin = Some(origin(url));
        self
    }

    /// The options for a client of this URL: without the certificate, if that is for another origin.
    #[must_use]
    pub fn for_url(&self, url: &Url) -> Self {
        let is_elsewhere = self.identity_origin.as_ref().is_some_and(|own| *own != origin(url));
        let identity = self.identity.clone().filter(|_| !is_elsewhere);
        Self { identity, ..self.clone() }
    }

    /// Whether nothing is set.
    pub(crate) fn is_default(&self) -> bool {
        self.roots.is_empty() && self.identity.is_none() && self.known.is_none()
    }

    /// Whether a CA or a client certificate is set.
    pub fn has_files(&self) -> bool {
        !self.roots.is_empty() || self.identity.is_some()
    }

    /// The configuration of the TLS library. `any`: accepts any certificate. `http2`: speaks HTTP/2, and nothing else.
    pub(crate) fn client_config(&self, any: bool, http2: bool) -> Result<ClientConfig, OutboundError> {
        let failed = |error: RustlsError| OutboundError::Setup(error.to_string());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let platform = Verifier::new_with_extra_roots(self.roots.iter().cloned(), Arc::clone(&provider));
        let verifier = KnownCertificateVerifier {
            platform: platform.map_err(failed)?,
            known: if any { Some(Arc::new(|_: &str| true)) } else { self.known.clone() },
        };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(failed)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match &self.identity {
            Some(identity) => {
                let resolver = SingleCertAndKey::from(Arc::clone(identity));
                builder.with_client_cert_resolver(Arc::new(resolver))
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![if http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
        Ok(config)
    }
}

impl fmt::Debug for TlsClientOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsClientOptions")
            .field("roots", &self.roots.len())
            .field("identity", &self.identity.is_some())
            .finish_non_exhaustive()
    }
}

/// Verifies a certificate as the system does, unless it is known. The server proves in either case that it has the key.
struct KnownCertificateVerifier {
    platform: Verifier,
    known: Option<KnownCertificates>,
}

impl fmt::Debug for KnownCertificateVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KnownCertificateVerifier").finish_non_exhaustive()
    }
}

impl ServerCertVerifier for KnownCertificateVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, RustlsError> {
        if let Some(is_known) = &self.known {
            let digest: String =
                Sha256::digest(certificate).iter().map(|byte| format!("{byte:02x}")).collect();
            if is_known(&digest) {
                return Ok(ServerCertVerified::assertion());
            }
        }
        self.platform.verify_server_cert(certificate, intermediates, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        self.platform.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        self.platform.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.platform.supported_verify_schemes()
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = read(path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        _ => Err(format!("{} holds no certificate in PEM", path.display())),
    }
}

fn identity(certificate: &Path, key: &Path) -> Result<CertifiedKey, String> {
    let chain = certificates(certificate)?;
    let der = PrivateKeyDer::from_pem_slice(&read(key)?);
    let der =
        der.map_err(|_| format!("{} holds no private key in PEM, or an encrypted one", key.display()))?;
    let provider: CryptoProvider = rustls::crypto::ring::default_provider();
    CertifiedKey::from_der(chain, der, &provider).map_err(|error| {
        format!("{} and {} are no certificate with its key: {error}", certificate.display(), key.display())
    })
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}
