//! Messages that reach programs while they work, at the same places after a restart.

use nuncio_agents::EchoAgent;
use nuncio_engine::{Event, Part, State, Task};
use serde_json::{Value, json};

use crate::{
    program::Program,
    server::{Server, ending, submit, until},
};

/// A reader beside the work: messages in one queue, everything else in another; and how many messages waited when it
/// was told of a step that was done before.
const LISTENS: &str = r#"
import queue, threading
told, messages, came_before = queue.Queue(), queue.Queue(), []
def read():
    for line in sys.stdin:
        line = json.loads(line)
        if line["type"] == "done-before":
            came_before.append(messages.qsize())
        (messages if line["type"] == "message" else told).put(line)
    os._exit(0)
threading.Thread(target=read, daemon=True).start()
hear = told.get
say(type="listen")
"#;

/// Counts, a step each, until a file says that it may end or a message does. What it took of the messages is part of a
/// step's result, so that a restart takes the same.
const COUNTS: &str = r#"
seen, n, total, words = 0, 0, 10_000, []
def count():
    say(type="progress", done=n, total=total)
    time.sleep(0.02)
    heard = []
    while not messages.empty():
        message = messages.get()
        if message["number"] > seen:
            heard.append([message["number"], message["text"]])
    return heard
while n < total:
    n += 1
    for number, text in step(f"count-{n}", count):
        if number > seen:
            seen = number
            words.append(f"{n}:{text}")
            total = n if text == "shorter" else total
say(type="done", text=" ".join(words))
"#;

fn listening(text: &str) -> Program {
    Program::python(&format!("{LISTENS}{text}"))
}

async fn begin(program: &Program, keys: Value) -> (Server, Task) {
    let server = Server::with(vec![program.agent(keys), std::sync::Arc::new(EchoAgent)]).await;
    let task = server.submit(submit("program", Part::text("go"))).await;
    (server, task)
}

async fn until_progress(server: &Server, task: &Task, wanted: f64) {
    server.log_until(task, |event| matches!(event, Event::Progress(p) if p.done >= wanted)).await;
}

#[tokio::test]
async fn a_program_that_counts_is_told_shorter_and_ends_early() {
    let program = listening(COUNTS);
    let (server, task) = begin(&program, json!({})).await;
    until_progress(&server, &task, 3.0).await;
    server.tell(&task, "m-1", "shorter").await;
    let task = server.settle(task).await;
    let (state, words, _) = ending(&task);
    assert_eq!(state, State::Completed, "{words}");
    let (n, text) = words.split_once(':').unwrap();
    assert_eq!(text, "shorter");
    assert!(n.parse::<u32>().unwrap() < 1_000, "{words}");
}

#[tokio::test]
async fn a_message_between_steps_reaches_a_program_that_has_none() {
    let program = listening(
        r#"
n = 0
while messages.empty():
    n += 1
    say(type="progress", done=n)
    time.sleep(0.01)
message = messages.get()
say(type="done", text=message["text"], data=message)
"#,
    );
    let (server, task) = begin(&program, json!({})).await;
    until_progress(&server, &task, 3.0).await;
    server.tell(&task, "m-1", "enough").await;
    let task = server.settle(task).await;
    assert_eq!(ending(&task), (State::Completed, "enough".into(), vec!["result"]));
    let given = crate::server::result_data(&task);
    assert_eq!(
        given,
        json!({
            "type": "message",
            "number": 1,
            "text": "enough",
            "data": null,
            "parts": [{ "text": "enough" }],
            "messageId": "m-1",
        })
    );
}

