//! Secrets known by value: the values of environment variables that the configuration refers to.

use std::{borrow::Cow, fmt};

/// Shorter values occur in ordinary words and numbers, and are not redacted.
const SHORTEST: usize = 6;

/// Secrets by value, each with the variable name that replaces it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct KnownSecrets(Vec<KnownSecret>);

#[derive(Clone, PartialEq, Eq)]
struct KnownSecret {
    shown: String,
    /// The value as it is, and as it is encoded in URLs, host names and JSON. The longest first.
    forms: Vec<String>,
}

impl KnownSecrets {
    /// Adds the value of a variable. Values too short to be told from other text are skipped.
    pub fn add(&mut self, variable: &str, value: &str) {
        let value = value.trim();
        if value.len() < SHORTEST {
            return;
        }
        let json = serde_json::to_string(value).unwrap_or_default();
        let json = json.trim_matches('"').to_owned();
        let mut forms = vec![
            value.to_owned(),
            encoded(value, b"-_.~!$&'()*+,;=:@/?"),
            encoded(value, b"-_.~"),
            encoded(value, b"-_.*").replace("%20", "+"),
            value.to_ascii_lowercase(),
            json.replace('\\', "\\\\").replace('"', "\\\""),
            json,
        ];
        forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
        forms.dedup();
        let secret = KnownSecret { shown: format!("${{{variable}}}"), forms };
        if !self.0.contains(&secret) {
            self.0.push(secret);
        }
    }

    /// Adds the secrets of another set.
    pub fn extend(&mut self, others: &Self) {
        for other in &others.0 {
            if !self.0.contains(other) {
                self.0.push(other.clone());
            }
        }
    }

    /// Every form of each secret.
    pub(super) fn forms(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flat_map(|secret| secret.forms.iter().map(String::as_str))
    }

    /// The text with each secret replaced by its variable name.
    pub fn clean<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(text);
        for secret in &self.0 {
            for form in &secret.forms {
                if text.contains(form.as_str()) {
                    text = Cow::Owned(text.replace(form.as_str(), &secret.shown));
                }
            }
        }
        text
    }
}

/// Percent-encodes everything but letters, digits and `plain`.
fn encoded(text: &str, plain: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || plain.contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

impl fmt::Debug for KnownSecrets {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.0.iter().map(|secret| &secret.shown)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_in_every_form_that_it_takes() {
        let mut known = KnownSecrets::default();
        known.add("KEY", "S3cret/pass word\"x");
        known.add("SHORT", "12");
        let check = |text: &str, expected: &str| assert_eq!(known.clean(text), expected);
        check("nothing here, 12", "nothing here, 12");
        check("it is S3cret/pass word\"x!", "it is ${KEY}!");
        check("http://x/S3cret%2Fpass%20word%22x", "http://x/${KEY}");
        check("http://x/S3cret/pass%20word%22x", "http://x/${KEY}");
        check("?q=S3cret%2Fpass+word%22x", "?q=${KEY}");
        check(r#"{"a":"S3cret/pass word\"x"}"#, r#"{"a":"${KEY}"}"#);
        check("s3cret/pass word\"x", "${KEY}");
        assert_eq!(format!("{known:?}"), r#"["${KEY}"]"#);
    }
}
