//! Servers that want to know who is calling: signing in by OAuth, and tokens that are given. The server is a real one;
//! who issues the tokens is a stand-in.

use std::{os::unix::fs::PermissionsExt as _, path::Path};

use super::terminal::{PROMPT, Terminal};
use crate::{
    authority::{Authority, open, visit},
    command,
    server_process::ServerProcess,
};

struct Guarded {
    authority: Authority,
    server: ServerProcess,
    dir: tempfile::TempDir,
}

impl Guarded {
    fn new() -> Self {
        let (authority, dir) = (Authority::start(), tempfile::tempdir().unwrap());
        authority.trusted_in(&dir.path().join("server"));
        let data = dir.path().join("server").join("nuncio-data");
        let server = ServerProcess::start(&data, &["--agent-step", "20ms"]);
        Self { authority, server, dir }
    }

    fn mcp(&self) -> String {
        format!("{}/mcp", self.server.url())
    }

    fn chat(&self, flags: &[&str]) -> Terminal {
        Terminal::start(self.dir.path(), &[&["--server", &self.mcp()], flags].concat())
    }
}

/// The link that somebody is sent to.
fn link(chat: &mut Terminal) -> String {
    chat.expect("wants to know who you are");
    chat.expect("come back");
    chat.expect("http");
    // To the end of the line.
    chat.expect("code_challenge_method=S256");
    chat.expect(PROMPT);
    let text = chat.text();
    let line = text.lines().rev().find(|line| line.trim_start().starts_with("http")).unwrap();
    line.trim().to_owned()
}

fn files(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut found = vec![];
    for entry in std::fs::read_dir(dir).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

#[test]
fn somebody_signs_in_once_and_out_again() {
    let world = Guarded::new();
    let mut chat = world.chat(&[]);
    let link_shown = link(&mut chat);
    assert!(visit(&link_shown).contains("go back to the terminal"));
    chat.expect("offers at");
    chat.line("echo hello");
    chat.expect("completed");
    chat.command("tasks");
    chat.expect("completed");
    chat.command("quit");
    assert_eq!(chat.ends(), 0);

    // What was granted is in one file, for nobody else.
    let tokens = files(&world.dir.path().join("state/tokens"));
    assert_eq!(tokens.len(), 1, "{tokens:?}");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&tokens[0]), mode(tokens[0].parent().unwrap())), (0o600, 0o700));
    let issued = world.authority.told().tokens.clone();
    for path in files(&world.dir.path().join("state")).iter().filter(|path| **path != tokens[0]) {
        let text = String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
        assert!(issued.iter().all(|token| !text.contains(token.as_str())), "{path:?}");
    }

    // The next start needs nobody, also where nobody sits; what ends is renewed.
    world.authority.told().lifetime = 5;
    std::fs::write(
        &tokens[0],
        std::fs::read_to_string(&tokens[0]).unwrap().replace("\"expires_at\":", "\"expires_at\":1,\"was\":"),
    )
    .unwrap();
    let mut plain = command::nuncio_in(world.dir.path());
    plain.args(["chat", "--server", &world.mcp(), "--state"]).arg(world.dir.path().join("state"));
    let ran = command::run_with_input(&mut plain, "echo again\n").exits(0);
    assert!(ran.stdout.contains("[1 echo] completed"), "{}", ran.stdout);
    assert!(world.authority.told().granted.iter().any(|kind| kind == "refresh_token"));
    assert_eq!(world.authority.told().visits.len(), 1);

    let mut chat = world.chat(&[]);
    chat.command("clean-tokens");
    chat.expect("The tokens for 1 server are forgotten.");
    assert!(files(&world.dir.path().join("state/tokens")).is_empty());
    // Nobody is sent anywhere before they want to be.
    chat.expect("nobody is signed in there");
    chat.expect(PROMPT);
    chat.line("login");
    assert!(visit(&link(&mut chat)).contains("go back to the terminal"));
    chat.expect("it is back");
    assert_eq!(world.authority.told().visits.len(), 2);
}

