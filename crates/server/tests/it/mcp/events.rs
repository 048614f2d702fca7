//! The events of a task after a cursor (`dev.nuncio/events`), and pieces of a result before its end.

use serde_json::{Value, json};

use super::{
    TASKS, V2025, V2026,
    client::{Client, accept, as_task, methods, saying, text_of, with_token},
    stage::{Stage, until},
};

const EVENTS: &str = "dev.nuncio/events";
const EVENT: &str = "notifications/dev.nuncio/event";

fn with_tasks() -> Value {
    json!({ "extensions": { TASKS: {} }, "elicitation": { "form": {} } })
}

fn session_asks() -> Value {
    json!({ "elicitation": { "form": {} } })
}

/// What asks for a task's events after a cursor, in that revision.
fn after(task: &str, cursor: u64, stateless: bool) -> (&'static str, Value) {
    let meta = json!({ EVENTS: { task: cursor }, "io.modelcontextprotocol/logLevel": "info" });
    match stateless {
        true => ("subscriptions/listen", json!({ "notifications": { "taskIds": [task] }, "_meta": meta })),
        false => ("tasks/result", json!({ "taskId": task, "_meta": { EVENTS: { task: cursor } } })),
    }
}

/// An event as a word: its sequence number, and what it says.
fn word(notification: &Value) -> (u64, String) {
    let (params, event) = (&notification["params"], &notification["params"]["event"]);
    let status = &event["statusUpdate"]["status"];
    let parts = |message: &Value| message["parts"].as_array().cloned().unwrap_or_default();
    let (text, data) = (parts(&status["message"]), parts(&status["message"]));
    let text = text.iter().find_map(|part| part["text"].as_str()).unwrap_or_default().to_owned();
    let data = data.iter().map(|part| &part["data"]).find(|data| data.is_object());
    let said = match (event["artifactUpdate"]["artifact"]["parts"][0]["text"].as_str(), data) {
        (Some(chunk), _) => format!("chunk {chunk}"),
        (None, Some(data)) if data["log"].is_string() => format!("{}: {text}", data["log"].as_str().unwrap()),
        (None, Some(data)) if data["progress"].is_number() => format!("at {}: {text}", data["progress"]),
        _ => status["state"].as_str().unwrap().trim_start_matches("TASK_STATE_").to_lowercase(),
    };
    (params["seq"].as_u64().unwrap(), said)
}

/// Reads events of a stream until one says that.
async fn until_event(stream: &mut super::client::Stream, last: &str) -> Vec<(u64, String)> {
    let mut seen = vec![];
    loop {
        let message = stream.next().await.unwrap_or_else(|| panic!("it ended after {seen:?}"));
        if message["method"] == EVENT {
            seen.push(word(&message));
            if seen.last().unwrap().1 == last {
                return seen;
            }
        }
    }
}

fn words(events: &[(u64, String)]) -> Vec<&str> {
    events.iter().map(|(_, word)| &**word).collect()
}

/// All that the story says to clients.
const STORY: [&str; 10] = [
    "working",
    "info: the first line",
    "at 25: a quarter",
    "chunk One\n",
    "input_required",
    "working",
    "warning: the answer came",
    "chunk Two\n",
    "at 90: nearly",
    "completed",
];

async fn the_story_is_told_after_any_cursor(stateless: bool) {
    let stage = Stage::new().await;
    let (client, task) = match stateless {
        true => {
            let client = Client::stateless(&stage, with_tasks());
            let made = client.ok("tools/call", saying("soloist", "story")).await;
            (client, made["taskId"].clone())
        }
        false => {
            let client = Client::session(&stage, V2025, session_asks()).await;
            let made = client.ok("tools/call", as_task("soloist", "story")).await;
            (client, made["task"]["taskId"].clone())
        }
    };
    let task = task.as_str().unwrap();
    // Long after the first line was written.
    until("the question", async || (stage.state(task).await == "INPUT_REQUIRED").then_some(())).await;
    let (method, params) = after(task, 0, stateless);
    let mut stream = client.stream(method, params).await;
    let before = until_event(&mut stream, "input_required").await;
    assert_eq!(words(&before), STORY[..5]);
    stage.answer_over_a2a(task, json!({ "confirm": true })).await;
    let rest = until_event(&mut stream, "completed").await;
    assert_eq!(words(&rest), STORY[5..]);
    let all: Vec<_> = before.into_iter().chain(rest).collect();
    assert!(all.is_sorted_by(|(one, _), (next, _)| one < next), "{all:?}");
    // After each of them, now that it has ended, the rest and nothing else.
    for (at, (seq, _)) in all.iter().enumerate().filter(|(at, _)| at + 1 < all.len()) {
        let (method, params) = after(task, *seq, stateless);
        let mut stream = client.stream(method, params).await;
        assert_eq!(until_event(&mut stream, "completed").await, all[at + 1..]);
    }
    // A cursor that it never had is refused, and whoever names none gets none.
    let (method, params) = after(task, 1000, stateless);
    let (_, error) = client.refused(method, params).await;
    assert!(error["message"].as_str().unwrap().contains("has no event 1000"), "{error}");
    if !stateless {
        let plain = client.ok("tasks/result", json!({ "taskId": task })).await;
        assert!(text_of(&plain).contains("One"), "{plain}");
    }
}

