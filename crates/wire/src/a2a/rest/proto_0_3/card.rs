//! Cards: their security schemes are named by a member, their requirements are wrapped.

use serde_json::{Value, json};

use super::Members;

/// The types of security schemes, and the members that stand for them.
const SCHEMES: [(&str, &str); 5] = [
    ("apiKey", "apiKeySecurityScheme"),
    ("oauth2", "oauth2SecurityScheme"),
    ("openIdConnect", "openIdConnectSecurityScheme"),
    ("mutualTLS", "mtlsSecurityScheme"),
    ("http", "httpAuthSecurityScheme"),
];

/// A card as a message of `a2a.v1`.
pub(in crate::a2a) fn write_card(json: &[u8]) -> Option<Value> {
    let mut card: Value = serde_json::from_slice(json).ok()?;
    each_requirement(&mut card, |requirement| {
        let wrapped =
            requirement.iter_mut().map(|(name, scopes)| (name.clone(), json!({ "list": scopes.take() })));
        let schemes: Members = wrapped.collect();
        Members::from_iter([("schemes".to_owned(), schemes.into())])
    });
    for scheme in schemes(&mut card) {
        let kind = scheme["type"].as_str().unwrap_or_default();
        let found = SCHEMES.iter().find(|(plain, _)| *plain == kind);
        let name = found.map_or("httpAuthSecurityScheme", |(_, name)| *name);
        let mut members = scheme.take();
        // `in` is a word of many languages.
        if let Some(members) = members.as_object_mut() {
            super::rename(members, "in", "location");
        }
        *scheme = json!({ name: members });
    }
    Some(card)
}

/// A card of `a2a.v1` as every binding but gRPC has it. One that has that form already stays as it is.
pub(super) fn read_card(mut card: Value) -> Value {
    each_requirement(&mut card, |requirement| match requirement.get_mut("schemes") {
        Some(Value::Object(schemes)) => schemes
            .iter_mut()
            .map(|(name, scopes)| {
                let list = scopes.get_mut("list").map(Value::take);
                (name.clone(), list.unwrap_or_else(|| json!([])))
            })
            .collect(),
        _ => std::mem::take(requirement),
    });
    for scheme in schemes(&mut card) {
        let found = SCHEMES.iter().find(|(_, name)| scheme.get(name).is_some_and(Value::is_object));
        let Some((kind, name)) = found else { continue };
        let mut members = Members::from_iter([("type".to_owned(), (*kind).into())]);
        if let Value::Object(inner) = scheme[name].take() {
            members.extend(inner);
        }
        super::rename(&mut members, "location", "in");
        *scheme = members.into();
    }
    card
}

fn schemes(card: &mut Value) -> impl Iterator<Item = &mut Value> {
    let schemes = card.get_mut("securitySchemes").and_then(Value::as_object_mut);
    schemes.into_iter().flat_map(|schemes| schemes.values_mut())
}

/// Replaces each requirement of the card and of its skills: `[{"bearer": ["a"]}]`, or
/// `[{"schemes": {"bearer": {"list": ["a"]}}}]`.
fn each_requirement(card: &mut Value, change: impl Fn(&mut Members) -> Members) {
    let change_all = |of: &mut Value| {
        for requirement in of.get_mut("security").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Value::Object(members) = requirement {
                *members = change(members);
            }
        }
    };
    change_all(card);
    card.get_mut("skills").and_then(Value::as_array_mut).into_iter().flatten().for_each(change_all);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_says_its_security_as_the_proto_file_does() {
        let plain = json!({
            "name": "a",
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "Bearer" },
                "key": { "type": "apiKey", "name": "X-Key", "in": "header" },
                "tls": { "type": "mutualTLS" },
            },
            "security": [{ "bearer": [] }, { "tls": [] }],
            "skills": [{ "id": "s", "security": [{ "bearer": ["x"] }] }],
        });
        let proto = write_card(plain.to_string().as_bytes()).unwrap();
        assert_eq!(proto["securitySchemes"]["bearer"]["httpAuthSecurityScheme"]["scheme"], "Bearer");
        assert_eq!(proto["securitySchemes"]["key"]["apiKeySecurityScheme"]["location"], "header");
        assert!(proto["securitySchemes"]["tls"].get("mtlsSecurityScheme").is_some());
        assert_eq!(proto["security"][0], json!({ "schemes": { "bearer": { "list": [] } } }));
        assert_eq!(proto["skills"][0]["security"], json!([{ "schemes": { "bearer": { "list": ["x"] } } }]));
        assert_eq!(read_card(proto), plain);
        assert_eq!(read_card(plain.clone()), plain);
    }
}
