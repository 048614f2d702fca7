//! Whole SPARC workflows, by forms and by a client's model, with a server that is killed in every phase: they go on
//! where they were, with nothing lost and nothing done twice.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use serde_json::{Map, Value, json};

use crate::{
    caller::{Caller, until},
    server_process::ServerProcess,
};

const PHASES: [&str; 5] = ["specification", "pseudocode", "architecture", "refinement", "completion"];
const GOAL: &str = "Short links that expire";

/// When the server dies in a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Death {
    /// While its first question is open.
    Asked,
    /// Right after it has acknowledged the answer that completes the artifact.
    Answered,
}

/// A server whose refinement runs a script of the test's own, and the worked examples of its templates.
struct Stage {
    dir: tempfile::TempDir,
    server: ServerProcess,
    caller: Caller,
    examples: BTreeMap<&'static str, Value>,
    /// The phases in which it has died.
    died_in: BTreeSet<String>,
}

impl Stage {
    /// The tests of refinement leave a line in `runs`, and then do what the script says.
    fn new(script: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let script = format!("echo $$ >> runs; {script}");
        let file = format!(
            "[sparc]\ntest-command = [\"sh\", \"-c\", {}]\ntest-dir = {}\n",
            Value::from(script),
            Value::from(dir.path().to_str().unwrap())
        );
        fs::write(dir.path().join("nuncio.toml"), file).unwrap();
        let server = ServerProcess::start(&dir.path().join("data"), &[]);
        let caller = Caller::new(server.url());
        let example = |phase: &'static str| {
            let template = caller.read(&format!("sparc://phase/{phase}/template"));
            (phase, template["examples"][0]["artifact"].clone())
        };
        let examples = PHASES.map(example).into();
        Self { dir, server, caller, examples, died_in: BTreeSet::new() }
    }

    /// The server is killed, and another one is begun in its place.
    fn die_in(&mut self, phase: &str) {
        self.server.kill9();
        self.server.restart();
        self.died_in.insert(phase.to_owned());
    }

    /// How often the tests of refinement were begun.
    fn test_runs(&self) -> usize {
        lines(&self.dir.path().join("runs"))
    }

    /// The workflow has passed all of its gates, each with the first version of its artifact, which is the example.
    fn is_complete(&self, context: &str) {
        let workflow = self.caller.read(&format!("sparc://workflow/{context}"));
        assert_eq!((&workflow["done"], &workflow["currentPhase"]), (&json!(true), &json!("completion")));
        let notes = workflow["artifacts"].as_array().unwrap();
        let versions: Vec<(&str, u64)> = notes
            .iter()
            .map(|note| (note["phase"].as_str().unwrap(), note["version"].as_u64().unwrap()))
            .collect();
        assert_eq!(versions, PHASES.map(|phase| (phase, 1)));
        for (phase, note) in PHASES.iter().zip(notes) {
            let state = &workflow["phases"][phase];
            assert_eq!((&state["status"], &state["attempts"]), (&json!("passed"), &json!(1)), "{workflow}");
            let artifact = self.caller.read(note["uri"].as_str().unwrap());
            assert_eq!(artifact["content"], self.examples[phase], "{phase}");
        }
        let command = &workflow["phases"]["refinement"]["gate"]["command"];
        assert_eq!((&command["exitCode"], &command["timedOut"]), (&json!(0), &json!(false)), "{command}");
        // The start, and one submission for each phase.
        assert_eq!(workflow["metadata"]["historyEntries"], 6, "{workflow}");
        let history = self.caller.read(&format!("sparc://workflow/{context}/history?limit=50"));
        assert_eq!(history["entries"].as_array().unwrap().len(), 6, "{history}");
        assert_eq!(self.died_in.iter().map(String::as_str).collect::<Vec<_>>(), {
            let mut all = PHASES;
            all.sort_unstable();
            all
        });
    }

    /// The tests were run once; twice where the server was killed while they ran, or before that was noted.
    fn tests_ran(&self, death: Death) {
        let runs = self.test_runs();
        let most = if death == Death::Asked { 1 } else { 2 };
        assert!((1..=most).contains(&runs), "{death:?}: the tests ran {runs} times");
    }
}

