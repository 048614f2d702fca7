//! The commands about what is shared, with the real binary: against a server, and on a folder alone.

mod agents;
mod batch;
mod memory;
mod sparc;

use std::{path::PathBuf, process::Command};

use crate::{
    command::{Ran, nuncio_in, run, run_with_input},
    server_process::ServerProcess,
};

/// A server, and commands that find it by its data folder.
struct World {
    server: ServerProcess,
    dir: tempfile::TempDir,
}

impl World {
    fn new(flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let server = ServerProcess::start(&dir.path().join("data"), flags);
        Self { server, dir }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = nuncio_in(self.dir.path());
        command.arg(args[0]).args(["--data", "data"]).args(&args[1..]);
        command
    }

    fn run(&self, args: &[&str]) -> Ran {
        run(&mut self.command(args))
    }

    fn run_with_input(&self, args: &[&str], input: &str) -> Ran {
        run_with_input(&mut self.command(args), input)
    }

    fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }
}

/// An address at which nobody listens. Not a free port: another test may get it.
const NOBODY: &str = "http://127.0.0.1:1";

#[test]
fn a_server_that_is_named_has_to_be_there() {
    let dir = tempfile::tempdir().unwrap();
    for command in [&["memory", "list"][..], &["sparc", "list"], &["batch", "list"], &["agents"]] {
        let ran = run(nuncio_in(dir.path()).args(command).args(["-a", NOBODY])).exits(3);
        assert!(ran.stderr.contains("cannot be reached"), "{command:?}: {}", ran.stderr);
        let json =
            run(nuncio_in(dir.path()).args(command).args(["-a", NOBODY, "-o", "json"])).exits(3).json();
        assert_eq!(json["error"]["code"], "A2ACLI_ERR_UNREACHABLE", "{command:?}");
    }
    for wrong in ["ftp://x", "http://me:secret@127.0.0.1"] {
        let ran = run(nuncio_in(dir.path()).args(["memory", "list", "-a", wrong])).exits(2);
        assert!(ran.stderr.contains("--server"), "{}", ran.stderr);
    }
    assert!(!dir.path().join("nuncio-data").exists(), "nobody asked for a folder");
}

#[test]
fn a_token_that_is_wrong_is_told_apart_from_none() {
    let world = World::new(&[]);
    // What looks like a header and is none is refused before anybody is called.
    let ran = world.run(&["memory", "list", "--bearer", "a\nb"]).exits(1);
    assert!(ran.stderr.contains("the token has characters"), "{}", ran.stderr);
}

#[test]
fn every_command_tells_what_it_takes() {
    let dir = tempfile::tempdir().unwrap();
    for command in [
        &["memory", "set"][..],
        &["memory", "search"],
        &["sparc", "submit"],
        &["sparc", "run"],
        &["batch", "submit"],
        &["batch", "config"],
        &["agents", "probe"],
    ] {
        let help = run(nuncio_in(dir.path()).args(command).arg("--help")).exits(0);
        assert!(help.stdout.contains("Usage: ") && help.stdout.contains("--server <URL>"), "{}", help.stdout);
    }
    let missing = run(nuncio_in(dir.path()).args(["memory", "set", "ns", "-o", "json"])).exits(2).json();
    assert_eq!(missing["error"]["code"], "A2ACLI_ERR_USAGE");
}
