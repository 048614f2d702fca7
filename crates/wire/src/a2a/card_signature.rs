//! Signatures of cards (A2A 1.0, section 8.4) without cryptography: what is signed, and the JWS around it.
//!
//! A signature covers what a reader of one generation sees of the document, in a [`SignedForm`]. There are two forms per
//! generation, because the official SDKs leave out more than the specification says: every empty text, list and object,
//! and in 0.3 also the defaults of their model. Where both are the same bytes, there is one.

mod schema;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::{Map, Value, json};

use super::Dialect;
use crate::canonical_json::to_canonical_json;

/// The member of a card with its signatures, which no signature covers.
const SIGNATURES: &str = "signatures";
/// Most signatures of a card that are read: each costs a verification.
pub const MAX_SIGNATURES: usize = 32;

/// What a signature may cover: a view of a card and its bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct SignedForm {
    /// The members that the bytes stand for. A reader that verified the bytes may act on these and no others.
    pub view: Value,
    /// The payload of the JWS.
    pub payload: String,
}

/// The forms in which a generation's view of a card is signed. 0.1 has no signatures.
pub fn signed_forms(card: &Value, dialect: Dialect) -> Vec<SignedForm> {
    let Value::Object(members) = card else { return vec![] };
    let forms = match dialect {
        Dialect::V1 => {
            let view = Value::Object(schema::project(members, schema::CARD_V1));
            let cleaned = clean(&view).unwrap_or_else(|| json!({}));
            [form(view), form(cleaned)]
        }
        Dialect::V0_3 => {
            let view = Value::Object(schema::project(members, schema::CARD_V0_3));
            let cleaned = clean(&view).unwrap_or_else(|| json!({}));
            let payload = write_ascii(&to_canonical_json(&without_defaults(cleaned.clone())));
            [form(view), SignedForm { view: cleaned, payload }]
        }
        Dialect::V0_1 => return vec![],
    };
    let [one, other] = forms;
    if one.payload == other.payload { vec![one] } else { vec![one, other] }
}

/// The document as it is, with members of no generation. Some signers sign what they serve.
pub fn whole_form(card: &Value) -> SignedForm {
    let mut view = card.clone();
    if let Value::Object(members) = &mut view {
        members.shift_remove(SIGNATURES);
    }
    form(view)
}

fn form(view: Value) -> SignedForm {
    SignedForm { payload: to_canonical_json(&view), view }
}

/// Removes what the official SDKs remove: null, empty texts, and lists and objects in which nothing is left.
fn clean(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::String(text) => (!text.is_empty()).then(|| value.clone()),
        Value::Array(items) => {
            let items: Vec<Value> = items.iter().filter_map(clean).collect();
            (!items.is_empty()).then_some(Value::Array(items))
        }
        Value::Object(members) => {
            let cleaned = members.iter().filter_map(|(key, value)| Some((key.clone(), clean(value)?)));
            let members: Map<String, Value> = cleaned.collect();
            (!members.is_empty()).then_some(Value::Object(members))
        }
        other => Some(other.clone()),
    }
}

/// Removes the defaults of the Python SDK's model of 0.3.
fn without_defaults(mut card: Value) -> Value {
    for (member, default) in [("protocolVersion", "0.3.0"), ("preferredTransport", "JSONRPC")] {
        if card[member] == default
            && let Value::Object(members) = &mut card
        {
            members.shift_remove(member);
        }
    }
    if let Some(Value::Object(schemes)) = card.get_mut("securitySchemes") {
        for scheme in schemes.values_mut().filter_map(Value::as_object_mut) {
            // One that says something else than the other members stays: it would be changed unnoticed.
            if scheme.get("type").is_some_and(|named| *named == scheme_type(scheme)) {
                scheme.shift_remove("type");
            }
        }
    }
    clean(&card).unwrap_or_else(|| json!({}))
}

/// The type of a security scheme of 0.3, by the members that only it has.
fn scheme_type(scheme: &Map<String, Value>) -> &'static str {
    let types =
        [("scheme", "http"), ("in", "apiKey"), ("flows", "oauth2"), ("openIdConnectUrl", "openIdConnect")];
    types.into_iter().find(|(member, _)| scheme.contains_key(*member)).map_or("mutualTLS", |(_, name)| name)
}

