//! Programs in a folder of their own, as agents: what they wrote there tells what they did.

use std::{path::Path, sync::Arc};

use nuncio_agents::configured::{AgentSpec, build_agent};
use nuncio_engine::Agent;
use serde_json::{Value, json};
use tempfile::TempDir;

/// What every program in Python begins with. `start` is the how-manieth start of it this is.
const PRELUDE: &str = r#"
import json, os, signal, sys, time
def say(**message):
    print(json.dumps(message), flush=True)
def hear():
    line = sys.stdin.readline()
    return json.loads(line) if line else os._exit(0)
def note(name, text="x"):
    with open(name, "a") as file:
        file.write(str(text) + "\n")
def step(name, work):
    say(type="step", name=name)
    told = hear()
    if told["type"] == "done-before":
        return told["result"]
    if told["type"] == "failed-before":
        raise RuntimeError(told["error"])
    note("keys", told["key"])
    result = work()
    say(type="step-done", name=name, result=result)
    return result
note("starts")
start = len(open("starts").readlines())
given = hear()
"#;

/// A folder with a program.
pub(crate) struct Program {
    folder: TempDir,
    command: Vec<String>,
}

impl Program {
    /// A program in Python, after the prelude.
    pub(crate) fn python(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("agent.py"), format!("{PRELUDE}{text}")).unwrap();
        Self { folder, command: vec!["python3".into(), "agent.py".into()] }
    }

    /// A program for the shell.
    pub(crate) fn shell(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder, command: vec!["sh".into(), "-c".into(), text.into()] }
    }

    /// The agent `program`, with further keys of its table.
    pub(crate) fn agent(&self, keys: Value) -> Arc<dyn Agent> {
        let mut table = json!({
            "name": "program", "kind": "process", "command": self.command, "dir": self.folder.path(),
        });
        extend(&mut table, keys);
        agent(table)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The lines of a file that the program wrote.
    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// The agent of a table.
pub(crate) fn agent(table: Value) -> Arc<dyn Agent> {
    build_agent(&spec(table)).unwrap_or_else(|error| panic!("{error}")).agent
}

pub(crate) fn spec(table: Value) -> AgentSpec {
    let Value::Object(table) = table else { panic!("a table") };
    AgentSpec::read(&table, &|_| None).unwrap()
}

/// Adds keys to a table.
pub(crate) fn extend(table: &mut Value, keys: Value) {
    let (Value::Object(table), Value::Object(keys)) = (table, keys) else { panic!("a table") };
    table.extend(keys);
}
