//! Which name of a conversation leaves the server: never the caller's own word, so that two callers who choose the
//! same word do not meet behind an agent.

use nuncio_engine::{Caller, Submit};
use serde_json::{Value, json};

use crate::{
    program::{Program, agent},
    server::{Server, submit, within},
};
use nuncio_testkit::model_provider::{StandIn, StandInReply};

/// The input that a program got for a task of that caller, and its variables of the environment.
const TELLS: &str = r#"
seen = {"input": given["context"], "variable": os.environ["NUNCIO_CONTEXT"],
        "caller": given.get("caller"), "tenant": given.get("tenant"),
        "names": [os.environ.get("NUNCIO_CALLER"), os.environ.get("NUNCIO_TENANT")]}
note("seen", json.dumps(seen))
say(type="done")
"#;

fn in_main(agent: &str) -> Submit {
    let mut submit = submit(agent, nuncio_engine::Part::text("x"));
    submit.context = Some("main".into());
    submit
}

async fn run(server: &Server, owner: &str, agent: &str) {
    let caller = Caller::named(owner);
    let task = within(server.engine.submit(&caller, in_main(agent))).await.unwrap();
    let task = within(server.engine.wait_until_idle(&caller, task)).await.unwrap();
    assert_eq!(task.state, nuncio_engine::State::Completed, "{:?}", task.status_message);
}

fn seen(program: &Program) -> Vec<Value> {
    program.lines("seen").iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn a_program_gets_another_name_of_the_conversation_for_each_owner_and_the_same_after_a_restart() {
    let program = Program::python(TELLS);
    let server = Server::with(vec![program.agent(json!({}))]).await;
    for owner in ["acme/ann", "beta/bob", "acme/eve"] {
        run(&server, owner, "program").await;
    }
    let server = server.restart().await;
    run(&server, "acme/ann", "program").await;
    let seen = seen(&program);
    for one in &seen {
        assert_eq!(one["input"], one["variable"]);
        assert!(!one["input"].as_str().unwrap().contains("main"), "the caller's own word: {one}");
        assert_eq!((&one["caller"], &one["tenant"]), (&Value::Null, &Value::Null));
    }
    assert_ne!(seen[0]["input"], seen[1]["input"], "another tenant");
    assert_ne!(seen[0]["input"], seen[2]["input"], "another caller of the tenant");
    assert_eq!(seen[0]["input"], seen[3]["input"], "the same caller after a restart");
}

#[tokio::test]
async fn a_program_that_prints_lines_gets_no_word_of_the_caller_either() {
    let program = Program::shell("cat >/dev/null; echo $NUNCIO_CONTEXT >> seen; echo done");
    let server = Server::with(vec![program.agent(json!({ "speaks": "lines" }))]).await;
    run(&server, "acme/ann", "program").await;
    run(&server, "beta/bob", "program").await;
    let seen = program.lines("seen");
    assert!(seen.iter().all(|context| !context.contains("main")), "{seen:?}");
    assert_ne!(seen[0], seen[1]);
}

#[tokio::test]
async fn an_endpoint_gets_another_name_of_the_conversation_for_each_owner() {
    let answer = || StandInReply::new(200, "application/json", "{}");
    let endpoint = StandIn::start([answer(), answer()]).await;
    let table = json!({ "name": "endpoint", "kind": "http", "url": endpoint.url });
    let server = Server::with(vec![agent(table)]).await;
    run(&server, "acme/ann", "endpoint").await;
    run(&server, "beta/bob", "endpoint").await;
    let seen: Vec<Value> = endpoint.asked().iter().map(|asked| asked.body["context"].clone()).collect();
    assert!(seen.iter().all(|context| !context.as_str().unwrap().contains("main")), "{seen:?}");
    assert_ne!(seen[0], seen[1]);
}

#[tokio::test]
async fn a_program_is_told_whose_task_it_is_where_the_table_says_so() {
    let program = Program::python(TELLS);
    let server = Server::with(vec![program.agent(json!({ "tell-caller": true }))]).await;
    run(&server, "acme/ann", "program").await;
    let seen = seen(&program);
    assert_eq!((&seen[0]["caller"], &seen[0]["tenant"]), (&json!("acme/ann"), &json!("acme")));
    assert_eq!(seen[0]["names"], json!(["acme/ann", "acme"]));
}
