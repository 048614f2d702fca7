//! A splitter of requests: into list items, sentences, and clauses where each half is meaningful by itself.
//! Words such as "then" order each clause after its predecessors.

use regex::Regex;
use std::sync::LazyLock;

/// A part of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestClause {
    pub(super) text: String,
    /// The indexes of the parts that precede it.
    pub(super) after: Vec<usize>,
}

/// Words that put the following clause after the preceding ones.
const THEN: &str = r"(?:and then|then|after that|afterwards|after which|next|finally|lastly|at the end|in the end|once done)";

static LIST_ITEM: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^\s*(?:(\d+)[.)]|[-*•])\s+").ok());
static STARTS: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(&format!(r"(?i)^\s*(?:,\s*)?(?:and\s+)?{THEN}\b[\s,:]*")).ok());
static SPLITS: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(&format!(r"(?i)(?:[,;]\s*(?:and\s+)?|\s+)({THEN})\b[\s,:]*")).ok());
static EACH: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?i)\bfor each of\s+([^:.;]+?)(?:\s*[:;]\s*(.+))?$").ok());
/// The form with the list first: the list ends with "and", one more item, and a comma.
static EACH_FIRST: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?i)^for each of\s+(.+?\s+and\s+[^,:;]+?)\s*[,:;]\s*(.+)$").ok());
static ALL: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?i)^(?:finally|lastly|at the end|in the end)$").ok());
static BACK: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?i)\b(?:the results?|the findings|the answers?|the above|the reports?|all of (?:it|this|them)|of them)\b")
        .ok()
});

/// The order of a clause relative to the preceding ones.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClauseOrder {
    /// In parallel.
    Beside,
    /// After the preceding stage.
    Then,
    /// After all others.
    Last,
}

/// The clauses of a request. `fits`: whether an agent could do a part by itself.
pub(super) fn clauses(request: &str, fits: impl Fn(&str) -> bool) -> Vec<RequestClause> {
    let mut found: Vec<(String, ClauseOrder)> = vec![];
    for (text, place) in sentences(request) {
        for (text, place) in in_order(&text, place) {
            let mut first = place;
            for text in each(&text).into_iter().flat_map(|text| beside(&text, &fits)) {
                found.push((text, first));
                // A parallel clause has the same predecessors.
                first = ClauseOrder::Beside;
            }
        }
    }
    let mut clauses: Vec<RequestClause> = vec![];
    let (mut stage, mut before): (Vec<usize>, Vec<usize>) = (vec![], vec![]);
    for (n, (text, place)) in found.into_iter().enumerate() {
        let refers = BACK.as_ref().is_some_and(|back| back.is_match(&text));
        match place {
            ClauseOrder::Last => before = (0..n).collect(),
            ClauseOrder::Then => before = std::mem::take(&mut stage),
            ClauseOrder::Beside if refers && !stage.is_empty() => before = std::mem::take(&mut stage),
            ClauseOrder::Beside => {}
        }
        if place == ClauseOrder::Last {
            stage.clear();
        }
        stage.push(n);
        clauses.push(RequestClause { text, after: before.clone() });
    }
    clauses
}

/// The items of a list, in sequence if they are numbered; otherwise the sentences.
fn sentences(request: &str) -> Vec<(String, ClauseOrder)> {
    let mut out = vec![];
    for line in request.lines() {
        let item = LIST_ITEM.as_ref().and_then(|item| item.captures(line));
        let (text, numbered) = match &item {
            Some(found) => (&line[found[0].len()..], found.get(1).is_some()),
            None => (line, false),
        };
        if item.is_some() {
            let place = if numbered { ClauseOrder::Then } else { ClauseOrder::Beside };
            out.push((text.trim().to_owned(), place));
            continue;
        }
        let mut rest = text;
        while let Some(end) = sentence_end(rest) {
            out.push((rest[..end].trim().to_owned(), ClauseOrder::Beside));
            rest = &rest[end + 1..];
        }
        out.push((rest.trim().to_owned(), ClauseOrder::Beside));
    }
    out.retain(|(text, _)| text.chars().any(char::is_alphanumeric));
    out.iter_mut().for_each(|(text, _)| *text = text.trim_end_matches(['.', ';', '!', '?']).to_owned());
    out
}

/// The end of a sentence: a punctuation mark followed by a space or the end.
fn sentence_end(text: &str) -> Option<usize> {
    text.char_indices().find_map(|(at, c)| {
        let next = text[at + c.len_utf8()..].chars().next();
        (matches!(c, '.' | ';' | '!' | '?') && next.is_none_or(char::is_whitespace)).then_some(at)
    })
}

/// Splits a sentence at words that express an order.
fn in_order(sentence: &str, place: ClauseOrder) -> Vec<(String, ClauseOrder)> {
    let mut out = vec![];
    let (mut rest, mut place) = (sentence, place);
    if let Some(found) = STARTS.as_ref().and_then(|starts| starts.find(rest)) {
        place = place_of(found.as_str());
        rest = &rest[found.end()..];
    }
    while let Some(found) = SPLITS.as_ref().and_then(|splits| splits.captures(rest)) {
        let (Some(whole), Some(word)) = (found.get(0), found.get(1)) else { break };
        if whole.start() == 0 || whole.end() >= rest.len() {
            break;
        }
        out.push((rest[..whole.start()].trim().to_owned(), place));
        place = place_of(word.as_str());
        rest = &rest[whole.end()..];
    }
    out.push((rest.trim().trim_end_matches(',').to_owned(), place));
    out.retain(|(text, _)| text.chars().any(char::is_alphanumeric));
    out
}

