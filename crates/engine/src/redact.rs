//! A filter that removes what looks like a secret from text that other parties will read: log lines, the
//! audit, previews. It is never applied to values that their owner reads back.

mod known_secrets;

use std::{
    borrow::Cow,
    fmt,
    sync::{LazyLock, OnceLock},
};

use parking_lot::RwLock;
use regex::{Captures, Regex, RegexSet};
use serde_json::Value;

pub use self::known_secrets::KnownSecrets;

/// The replacement of a secret.
pub const REDACTED: &str = "[redacted]";

/// Patterns of secrets. If a pattern has a group `keep`, that part of the match stays.
const SHAPES: &[&str] = &[
    // Private keys, also if the text ends before the key does.
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(-----END [A-Z ]*PRIVATE KEY-----|\z)",
    // JSON Web Tokens.
    r"\beyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]*",
    // The value of an Authorization header.
    r"(?i)(?P<keep>\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{6,}",
    // Keys with a known prefix: ours, and those of known providers.
    r"\bnun_[A-Za-z0-9]+_[A-Za-z0-9_-]+",
    r"\b(?:sk|pk|rk|whsec)[-_][A-Za-z0-9_-]{12,}",
    r"\bgh[pousr]_[A-Za-z0-9]{16,}",
    r"\bgithub_pat_[A-Za-z0-9_]{16,}",
    r"\bglpat-[A-Za-z0-9_-]{16,}",
    r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}",
    r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    r"\bAIza[0-9A-Za-z_-]{30,}",
    // A password in a URL.
    r"(?P<keep>://[^/\s:@]*:)[^@\s/]+(?:@)",
    // A value whose name marks it as a secret.
    r#"(?i)(?P<keep>\b[a-z0-9_-]*(?:password|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|authorization|credential)s?\\?["']?\s*[:=]\s*\\?["']?)[^\s"',;&}\\]+"#,
];

/// A percent-encoded piece of a URI: a pattern does not match across an encoded space or `=`.
const ENCODED: &str = r#"[^\s"'<>\\/?&#]*%[0-9A-Fa-f]{2}[^\s"'<>\\/?&#]*"#;
/// How many times a piece is decoded; deeper encodings are not examined.
const DECODINGS: usize = 4;

/// Names of fields whose values are secrets, compared without case, `-` and `_`.
const FIELDS: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "authorization",
    "credential",
    "cookie",
    "cardnumber",
    "cvv",
    "pin",
];

/// The digits of what may be a payment card number.
const CARD: &str = r"\b\d(?:[ -]?\d){12,18}\b";

/// The patterns above, compiled when the first text is filtered: most commands filter none.
static BUILT_IN: LazyLock<Patterns> = LazyLock::new(Patterns::built_in);

/// Compiled patterns.
#[derive(Debug, Clone)]
struct Patterns {
    shapes: Vec<Regex>,
    card: Option<Regex>,
    encoded: Option<Regex>,
    /// All shapes and the card in one automaton: most texts match none, and are read once.
    any: OnceLock<Option<RegexSet>>,
}

impl Patterns {
    fn built_in() -> Self {
        // A test covers every pattern above; one that did not compile would fail it.
        let shapes = SHAPES.iter().filter_map(|shape| Regex::new(shape).ok()).collect();
        let (card, encoded) = (Regex::new(CARD).ok(), Regex::new(ENCODED).ok());
        Self { shapes, card, encoded, any: OnceLock::new() }
    }

    fn any(&self) -> Option<&RegexSet> {
        let all = || self.shapes.iter().map(Regex::as_str).chain([CARD]);
        // Where the set is too large for its limit, the patterns are tried one after the other.
        self.any.get_or_init(|| RegexSet::new(all()).ok()).as_ref()
    }
}

/// Finds secrets by their pattern and by the names of their fields.
#[derive(Debug, Default)]
pub struct Redactor {
    /// The built-in patterns and the operator's. Without these, [`BUILT_IN`].
    patterns: Option<Patterns>,
    known: RwLock<LearnedSecrets>,
}

/// Secrets of the configuration, whatever they look like.
#[derive(Default)]
struct LearnedSecrets {
    secrets: KnownSecrets,
    /// Every form of each of them: most texts hold none, and are read once. `None`: there are no secrets, or too many for one
    /// automaton.
    any: Option<Regex>,
}

impl LearnedSecrets {
    fn learn(&mut self, secrets: &KnownSecrets) {
        self.secrets.extend(secrets);
        let forms: Vec<String> = self.secrets.forms().map(regex::escape).collect();
        self.any = Some(forms.join("|")).filter(|any| !any.is_empty()).and_then(|any| Regex::new(&any).ok());
    }

    fn clean<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match &self.any {
            Some(any) if !any.is_match(text) => Cow::Borrowed(text),
            _ => self.secrets.clean(text),
        }
    }
}

