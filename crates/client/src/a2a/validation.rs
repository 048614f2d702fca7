//! The validation of an agent card against A2A 1.0: what is required, and the type of everything that is defined.
//!
//! Unknown members are allowed (A2A 1.0, section 5.7). A member that is null counts as absent.

use serde_json::Value;
use url::Url;

/// The type of a member.
#[derive(Clone, Copy)]
enum Shape {
    /// A string with content, where the member is required.
    Text,
    Switch,
    Texts,
    Object,
    /// Each element has these members.
    Objects(&'static [CardMember]),
    /// Each value, whatever its key, has these members.
    Map(&'static [CardMember]),
    /// One object with these members.
    Members(&'static [CardMember]),
}

/// A member of an object: its name, its type, and whether it is required.
type CardMember = (&'static str, Shape, bool);

const CARD: &[CardMember] = &[
    ("name", Shape::Text, true),
    ("description", Shape::Text, true),
    ("version", Shape::Text, true),
    ("supportedInterfaces", Shape::Objects(INTERFACE), true),
    ("capabilities", Shape::Members(CAPABILITIES), true),
    ("defaultInputModes", Shape::Texts, true),
    ("defaultOutputModes", Shape::Texts, true),
    ("skills", Shape::Objects(SKILL), true),
    ("provider", Shape::Members(&[("organization", Shape::Text, true), ("url", Shape::Text, true)]), false),
    ("documentationUrl", Shape::Text, false),
    ("iconUrl", Shape::Text, false),
    ("securitySchemes", Shape::Map(SCHEME), false),
    ("securityRequirements", Shape::Objects(&[("schemes", Shape::Object, false)]), false),
    ("signatures", Shape::Objects(SIGNATURE), false),
];
const INTERFACE: &[CardMember] = &[
    ("url", Shape::Text, true),
    ("protocolBinding", Shape::Text, true),
    ("protocolVersion", Shape::Text, true),
    ("tenant", Shape::Text, false),
];
const CAPABILITIES: &[CardMember] = &[
    ("streaming", Shape::Switch, false),
    ("pushNotifications", Shape::Switch, false),
    ("extendedAgentCard", Shape::Switch, false),
    ("extensions", Shape::Objects(EXTENSION), false),
];
const EXTENSION: &[CardMember] = &[
    ("uri", Shape::Text, true),
    ("description", Shape::Text, false),
    ("required", Shape::Switch, false),
    ("params", Shape::Object, false),
];
const SKILL: &[CardMember] = &[
    ("id", Shape::Text, true),
    ("name", Shape::Text, true),
    ("description", Shape::Text, true),
    ("tags", Shape::Texts, true),
    ("examples", Shape::Texts, false),
    ("inputModes", Shape::Texts, false),
    ("outputModes", Shape::Texts, false),
];
const SCHEME: &[CardMember] = &[
    (
        "apiKeySecurityScheme",
        Shape::Members(&[("name", Shape::Text, true), ("location", Shape::Text, true)]),
        false,
    ),
    ("httpAuthSecurityScheme", Shape::Members(&[("scheme", Shape::Text, true)]), false),
    ("oauth2SecurityScheme", Shape::Members(&[("flows", Shape::Object, true)]), false),
    ("openIdConnectSecurityScheme", Shape::Members(&[("openIdConnectUrl", Shape::Text, true)]), false),
    ("mtlsSecurityScheme", Shape::Object, false),
];
const SIGNATURE: &[CardMember] =
    &[("protected", Shape::Text, true), ("signature", Shape::Text, true), ("header", Shape::Object, false)];

/// What a card has wrong, each with its JSON path: a required member that is missing, or a member of another type.
pub fn problems(card: &Value) -> Vec<String> {
    let mut problems = vec![];
    check_members("", card, CARD, &mut problems);
    let interfaces = card["supportedInterfaces"].as_array().map(Vec::as_slice).unwrap_or_default();
    if interfaces.is_empty() {
        problems.push("supportedInterfaces: expected at least one interface".to_owned());
    }
    for (index, interface) in interfaces.iter().enumerate() {
        // The address of a gRPC interface is no URL.
        let is_http = matches!(interface["protocolBinding"].as_str(), Some("JSONRPC" | "HTTP+JSON"));
        if let (true, Some(Err(error))) = (is_http, interface["url"].as_str().map(Url::parse)) {
            problems.push(format!("supportedInterfaces[{index}].url: expected a URL: {error}"));
        }
    }
    problems
}

fn check_members(at: &str, object: &Value, members: &[CardMember], problems: &mut Vec<String>) {
    for (name, shape, is_required) in members {
        let at = if at.is_empty() { (*name).to_owned() } else { format!("{at}.{name}") };
        match &object[*name] {
            Value::Null if !is_required => {}
            value => check(&at, value, *shape, *is_required, problems),
        }
    }
}

fn check(at: &str, value: &Value, shape: Shape, is_required: bool, problems: &mut Vec<String>) {
    let (fits, expected) = match shape {
        Shape::Text => (value.as_str().is_some_and(|text| !is_required || !text.is_empty()), "a string"),
        Shape::Switch => (value.is_boolean(), "true or false"),
        Shape::Texts => {
            let fits = value.as_array().is_some_and(|all| all.iter().all(Value::is_string));
            (fits, "a list of strings")
        }
        Shape::Object | Shape::Map(_) | Shape::Members(_) => (value.is_object(), "an object"),
        Shape::Objects(_) => (value.is_array(), "a list"),
    };
    if !fits {
        problems.push(format!("{at}: expected {expected}"));
        return;
    }
    match shape {
        Shape::Members(members) => check_members(at, value, members, problems),
        Shape::Objects(members) => {
            for (index, element) in value.as_array().into_iter().flatten().enumerate() {
                check_element(&format!("{at}[{index}]"), element, members, problems);
            }
        }
        Shape::Map(members) => {
            for (key, element) in value.as_object().into_iter().flatten() {
                check_element(&format!("{at}.{key}"), element, members, problems);
            }
        }
        Shape::Text | Shape::Switch | Shape::Texts | Shape::Object => {}
    }
}

fn check_element(at: &str, element: &Value, members: &[CardMember], problems: &mut Vec<String>) {
    match element.is_object() {
        true => check_members(at, element, members, problems),
        false => problems.push(format!("{at}: expected an object")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn problems_have_places() {
        let found = problems(&json!({ "name": "a", "skills": [{ "id": "s", "name": "s", "tags": [1] }, 5] }));
        for expected in [
            "description: expected a string",
            "skills[0].tags: expected a list of strings",
            "skills[1]: expected an object",
            "supportedInterfaces: expected at least one interface",
        ] {
            assert!(found.iter().any(|problem| problem == expected), "{found:?}");
        }
    }

    #[test]
    fn a_member_of_another_type_is_a_problem_also_where_it_is_optional() {
        let mut card = json!({
            "name": "a", "description": "d", "version": "1", "skills": [],
            "defaultInputModes": [], "defaultOutputModes": [], "capabilities": {}, "documentationUrl": null,
            "supportedInterfaces": [{ "url": "x:1", "protocolBinding": "GRPC", "protocolVersion": "1.0" }],
        });
        assert_eq!(problems(&card), Vec::<String>::new());
        card["capabilities"] = json!({ "streaming": "yes", "extensions": [{ "uri": 1, "required": 0 }] });
        card["securitySchemes"] = json!({ "k": { "apiKeySecurityScheme": { "name": "x" } }, "l": [] });
        card["iconUrl"] = json!(5);
        card["supportedInterfaces"][0] =
            json!({ "url": "nowhere", "protocolBinding": "JSONRPC", "protocolVersion": "1.0" });
        let mut found = problems(&card);
        found.sort();
        assert_eq!(
            found,
            [
                "capabilities.extensions[0].required: expected true or false",
                "capabilities.extensions[0].uri: expected a string",
                "capabilities.streaming: expected true or false",
                "iconUrl: expected a string",
                "securitySchemes.k.apiKeySecurityScheme.location: expected a string",
                "securitySchemes.l: expected an object",
                "supportedInterfaces[0].url: expected a URL: relative URL without a base",
            ]
        );
    }
}
