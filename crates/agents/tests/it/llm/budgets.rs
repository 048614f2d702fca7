//! Budgets end the work by name and with what was used; an answer that is not one is said to be none.

use nuncio_engine::State;

use super::*;
use crate::server::ending;
use nuncio_testkit::model_provider::StandInReply;

const CALL: [(&str, &str, &str); 1] = [("c1", "double", "{\"n\":3}")];

async fn fails(replies: Vec<StandInReply>, more: Value) -> (String, usize) {
    let stand_in = StandIn::start(replies).await;
    let mut table = more;
    table["tools"] = json!(["double"]);
    let server = Server::with(vec![llm(&stand_in, table), Arc::new(Tool::new("double"))]).await;
    let task = server.send(AGENT, Part::text("Double 3.")).await;
    assert_eq!(task.state, State::Failed, "{:?}", ending(&task));
    (ending(&task).1, stand_in.asked().len())
}

#[tokio::test]
async fn tokens_run_out() {
    let replies = vec![StandInReply::calls("", &CALL, (60, 30)), StandInReply::calls("", &CALL, (5, 5))];
    let (why, asked) = fails(replies, json!({ "budget-tokens": 100 })).await;
    assert!(
        why.starts_with("budget-tokens: 100 tokens are used up (2 questions, 2 calls of tools, "),
        "{why}"
    );
    assert!(why.ends_with("65 tokens in, 35 out)"), "{why}");
    assert_eq!(asked, 2);
}

#[tokio::test]
async fn tokens_that_nobody_counts_are_guessed_and_said_to_be() {
    let silent = |text: &str| {
        StandInReply::events([
            json!({ "choices": [{ "delta": { "content": text } }] }).to_string(),
            json!({ "choices": [{ "delta": { "tool_calls": [{ "index": 0, "id": "c", "function": {
                "name": "double", "arguments": "{\"n\":1}" } }] }, "finish_reason": "tool_calls" }] })
            .to_string(),
            "[DONE]".into(),
        ])
    };
    let (why, _) = fails(vec![silent(&"word ".repeat(200))], json!({ "budget-tokens": 200 })).await;
    assert!(why.contains("(the provider does not say)"), "{why}");

    let stand_in = StandIn::start([StandInReply::events([
        json!({ "choices": [{ "delta": { "content": "Six." }, "finish_reason": "stop" }] }).to_string(),
        "[DONE]".into(),
    ])])
    .await;
    let server = Server::with(vec![llm(&stand_in, json!({}))]).await;
    let task = server.send(AGENT, Part::text("Double 3.")).await;
    assert_eq!((&usage(&task)["inputTokens"], &usage(&task)["outputTokens"]), (&Value::Null, &Value::Null));
}

#[tokio::test]
async fn calls_run_out() {
    let replies = vec![StandInReply::calls("", &CALL, (1, 1)), StandInReply::calls("", &CALL, (1, 1))];
    let (why, asked) = fails(replies, json!({ "budget-calls": 2 })).await;
    assert!(why.starts_with("budget-calls: the model may be asked 2 times (2 questions, 2 calls"), "{why}");
    assert_eq!(asked, 2);
    let three = [("a", "double", "{\"n\":1}"), ("b", "double", "{\"n\":1}"), ("c", "double", "{\"n\":1}")];
    let (why, _) = fails(vec![StandInReply::calls("", &three, (1, 1))], json!({ "budget-calls": 2 })).await;
    assert!(
        why.starts_with("budget-calls: 2 tools may be called, and 3 more are wanted (1 questions, 0"),
        "{why}"
    );
}

#[tokio::test]
async fn time_runs_out() {
    let replies =
        vec![StandInReply::calls("", &CALL, (1, 1)), StandInReply::text("One two", (1, 1)).open_after(1)];
    let (why, _) = fails(replies, json!({ "budget-time": "500ms" })).await;
    assert!(why.starts_with("budget-time: the model may take 500ms in all; "), "{why}");
    assert!(why.contains("1 questions, 1 calls of tools"), "{why}");
}

#[tokio::test]
async fn an_answer_is_no_longer_than_the_budget_has_left() {
    let stand_in =
        StandIn::start([StandInReply::calls("", &CALL, (60, 30)), StandInReply::text("Six.", (5, 2))]).await;
    let table = json!({ "tools": ["double"], "budget-tokens": 100, "max-tokens": 50, "temperature": 0.5 });
    let server = Server::with(vec![llm(&stand_in, table), Arc::new(Tool::new("double"))]).await;
    let task = server.send(AGENT, Part::text("Double 3.")).await;
    assert_eq!(answer(&task), "Six.");
    let asked = stand_in.asked();
    assert_eq!((&asked[0].body["max_tokens"], &asked[1].body["max_tokens"]), (&json!(50), &json!(10)));
    assert_eq!(asked[0].body["temperature"], 0.5);
}

#[tokio::test]
async fn an_answer_that_is_none_is_said_to_be_none() {
    let ends = |why: &str, text: &str| {
        StandInReply::events([
            json!({ "choices": [{ "delta": { "content": text }, "finish_reason": why }] }).to_string(),
            "[DONE]".into(),
        ])
    };
    let (why, _) = fails(vec![ends("stop", "")], json!({})).await;
    assert_eq!(why, "the model's answer is empty: it had ended");
    let (why, _) = fails(vec![ends("length", "")], json!({})).await;
    assert_eq!(why, "the model's answer is empty: it ran out of tokens");
    let (why, _) = fails(vec![ends("content_filter", "I ")], json!({})).await;
    assert_eq!(why, "the model would not answer: content_filter");

    let stand_in = StandIn::start([ends("length", "Six, and")]).await;
    let server = Server::with(vec![llm(&stand_in, json!({ "max-tokens": 3 }))]).await;
    let task = server.send(AGENT, Part::text("Double 3.")).await;
    let words = "The answer is not complete: the model ran out of tokens (max-tokens is 3).";
    assert_eq!(ending(&task), (State::Completed, words.into(), vec!["answer"]));
    assert_eq!(answer(&task), "Six, and");
    assert_eq!(task.artifacts[0].metadata.as_ref().unwrap()["stop"], "length");
}

#[tokio::test]
async fn a_turn_that_says_nothing_leaves_nothing_of_an_earlier_one() {
    let empty = StandInReply::events([
        json!({ "choices": [{ "delta": {}, "finish_reason": "stop" }] }).to_string(),
        "[DONE]".into(),
    ]);
    let stand_in = StandIn::start([StandInReply::calls("Let me see.", &CALL, (1, 1)), empty]).await;
    let server =
        Server::with(vec![llm(&stand_in, json!({ "tools": ["double"] })), Arc::new(Tool::new("double"))])
            .await;
    let task = server.send(AGENT, Part::text("Double 3.")).await;
    assert_eq!(task.state, State::Failed);
    assert_eq!(answer(&task), "");
}