impl Redactor {
    /// Adds patterns: regular expressions whose matches are secrets.
    pub fn with(patterns: &[String]) -> Result<Self, String> {
        if patterns.is_empty() {
            return Ok(Self::default());
        }
        let mut all = Patterns { any: OnceLock::new(), ..BUILT_IN.clone() };
        for pattern in patterns {
            let shape = regex::RegexBuilder::new(pattern).size_limit(1 << 20).build();
            all.shapes.push(shape.map_err(|error| format!("{pattern:?} is no pattern: {error}"))?);
        }
        Ok(Self { patterns: Some(all), known: RwLock::default() })
    }

    fn patterns(&self) -> &Patterns {
        self.patterns.as_ref().unwrap_or_else(|| &BUILT_IN)
    }

    /// Also filters these secrets from here on, even after the configuration has replaced them: a request
    /// sent with an old secret may be echoed later.
    pub fn learn(&self, secrets: &KnownSecrets) {
        self.known.write().learn(secrets);
    }

    /// The text without secrets. A piece of a URI that contains one when decoded is removed whole.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let plain = self.plain(text);
        match &self.patterns().encoded {
            Some(encoded) if plain.contains('%') && encoded.is_match(&plain) => {
                let cleaned = encoded.replace_all(&plain, |found: &Captures<'_>| {
                    let hides = self.hides(&found[0]);
                    if hides { REDACTED.to_owned() } else { found[0].to_owned() }
                });
                Cow::Owned(cleaned.into_owned())
            }
            _ => plain,
        }
    }

    /// Whether an encoded piece contains a secret when decoded.
    fn hides(&self, piece: &str) -> bool {
        let mut piece = Cow::Borrowed(piece);
        for _ in 0..DECODINGS {
            let decoded = decoded(&piece);
            if decoded == piece {
                return false;
            }
            if self.plain(&decoded) != decoded {
                return true;
            }
            piece = Cow::Owned(decoded);
        }
        false
    }

    /// Removes secrets from text without decoding it.
    fn plain<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = self.known.read().clean(text);
        let patterns = self.patterns();
        if patterns.any().is_some_and(|any| !any.is_match(&text)) {
            return text;
        }
        for shape in &patterns.shapes {
            if !shape.is_match(&text) {
                continue;
            }
            let cleaned = shape.replace_all(&text, |found: &Captures<'_>| {
                let keep = found.name("keep").map_or("", |keep| keep.as_str());
                let at = if found[0].ends_with('@') && !keep.is_empty() { "@" } else { "" };
                format!("{keep}{REDACTED}{at}")
            });
            text = Cow::Owned(cleaned.into_owned());
        }
        match &patterns.card {
            Some(card) if card.is_match(&text) => {
                let cleaned = card.replace_all(&text, |found: &Captures<'_>| match is_card(&found[0]) {
                    true => REDACTED.to_owned(),
                    false => found[0].to_owned(),
                });
                Cow::Owned(cleaned.into_owned())
            }
            _ => text,
        }
    }

    /// The value without secrets, neither in its texts nor in fields with secret names.
    pub fn json(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(text).into_owned()),
            Value::Array(items) => items.iter().map(|item| self.json(item)).collect(),
            Value::Object(fields) => {
                let clean = |(name, field): (&String, &Value)| {
                    let kept = if is_secret_name(name) { REDACTED.into() } else { self.json(field) };
                    (self.text(name).into_owned(), kept)
                };
                Value::Object(fields.iter().map(clean).collect())
            }
            other => match other.as_u64() {
                Some(number) if is_card(&number.to_string()) => REDACTED.into(),
                _ => other.clone(),
            },
        }
    }
}

/// Only the names of their variables: the automaton has the secrets themselves.
impl fmt::Debug for LearnedSecrets {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.secrets.fmt(out)
    }
}

