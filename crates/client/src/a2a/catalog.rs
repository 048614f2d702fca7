//! Catalogs of agents: a document that lists agents by name, from which a reference `CATALOG#NAME` picks one.
//!
//! A2A defines no registry. The forms that are in use differ in the names of their members, and are read by them: a list
//! `agents`, `entries` or `servers`, or nothing but a list; each entry has a name or an identifier, and the card itself or
//! its URL.

use serde_json::{Value, value::RawValue};
use url::Url;

use super::A2aClientError;

const LISTS: [&str; 3] = ["agents", "entries", "items"];
const NAMES: [&str; 5] = ["name", "id", "identifier", "displayName", "slug"];
const CARDS: [&str; 4] = ["card", "agentCard", "agent_card", "data"];
const URLS: [&str; 7] =
    ["card", "cardUrl", "card_url", "agentCardUrl", "agent_card_url", "wellKnownURI", "url"];
/// The names that an error shows of those that the catalog has.
const SHOWN_NAMES: usize = 10;

/// Where the card of an entry is.
#[derive(Debug)]
pub(super) enum CatalogCard {
    /// In the catalog itself.
    Here(Box<RawValue>),
    At(Url),
}

/// Finds an entry by its name, or by its identifier.
pub(super) fn find(
    catalog: &[u8],
    name: &str,
    at: &str,
    base: Option<&Url>,
) -> Result<CatalogCard, A2aClientError> {
    let no_card = |why: String| A2aClientError::NoCard { at: at.to_owned(), why };
    let catalog: Value =
        serde_json::from_slice(catalog).map_err(|error| no_card(format!("not JSON: {error}")))?;
    let lists = LISTS.iter().filter_map(|list| catalog[*list].as_array());
    let entries: Vec<&Value> = catalog.as_array().into_iter().chain(lists).flatten().collect();
    if entries.is_empty() {
        return Err(no_card("it is no catalog of agents: it has no list of agents or entries".to_owned()));
    }
    let names_of = |entry: &Value| -> Vec<String> {
        let card = CARDS.iter().map(|card| &entry[*card]).find(|card| card.is_object());
        let named = NAMES.iter().filter_map(|member| entry[*member].as_str()).map(str::to_owned);
        named.chain(card.and_then(|card| card["name"].as_str()).map(str::to_owned)).collect()
    };
    let found: Vec<&&Value> =
        entries.iter().filter(|entry| names_of(entry).iter().any(|known| known == name)).collect();
    let entry = match found[..] {
        [entry] => *entry,
        [] => {
            let names = entries.iter().filter_map(|entry| names_of(entry).into_iter().next());
            let names: Vec<_> = names.take(SHOWN_NAMES).collect();
            return Err(no_card(format!("the catalog has no agent {name:?}; there is {}", names.join(", "))));
        }
        _ => return Err(no_card(format!("the catalog has {} agents {name:?}", found.len()))),
    };
    let inline = CARDS.iter().map(|card| &entry[*card]).find(|card| card.is_object());
    // An entry may be a card, as some lists have them.
    let inline = inline.or_else(|| Some(entry).filter(|entry| entry["supportedInterfaces"].is_array()));
    if let Some(card) = inline {
        let json = RawValue::from_string(card.to_string());
        return json.map(CatalogCard::Here).map_err(|error| no_card(error.to_string()));
    }
    let url = URLS.iter().find_map(|member| entry[*member].as_str());
    let url = url.ok_or_else(|| no_card(format!("the entry {name:?} has neither a card nor its URL")))?;
    let url = match base {
        Some(base) => base.join(url),
        None => Url::parse(url),
    };
    let url = url.map_err(|error| no_card(format!("the entry {name:?} has no valid URL: {error}")))?;
    match url.scheme() {
        "http" | "https" => Ok(CatalogCard::At(url)),
        other => Err(no_card(format!("the entry {name:?} leads to {other}:, which is no card"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_entry_is_found_in_the_forms_that_are_in_use() {
        let base = Url::parse("https://r.example/list").unwrap();
        let check = |catalog: Value, expected: &str| {
            let got = match find(catalog.to_string().as_bytes(), "weather", "here", Some(&base)) {
                Ok(CatalogCard::At(url)) => url.to_string(),
                Ok(CatalogCard::Here(card)) => card.to_string(),
                Err(error) => error.to_string(),
            };
            assert!(got.contains(expected), "{catalog}: {got}");
        };
        check(
            json!({ "agents": [{ "name": "weather", "card": "https://a.example/c.json" }] }),
            "https://a.example/c.json",
        );
        check(
            json!([{ "id": "weather", "url": "/agents/w/card.json" }]),
            "https://r.example/agents/w/card.json",
        );
        check(
            json!({ "entries": [{ "identifier": "weather", "data": { "name": "W" } }] }),
            r#"{"name":"W"}"#,
        );
        check(json!({ "items": [{ "agentCard": { "name": "weather" } }] }), r#"{"name":"weather"}"#);
        check(json!([{ "name": "weather", "supportedInterfaces": [] }]), r#""supportedInterfaces""#);
        check(json!({ "agents": [{ "name": "other", "card": "x" }] }), "there is other");
        check(json!({ "agents": [{ "name": "weather" }] }), "neither a card nor its URL");
        check(json!([{ "id": "weather", "url": "file:///etc/passwd" }]), "which is no card");
        check(json!([{ "id": "weather", "url": "a" }, { "id": "weather", "url": "b" }]), "2 agents");
        check(json!({ "name": "a card" }), "no catalog");
    }
}