/// Escapes what is not ASCII, as the Python SDK of 0.3 does.
fn write_ascii(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_ascii() && c != '\u{7f}' {
            out.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            out.push_str(&format!("\\u{unit:04x}"));
        }
    }
    out
}

/// A signature of a card, as it is in the document.
#[derive(Debug, Clone, PartialEq)]
pub struct CardSignature {
    /// The protected header, in base64url.
    pub protected: String,
    /// The signature, in base64url.
    pub signature: String,
}

/// The protected header of a signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardSignatureHeader {
    /// The algorithm.
    pub algorithm: String,
    /// The id of the key.
    pub key_id: String,
    /// The URL of the signer's key set. An unverified claim, as is the whole header: never fetch it on its word.
    pub key_set_url: Option<String>,
}

impl CardSignatureHeader {
    /// The header in base64url.
    pub fn encode(&self) -> String {
        let mut header = json!({ "alg": self.algorithm, "typ": "JOSE", "kid": self.key_id });
        if let Some(url) = &self.key_set_url {
            header["jku"] = url.as_str().into();
        }
        BASE64_URL_SAFE_NO_PAD.encode(header.to_string())
    }
}

impl CardSignature {
    /// Joins a protected header and the bytes of a signature.
    pub fn new(protected: String, signature: &[u8]) -> Self {
        Self { protected, signature: BASE64_URL_SAFE_NO_PAD.encode(signature) }
    }

    /// The signatures of a card; those of a wrong form are left out.
    pub fn all_of(card: &Value) -> Vec<Self> {
        let listed = card[SIGNATURES].as_array().map(Vec::as_slice).unwrap_or_default();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let read = |one: &Value| {
            Some(Self { protected: text(&one["protected"])?, signature: text(&one["signature"])? })
        };
        listed.iter().take(MAX_SIGNATURES).filter_map(read).collect()
    }

    /// The header, if it is one that can be verified.
    ///
    /// A header with `crit` demands extensions that no reader here knows, and must be refused (RFC 7515, section 4.1.11).
    pub fn header(&self) -> Option<CardSignatureHeader> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(&self.protected).ok()?;
        let header: Value = serde_json::from_slice(&bytes).ok()?;
        if header.get("crit").is_some() {
            return None;
        }
        Some(CardSignatureHeader {
            algorithm: header["alg"].as_str()?.to_owned(),
            key_id: header["kid"].as_str()?.to_owned(),
            key_set_url: header["jku"].as_str().map(str::to_owned),
        })
    }

    /// The bytes of the signature.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        BASE64_URL_SAFE_NO_PAD.decode(&self.signature).ok()
    }
}

/// The bytes that a signature with this header is computed over (RFC 7515, section 5.1).
pub fn signing_input(protected: &str, payload: &str) -> String {
    format!("{protected}.{}", BASE64_URL_SAFE_NO_PAD.encode(payload))
}

