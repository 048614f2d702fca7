//! What has ended is not done again: after a restart, a cut, a refusal; and a cancel stops what goes on.

use nuncio_engine::{Event, Level, List, State};

use super::*;
use crate::server::{caller, ending, lines};
use nuncio_testkit::model_provider::StandInReply;

const TWO: [(&str, &str, &str); 2] = [("c1", "double", "{\"n\":3}"), ("c2", "twice", "{\"n\":4}")];
const FINAL: &str = "They are 6 and 8 — both even.";

#[tokio::test]
async fn two_tools_are_called_at_once_and_their_results_answered() {
    let stand_in = StandIn::start([
        StandInReply::calls("Let me see.", &TWO, (10, 5)),
        StandInReply::text(FINAL, (30, 8)),
    ])
    .await;
    // Each waits for the other: one after another they would never end.
    let barrier = Some(Arc::new(Barrier::new(2)));
    let (double, twice) =
        (Tool { barrier: barrier.clone(), ..Tool::new("double") }, Tool { barrier, ..Tool::new("twice") });
    let agent = llm(&stand_in, json!({ "tools": ["double", "twice"], "system": "Be short." }));
    let server = Server::with(vec![agent, Arc::new(double), Arc::new(twice)]).await;
    let task = server.send(AGENT, Part::text("Double 3 and 4.")).await;
    assert_eq!(ending(&task), (State::Completed, String::new(), vec!["answer"]));
    assert_eq!(answer(&task), FINAL);
    let usage = usage(&task);
    assert_eq!((&usage["modelCalls"], &usage["toolCalls"]), (&json!(2), &json!(2)));
    assert_eq!((&usage["inputTokens"], &usage["outputTokens"]), (&json!(40), &json!(13)));
    let log = server.log(&task).await;
    assert_eq!(lines(&log, Level::Info)[0], "Let me see.");
    assert!(lines(&log, Level::Info)[1].contains("2 questions, 2 calls of tools"));
    let chunks = chunks(&log);
    assert_eq!(chunks[0], (false, "Let me see.".into()));
    assert_eq!(chunks[1], (false, "They ".into()), "the next turn begins the answer anew");
    assert!(chunks[2..].iter().all(|(append, _)| *append));

    let asked = stand_in.asked();
    let [first, second] = &asked[..] else { panic!("asked twice") };
    assert_eq!(roles(&first.body), ["system", "user"]);
    assert_eq!(roles(&second.body), ["system", "user", "assistant", "tool", "tool"]);
    let names: Vec<&str> = first.body["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["function"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["double", "twice", "ask_person"]);
    let results = &second.body["messages"];
    assert_eq!((&results[3]["tool_call_id"], &results[3]["content"]), (&json!("c1"), &json!("6")));
    assert_eq!((&results[4]["tool_call_id"], &results[4]["content"]), (&json!("c2"), &json!("8")));
    assert_key_is_nowhere(&server, &task).await;
}

#[tokio::test]
async fn a_restart_while_tools_run_repeats_no_question_and_no_tool() {
    let stand_in =
        StandIn::start([StandInReply::calls("", &TWO, (10, 5)), StandInReply::text(FINAL, (30, 8))]).await;
    let gate = Arc::new(Notify::new());
    let double = Tool::new("double");
    let twice = Tool { gate: Some(Arc::clone(&gate)), ..Tool::new("twice") };
    let (doubles, twices) = (Arc::clone(&double.runs), Arc::clone(&twice.runs));
    let agent = llm(&stand_in, json!({ "tools": ["double", "twice"] }));
    let server = Server::with(vec![agent, Arc::new(double), Arc::new(twice)]).await;
    let task = server.submit(question("Double 3 and 4.")).await;
    // After the first question, and after the first tool: that one is done, the other has begun.
    until("the second tool runs", || twices.load(Ordering::SeqCst) == 1).await;
    has_ended(&server, "double").await;
    let server = server.restart().await;
    until("the second tool runs again", || twices.load(Ordering::SeqCst) == 2).await;
    assert_eq!(stand_in.asked().len(), 1, "the first question was not put again");
    let server = server.restart().await;
    until("the second tool runs once more", || twices.load(Ordering::SeqCst) == 3).await;
    gate.notify_one();
    let task = server.settle(task).await;
    assert_eq!(ending(&task), (State::Completed, String::new(), vec!["answer"]));
    assert_eq!(answer(&task), FINAL);
    assert_eq!(stand_in.asked().len(), 2);
    assert_eq!(doubles.load(Ordering::SeqCst), 1, "the tool that had ended was not called again");
    assert_eq!(server.journaled_steps(&task).await, ["begin", "model", "model"]);
}

#[tokio::test]
async fn a_tool_that_was_not_there_is_not_called_after_a_restart() {
    let stand_in = StandIn::start([
        StandInReply::calls("", &TWO[1..], (10, 5)),
        StandInReply::calls("", &TWO[..1], (10, 5)),
        StandInReply::text(FINAL, (30, 8)).open_after(2),
        StandInReply::text(FINAL, (30, 8)),
    ])
    .await;
    let gate = Arc::new(Notify::new());
    let double = Tool::new("double");
    let twice = Tool { gate: Some(Arc::clone(&gate)), ..Tool::new("twice") };
    let (doubles, twices) = (Arc::clone(&double.runs), Arc::clone(&twice.runs));
    let agent = llm(&stand_in, json!({ "tools": ["double", "twice"] }));
    let server = Server::with(vec![agent, Arc::new(double), Arc::new(twice)]).await;
    let task = server.submit(question("Double 3.")).await;
    until("the first tool runs", || twices.load(Ordering::SeqCst) == 1).await;
    // The other one was offered to the model, and is gone when the model calls it.
    server.engine.catalog().change(vec![], &["double".into()]).unwrap();
    gate.notify_one();
    server.log_until(&task, |event| matches!(event, Event::Artifact(_))).await;
    let server = server.restart().await;
    let task = server.settle(task).await;
    assert_eq!(answer(&task), FINAL);
    assert_eq!(doubles.load(Ordering::SeqCst), 0, "the model was told that there is none");
}

#[tokio::test]
async fn a_restart_in_the_middle_of_an_answer_begins_it_anew() {
    let stand_in = StandIn::start([
        StandInReply::calls("", &TWO[..1], (10, 5)),
        StandInReply::text(FINAL, (30, 8)).open_after(2),
        StandInReply::text(FINAL, (30, 8)),
    ])
    .await;
    let double = Tool::new("double");
    let doubles = Arc::clone(&double.runs);
    let server = Server::with(vec![llm(&stand_in, json!({ "tools": ["double"] })), Arc::new(double)]).await;
    let task = server.submit(question("Double 3.")).await;
    server.log_until(&task, |event| matches!(event, Event::Artifact(_))).await;
    let server = server.restart().await;
    let task = server.settle(task).await;
    assert_eq!(answer(&task), FINAL);
    assert_eq!((stand_in.asked().len(), doubles.load(Ordering::SeqCst)), (3, 1));
    let begun = chunks(&server.log(&task).await).iter().filter(|(append, _)| !append).count();
    assert_eq!(begun, 2, "once before the restart, once after it");
}

#[tokio::test]
async fn refusals_are_waited_for_and_cuts_are_asked_again() {
    let stand_in = StandIn::start([
        StandInReply::refusal(429, &format!("slow down, {KEY}")).header("retry-after-ms", "600"),
        StandInReply::refusal(500, "oh").header("retry-after-ms", "1"),
        StandInReply::text("Something else entirely", (1, 1)).cut_after(2),
        StandInReply::text(FINAL, (30, 8)),
    ])
    .await;
    let server = Server::with(vec![llm(&stand_in, json!({}))]).await;
    let task = server.send(AGENT, Part::text("Double 3 and 4.")).await;
    assert_eq!(answer(&task), FINAL, "nothing of the answer that was cut");
    let asked = stand_in.asked();
    assert_eq!(asked.len(), 4);
    assert!(asked[1].at - asked[0].at >= Duration::from_millis(600));
    assert_eq!(asked[0].headers["authorization"], format!("Bearer {KEY}"));
    let log = server.log(&task).await;
    let warnings = lines(&log, Level::Warning);
    assert_eq!(
        warnings[0],
        "the model answered 429 Too Many Requests: slow down, [key] (some_error); asked again in 0.6 s"
    );
    assert!(warnings[2].contains("cut off before its end"), "{warnings:?}");
    assert_eq!(warnings.len(), 3);
    assert_key_is_nowhere(&server, &task).await;
}

#[tokio::test]
async fn what_the_provider_refuses_fails_the_task_in_its_words() {
    let stand_in = StandIn::start([StandInReply::refusal(401, &format!("no such key: {KEY}"))]).await;
    let server = Server::with(vec![llm(&stand_in, json!({}))]).await;
    let task = server.send(AGENT, Part::text("Hello")).await;
    let words = "the model answered 401 Unauthorized: no such key: [key] (some_error)";
    assert_eq!(ending(&task), (State::Failed, words.into(), vec![]));
    assert_eq!(stand_in.asked().len(), 1);
    assert_key_is_nowhere(&server, &task).await;
}

#[tokio::test]
async fn a_cancel_stops_the_request_in_flight() {
    let stand_in = StandIn::start([StandInReply::text(FINAL, (30, 8)).open_after(2)]).await;
    let server = Server::with(vec![llm(&stand_in, json!({}))]).await;
    let task = server.submit(question("Double 3.")).await;
    server.log_until(&task, |event| matches!(event, Event::Artifact(_))).await;
    assert_eq!(server.cancel(&task).await.state, State::Canceled);
    until("the connection is let go", || stand_in.left() == 1).await;
    assert_eq!(server.journaled_steps(&task).await, ["begin"]);
}

#[tokio::test]
async fn a_cancel_stops_a_wait_that_the_provider_asked_for() {
    let stand_in = StandIn::start([StandInReply::refusal(429, "later").header("retry-after", "60")]).await;
    let server = Server::with(vec![llm(&stand_in, json!({}))]).await;
    let task = server.submit(question("Double 3.")).await;
    server.log_until(&task, |event| matches!(event, Event::Log(_))).await;
    assert_eq!(server.cancel(&task).await.state, State::Canceled);
}

/// Waits until a task of that agent has ended.
async fn has_ended(server: &Server, agent: &str) {
    let begun = Instant::now();
    loop {
        let list = List {
            agent: Some(agent.to_owned()),
            state: Some(State::Completed),
            page_size: 1,
            ..List::default()
        };
        if server.engine.list(&caller(), list).await.unwrap().total == 1 {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{agent} has not ended");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
