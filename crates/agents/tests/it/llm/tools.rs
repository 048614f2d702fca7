//! What a model may call, and what it is told when that goes wrong.

use nuncio_engine::{Caller, Grants, Skill, State, Submit, knowledge::ExpectedVersion};

use super::*;
use crate::server::{caller, ending, lines};
use nuncio_testkit::model_provider::StandInReply;

/// What the model was told of its calls, in the last request.
fn results(stand_in: &StandIn) -> Vec<String> {
    let last = stand_in.asked().pop().unwrap().body;
    let messages = last["messages"].as_array().unwrap().clone();
    let results = messages.iter().filter(|message| message["role"] == "tool");
    results.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn what_goes_wrong_with_a_tool_is_told_to_the_model() {
    let calls = [
        ("c1", "double", "{\"n\":-1}"),
        ("c2", "triple", "{}"),
        ("c3", "double", "{\"n\":\"three\"}"),
        ("c4", "double", "{\"n\":"),
    ];
    let stand_in =
        StandIn::start([StandInReply::calls("", &calls, (1, 1)), StandInReply::text("I give up.", (1, 1))])
            .await;
    let double = Tool::new("double");
    let runs = Arc::clone(&double.runs);
    let agent = llm(&stand_in, json!({ "tools": ["double", "missing", "double/none"] }));
    let server = Server::with(vec![agent, Arc::new(double)]).await;
    let task = server.send(AGENT, Part::text("Double -1.")).await;
    assert_eq!(answer(&task), "I give up.");
    let results = results(&stand_in);
    assert_eq!(results[0], "It ended as failed: it takes no negative numbers");
    assert_eq!(results[1], "there is no tool \"triple\"; there are: double, ask_person");
    assert!(results[2].starts_with("the arguments are not what double takes: /n: "), "{results:?}");
    assert!(results[3].starts_with("the arguments are not JSON: "), "{results:?}");
    assert_eq!(runs.load(Ordering::SeqCst), 1, "only what fits is called");
    let log = server.log(&task).await;
    assert_eq!(
        lines(&log, nuncio_engine::Level::Warning),
        [
            "the tool \"missing\" is not offered: there is no agent \"missing\"",
            "the tool \"double/none\" is not offered: double has no skill \"none\"; it has: double",
        ]
    );
}

/// Stands for an MCP server.
struct Server2;

#[async_trait]
impl Agent for Server2 {
    fn profile(&self) -> Profile {
        let mut profile = Profile::new("files", "Files.").input(json!({
            "type": "object",
            "properties": { "tool": { "type": "string" }, "arguments": { "type": "object" } },
            "required": ["tool"],
        }));
        profile.skills = vec![Skill::new("read", "read", "Reads."), Skill::new("list", "list", "Lists.")];
        profile
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        Ok(Outcome::said(cx.input().data().unwrap().to_string()))
    }
}

#[tokio::test]
async fn an_mcp_server_is_one_tool_for_each_skill() {
    let calls = [("c1", "files__read", "{\"path\":\"a\"}"), ("c2", "files__list", "")];
    let stand_in =
        StandIn::start([StandInReply::calls("", &calls, (1, 1)), StandInReply::text("Done.", (1, 1))]).await;
    let server = Server::with(vec![llm(&stand_in, json!({ "tools": ["files"] })), Arc::new(Server2)]).await;
    let task = server.send(AGENT, Part::text("Read a.")).await;
    assert_eq!(answer(&task), "Done.");
    let expected = [r#"{"tool":"read","arguments":{"path":"a"}}"#, r#"{"tool":"list","arguments":{}}"#];
    assert_eq!(results(&stand_in), expected);
}

fn remembering() -> [StandInReply; 3] {
    [
        StandInReply::calls(
            "",
            &[("c1", "memory_set", r#"{"key":"colour","value":"blue as the sea"}"#)],
            (1, 1),
        ),
        StandInReply::calls(
            "",
            &[
                ("c2", "memory_get", r#"{"key":"colour"}"#),
                ("c3", "memory_get", r#"{"key":"taste"}"#),
                ("c4", "memory_search", r#"{"words":"sea blue"}"#),
            ],
            (1, 1),
        ),
        StandInReply::text("Blue.", (1, 1)),
    ]
}

#[tokio::test]
async fn the_memory_bank_is_read_and_written_in_its_namespace() {
    let stand_in = StandIn::start(remembering()).await;
    let server = Server::with(vec![llm(&stand_in, json!({ "memory": "notes" }))]).await;
    let memory = server.engine.memory();
    memory.store(&caller(), "other", "taste", &json!("sweet"), None, ExpectedVersion::Any).await.unwrap();
    let task = server.send(AGENT, Part::text("Which colour?")).await;
    assert_eq!(answer(&task), "Blue.");
    let results = results(&stand_in);
    assert_eq!(results[0], "written, version 1");
    assert_eq!(results[1], "\"blue as the sea\"");
    assert_eq!(results[2], "there is no entry \"taste\"");
    assert!(results[3].contains("\"total\":1") && results[3].contains("blue as the sea"), "{results:?}");
    let kept = memory.get(&caller(), "notes", "colour").await.unwrap().unwrap();
    assert_eq!(kept.value, "blue as the sea");
}

#[tokio::test]
async fn a_model_may_do_no_more_than_its_caller() {
    let stand_in = StandIn::start(remembering()).await;
    let server = Server::with(vec![llm(&stand_in, json!({ "memory": "notes" }))]).await;
    let limited = Caller::named("someone").limited_to(Grants::parse("execute:a2a").unwrap());
    let task = server.engine.submit(&limited, question("Which colour?")).await.unwrap();
    until("it has been answered", || stand_in.is_done()).await;
    until("the results were read", || stand_in.asked().len() == 3).await;
    let _ = task;
    let results = results(&stand_in);
    assert!(results[0].contains("write"), "{results:?}");
    assert_eq!(server.engine.memory().get(&caller(), "notes", "colour").await.unwrap(), None);
}

#[tokio::test]
async fn a_model_calls_no_agent_that_its_caller_may_not() {
    let call = StandInReply::calls("", &[("c1", "double", "{\"n\":2}")], (1, 1));
    let stand_in = StandIn::start([call, StandInReply::text("I may not.", (1, 1))]).await;
    let double = Tool::new("double");
    let runs = Arc::clone(&double.runs);
    let agent = llm(&stand_in, json!({ "tools": ["double"] }));
    let server = Server::with(vec![agent, Arc::new(double)]).await;
    let scope = format!("execute:a2a:{AGENT}");
    let limited = Caller::named("someone").limited_to(Grants::parse(&scope).unwrap());
    server.engine.submit(&limited, question("Double 2.")).await.unwrap();
    until("the result was read", || stand_in.asked().len() == 2).await;
    let results = results(&stand_in);
    assert!(results[0].contains("execute:a2a:double"), "{results:?}");
    assert_eq!(runs.load(Ordering::SeqCst), 0, "it was not called");
}

#[tokio::test]
async fn files_are_named_and_data_is_shown() {
    let stand_in = StandIn::start([StandInReply::text("A picture.", (1, 1))]).await;
    let server = Server::with(vec![llm(&stand_in, json!({}))]).await;
    let mut file = Part::from(nuncio_engine::Content::Bytes(vec![0; 10]));
    file.filename = Some("a.png".into());
    let parts = vec![Part::text("What is it?"), Part::data(json!({ "n": 1 })), file];
    let message = nuncio_engine::Message::of("m", nuncio_engine::Role::User, parts);
    let task = server.submit(Submit::new(AGENT, message)).await;
    let task = server.settle(task).await;
    assert_eq!(answer(&task), "A picture.");
    let shown = &stand_in.asked()[0].body["messages"][0]["content"];
    let expected =
        "What is it?\n{\"n\":1}\n[a file that is not shown here: a.png, of an unknown type, 10 bytes]";
    assert_eq!(shown, expected);
    let task = server.send(AGENT, Part::text("")).await;
    assert_eq!(ending(&task).0, State::Rejected);
}

#[tokio::test]
async fn a_provider_can_be_looked_for() {
    let stand_in = StandIn::start([]).await;
    let probe = llm(&stand_in, json!({})).probe().unwrap();
    assert_eq!(probe.check_reachable().await, Ok(()), "an error is an answer, too");
    assert!(!stand_in.looked()[0].contains_key("authorization"));
    let nobody = llm(&stand_in, json!({ "base-url": "http://127.0.0.1:1/v1" })).probe().unwrap();
    assert!(nobody.check_reachable().await.unwrap_err().starts_with("the model could not be asked"));
}

#[test]
fn a_table_that_cannot_be_used_says_why() {
    let check = |more: Value, words: &str| {
        let mut table = json!({ "name": "h", "kind": "llm", "provider": "openai", "model": "m" });
        let Value::Object(more) = more else { panic!("a table") };
        for (key, value) in more {
            table[key] = value;
        }
        let spec = AgentSpec::read(table.as_object().unwrap(), &|_| None).unwrap();
        let why = build_agent(&spec).err().expect("it is refused").to_string();
        assert!(why.contains(words), "{why}");
    };
    check(
        json!({ "provider": "mistral" }),
        "provider: expected openai, anthropic, gemini or ollama, not \"mistral\"",
    );
    check(json!({}), "api-key: openai answers nobody without one: api-key = \"${OPENAI_API_KEY}\"");
    check(json!({ "provider": "gemini" }), "GEMINI_API_KEY");
    check(json!({ "provider": "ollama", "model": " " }), "model: is empty");
    check(json!({ "provider": "ollama", "temperature": 3 }), "temperature: is 0 to 2");
    check(
        json!({ "provider": "ollama", "tools": ["a/b/c"] }),
        "tools: expected an agent's name or agent/skill",
    );
    check(json!({ "provider": "ollama", "memory": "" }), "memory: ");
    check(json!({ "provider": "ollama", "budget-calls": 0 }), "budget-calls: is more than 0");
    check(json!({ "provider": "ollama", "base-url": "ftp://x" }), "base-url: ");
    let table = json!({ "name": "h", "kind": "llm", "provider": "ollama", "model": "m" });
    let made = build_agent(&AgentSpec::read(table.as_object().unwrap(), &|_| None).unwrap()).unwrap();
    assert_eq!(made.agent.profile().description, "Answers with the model m of ollama.");
}

#[test]
fn the_example_can_be_used_as_it_is() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/agents/llm.toml");
    let file: Value = toml::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let tables = file["agent"].as_array().unwrap();
    assert_eq!(tables.len(), 2);
    for table in tables {
        build_agent(&AgentSpec::read(table.as_object().unwrap(), &|_| None).unwrap()).unwrap();
    }
}
