//! Remotes in the configuration, and the registry as a client of the running server reads it.

use std::{fs, path::Path, time::Duration};

use serde_json::{Value, json};

use crate::{
    command::{nuncio_in, run},
    fake_agent::{FakeAgent, Reply},
    http::client,
    server_process::ServerProcess,
};

const REVISION: &str = "2026-07-28";

/// What a resource holds, by MCP: its address as the answer has it, and the JSON.
async fn read(url: &str, uri: &str) -> (String, Value) {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
    });
    let params = json!({ "uri": uri, "_meta": meta });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": params }).to_string();
    let request = client()
        .post(format!("{url}/mcp"))
        .header("Content-Type", "application/json")
        .header("Accept", "application/json, text/event-stream")
        .header("MCP-Protocol-Version", REVISION)
        .header("Mcp-Method", "resources/read")
        .header("Mcp-Name", uri);
    let answer = request.body(body).send().await.unwrap().text().await.unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"));
    let content = &answer["result"]["contents"][0];
    let text = content["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
    (content["uri"].as_str().unwrap().to_owned(), serde_json::from_str(text).unwrap())
}

#[tokio::test]
async fn a_configured_remote_is_known_under_every_name_of_the_registry() {
    let agent = FakeAgent::start(json!({}), |_| Reply::Status(500));
    let dir = tempfile::tempdir().unwrap();
    let mut other = ServerProcess::start(&dir.path().join("other"), &[]);
    let file = format!(
        "[registry]\ninterval = \"50ms\"\nlongest-pause = \"500ms\"\n\n[[remote]]\nname = \"far\"\nurl = \"{}\"\n\n\
         [[agent]]\nname = \"tools\"\nurl = \"{}/mcp\"\nkind = \"mcp\"\nserve = false\n",
        agent.url,
        other.url()
    );
    fs::write(dir.path().join("nuncio.toml"), file).unwrap();
    let server = ServerProcess::start(&dir.path().join("d"), &[]);
    let uri = "a2a://agents/registry";
    let of = |registry: &Value, name: &str| -> Value {
        let agents = registry["agents"].as_array().unwrap();
        agents.iter().find(|agent| agent["agentType"] == name).unwrap_or_else(|| panic!("{registry}")).clone()
    };
    let seen = tokio::time::timeout(Duration::from_secs(60), async {
        loop {
            let (_, registry) = read(server.url(), uri).await;
            if ["far", "tools"].iter().all(|name| of(&registry, name)["status"] == "healthy") {
                return registry;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let registry = seen.await.expect("both are well");
    assert_eq!(of(&registry, "far")["agentCard"]["name"], "fake");
    assert_eq!(of(&registry, "tools")["serverInfo"]["name"], "nuncio");
    assert_eq!(of(&registry, "echo")["url"], format!("{}/agents/echo", server.url()));
    for host in ["nuncio", "claude-20x"] {
        let alias = format!("mcp://{host}/a2a/agents/registry");
        let (named, same) = read(server.url(), &alias).await;
        assert_eq!(named, alias);
        assert_eq!(of(&same, "far")["agentCard"], of(&registry, "far")["agentCard"]);
    }
    // A server that dies is found out, and found again.
    other.kill9();
    let status = async |wanted: &'static str, breaker: &'static str| {
        let seen = tokio::time::timeout(Duration::from_secs(60), async {
            loop {
                let tools = of(&read(server.url(), uri).await.1, "tools");
                if tools["status"] == wanted && tools["breaker"] == breaker {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        seen.await.unwrap_or_else(|_| panic!("it is not {wanted} and {breaker}"));
    };
    status("unhealthy", "open").await;
    other.restart();
    status("healthy", "closed").await;
}

fn print_config(dir: &Path, file: &str) -> crate::command::Ran {
    fs::write(dir.join("nuncio.toml"), file).unwrap();
    run(nuncio_in(dir).args(["serve", "--print-config"]))
}

#[test]
fn agents_that_are_only_listed_are_printed_as_they_are_read() {
    let dir = tempfile::tempdir().unwrap();
    // The first as it was written before there was `serve`.
    let file = "[[remote]]\nname = \"far\"\nurl = \"https://a.example/x\"\n\n\
                [[agent]]\nname = \"tools\"\nurl = \"http://127.0.0.1:9/mcp\"\nkind = \"mcp\"\nserve = false\n";
    let first = print_config(dir.path(), file).exits(0).stdout;
    for printed in [
        "[[agent]]\nkind = \"a2a\"\nname = \"far\"\nserve = false\nurl = \"https://a.example/x\"\n",
        "[[agent]]\nkind = \"mcp\"\nname = \"tools\"\nserve = false\nurl = \"http://127.0.0.1:9/mcp\"\n",
    ] {
        assert!(first.contains(printed), "{first}");
        let again = print_config(dir.path(), &first).exits(0).stdout;
        assert!(again.contains(printed), "{again}");
    }
    assert!(first.contains("interval = \"15s\"") && first.contains("longest-pause = \"5m\""), "{first}");
}

#[test]
fn a_listed_agent_that_cannot_be_used_is_refused_with_its_place() {
    #[track_caller]
    fn check(file: &str, expected: &str) {
        let dir = tempfile::tempdir().unwrap();
        let ran = print_config(dir.path(), file).exits(1);
        assert!(ran.stderr.contains(expected), "{}", ran.stderr);
    }
    let remote = |rest: &str| format!("[[remote]]\n{rest}\n");
    let good = "name = \"far\"\nurl = \"http://a.example\"\n";
    check(&remote("nam = \"x\""), "nuncio.toml: [[agent]]: name: is required");
    check(&remote("name = \"a b\"\nurl = \"http://a\""), "name: 1 to 64 letters");
    check(&remote("name = \"x\""), "[[agent]]: \"x\": table: missing field `url`");
    check(&remote("name = \"x\"\nurl = \"ftp://a\""), "\"x\": url: expected a URL with http or https");
    check(
        &remote("name = \"x\"\nurl = \"http://u:p@a\""),
        "\"x\": url: it carries a user name or a password",
    );
    check(
        &remote(&format!("{good}kind = \"a3a\"")),
        "\"far\": kind: expected process, http, mcp, a2a or llm",
    );
    check(&(remote(good) + &remote(good)), "there are two agents of that name");
    check("[remote]\nname = \"x\"", "write [[remote]] with two brackets");
    let program = "[[agent]]\nname = \"x\"\nkind = \"process\"\ncommand = [\"cat\"]\nserve = false\n";
    check(program, "\"x\": serve: only a remote agent can be listed without being served");
    let mcp = "[[agent]]\nname = \"x\"\nkind = \"mcp\"\ncommand = [\"cat\"]\nserve = false\n";
    check(mcp, "\"x\": serve: only a remote agent can be listed without being served");
    check("[registry]\nintervall = \"1s\"", "did you mean \"registry.interval\"?");
    check("[registry]\ninterval = \"0s\"", "registry.interval: expected more than no time");
}

/// The registry probes with the credentials of the table, and callers do not reach what is only listed.
#[tokio::test]
async fn an_agent_that_is_only_listed_is_probed_with_its_token_and_not_served() {
    let dir = tempfile::tempdir().unwrap();
    let other = ServerProcess::start(&dir.path().join("other"), &["--auth", "on"]);
    let made = run(nuncio_in(dir.path())
        .args(["token", "create", "-o", "json", "--name", "registry", "--data", "other"]));
    let token = made.exits(0).json()["token"].as_str().unwrap().to_owned();
    let table = |name: &str, rest: &str| {
        let url = other.url();
        format!("[[agent]]\nname = \"{name}\"\nkind = \"mcp\"\nurl = \"{url}/mcp\"\nserve = false\n{rest}\n")
    };
    let file = format!(
        "[registry]\ninterval = \"50ms\"\n\n{}{}",
        table("with", &format!("token = \"{token}\"")),
        table("without", "")
    );
    fs::write(dir.path().join("nuncio.toml"), file).unwrap();
    let server = ServerProcess::start(&dir.path().join("d"), &[]);
    let seen = tokio::time::timeout(Duration::from_secs(60), async {
        loop {
            let (_, registry) = read(server.url(), "a2a://agents/registry").await;
            let agents = registry["agents"].as_array().unwrap().clone();
            let of = |name: &str| agents.iter().find(|agent| agent["agentType"] == name).cloned().unwrap();
            let (with, without) = (of("with"), of("without"));
            if with["status"] == "healthy" && without["lastError"].is_string() {
                return (with, without);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let (with, without) = seen.await.expect("both were probed");
    assert_eq!(with["serverInfo"]["name"], "nuncio");
    assert!(without["lastError"].as_str().unwrap().contains("401"), "{without}");
    let card = client().get(format!("{}/agents/with/.well-known/agent-card.json", server.url()));
    assert_eq!(card.send().await.unwrap().status(), 404);
}