#[tokio::test]
async fn a_program_that_is_started_again_is_given_what_it_had_heard_in_the_same_steps() {
    let program = listening(
        r#"
def wait(name, count):
    def work():
        say(type="progress", done=count)
        while not os.path.exists(name):
            time.sleep(0.01)
        heard = [messages.get()["text"] for _ in range(count)]
        note("heard", f"{name}: {heard}")
        return heard
    before = step(name, work)
    # Before the answer to a step that is done come the messages that it was given.
    waiting = came_before.pop() if came_before else messages.qsize()
    note("waiting", f"{name}: {waiting}")
    for _ in range(waiting):
        messages.get()
    return before
first = wait("one", 1)
second = wait("two", 2)
third = wait("three", 1)
say(type="done", data=[first, second, third])
"#,
    );
    let (server, task) = begin(&program, json!({})).await;
    let go_on = |name: &str| std::fs::write(program.folder().join(name), "").unwrap();
    until_progress(&server, &task, 1.0).await;
    server.tell(&task, "m-1", "a").await;
    go_on("one");
    until_progress(&server, &task, 2.0).await;
    server.tell(&task, "m-2", "b").await;
    server.tell(&task, "m-3", "c").await;
    go_on("two");
    until("the second step is over", || program.lines("waiting").len() == 2).await;
    // In the middle of the third, which was given nothing yet.
    until("the third has begun", || program.lines("keys").len() == 3).await;
    let server = server.restart().await;
    until("the third has begun again", || program.lines("keys").len() == 4).await;
    server.tell(&task, "m-4", "d").await;
    go_on("three");
    let task = server.settle(task).await;
    assert_eq!(task.state, State::Completed, "{:?}", ending(&task));
    assert_eq!(crate::server::result_data(&task), json!([["a"], ["b", "c"], ["d"]]));
    assert_eq!(program.lines("heard"), ["one: ['a']", "two: ['b', 'c']", "three: ['d']"]);
    // The first run had taken its messages within the steps; the second was given them before `done-before`.
    assert_eq!(program.lines("waiting"), ["one: 0", "two: 0", "one: 1", "two: 2", "three: 0"]);
}

#[tokio::test]
async fn a_program_that_crashes_hears_again_what_it_heard() {
    let program = listening(
        r#"
def work():
    say(type="progress", done=1)
    text = messages.get()["text"]
    note("heard", text)
    if start == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return text
say(type="done", text=step("work", work))
"#,
    );
    let (server, task) = begin(&program, json!({})).await;
    until_progress(&server, &task, 1.0).await;
    server.tell(&task, "m-1", "shorter").await;
    let task = server.settle(task).await;
    assert_eq!(ending(&task).1, "shorter");
    assert_eq!(program.lines("heard"), ["shorter", "shorter"]);
}

#[tokio::test]
async fn a_message_reaches_a_program_that_waits_for_another_agent() {
    let called = Program::python(
        r#"
while not os.path.exists("may-end"):
    time.sleep(0.01)
say(type="done")
"#,
    );
    let program = listening(
        r#"
say(type="progress", done=1)
say(type="call", agent="called", text="go")
text = messages.get()["text"]
note("heard", text)
say(type="done", text=f"{text}, {hear()['type']}")
"#,
    );
    let agents = vec![program.agent(json!({})), called.agent(json!({ "name": "called" }))];
    let server = Server::with(agents).await;
    let task = server.submit(submit("program", Part::text("go"))).await;
    until_progress(&server, &task, 1.0).await;
    server.tell(&task, "m-1", "shorter").await;
    until("it was given the message", || program.lines("heard") == ["shorter"]).await;
    std::fs::write(called.folder().join("may-end"), "").unwrap();
    assert_eq!(ending(&server.settle(task).await).1, "shorter, called");
}

#[tokio::test]
async fn a_program_that_does_not_say_listen_is_given_answers_and_nothing_else() {
    let program = Program::python(
        r#"
say(type="progress", done=1)
while not os.path.exists("may-end"):
    time.sleep(0.01)
say(type="done", text=str(step("work", lambda: "as it was")))
"#,
    );
    let (server, task) = begin(&program, json!({})).await;
    until_progress(&server, &task, 1.0).await;
    server.tell(&task, "m-1", "shorter").await;
    std::fs::write(program.folder().join("may-end"), "").unwrap();
    assert_eq!(ending(&server.settle(task).await).1, "as it was");
}

#[tokio::test]
async fn a_program_that_does_not_read_is_not_held_up_and_holds_up_nobody() {
    let program = Program::python(
        r#"
say(type="listen")
n = 0
while not os.path.exists("may-end"):
    n += 1
    say(type="progress", done=n)
    time.sleep(0.05)
say(type="done", text="never looked")
"#,
    );
    let (server, task) = begin(&program, json!({})).await;
    until_progress(&server, &task, 1.0).await;
    // Far more than a pipe and the lines that wait for it hold.
    let long = "shorter ".repeat(8 * 1024);
    for n in 0..40 {
        server.tell(&task, &format!("m-{n}"), &long).await;
    }
    let echoed = server.send("echo", Part::text("still here")).await;
    assert_eq!(echoed.state, State::Completed);
    let so_far = server.get(&task).await.progress.clone().unwrap().1.done;
    until_progress(&server, &task, so_far + 3.0).await;
    std::fs::write(program.folder().join("may-end"), "").unwrap();
    assert_eq!(ending(&server.settle(task).await).1, "never looked");
}
