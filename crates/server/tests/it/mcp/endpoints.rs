//! What is listed, and what is reached: the server's endpoint with a filter of its tools, and the endpoint of one agent.

use nuncio_engine::{
    Surface,
    surface::{
        HandlerError, HandlerReply, HandlerRequest, Resource, ResourceContent, ResourceProfile, ToolGroup,
        ToolOutput, ToolProfile, tool,
    },
};
use serde_json::{Value, json};

use super::{
    TASKS, V2025,
    client::{Client, accept, initialize, saying, text_of},
    stage::{Stage, until},
};
use crate::{
    guests::{As, site_with},
    site::Setup,
    socket::post,
};

const PLAYER: &str = "/agents/player/mcp";

/// A tool of a group, which says its name.
fn grouped(surface: &Surface, name: &'static str, group: ToolGroup) {
    let profile = ToolProfile::new(name, "Says its name.").group(group);
    let said = tool(profile, move |_| async move { Ok(HandlerReply::Done(ToolOutput::text(name))) });
    surface.add_tool(said).unwrap();
}

/// Tools of three groups beside `greet`, which has none.
fn with_groups(setup: &mut Setup) {
    grouped(&setup.surface, "task_list", ToolGroup::Tasks);
    grouped(&setup.surface, "task_send", ToolGroup::Tasks);
    grouped(&setup.surface, "memory_get", ToolGroup::Memory);
}

async fn tools(client: &Client) -> Vec<String> {
    let listed = client.ok("tools/list", json!({})).await;
    let names = listed["tools"].as_array().unwrap().iter();
    names.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_list_has_what_the_operator_chose_and_the_rest_can_be_called() {
    let check = async |chosen: Option<&str>, listed: &[&str]| {
        let stage = Stage::with(|setup| {
            with_groups(setup);
            if let Some(chosen) = chosen {
                setup.server.mcp.tools = chosen.parse().unwrap();
            }
        })
        .await;
        for client in [Client::session(&stage, V2025, json!({})).await, Client::stateless(&stage, json!({}))]
        {
            let mut listed: Vec<&str> = listed.to_vec();
            listed.sort_unstable();
            assert_eq!(tools(&client).await, listed, "{chosen:?}");
            for hidden in ["memory_get", "task_list"] {
                let said = client.ok("tools/call", json!({ "name": hidden, "arguments": {} })).await;
                assert_eq!(text_of(&said), hidden, "{chosen:?}");
            }
            assert_eq!(text_of(&client.ok("tools/call", saying("player", "hello")).await), "hello");
        }
    };
    let agents = stage_agents().await;
    let agents: Vec<&str> = agents.iter().map(String::as_str).collect();
    check(None, &[&agents[..], &["greet", "task_list", "task_send"]].concat()).await;
    check(Some("memory,agent:player"), &["greet", "memory_get", "player"]).await;
    check(Some("none"), &["greet"]).await;
    let all = ["a2a_streams", "greet", "memory_get", "task_list", "task_send"];
    check(Some("all"), &[&agents[..], &all[..]].concat()).await;
}

/// The names of the stage's agents.
async fn stage_agents() -> Vec<String> {
    let stage = Stage::new().await;
    stage.engine.catalog().iter().map(|agent| agent.profile.name.clone()).collect()
}

#[tokio::test]
async fn a_client_chooses_for_itself_with_its_address() {
    let stage = Stage::with(with_groups).await;
    let path = "/mcp?tools=memory,agent%3Aplayer";
    let in_session = Client::session_at(&stage, path, V2025, json!({})).await;
    for client in [in_session, Client::stateless(&stage, json!({})).at(path)] {
        assert_eq!(tools(&client).await, ["greet", "memory_get", "player"]);
        let said = client.ok("tools/call", json!({ "name": "task_list", "arguments": {} })).await;
        assert_eq!(text_of(&said), "task_list", "what is not listed can be called");
    }
    for (query, words) in [
        ("tools=memroy", "is \"memory\" meant?"),
        ("tools=", "expected at least one of: agents, tasks"),
        ("x=1&tools=all,tasks", "stands alone"),
    ] {
        let begin = initialize(V2025, &json!({})).to_string();
        let answer = stage.send(post(&format!("/mcp?{query}"), &[], begin)).await;
        assert_eq!(answer.status, 400, "{query}: {}", answer.text());
        assert!(answer.json()["error"]["message"].as_str().unwrap().contains(words), "{}", answer.text());
    }
}

#[tokio::test]
async fn the_endpoint_of_an_agent_has_that_agent_alone() {
    let stage = Stage::with(with_groups).await;
    let in_session = Client::session_at(&stage, PLAYER, V2025, json!({})).await;
    for client in [in_session, Client::stateless(&stage, json!({})).at(PLAYER)] {
        assert_eq!(tools(&client).await, ["player"]);
        assert_eq!(text_of(&client.ok("tools/call", saying("player", "hello")).await), "hello");
        for other in ["quick", "greet", "memory_get", "task_send", "nobody"] {
            let (_, error) = client.refused("tools/call", saying(other, "hello")).await;
            let words = error["message"].as_str().unwrap();
            assert!(
                words.contains(&format!("no tool \"{other}\" here: this is the endpoint of player")),
                "{words}"
            );
        }
        // Not listed, and reached: for clients that cannot be asked.
        let said = client.ok("tools/call", json!({ "name": "task_list", "arguments": {} })).await;
        assert_eq!(text_of(&said), "task_list");
        assert_eq!(client.ok("prompts/list", json!({})).await["prompts"], json!([]));
    }
    assert_eq!(stage.total().await, 2, "what was refused began nothing");
}

#[tokio::test]
async fn an_agent_that_there_is_not_has_no_endpoint_and_a_similar_one_is_named() {
    let stage = Stage::new().await;
    let begin = initialize(V2025, &json!({})).to_string();
    for (path, words) in [
        (
            "/agents/palyer/mcp",
            "there is no agent \"palyer\" here; is \"player\" meant (/agents/player/mcp)?",
        ),
        ("/agents/zzz/mcp", "tools/list at /mcp names the agents that there are"),
    ] {
        let answer = stage.send(post(path, &[], &begin)).await;
        assert_eq!(answer.status, 404, "{}", answer.text());
        assert!(answer.json()["error"]["message"].as_str().unwrap().contains(words), "{}", answer.text());
    }
    let answer = stage.send(post(&format!("{PLAYER}?tools=all"), &[], &begin)).await;
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("one agent alone"), "{}", answer.text());
}

