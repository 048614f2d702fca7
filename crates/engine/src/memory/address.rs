//! URIs of the memory bank's resources. Only this module builds them, so that followers and writers use the same
//! ones.

use std::collections::BTreeMap;

use crate::surface::expand;

/// The keys of a namespace.
pub const KEYS_TEMPLATE: &str = "memory://namespace/{namespace}/keys{?after,limit,prefix}";
/// One entry.
pub const DATA_TEMPLATE: &str = "memory://data/{namespace}/{key}";
/// A search in a namespace.
pub const SEARCH_TEMPLATE: &str = "memory://search/{namespace}{?pattern,text,page,limit}";

/// The URI of an entry.
pub fn data_uri(namespace: &str, key: &str) -> String {
    made(DATA_TEMPLATE, &[("namespace", namespace), ("key", key)])
}

/// The URI of the keys of a namespace. The URIs of its pages start with it.
pub fn keys_uri(namespace: &str) -> String {
    made(KEYS_TEMPLATE, &[("namespace", namespace)])
}

/// The URI of the page of keys after `after`.
pub fn keys_page_uri(namespace: &str, prefix: &str, after: &str, limit: usize) -> String {
    let limit = limit.to_string();
    let mut values = vec![("namespace", namespace), ("after", after), ("limit", &limit)];
    if !prefix.is_empty() {
        values.push(("prefix", prefix));
    }
    made(KEYS_TEMPLATE, &values)
}

/// The common prefix of the URIs of all searches in a namespace.
pub fn search_uri(namespace: &str) -> String {
    made(SEARCH_TEMPLATE, &[("namespace", namespace)]) + "?"
}

/// The common prefix of the URIs of all entries of a namespace.
pub(crate) fn data_prefix(namespace: &str) -> String {
    data_uri(namespace, "")
}

fn made(template: &str, values: &[(&str, &str)]) -> String {
    let values: BTreeMap<String, String> =
        values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    expand(template, &values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::surface::matches;

    #[test]
    fn an_address_leads_back_to_its_names() {
        for name in ["plain", "a/b", "task:1", "50%", "..%2f", "../..", "a b", "größe", "?x=1", "#x", "{key}"]
        {
            let found = matches(DATA_TEMPLATE, &data_uri(name, name)).unwrap_or_default();
            assert_eq!((found["namespace"].as_str(), found["key"].as_str()), (name, name));
            let page = keys_page_uri(name, name, name, 7);
            assert!(page.starts_with(&keys_uri(name)), "{page}");
            let found = matches(KEYS_TEMPLATE, &page).unwrap_or_default();
            assert_eq!((found["after"].as_str(), found["limit"].as_str()), (name, "7"));
        }
        assert_eq!(search_uri("a b"), "memory://search/a%20b?");
        assert_eq!(data_prefix("a"), "memory://data/a/");
    }
}
