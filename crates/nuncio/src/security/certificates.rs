//! Callers that client certificates name.
//!
//! The server has verified the certificate; this module decides whose it is and what it may do. A certificate has no
//! scopes of its own, so the operator says what all of them may do.

use nuncio_engine::{Caller, Grants};
use nuncio_server::{AuthError, ClientCertificate};

use super::{SecurityOptions, is_name};
use crate::StartError;

/// The prefix of owners that the CA vouches for. Names of the server's own tokens cannot contain a colon, and the
/// owners of an issuer's JWTs have another prefix, so they never collide.
const OWNER_PREFIX: &str = "cert:";

/// What the callers with certificates may do, and where they belong.
pub(super) struct CertificateCallers {
    tenant: String,
    grants: Grants,
}

impl CertificateCallers {
    pub(super) fn new(options: &SecurityOptions) -> Result<Self, StartError> {
        if !is_name(&options.certificate_tenant) {
            return Err(StartError::Security(
                "tls-client-tenant is no name: write 1 to 64 letters, digits, '.', '_', '-' or '@'".into(),
            ));
        }
        let grants = Grants::parse(&options.certificate_scopes.join(" "))
            .map_err(|error| StartError::Security(format!("tls-client-scopes: {error}")))?;
        if options.certificate_scopes.is_empty() {
            tracing::warn!(
                "client certificates are verified and allow nothing: name in tls-client-scopes what their callers \
                 may do, such as read:a2a and write:a2a"
            );
        }
        Ok(Self { tenant: options.certificate_tenant.clone(), grants })
    }

    pub(super) fn caller(&self, certificate: &ClientCertificate) -> Result<Caller, AuthError> {
        let name = certificate.name().map_err(|why| AuthError::Invalid(why.to_owned()))?;
        let owner = format!("{}/{OWNER_PREFIX}{name}", self.tenant);
        Ok(Caller::named(owner).limited_to(self.grants.clone()))
    }
}
