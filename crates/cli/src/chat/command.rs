//! The parser of typed lines: a chat command, or a call of a server's capability.

use super::split_line::split_words;

/// The commands with their short forms, usage and description, in the order of `help`.
pub(super) const COMMANDS: &[(&str, &[&str], &str, &str)] = &[
    ("list", &["l"], "", "what the servers offer"),
    ("help", &["h", "?"], "[NAME]", "the commands, or details of one command or capability"),
    ("call", &[], "NAME …", "call a capability, even one named like a command"),
    ("agents", &[], "", "the servers, and their state"),
    ("tasks", &[], "", "the tasks that the servers know"),
    ("runs", &[], "", "what goes on here, and what was left going on"),
    ("attach", &["fg"], "ID", "come back to a run, or to a task of a server"),
    ("answer", &[], "[RUN]", "answer what a run asks"),
    ("cancel", &[], "ID", "stop a run, or a task of a server"),
    ("resume", &[], "", "come back to everything that was left going on"),
    ("new", &[], "", "the next calls begin new conversations"),
    ("memory", &[], "get|set|list|search …", "the server's memory bank"),
    ("log", &[], "[LEVEL]", "show or set the lowest level of log lines"),
    ("login", &[], "[SERVER]", "sign in at a server that wants to know who you are"),
    ("clean-tokens", &["clean"], "", "sign out everywhere, and delete the saved state of runs"),
    ("quit", &["exit", "q"], "", "leave; what goes on is taken up at the next start"),
];

/// A parsed line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ChatCommand {
    /// An empty line.
    Nothing,
    List,
    Help(Option<String>),
    Agents,
    Tasks,
    Runs,
    Attach(String),
    Answer(Option<String>),
    Cancel(String),
    Resume,
    New,
    Memory(Vec<String>),
    Log(Option<String>),
    Login(Option<String>),
    Clean,
    Quit,
    Call(ChatCall),
}

/// A call, as it was typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChatCall {
    /// The capability to call: a name, or `server/name`.
    pub(super) name: String,
    /// The text after the name.
    pub(super) rest: String,
    /// Whether the prompt returns at once.
    pub(super) background: bool,
}

/// Parses a line. A word that is no command is the name of a capability; the parser does not know which
/// exist.
pub(super) fn parse(line: &str) -> Result<ChatCommand, String> {
    let line = line.trim();
    let words: Vec<String> = split_words(line).into_iter().map(|word| word.text).collect();
    let Some(first) = words.first() else { return Ok(ChatCommand::Nothing) };
    let rest = &words[1..];
    let name = COMMANDS.iter().find(|(name, short, ..)| name == first || short.contains(&&**first));
    let Some((name, _, usage, _)) = name else { return Ok(ChatCommand::Call(call(line))) };
    let none = |command: ChatCommand| match rest {
        [] => Ok(command),
        _ => Err(format!("{name} takes nothing behind it; `call {name}` calls an offer of that name")),
    };
    let one = || match rest {
        [one] => Ok(one.clone()),
        _ => Err(format!("{name} {usage}: expected one word")),
    };
    let at_most_one = || match rest {
        [] => Ok(None),
        [one] => Ok(Some(one.clone())),
        _ => Err(format!("{name} {usage}: expected at most one word")),
    };
    match *name {
        "list" => none(ChatCommand::List),
        "help" => at_most_one().map(ChatCommand::Help),
        "agents" => none(ChatCommand::Agents),
        "tasks" => none(ChatCommand::Tasks),
        "runs" => none(ChatCommand::Runs),
        "attach" => one().map(ChatCommand::Attach),
        "answer" => at_most_one().map(ChatCommand::Answer),
        "cancel" => one().map(ChatCommand::Cancel),
        "resume" => none(ChatCommand::Resume),
        "new" => none(ChatCommand::New),
        "memory" => Ok(ChatCommand::Memory(rest.to_vec())),
        "log" => at_most_one().map(ChatCommand::Log),
        "login" => at_most_one().map(ChatCommand::Login),
        "clean-tokens" => none(ChatCommand::Clean),
        "quit" => none(ChatCommand::Quit),
        _ => match line[first.len()..].trim_start() {
            "" => Err("call NAME …: the name of a capability is missing".to_owned()),
            rest => Ok(ChatCommand::Call(call(rest))),
        },
    }
}

fn call(line: &str) -> ChatCall {
    let (line, background) = match line.strip_suffix('&') {
        Some(before) => (before.trim_end(), true),
        None => (line, false),
    };
    let words = split_words(line);
    let rest = words.get(1).map_or("", |word| &line[word.start..]).to_owned();
    ChatCall { name: words.into_iter().next().map(|word| word.text).unwrap_or_default(), rest, background }
}

/// The known name most similar to a mistyped one.
pub(super) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    /// The least similarity of two names, from 0 to 1.
    const ALIKE: f64 = 0.6;
    let score = |known: &str| strsim::jaro_winkler(&name.to_lowercase(), &known.to_lowercase());
    let best = known.map(|known| (score(known), known)).max_by(|(one, _), (other, _)| one.total_cmp(other));
    best.filter(|(score, _)| *score >= ALIKE).map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(name: &str, rest: &str, background: bool) -> ChatCommand {
        ChatCommand::Call(ChatCall { name: name.into(), rest: rest.into(), background })
    }

    #[test]
    fn a_line_is_a_command_or_a_call() {
        let check = |line: &str, expected: ChatCommand| assert_eq!(parse(line), Ok(expected), "{line}");
        check("  ", ChatCommand::Nothing);
        check("l", ChatCommand::List);
        check("help travel_agent", ChatCommand::Help(Some("travel_agent".into())));
        check("clean", ChatCommand::Clean);
        check("q", ChatCommand::Quit);
        check("attach 3", ChatCommand::Attach("3".into()));
        check(
            "memory set notes 'a b'",
            ChatCommand::Memory(vec!["set".into(), "notes".into(), "a b".into()]),
        );
        check("travel_agent destination='New York'", called("travel_agent", "destination='New York'", false));
        check("long_running_agent {} &", called("long_running_agent", "{}", true));
        check("call list x=1", called("list", "x=1", false));
        check("local/list", called("local/list", "", false));
        check("'Hello World Agent' say 'a  b'", called("Hello World Agent", "say 'a  b'", false));
    }

    #[test]
    fn a_command_says_what_it_takes() {
        let check = |line: &str| assert!(parse(line).is_err(), "{line}");
        check("list everything");
        check("attach");
        check("attach 1 2");
        check("call");
    }

    #[test]
    fn a_typo_is_understood() {
        let known = ["travel_agent", "research_agent", "list", "quit"];
        let check =
            |name: &str, expected: Option<&str>| assert_eq!(nearest(name, known.into_iter()), expected);
        check("travel_agnt", Some("travel_agent"));
        check("lits", Some("list"));
        check("zzz", None);
    }
}
