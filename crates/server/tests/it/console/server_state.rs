//! What concerns the whole server: its nodes and its pulse. It is for the operator, and for no administrator of a tenant.

use std::{sync::Arc, time::Duration};

use nuncio_engine::{
    AuditLevel, Catalog, Engine, EngineParts,
    clock::Timestamp,
    engine::{MAX_NODES, NodeDescription},
    knowledge::ExpectedVersion,
};
use nuncio_store::SqliteOptions;
use nuncio_testkit::open_in;
use serde_json::{Value, json};

use super::{live::next, refused};
use crate::{
    guests::{self, Guests, audit},
    site::{Setup, Site},
    socket::within,
};

const OPERATOR: [(&str, &str); 1] = [("Authorization", "Bearer operator")];
/// An administrator of the tenant `acme`, with every scope that there is.
const TENANT_ADMIN: [(&str, &str); 1] = [("Authorization", "Bearer acme/root;*:*+*:admin")];

/// Where credentials are needed, and an interval of the pulse is short.
fn fast(setup: &mut Setup) {
    setup.server.authenticator = Some(Arc::new(Guests::default()));
    setup.server.admin_token = Some("operator".into());
    setup.options.access.audit = AuditLevel::All;
    setup.options.pulse_interval = Duration::from_millis(200);
}

async fn shown(site: &Site, path: &str) -> Value {
    let answer = site.console(path, &OPERATOR).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.json()
}

#[tokio::test]
async fn only_the_operator_sees_the_whole_server() {
    let site = guests::site().await;
    for path in ["nodes", "pulse"] {
        assert_eq!(site.console(path, &OPERATOR).await.status, 200, "{path}");
        let reader = [("Authorization", "Bearer eve;read:admin:server")];
        assert_eq!(site.console(path, &reader).await.status, 200, "{path}");
        for token in ["Bearer eve;*:*", "Bearer eve;read:admin:tasks", "Bearer acme/ada;read:admin:server"] {
            let error = site.console_refuses(path, &[("Authorization", token)], 403, "scope_missing").await;
            assert!(error["scope"].as_str().unwrap().starts_with("read:admin:server"), "{error}");
        }
        let error = site.console_refuses(path, &TENANT_ADMIN, 403, "scope_missing").await;
        assert_eq!(error["scope"], "read:admin:server of the tenant home");
        site.console_refuses(path, &[], 401, "unauthorized").await;
    }
    let topics = json!({ "topics": [{ "key": "p", "topic": "pulse" }] });
    let error = refused(&site.console_post("live", &TENANT_ADMIN, &topics).await, 403, "scope_missing");
    assert_eq!(error["field"], "topics/0");
    let may = async |headers: &[(&str, &str)]| {
        site.console("me", headers).await.json()["may"]["read:admin:server"].clone()
    };
    assert_eq!((may(&OPERATOR).await, may(&TENANT_ADMIN).await), (json!(true), json!(false)));
    let lines = audit(&site).await;
    let refusals =
        lines.iter().filter(|line| line.operation == "server.nodes" && line.refused.is_some()).count();
    assert_eq!(refusals, 4, "a refusal is audited");
}

#[tokio::test]
async fn a_single_node_is_its_own_list() {
    let site = guests::site().await;
    let listed = shown(&site, "nodes").await;
    let nodes = listed["nodes"].as_array().unwrap();
    let shared = json!(site.engine.is_shared());
    assert_eq!((nodes.len(), &listed["shared"], &listed["more"]), (1, &shared, &json!(false)));
    let node = &nodes[0];
    assert_eq!(node["node"], shown(&site, "me").await["node"]);
    assert_eq!(
        (&node["this"], &node["gone"], &node["goneSince"]),
        (&json!(true), &json!(false), &json!(null))
    );
    assert_eq!(node["address"], site.address.to_string());
    assert_eq!(node["version"], env!("CARGO_PKG_VERSION"));
    let text = |member: &str| node[member].as_str().unwrap().to_owned();
    assert!(text("startedAt") <= text("heartbeatAt"), "{node}");
    assert!(
        text("heartbeatAt") < text("aliveUntil") && listed["now"].as_str().unwrap() < &*text("aliveUntil")
    );
}

/// Nodes of the same store: those that are alive first, and since when the others have gone.
#[tokio::test]
async fn other_nodes_are_listed_as_they_described_themselves() {
    let site = guests::site().await;
    let now = site.engine.clock().now();
    let records = site.engine.records::<NodeDescription>("node");
    let put = async |beaten: i64, stopped: Option<i64>| {
        let id = site.engine.clock().new_id();
        let at = |seconds: i64| Timestamp(now.0 + seconds * 1000);
        let description = NodeDescription {
            address: Some("10.0.0.2:8080".into()),
            version: "9.9.9".into(),
            started_at: at(beaten - 100),
            running: 7,
            queued: 2,
            beaten_at: at(beaten),
            alive_until: at(stopped.unwrap_or(beaten + 30)),
            stopped_at: stopped.map(at),
        };
        let write = records.put("server/nodes", &id.to_string(), &description, ExpectedVersion::Any).unwrap();
        records.write(vec![write]).await.unwrap().unwrap();
        id.to_string()
    };
    let (alive, died, stopped) = (put(-5, None).await, put(-3600, None).await, put(-20, Some(-10)).await);
    let listed = shown(&site, "nodes").await;
    let of = |id: &str| listed["nodes"].as_array().unwrap().iter().find(|node| node["node"] == *id).unwrap();
    assert_eq!(listed["nodes"].as_array().unwrap().len(), 4);
    assert_eq!((&of(&alive)["gone"], &of(&alive)["running"]), (&json!(false), &json!(7)));
    assert_eq!((&of(&died)["gone"], &of(&died)["stopped"]), (&json!(true), &json!(false)));
    assert_eq!(of(&died)["goneSince"], of(&died)["heartbeatAt"]);
    assert_eq!((&of(&stopped)["gone"], &of(&stopped)["stopped"]), (&json!(true), &json!(true)));
    let gone: Vec<bool> =
        listed["nodes"].as_array().unwrap().iter().map(|node| node["gone"].as_bool().unwrap()).collect();
    assert_eq!(gone, [false, false, true, true]);
    // A node that restarts all the time leaves many: the list is bounded, and this node is in it.
    for _ in 0..MAX_NODES + 5 {
        put(-7200, None).await;
    }
    let listed = shown(&site, "nodes").await;
    assert_eq!((listed["nodes"].as_array().unwrap().len(), &listed["more"]), (MAX_NODES, &json!(true)));
    assert!(listed["nodes"].as_array().unwrap().iter().any(|node| node["this"] == true));
}

