//! Agents of a configuration that changes while an engine runs.

use std::sync::Arc;

use nuncio_agents::{EchoAgent, Fleet, configured::AgentSpec, fleet::FleetChanges};
use nuncio_engine::{Agent, Part, State};
use serde_json::{Value, json};

use crate::{
    program::{extend, spec},
    server::{Server, ending},
};

fn says(name: &str, words: &str) -> AgentSpec {
    let say = format!(r#"echo '{{"type":"done","text":"{words}"}}'"#);
    spec(json!({ "name": name, "kind": "process", "command": ["sh", "-c", say] }))
}

async fn serve(specs: Vec<AgentSpec>) -> (Server, Fleet) {
    let fleet = Fleet::new(specs).unwrap();
    let mut agents: Vec<Arc<dyn Agent>> = vec![Arc::new(EchoAgent)];
    agents.extend(fleet.agents());
    let server = Server::with(agents).await;
    fleet.start(&server.engine).await;
    (server, fleet)
}

fn names(server: &Server) -> Vec<String> {
    server.engine.catalog().iter().map(|agent| agent.profile.name.clone()).collect()
}

fn held(server: &Server, name: &str) -> Arc<dyn Agent> {
    Arc::clone(&server.engine.catalog().get(name).unwrap().agent)
}

#[tokio::test]
async fn what_changed_is_replaced_what_is_new_comes_what_is_gone_goes_and_the_rest_stays() {
    let (server, fleet) = serve(vec![says("same", "1"), says("other", "1"), says("gone", "1")]).await;
    let (same, other) = (held(&server, "same"), held(&server, "other"));
    let generation = server.engine.catalog().generation();
    let mut told = server.engine.catalog().surface().changes();

    let applied = fleet.apply(vec![says("new", "2"), says("other", "2"), says("same", "1")]).await.unwrap();
    let expected = FleetChanges {
        added: vec!["new".into()],
        replaced: vec!["other".into()],
        removed: vec!["gone".into()],
        default: None,
    };
    assert_eq!(applied, expected);
    assert_eq!(applied.to_string(), "added new; replaced other; removed gone");
    assert_eq!(names(&server), ["echo", "new", "other", "same"]);
    assert!(Arc::ptr_eq(&same, &held(&server, "same")), "it is the very same agent");
    assert!(!Arc::ptr_eq(&other, &held(&server, "other")));
    assert_eq!(server.engine.catalog().generation(), generation + 1, "all of it is one change");
    assert!(told.try_recv().is_ok(), "and whoever follows the list of tools is told");
    assert_eq!(ending(&server.send("other", Part::text("go")).await).1, "2");

    let applied = fleet.apply(vec![says("same", "1"), says("other", "2"), says("new", "2")]).await.unwrap();
    assert!(applied.is_empty(), "the order is no change");
    assert_eq!(server.engine.catalog().generation(), generation + 1);
    assert!(told.try_recv().is_err());
}

#[tokio::test]
async fn tables_that_cannot_be_used_change_nothing() {
    let (server, fleet) = serve(vec![says("one", "1")]).await;
    let one = held(&server, "one");
    let check = async |specs: Vec<AgentSpec>, words: &str| {
        let why = fleet.apply(specs).await.unwrap_err().to_string();
        assert!(why.contains(words), "{why}");
        assert_eq!(names(&server), ["echo", "one"]);
        assert!(Arc::ptr_eq(&one, &held(&server, "one")));
    };
    let table = |name: &str, keys: Value| {
        let mut table = json!({ "name": name, "kind": "process", "command": ["sh"] });
        extend(&mut table, keys);
        spec(table)
    };
    check(vec![says("new", "1"), table("bad", json!({ "command": [] }))], "agent \"bad\": command").await;
    check(
        vec![says("one", "2"), says("echo", "1")],
        "agent \"echo\": name: it is the name of a built-in agent",
    )
    .await;
    check(vec![says("two", "1"), says("two", "2")], "agent \"two\": name: there are two").await;
    check(vec![table("a b", json!({}))], "an agent's name").await;
    check(vec![table("new", json!({ "input-schema": { "type": 7 } }))], "input schema").await;
    assert_eq!(ending(&server.send("one", Part::text("go")).await).1, "1");
}

#[tokio::test]
async fn the_agent_at_the_root_stays() {
    let fleet = Fleet::new(vec![says("root", "1")]).unwrap();
    let server = Server::with(fleet.agents()).await;
    fleet.start(&server.engine).await;
    let why = fleet.apply(vec![]).await.unwrap_err().to_string();
    assert!(why.contains("agent \"root\"") && why.contains("default agent"), "{why}");
    assert_eq!(fleet.apply(vec![says("root", "2")]).await.unwrap().replaced, ["root"]);
    assert_eq!(server.engine.catalog().default_agent().unwrap().profile.name, "root");
}

#[tokio::test]
async fn the_root_is_the_first_table_after_every_update() {
    let fleet = Fleet::new(vec![says("one", "1"), says("two", "1")]).unwrap();
    fleet.set_first_as_default();
    let server = Server::with(fleet.agents()).await;
    fleet.start(&server.engine).await;
    let root = || server.engine.catalog().default_agent().unwrap().profile.name.clone();
    assert_eq!(root(), "one");
    let generation = server.engine.catalog().generation();

    let applied = fleet.apply(vec![says("two", "1"), says("one", "1")]).await.unwrap();
    assert_eq!(applied.to_string(), "the root is two");
    assert_eq!((root().as_str(), server.engine.catalog().generation()), ("two", generation + 1));
    let applied = fleet.apply(vec![says("three", "1"), says("one", "1")]).await.unwrap();
    assert_eq!(applied.to_string(), "added three; removed two; the root is three");
    assert_eq!(root(), "three");
    assert!(fleet.apply(vec![says("three", "1"), says("one", "1")]).await.unwrap().is_empty());

    let why = fleet.apply(vec![]).await.unwrap_err().to_string();
    assert!(why.contains("without an agent at its root"), "{why}");
    assert_eq!(root(), "three");
}

#[tokio::test]
async fn a_task_waits_for_an_agent_that_has_gone_and_comes_back() {
    let ask = r#"read line; echo '{"type":"ask","text":"?"}'; read line; echo '{"type":"done"}'"#;
    let asks = spec(json!({ "name": "asks", "kind": "process", "command": ["sh", "-c", ask] }));
    let (server, fleet) = serve(vec![asks.clone()]).await;
    let task = server.send("asks", Part::text("go")).await;
    assert_eq!(task.state, State::InputRequired);
    fleet.apply(vec![]).await.unwrap();
    let task = server.try_answer(&task, Part::text("x")).await.unwrap();
    assert!(!task.state.is_terminal(), "{task:?}");
    fleet.apply(vec![asks]).await.unwrap();
    assert_eq!(server.settle(task).await.state, State::Completed);
}

#[tokio::test]
async fn after_its_end_nothing_is_applied() {
    let (server, fleet) = serve(vec![says("one", "1")]).await;
    fleet.close().await;
    assert!(fleet.apply(vec![says("two", "1")]).await.unwrap().is_empty());
    assert_eq!(names(&server), ["echo", "one"]);
}
