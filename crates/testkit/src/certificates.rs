//! Certificates for tests: an authority, and what it signs. The times are relative to now, so that a certificate can
//! have expired or be about to.

use std::time::{Duration, SystemTime};

pub use rcgen;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};

/// A certificate with its key, in PEM.
#[derive(Debug, Clone)]
pub struct PemPair {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

/// An authority that signs certificates.
pub struct TestAuthority(CertifiedIssuer<'static, KeyPair>);

impl TestAuthority {
    /// An authority of that name, with a key of its own.
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("an authority"))
    }

    /// The authority's own certificate, in PEM.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate with these alternative names.
    pub fn issue(&self, names: &[&str]) -> PemPair {
        self.issue_with(names, |_| {})
    }

    /// The same, changed before it is signed.
    pub fn issue_with(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> PemPair {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name.push(DnType::CommonName, "a test");
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        PemPair { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

/// Makes a certificate valid since a day ago, and until that much after now, or before it where that is negative.
pub fn valid_for(params: &mut CertificateParams, seconds: i64) {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(since_1970.as_secs());
    params.not_before = now - Duration::from_secs(24 * 60 * 60);
    let by = Duration::from_secs(seconds.unsigned_abs());
    params.not_after = if seconds < 0 { now - by } else { now + by };
}
