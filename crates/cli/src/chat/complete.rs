//! Completion of words: commands, capabilities, argument names, choices and ids.

use super::{
    command::COMMANDS,
    split_line::{LineWord, split_words},
};

/// A name that can be called, and its arguments with their choices.
type Callable = (String, Vec<(String, Vec<String>)>);

/// What can be completed while a line is edited.
#[derive(Debug, Clone, Default)]
pub(super) enum Vocabulary {
    #[default]
    None,
    /// The answer is one of these.
    Choices(Vec<String>),
    /// The line is a command.
    Commands {
        /// The capabilities, with their arguments and choices.
        offers: Vec<Callable>,
        /// The ids of runs and tasks.
        ids: Vec<String>,
    },
}

/// The start of the word at the cursor, and its completions.
pub(super) fn complete(vocabulary: &Vocabulary, line: &str, at: usize) -> (usize, Vec<String>) {
    let before = line.get(..at).unwrap_or(line);
    let words = split_words(before);
    let (done, open) = match words.split_last() {
        Some((last, done)) if !before.ends_with(char::is_whitespace) => (done, Some(last)),
        _ => (&words[..], None),
    };
    let start = open.map_or(before.len(), |word| word.start);
    let begun = open.map_or("", |word| &*word.text);
    let fitting = |known: Vec<String>, ending: &str| {
        let mut found: Vec<String> =
            known.into_iter().filter(|word| word.starts_with(begun)).map(|word| word + ending).collect();
        found.sort();
        found.dedup();
        found
    };
    match vocabulary {
        Vocabulary::None => (start, vec![]),
        Vocabulary::Choices(choices) => (start, fitting(choices.clone(), "")),
        Vocabulary::Commands { offers, ids } => {
            let names = || offers.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
            let commands = || COMMANDS.iter().map(|(name, ..)| (*name).to_owned());
            match done.iter().map(|word| &*word.text).collect::<Vec<_>>()[..] {
                [] => (start, fitting(commands().chain(names()).collect(), " ")),
                ["help" | "h" | "?"] => (start, fitting(commands().chain(names()).collect(), "")),
                ["call"] => (start, fitting(names(), " ")),
                ["attach" | "fg" | "cancel" | "answer"] => (start, fitting(ids.clone(), "")),
                ["log"] => (start, fitting(super::levels().map(str::to_owned).collect(), "")),
                ["memory"] => {
                    (start, fitting(["get", "set", "list", "search"].map(str::to_owned).into(), " "))
                }
                ["call", name, ..] => arguments(offers, name, &done[2..], start, begun),
                [name, ..] => arguments(offers, name, &done[1..], start, begun),
            }
        }
    }
}

/// The arguments of a capability that are not on the line yet, or the choices of the current one.
fn arguments(
    offers: &[Callable],
    name: &str,
    done: &[LineWord],
    start: usize,
    begun: &str,
) -> (usize, Vec<String>) {
    let Some((_, arguments)) = offers.iter().find(|(offer, _)| offer == name) else { return (start, vec![]) };
    if let Some((argument, value)) = begun.split_once('=') {
        let choices = arguments.iter().find(|(name, _)| name == argument).map(|(_, choices)| &choices[..]);
        let fitting = choices.unwrap_or_default().iter().filter(|choice| choice.starts_with(value));
        return (start + argument.len() + 1, fitting.cloned().collect());
    }
    let is_new = |name: &str| done.iter().all(|word| word.text.split('=').next() != Some(name));
    let names = arguments.iter().map(|(name, _)| name).filter(|name| name.starts_with(begun) && is_new(name));
    (start, names.map(|name| format!("{name}=")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_becomes_what_fits_its_place() {
        let vocabulary = Vocabulary::Commands {
            offers: vec![
                (
                    "travel_agent".into(),
                    vec![
                        ("destination".into(), vec![]),
                        ("class".into(), vec!["first".into(), "second".into()]),
                    ],
                ),
                ("echo".into(), vec![]),
            ],
            ids: vec!["1".into(), "0193-aa".into()],
        };
        let check = |line: &str, start: usize, expected: &[&str]| {
            assert_eq!(
                complete(&vocabulary, line, line.len()),
                (start, expected.iter().map(|&word| word.to_owned()).collect()),
                "{line}"
            );
        };
        check("tr", 0, &["travel_agent "]);
        check("he", 0, &["help "]);
        check("help tr", 5, &["travel_agent"]);
        check("travel_agent ", 13, &["destination=", "class="]);
        check("travel_agent d", 13, &["destination="]);
        check("travel_agent destination=Rome ", 30, &["class="]);
        check("travel_agent class=f", 19, &["first"]);
        check("call ec", 5, &["echo "]);
        check("attach 0", 7, &["0193-aa"]);
        check("log war", 4, &["warning"]);
        check("zzz ", 4, &[]);
    }

    #[test]
    fn an_answer_becomes_a_choice() {
        let choices = Vocabulary::Choices(vec!["good".into(), "bad".into()]);
        assert_eq!(complete(&choices, "g", 1), (0, vec!["good".to_owned()]));
        assert_eq!(complete(&Vocabulary::None, "g", 1), (0, vec![]));
    }
}