fn lines(path: &Path) -> usize {
    fs::read_to_string(path).unwrap_or_default().lines().count()
}

/// The phase that a question is about.
fn phase_of(question: &str) -> &'static str {
    let about = |phase: &&&str| {
        question.contains(&format!("{phase}, section"))
            || question.contains(&format!("the artifact of the {phase} phase"))
    };
    PHASES.iter().find(about).unwrap_or_else(|| panic!("no phase in {question:?}"))
}

// ------------------------------------------------------------------------------------------------- by forms

/// A form that a task shows in A2A.
struct Form {
    /// The message that asks.
    id: String,
    text: String,
    fields: Map<String, Value>,
}

impl Form {
    fn of(task: &Value) -> Option<Self> {
        if task["status"]["state"] != "TASK_STATE_INPUT_REQUIRED" {
            return None;
        }
        let message = &task["status"]["message"];
        let part = |name: &str| {
            let parts = message["parts"].as_array().unwrap();
            parts.iter().find_map(|part| part.get(name)).unwrap_or_else(|| panic!("no {name} in {task}"))
        };
        Some(Self {
            id: message["messageId"].as_str().unwrap().to_owned(),
            text: part("text").as_str().unwrap().to_owned(),
            fields: part("data")["schema"]["properties"].as_object().unwrap().clone(),
        })
    }

    /// What a person fills in who copies the artifact; and whether that is the last form of it.
    fn filled(&self, artifact: &Value) -> (Value, bool) {
        let place = self.text.lines().find(|line| line.contains(", section ")).unwrap();
        let (before, section) = place.rsplit_once(": ").unwrap();
        let (n, of) = before.rsplit_once(", section ").unwrap().1.split_once(" of ").unwrap();
        let value = &artifact[section];
        let only_asks = self.fields.keys().eq(["addAnother"]);
        let form = match value.as_array() {
            None if only_asks => json!({ "addAnother": false }),
            None => json!({ section: value }),
            Some(items) if only_asks => json!({ "addAnother": !items.is_empty() }),
            Some(items) => {
                let item = self.text.rsplit("Item ").next().unwrap().trim_end_matches('.');
                let item: usize = item.parse().unwrap();
                let mut form = match &items[item - 1] {
                    Value::Object(fields) => fields.clone(),
                    text => Map::from_iter([("item".to_owned(), text.clone())]),
                };
                for field in form.values_mut() {
                    if let Value::Array(texts) = field {
                        let texts: Vec<&str> = texts.iter().map(|text| text.as_str().unwrap()).collect();
                        *field = texts.join("\n").into();
                    }
                }
                form.insert("addAnother".into(), (item < items.len()).into());
                Value::Object(form)
            }
        };
        let last = n == of && form["addAnother"] != true;
        (form, last)
    }
}

