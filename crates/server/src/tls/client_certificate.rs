//! The certificate that a client showed in its handshake: its name, how long it is valid, and whether it is still one of
//! the CA that the server trusts now.
//!
//! A connection may outlive its certificate and the CA, and a session may be resumed without a verification: so both
//! are checked with each request.

use std::{sync::Arc, time::Duration};

use nuncio_engine::clock::Timestamp;
use parking_lot::Mutex;
use rustls::pki_types::{CertificateDer, UnixTime};
use x509_cert::{
    Certificate,
    der::{
        Decode as _,
        asn1::{Ia5StringRef, PrintableStringRef, TeletexStringRef, Utf8StringRef},
        oid::db::rfc4519::COMMON_NAME,
    },
    ext::pkix::{SubjectAltName, name::GeneralName},
    name::Name,
};

use super::ServerTls;

/// The longest name that a certificate gives a caller, in bytes.
const MAX_NAME: usize = 128;

/// The certificate of a client, verified in the handshake.
pub struct ClientCertificate {
    chain: PresentedChain,
    /// The name, or why the certificate has none that can be used.
    name: Result<String, &'static str>,
    valid: Option<(Timestamp, Timestamp)>,
    tls: Arc<ServerTls>,
    /// The digest of the CA file that it was verified with last.
    verified_with: Mutex<[u8; 32]>,
}

/// The client's own certificate, and those that lead from it to the CA.
pub(super) struct PresentedChain {
    certificate: CertificateDer<'static>,
    intermediates: Vec<CertificateDer<'static>>,
}

impl PresentedChain {
    pub(super) fn new(shown: &[CertificateDer<'static>]) -> Option<Self> {
        let (certificate, intermediates) = shown.split_first()?;
        Some(Self { certificate: certificate.clone(), intermediates: intermediates.to_vec() })
    }
}

impl ClientCertificate {
    pub(super) fn new(chain: PresentedChain, tls: &Arc<ServerTls>, verified_with: [u8; 32]) -> Self {
        Self {
            name: name_of(&chain.certificate),
            valid: validity_of(&chain.certificate),
            chain,
            tls: Arc::clone(tls),
            verified_with: Mutex::new(verified_with),
        }
    }

    /// The name, with its kind before it: `dns:`, `uri:` or `email:` of the first such alternative name, or `cn:` of the
    /// subject where there is none. With the kind, a name of one kind is never taken for one of another.
    pub fn name(&self) -> Result<&str, &'static str> {
        self.name.as_deref().map_err(|why| *why)
    }

    /// Whether the certificate is valid now, and of a CA that is trusted now. An error says why not.
    pub fn check(&self, now: Timestamp) -> Result<(), String> {
        let (from, until) = self.valid.ok_or("the certificate does not say how long it is valid")?;
        if now < from {
            return Err("the certificate is not valid yet".into());
        }
        if now >= until {
            return Err("the certificate has expired".into());
        }
        let loaded = self.tls.loaded();
        let current = loaded.digest.client_ca;
        if *self.verified_with.lock() == current {
            return Ok(());
        }
        let verifier = loaded.clients.as_ref().ok_or("client certificates are not trusted any more")?;
        let time = UnixTime::since_unix_epoch(Duration::from_millis(now.0.unsigned_abs()));
        verifier
            .verify_client_cert(&self.chain.certificate, &self.chain.intermediates, time)
            .map_err(|error| format!("the CA of the certificate is not trusted any more: {error}"))?;
        *self.verified_with.lock() = current;
        Ok(())
    }
}

/// From when until when a certificate is valid.
pub(super) fn validity_of(certificate: &CertificateDer<'_>) -> Option<(Timestamp, Timestamp)> {
    let validity = Certificate::from_der(certificate).ok()?.tbs_certificate.validity;
    let time =
        |time: x509_cert::time::Time| i64::try_from(time.to_unix_duration().as_millis()).ok().map(Timestamp);
    Some((time(validity.not_before)?, time(validity.not_after)?))
}

