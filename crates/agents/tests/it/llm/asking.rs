//! Conversations: a person is asked, another agent asks through this one, messages follow each other; and a model
//! of the server's own answers where the caller has none.

use nuncio_agents::{AgentOptions, ResearchAgent};
use nuncio_client::model::{Model, ModelOptions};
use nuncio_engine::{Answer, State};

use super::*;
use nuncio_testkit::model_provider::StandInReply;

#[tokio::test]
async fn a_person_is_asked_and_nothing_is_asked_twice() {
    let form = r#"{"question":"Which day?","fields":[{"name":"day","type":"string","options":["mon","tue"],"required":true}]}"#;
    let calls = [("c1", "ask_person", form), ("c2", "double", "{\"n\":2}")];
    let stand_in =
        StandIn::start([StandInReply::calls("", &calls, (1, 1)), StandInReply::text("Monday.", (1, 1))])
            .await;
    let double = Tool::new("double");
    let runs = Arc::clone(&double.runs);
    let server = Server::with(vec![llm(&stand_in, json!({ "tools": ["double"] })), Arc::new(double)]).await;
    let task = server.send(AGENT, Part::text("Book it.")).await;
    assert_eq!(task.state, State::InputRequired);
    assert_eq!(task.questions[0].1.text, "Which day?");
    let server = server.restart().await;
    assert!(server.try_answer(&task, Part::text("wed")).await.is_err(), "it is not among the options");
    let task = server.answer(&task, Part::text("mon")).await;
    assert_eq!(answer(&task), "Monday.");
    let asked = stand_in.asked();
    assert_eq!((asked.len(), runs.load(Ordering::SeqCst)), (2, 1));
    let messages = &asked[1].body["messages"];
    assert_eq!(messages[2]["content"], r#"{"day":"mon"}"#);
    assert_eq!(
        messages.as_array().unwrap().len(),
        4,
        "the answer is a result, and no message besides: {messages}"
    );
}

#[tokio::test]
async fn who_cannot_be_asked_is_not_offered_to_the_model() {
    let stand_in = StandIn::start([StandInReply::text("Fine.", (1, 1))]).await;
    let server = Server::with(vec![llm(&stand_in, json!({}))]).await;
    let mut deaf = question("Book it.");
    deaf.abilities.ask = false;
    let task = server.submit(deaf).await;
    assert_eq!(answer(&server.settle(task).await), "Fine.");
    assert_eq!(stand_in.asked()[0].body["tools"], Value::Null);
}

/// Asks before it answers.
struct Curious;

#[async_trait]
impl Agent for Curious {
    fn profile(&self) -> Profile {
        Profile::new("curious", "Asks.")
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        let form =
            json!({ "type": "object", "properties": { "why": { "type": "string" } }, "required": ["why"] });
        let Answer::Accept(data) = cx.ask("Why?", form).await? else {
            return Ok(Outcome::failed("no answer"));
        };
        Ok(Outcome::said(format!("{} because {}", cx.text(), data["why"].as_str().unwrap())))
    }
}

#[tokio::test]
async fn what_a_tool_asks_is_asked_through_the_agent() {
    let call = [("c1", "curious", "{\"text\":\"Go\"}")];
    let stand_in =
        StandIn::start([StandInReply::calls("", &call, (1, 1)), StandInReply::text("Done.", (1, 1))]).await;
    let server = Server::with(vec![llm(&stand_in, json!({ "tools": ["curious"] })), Arc::new(Curious)]).await;
    let task = server.send(AGENT, Part::text("Go.")).await;
    assert_eq!((task.state, task.questions[0].1.text.as_str()), (State::InputRequired, "Why?"));
    let task = server.answer(&task, Part::text("it is late")).await;
    assert_eq!(answer(&task), "Done.");
    let asked = stand_in.asked();
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[1].body["messages"][2]["content"], "Go because it is late");
}

#[tokio::test]
async fn a_conversation_goes_on_in_its_context() {
    let stand_in = StandIn::start([
        StandInReply::text("Hello, Ada.", (1, 1)),
        StandInReply::text("You are Ada.", (1, 1)),
        StandInReply::text("I do not know.", (1, 1)),
    ])
    .await;
    let server = Server::with(vec![llm(&stand_in, json!({}))]).await;
    let ask = async |text: &str, context: Option<&str>| {
        let mut submit = question(text);
        submit.context = context.map(str::to_owned);
        let task = server.submit(submit).await;
        answer(&server.settle(task).await)
    };
    assert_eq!(ask("I am Ada.", Some("talk")).await, "Hello, Ada.");
    assert_eq!(ask("Who am I?", Some("talk")).await, "You are Ada.");
    assert_eq!(ask("Who am I?", None).await, "I do not know.");
    let asked = stand_in.asked();
    let second: Vec<&Value> =
        asked[1].body["messages"].as_array().unwrap().iter().map(|message| &message["content"]).collect();
    assert_eq!(second, ["I am Ada.", "Hello, Ada.", "Who am I?"]);
    assert_eq!(roles(&asked[1].body), ["user", "assistant", "user"]);
    assert_eq!(roles(&asked[2].body), ["user"]);
}

