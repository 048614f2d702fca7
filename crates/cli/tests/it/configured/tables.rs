//! The tables themselves: what is said of one that is wrong, and what is shown of one that is right.

use std::{fs, path::Path};

use crate::command::{Ran, nuncio_in, run};

fn print_config(dir: &Path, file: &str) -> Ran {
    fs::write(dir.join("nuncio.toml"), file).unwrap();
    let mut command = nuncio_in(dir);
    command.args(["serve", "--print-config"]).env("TEST_KEY", "k-secret-1").env_remove("NO_KEY");
    run(&mut command)
}

#[test]
fn what_is_wrong_is_named_with_its_file_and_its_agent() {
    #[track_caller]
    fn check(table: &str, expected: &str) {
        let dir = tempfile::tempdir().unwrap();
        let ran = print_config(dir.path(), table).exits(1);
        assert!(ran.stderr.contains(expected), "{}", ran.stderr);
    }
    let a = "[[agent]]\nname = \"a\"\nkind = \"process\"\n";
    check(
        "[agent]\nname = \"a\"",
        "nuncio.toml: [[agent]]: expected tables: write [[agent]] with two brackets",
    );
    check("[[agents]]\nname = \"a\"", "there is no setting \"agents\": did you mean \"agent\"?");
    check("[[agent]]\nkind = \"process\"", "nuncio.toml: [[agent]]: name: is required");
    check("[[agent]]\nname = \"a\"", "[[agent]]: \"a\": kind: is required: process, http, mcp, a2a or llm");
    check(
        "[[agent]]\nname = \"a b\"\nkind = \"process\"\ncommand = [\"x\"]",
        "\"a b\": name: 1 to 64 letters",
    );
    check(&format!("{a}comand = [\"x\"]"), "\"a\": comand: unknown field `comand`");
    check(&format!("{a}comand = [\"x\"]"), "did you mean \"command\"?");
    check(
        &format!("{a}command = \"cat -n\""),
        "command: expected a list, not a text: write command = [\"cat\",\"-n\"]",
    );
    check(&format!("{a}command = [\"x\"]\nlisten = \"127.0.0.1:0\""), "belongs above the first table");
    check(&format!("{a}command = [\"x\"]\ndescripton = \"x\""), "did you mean \"description\"?");
    check(
        &format!("{a}command = [\"x\"]\nenv = {{ K = \"${{NO_KEY}}\" }}"),
        "the variable NO_KEY of the environment",
    );
    check(
        &format!("{a}command = [\"x\"]\n{a}command = [\"y\"]"),
        "\"a\": name: there are two agents of that name",
    );
    check(&format!("{a}command = [\"x\"]\ntime-limit = \"5 days\""), "time-limit: expected a duration");
    let limit = "question-limit: expected a duration, or never";
    check(&format!("{a}command = [\"x\"]\nquestion-limit = \"forever\""), limit);
    check(&format!("{a}command = [\"x\"]\nretention = \"0s\""), "retention: expected a duration above zero");
}

#[test]
fn what_only_the_server_finds_wrong_is_named_in_the_same_way() {
    #[track_caller]
    fn check(table: &str, expected: &str) {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("nuncio.toml"), table).unwrap();
        let mut command = nuncio_in(dir.path());
        let ran = run(command.args(["serve", "--demo", "--listen", "127.0.0.1:0", "--data", "d"])).exits(1);
        assert!(ran.stderr.contains(expected), "{}", ran.stderr);
    }
    let agent =
        |name: &str, rest: &str| format!("[[agent]]\nname = \"{name}\"\nkind = \"process\"\n{rest}\n");
    check(
        &agent("echo", "command = [\"x\"]"),
        "nuncio.toml: [[agent]]: \"echo\": name: it is the name of a built-in agent, which is served too: leave out --demo",
    );
    check(
        &agent("batch", "command = [\"x\"]"),
        "nuncio.toml: [[agent]]: \"batch\": name: the server already has an agent of that name",
    );
    check(&agent("a", "command = []"), "nuncio.toml: [[agent]]: \"a\": command: expected a program");
    let http = "[[agent]]\nname = \"a\"\nkind = \"http\"\nurl = \"http://u:p@127.0.0.1/\"\n";
    check(http, "\"a\": url: credentials do not belong into an address");
    let http = "[[agent]]\nname = \"a\"\nkind = \"http\"\nurl = \"http://127.0.0.1/\"\nheaders = { \"a b\" = \"x\" }\n";
    check(http, "\"a\": headers: \"a b\": that is no name of a header");
}

#[test]
fn what_is_printed_is_the_tables_without_their_secrets() {
    let file = r#"
[[agent]]
name = "far"
kind = "http"
url = "http://127.0.0.1:1/x"
headers = { authorization = "Bearer ${TEST_KEY}", x-key = "k-literal-2" }

[[agent]]
name = "near"
kind = "process"
command = ["sh", "-c", "true", "--token=sk-abcdefghijklmnopqrstuvwxyz012345"]
time_limit = "5m"
env = { API = "${TEST_KEY}", WORD = "k-literal-3" }

[[agent.skills]]
id = "s"
"#;
    let dir = tempfile::tempdir().unwrap();
    let shown = print_config(dir.path(), file).exits(0).stdout;
    for secret in ["k-secret-1", "k-literal", "sk-abcdef"] {
        assert!(!shown.contains(secret), "{secret} in:\n{shown}");
    }
    assert!(shown.contains("${TEST_KEY}") && shown.contains("(hidden)"), "{shown}");
    // It is a configuration file again, and says the same.
    let again = print_config(dir.path(), &shown).exits(0).stdout;
    let tables = |text: &str| text[text.find("[[agent]]").unwrap()..].to_owned();
    assert_eq!(tables(&again), tables(&shown));
    assert!(shown.contains("time-limit = \"5m\"") && shown.contains("id = \"s\""), "{shown}");
}

/// A command that only looks for its server does not need what its agents need.
#[test]
fn a_missing_variable_is_the_servers_concern() {
    let dir = tempfile::tempdir().unwrap();
    let table = "data = \"elsewhere\"\n[[agent]]\nname = \"a\"\nkind = \"process\"\ncommand = [\"x\"]\nenv = { K = \"${NO_KEY}\" }\n";
    fs::write(dir.path().join("nuncio.toml"), table).unwrap();
    let mut command = nuncio_in(dir.path());
    let ran = run(command.args(["task", "list"]).env_remove("NO_KEY"));
    assert!(!ran.stderr.contains("NO_KEY"), "{}", ran.stderr);
}
