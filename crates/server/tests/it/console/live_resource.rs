//! The topic `resource` of the live stream: notified as a subscriber over MCP is, and never about what is not the caller's.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use nuncio_engine::{
    Surface,
    surface::{
        HandlerError, HandlerReply, HandlerRequest, Resource, ResourceContent, ResourceProfile, Template,
    },
};
use serde_json::{Value, json};

use super::{live::next, refused};
use crate::{guests, site::Site};

/// A resource that counts how often it is read.
struct Counted(Arc<AtomicUsize>);

#[async_trait]
impl Resource for Counted {
    fn profile(&self) -> ResourceProfile {
        ResourceProfile::new("batchtools://queue/status", "queue")
    }

    async fn read(&self, _: HandlerRequest) -> Result<HandlerReply<Vec<ResourceContent>>, HandlerError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(HandlerReply::Done(vec![]))
    }
}

struct Entries;

#[async_trait]
impl Template for Entries {
    fn profile(&self) -> ResourceProfile {
        ResourceProfile::new("memory://data/{namespace}/{key}", "entry")
    }

    async fn read(
        &self,
        uri: &str,
        _: HandlerRequest,
    ) -> Result<HandlerReply<Vec<ResourceContent>>, HandlerError> {
        Err(HandlerError::NotFound(uri.to_owned()))
    }
}

fn surface(reads: &Arc<AtomicUsize>) -> Arc<Surface> {
    let surface = Arc::new(Surface::default());
    surface.add_resource(Counted(Arc::clone(reads)));
    surface.add_template(Entries);
    surface
}

fn topic(uri: &str) -> Value {
    json!([{ "key": "r", "topic": "resource", "uri": uri }])
}

