//! The tools: what they take and say is held against their schemas.

use nuncio_engine::{
    Caller, Grants, Outcome, TaskContext,
    surface::{HandlerError, HandlerReply, HandlerRequest},
};
use serde_json::{Value, json};

use super::world::{Counts, Server, World, completed, does, part, sleeper, until};

async fn call(server: &Server, name: &str, arguments: Value) -> Result<HandlerReply<Value>, HandlerError> {
    call_as(server, &server.caller, name, arguments).await
}

async fn call_as(
    server: &Server,
    caller: &Caller,
    name: &str,
    arguments: Value,
) -> Result<HandlerReply<Value>, HandlerError> {
    let tool = server.engine.catalog().surface().tool(name).expect("the tool is offered");
    if let Some(why) = tool.input.refuse(&arguments) {
        return Err(HandlerError::Invalid(why));
    }
    let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
    Ok(match tool.handler.call(HandlerRequest::new(caller.clone(), arguments)).await? {
        HandlerReply::Done(output) => {
            let structured = output.structured.expect("a structured result");
            assert_eq!(tool.output.as_ref().expect("a schema").refuse(&structured), None, "{structured}");
            HandlerReply::Done(structured)
        }
        HandlerReply::HandOver { agent, arguments } => HandlerReply::HandOver { agent, arguments },
        _ => panic!("{name} asks"),
    })
}

async fn done(server: &Server, name: &str, arguments: Value) -> Value {
    match call(server, name, arguments).await.unwrap_or_else(|error| panic!("{name}: {error}")) {
        HandlerReply::Done(value) => value,
        _ => panic!("{name} is done at once"),
    }
}

