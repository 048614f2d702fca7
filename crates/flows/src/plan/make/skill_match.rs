//! The matcher of agents to parts of a request: the score is the weighted share of the part's words that an
//! agent's skill contains. Names, ids and tags have full weight, examples and descriptions less; a word that
//! every agent has counts little.

use std::{collections::HashMap, sync::Arc};

use nuncio_engine::{Profile, Skill};

use crate::plan::{AGENT, check::Roster};

/// The weight of a word by where it occurs.
const TAG: f64 = 1.0;
const EXAMPLE: f64 = 0.4;
const DESCRIPTION: f64 = 0.5;

/// Words that are irrelevant to the choice of an agent.
const STOP: &[&str] = &[
    "a", "about", "above", "after", "all", "also", "an", "and", "any", "are", "as", "at", "be", "been",
    "but", "by", "can", "could", "do", "does", "each", "for", "from", "get", "give", "had", "has", "have",
    "how", "i", "if", "in", "into", "is", "it", "its", "let", "make", "me", "my", "no", "not", "of", "on",
    "one", "or", "our", "out", "please", "so", "some", "than", "that", "the", "their", "them", "then",
    "there", "these", "they", "this", "to", "up", "us", "was", "we", "were", "what", "when", "where",
    "which", "who", "will", "with", "would", "you", "your",
    // The same in Portuguese, Spanish, French, German, Italian and Romanian, unless they are English words too.
    "uma", "um", "para", "por", "com", "que", "os", "as", "dos", "das", "el", "la", "los", "las", "una", "un",
    "con", "del", "le", "les", "des", "une", "pour", "avec", "et", "der", "die", "das", "und", "ein", "eine",
    "einen", "mit", "von", "zu", "für", "nach", "il", "lo", "gli", "per", "della", "și", "pentru", "cu",
    "din",
];

/// The match of a skill with a part.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SkillMatch {
    pub(super) agent: String,
    pub(super) skill: String,
    pub(super) score: f64,
    pub(super) words: Vec<String>,
}

/// The vocabulary of all agents' skills.
pub(super) struct SkillMatcher {
    skills: Vec<SkillVocabulary>,
    /// The number of agents that use a word.
    spread: HashMap<String, usize>,
}

struct SkillVocabulary {
    agent: Arc<Profile>,
    skill: String,
    words: HashMap<String, f64>,
}

impl SkillMatcher {
    pub(super) fn new(roster: &Roster) -> Self {
        let (mut skills, mut spread) = (vec![], HashMap::new());
        for agent in roster.agents().iter().filter(|agent| agent.name != AGENT) {
            let mut of_agent: HashMap<String, f64> = HashMap::new();
            for skill in &agent.skills {
                let words = vocabulary(agent, skill);
                of_agent.extend(words.clone());
                skills.push(SkillVocabulary { agent: Arc::clone(agent), skill: skill.id.clone(), words });
            }
            for word in of_agent.into_keys() {
                *spread.entry(word).or_default() += 1;
            }
        }
        Self { skills, spread }
    }

    /// All agents that match, the best first; one entry per agent.
    pub(super) fn all(&self, part: &str) -> Vec<SkillMatch> {
        let wanted = stemmed_words(part);
        let mut fits: Vec<SkillMatch> = self.skills.iter().map(|known| self.fit(known, &wanted)).collect();
        fits.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.agent.cmp(&b.agent)));
        let mut seen = std::collections::HashSet::new();
        fits.retain(|fit| seen.insert(fit.agent.clone()));
        fits
    }

    pub(super) fn best(&self, part: &str) -> Option<SkillMatch> {
        self.all(part).into_iter().next()
    }

    fn fit(&self, known: &SkillVocabulary, wanted: &[String]) -> SkillMatch {
        let (mut score, mut shared) = (0.0, vec![]);
        for word in wanted {
            let Some(worth) = known.words.get(word) else { continue };
            let spread = self.spread.get(word).copied().unwrap_or(1).max(1) as f64;
            score += worth / (1.0 + spread.ln());
            shared.push(word.clone());
        }
        let score = if wanted.is_empty() { 0.0 } else { (score / wanted.len() as f64).min(1.0) };
        SkillMatch { agent: known.agent.name.clone(), skill: known.skill.clone(), score, words: shared }
    }
}

fn vocabulary(agent: &Profile, skill: &Skill) -> HashMap<String, f64> {
    let mut known: HashMap<String, f64> = HashMap::new();
    let mut add = |text: &str, worth: f64| {
        for word in stemmed_words(text) {
            let entry = known.entry(word).or_default();
            *entry = entry.max(worth);
        }
    };
    add(&agent.description, DESCRIPTION);
    add(&skill.description, DESCRIPTION);
    skill.examples.iter().for_each(|example| add(example, EXAMPLE));
    add(&agent.name, TAG);
    add(&skill.id, TAG);
    add(&skill.name, TAG);
    skill.tags.iter().for_each(|tag| add(tag, TAG));
    known
}

/// The significant words of a text, as written, without duplicates.
pub(super) fn plain_words(text: &str) -> Vec<String> {
    let mut out: Vec<String> = vec![];
    for word in text.split(|c: char| !c.is_alphanumeric()) {
        let word = word.to_lowercase();
        if word.chars().count() > 1
            && !STOP.contains(&word.as_str())
            && word != "agent"
            && !out.contains(&word)
        {
            out.push(word);
        }
    }
    out
}

/// The significant words of a text, stemmed.
fn stemmed_words(text: &str) -> Vec<String> {
    let mut out: Vec<String> = vec![];
    for word in plain_words(text).iter().map(|word| stem(word)) {
        if !out.contains(&word) {
            out.push(word);
        }
    }
    out
}

/// A word without the endings that do not change its topic.
fn stem(word: &str) -> String {
    let mut stem = word;
    for ending in ["ings", "ing", "ers", "er", "ies", "es", "ed", "s", "e", "y"] {
        if let Some(short) = stem.strip_suffix(ending)
            && short.chars().count() >= 3
        {
            stem = short;
            break;
        }
    }
    stem.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_known_by_their_stems() {
        for (a, b) in
            [("booking", "book"), ("books", "booked"), ("reports", "report"), ("researching", "research")]
        {
            assert_eq!(stem(a), stem(b));
        }
        assert_eq!(stemmed_words("Please book the trip, and trips to Rome"), ["book", "trip", "rom"]);
    }
}
