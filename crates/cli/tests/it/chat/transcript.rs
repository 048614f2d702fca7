//! One story, told over A2A and over MCP in two revisions, at an address and on pipes, with kills at its events: of
//! chat, of the server, of both. Whatever is killed, the lines that were shown are the same, each of them once.
//!
//! A few kills by default; a kill at every event, of each kind, with `NUNCIO_FULL=1`.

use std::fs;

use super::terminal::{PROMPT, Terminal};
use crate::{
    server_process::ServerProcess,
    test_agents::{STORY_EVENTS, story_gate},
};

/// How the server is spoken to.
#[derive(Debug, Clone, Copy)]
enum Way {
    A2a,
    Url(&'static str),
    Pipe(&'static str),
}

const WAYS: [Way; 5] = [
    Way::A2a,
    Way::Url("2025-11-25"),
    Way::Url("2026-07-28"),
    Way::Pipe("2025-11-25"),
    Way::Pipe("2026-07-28"),
];

impl Way {
    /// What can be killed. On pipes the server is no other's: `nuncio mcp` takes over the folder of one that died.
    fn kinds(self) -> &'static [Kill] {
        match self {
            Self::A2a | Self::Url(_) => &[Kill::Chat, Kill::Server, Kill::Both],
            Self::Pipe(_) => &[Kill::Chat],
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kill {
    Chat,
    Server,
    Both,
}

/// What is shown of each event, in the order of the story.
const SHOWN: [&str; STORY_EVENTS as usize] = [
    "info: the first line",
    "a quarter",
    "first line of the text",
    "warning: between the pieces",
    "line of the text",
    "asks: Shall it go on?",
    "info: it goes on",
    "third line of the text",
    "] completed",
];
/// Progress is a bar, drawn as often as it takes; a question is asked again until it is answered.
const AS_OFTEN_AS_IT_TAKES: [usize; 2] = [1, 5];
const QUESTION: usize = 5;

struct Telling {
    server: ServerProcess,
    dir: tempfile::TempDir,
    way: Way,
    chat: Terminal,
    /// What earlier processes have shown.
    before: String,
}

impl Telling {
    fn new(way: Way) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let server = ServerProcess::start_test_agents(&dir.path().join("data"));
        let chat = start(way, &server, dir.path());
        Self { server, dir, way, chat, before: String::new() }
    }

    /// Lets the story go on to that event.
    fn open(&self, event: usize) {
        fs::write(story_gate(self.server.data(), event), "").unwrap();
    }

    fn kill(&mut self, kill: Kill) {
        if kill != Kill::Server {
            self.chat.kill9();
            self.before.push_str(&self.chat.text());
            // It may have died within a line.
            self.before.push('\n');
        }
        if kill != Kill::Chat {
            self.server.kill9();
        }
    }

    fn start_again(&mut self, kill: Kill) {
        if kill != Kill::Chat {
            self.server.restart();
        }
        if kill != Kill::Server {
            self.chat = start(self.way, &self.server, self.dir.path());
        }
    }

    /// Tells the whole story; returns what was shown, line by line.
    fn tell(mut self, kills: &[(usize, Kill)]) -> Vec<String> {
        self.open(0);
        self.chat.command("story once");
        for (event, shown) in SHOWN.iter().enumerate() {
            self.open(event);
            self.chat.expect(shown);
            for (_, kill) in kills.iter().filter(|(at, _)| *at == event) {
                self.kill(*kill);
                if event != QUESTION && event + 1 < SHOWN.len() {
                    // It happens while nobody looks.
                    self.open(event + 1);
                }
                self.start_again(*kill);
                if event == QUESTION && *kill != Kill::Server {
                    self.chat.expect(shown);
                }
            }
            if event == QUESTION {
                self.chat.expect("!c]: ");
                self.chat.line("y");
                self.chat.expect("answered");
            }
        }
        self.chat.expect(PROMPT);
        let all = self.before + &self.chat.text();
        let mut lines: Vec<String> = vec![];
        for line in all.lines() {
            let known = SHOWN.iter().position(|shown| line.contains(shown));
            let is_shown = match known {
                Some(at) if AS_OFTEN_AS_IT_TAKES.contains(&at) => false,
                Some(_) => true,
                None => line.contains("] The text") || line.trim() == "second",
            };
            if is_shown {
                let line = line.trim_end().split(" in ").next().unwrap_or_default();
                lines.push(line.to_owned());
            }
        }
        for at in AS_OFTEN_AS_IT_TAKES {
            assert!(all.contains(SHOWN[at]), "{:?} was never shown:\n{all}", SHOWN[at]);
        }
        lines
    }
}

fn start(way: Way, server: &ServerProcess, dir: &std::path::Path) -> Terminal {
    let url = server.url();
    let mcp = format!("{url}/mcp");
    let program = format!("own={} mcp --data data", env!("CARGO_BIN_EXE_nuncio"));
    let flags: Vec<&str> = match way {
        Way::A2a => vec!["--server", url],
        Way::Url(revision) => vec!["--server", &mcp, "--mcp-revision", revision],
        Way::Pipe(revision) => vec!["--server", &program, "--mcp-revision", revision],
    };
    Terminal::start(dir, &flags)
}

const EXPECTED: [&str; 10] = [
    "[1 story] info: the first line",
    "[1 story] The text:",
    "  first line of the text",
    // As far as it had come: the warning ends its line.
    "  second",
    "[1 story] warning: between the pieces",
    "  line of the text",
    "[1 story] info: it goes on",
    "[1 story] The text (continued):",
    "  third line of the text",
    "[1 story] completed",
];

#[track_caller]
fn check(way: Way, kills: &[(usize, Kill)]) {
    assert_eq!(Telling::new(way).tell(kills), EXPECTED, "{way:?}, killed: {kills:?}");
}

/// A line of the log, half a line of a text, a question: with each way another one of chat and server.
#[test]
fn the_same_story_is_shown_over_every_protocol_whatever_is_killed() {
    for (at, way) in WAYS.into_iter().enumerate() {
        let kinds = way.kinds();
        let kill = |event: usize, n: usize| (event, kinds[(at + n) % kinds.len()]);
        check(way, &[kill(0, 0), kill(2, 1), kill(QUESTION, 2)]);
    }
}

#[test]
fn the_same_story_is_shown_with_a_kill_at_every_event() {
    if std::env::var_os("NUNCIO_FULL").is_none() {
        return;
    }
    for way in WAYS {
        check(way, &[]);
        for kill in way.kinds() {
            let kills: Vec<_> = (0..SHOWN.len() - 1).map(|event| (event, *kill)).collect();
            check(way, &kills);
            println!(
                "{way:?}: {kill:?} was killed at each of {} events: {} lines, each once",
                kills.len(),
                EXPECTED.len()
            );
        }
    }
}