fn place_of(word: &str) -> ClauseOrder {
    let word = word.trim().trim_matches([',', ':', ' ']);
    let word = word.strip_prefix("and ").unwrap_or(word);
    match ALL.as_ref().is_some_and(|all| all.is_match(word)) {
        true => ClauseOrder::Last,
        false => ClauseOrder::Then,
    }
}

/// "… for each of A, B and C", or "for each of A, B and C, …": one clause for each.
fn each(clause: &str) -> Vec<String> {
    if let Some(found) = EACH_FIRST.as_ref().and_then(|each| each.captures(clause)) {
        let (items, what) = (list(&found[1]), found[2].trim());
        return items.into_iter().map(|item| format!("{what} for {item}")).collect();
    }
    let Some(found) = EACH.as_ref().and_then(|each| each.captures(clause)) else {
        return vec![clause.to_owned()];
    };
    let before = found.get(0).map_or("", |whole| clause[..whole.start()].trim_end_matches([' ', ',']));
    let rest = found.get(2).map_or("", |rest| rest.as_str().trim());
    let what = if rest.is_empty() { before } else { rest };
    let items = list(&found[1]);
    if what.is_empty() || items.len() < 2 {
        return vec![clause.to_owned()];
    }
    items.into_iter().map(|item| format!("{what} for {item}")).collect()
}

/// Splits "A, B and C" into its items.
fn list(text: &str) -> Vec<String> {
    text.split(',')
        .flat_map(|part| part.split(" and "))
        .map(|part| part.trim().trim_start_matches("and ").trim().to_owned())
        .filter(|part| !part.is_empty())
        .collect()
}

/// Splits at "and" and commas, where an agent could do each half by itself.
fn beside(clause: &str, fits: &impl Fn(&str) -> bool) -> Vec<String> {
    for mark in [", and ", " and ", ", "] {
        for (at, _) in clause.match_indices(mark) {
            let (left, right) = (clause[..at].trim(), clause[at + mark.len()..].trim());
            if fits(left) && fits(right) {
                let mut out = beside(left, fits);
                out.extend(beside(right, fits));
                return out;
            }
        }
    }
    vec![clause.to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(request: &str, expected: &[(&str, &[usize])]) {
        // The available agents can book and research.
        let fits = |part: &str| ["book", "research"].iter().any(|verb| part.to_lowercase().contains(verb));
        let found = clauses(request, fits);
        let found: Vec<(&str, &[usize])> =
            found.iter().map(|c| (c.text.as_str(), c.after.as_slice())).collect();
        assert_eq!(found, expected, "{request}");
    }

    #[test]
    fn requests_are_taken_apart() {
        check("Research Rome", &[("Research Rome", &[])]);
        check("Research Rome and Paris", &[("Research Rome and Paris", &[])]);
        check("Research Rome and book a trip", &[("Research Rome", &[]), ("book a trip", &[])]);
        check("Research Rome, then book a trip.", &[("Research Rome", &[]), ("book a trip", &[0])]);
        check(
            "Research Rome. Research Paris. Finally, book a trip!",
            &[("Research Rome", &[]), ("Research Paris", &[]), ("book a trip", &[0, 1])],
        );
        check(
            "Research Rome and research Paris, then book a trip and then echo it",
            &[("Research Rome", &[]), ("research Paris", &[]), ("book a trip", &[0, 1]), ("echo it", &[2])],
        );
        check(
            "1. Research Rome\n2) Book a trip\n3. Say so",
            &[("Research Rome", &[]), ("Book a trip", &[0]), ("Say so", &[1])],
        );
        check(
            "Please:\n- Research Rome\n- Research Paris\nFinally book a trip",
            &[("Please:", &[]), ("Research Rome", &[]), ("Research Paris", &[]), ("book a trip", &[0, 1, 2])],
        );
        check(
            "Research hotels for each of Rome, Oslo and Bern; then book a trip",
            &[
                ("Research hotels for Rome", &[]),
                ("Research hotels for Oslo", &[]),
                ("Research hotels for Bern", &[]),
                ("book a trip", &[0, 1, 2]),
            ],
        );
        check(
            "For each of Lisbon, Rome and Oslo, book a trip",
            &[("book a trip for Lisbon", &[]), ("book a trip for Rome", &[]), ("book a trip for Oslo", &[])],
        );
        check(
            "For each of Rome, and Oslo: book a trip. Finally research Bern",
            &[("book a trip for Rome", &[]), ("book a trip for Oslo", &[]), ("research Bern", &[0, 1])],
        );
        check(
            "Research Rome. Book a trip by the findings.",
            &[("Research Rome", &[]), ("Book a trip by the findings", &[0])],
        );
        check("Research version 2.5 of it", &[("Research version 2.5 of it", &[])]);
        check(" \n ", &[]);
    }
}
