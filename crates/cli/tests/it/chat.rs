//! `nuncio chat` in a real terminal: whole conversations, left in the middle and killed in the middle, here and at
//! the server. Whatever happens, what was called runs once.

mod asking;
mod editing;
mod plain;
mod signing;
mod strangers;
pub(crate) mod terminal;
mod transcript;
mod words;

use std::{
    path::Path,
    time::{Duration, Instant},
};

use serde_json::Value;

use self::terminal::{PROMPT, Terminal};
use crate::{command, server_process::ServerProcess};

/// Long enough to do something meanwhile.
const STEP: &str = "400ms";

/// How a server is spoken to.
#[derive(Clone, Copy)]
enum Way {
    /// By the address of the server, where its cards are.
    A2a,
    /// By the address of its MCP endpoint.
    Mcp,
    /// By its data folder, as a person would: nothing is said.
    Local,
}

/// A server and a folder for what chat keeps.
struct World {
    server: ServerProcess,
    dir: tempfile::TempDir,
    way: Way,
}

impl World {
    fn new(way: Way, step: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let server = ServerProcess::start(&dir.path().join("data"), &["--agent-step", step]);
        Self { server, dir, way }
    }

    fn address(&self) -> String {
        match self.way {
            Way::A2a => self.server.url().to_owned(),
            Way::Mcp | Way::Local => format!("{}/mcp", self.server.url()),
        }
    }

    /// A terminal at which nobody is asked to write what a model should.
    fn chat(&self) -> Terminal {
        self.chat_with(&["--sampling", "never"])
    }

    fn chat_with(&self, flags: &[&str]) -> Terminal {
        match self.way {
            Way::Local => Terminal::start(self.dir.path(), &[&["--data", "data"], flags].concat()),
            Way::A2a | Way::Mcp => {
                Terminal::start(self.dir.path(), &[&["--server", &self.address()], flags].concat())
            }
        }
    }