#[tokio::test]
async fn the_endpoint_of_an_agent_has_its_tasks_and_no_other_resource() {
    let stage = Stage::with(|setup| {
        with_groups(setup);
        setup.surface.add_resource(Leaflet);
    })
    .await;
    let own = stage.begin_player("wait").await;
    let params =
        json!({ "message": crate::site::message("wait"), "configuration": { "returnImmediately": true } });
    let sent = stage.call_at("/agents/quick", "1.0", "SendMessage", params).await;
    let other = sent["result"]["task"]["id"].as_str().unwrap().to_owned();
    let tasks = json!({ "extensions": { TASKS: {} } });
    let in_session = Client::session_at(&stage, PLAYER, V2025, json!({})).await;
    for client in [in_session, Client::stateless(&stage, tasks).at(PLAYER)] {
        let listed = client.ok("resources/list", json!({})).await;
        let uris: Vec<&str> =
            listed["resources"].as_array().unwrap().iter().map(|one| one["uri"].as_str().unwrap()).collect();
        assert_eq!(uris, [format!("a2a://tasks/{own}")]);
        let templates = client.ok("resources/templates/list", json!({})).await;
        let templates = templates["resourceTemplates"].as_array().unwrap().iter();
        let templates: Vec<&str> = templates.map(|one| one["uriTemplate"].as_str().unwrap()).collect();
        assert_eq!(templates, ["a2a://tasks/{taskId}"]);
        client.ok("resources/read", json!({ "uri": format!("a2a://tasks/{own}") })).await;
        for hidden in [format!("a2a://tasks/{other}"), "leaflet://one".to_owned()] {
            let (_, error) = client.refused("resources/read", json!({ "uri": hidden })).await;
            assert!(error["message"].as_str().unwrap().contains("there is no resource"), "{error}");
            if !client.session.is_empty() {
                client.refused("resources/subscribe", json!({ "uri": hidden })).await;
            }
        }
        client.ok("tasks/get", json!({ "taskId": own })).await;
        let (_, error) = client.refused("tasks/get", json!({ "taskId": other })).await;
        let (_, unknown) = client.refused("tasks/get", json!({ "taskId": "nothing" })).await;
        assert_eq!(error["code"], unknown["code"], "as what does not exist");
        for cursor in ["after:", "in:1:"] {
            let (_, refused) = client.refused("resources/list", json!({ "cursor": cursor })).await;
            assert_eq!(refused["code"], -32602, "{cursor}");
        }
    }
    let all = Client::session(&stage, V2025, json!({})).await;
    all.ok("tasks/get", json!({ "taskId": other })).await;
    all.ok("resources/read", json!({ "uri": "leaflet://one" })).await;
}