/// The task is followed in A2A, and every form of it is filled in with a piece of the worked example.
fn by_forms(death: Death) {
    let mut stage = Stage::new("exit 0");
    let start = json!({ "data": { "contextId": "w", "goal": GOAL } });
    let task = stage.caller.tell("coordinator", "start", None, &start);
    let id = task["id"].as_str().unwrap().to_owned();
    let (mut answered, mut forms, mut open) = (String::new(), 0, None);
    let ended = loop {
        let task = until("a form, or the end", || {
            let mut said = stage.caller.a2a("coordinator", "GetTask", &json!({ "id": id }));
            let task = said["result"].take();
            let asks = Form::of(&task).is_some_and(|form| form.id != answered);
            let state = task["status"]["state"].as_str().unwrap_or_else(|| panic!("{said}"));
            let over = !["SUBMITTED", "WORKING", "INPUT_REQUIRED"].iter().any(|on| state.ends_with(on));
            (asks || over).then_some(task)
        });
        let Some(form) = Form::of(&task) else { break task };
        // What was open when it died is open after it, and not another question like it.
        assert!(open.take().is_none_or(|open| open == form.id), "{task}");
        let phase = phase_of(&form.text);
        if death == Death::Asked && !stage.died_in.contains(phase) {
            stage.die_in(phase);
            open = Some(form.id);
            continue;
        }
        let (filled, last) = form.filled(&stage.examples[phase]);
        stage.caller.tell("coordinator", &format!("answer-{forms}"), Some(&id), &json!({ "data": filled }));
        if death == Death::Answered && last {
            stage.die_in(phase);
        }
        answered = form.id;
        forms += 1;
    };
    assert_eq!(ended["status"]["state"], "TASK_STATE_COMPLETED", "{ended}");
    stage.is_complete("w");
    stage.tests_ran(death);
    // Every answer is in the history of the conversation once, beside the message that began it.
    let said = stage.caller.a2a("coordinator", "GetTask", &json!({ "id": id, "historyLength": 1000 }));
    let history = said["result"]["history"].as_array().unwrap();
    let told: Vec<&Value> = history.iter().filter(|message| message["role"] == "ROLE_USER").collect();
    assert_eq!(told.len(), forms + 1, "{death:?}");
}

#[test]
fn by_forms_a_workflow_survives_a_kill_while_every_phase_asks() {
    by_forms(Death::Asked);
}

#[test]
fn by_forms_a_workflow_survives_a_kill_after_every_phase_was_answered() {
    by_forms(Death::Answered);
}

// ----------------------------------------------------------------------------------------------- by a model

/// What a task asks in MCP: the key of the answer, the method, and the words.
fn asked(task: &Value) -> Option<(String, String, String)> {
    let (key, request) = task["inputRequests"].as_object()?.iter().next()?;
    let params = &request["params"];
    let words = params["message"].as_str().or(params["messages"][0]["content"]["text"].as_str()).unwrap();
    Some((key.clone(), request["method"].as_str().unwrap().to_owned(), words.to_owned()))
}

/// A call of `sparc_run` that is a task, and the client that made it.
struct Run {
    id: String,
    /// The questions that were answered. They may still be shown for a moment.
    answered: BTreeSet<String>,
}

impl Run {
    fn begin(caller: &Caller, context: &str) -> Self {
        let arguments = json!({ "contextId": context, "goal": GOAL });
        let made = caller.ok("tools/call", json!({ "name": "sparc_run", "arguments": arguments }));
        assert_eq!(made["resultType"], "task", "{made}");
        Self { id: made["taskId"].as_str().unwrap().to_owned(), answered: BTreeSet::new() }
    }

    /// Waits until it asks something new, or has ended.
    fn next(&self, caller: &Caller) -> Value {
        until("a question, or the end", || {
            let task = caller.ok("tasks/get", json!({ "taskId": self.id }));
            let asks = asked(&task).is_some_and(|(key, ..)| !self.answered.contains(&key));
            let over = !matches!(task["status"].as_str(), Some("working" | "input_required"));
            (asks || over).then_some(task)
        })
    }

    fn answer(&mut self, caller: &Caller, key: String, answer: &Value) {
        let params = json!({ "taskId": self.id, "inputResponses": { &key: answer } });
        caller.ok("tasks/update", params);
        self.answered.insert(key);
    }
}

/// What the scripted model says.
fn sampled(artifact: &Value) -> Value {
    let text = format!("Here it is:\n```json\n{artifact:#}\n```\n");
    let content = json!({ "type": "text", "text": text });
    json!({ "role": "assistant", "model": "scripted", "stopReason": "endTurn", "content": content })
}

