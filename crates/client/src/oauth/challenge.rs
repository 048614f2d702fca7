//! The `WWW-Authenticate` challenge of scheme Bearer, for a missing or insufficient token.

use std::collections::BTreeSet;

use url::Url;

/// The parts of a challenge that the client uses.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct OAuthChallenge {
    /// The URL of the resource's metadata.
    pub(super) metadata: Option<Url>,
    /// The required scopes.
    pub(super) scopes: Option<BTreeSet<String>>,
    /// The error code.
    pub(super) error: Option<String>,
}

impl OAuthChallenge {
    /// Parses a header. Skips schemes other than Bearer.
    pub(super) fn read(header: &str) -> Self {
        let mut challenge = Self::default();
        let mut rest = header;
        let mut bearer = false;
        while let Some((name, value, after)) = next(rest) {
            rest = after;
            match value {
                // A word without a value is the name of a scheme.
                None => bearer = name.eq_ignore_ascii_case("bearer"),
                Some(value) if bearer => match name.to_ascii_lowercase().as_str() {
                    "resource_metadata" => challenge.metadata = Url::parse(&value).ok(),
                    "scope" => {
                        let scopes: BTreeSet<String> = value.split_whitespace().map(str::to_owned).collect();
                        challenge.scopes = (!scopes.is_empty()).then_some(scopes);
                    }
                    "error" => challenge.error = Some(value),
                    _ => {}
                },
                Some(_) => {}
            }
        }
        challenge
    }
}

/// The next word, with its value if it has one, and the remaining text.
fn next(text: &str) -> Option<(&str, Option<String>, &str)> {
    let text = text.trim_start_matches([' ', ',', '\t']);
    let end = text.find([' ', ',', '=', '\t']).unwrap_or(text.len());
    if end == 0 {
        return None;
    }
    let (name, rest) = text.split_at(end);
    let Some(value) = rest.trim_start().strip_prefix('=') else { return Some((name, None, rest)) };
    let value = value.trim_start();
    let Some(quoted) = value.strip_prefix('"') else {
        let end = value.find([' ', ',', '\t']).unwrap_or(value.len());
        return Some((name, Some(value[..end].to_owned()), &value[end..]));
    };
    let mut out = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '"' => return Some((name, Some(out), &quoted[at + 1..])),
            '\\' => out.extend(characters.next().map(|(_, c)| c)),
            c => out.push(c),
        }
    }
    Some((name, Some(out), ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_names_metadata_scopes_and_what_is_wrong() {
        let header = r#"Basic realm="x, scope=no", Bearer realm="a \"b\"", scope="read write", resource_metadata="https://x.org/m", error=insufficient_scope"#;
        let challenge = OAuthChallenge::read(header);
        assert_eq!(challenge.metadata.unwrap().as_str(), "https://x.org/m");
        assert_eq!(challenge.scopes.unwrap().into_iter().collect::<Vec<_>>(), ["read", "write"]);
        assert_eq!(challenge.error.as_deref(), Some("insufficient_scope"));
        for nothing in [
            "",
            "Bearer",
            "Basic scope=\"a\"",
            "Bearer scope=\"\"",
            ",,,=",
            "Bearer =",
            "Bearer scope=\"unended",
        ] {
            let challenge = OAuthChallenge::read(nothing);
            assert_eq!((challenge.metadata, challenge.error), (None, None), "{nothing}");
        }
    }
}
