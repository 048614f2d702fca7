//! The PEM files of TLS: read within a size limit, parsed, and checked against each other. An error names the setting,
//! the file, what is wrong, and what to do.

use std::{
    fs::File,
    io::Read as _,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use nuncio_engine::clock::{Clock as _, SystemClock};
use rustls::{
    Error as RustlsError, RootCertStore,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
    sign::CertifiedKey,
};
use sha2::{Digest as _, Sha256};

use super::{TlsOptions, client_certificate::validity_of};

/// The largest file that is read, in bytes.
const MAX_FILE: u64 = 1024 * 1024;

const CERTIFICATE: &str = "tls-cert";
const KEY: &str = "tls-key";
const CLIENT_CA: &str = "tls-client-ca";

/// Why the files of TLS cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{setting}: {}: {why}", path.display())]
pub struct TlsError {
    setting: &'static str,
    path: PathBuf,
    why: String,
}

/// The contents of the files.
pub(super) struct TlsFiles {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

/// Tells whether files have changed, without a second copy of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TlsFilesDigest {
    pair: [u8; 32],
    pub(super) client_ca: [u8; 32],
}

impl TlsFiles {
    pub(super) fn read(options: &TlsOptions) -> Result<Self, TlsError> {
        Ok(Self {
            certificate: read(CERTIFICATE, &options.certificate)?,
            key: read(KEY, &options.key)?,
            client_ca: options.client_ca.as_deref().map(|path| read(CLIENT_CA, path)).transpose()?,
        })
    }

    pub(super) fn digest(&self) -> TlsFilesDigest {
        let mut pair = Sha256::new();
        pair.update(Sha256::digest(&self.certificate));
        pair.update(Sha256::digest(&self.key));
        TlsFilesDigest {
            pair: pair.finalize().into(),
            client_ca: Sha256::digest(self.client_ca.as_deref().unwrap_or_default()).into(),
        }
    }

    /// The certificate with its key, which belong together.
    pub(super) fn certified_key(
        &self,
        options: &TlsOptions,
        provider: &CryptoProvider,
    ) -> Result<CertifiedKey, TlsError> {
        let chain = certificates(CERTIFICATE, &options.certificate, &self.certificate)?;
        let wrong_key = |why: String| TlsError::new(KEY, &options.key, why);
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|_| {
            let encrypted = self.key.windows(9).any(|word| word == b"ENCRYPTED");
            wrong_key(match encrypted {
                true => {
                    "the key is encrypted: store it without a passphrase (openssl pkey -in … -out …)".into()
                }
                false => "it holds no private key in PEM: name the file that begins with \
                          -----BEGIN PRIVATE KEY-----"
                    .into(),
            })
        })?;
        CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
            RustlsError::InconsistentKeys(_) => wrong_key(format!(
                "it is not the key of the certificate in {}: name the two files of one pair",
                options.certificate.display()
            )),
            RustlsError::InvalidCertificate(_) => {
                TlsError::new(CERTIFICATE, &options.certificate, format!("no usable certificate: {error}"))
            }
            error => wrong_key(format!("no usable key: {error}: RSA, P-256, P-384 and Ed25519 are")),
        })
    }

    /// The verifier of client certificates: one that is shown must be good, and none needs to be shown.
    pub(super) fn client_verifier(
        &self,
        options: &TlsOptions,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
        let (Some(path), Some(text)) = (&options.client_ca, &self.client_ca) else { return Ok(None) };
        let wrong = |why: String| TlsError::new(CLIENT_CA, path, why);
        let mut roots = RootCertStore::empty();
        for certificate in certificates(CLIENT_CA, path, text)? {
            roots.add(certificate).map_err(|error| wrong(format!("no usable certificate: {error}")))?;
        }
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
            .allow_unauthenticated()
            .build()
            .map(Some)
            .map_err(|error| wrong(error.to_string()))
    }
}

impl TlsError {
    pub(super) fn new(setting: &'static str, path: &Path, why: impl Into<String>) -> Self {
        Self { setting, path: path.to_owned(), why: why.into() }
    }

    /// An error of the certificate as a whole.
    pub(super) fn of_certificate(options: &TlsOptions, why: impl Into<String>) -> Self {
        Self::new(CERTIFICATE, &options.certificate, why)
    }
}

/// Warns of what works and is probably a mistake.
pub(super) fn warn_about(options: &TlsOptions, certificate: &CertificateDer<'_>) {
    let key = options.key.display();
    if let Ok(found) = options.key.metadata()
        && found.mode() & 0o007 != 0
    {
        let mode = found.mode() & 0o777;
        tracing::warn!("other users may open the key {key} (its mode is {mode:o}): chmod 600 {key}");
    }
    if validity_of(certificate).is_some_and(|(_, until)| SystemClock.now() >= until) {
        tracing::warn!("the certificate {} has expired: clients refuse it", options.certificate.display());
    }
}

fn read(setting: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    let mut text = vec![];
    let read = File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut text));
    read.map_err(|error| {
        TlsError::new(
            setting,
            path,
            format!("{error}: name a PEM file (for a look, nuncio cert self-signed makes a pair)"),
        )
    })?;
    if text.len() as u64 > MAX_FILE {
        return Err(TlsError::new(setting, path, format!("the file is larger than {MAX_FILE} bytes")));
    }
    Ok(text)
}

fn certificates(
    setting: &'static str,
    path: &Path,
    text: &[u8],
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |why: String| TlsError::new(setting, path, why);
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let all = all.map_err(|error| wrong(format!("not PEM: {error}")))?;
    match all.is_empty() {
        true => Err(wrong(
            "it holds no certificate in PEM: name the file that begins with -----BEGIN CERTIFICATE-----"
                .into(),
        )),
        false => Ok(all),
    }
}
