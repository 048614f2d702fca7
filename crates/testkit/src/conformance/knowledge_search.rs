//! Checks of searches in the memory bank: keys that match a pattern, and values that contain words.

use std::sync::Arc;

use nuncio_engine::{
    knowledge::{MemoryKey, MemoryPut, MemoryQuery, MemorySearch, MemorySearchPage},
    store::Store,
};

use super::{
    fixtures::at,
    knowledge_memory::{key, put, puts},
};

async fn search(store: &Arc<dyn Store>, what: MemoryQuery, offset: u64, limit: usize) -> MemorySearchPage {
    let query = MemorySearch {
        tenant: "acme".into(),
        namespace: "n".into(),
        what,
        offset,
        limit,
        max_keys: 1_000_000,
        within: std::time::Duration::from_secs(60),
        now: at(1),
    };
    store.knowledge().search_memory(&query).await.unwrap()
}

async fn with_words(store: &Arc<dyn Store>, words: &[&str]) -> Vec<String> {
    let words = words.iter().map(|word| (*word).to_owned()).collect();
    let found = search(store, MemoryQuery::Words(words), 0, 100).await;
    assert_eq!(found.total, found.entries.len() as u64);
    found.entries.into_iter().map(|(entry, _)| entry.key).collect()
}

/// A reference implementation of patterns, as simple as possible.
fn fits(pattern: &[char], key: &[char]) -> bool {
    let Some(first) = pattern.first() else { return key.is_empty() };
    if *first == '*' {
        return (0..=key.len()).any(|taken| fits(&pattern[1..], &key[taken..]));
    }
    let Some(c) = key.first() else { return false };
    if *first == '[' {
        let others = matches!(pattern.get(1), Some('!' | '^'));
        let open = if others { 2 } else { 1 };
        let close = (open + 1..pattern.len()).find(|place| pattern[*place] == ']');
        if let Some(close) = close {
            let set = &pattern[open..close];
            let (mut place, mut seen) = (0, false);
            while place < set.len() {
                let range = set.get(place + 1) == Some(&'-') && place + 2 < set.len();
                seen |= set[place] == *c || range && (set[place]..=set[place + 2]).contains(c);
                place += if range { 3 } else { 1 };
            }
            return seen != others && fits(&pattern[close + 1..], &key[1..]);
        }
    }
    (*first == '?' || first == c) && fits(&pattern[1..], &key[1..])
}

/// Every pattern finds exactly its matches: the shortest first, then by key, page by page.
pub async fn patterns_find_what_they_mean(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let keys = [
        "a",
        "b",
        "ab",
        "abc",
        "a-c",
        "a*c",
        "a?c",
        "[a]",
        "]",
        "^",
        "!",
        "-",
        "\\",
        "a\\b",
        "a.c",
        "a+",
        "(a)",
        "a|b",
        "{1}",
        "$",
        "^a$",
        "%",
        "_",
        "a%b",
        "a_b",
        "user:1",
        "user:2",
        "user:10",
        "user:é",
        "User:1",
        "日本",
        "日本語",
        "a/b/c",
        "it's",
        "\"",
        "a b",
        "a\nb",
        "z",
        "Z",
        "aa",
        "aaa",
        "aaaa",
    ];
    for name in keys {
        puts(&store, put("n", name, "1")).await;
        puts(&store, put("m", &format!("{name}{name}"), "1")).await;
    }
    let patterns = [
        "*",
        "?",
        "??",
        "a*",
        "*a",
        "*a*",
        "a?c",
        "user:*",
        "user:?",
        "[ab]",
        "[!ab]",
        "[^ab]",
        "[a-c]",
        "[!a-c]*",
        "[]]",
        "[]a]",
        "[!]]",
        "[a-]",
        "[-a]",
        "[z-a]",
        "[a",
        "[",
        "[]",
        "[!]",
        "[^]",
        "[[]a]",
        "[[]*",
        "*]",
        "\\",
        "\\*",
        "a\\?",
        ".",
        "a.c",
        "a+",
        "(a)",
        "a|b",
        "{1}",
        "$",
        "^a$",
        "^",
        "!",
        "[!-~]",
        "[!!]",
        "[^^]",
        "%",
        "_",
        "a%b",
        "*語",
        "日?",
        "[日-本]*",
        "?????",
        "**",
        "*?*",
        "a*b*c",
        "a*a*a",
        "*'*",
        "\"",
        "a b",
        "a\nb",
        "",
        "none*",
        "[a-c-e]",
        "[--a]",
        "[\\]",
        "[\\\\]",
        "[a\\]",
        "[*?]",
        "a[*]c",
        "U*",
        "[A-Z]*",
        "user:[0-9]",
        "user:[!0-9]",
        "[é]",
        "*é",
        "[:alpha:]",
        "[[:alpha:]]",
        "[.a.]",
        "[=a=]",
    ];
    for pattern in patterns {
        let shape: Vec<char> = pattern.chars().collect();
        let mut expected: Vec<_> =
            keys.into_iter().filter(|name| fits(&shape, &name.chars().collect::<Vec<_>>())).collect();
        expected.sort_unstable_by_key(|name| (name.chars().count(), *name));
        let found = search(&store, MemoryQuery::Keys(pattern.into()), 0, 100).await;
        let names: Vec<_> = found.entries.iter().map(|(entry, _)| &*entry.key).collect();
        assert_eq!(names, expected, "{pattern:?}");
        assert_eq!(found.total, expected.len() as u64, "{pattern:?}");
        assert!(found.entries.iter().all(|(entry, rank)| rank.is_none() && entry.value == "1"));
        let page = search(&store, MemoryQuery::Keys(pattern.into()), 2, 3).await;
        let names: Vec<_> = page.entries.iter().map(|(entry, _)| &*entry.key).collect();
        assert_eq!(
            names,
            expected.iter().skip(2).take(3).copied().collect::<Vec<_>>(),
            "{pattern:?}, page 2"
        );
        assert_eq!(page.total, expected.len() as u64, "{pattern:?}, page 2");
    }
    let far = search(&store, MemoryQuery::Keys("*".into()), u64::MAX, 10).await;
    assert_eq!((far.total, far.entries.len()), (keys.len() as u64, 0));
}

