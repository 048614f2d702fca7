//! Limits of the memory bank. Every limit has a name and a default, and an error names the limit it hit.

use std::{collections::BTreeSet, time::Duration};

use serde_json::Value;

use super::{BankError, text};

/// Limits on the size and the searches of the memory bank.
#[derive(Debug, Clone)]
pub struct MemoryLimits {
    /// Bytes of a namespace's name.
    pub namespace_bytes: usize,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value as JSON.
    pub value_bytes: usize,
    /// Nesting depth of arrays and objects in a value.
    pub value_depth: usize,
    /// Entries of one namespace.
    pub entries_per_namespace: u64,
    /// Bytes of all entries of a tenant: values, keys and namespaces, plus 200 per entry.
    pub bytes_per_tenant: u64,
    /// Namespaces of a tenant.
    pub namespaces_per_tenant: u64,
    /// The longest time to live of an entry.
    pub longest_ttl: Duration,
    /// Bytes of a pattern or of a search text.
    pub pattern_bytes: usize,
    /// Stars in one pattern.
    pub pattern_stars: usize,
    /// Words in one search.
    pub search_words: usize,
    /// Entries on a page of keys.
    pub keys_page: usize,
    /// Results on a page of a search.
    pub search_page: usize,
    /// Keys that one search scans.
    pub search_keys: u64,
    /// The time limit of one search.
    pub search_within: Duration,
}

impl Default for MemoryLimits {
    fn default() -> Self {
        Self {
            namespace_bytes: 128,
            key_bytes: 512,
            value_bytes: 1024 * 1024,
            // The depth limit of JSON parsers, less what surrounds a value in a response.
            value_depth: 100,
            entries_per_namespace: 1_000_000,
            bytes_per_tenant: 1024 * 1024 * 1024,
            namespaces_per_tenant: 10_000,
            longest_ttl: Duration::from_secs(10 * 365 * 24 * 3600),
            pattern_bytes: 256,
            pattern_stars: 8,
            search_words: 16,
            keys_page: 1_000,
            search_page: 100,
            search_keys: 1_000_000,
            search_within: Duration::from_secs(5),
        }
    }
}

impl MemoryLimits {
    /// Checks the name of a namespace.
    pub fn check_namespace(&self, name: &str) -> Result<(), BankError> {
        check_name("namespace", name, self.namespace_bytes, "namespace_bytes")
    }

    /// Checks the name of a key.
    pub fn check_key(&self, name: &str) -> Result<(), BankError> {
        check_name("key", name, self.key_bytes, "key_bytes")
    }

    /// Checks a part of a namespace's name, which may be empty.
    pub(super) fn check_namespace_part(&self, field: &'static str, part: &str) -> Result<(), BankError> {
        if part.is_empty() {
            return Ok(());
        }
        check_name(field, part, self.namespace_bytes, "namespace_bytes")
    }

    /// Checks a part of a key, which may be empty.
    pub(super) fn check_key_part(&self, field: &'static str, part: &str) -> Result<(), BankError> {
        if part.is_empty() { Ok(()) } else { check_name(field, part, self.key_bytes, "key_bytes") }
    }

    pub(super) fn check_ttl(&self, ttl: Option<Duration>) -> Result<(), BankError> {
        let Some(ttl) = ttl else { return Ok(()) };
        if ttl.is_zero() || ttl.subsec_nanos() != 0 {
            return Err(BankError::invalid("ttl", "a whole number of seconds, from 1"));
        }
        if ttl > self.longest_ttl {
            let most = self.longest_ttl.as_secs();
            let why = format!("{} seconds, and may be {most} (longest_ttl)", ttl.as_secs());
            return Err(BankError::invalid("ttl", why));
        }
        Ok(())
    }

    pub(super) fn check_size(&self, bytes: usize) -> Result<(), BankError> {
        match bytes > self.value_bytes {
            false => Ok(()),
            true => Err(BankError::invalid(
                "value",
                format!("has {bytes} bytes as JSON, and may have {} (value_bytes)", self.value_bytes),
            )),
        }
    }

