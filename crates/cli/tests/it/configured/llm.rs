//! A model agent in the real server, which is killed between what the model said and what its tool did, before the
//! model's next word, and in the middle of its answer: nothing that had ended is done again, and the answer is whole.
//! The model is a stand-in: `nuncio_testkit::model_provider` says what that shows and what it does not.

use std::{fs, sync::Arc};

use serde_json::{Value, json};
use tokio::{runtime::Runtime, sync::Notify};

use super::{lines, until};
use crate::{http::rpc, server_process::ServerProcess};
use nuncio_testkit::model_provider::{StandIn, StandInReply};

const FINAL: &str = "Twice three is six, as far as anybody knows.";

/// Begins, waits until it may, and does its work once: that is written down.
const DOUBLE: &str = r#"
import json, os, sys, time
def say(**message):
    print(json.dumps(message), flush=True)
def hear():
    line = sys.stdin.readline()
    return json.loads(line) if line else sys.exit(1)
def note(text):
    with open("effects", "a") as file:
        file.write(text + "\n")
given = hear()
note("begun")
while not os.path.exists("may-go"):
    if os.getppid() == 1:
        sys.exit(1)
    time.sleep(0.01)
say(type="step", name="double")
if hear()["type"] == "run":
    note("doubled")
    say(type="step-done", name="double")
say(type="done", text="6")
"#;

/// An agent that asks the stand-in and has that tool.
fn tables(url: &str) -> String {
    format!(
        "[[agent]]\nname = \"thinks\"\nkind = \"llm\"\nprovider = \"openai\"\nmodel = \"stand-in\"\n\
         base-url = \"{url}\"\ntools = [\"double\"]\n\n\
         [[agent]]\nname = \"double\"\nkind = \"process\"\ndescription = \"Doubles.\"\n\
         command = [\"python3\", \"double.py\"]\n"
    )
}

fn task(server: &ServerProcess, id: &str) -> Value {
    rpc(&format!("{}/agents/thinks", server.url()), "GetTask", &json!({ "id": id }))["result"].clone()
}

fn text(task: &Value) -> String {
    let parts = task["artifacts"].as_array().into_iter().flatten().flat_map(|artifact| {
        artifact["parts"].as_array().into_iter().flatten().filter_map(|part| part["text"].as_str())
    });
    parts.collect()
}

#[test]
fn a_kill_at_any_point_repeats_nothing_that_had_ended() {
    let runtime = Runtime::new().unwrap();
    let never = Arc::new(Notify::new());
    let replies = [
        StandInReply::calls("", &[("c1", "double", "{\"text\":\"3\"}")], (10, 5)),
        StandInReply::text(FINAL, (30, 8)).behind(&never),
        StandInReply::text("Twice three is certainly seven.", (30, 8)).open_after(3),
        StandInReply::text(FINAL, (30, 8)),
    ];
    let stand_in = runtime.block_on(StandIn::start(replies));
    let asked = || stand_in.asked().len();
    let dir = tempfile::tempdir().unwrap();
    let effects = dir.path().join("effects");
    fs::write(dir.path().join("double.py"), DOUBLE).unwrap();
    fs::write(dir.path().join("nuncio.toml"), tables(&stand_in.url)).unwrap();
    let mut server = ServerProcess::start(&dir.path().join("data"), &[]);
    let message = json!({ "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "Double 3." }] });
    let params = json!({ "message": message, "configuration": { "returnImmediately": true } });
    let sent = rpc(&format!("{}/agents/thinks", server.url()), "SendMessage", &params);
    let id = sent["result"]["task"]["id"].as_str().unwrap_or_else(|| panic!("{sent}")).to_owned();

    // The model has said what it wants, and the tool has not done it yet.
    until("the tool begins", || lines(&effects) == ["begun"]);
    server.kill9();
    server.restart();
    until("the tool begins again", || lines(&effects) == ["begun", "begun"]);
    assert_eq!(asked(), 1, "what the model said is not asked for again");

    // The tool has ended, and the model has not said a word to that.
    fs::write(dir.path().join("may-go"), "").unwrap();
    until("the model is asked what comes of it", || asked() == 2);
    server.kill9();
    server.restart();

    // In the middle of the answer.
    until("some of the answer is there", || text(&task(&server, &id)).starts_with("Twice three is"));
    assert_eq!(asked(), 3);
    server.kill9();
    server.restart();

    until("it has ended", || task(&server, &id)["status"]["state"] == "TASK_STATE_COMPLETED");
    let task = task(&server, &id);
    assert_eq!((text(&task).as_str(), task["artifacts"].as_array().unwrap().len()), (FINAL, 1), "{task}");
    assert_eq!(asked(), 4, "only the answers that had not come were asked for again");
    assert_eq!(lines(&effects), ["begun", "begun", "doubled"], "the tool did its work once");
    let last = stand_in.asked()[3].body.clone();
    let results = last["messages"].as_array().unwrap().iter().filter(|message| message["role"] == "tool");
    let results: Vec<_> = results.map(|message| message["content"].as_str().unwrap()).collect();
    assert_eq!(results, ["6"], "the model is told once what the tool did");
    let usage = &task["artifacts"][0]["metadata"]["usage"];
    assert_eq!((&usage["modelCalls"], &usage["toolCalls"]), (&json!(2), &json!(1)), "{usage}");
}