const QUEUE: &str = "batchtools://queue/status";
const ALL: &[&str] = &["caught-up", "gap", "resource", "end"];

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_that_was_updated_is_named_and_not_read() {
    let reads = Arc::new(AtomicUsize::new(0));
    let site = Site::with(|setup| setup.surface = surface(&reads)).await;
    let mut stream = site.live(topic(QUEUE)).await;
    assert_eq!(next(&mut stream, ALL).await.unwrap().0, "caught-up");
    let surface = site.engine.catalog().surface();
    // Another resource, and another tenant's of the same address.
    surface.updated("batchtools://queue/other");
    surface.updated_for("acme", QUEUE);
    surface.updated_for("home", QUEUE);
    let (kind, data) = next(&mut stream, ALL).await.unwrap();
    assert_eq!((kind.as_str(), &data["key"], &data["uri"]), ("resource", &json!("r"), &json!(QUEUE)));
    // A resource that is updated all the time: few frames, and one after the last update.
    for _ in 0..5_000 {
        surface.updated(QUEUE);
    }
    let (mut frames, mut cursor) = (0, data["cursor"].clone());
    while let Ok(Some((kind, data))) =
        tokio::time::timeout(Duration::from_millis(900), next(&mut stream, ALL)).await
    {
        assert_eq!(kind, "resource");
        cursor = data["cursor"].clone();
        frames += 1;
    }
    assert!((1..=4).contains(&frames), "{frames}");
    // A resource has no log: who comes back reads it again.
    let back = json!([{ "key": "r", "topic": "resource", "uri": QUEUE, "after": cursor }]);
    let mut stream = site.live(back).await;
    assert_eq!(next(&mut stream, ALL).await.unwrap().0, "gap");
    assert_eq!(next(&mut stream, ALL).await.unwrap().0, "caught-up");
    assert!(surface.remove_resource(QUEUE));
    assert_eq!(next(&mut stream, ALL).await.unwrap().1, json!({ "key": "r", "why": "not_found" }));
    assert_eq!(reads.load(Ordering::SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_a_resource_with_a_log() {
    let site = Site::new().await;
    let id = site.begin("ask").await;
    site.until_state(&id, "INPUT_REQUIRED").await;
    let uri = format!("a2a://tasks/{id}");
    let mut stream = site.live(topic(&uri)).await;
    let (kind, data) = next(&mut stream, ALL).await.unwrap();
    assert_eq!(kind, "caught-up");
    let cursor = data["cursor"].as_str().unwrap().to_owned();
    let question = site.shown("questions").await["questions"][0]["questionId"].clone();
    let answer = json!({ "questionId": question, "action": "accept", "content": { "confirm": true } });
    assert_eq!(site.console_post(&format!("tasks/{id}/answers"), &[], &answer).await.status, 200);
    let mut updates = 0;
    let end = loop {
        match next(&mut stream, ALL).await.unwrap() {
            (kind, data) if kind == "resource" => {
                assert_eq!(data["uri"], *uri);
                updates += 1;
            }
            (_, data) => break data,
        }
    };
    assert_eq!(end, json!({ "key": "r", "why": "ended" }));
    assert!(updates >= 1);
    // What happened meanwhile is one update for a reader that comes back with its cursor.
    let back = json!([{ "key": "r", "topic": "resource", "uri": uri, "after": cursor }]);
    let mut stream = site.live(back).await;
    let kinds = [next(&mut stream, ALL).await.unwrap().0, next(&mut stream, ALL).await.unwrap().0];
    assert_eq!(kinds, ["caught-up", "resource"]);
    let beyond = json!({ "topics": [{ "key": "r", "topic": "resource", "uri": uri, "after": "9999" }] });
    refused(&site.console_post("live", &[], &beyond).await, 409, "cursor_beyond");
}

#[tokio::test]
async fn a_resource_that_is_not_the_callers_refuses_the_stream() {
    let reads = Arc::new(AtomicUsize::new(0));
    let site = guests::site_with(|setup| setup.surface = surface(&reads)).await;
    let ada = [("Authorization", "Bearer acme/ada;read:memory:team-*")];
    let open = async |headers: &[(&str, &str)], uri: &str| {
        let rows = json!({ "key": "own", "topic": "resource", "uri": "memory://data/team-a/k" });
        let body = json!({ "topics": [rows, { "key": "r", "topic": "resource", "uri": uri }] });
        site.console_post("live", headers, &body).await
    };
    let error = refused(&open(&ada, QUEUE).await, 403, "scope_missing");
    assert_eq!(
        (&error["scope"], &error["field"]),
        (&json!("read:batchtools:batchtools"), &json!("topics/1"))
    );
    let error = refused(&open(&ada, "memory://data/private/k").await, 403, "scope_missing");
    assert_eq!(error["field"], "topics/1");
    let error = refused(&open(&ada, "nothing://here").await, 404, "not_found");
    assert_eq!(error["field"], "topics/1");
    let error = refused(&open(&ada, &format!("m://{}", "x".repeat(5_000))).await, 400, "bad_request");
    assert_eq!(error["field"], "topics/1");
    let body = json!({ "topics": [{ "key": "r", "topic": "resource" }] });
    let error = refused(&site.console_post("live", &ada, &body).await, 400, "bad_request");
    assert_eq!(error["field"], "topics/0/uri");
    // Another caller's task is none.
    let body = json!({ "topics": [{ "key": "t", "topic": "resource",
        "uri": "a2a://tasks/019a8f2e-7d11-7c3a-9b1e-000000000007" }] });
    refused(
        &site.console_post("live", &[("Authorization", "Bearer acme/ada")], &body).await,
        404,
        "not_found",
    );
    // A tenant's own entries, and none of another tenant of the same name.
    let mut stream = site.live_as(&ada, topic("memory://data/team-a/k")).await;
    assert_eq!(next(&mut stream, ALL).await.unwrap().0, "caught-up");
    let surface = site.engine.catalog().surface();
    surface.updated_for("home", "memory://data/team-a/k");
    let silent = tokio::time::timeout(Duration::from_millis(600), next(&mut stream, ALL)).await;
    assert!(silent.is_err(), "{silent:?}");
    surface.updated_for("acme", "memory://data/team-a/k");
    assert_eq!(next(&mut stream, ALL).await.unwrap().0, "resource");
}