#[tokio::test]
async fn the_events_of_a_task_come_after_any_cursor_in_2025_11_25() {
    the_story_is_told_after_any_cursor(false).await;
}

#[tokio::test]
async fn the_events_of_a_task_come_after_any_cursor_in_2026_07_28() {
    the_story_is_told_after_any_cursor(true).await;
}

#[tokio::test]
async fn questions_come_in_their_place_among_the_events() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, V2025, session_asks()).await;
    let made = client.ok("tools/call", as_task("soloist", "story")).await;
    let task = made["task"]["taskId"].as_str().unwrap();
    let (method, params) = after(task, 0, false);
    let mut stream = client.stream(method, params).await;
    until_event(&mut stream, "input_required").await;
    let asked = stream.next().await.unwrap();
    assert_eq!(asked["method"], "elicitation/create", "{asked}");
    assert_eq!(client.answer(&asked, accept(true)).await.status, 202);
    until_event(&mut stream, "completed").await;
    assert!(text_of(&stream.response().await.1["result"]).contains("One"));

    let client = Client::stateless(&stage, with_tasks());
    let made = client.ok("tools/call", saying("soloist", "story")).await;
    let task = made["taskId"].as_str().unwrap();
    let (method, params) = after(task, 0, true);
    let mut stream = client.stream(method, params).await;
    until_event(&mut stream, "input_required").await;
    let shown = stream.expect("notifications/tasks").await;
    let requests = shown["params"]["inputRequests"].as_object().unwrap().clone();
    let key = requests.keys().next().unwrap();
    // Whoever comes back is asked first.
    let (method, params) = after(task, stage.seq(task).await, true);
    let mut back = client.stream(method, params).await;
    back.expect("notifications/subscriptions/acknowledged").await;
    assert_eq!(back.expect("notifications/tasks").await["params"]["inputRequests"], json!(requests));
    let answers = json!({ "taskId": task, "inputResponses": { key: accept(true) } });
    client.ok("tasks/update", answers).await;
    until_event(&mut back, "completed").await;
}

#[tokio::test]
async fn a_client_that_follows_by_cursor_has_a_task_also_of_what_ends_at_once() {
    let stage = Stage::new().await;
    let client = Client::stateless(&stage, with_tasks());
    let mut params = saying("player", "hello");
    params["_meta"] = json!({ EVENTS: {} });
    let made = client.ok("tools/call", params).await;
    assert_eq!(made["resultType"], "task", "{made}");
    let session = Client::session(&stage, V2025, json!({})).await;
    assert!(session.began["capabilities"]["experimental"][EVENTS].is_object(), "{}", session.began);
    let declared = client.ok("server/discover", json!({})).await;
    assert!(declared["capabilities"]["extensions"][EVENTS].is_object(), "{declared}");
}

#[tokio::test]
async fn pieces_of_a_result_come_before_its_end_as_progress() {
    for version in [V2025, V2026] {
        let stage = Stage::new().await;
        let client = match version {
            V2025 => Client::session(&stage, V2025, json!({})).await,
            _ => Client::stateless(&stage, json!({})),
        };
        let mut stream = client.stream("tools/call", with_token(saying("player", "book"))).await;
        let first = stream.expect("notifications/progress").await;
        assert_eq!(first["params"]["message"], "Chapter 1", "{first}");
        assert_eq!(first["params"]["progressToken"], "token");
        stage.open(1);
        let (before, response) = stream.response().await;
        let numbers: Vec<f64> = [&first]
            .into_iter()
            .chain(&before)
            .filter(|message| message["method"] == "notifications/progress")
            .map(|message| message["params"]["progress"].as_f64().unwrap())
            .collect();
        assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
        assert_eq!(text_of(&response["result"]), "Chapter 1");
        assert_eq!(response["result"]["content"][1]["text"], "Chapter 2", "the result is whole");
    }
}

#[tokio::test]
async fn pieces_of_a_result_are_log_lines_where_a_level_was_asked_for_and_there_is_no_token() {
    let stage = Stage::new().await;
    let client = Client::session(&stage, V2025, json!({})).await;
    client.ok("logging/setLevel", json!({ "level": "warning" })).await;
    let mut stream = client.stream("tools/call", saying("player", "book")).await;
    let first = stream.expect("notifications/message").await;
    assert_eq!(
        (&first["params"]["data"], &first["params"]["level"]),
        (&json!("Chapter 1"), &json!("warning"))
    );
    stage.open(1);
    assert_eq!(stream.response().await.1["result"]["content"][1]["text"], "Chapter 2");

    let client = Client::stateless(&stage, json!({}));
    let mut params = saying("player", "book");
    params["_meta"] = json!({ "io.modelcontextprotocol/logLevel": "info" });
    stage.open(0);
    let mut stream = client.stream("tools/call", params).await;
    assert_eq!(stream.expect("notifications/message").await["params"]["data"], "Chapter 1");
    stage.open(1);
    stream.response().await;
    // Who asked for nothing is told nothing but the result.
    let client = Client::session(&stage, V2025, json!({})).await;
    stage.open(0);
    let mut stream = client.stream("tools/call", saying("player", "book")).await;
    stage.open(1);
    let (before, _) = stream.response().await;
    assert_eq!(methods(&before), Vec::<&str>::new());
}