/// Percent-decodes a text; invalid codes stay as they are.
pub(crate) fn decoded(text: &str) -> String {
    let (bytes, mut out, mut at) = (text.as_bytes(), Vec::with_capacity(text.len()), 0);
    while at < bytes.len() {
        let code = text.get(at + 1..at + 3).filter(|code| code.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) if bytes[at] == b'%' => {
                out.push(byte);
                at += 3;
            }
            _ => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Whether the value of a field or a setting is a secret, by its name.
pub fn is_secret_name(field: &str) -> bool {
    let plain: String =
        field.chars().filter(|c| !matches!(c, '-' | '_' | ' ')).flat_map(char::to_lowercase).collect();
    FIELDS.iter().any(|name| match *name {
        // Short names occur within other words.
        "pin" | "cvv" => plain == *name,
        name => plain.contains(name),
    })
}

/// Whether digits are a payment card number: 13 to 19 of them, with a valid check digit.
fn is_card(text: &str) -> bool {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(10)).collect();
    if !(13..=19).contains(&digits.len()) || digits.iter().all(|digit| *digit == digits[0]) {
        return false;
    }
    let double = |digit: u32| if digit > 4 { digit * 2 - 9 } else { digit * 2 };
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(n, digit)| if n % 2 == 1 { double(*digit) } else { *digit })
        .sum();
    sum.is_multiple_of(10)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(Redactor::default().text(text), expected);
    }

    #[test]
    fn every_shape_compiles() {
        assert_eq!(BUILT_IN.shapes.len(), SHAPES.len());
        assert!(BUILT_IN.card.is_some());
        assert!(BUILT_IN.any().is_some());
    }

    #[test]
    fn what_looks_like_a_secret_is_gone_and_the_rest_stays() {
        check("nothing to hide here: 42", "nothing to hide here: 42");
        check("key sk-live-abcdefghijklmnop!", "key [redacted]!");
        check("Authorization: Bearer abc.def-ghi", "Authorization: [redacted] [redacted]");
        check("curl -H 'bearer abcdefgh'", "curl -H 'bearer [redacted]'");
        check("nun_abc_DEF-1 was used", "[redacted] was used");
        check("password=hunter2&next=1", "password=[redacted]&next=1");
        check(r#"{"db_password": "hunter2", "n": 1}"#, r#"{"db_password": "[redacted]", "n": 1}"#);
        check(r#"said {\"api_key\":\"abc\"}"#, r#"said {\"api_key\":\"[redacted]\"}"#);
        check("postgres://ada:geheim@db/x", "postgres://ada:[redacted]@db/x");
        check("card 4111 1111 1111 1111.", "card [redacted].");
        check("order 4111 1111 1111 1112.", "order 4111 1111 1111 1112.");
        check("eyJhbGciOi.eyJzdWIiOi.c2ln end", "[redacted] end");
        check("-----BEGIN RSA PRIVATE KEY-----\nabc", "[redacted]");
        check("task 0198c7a2-1111-7000-8000-000000000000", "task 0198c7a2-1111-7000-8000-000000000000");
    }

    #[test]
    fn what_is_encoded_in_an_address_is_found_as_well() {
        check("memory://data/ns/late%20sk-live-abcdefghijklmnop?x=1", "memory://data/ns/[redacted]?x=1");
        check("memory://data/ns/password%3Dhunter2 was read", "memory://data/ns/[redacted] was read");
        check(
            r#"{"uri":"memory://data/ns/card%204111%201111%201111%201111"}"#,
            r#"{"uri":"memory://data/ns/[redacted]"}"#,
        );
        check("/agents/postgres%3A%2F%2Fada%3Ageheim%40db", "/agents/[redacted]");
        check("twice%2520sk-live-abcdefghijklmnop", "[redacted]");
        check("/%73%6b-live-abcdefghijklmnop/x", "/[redacted]/x");
        check(
            "memory://data/ns/a%20b%2Fc and 100% of %zz, %",
            "memory://data/ns/a%20b%2Fc and 100% of %zz, %",
        );
        check("caf%C3%A9%ff", "caf%C3%A9%ff");
        assert!(BUILT_IN.encoded.is_some());
    }

    #[test]
    fn fields_that_are_named_so_are_gone_whatever_they_hold() {
        let value = json!({ "userPassword": "x", "API-Key": { "a": 1 }, "spin": 1, "pin": 1234, "n": 4111111111111111u64,
            "list": ["token: abc", "ok"] });
        let expected = json!({ "userPassword": REDACTED, "API-Key": REDACTED, "spin": 1, "pin": REDACTED,
            "n": REDACTED, "list": ["token: [redacted]", "ok"] });
        assert_eq!(Redactor::default().json(&value), expected);
    }

    #[test]
    fn what_is_learned_is_found_in_every_form_and_later_ones_as_well() {
        let redactor = Redactor::default();
        let learn = |variable: &str, value: &str| {
            let mut secrets = KnownSecrets::default();
            secrets.add(variable, value);
            redactor.learn(&secrets);
        };
        let check = |text: &str, expected: &str| assert_eq!(redactor.text(text), expected);
        check("a2a://agents/s3.(cr)*et", "a2a://agents/s3.(cr)*et");
        learn("A", "s3.(cr)*et");
        learn("NONE", "");
        check("a2a://agents/s3.(cr)*et", "a2a://agents/${A}");
        check("a2a://agents/s3.%28cr%29%2Aet", "a2a://agents/${A}");
        check("a2a://agents/s3xcrxet", "a2a://agents/s3xcrxet");
        learn("B", "Other|one");
        // Each by itself: none of them is found because the text has another one.
        check("s3.(cr)*et", "${A}");
        check("other|one", "${B}");
        check("Other|one, s3.(cr)*et, other|one", "${B}, ${A}, ${B}");
        let shown = format!("{redactor:?}");
        assert!(!shown.contains("s3") && !shown.contains("Other"), "{shown}");
    }

    #[test]
    fn an_operator_adds_shapes() {
        let redactor = Redactor::with(&["ACME-[0-9]+".into()]).unwrap();
        assert_eq!(redactor.text("see ACME-77"), "see [redacted]");
        assert_eq!(redactor.text("and sk-live-abcdefghijklmnop"), "and [redacted]");
        assert_eq!(redactor.text("card 4111 1111 1111 1111, ACME-1"), "card [redacted], [redacted]");
        assert_eq!(redactor.text("neither"), "neither");
        assert!(Redactor::with(&["(".into()]).is_err());
    }
}