#[tokio::test]
async fn what_an_agent_asks_is_answered_at_its_endpoint() {
    let stage = Stage::new().await;
    // In a session by elicitation.
    let client = Client::session_at(&stage, PLAYER, V2025, json!({ "elicitation": {} })).await;
    let mut stream = client.stream("tools/call", saying("player", "ask")).await;
    let asked = stream.expect("elicitation/create").await;
    assert_eq!(client.answer(&asked, accept(true)).await.status, 202);
    assert_eq!(text_of(&stream.response().await.1["result"]), "yes");
    // Without a session by a second request.
    let client = Client::stateless(&stage, json!({ "elicitation": {} })).at(PLAYER);
    let asked = client.ok("tools/call", saying("player", "ask")).await;
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let (key, _) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
    let mut again = saying("player", "ask");
    again["requestState"] = asked["requestState"].clone();
    again["inputResponses"] = json!({ key: accept(true) });
    // What was asked at one endpoint is not answered at that of another agent.
    let elsewhere = Client::stateless(&stage, json!({ "elicitation": {} })).at("/agents/quick/mcp");
    elsewhere.refused("tools/call", again.clone()).await;
    assert_eq!(text_of(&client.ok("tools/call", again).await), "yes");
    // As a task by the methods of tasks.
    let able = json!({ "elicitation": {}, "extensions": { TASKS: {} } });
    let client = Client::stateless(&stage, able).at(PLAYER);
    let task = client.ok("tools/call", saying("player", "ask")).await["taskId"].as_str().unwrap().to_owned();
    let asking = until("the question", async || {
        let task = client.ok("tasks/get", json!({ "taskId": task })).await;
        task["inputRequests"].as_object().and_then(|asked| asked.keys().next().cloned())
    })
    .await;
    let answer = json!({ "taskId": task, "inputResponses": { asking: accept(true) } });
    client.ok("tasks/update", answer).await;
    let ended = until("the end", async || {
        let task = client.ok("tasks/get", json!({ "taskId": task })).await;
        (task["status"] == "completed").then_some(task)
    })
    .await;
    assert_eq!(text_of(&ended["result"]), "yes");
}

#[tokio::test]
async fn a_session_is_used_at_the_endpoint_where_it_was_opened() {
    let stage = Stage::new().await;
    let paths = ["/mcp", PLAYER, "/agents/quick/mcp"];
    let mut sessions = vec![];
    for path in paths {
        sessions.push(Client::session_at(&stage, path, V2025, json!({})).await.session);
    }
    let check = async |stage: &Stage| {
        for (opened, session) in sessions.iter().enumerate() {
            for (used, path) in paths.iter().enumerate() {
                let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }).to_string();
                let answer = stage.send(post(path, &[("mcp-session-id", session)], ping)).await;
                let status = if opened == used { 200 } else { 404 };
                assert_eq!(answer.status, status, "{} at {path}: {}", paths[opened], answer.text());
            }
        }
    };
    check(&stage).await;
    // Also by a server that reads it from the store.
    let stage = stage.restart().await;
    check(&stage).await;
}

#[tokio::test]
async fn the_endpoint_of_an_agent_is_guarded_as_the_servers_is() {
    let site = site_with(|setup| setup.server.limits.requests_per_second = 1).await;
    let at = "/agents/actor/mcp";
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }).to_string();
    for (headers, status) in [
        (vec![], 401),
        (vec![("host", "evil.example")], 403),
        (vec![("origin", "https://evil.example")], 403),
    ] {
        assert_eq!(site.send(post(at, &headers, &list)).await.status, status, "{headers:?}");
    }
    let names = |answer: &Value| -> Vec<String> {
        let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}"));
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    };
    // A caller that may not call the agent sees nothing of it.
    for (token, listed) in
        [("ada", vec!["actor"]), ("bob;execute:a2a:unpushed", vec![]), ("eve;read:memory", vec![])]
    {
        let answer = As { site: &site, token }.mcp_at(at, "", "tools/list", json!({})).await;
        assert_eq!(names(&answer.json()), listed, "{token}");
    }
    let limited = |token| As { site: &site, token };
    let call = json!({ "name": "actor", "arguments": { "text": "x" } });
    let refused = limited("ben;execute:a2a:unpushed").mcp_at(at, "", "tools/call", call).await;
    assert_eq!(refused.status, 403);
    let challenge = refused.header("www-authenticate");
    assert!(challenge.contains("oauth-protected-resource/agents/actor/mcp\""), "{challenge}");
    assert!(challenge.contains("scope=\"execute:a2a:actor\""), "{challenge}");
    // A name that a caller may not call is not suggested.
    let bill = limited("bill;execute:a2a:unpushed");
    let said = bill.mcp_at("/agents/acto/mcp", "", "tools/list", json!({})).await;
    assert_eq!(said.status, 404);
    assert!(!said.text().contains("actor"), "{}", said.text());
    let mut hurried = vec![];
    for _ in 0..8 {
        let answer = As { site: &site, token: "zoe" }.mcp_at(at, "", "tools/list", json!({})).await;
        hurried.push(answer.status);
    }
    assert!(hurried.contains(&200) && hurried.contains(&429), "{hurried:?}");
}

struct Leaflet;

#[async_trait::async_trait]
impl Resource for Leaflet {
    fn profile(&self) -> ResourceProfile {
        ResourceProfile::new("leaflet://one", "leaflet")
    }

    async fn read(&self, _: HandlerRequest) -> Result<HandlerReply<Vec<ResourceContent>>, HandlerError> {
        Ok(HandlerReply::Done(vec![ResourceContent::text("leaflet://one", "text/plain", "Read me.")]))
    }
}
