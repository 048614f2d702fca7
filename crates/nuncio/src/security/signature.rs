//! Signature verification of JWTs (RFC 7515, RFC 7518), by ring with a key of the issuer.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use jsonwebtoken::{
    Algorithm,
    jwk::{AlgorithmParameters, Jwk},
};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
    UnparsedPublicKey, VerificationAlgorithm,
};
use serde_json::Value;

/// The claims of a token, if its signature is valid for the key.
pub(super) fn verified_claims(token: &str, key: &Jwk, algorithm: Algorithm) -> Option<Value> {
    let (signed, signature) = token.rsplit_once('.')?;
    let (_, payload) = signed.split_once('.')?;
    let signature = decode(signature)?;
    if !is_signed(key, algorithm, signed.as_bytes(), &signature)? {
        return None;
    }
    let claims: Value = serde_json::from_slice(&decode(payload)?).ok()?;
    claims.is_object().then_some(claims)
}

/// Whether the signature is valid for the key; `None` where the key does not match the algorithm.
fn is_signed(key: &Jwk, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> Option<bool> {
    let verified = match &key.algorithm {
        AlgorithmParameters::RSA(key) => {
            let (modulus, exponent) = (decode(&key.n)?, decode(&key.e)?);
            let key = RsaPublicKeyComponents { n: modulus, e: exponent };
            key.verify(rsa_parameters(algorithm)?, message, signature)
        }
        AlgorithmParameters::EllipticCurve(key) => {
            let parameters: &dyn VerificationAlgorithm = match algorithm {
                Algorithm::ES256 => &ECDSA_P256_SHA256_FIXED,
                Algorithm::ES384 => &ECDSA_P384_SHA384_FIXED,
                _ => return None,
            };
            // An uncompressed point.
            let point = [&[4], &*decode(&key.x)?, &*decode(&key.y)?].concat();
            UnparsedPublicKey::new(parameters, point).verify(message, signature)
        }
        AlgorithmParameters::OctetKeyPair(key) if algorithm == Algorithm::EdDSA => {
            UnparsedPublicKey::new(&ED25519, decode(&key.x)?).verify(message, signature)
        }
        _ => return None,
    };
    Some(verified.is_ok())
}

fn rsa_parameters(algorithm: Algorithm) -> Option<&'static RsaParameters> {
    Some(match algorithm {
        Algorithm::RS256 => &RSA_PKCS1_2048_8192_SHA256,
        Algorithm::RS384 => &RSA_PKCS1_2048_8192_SHA384,
        Algorithm::RS512 => &RSA_PKCS1_2048_8192_SHA512,
        Algorithm::PS256 => &RSA_PSS_2048_8192_SHA256,
        Algorithm::PS384 => &RSA_PSS_2048_8192_SHA384,
        Algorithm::PS512 => &RSA_PSS_2048_8192_SHA512,
        _ => return None,
    })
}

fn decode(text: &str) -> Option<Vec<u8>> {
    BASE64_URL_SAFE_NO_PAD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7515, appendix A.2.
    #[test]
    fn a_signature_of_rsa_is_good_for_its_message_alone() {
        let key: Jwk = serde_json::from_value(serde_json::json!({
            "kty": "RSA", "e": "AQAB",
            "n": "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yR\
                  T-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXB\
                  dQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9ia\
                  GNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ",
        }))
        .unwrap();
        let signed = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9p\
                      c19yb290Ijp0cnVlfQ";
        let signature = "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5ju\
                         jGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07\
                         Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipU\
                         TI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";
        let claims = verified_claims(&format!("{signed}.{signature}"), &key, Algorithm::RS256).unwrap();
        assert_eq!(claims["iss"], "joe");
        for (token, algorithm) in [
            (format!("{signed}.{signature}"), Algorithm::RS384),
            (format!("{signed}.{signature}"), Algorithm::PS256),
            (format!("{signed}.{signature}"), Algorithm::ES256),
            (format!("{signed}.{signature}"), Algorithm::HS256),
            (format!("{signed}A.{signature}"), Algorithm::RS256),
            (format!("{signed}."), Algorithm::RS256),
            (signature.to_owned(), Algorithm::RS256),
        ] {
            assert_eq!(verified_claims(&token, &key, algorithm), None, "{algorithm:?}");
        }
    }
}
