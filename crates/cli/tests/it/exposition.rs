//! A strict reader of Prometheus' text format: what the format forbids, and what its conventions ask for, is a failure.

use std::collections::{BTreeMap, BTreeSet};

/// One line with a value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

/// All that a scrape shows.
#[derive(Debug, Default)]
pub(crate) struct Scrape {
    /// The types of the families, by name.
    pub(crate) families: BTreeMap<String, String>,
    pub(crate) samples: Vec<Sample>,
}

impl Scrape {
    /// Reads a scrape, and checks it.
    #[track_caller]
    pub(crate) fn read(text: &str) -> Self {
        let mut scrape = Self::default();
        let mut help = BTreeSet::new();
        let mut current = String::new();
        assert!(text.ends_with('\n'), "the last line ends");
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, sentence) = rest.split_once(' ').unwrap_or_else(|| panic!("no sentence: {line}"));
                assert!(!sentence.trim().is_empty(), "{line}");
                assert!(help.insert(name.to_owned()), "a second HELP: {line}");
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap_or_else(|| panic!("no type: {line}"));
                assert!(["counter", "gauge", "histogram", "summary"].contains(&kind), "{line}");
                assert!(help.contains(name), "no HELP before its TYPE: {line}");
                let before = scrape.families.insert(name.to_owned(), kind.to_owned());
                assert_eq!(before, None, "the family stands in two places: {line}");
                current = name.to_owned();
            } else {
                let sample = read_sample(line);
                let kind = &scrape.families[&current];
                assert!(belongs(&sample.name, &current, kind), "{line}\nbelow {current}");
                assert!(kind != "counter" || sample.value >= 0.0, "{line}");
                let same = |other: &&Sample| other.name == sample.name && other.labels == sample.labels;
                assert_eq!(scrape.samples.iter().find(same), None, "{line}");
                scrape.samples.push(sample);
            }
        }
        scrape.check_histograms();
        scrape
    }

    /// The value of a series; 0 if it is not there.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.find(name, labels).unwrap_or(0.0)
    }

    /// The value of a series, if it is there.
    pub(crate) fn find(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let wanted: BTreeMap<String, String> =
            labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.samples
            .iter()
            .find(|sample| sample.name == name && sample.labels == wanted)
            .map(|sample| sample.value)
    }

    /// The sum of all series of a name.
    pub(crate) fn sum(&self, name: &str) -> f64 {
        self.samples.iter().filter(|sample| sample.name == name).map(|sample| sample.value).sum()
    }

    fn check_histograms(&self) {
        for (family, _) in self.families.iter().filter(|(_, kind)| *kind == "histogram") {
            let counts = self.samples.iter().filter(|sample| sample.name == format!("{family}_count"));
            let mut series = 0;
            for count in counts {
                series += 1;
                let buckets: Vec<(f64, f64)> = self
                    .samples
                    .iter()
                    .filter(|sample| sample.name == format!("{family}_bucket"))
                    .filter_map(|sample| {
                        let mut labels = sample.labels.clone();
                        let bound = labels.remove("le")?.parse().unwrap();
                        (labels == count.labels).then_some((bound, sample.value))
                    })
                    .collect();
                assert!(buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{family}: {buckets:?}");
                assert_eq!(buckets.last(), Some(&(f64::INFINITY, count.value)), "{family}");
                let sum = |sample: &&Sample| {
                    sample.name == format!("{family}_sum") && sample.labels == count.labels
                };
                assert!(self.samples.iter().find(sum).is_some_and(|sum| sum.value >= 0.0), "{family}");
            }
            assert!(series > 0, "{family} has no series");
        }
    }
}

/// Whether a sample is of that family.
fn belongs(sample: &str, family: &str, kind: &str) -> bool {
    match (sample.strip_prefix(family), kind) {
        (Some("_bucket"), "histogram") | (Some("_sum" | "_count"), "histogram" | "summary") => true,
        (Some(""), "histogram") => false,
        (Some(""), _) => true,
        _ => false,
    }
}

fn read_sample(line: &str) -> Sample {
    let end = line.find(['{', ' ']).unwrap_or_else(|| panic!("no value: {line}"));
    let (name, mut rest) = line.split_at(end);
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    assert!(
        !name.is_empty() && name.chars().all(legal) && !name.starts_with(|c: char| c.is_ascii_digit()),
        "{line}"
    );
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, value) = rest.split_once("=\"").unwrap_or_else(|| panic!("a label: {line}"));
            assert!(label.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "{line}");
            let (value, after) = read_quoted(value).unwrap_or_else(|| panic!("an open value: {line}"));
            assert_eq!(labels.insert(label.to_owned(), value), None, "{line}");
            match after.strip_prefix(',') {
                Some(more) => rest = more,
                None => {
                    rest = after.strip_prefix('}').unwrap_or_else(|| panic!("after a value: {line}"));
                    break;
                }
            }
        }
    }
    let value = rest.strip_prefix(' ').unwrap_or_else(|| panic!("no blank: {line}"));
    let value = value.parse().unwrap_or_else(|error| panic!("{error}: {line}"));
    Sample { name: name.to_owned(), labels, value }
}

/// A value up to its closing quote, and what follows.
fn read_quoted(text: &str) -> Option<(String, &str)> {
    let (mut value, mut letters) = (String::new(), text.char_indices());
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match letters.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    None
}
