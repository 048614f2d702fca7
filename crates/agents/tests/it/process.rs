//! Programs as agents: what they say, what becomes of them when something dies, and what they may not do.

use std::path::Path;

use nuncio_agents::EchoAgent;
use nuncio_engine::{Event, Level, Part, State, Task};
use serde_json::{Value, json};

use crate::{
    program::{Program, agent},
    server::{Server, ending, lines, percents, result_data, result_text, submit, until},
};

async fn serve(program: &Program, keys: Value) -> Server {
    Server::with(vec![program.agent(keys)]).await
}

async fn send(program: &Program, keys: Value) -> Task {
    serve(program, keys).await.send("program", Part::text("go")).await
}

/// The words with which a task failed.
fn failure(task: &Task) -> String {
    let (state, words, _) = ending(task);
    assert_eq!(state, State::Failed, "{words}");
    words
}

#[tokio::test]
async fn a_line_of_shell_is_an_agent() {
    let program = Program::shell(r#"read line; echo '{"type":"done","text":"hi"}'"#);
    assert_eq!(ending(&send(&program, json!({})).await), (State::Completed, "hi".into(), vec![]));
    // One that does not even read, either.
    let program = Program::shell(r#"echo '{"type":"done","text":"ho"}'"#);
    assert_eq!(ending(&send(&program, json!({})).await).1, "ho");
}

#[tokio::test]
async fn a_program_is_given_its_input_and_little_else() {
    let program = Program::python(
        r#"
given["env"] = sorted(name for name in os.environ if name.startswith(("NUNCIO", "CARGO", "WORD")))
given["word"] = os.environ["WORD"]
say(type="done", data=given)
"#,
    );
    let server = serve(&program, json!({ "env": { "WORD": "a word" } })).await;
    let task = server.send("program", Part::data(json!({ "city": "Rome" }))).await;
    let given = result_data(&task);
    assert_eq!(given["type"], "input");
    assert_eq!(given["protocol"], 1);
    assert_eq!(given["agent"], "program");
    assert_eq!(given["task"], task.origin.id.to_string());
    let context = given["context"].as_str().unwrap();
    assert!(context.starts_with("ctx_") && context != task.origin.context, "{context}");
    assert_eq!(given["attempt"], 1);
    assert_eq!(given["data"], json!({ "city": "Rome" }));
    assert_eq!(given["messages"][0]["parts"], json!([{ "data": { "city": "Rome" } }]));
    assert_eq!(given["env"], json!(["NUNCIO_ATTEMPT", "NUNCIO_CONTEXT", "NUNCIO_TASK", "WORD"]));
    assert!(std::env::vars().any(|(name, _)| name.starts_with("CARGO")), "there is something to leave out");
    assert_eq!(given["word"], "a word");
}

#[tokio::test]
async fn what_a_program_says_is_what_followers_see() {
    let program = Program::python(
        r#"
say(type="progress", done=1, total=2, text="half")
say(type="log", level="warning", text="careful")
say(type="artifact", id="poem", name="A poem", text="one\n", last=False)
say(type="artifact", id="poem", text="two\n", append=True)
say(type="artifact", id="table", data={"n": 1})
say(type="artifact", id="dot", file="AAE=", filename="dot.bin", mediaType="application/x-dot")
say(type="done", text="made")
"#,
    );
    let server = serve(&program, json!({})).await;
    let task = server.send("program", Part::text("go")).await;
    assert_eq!(ending(&task), (State::Completed, "made".into(), vec!["poem", "table", "dot"]));
    let poem = &task.artifacts[0];
    let text: String = poem.parts.iter().filter_map(Part::as_text).collect();
    assert_eq!((text.as_str(), poem.name.as_deref(), poem.complete), ("one\ntwo\n", Some("A poem"), true));
    assert_eq!(task.artifacts[2].parts[0].media_type.as_deref(), Some("application/x-dot"));
    let log = server.log(&task).await;
    assert_eq!(percents(&log), [1.0]);
    assert_eq!(lines(&log, Level::Warning), ["careful"]);
}

const PAYS_AND_ASKS: &str = r#"
def charge():
    note("charged")
    return {"receipt": 7}
say(type="progress", done=1, total=3)
paid = step("charge", charge)
say(type="progress", done=2, total=3)
say(type="ask", text="Which colour?", schema={"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]})
answer = hear()
say(type="progress", done=3, total=3)
say(type="done", text="%s %s" % (answer["action"], answer["data"]), data=paid)
"#;

#[tokio::test]
async fn a_question_holds_no_process_and_outlives_the_server() {
    let program = Program::python(PAYS_AND_ASKS);
    let server = serve(&program, json!({})).await;
    let task = server.send("program", Part::text("go")).await;
    assert_eq!(task.state, State::InputRequired);
    let server = server.restart().await;
    let task = server.answer(&task, Part::text("blue")).await;
    let words = "accept {'colour': 'blue'}".to_owned();
    assert_eq!(ending(&task), (State::Completed, words, vec!["result"]));
    assert_eq!(result_data(&task), json!({ "receipt": 7 }));
    assert_eq!(program.lines("charged").len(), 1, "a step that was done is not done again");
    assert_eq!(program.lines("starts").len(), 2, "it began again from the top");
    assert_eq!(percents(&server.log(&task).await), [1.0, 2.0, 3.0], "and said nothing twice");
}

#[tokio::test]
async fn with_nobody_to_ask_a_program_is_told_so_at_once() {
    let program = Program::python(PAYS_AND_ASKS);
    let server = serve(&program, json!({})).await;
    let mut quiet = submit("program", Part::text("go"));
    quiet.abilities.ask = false;
    let task = server.submit(quiet).await;
    let task = server.settle(task).await;
    assert_eq!(ending(&task).1, "unavailable None");
    assert_eq!(program.lines("starts").len(), 1);
}

#[tokio::test]
async fn a_question_without_a_form_asks_for_a_line() {
    let program = Program::python(
        r#"
say(type="ask", text="Who?")
say(type="done", text=hear()["data"]["answer"])
"#,
    );
    let server = serve(&program, json!({})).await;
    let task = server.send("program", Part::text("go")).await;
    assert_eq!(ending(&server.answer(&task, Part::text("me")).await).1, "me");
}

/// Crashes after its step on the first start, within its second step on the second.
const CRASHES: &str = r#"
def first():
    say(type="artifact", id="list", text="first ")
    note("effects", "first")
    return 1
def second():
    say(type="artifact", id="more", text="start %d" % start)
    note("effects", "second")
    if start == 2:
        sys.stderr.write("it burns\n")
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    return 2
say(type="log", level="notice", text="begins")
one = step("first", first)
if start == 1:
    sys.exit(7)
two = step("second", second)
say(type="done", text=str(one + two))
"#;

#[tokio::test]
async fn a_program_that_crashes_is_started_again_and_comes_to_where_it_was() {
    let program = Program::python(CRASHES);
    let server = serve(&program, json!({ "restarts": 2 })).await;
    let task = server.send("program", Part::text("go")).await;
    assert_eq!(ending(&task), (State::Completed, "3".into(), vec!["list", "more"]));
    assert_eq!(
        program.lines("effects"),
        ["first", "second", "second"],
        "the one that was cut is begun again"
    );
    let keys = program.lines("keys");
    assert_eq!(keys[1], keys[2], "under the same key");
    assert_ne!(keys[0], keys[1]);
    let more: String = task.artifacts[1].parts.iter().filter_map(Part::as_text).collect();
    assert_eq!(more, "start 3", "what the cut step had written is replaced");
    let log = server.log(&task).await;
    assert_eq!(lines(&log, Level::Notice)[0], "begins");
    let warnings = lines(&log, Level::Warning);
    assert_eq!(warnings.len(), 2);
    assert!(warnings[0].contains("exit code 7") && warnings[0].contains("(1 of 2)"), "{warnings:?}");
    assert!(warnings[1].contains("killed by signal 9"), "{warnings:?}");
    assert_eq!(lines(&log, Level::Notice).len(), 3, "what was said is not said again");
    assert_eq!(server.journaled_steps(&task).await, ["first", "second"]);
}

#[tokio::test]
async fn a_program_is_started_again_so_often_and_then_its_last_words_are_the_error() {
    let program = Program::python(CRASHES);
    let words = failure(&send(&program, json!({ "restarts": 1 })).await);
    assert!(words.contains("killed by signal 9") && words.contains("it burns"), "{words}");
    assert!(words.contains("started 2 times"), "{words}");
    assert_eq!(program.lines("starts").len(), 2);

    let program = Program::python("raise ValueError('no such thing')");
    let words = failure(&send(&program, json!({ "restarts": 0 })).await);
    assert!(words.contains("exit code 1") && words.contains("ValueError: no such thing"), "{words}");
    assert_eq!(program.lines("starts").len(), 1);
}

/// A step that goes on until a file says that it may end.
const WAITS_IN_A_STEP: &str = r#"
def before():
    note("effects", "before")
def long():
    note("effects", "long")
    say(type="progress", done=1)
    while not os.path.exists("may-end"):
        time.sleep(0.01)
step("before", before)
step("long", long)
say(type="done")
"#;

#[tokio::test]
async fn a_stop_in_the_middle_of_a_step_ends_the_program_and_the_next_start_begins_that_step_again() {
    let program = Program::python(WAITS_IN_A_STEP);
    let server = serve(&program, json!({})).await;
    let task = server.submit(submit("program", Part::text("go"))).await;
    server.log_until(&task, |event| matches!(event, Event::Progress(_))).await;
    let server = server.restart().await;
    std::fs::write(program.folder().join("may-end"), "").unwrap();
    let task = server.settle(task).await;
    assert_eq!(task.state, State::Completed);
    assert_eq!(program.lines("effects"), ["before", "long", "long"]);
}

#[tokio::test]
async fn a_step_that_fails_for_good_fails_in_every_run() {
    let program = Program::python(
        r#"
say(type="step", name="pay")
told = hear()
if told["type"] == "run":
    note("effects")
    say(type="step-failed", name="pay", error="no money")
    error = "no money"
else:
    error = told["error"]
say(type="ask", text="What now?")
hear()
say(type="done", text=error)
"#,
    );
    let server = serve(&program, json!({})).await;
    let task = server.send("program", Part::text("go")).await;
    let task = server.answer(&task, Part::text("nothing")).await;
    assert_eq!(ending(&task), (State::Completed, "no money".into(), vec![]));
    assert_eq!(program.lines("effects").len(), 1);
}

#[tokio::test]
async fn a_program_that_does_something_else_than_before_is_found_out() {
    let check = async |text: &str, words: &str| {
        let program = Program::python(text);
        let server = serve(&program, json!({})).await;
        let task = server.send("program", Part::text("go")).await;
        assert_eq!(task.state, State::InputRequired);
        let why = failure(&server.answer(&task, Part::text("x")).await);
        assert!(why.contains("nondeterministic") && why.contains(words), "{why}");
    };
    check(
        "step('step %d' % start, lambda: 1)\nsay(type='ask', text='?')\nhear()\nsay(type='done')",
        "step \"step 1\" before the restart, and step \"step 2\"",
    )
    .await;
    check("say(type='ask', text='question %d' % start)\nhear()\nsay(type='done')", "question 1").await;
    check(
        "if start == 1: say(type='progress', done=1)\nsay(type='ask', text='?')\nhear()\nsay(type='done')",
        "ended before it had emitted",
    )
    .await;
    check(
        "say(type='artifact', id='a%d' % start, text='x')\nsay(type='ask', text='?')\nhear()\nsay(type='done')",
        "emitted other things",
    )
    .await;
}

/// Whether a process is there and not just waiting to be buried.
fn lives(pid: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.trim().is_empty() && !rest.trim().starts_with('Z'))
}

#[tokio::test]
async fn a_cancel_ends_a_program_that_does_not_listen_and_its_children() {
    // It hears nothing, and takes no hint.
    let program = Program::shell(
        r#"trap '' TERM
sh -c "trap '' TERM; sleep 1000 & echo \$! > child; wait" &
echo $$ > self
while ! test -s child; do sleep 0.01; done
echo '{"type":"progress","done":1}'
while true; do sleep 1; done"#,
    );
    let server = serve(&program, json!({ "grace": "100ms" })).await;
    let task = server.submit(submit("program", Part::text("go"))).await;
    server.log_until(&task, |event| matches!(event, Event::Progress(_))).await;
    let (own, child) = (program.lines("self")[0].clone(), program.lines("child")[0].clone());
    assert!(lives(&own) && lives(&child));
    assert_eq!(server.cancel(&task).await.state, State::Canceled);
    until("everything of it is gone", || !lives(&own) && !lives(&child)).await;
}

#[tokio::test]
async fn a_program_that_ends_takes_what_it_left_running_with_it() {
    let program = Program::shell("sleep 1000 & echo $! > child; echo gone >&2; exit 5");
    let why = failure(&send(&program, json!({ "restarts": 0 })).await);
    assert!(why.contains("exit code 5") && why.contains("gone"), "{why}");
    let child = program.lines("child")[0].clone();
    until("the child is gone", || !lives(&child)).await;
}

#[tokio::test]
async fn so_many_processes_there_are_at_once_and_the_next_waits() {
    let program = Program::python(
        r#"
note("begun", given["text"])
while not os.path.exists("may-end"):
    time.sleep(0.01)
if given["text"] == "first":
    say(type="call", agent="program", text="called")
    given = hear()
say(type="done", text=given["text"])
"#,
    );
    let server = serve(&program, json!({ "max-processes": 1 })).await;
    let first = server.submit(submit("program", Part::text("first"))).await;
    until("the first has begun", || program.lines("begun").len() == 1).await;
    let second = server.submit(submit("program", Part::text("second"))).await;
    let third = server.submit(submit("program", Part::text("third"))).await;
    assert_eq!(server.cancel(&third).await.state, State::Canceled, "whoever waits can be canceled");
    assert_eq!(program.lines("begun"), ["first"]);
    std::fs::write(program.folder().join("may-end"), "").unwrap();
    assert_eq!(ending(&server.settle(second).await).1, "second");
    // It calls itself, and does not wait for its own place.
    assert_eq!(ending(&server.settle(first).await).1, "called");
}

#[tokio::test]
async fn a_cancel_is_told_first_and_last_words_are_heard() {
    let program = Program::python(
        r#"
def long():
    say(type="progress", done=1)
    note("heard", hear()["type"])
    say(type="canceled", text="tidied up")
step("long", long)
"#,
    );
    let server = serve(&program, json!({})).await;
    let task = server.submit(submit("program", Part::text("go"))).await;
    server.log_until(&task, |event| matches!(event, Event::Progress(_))).await;
    let task = server.cancel(&task).await;
    assert_eq!(ending(&task), (State::Canceled, "tidied up".into(), vec![]));
    assert_eq!(program.lines("heard"), ["cancel"]);
}

#[tokio::test]
async fn a_program_that_says_done_to_a_cancel_is_canceled() {
    let program = Program::python(
        r#"
def long():
    say(type="progress", done=1)
    hear()
    say(type="done", text="as far as it went", data={"half": True})
step("long", long)
"#,
    );
    let server = serve(&program, json!({})).await;
    let task = server.submit(submit("program", Part::text("go"))).await;
    server.log_until(&task, |event| matches!(event, Event::Progress(_))).await;
    let task = server.cancel(&task).await;
    assert_eq!(ending(&task), (State::Canceled, "as far as it went".into(), vec![]));
}

#[tokio::test]
async fn a_cancel_while_a_program_asks_is_quick() {
    let program = Program::python("say(type='ask', text='?')\nhear()\nsay(type='done')");
    let server = serve(&program, json!({})).await;
    let task = server.send("program", Part::text("go")).await;
    assert_eq!(server.cancel(&task).await.state, State::Canceled);
}

#[tokio::test]
async fn what_a_program_prints_beside_its_words_is_kept() {
    let program = Program::python(
        r#"
sys.stderr.write("start %d: password=hunter2-hunter2\n" % start)
sys.stderr.write("x" * 5000 + "\n")
say(type="ask", text="?")
hear()
sys.stderr.write("end\n")
sys.exit(1)
"#,
    );
    let server = serve(&program, json!({ "restarts": 0 })).await;
    let task = server.send("program", Part::text("go")).await;
    let task = server.answer(&task, Part::text("x")).await;
    let why = failure(&task);
    assert!(why.contains("start 2: password=") && !why.contains("hunter2"), "{why}");
    let log = server.log(&task).await;
    let lines = lines(&log, Level::Info);
    assert!(lines[0].starts_with("start 1: password="), "{lines:?}");
    assert!(!lines[0].contains("hunter2"), "without what looks like a secret: {lines:?}");
    assert!(lines[1].len() < 2_100 && lines[1].ends_with("x …"), "{}", lines[1].len());
    assert!(lines.iter().any(|line| line.starts_with("start 2")), "of every start: {lines:?}");
}

#[tokio::test]
async fn a_flood_of_it_is_cut_and_counted() {
    let program = Program::python(
        "for n in range(20000): sys.stderr.write('line %d\\n' % n)\nsys.stderr.flush()\nsys.exit(3)",
    );
    let server = serve(&program, json!({ "restarts": 0 })).await;
    let task = server.send("program", Part::text("go")).await;
    assert!(failure(&task).ends_with("line 19999"), "the last lines are in the error");
    let log = server.log(&task).await;
    let lines = lines(&log, Level::Info);
    assert!(lines.len() <= 1_001, "{}", lines.len());
    let last = lines.last().unwrap();
    assert!(last.starts_with("… ") && last.ends_with("lines of stderr were left out"), "{last}");
}

#[tokio::test]
async fn what_a_program_may_not_say_is_named() {
    let check = async |text: &str, keys: Value, words: &[&str]| {
        let program = Program::python(text);
        let why = failure(&send(&program, keys).await);
        assert!(words.iter().all(|words| why.contains(words)), "{why}");
        assert_eq!(program.lines("starts").len(), 1, "once more would be the same");
    };
    check("print('hello there', flush=True)\nhear()", json!({}), &["hello there", "speaks = \"lines\""])
        .await;
    check("say(type='dun')\nhear()", json!({}), &["unknown variant `dun`", "line 1"]).await;
    check("say(type='done', txt='x')\nhear()", json!({}), &["unknown field `txt`"]).await;
    check(
        "say(type='log', text='x' * 2000)\nhear()",
        json!({ "max-line-bytes": 1000 }),
        &["max-line-bytes", "1000"],
    )
    .await;
    check(
        "for n in range(20): say(type='log', text='x')\nhear()",
        json!({ "max-lines": 10 }),
        &["max-lines", "more than 10 lines"],
    )
    .await;
    check(
        "say(type='step', name='a')\nhear()\nsay(type='ask', text='?')\nhear()",
        json!({}),
        &["\"ask\"", "within step \"a\""],
    )
    .await;
    check("say(type='step-done', name='a')\nhear()", json!({}), &["not begun"]).await;
    check(
        "say(type='ask', text='?', schema={'type': 'string'})\nhear()",
        json!({}),
        &["a form is a flat object"],
    )
    .await;
    check("say(type='sleep', seconds=-1)\nhear()", json!({}), &["sleep"]).await;
    check("sys.exit(0)", json!({}), &["exit code 0", "without saying that it is done"]).await;
    check("say(type='failed', text='no luck')", json!({}), &["no luck"]).await;
}

#[tokio::test]
async fn a_program_that_is_not_there_is_named() {
    let agent = agent(json!({ "name": "program", "kind": "process", "command": ["no-such-program", "x"] }));
    let looked = agent.probe().unwrap().check_reachable().await;
    assert!(looked.unwrap_err().contains("no-such-program"));
    let server = Server::with(vec![agent]).await;
    let why = failure(&server.send("program", Part::text("go")).await);
    assert!(why.contains("\"no-such-program x\" cannot be started"), "{why}");
    let there = crate::program::agent(json!({ "name": "a", "kind": "process", "command": ["sh"] }));
    assert_eq!(there.probe().unwrap().check_reachable().await, Ok(()));
}

#[tokio::test]
async fn a_program_rejects_calls_and_sleeps() {
    let program = Program::python("say(type='rejected', text='not mine')");
    assert_eq!(ending(&send(&program, json!({})).await), (State::Rejected, "not mine".into(), vec![]));

    let program = Program::python(
        r#"
say(type="sleep", seconds=0.01)
assert hear()["type"] == "awake"
say(type="call", agent="echo", text="hello")
told = hear()
say(type="done", text=told["state"], data=told)
"#,
    );
    let server = Server::with(vec![program.agent(json!({})), std::sync::Arc::new(EchoAgent)]).await;
    let task = server.send("program", Part::text("go")).await;
    assert_eq!(ending(&task).1, "completed");
    assert!(result_data(&task).to_string().contains("hello"), "{:?}", result_data(&task));
}

#[tokio::test]
async fn a_program_remembers_and_finds_after_a_restart_what_it_found_before() {
    let program = Program::python(
        r#"
def memory(what, **rest):
    say(type="memory-" + what, namespace="notes", **rest)
    return hear()
before = memory("get", key="n")["value"]
version = memory("store", key="n", value={"start": start})["version"]
now = memory("get", key="n")["value"]
say(type="ask", text="?")
hear()
bad = memory("get", key="")
memory("delete", key="n")
gone = memory("delete", key="n")["deleted"]
say(type="done", data={"before": before, "version": version, "now": now, "bad": "error" in bad, "gone": gone})
"#,
    );
    let server = serve(&program, json!({})).await;
    let task = server.send("program", Part::text("go")).await;
    let task = server.answer(&task, Part::text("x")).await;
    let expected = json!({ "before": null, "version": 1, "now": { "start": 1 }, "bad": true, "gone": false });
    assert_eq!(result_data(&task), expected, "{:?}", ending(&task));
}

#[tokio::test]
async fn a_program_that_knows_nothing_of_this_prints_its_result() {
    let program = Program::shell("tr a-z A-Z; echo beside >&2");
    let server = serve(&program, json!({ "speaks": "lines" })).await;
    let task = server.send("program", Part::text("hello\nyou")).await;
    assert_eq!((task.state, result_text(&task).as_str()), (State::Completed, "HELLO\nYOU\n"));
    assert_eq!(lines(&server.log(&task).await, Level::Info), ["beside"]);

    let program = Program::shell("cat; echo went wrong >&2; exit 4");
    let why = failure(&send(&program, json!({ "speaks": "lines" })).await);
    assert!(why.contains("exit code 4") && why.contains("went wrong"), "{why}");

    let program = Program::shell("cat");
    let server = serve(&program, json!({ "speaks": "lines" })).await;
    let task = server.send("program", Part::data(json!({ "n": 1 }))).await;
    assert_eq!(result_text(&task), "{\"n\":1}\n");
}

#[tokio::test]
async fn a_cancel_ends_a_plain_program_too() {
    let program = Program::shell("echo $$ > self; echo begun; sleep 1000");
    let server = serve(&program, json!({ "speaks": "lines", "grace": "100ms" })).await;
    let task = server.submit(submit("program", Part::text("go"))).await;
    server.log_until(&task, |event| matches!(event, Event::Artifact(_))).await;
    assert_eq!(server.cancel(&task).await.state, State::Canceled);
    let own = program.lines("self")[0].clone();
    until("it is gone", || !lives(&own)).await;
}

#[tokio::test]
async fn a_time_limit_ends_a_program() {
    let program = Program::shell("echo $$ > self; sleep 1000");
    let why = failure(&send(&program, json!({ "time-limit": "300ms" })).await);
    assert!(why.contains("time limit"), "{why}");
    let own = program.lines("self")[0].clone();
    until("it is gone", || !lives(&own)).await;
}