const PLAN: &str = "name = \"two\"\n[[tasks]]\nid = \"a\"\nagent = \"worker\"\ninput = { data = { id = \"a\" } }\n\
                    [[tasks]]\nid = \"b\"\nneeds = [\"a\"]\nagent = \"worker\"\ninput = { data = { id = \"b\", ms = 60000 } }\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_is_made_checked_drawn_run_and_looked_at_by_tools() {
    let counts = Counts::default();
    let server = World::new(vec![sleeper("worker", "work", &counts)]).serve().await;
    let made = done(&server, "plan_make", json!({ "request": "work on it" })).await;
    assert_eq!(made["plan"]["tasks"][0]["agent"], "worker");
    let checked = done(&server, "plan_check", json!({ "plan": made["file"] })).await;
    assert_eq!((&checked["valid"], &checked["tasks"]), (&json!(true), &json!(1)));
    let checked =
        done(&server, "plan_check", json!({ "plan": { "tasks": [{ "id": "a", "agent": "wroker" }] } })).await;
    assert_eq!(checked["valid"], false);
    // What is wrong with the file, with its order and with its agents is said at once.
    let wrong = json!({ "tasks": [
        { "id": "b c", "agent": "worker", "inptu": "x" },
        { "id": "d", "agent": "nobody-knows", "needs": ["gone"] },
    ] });
    let all = done(&server, "plan_check", json!({ "plan": wrong })).await["problems"].to_string();
    for one in ["inptu", "b c", "gone", "nobody-knows"] {
        assert!(all.contains(one), "{one} is not in {all}");
    }
    assert_eq!(
        (&checked["problems"][0]["task"], &checked["problems"][0]["key"]),
        (&json!("a"), &json!("agent"))
    );
    let drawn = done(&server, "plan_show", json!({ "plan": PLAN, "format": "mermaid" })).await;
    assert!(drawn["drawing"].as_str().unwrap().contains("t0 --> t1"));
    let handed = call(&server, "plan_run", json!({ "plan": PLAN })).await.unwrap();
    let HandlerReply::HandOver { agent, arguments } = handed else { panic!("it is handed over") };
    assert_eq!((&*agent, arguments["plan"].as_str()), ("orchestrator", Some(PLAN)));
    for (arguments, why) in [
        (json!({}), "give a plan or a request"),
        (json!({ "plan": PLAN, "request": "x" }), "give one or the other"),
        (json!({ "plan": "tasks = []" }), "a plan has at least one task"),
    ] {
        let error = call(&server, "plan_run", arguments).await.map(drop).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }

    let task = server.plan(PLAN).await;
    let id = task.origin.id.to_string();
    let status = until("the second is at work", async || {
        let status = done(&server, "plan_status", json!({ "planId": id })).await;
        (status["parts"][1]["state"] == "working").then_some(status)
    })
    .await;
    assert_eq!((&status["over"], &status["total"], &status["name"]), (&json!(1), &json!(2), &json!("two")));
    assert_eq!(status["parts"][0]["state"], "done");
    let asked = json!({ "planId": id, "results": ["a", "b", "c"] });
    let results = done(&server, "plan_status", asked).await["results"].take();
    assert_eq!(results, json!({ "a": "a is done" }), "what is done, while the rest goes on");
    let drawn = done(&server, "plan_show", json!({ "planId": id })).await;
    let drawn = drawn["drawing"].as_str().unwrap();
    assert!(drawn.contains("✔ a") && drawn.contains("▶   └ b"), "{drawn}");
    let listed = done(&server, "plan_list", json!({})).await;
    assert_eq!((&listed["total"], &listed["plans"][0]["planId"]), (&json!(1), &json!(id)));
    let canceled = done(&server, "plan_cancel", json!({ "planId": id })).await;
    assert_eq!(canceled["state"], "canceled");
    let task = server.plan(&PLAN.replace("60000", "1")).await;
    let ended = server.ended(&task).await;
    completed(&ended);
    let status = done(&server, "plan_status", json!({ "planId": task.origin.id.to_string() })).await;
    assert_eq!(status["state"], "completed");
    assert!(status["result"].as_str().unwrap().contains("b is done"));
    assert_eq!(status["provenance"]["parts"][1]["agent"], "worker");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_is_nobody_elses_and_a_task_of_another_agent_is_no_plan() {
    let counts = Counts::default();
    let server = World::new(vec![sleeper("worker", "work", &counts)]).serve().await;
    let task = server.plan(&PLAN.replace("60000", "1")).await;
    completed(&*server.ended(&task).await);
    let id = json!({ "planId": task.origin.id.to_string() });
    let stranger = Caller::named("globex/eve");
    let unknown = |error: HandlerError| error.to_string().contains("there is no task");
    for tool in ["plan_status", "plan_cancel"] {
        assert!(
            unknown(call_as(&server, &stranger, tool, id.clone()).await.map(drop).unwrap_err()),
            "{tool}"
        );
    }
    let child = server.tasks("worker").await[0].origin.id.to_string();
    assert!(unknown(call(&server, "plan_status", json!({ "planId": child })).await.map(drop).unwrap_err()));
    let nobody = Caller::named("nobody").limited_to(Grants::only([]));
    let refused =
        call_as(&server, &nobody, "plan_make", json!({ "request": "work" })).await.map(drop).unwrap_err();
    assert!(refused.to_string().contains("execute:a2a:orchestrator"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_agent_does_not_take_is_said_before_the_plan_runs_and_refused_while_it_does() {
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    let adds = does("adds", "sums", async |cx: TaskContext| {
        Ok(Outcome::said(format!("got {}", cx.input().data().unwrap()["n"])))
    });
    let says = does("says", "words", async |_: TaskContext| Ok(Outcome::said("seven")));
    let server = World::new(vec![adds.strict(schema), says]).serve().await;
    let plan = json!({ "tasks": [
        { "id": "words", "agent": "adds", "input": "seven" },
        { "id": "wrong", "skill": "sums", "input": { "data": { "n": "7" } } },
        { "id": "right", "agent": "adds", "input": { "text": "please", "data": { "n": 7 } } },
        { "id": "first", "agent": "says", "input": "a number" },
        { "id": "later", "agent": "adds", "needs": ["first"], "input": { "data": { "n": "{{ tasks.first.text }}" } } },
    ] });
    let checked = done(&server, "plan_check", json!({ "plan": plan })).await;
    let problems: Vec<(&str, &str)> = checked["problems"]
        .as_array()
        .unwrap()
        .iter()
        .map(|problem| (problem["task"].as_str().unwrap(), problem["why"].as_str().unwrap()))
        .collect();
    let [("words", words), ("wrong", wrong)] = problems[..] else { panic!("{checked}") };
    assert!(words.contains("send a data part"), "{words}");
    assert!(wrong.contains("/n: \"7\" is not of type \"integer\""), "{wrong}");

    // What is only known while it runs is refused then.
    let plan = r#"
        [[tasks]]
        id = "right"
        agent = "adds"
        input = { data = { n = 7 } }
        [[tasks]]
        id = "first"
        agent = "says"
        input = "a number"
        [[tasks]]
        id = "later"
        agent = "adds"
        needs = ["first"]
        optional = true
        input = { data = { n = "{{ tasks.first.text }}" } }
    "#;
    let task = server.run(plan).await;
    assert_eq!(part(&task, "right")["state"], "done", "{}", part(&task, "right"));
    let later = part(&task, "later").to_string();
    assert!(later.contains("is not of type") && later.contains("/n"), "{later}");
    assert_eq!(server.tasks("adds").await.len(), 1, "nothing was begun that does not fit");
}
