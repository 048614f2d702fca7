use std::{sync::Arc, time::Duration};

use nuncio_agents::{AgentOptions, built_in};
use nuncio_engine::{Event, Level, Part, Sampler, State, Task, question::Ask};
use serde_json::json;

use crate::server::{Server, ending, lines, percents, result_text, submit};

const AGENT: &str = "research_agent";
const TEXT: &str = "Three trends stand out.";
const BY_MODEL: &str = "The summary was written by your model.";

/// A research that waits for the caller's model.
async fn sampling(server: &Server, part: Part) -> Task {
    let mut with_model = submit(AGENT, part);
    with_model.abilities.sample = true;
    let task = server.submit(with_model).await;
    let task = server.settle(task).await;
    assert_eq!(task.state, State::InputRequired);
    task
}

#[tokio::test]
async fn the_third_step_asks_the_callers_model() {
    let server = Server::start(Duration::from_millis(1)).await;
    let task = sampling(&server, Part::data(json!({ "topic": "tides" }))).await;
    let [(_, question)] = &task.questions[..] else { panic!("one question, not {:?}", task.questions) };
    assert_eq!(question.text, "Please summarize the key findings for research on: tides");
    assert!(matches!(question.ask, Ask::Sample { max_tokens: 100, .. }));
    assert_eq!(server.journaled_steps(&task).await, ["sources", "findings", "summary"]);
    let log = server.log_until(&task, |event| matches!(event, Event::Question(_))).await;
    assert_eq!(percents(&log), [0.0, 25.0, 50.0]);
}

#[tokio::test]
async fn the_models_text_stands_in_the_report() {
    let server = Server::start(Duration::from_millis(1)).await;
    for answer in [
        Part::data(json!({ "action": "accept", "content": TEXT })),
        Part::data(json!({ "action": "accept", "content": { "type": "text", "text": TEXT } })),
        Part::text(TEXT),
    ] {
        let task = sampling(&server, Part::text("tides")).await;
        let task = server.answer(&task, answer).await;
        let words = format!("The report on tides is complete. {BY_MODEL}");
        assert_eq!(ending(&task), (State::Completed, words, vec!["report"]));
        let report = result_text(&task);
        assert!(report.starts_with("# tides\n"), "{report}");
        assert!(report.contains(&format!("## Summary\n\n{TEXT}\n\n_{BY_MODEL}_")), "{report}");
        assert_eq!(server.journaled_steps(&task).await, ["sources", "findings", "summary", "report"]);
        assert_eq!(percents(&server.log(&task).await), [0.0, 25.0, 50.0, 75.0, 100.0]);
    }
}

/// A research that ends without a text from the model: the agent's own words, and why.
async fn assert_own_words(server: &Server, task: &Task, why: &str) {
    assert_eq!(task.state, State::Completed);
    let said = format!("The agent wrote the summary itself: {why}");
    let report = result_text(task);
    assert!(report.contains(&said), "{report}");
    assert!(report.contains("## Summary\n\nWork on "), "{report}");
    assert_eq!(ending(task).1, format!("The report on AI trends is complete. {said}"));
    let log = server.log(task).await;
    assert_eq!(lines(&log, Level::Notice), [said]);
    assert_eq!(percents(&log), [0.0, 25.0, 50.0, 75.0, 100.0]);
}

#[tokio::test]
async fn without_a_model_the_agent_goes_on() {
    let server = Server::start(Duration::ZERO).await;
    let task = server.send(AGENT, Part::data(json!({}))).await;
    assert_own_words(&server, &task, "there was no model to ask.").await;
}

#[tokio::test]
async fn without_a_usable_answer_the_agent_goes_on() {
    let server = Server::start(Duration::ZERO).await;
    for (answer, why) in [
        (json!({ "action": "decline" }), "the request to your model was turned down."),
        (json!({ "action": "cancel" }), "the request to your model was turned down."),
        (json!({ "action": "accept", "content": " " }), "your model's answer held no text."),
        (json!({ "action": "accept", "content": { "type": "image" } }), "your model's answer held no text."),
    ] {
        let task = sampling(&server, Part::text("AI trends")).await;
        let task = server.answer(&task, Part::data(answer)).await;
        assert_own_words(&server, &task, why).await;
    }
}

#[tokio::test]
async fn the_report_grows_across_a_restart_without_repeating_itself() {
    let server = Server::start(Duration::from_millis(1)).await;
    let task = sampling(&server, Part::text("tides")).await;
    let server = server.restart().await;
    let task = server.answer(&task, Part::text(TEXT)).await;
    let report = result_text(&task);
    for section in ["# tides", "## Sources", "## Findings", "## Summary", "## Next"] {
        assert_eq!(report.matches(&format!("{section}\n")).count(), 1, "{section}: {report}");
    }
    assert_eq!(server.journaled_steps(&task).await, ["sources", "findings", "summary", "report"]);
}

#[tokio::test]
async fn a_cancel_stops_a_step_at_once() {
    let server = Server::start(Duration::from_secs(600)).await;
    let task = server.submit(submit(AGENT, Part::text("tides"))).await;
    server.log_until(&task, |event| matches!(event, Event::Progress(_))).await;
    assert_eq!(server.cancel(&task).await.state, State::Canceled);
}

#[tokio::test]
async fn shorter_please_changes_the_third_chapter() {
    // Long enough for the message to come while the third step runs, on a busy machine too.
    let server = Server::start(Duration::from_secs(3)).await;
    let task = server.submit(submit(AGENT, Part::text("tides"))).await;
    server.log_until(&task, |event| matches!(event, Event::Progress(at) if at.done == 50.0)).await;
    server.try_answer(&task, Part::text("shorter, please")).await.unwrap();
    let server = server.restart().await;
    let task = server.settle(task).await;
    let report = result_text(&task);
    assert!(report.contains("- What is still open"), "the second chapter was written before: {report}");
    assert!(report.contains("## Summary\n\nWork on tides moves on.\n"), "{report}");
    assert!(report.contains("## Next\n\nCheck sources.\n"), "{report}");
}

#[tokio::test]
async fn stop_after_this_step_leaves_what_there_is() {
    let server = Server::start(Duration::from_secs(2)).await;
    let task = server.submit(submit(AGENT, Part::text("tides"))).await;
    server.log_until(&task, |event| matches!(event, Event::Progress(_))).await;
    server.try_answer(&task, Part::text("stop after this step")).await.unwrap();
    let task = server.settle(task).await;
    assert_eq!(task.state, State::Completed);
    let report = result_text(&task);
    assert!(report.contains("## Sources") && !report.contains("## Findings"), "{report}");
}

/// A model of the server's own.
struct Says(&'static str);

#[async_trait::async_trait]
impl Sampler for Says {
    fn name(&self) -> &str {
        "says"
    }

    async fn sample(&self, _: &str, _: Option<&str>, _: u32) -> Result<String, String> {
        Ok(self.0.to_owned())
    }
}

/// A caller without a model has not written anything: the server's model has.
#[tokio::test]
async fn the_report_does_not_take_the_servers_model_for_the_callers() {
    for (text, said) in [
        (TEXT, "The summary was written by the server's model."),
        (" ", "The agent wrote the summary itself: the answer of the server's model held no text."),
    ] {
        let agents = built_in(&AgentOptions { step: Duration::ZERO });
        let server = Server::with_model(agents, Arc::new(Says(text))).await;
        let task = server.send(AGENT, Part::text("tides")).await;
        let report = result_text(&task);
        assert!(report.contains(said) && !report.contains("your model"), "{report}");
        assert_eq!(ending(&task).1, format!("The report on tides is complete. {said}"));
    }
}
