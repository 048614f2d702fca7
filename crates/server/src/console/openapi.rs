//! The OpenAPI document of the console's API. It is written by hand; tests compare it with the routes, the parameters and the
//! answers of a running server.

/// OpenAPI 3.1. It holds no data of the server, so it is served without credentials, as the pages are.
pub(super) const DOCUMENT: &str = include_str!("openapi.json");

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::DOCUMENT;

    /// The routes as the source of the dispatcher names them: a method, and segments of which the bare ones are parameters.
    fn routes_of_source() -> BTreeSet<String> {
        let source = include_str!("api.rs");
        let mut routes = BTreeSet::new();
        for line in source.lines().map(str::trim) {
            let (method, segments) = if let Some(arm) = line.strip_prefix("(\"") {
                let Some((method, rest)) = arm.split_once("\", [") else { continue };
                let Some((segments, _)) = rest.split_once("])") else { continue };
                (method.to_owned(), segments)
            } else if let Some(rest) = line.strip_prefix("if segments == [") {
                let (segments, rest) = rest.split_once(']').unwrap();
                let method = rest.split_once("Method::").unwrap().1;
                (method.chars().take_while(char::is_ascii_uppercase).collect(), segments)
            } else {
                continue;
            };
            let path: String = segments
                .split(", ")
                .map(|segment| match segment.strip_prefix('"') {
                    Some(literal) => format!("/{}", literal.trim_end_matches('"')),
                    None if segment == "webhook" => "/{webhookId}".to_owned(),
                    None => format!("/{{{segment}}}"),
                })
                .collect();
            routes.insert(format!("{} {path}", method.to_lowercase()));
        }
        routes
    }

    #[test]
    fn every_route_is_in_the_document_and_nothing_else() {
        let document: Value = serde_json::from_str(DOCUMENT).unwrap();
        let mut documented = BTreeSet::new();
        for (path, operations) in document["paths"].as_object().unwrap() {
            for method in operations.as_object().unwrap().keys() {
                documented.insert(format!("{method} {path}"));
            }
        }
        let routes = routes_of_source();
        assert!(
            routes.len() > 30 && routes.contains("post /session"),
            "the source was not understood: {routes:?}"
        );
        assert_eq!(documented, routes);
    }

    /// Ids of operations are unique, and every reference leads to a schema that exists.
    #[test]
    fn references_and_ids_are_good() {
        let document: Value = serde_json::from_str(DOCUMENT).unwrap();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let (mut used, mut ids) = (BTreeSet::new(), BTreeSet::new());
        for piece in DOCUMENT.split("\"#/components/schemas/").skip(1) {
            used.insert(piece.split('"').next().unwrap().to_owned());
        }
        assert_eq!(used, schemas.keys().cloned().collect());
        for operation in document["paths"]
            .as_object()
            .unwrap()
            .values()
            .flat_map(|path| path.as_object().unwrap().values())
        {
            assert!(ids.insert(operation["operationId"].as_str().unwrap()), "{operation}");
        }
    }
}
