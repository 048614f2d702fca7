//! Agents of other people: what they call themselves, where their cards lead, and what they write to a terminal.

use serde_json::json;

use super::{
    Way, World,
    terminal::{PROMPT, Terminal},
};
use crate::{
    command,
    fake_agent::{FakeAgent, Reply, status, task},
};

fn agent(name: &str) -> FakeAgent {
    FakeAgent::start(json!({ "name": name }), |asked| match asked.method.as_str() {
        "SendStreamingMessage" => {
            Reply::Stream(vec![(1, json!({ "task": task("WORKING") })), (2, status("COMPLETED"))])
        }
        _ => Reply::Result(task("COMPLETED")),
    })
}

#[test]
fn a_name_of_several_words_can_be_called_and_completed() {
    let agent = agent("Hello World Agent");
    let dir = tempfile::tempdir().unwrap();
    let mut chat = Terminal::start(dir.path(), &["--server", &agent.url]);
    chat.command("list");
    chat.expect("Hello_World_Agent");
    chat.expect(PROMPT);
    chat.keys("Hel\thi there\r");
    chat.expect("[1 Hello World Agent] completed");
    chat.command("'Hello World Agent' hi");
    chat.expect("[2 Hello World Agent] completed");
    let said = agent.asked().iter().filter(|asked| asked.method == "SendStreamingMessage").count();
    assert_eq!(said, 2);
}

#[test]
fn nothing_of_theirs_moves_the_cursor() {
    let agent = FakeAgent::start(
        json!({
            "name": "evil\u{1b}]52;c;aGk=\u{7}agent", "description": "does \u{1b}[2Jharm",
            "skills": [{ "id": "s", "name": "\u{1b}]0;title\u{7}", "description": "", "tags": [] }],
        }),
        |asked| match asked.method.as_str() {
            "SendStreamingMessage" => Reply::Stream(vec![
                (1, json!({ "task": task("WORKING") })),
                (
                    2,
                    json!({ "statusUpdate": { "taskId": "t1", "contextId": "c1", "status": {
                        "state": "TASK_STATE_COMPLETED",
                        "message": { "messageId": "m", "role": "ROLE_AGENT", "parts": [{ "text": "bye \u{1b}]52;c;aGk=\u{7}\u{1b}[2J" }] },
                    } } }),
                ),
            ]),
            _ => Reply::Status(500),
        },
    );
    let dir = tempfile::tempdir().unwrap();
    let mut chat = Terminal::start(dir.path(), &["--server", &agent.url]);
    chat.command("list");
    chat.expect("evil_52_c_aGk_agent");
    chat.command("help evil_52_c_aGk_agent");
    chat.expect("Takes a text.");
    chat.expect(PROMPT);
    chat.keys("evi\t\t hello\r");
    chat.expect("completed");
    chat.expect(PROMPT);
    let raw = chat.raw();
    for harm in [&b"\x1b]"[..], b"\x1b[2J"] {
        assert!(
            !raw.windows(harm.len()).any(|bytes| bytes == harm),
            "{harm:?} in {:?}",
            String::from_utf8_lossy(&raw)
        );
    }
}

#[test]
fn a_card_does_not_lead_a_token_elsewhere() {
    let elsewhere = agent("elsewhere");
    let rpc = format!("{}/rpc", elsewhere.url);
    let card = json!({ "name": "guide", "supportedInterfaces": [{ "url": rpc, "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }] });
    let guide = FakeAgent::start(card, |_| Reply::Status(500));
    let dir = tempfile::tempdir().unwrap();
    let mut chat = command::nuncio_in(dir.path());
    chat.args(["chat", "--server", &guide.url, "--state"]).arg(dir.path().join("state"));
    chat.env("A2ACLI_BEARER", "s3cret-token");
    command::run_with_input(&mut chat, "guide hello\ntasks\n");
    let asked = elsewhere.asked();
    assert!(!asked.is_empty(), "it was called");
    for asked in asked {
        assert_eq!(asked.header("authorization"), None, "{}", asked.method);
    }
}

#[test]
fn agents_and_tools_of_several_servers_stand_side_by_side() {
    let world = World::new(Way::A2a, "20ms");
    let (a2a, mcp) = (world.server.url().to_owned(), format!("{}/mcp", world.server.url()));
    let stranger = agent("Hello World Agent");
    let servers = [format!("cards={a2a}"), format!("tools={mcp}"), format!("other={}", stranger.url)];
    let flags: Vec<&str> = servers.iter().flat_map(|server| ["--server", server]).collect();
    let mut chat = Terminal::start(world.dir.path(), &flags);
    chat.command("list");
    chat.expect("cards/echo");
    chat.expect("tools/echo");
    chat.command("agents");
    chat.expect("A2A");
    chat.expect("MCP");
    chat.expect("A2A");
    chat.command("echo hello");
    chat.expect("several servers offer echo: say which, cards/echo or tools/echo");
    chat.command("cards/echo hello");
    chat.expect("[1 echo] completed");
    chat.command("tools/echo hello");
    chat.expect("[2 echo] completed");
    chat.command("Hello_World_Agent hello");
    chat.expect("[3 Hello World Agent] completed");
    assert_eq!(world.tasks().len(), 2);
}