/// Adds signatures to a card.
pub fn add_signatures(card: &mut Value, signatures: &[CardSignature]) {
    let Value::Object(members) = card else { return };
    let listed =
        signatures.iter().map(|one| json!({ "protected": one.protected, "signature": one.signature }));
    let listed: Vec<Value> = listed.collect();
    if !listed.is_empty() {
        members.insert(SIGNATURES.to_owned(), listed.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payloads(card: &Value, dialect: Dialect) -> Vec<String> {
        signed_forms(card, dialect).into_iter().map(|form| form.payload).collect()
    }

    /// A2A 1.0, section 8.4.1, with the specification's own example.
    #[test]
    fn default_values_are_removed_as_the_specification_says() {
        let card = json!({
            "name": "Example Agent",
            "description": "",
            "capabilities": { "streaming": false, "pushNotifications": false, "extensions": [] },
            "skills": [],
            "signatures": [{ "protected": "a", "signature": "b" }],
        });
        let [specified, cleaned]: [String; 2] = payloads(&card, Dialect::V1).try_into().unwrap();
        let expected = r#"{"capabilities":{"pushNotifications":false,"streaming":false},"description":"","name":"Example Agent","skills":[]}"#;
        assert_eq!(specified, expected);
        let expected =
            r#"{"capabilities":{"pushNotifications":false,"streaming":false},"name":"Example Agent"}"#;
        assert_eq!(cleaned, expected);
    }

    #[test]
    fn a_view_has_the_members_of_its_generation() {
        let card = json!({
            "name": "a", "url": "http://a/", "protocolVersion": "0.3.0", "preferredTransport": "JSONRPC",
            "supportedInterfaces": [{ "url": "http://a/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0", "tenant": "" }],
            "capabilities": { "streaming": true, "stateTransitionHistory": false, "extensions": [{ "uri": "u", "required": false }] },
            "securitySchemes": { "b": { "type": "http", "scheme": "Bearer", "httpAuthSecurityScheme": { "scheme": "Bearer" } } },
            "skills": [{ "id": "é", "security": [{ "b": [] }], "securityRequirements": [{ "schemes": { "b": { "list": [] } } }] }],
            "unknown": 1,
        });
        let [specified, cleaned]: [String; 2] = payloads(&card, Dialect::V1).try_into().unwrap();
        assert_eq!(
            specified,
            r#"{"capabilities":{"extensions":[{"uri":"u"}],"streaming":true},"name":"a","securitySchemes":{"b":{"httpAuthSecurityScheme":{"scheme":"Bearer"}}},"skills":[{"id":"é","securityRequirements":[{"schemes":{"b":{}}}]}],"supportedInterfaces":[{"protocolBinding":"JSONRPC","protocolVersion":"1.0","url":"http://a/"}]}"#
        );
        assert_eq!(cleaned, specified.replace(r#","securityRequirements":[{"schemes":{"b":{}}}]"#, ""));
        let [specified, cleaned]: [String; 2] = payloads(&card, Dialect::V0_3).try_into().unwrap();
        assert_eq!(
            specified,
            r#"{"capabilities":{"extensions":[{"required":false,"uri":"u"}],"stateTransitionHistory":false,"streaming":true},"name":"a","preferredTransport":"JSONRPC","protocolVersion":"0.3.0","securitySchemes":{"b":{"scheme":"Bearer","type":"http"}},"skills":[{"id":"é","security":[{"b":[]}]}],"url":"http://a/"}"#
        );
        assert_eq!(
            cleaned,
            r#"{"capabilities":{"extensions":[{"required":false,"uri":"u"}],"stateTransitionHistory":false,"streaming":true},"name":"a","securitySchemes":{"b":{"scheme":"Bearer"}},"skills":[{"id":"\u00e9"}],"url":"http://a/"}"#
        );
        assert_eq!(signed_forms(&card, Dialect::V0_1), []);
        assert!(whole_form(&card).payload.contains("unknown"));
    }

    #[test]
    fn a_header_is_read_as_it_is_written_and_one_with_crit_is_none() {
        let header = CardSignatureHeader {
            algorithm: "ES256".into(),
            key_id: "k".into(),
            key_set_url: Some("https://a/jwks.json".into()),
        };
        let signature = CardSignature::new(header.encode(), b"bytes");
        assert_eq!(signature.header(), Some(header));
        assert_eq!(signature.bytes().as_deref(), Some(&b"bytes"[..]));
        for header in [r#"{"alg":"ES256","kid":"k","crit":["b64"]}"#, r#"{"alg":"ES256"}"#, "[]", "no"] {
            let protected = BASE64_URL_SAFE_NO_PAD.encode(header);
            assert_eq!(CardSignature { protected, signature: String::new() }.header(), None, "{header}");
        }
        let mut card = json!({ "name": "a" });
        add_signatures(&mut card, &[]);
        assert_eq!(card, json!({ "name": "a" }));
        add_signatures(&mut card, std::slice::from_ref(&signature));
        assert_eq!(CardSignature::all_of(&card), [signature]);
    }
}