fn by_model(death: Death) {
    let mut stage = Stage::new("exit 0");
    let mut run = Run::begin(&stage.caller, "w");
    let mut questions = vec![];
    let ended = loop {
        let task = run.next(&stage.caller);
        let Some((key, method, words)) = asked(&task) else { break task };
        assert_eq!(method, "sampling/createMessage", "{words}");
        let phase = phase_of(&words);
        if death == Death::Asked && stage.died_in.insert(phase.to_owned()) {
            stage.die_in(phase);
            let again = asked(&run.next(&stage.caller));
            assert_eq!(again, Some((key.clone(), method, words)), "it asks the same as before");
        }
        run.answer(&stage.caller, key, &sampled(&stage.examples[phase]));
        questions.push(phase);
        if death == Death::Answered {
            stage.die_in(phase);
        }
    };
    assert_eq!(
        (&ended["status"], &ended["result"]["isError"]),
        (&json!("completed"), &json!(false)),
        "{ended}"
    );
    assert_eq!(questions, PHASES, "each was asked once");
    let result = &ended["result"]["structuredContent"];
    assert_eq!(result["phases"].as_array().map(Vec::len), Some(5), "{result}");
    stage.is_complete("w");
    stage.tests_ran(death);
}

#[test]
fn by_a_model_a_workflow_survives_a_kill_while_every_phase_asks() {
    by_model(Death::Asked);
}

#[test]
fn by_a_model_a_workflow_survives_a_kill_after_every_phase_was_answered() {
    by_model(Death::Answered);
}

/// The exit code decides: twice it is no, and then it is for a person to say what to do. The server dies while that
/// person thinks.
#[test]
fn a_gate_whose_tests_fail_blocks_until_they_pass() {
    let mut stage = Stage::new("echo looking for ok; test -e ok");
    stage.caller.call("sparc_start", json!({ "contextId": "w", "goal": GOAL }));
    for phase in &PHASES[..3] {
        let given = json!({ "contextId": "w", "phase": phase, "artifact": stage.examples[phase] });
        assert_eq!(stage.caller.call("sparc_submit", given)["passed"], true);
    }
    let mut run = Run::begin(&stage.caller, "w");
    let (mut sampled_for, mut decisions) = (vec![], 0);
    let ended = loop {
        let task = run.next(&stage.caller);
        let Some((key, method, words)) = asked(&task) else { break task };
        if method == "sampling/createMessage" {
            let phase = phase_of(&words);
            sampled_for.push(phase);
            run.answer(&stage.caller, key, &sampled(&stage.examples[phase]));
            continue;
        }
        decisions += 1;
        assert_eq!(method, "elicitation/create");
        assert!(words.contains("ended with code 1") && words.contains("looking for ok"), "{words}");
        assert_eq!(stage.test_runs(), 2, "once, and once more by itself");
        stage.die_in("refinement");
        let workflow = stage.caller.read("sparc://workflow/w");
        let state = &workflow["phases"]["refinement"];
        assert_eq!((&workflow["currentPhase"], &state["attempts"]), (&json!("refinement"), &json!(2)));
        let gate = &state["gate"];
        assert_eq!((&gate["passed"], &gate["command"]["exitCode"]), (&json!(false), &json!(1)), "{gate}");
        assert_eq!(workflow["phases"]["completion"]["status"], "pending", "nothing gets past it");
        fs::write(stage.dir.path().join("ok"), "").unwrap();
        run.answer(&stage.caller, key, &json!({ "action": "accept", "content": { "action": "retry" } }));
    };
    assert_eq!((&ended["status"], decisions), (&json!("completed"), 1), "{ended}");
    assert_eq!(sampled_for, ["refinement", "refinement", "refinement", "completion"]);
    let workflow = stage.caller.read("sparc://workflow/w");
    assert_eq!(workflow["done"], true);
    let state = &workflow["phases"]["refinement"];
    assert_eq!((&state["status"], &state["attempts"]), (&json!("passed"), &json!(3)));
    assert_eq!(state["gate"]["command"]["exitCode"], 0);
    let passed: Vec<&Value> =
        workflow["artifacts"].as_array().unwrap()[3..6].iter().map(|note| &note["passed"]).collect();
    assert_eq!(passed, [&json!(false), &json!(false), &json!(true)]);
    assert_eq!(stage.test_runs(), 3);
}
