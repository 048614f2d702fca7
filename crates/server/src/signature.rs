//! Webhook signatures as in the Standard Webhooks specification. A receiver can verify that a delivery comes
//! from this server, is complete, and is not a replay of an old one.

use std::fmt;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The prefix of a secret's text form.
const PREFIX: &str = "whsec_";

/// The secret that this server shares with the receivers of its webhooks. Its text form is `whsec_<base64>`;
/// `Debug` does not print it.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningSecret(Vec<u8>);

/// The text is not a valid secret. The error does not quote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a signing secret is whsec_ and then 24 to 64 bytes in base64")]
pub struct SecretError;

impl SigningSecret {
    /// A secret from 32 random bytes that the caller has drawn.
    pub fn from_random(bytes: [u8; 32]) -> Self {
        Self(bytes.to_vec())
    }

    /// Parses the text form `whsec_<base64>`.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        let encoded = text.trim().strip_prefix(PREFIX).ok_or(SecretError)?;
        let bytes = BASE64_STANDARD.decode(encoded).map_err(|_| SecretError)?;
        if (24..=64).contains(&bytes.len()) { Ok(Self(bytes)) } else { Err(SecretError) }
    }

    /// The text form, for the file that stores it and for the operator, who hands it to receivers.
    pub fn reveal(&self) -> String {
        format!("{PREFIX}{}", BASE64_STANDARD.encode(&self.0))
    }

    /// The value of `webhook-signature`. `timestamp` is in seconds since 1970.
    pub fn sign(&self, delivery_id: &str, timestamp: i64, body: &[u8]) -> String {
        #[allow(clippy::expect_used, reason = "HMAC takes keys of any length")]
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a key of any length");
        for part in [delivery_id.as_bytes(), b".", timestamp.to_string().as_bytes(), b".", body] {
            mac.update(part);
        }
        format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()))
    }
}

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningSecret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example that the specification's own libraries are tested with.
    #[test]
    fn signs_as_the_reference_libraries_do() {
        let secret = SigningSecret::parse("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD").unwrap();
        let body = br#"{"email":"test@example.com","username":"test_user"}"#;
        let signature = secret.sign("msg_27UH4WbU6Z5A5EzD8u03UvzRbpk", 1_649_367_553, body);
        assert_eq!(signature, "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=");
    }

    #[test]
    fn a_secret_is_read_as_it_is_written_and_never_shown() {
        let secret = SigningSecret::from_random([7; 32]);
        assert_eq!(SigningSecret::parse(&format!("{}\n", secret.reveal())), Ok(secret.clone()));
        assert_eq!(format!("{secret:?}"), "SigningSecret(…)");
        for wrong in ["", "whsec_", "C2FVsBQIhrscChlQIMV+b5sSYspob7oD", "whsec_c2hvcnQ=", "whsec_?"] {
            assert_eq!(SigningSecret::parse(wrong), Err(SecretError), "{wrong:?}");
        }
    }
}
