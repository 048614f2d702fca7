//! What a terminal is for: completion, history, bars, Ctrl+C and Ctrl+D, narrow windows.

use std::os::unix::fs::PermissionsExt as _;

use super::{
    Way, World,
    terminal::{PROMPT, Terminal},
};

#[test]
fn words_are_completed() {
    let world = World::new(Way::Local, "20ms");
    let mut chat = world.chat();
    chat.expect(PROMPT);
    chat.keys("trav\tdest\tLisbon\r");
    chat.expect("for your trip to Lisbon");
    chat.expect("!c]: ");
    chat.line("n");
    chat.expect("declined");
    chat.command("help l\t\t");
    chat.expect("list");
    chat.expect("log");
    chat.expect("long_running_agent");
}

#[test]
fn commands_are_remembered_and_secrets_are_not() {
    let world = World::new(Way::A2a, "20ms");
    let mut chat = world.chat();
    chat.command("echo remembered");
    chat.expect("completed");
    chat.command("echo token=nun_abc123_secretsecret");
    chat.expect("completed");
    chat.expect(PROMPT);
    chat.ctrl_d();
    assert_eq!(chat.ends(), 0);
    let history = world.dir.path().join("state/history");
    let text = std::fs::read_to_string(&history).unwrap();
    assert!(text.contains("echo remembered") && !text.contains("secretsecret"), "{text}");
    assert_eq!(std::fs::metadata(&history).unwrap().permissions().mode() & 0o777, 0o600);
    // The key for the command before.
    let mut chat = world.chat();
    chat.expect(PROMPT);
    chat.keys("\u{1b}[A\r");
    chat.expect("[1 echo] echo:");
    chat.expect("remembered");
}

#[test]
fn ctrl_c_empties_the_line_and_then_leaves() {
    let world = World::new(Way::A2a, "20ms");
    let mut chat = world.chat();
    chat.expect(PROMPT);
    chat.keys("half a comm");
    chat.ctrl_c();
    chat.expect("Ctrl+C once more");
    chat.command("runs");
    chat.expect("Nothing goes on here.");
    chat.expect(PROMPT);
    chat.ctrl_c();
    chat.expect("Ctrl+C once more");
    chat.expect(PROMPT);
    chat.ctrl_c();
    assert_eq!(chat.ends(), 0);
}

#[test]
fn a_bar_fits_a_narrow_window() {
    let world = World::new(Way::A2a, "300ms");
    let mut wide = Terminal::start(world.dir.path(), &["--server", world.server.url()]);
    wide.command("travel_agent Oslo");
    wide.expect("[1 travel_agent] [======>");
    wide.expect("!c]: ");
    wide.line("!c");
    wide.expect("canceled in");
    let other = World::new(Way::A2a, "300ms");
    let mut narrow = Terminal::start_sized(other.dir.path(), &["--server", other.server.url()], 40);
    narrow.command("travel_agent Oslo");
    narrow.expect(" 25% Finding dates");
    narrow.expect("!c]: ");
    narrow.never("[======>");
}

#[test]
fn what_happens_appears_above_the_line_that_is_edited() {
    let world = World::new(Way::A2a, "200ms");
    let mut chat = world.chat();
    chat.command("travel_agent Oslo &");
    chat.expect(PROMPT);
    chat.keys("run");
    chat.expect("[1 travel_agent] asks:");
    // The line is there again, and goes on.
    chat.expect("nuncio> run");
    chat.keys("s\r");
    chat.expect("asks");
    chat.command("answer");
    chat.expect("!c]: ");
    chat.line("y");
    chat.expect("Notes");
    chat.line("");
    chat.expect("Trip to Oslo booked");
}

#[test]
fn a_server_that_returns_is_told_of() {
    let mut world = World::new(Way::A2a, "20ms");
    let mut chat = world.chat();
    chat.expect(PROMPT);
    world.server.kill9();
    chat.expect("away, it is tried again");
    chat.line("echo hello");
    chat.expect("[1 echo] waits for the server");
    world.server.restart();
    chat.expect("[1 echo] completed");
    world.ran_once();
}