/// All words must occur, in this namespace of this tenant, in any case; an overwrite removes the old words.
pub async fn words_are_found_in_their_namespace(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let text = |name: &str, text: &str| MemoryPut { text: text.into(), ..put("n", name, "{}") };
    puts(&store, text("pie", "Apple pie, with cinnamon")).await;
    puts(&store, text("tart", "pear tart")).await;
    puts(&store, text("both", "apple and pear")).await;
    puts(&store, text("sky", "O céu É azul; 東京 v1.2 foo_bar a-b mail@example.org")).await;
    puts(&store, text("nul", "before\0after")).await;
    puts(&store, MemoryPut { text: "apple secret".into(), ..put("m", "k", "{}") }).await;
    let other = MemoryKey { tenant: "other".into(), ..key("n", "k") };
    puts(&store, MemoryPut { key: other, text: "apple hidden".into(), ..put("", "", "{}") }).await;

    let sorted = async |words: &[&str]| {
        let mut names = with_words(&store, words).await;
        names.sort_unstable();
        names.join(" ")
    };
    assert_eq!(sorted(&["apple"]).await, "both pie");
    assert_eq!(sorted(&["APPLE", "pear"]).await, "both");
    assert_eq!(sorted(&["apple", "tart"]).await, "");
    assert_eq!(sorted(&["app"]).await, "", "whole words");
    for (words, found) in [
        (&["céu", "é"][..], "sky"),
        (&["CÉU"], "sky"),
        (&["東京"], "sky"),
        (&["v1", "2"], "sky"),
        (&["foo"], "sky"),
        (&["bar"], "sky"),
        (&["example", "org"], "sky"),
        (&["before"], "nul"),
        (&["after"], "nul"),
    ] {
        assert_eq!(sorted(words).await, found, "{words:?}");
    }
    for elsewhere in ["secret", "hidden"] {
        assert_eq!(sorted(&[elsewhere]).await, "", "{elsewhere} is not here");
    }
    for syntax in [
        "*",
        "\"",
        "apple*",
        "apple OR tart",
        "NOT",
        "words:apple",
        "^apple",
        "(apple",
        "a\"b",
        "'",
        "apple | tart",
        "apple & !pie",
        "apple <-> and",
        ":*",
        "\\",
        "",
        " ",
    ] {
        let found = with_words(&store, &[syntax]).await;
        assert!(found.len() <= 2 && !found.contains(&"tart".into()), "{syntax:?}: {found:?}");
    }
    assert_eq!(sorted(&["apple OR tart"]).await, "", "or is a word");
    assert_eq!(sorted(&[]).await, "");

    puts(&store, text("pie", "plum pie")).await;
    assert_eq!(sorted(&["apple"]).await, "both");
    assert_eq!(sorted(&["plum"]).await, "pie");
    store.knowledge().delete_memory(&key("n", "pie"), None, at(1)).await.unwrap();
    assert_eq!(sorted(&["plum"]).await, "");
}

/// Ranks range from 0 to 1, the best first; pages do not overlap.
pub async fn words_are_ranked(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    for n in 0..30 {
        puts(&store, MemoryPut { text: format!("filler number {n}"), ..put("n", &format!("f{n}"), "{}") })
            .await;
    }
    let padding = "other words that stand around it and make it long ".repeat(5);
    puts(&store, MemoryPut { text: format!("needle {padding}"), ..put("n", "once", "{}") }).await;
    puts(&store, MemoryPut { text: "needle ".repeat(8), ..put("n", "often", "{}") }).await;
    let found = search(&store, MemoryQuery::Words(vec!["needle".into()]), 0, 10).await;
    let names: Vec<_> = found.entries.iter().map(|(entry, _)| &*entry.key).collect();
    assert_eq!(names, ["often", "once"]);
    let ranks: Vec<f64> = found.entries.iter().map(|(_, rank)| rank.unwrap()).collect();
    assert!(ranks[0] > ranks[1] && ranks.iter().all(|rank| (0.0..=1.0).contains(rank)), "{ranks:?}");

    let mut seen = vec![];
    for offset in (0..).step_by(7) {
        let page = search(&store, MemoryQuery::Words(vec!["filler".into()]), offset, 7).await;
        assert_eq!(page.total, 30);
        if page.entries.is_empty() {
            break;
        }
        seen.extend(page.entries.into_iter().map(|(entry, _)| entry.key));
    }
    let mut keys: Vec<String> = (0..30).map(|n| format!("f{n}")).collect();
    keys.sort_unstable();
    assert_eq!(seen, keys, "each once, and of equal rank by key");
}