#[test]
fn who_comes_back_with_another_state_is_turned_away() {
    let world = Guarded::new();
    let mut chat = world.chat(&[]);
    let link_shown = link(&mut chat);
    let url = url::Url::parse(&link_shown).unwrap();
    let back = url.query_pairs().find(|(name, _)| name == "redirect_uri").unwrap().1.into_owned();
    open(&format!("{back}?code=c0&state=guessed"));
    chat.expect("that may be an attack");
    chat.expect("`login");
    assert!(world.authority.told().granted.is_empty(), "the code was given to nobody");
    chat.expect(PROMPT);
    chat.line("login");
    visit(&link(&mut chat));
    chat.expect("it is back");
}

#[test]
fn where_nobody_sits_nobody_is_sent_anywhere() {
    let world = Guarded::new();
    let mut plain = command::nuncio_in(world.dir.path());
    plain.args(["chat", "--server", &world.mcp(), "--state"]).arg(world.dir.path().join("state"));
    let ran = command::run_with_input(&mut plain, "echo hello\n").exits(1);
    let words = format!("run `nuncio chat --server {}` in a terminal and sign in", world.mcp());
    assert!(ran.stdout.contains(&words), "{}", ran.stdout);
    let told = world.authority.told();
    assert_eq!((told.registrations, told.visits.len()), (0, 0));
}

#[test]
fn two_accounts_are_two_callers() {
    let world = Guarded::new();
    for name in ["ada", "bob"] {
        world.authority.told().subject = name.into();
        let mut chat = world.chat(&["--account", name]);
        visit(&link(&mut chat));
        chat.expect("offers at");
        chat.line("echo hello");
        chat.expect("completed");
        chat.command("tasks");
        chat.expect("completed");
        chat.command("quit");
        assert_eq!(chat.ends(), 0);
        // Each sees what is theirs.
        assert_eq!(chat.text().matches("TASK").count(), 1);
        let listed = chat.text().split("UPDATED").nth(1).unwrap().matches("completed").count();
        assert_eq!(listed, 1, "{}", chat.text());
    }
    assert_eq!(files(&world.dir.path().join("state/tokens")).len(), 2);
}

#[test]
fn a_token_that_is_given_is_for_one_server() {
    let world = Guarded::new();
    let dir = world.dir.path().join("server");
    let made =
        command::run(command::nuncio_in(&dir).args(["token", "create", "--name", "ada", "-o", "json"]));
    let made = made.exits(0).json();
    let token = made["token"].as_str().unwrap();
    let state = world.dir.path().join("state");
    let other = ServerProcess::start(&world.dir.path().join("other"), &["--agent-step", "20ms"]);
    let run = |bearer: &str, servers: &[&str], input: &str| {
        let mut chat = command::nuncio_in(world.dir.path());
        chat.arg("chat").arg("--state").arg(&state).env("A2ACLI_BEARER", bearer);
        for server in servers {
            chat.args(["--server", server]);
        }
        command::run_with_input(&mut chat, input)
    };
    let ran = run(token, &[&world.mcp()], "echo hello\n").exits(0);
    assert!(ran.stdout.contains("[1 echo] completed"), "{}", ran.stdout);
    // Of several servers it is said which.
    let (guarded, open) = (format!("guarded={}", world.mcp()), format!("open={}", other.url()));
    let ran = run(token, &[&guarded, &open], "").exits(2);
    assert!(ran.stderr.contains("with one of the names guarded, open"), "{}", ran.stderr);
    let both = run(&format!("guarded={token}"), &[&guarded, &open], "guarded/echo a\nopen/echo b\n").exits(0);
    assert!(both.stdout.contains("[2 echo] completed"), "{}", both.stdout);
    // A bad one is not tried elsewhere, and what to do is said.
    let ran = run("nun_bad_token", &[&world.mcp()], "echo hello\n").exits(1);
    assert!(ran.stdout.contains("does not take the token that was given"), "{}", ran.stdout);
}