    /// The tasks that the server has, with their states.
    fn tasks(&self) -> Vec<String> {
        let mut list = command::nuncio_in(self.dir.path());
        let ran = command::run(list.args(["task", "list", "-a", self.server.url(), "-o", "json"])).exits(0);
        let tasks = ran.json()["tasks"].as_array().cloned().unwrap_or_default();
        tasks.iter().map(|task| task["status"]["state"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits until so many of the server's tasks are at work, and all others are canceled.
    #[track_caller]
    fn all_canceled_but(&self, working: usize) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let tasks = self.tasks();
            let count = |state: &str| tasks.iter().filter(|known| *known == state).count();
            if count("TASK_STATE_WORKING") == working
                && count("TASK_STATE_CANCELED") + working == tasks.len()
                && !tasks.is_empty()
            {
                return;
            }
            assert!(Instant::now() < deadline, "{tasks:?}, and {working} should be at work");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whatever was called ran once, and was done.
    #[track_caller]
    fn ran_once(&self) {
        assert_eq!(self.tasks(), ["TASK_STATE_COMPLETED"]);
    }

    /// What chat keeps of runs: none, when all is done.
    fn kept(&self) -> usize {
        let is_book = |path: &Path| path.extension().is_some_and(|ending| ending == "json");
        let entries = std::fs::read_dir(self.dir.path().join("state")).unwrap();
        let books = entries.map(|entry| entry.unwrap().path()).filter(|path| is_book(path));
        let runs =
            |path| serde_json::from_slice::<Value>(&std::fs::read(path).unwrap()).unwrap()["runs"].clone();
        books.map(|path| runs(path).as_array().unwrap().len()).sum()
    }

    /// The call of an agent without anything behind its name; what is asked is left to the default.
    fn call(&self, chat: &mut Terminal, agent: &str) {
        chat.command(agent);
        match self.way {
            Way::A2a => chat.expect("message: "),
            Way::Mcp | Way::Local => chat.expect("default: "),
        }
        chat.line("");
    }
}

/// Every story is told over every way to a server.
macro_rules! every_way {
    ($($story:ident),* $(,)?) => {
        mod a2a {
            $(#[test] fn $story() { super::$story(super::Way::A2a); })*
        }
        mod mcp {
            $(#[test] fn $story() { super::$story(super::Way::Mcp); })*
        }
        mod local {
            $(#[test] fn $story() { super::$story(super::Way::Local); })*
        }
    };
}

every_way!(
    a_whole_conversation,
    left_before_the_question,
    left_at_the_question,
    left_after_the_question,
    left_without_arguments,
    killed_before_the_question,
    killed_at_the_question,
    the_server_is_killed,
    both_are_killed,
    several_runs_at_once,
);

fn a_whole_conversation(way: Way) {
    let world = World::new(way, "100ms");
    let mut chat = world.chat_with(&[]);
    chat.command("l");
    chat.expect("travel_agent");
    chat.command("help travel_agent");
    chat.expect("Plans and books a trip");
    chat.command("travel_agnt");
    chat.expect("there is no travel_agnt: travel_agent?");
    chat.command("travel_agent destination=Lisbon");
    chat.expect("asks: Please confirm the estimated price of $1200 for your trip to Lisbon");
    chat.expect("Confirm (Whether to book at this price.) [y, n, d for details, !c]: ");
    chat.line("d");
    chat.expect("Asked by: travel_agent");
    chat.expect("confirm [y/n");
    chat.expect("--data '{\"confirm\":true}'");
    chat.expect("!c]: ");
    chat.line("y");
    chat.expect("Notes (Anything the booking should say.)");
    chat.line("a window seat");
    if let Way::Mcp | Way::Local = way {
        chat.expect("asks: Please summarize the travel data for the trip to Lisbon");
        chat.expect("Who answers? [t: I write it, n: refuse, !c]: ");
        chat.line("n");
    }
    chat.expect("Trip to Lisbon booked for $1200");
    chat.expect("completed in");
    chat.command("research_agent topic=tides");
    if let Way::Mcp | Way::Local = way {
        chat.expect("asks: Please summarize the key findings for research on: tides");
        chat.expect("Who answers? [t: I write it, n: refuse, !c]: ");
        chat.line("t");
        chat.expect("Text: ");
        chat.line("They come and go.");
        chat.expect("The summary was written by your model.");
    }
    chat.expect("The report on tides is complete.");
    chat.command("runs");
    chat.expect("completed");
    chat.command("memory set notes place 'by the sea'");
    chat.expect("kept, at version 1");
    chat.command("memory get notes place");
    chat.expect("by the sea");
    chat.command("clean");
    chat.expect("Nothing was kept.");
    chat.command("q");
    assert_eq!(chat.ends(), 0);
    assert_eq!(world.tasks().len(), 2);
    assert_eq!(world.kept(), 0);
}

/// Says yes to the trip, and sees the end.
fn agree(chat: &mut Terminal) {
    chat.expect("!c]: ");
    chat.line("y");
    chat.expect("Notes");
    chat.line("");
    chat.expect("Trip to Paris booked for $1200");
}

/// Leaves at the prompt.
fn leave(chat: &mut Terminal) {
    chat.expect(PROMPT);
    chat.ctrl_d();
    assert_eq!(chat.ends(), 0);
}

fn left_before_the_question(way: Way) {
    let world = World::new(way, STEP);
    let mut chat = world.chat();
    world.call(&mut chat, "travel_agent");
    chat.expect("Finding dates");
    chat.ctrl_c();
    chat.expect("goes on without you");
    chat.expect(PROMPT);
    chat.ctrl_c();
    assert_eq!(chat.ends(), 0);
    assert_eq!(world.kept(), 1);

    let mut chat = world.chat();
    chat.expect("taken up again");
    agree(&mut chat);
    leave(&mut chat);
    chat.never("Looking for flights");
    // How long it took is not known: this process came back to it.
    chat.never("completed in");
    world.ran_once();
    assert_eq!(world.kept(), 0);
}

fn left_at_the_question(way: Way) {
    let world = World::new(way, STEP);
    let mut chat = world.chat();
    world.call(&mut chat, "travel_agent");
    chat.expect("!c]: ");
    chat.ctrl_c();
    chat.expect("goes on without you");
    leave(&mut chat);
    let mut chat = world.chat();
    chat.expect("asks: Please confirm");
    agree(&mut chat);
    leave(&mut chat);
    world.ran_once();
}

fn left_after_the_question(way: Way) {
    let world = World::new(way, "1s");
    let mut chat = world.chat();
    world.call(&mut chat, "travel_agent");
    chat.expect("!c]: ");
    chat.line("y");
    chat.expect("Notes");
    chat.line("");
    chat.expect("Booking the trip");
    chat.ctrl_c();
    chat.expect("goes on without you");
    leave(&mut chat);
    let mut chat = world.chat();
    chat.expect("Trip to Paris booked for $1200");
    leave(&mut chat);
    chat.never("asks:");
    world.ran_once();
}

fn left_without_arguments(way: Way) {
    let world = World::new(way, "60ms");
    let mut chat = world.chat();
    world.call(&mut chat, "long_running_agent");
    chat.expect("Step 5 of 50 is done");
    chat.ctrl_c();
    chat.expect("goes on without you");
    leave(&mut chat);
    let mut chat = world.chat();
    chat.expect("taken up again");
    chat.expect("All 50 steps are done.");
    leave(&mut chat);
    chat.never("Step 2 of 50 is done");
    world.ran_once();
}

fn killed_before_the_question(way: Way) {
    let world = World::new(way, STEP);
    let mut chat = world.chat();
    world.call(&mut chat, "travel_agent");
    chat.expect("Finding dates");
    chat.kill9();
    let mut chat = world.chat();
    chat.expect("taken up again");
    agree(&mut chat);
    leave(&mut chat);
    world.ran_once();
}

fn killed_at_the_question(way: Way) {
    let world = World::new(way, STEP);
    let mut chat = world.chat();
    world.call(&mut chat, "travel_agent");
    chat.expect("!c]: ");
    chat.kill9();
    let mut chat = world.chat();
    chat.expect("asks: Please confirm");
    agree(&mut chat);
    leave(&mut chat);
    world.ran_once();
}

fn the_server_is_killed(way: Way) {
    let mut world = World::new(way, STEP);
    let mut chat = world.chat();
    world.call(&mut chat, "travel_agent");
    chat.expect("Finding dates");
    world.server.kill9();
    world.server.restart();
    agree(&mut chat);
    leave(&mut chat);
    world.ran_once();
}

fn both_are_killed(way: Way) {
    let mut world = World::new(way, STEP);
    let mut chat = world.chat();
    world.call(&mut chat, "travel_agent");
    chat.expect("Finding dates");
    world.server.kill9();
    chat.kill9();
    world.server.restart();
    let mut chat = world.chat();
    chat.expect("taken up again");
    agree(&mut chat);
    leave(&mut chat);
    world.ran_once();
}

fn several_runs_at_once(way: Way) {
    let world = World::new(way, STEP);
    let mut chat = world.chat();
    chat.command("travel_agent destination=Oslo &");
    chat.expect("run 1 goes on beside");
    chat.command("travel_agent destination=Rome");
    // Both ask. The one beside is announced, and each prompt says whose it is.
    chat.expect("[2 travel_agent] Confirm");
    chat.line("y");
    chat.expect("[2 travel_agent] Notes");
    chat.line("");
    chat.expect("Trip to Rome booked");
    chat.expect(PROMPT);
    chat.line("answer 1");
    chat.expect("[1 travel_agent] Confirm");
    chat.line("y");
    chat.expect("[1 travel_agent] Notes");
    chat.line("");
    chat.expect("Trip to Oslo booked");
    chat.expect(PROMPT);
    chat.line("runs");
    chat.expect("completed");
    chat.expect("completed");
    chat.command("quit");
    assert_eq!(chat.ends(), 0);
    let text = chat.text();
    assert!(text.contains("Trip to Oslo booked") && text.contains("Trip to Rome booked"), "{text}");
    assert_eq!(world.tasks(), ["TASK_STATE_COMPLETED", "TASK_STATE_COMPLETED"]);
}