#[tokio::test]
async fn what_is_said_meanwhile_is_heard_with_the_next_question() {
    let call = [("c1", "double", "{\"n\":2}")];
    let stand_in =
        StandIn::start([StandInReply::calls("", &call, (1, 1)), StandInReply::text("In French.", (1, 1))])
            .await;
    let gate = Arc::new(Notify::new());
    let double = Tool { gate: Some(Arc::clone(&gate)), ..Tool::new("double") };
    let runs = Arc::clone(&double.runs);
    let server = Server::with(vec![llm(&stand_in, json!({ "tools": ["double"] })), Arc::new(double)]).await;
    let task = server.submit(question("Double 2.")).await;
    until("the tool runs", || runs.load(Ordering::SeqCst) == 1).await;
    server.try_answer(&task, Part::text("And in French, please.")).await.unwrap();
    gate.notify_one();
    let task = server.settle(task).await;
    assert_eq!(answer(&task), "In French.");
    let messages = stand_in.asked()[1].body["messages"].clone();
    assert_eq!(roles(&stand_in.asked()[1].body), ["user", "assistant", "tool", "user"]);
    assert_eq!(messages[3]["content"], "And in French, please.");
}

#[tokio::test]
async fn other_providers_answer_as_well() {
    let anthropic = [
        json!({ "type": "message_start", "message": { "usage": { "input_tokens": 3, "output_tokens": 1 } } }),
        json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": "Six." } }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" }, "usage": { "output_tokens": 2 } }),
        json!({ "type": "message_stop" }),
    ];
    let all = [
        ("anthropic", StandInReply::events(anthropic), "/v1/messages"),
        ("gemini", StandInReply::text("Six.", (3, 2)), "/openai/chat/completions"),
        ("ollama", StandInReply::text("Six.", (3, 2)), "/v1/chat/completions"),
    ];
    for (provider, reply, place) in all {
        let stand_in = StandIn::start([reply]).await;
        let server = Server::with(vec![llm(&stand_in, json!({ "provider": provider }))]).await;
        let task = server.send(AGENT, Part::text("Double 3.")).await;
        assert_eq!(answer(&task), "Six.", "{provider}");
        assert_eq!((&usage(&task)["inputTokens"], &usage(&task)["outputTokens"]), (&json!(3), &json!(2)));
        assert_eq!(stand_in.asked()[0].place, place);
        assert_key_is_nowhere(&server, &task).await;
    }
}

#[tokio::test]
async fn the_servers_own_model_is_asked_where_the_caller_has_none() {
    let stand_in =
        StandIn::start([StandInReply::text("Tides come and go.", (1, 1)), StandInReply::refusal(400, "no")])
            .await;
    let model = Model::new(&ModelOptions::new(&stand_in.url, "small")).unwrap();
    let research = Arc::new(ResearchAgent::new(&AgentOptions { step: Duration::ZERO }));
    let server = Server::with_model(vec![research], Arc::new(model)).await;
    let task = server.send("research_agent", Part::text("tides")).await;
    assert!(crate::server::result_text(&task).contains("Tides come and go."));
    assert!(server.journaled_steps(&task).await.contains(&"sample".to_owned()));
    let task = server.send("research_agent", Part::text("tides")).await;
    assert_eq!(task.state, State::Completed, "one that fails is as good as none");
    assert!(crate::server::result_text(&task).contains("there was no model to ask"));
    assert_eq!(stand_in.asked().len(), 2);

    let mut own = submit("research_agent", Part::text("tides"));
    own.abilities.sample = true;
    let task = server.submit(own).await;
    let task = server.settle(task).await;
    assert_eq!(task.state, State::InputRequired, "a caller that has a model is asked");
}

#[tokio::test]
async fn what_the_servers_model_said_is_not_asked_again_whatever_the_configuration_says_now() {
    let stand_in = StandIn::start([StandInReply::text("Tides come and go.", (1, 1))]).await;
    let model = Model::new(&ModelOptions::new(&stand_in.url, "small")).unwrap();
    let research = Arc::new(ResearchAgent::new(&AgentOptions { step: Duration::from_millis(400) }));
    let server = Server::with_model(vec![research], Arc::new(model)).await;
    let (sampled, early) =
        (submit("research_agent", Part::text("tides")), submit("research_agent", Part::text("late")));
    let task = server.submit(sampled).await;
    server.log_until(&task, |event| matches!(event, Event::Progress(at) if at.done >= 75.0)).await;
    let other = server.submit(early).await;
    let server = server.restart_without_model().await;
    let (task, other) = (server.settle(task).await, server.settle(other).await);
    assert_eq!((task.state, other.state), (State::Completed, State::Completed));
    assert!(crate::server::result_text(&task).contains("Tides come and go."));
    assert!(crate::server::result_text(&other).contains("there was no model to ask"));
    assert_eq!(stand_in.asked().len(), 1);
}