/// Where nodes share a store, each writes what the others show of it. SQLite has one node.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_one_database_see_each_other() {
    let site = guests::site().await;
    if !site.engine.is_shared() {
        return;
    }
    let store = open_in(site.folder(), SqliteOptions::default()).await;
    let other = Engine::start(EngineParts::new(store, Catalog::default())).await.unwrap();
    other.set_node_address("10.0.0.9:1");
    let listed = shown(&site, "nodes").await;
    let of_other = |listed: &Value| -> Value {
        let nodes = listed["nodes"].as_array().unwrap();
        nodes.iter().find(|node| node["node"] == *other.node().0.to_string()).unwrap().clone()
    };
    assert_eq!((listed["nodes"].as_array().unwrap().len(), &listed["shared"]), (2, &json!(true)));
    let node = of_other(&listed);
    assert_eq!(
        (&node["this"], &node["gone"], &node["version"]),
        (&json!(false), &json!(false), &json!(env!("CARGO_PKG_VERSION")))
    );
    other.stop().await;
    let node = of_other(&shown(&site, "nodes").await);
    assert_eq!(
        (&node["gone"], &node["stopped"], &node["address"]),
        (&json!(true), &json!(true), &json!("10.0.0.9:1"))
    );
}

fn sum(column: &Value) -> u64 {
    column.as_array().unwrap().iter().filter_map(Value::as_u64).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pulse_counts_what_agents_did() {
    let site = Site::with(fast).await;
    let mut stream = site.live_as(&OPERATOR, json!([{ "key": "p", "topic": "pulse" }])).await;
    assert_eq!(next(&mut stream, &["caught-up"]).await.unwrap().0, "caught-up");
    let send = async |text: &str| {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage",
            "params": { "message": crate::site::message(text) } });
        let headers = [OPERATOR[0], ("A2A-Version", "1.0")];
        let answer = site.send(crate::socket::post("/", &headers, body.to_string())).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    };
    for _ in 0..3 {
        send("hello").await;
    }
    send("fail").await;
    let pulse = within("four tasks to be counted", async {
        loop {
            let pulse = shown(&site, "pulse").await;
            if pulse["total"]["all"]["ended"] == 4 {
                return pulse;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    let total = &pulse["total"];
    for column in ["sends", "events", "commits", "ended", "failed", "p50Ms", "p99Ms", "queued", "running"] {
        let values = total[column].as_array().unwrap();
        assert_eq!(values.len(), 360, "{column}");
        assert!(values[0].is_null(), "{column}: this node did not run then");
    }
    assert_eq!((sum(&total["sends"]), sum(&total["ended"]), sum(&total["failed"])), (4, 4, 1));
    assert!(sum(&total["events"]) >= 8 && sum(&total["commits"]) >= 4, "{}", total["all"]);
    assert!(total["all"]["p50Ms"].as_u64() <= total["all"]["p99Ms"].as_u64());
    assert!(total["all"]["p99Ms"].as_u64().unwrap() < 60_000, "{}", total["all"]);
    let agents = pulse["agents"].as_array().unwrap();
    let actor = agents.iter().find(|agent| agent["agent"] == "actor").unwrap();
    assert_eq!((sum(&actor["sends"]), &actor["all"]["failed"]), (4, &json!(1)));
    assert!(actor.get("queued").is_none(), "the queue is not measured by agent");
    let other = shown(&site, "pulse?agent=none").await;
    assert_eq!(other["agents"], json!([]));
    // The stream has every interval, among them those with the tasks.
    let mut seen = 0;
    while seen < 4 {
        let (_, data) = next(&mut stream, &["pulse"]).await.unwrap();
        assert!(data["total"]["queued"].is_u64() && data["cursor"].is_string(), "{data}");
        seen += data["total"]["ended"].as_u64().unwrap();
    }
    // A stream that continues at another interval reads the pulse again.
    let old = json!([{ "key": "p", "topic": "pulse", "after": "p-1" }]);
    let mut stream = site.live_as(&OPERATOR, old).await;
    assert_eq!(next(&mut stream, &["gap", "caught-up"]).await.unwrap().0, "gap");
    site.console_refuses("pulse?since=1", &OPERATOR, 400, "bad_request").await;
}