    pub(super) fn check_depth(&self, value: &Value) -> Result<(), BankError> {
        match text::deeper_than(value, self.value_depth) {
            false => Ok(()),
            true => Err(BankError::invalid(
                "value",
                format!("is nested deeper than {} levels (value_depth)", self.value_depth),
            )),
        }
    }

    pub(super) fn check_limit(&self, limit: usize, most: usize, name: &str) -> Result<(), BankError> {
        match (1..=most).contains(&limit) {
            true => Ok(()),
            false => Err(BankError::invalid("limit", format!("from 1 to {most} ({name}), not {limit}"))),
        }
    }

    /// The words to search for, without duplicates and within the limits.
    pub(super) fn check_words(&self, given: &[String]) -> Result<Vec<String>, BankError> {
        let bytes: usize = given.iter().map(String::len).sum();
        if bytes > self.pattern_bytes {
            let why = format!("has {bytes} bytes, and may have {} (pattern_bytes)", self.pattern_bytes);
            return Err(BankError::invalid("text", why));
        }
        let mut known = BTreeSet::new();
        let words = given.iter().flat_map(|given| text::words(given));
        let words: Vec<String> = words.filter(|word| known.insert(word.to_lowercase())).collect();
        if words.is_empty() {
            return Err(BankError::invalid("text", "has no letters or digits to search for"));
        }
        if words.len() > self.search_words {
            let why = format!("has {} words, and may have {} (search_words)", words.len(), self.search_words);
            return Err(BankError::invalid("text", why));
        }
        Ok(words)
    }
}

fn check_name(field: &'static str, name: &str, most: usize, limit: &'static str) -> Result<(), BankError> {
    let wrong = |why: String| Err(BankError::invalid(field, why));
    if name.is_empty() {
        return wrong("must not be empty".into());
    }
    if name.len() > most {
        return wrong(format!("has {} bytes, and may have {most} ({limit})", name.len()));
    }
    match name.chars().find(|c| c.is_control()) {
        Some(c) => wrong(format!("has the control character U+{:04X} in it", u32::from(c))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_too_much_is_refused_with_the_name_of_the_limit() {
        let limits = MemoryLimits::default();
        let refused = |result: Result<(), BankError>, word: &str| {
            let error = result.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(word), "{word}: {error:?}");
        };
        assert!(limits.check_namespace(&"n".repeat(128)).is_ok());
        refused(limits.check_namespace(&"n".repeat(129)), "namespace_bytes");
        assert!(limits.check_key(&"k".repeat(512)).is_ok());
        refused(limits.check_key(&"ü".repeat(257)), "key_bytes");
        refused(limits.check_key(""), "key: must not be empty");
        refused(limits.check_key("a\0b"), "U+0000");
        refused(limits.check_namespace("a\u{85}b"), "U+0085");
        refused(limits.check_ttl(Some(Duration::ZERO)), "ttl");
        refused(limits.check_ttl(Some(Duration::from_millis(1_500))), "whole");
        assert!(limits.check_ttl(Some(limits.longest_ttl)).is_ok());
        refused(limits.check_ttl(Some(limits.longest_ttl + Duration::from_secs(1))), "longest_ttl");
        assert!(limits.check_size(1024 * 1024).is_ok());
        refused(limits.check_size(1024 * 1024 + 1), "value_bytes");
        let deep = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!([inner]));
        assert!(limits.check_depth(&deep(100)).is_ok());
        refused(limits.check_depth(&deep(101)), "value_depth");
        refused(limits.check_limit(0, limits.search_page, "search_page"), "limit");
        refused(limits.check_limit(101, limits.search_page, "search_page"), "search_page");
        refused(limits.check_limit(1_001, limits.keys_page, "keys_page"), "keys_page");
        let words = |text: String| limits.check_words(&[text]).map(drop);
        refused(words("!?".into()), "letters or digits");
        refused(words("x".repeat(257)), "pattern_bytes");
        let many: Vec<String> = (0..17).map(|n| n.to_string()).collect();
        refused(words(many.join(" ")), "search_words");
        assert_eq!(
            limits.check_words(&["one Two one".into(), "TWO".into()]).ok(),
            Some(vec!["one".into(), "Two".into()])
        );
    }
}