fn name_of(certificate: &CertificateDer<'_>) -> Result<String, &'static str> {
    let parsed = Certificate::from_der(certificate).map_err(|_| "the certificate cannot be read")?;
    let subject = parsed.tbs_certificate;
    let alternative = subject.get::<SubjectAltName>().map_err(|_| "its alternative names cannot be read")?;
    let alternative = alternative.map(|(_, names)| names.0).unwrap_or_default();
    let first = |read: fn(&GeneralName) -> Option<String>| alternative.iter().find_map(read);
    let name = first(|name| match name {
        // Names of hosts are the same in capital letters.
        GeneralName::DnsName(name) => Some(format!("dns:{}", name.as_str().to_ascii_lowercase())),
        _ => None,
    })
    .or_else(|| {
        first(|name| match name {
            GeneralName::UniformResourceIdentifier(uri) => Some(format!("uri:{uri}")),
            _ => None,
        })
    })
    .or_else(|| {
        first(|name| match name {
            GeneralName::Rfc822Name(address) => Some(format!("email:{address}")),
            _ => None,
        })
    })
    .or_else(|| common_name(&subject.subject).map(|name| format!("cn:{name}")))
    .ok_or("the certificate has no name: it needs an alternative name (DNS, URI, email) or a CN")?;
    let (_, bare) = name.split_once(':').unwrap_or_default();
    match !bare.is_empty() && bare.len() <= MAX_NAME && !bare.chars().any(char::is_control) {
        true => Ok(name),
        false => Err("the name of the certificate is not valid: expected 1 to 128 bytes of text"),
    }
}

/// The last common name of a subject: it is the most specific one.
fn common_name(subject: &Name) -> Option<String> {
    let mut attributes = subject.0.iter().flat_map(|set| set.0.iter());
    let value = &attributes.rfind(|attribute| attribute.oid == COMMON_NAME)?.value;
    let text = Utf8StringRef::try_from(value).map(|text| text.as_str().to_owned());
    let text = text.or_else(|_| PrintableStringRef::try_from(value).map(|text| text.as_str().to_owned()));
    let text = text.or_else(|_| Ia5StringRef::try_from(value).map(|text| text.as_str().to_owned()));
    text.or_else(|_| TeletexStringRef::try_from(value).map(|text| text.as_str().to_owned())).ok()
}

#[cfg(test)]
mod tests {
    use nuncio_testkit::certificates::{
        TestAuthority,
        rcgen::{CertificateParams, DnType, SanType},
    };
    use rustls::pki_types::pem::PemObject as _;

    use super::*;

    fn check(change: impl FnOnce(&mut CertificateParams), name: Result<&str, &str>) {
        let pair = TestAuthority::new("clients").issue_with(&[], |params| {
            params.distinguished_name.remove(DnType::CommonName);
            change(params);
        });
        let certificate = CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap();
        match (name_of(&certificate), name) {
            (Ok(found), Ok(name)) => assert_eq!(found, name),
            (Err(why), Err(word)) => assert!(why.contains(word), "{why}"),
            (found, name) => panic!("{found:?}, not {name:?}"),
        }
    }

    #[test]
    fn the_name_is_an_alternative_one_first_and_its_kind_is_part_of_it() {
        let dns = |name: &str| SanType::DnsName(name.try_into().unwrap());
        let uri = |name: &str| SanType::URI(name.try_into().unwrap());
        let email = |name: &str| SanType::Rfc822Name(name.try_into().unwrap());
        let cn = |params: &mut CertificateParams, name: &str| {
            params.distinguished_name.push(DnType::CommonName, name);
        };
        check(|params| params.subject_alt_names.push(dns("Ada.Example")), Ok("dns:ada.example"));
        check(|params| params.subject_alt_names.push(uri("spiffe://a/b")), Ok("uri:spiffe://a/b"));
        check(|params| params.subject_alt_names.push(email("a@b.example")), Ok("email:a@b.example"));
        check(|params| cn(params, "Ada"), Ok("cn:Ada"));
        // Whatever the order in the certificate.
        let all = |params: &mut CertificateParams| {
            cn(params, "Ada");
            params.subject_alt_names = vec![email("a@b"), uri("urn:a"), dns("first"), dns("second")];
        };
        check(all, Ok("dns:first"));
        check(|_| {}, Err("has no name"));
        check(|params| cn(params, "dns:ada.example"), Ok("cn:dns:ada.example"));
        check(|params| cn(params, ""), Err("is not valid"));
        check(|params| cn(params, "a\nb"), Err("is not valid"));
        check(|params| cn(params, &"a".repeat(128)), Ok(&format!("cn:{}", "a".repeat(128))));
        check(|params| cn(params, &"a".repeat(129)), Err("is not valid"));
    }
}
