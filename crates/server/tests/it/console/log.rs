//! Pages of a log, single events, the task as of an event, and an event in every dialect.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use nuncio_engine::{
    Agent, AgentError, Caller, Chunk, Message, Outcome, Profile, Role, Submit, Task, TaskContext,
    event::Entry,
};
use serde_json::{Value, json};

use super::refused;
use crate::{
    site::{Setup, Site, message},
    socket::{get, within},
};

const COUNT: u64 = 300;

/// A finished task with many events, and its log as the API shows it.
async fn many_events(site: &Site) -> (String, Vec<Value>) {
    let id = site.begin(&format!("chunks {COUNT}")).await;
    site.until_state(&id, "COMPLETED").await;
    let mut events = vec![];
    loop {
        let page =
            site.shown(&format!("tasks/{id}/events?after={}&limit=100&preview=1000", events.len())).await;
        events.extend(page["events"].as_array().unwrap().iter().cloned());
        if page["after"] == page["last"] {
            assert_eq!(page["ended"], true);
            return (id, events);
        }
    }
}

#[tokio::test]
async fn a_log_is_read_in_pages_from_both_ends() {
    let site = Site::new().await;
    let (id, all) = many_events(&site).await;
    let numbers: Vec<u64> = all.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=all.len() as u64).collect::<Vec<_>>());
    assert!(numbers.len() as u64 > COUNT);
    let last = all.len() as u64;

    let mut backward: Vec<Value> = vec![];
    let mut before = u64::MAX >> 11;
    while before > 1 {
        let page = site.shown(&format!("tasks/{id}/events?before={before}&limit=70&preview=1000")).await;
        let events = page["events"].as_array().unwrap();
        backward.splice(0..0, events.iter().cloned());
        before = page["before"].as_u64().unwrap();
        assert_eq!(before, events[0]["seq"].as_u64().unwrap());
    }
    assert_eq!(backward, all);

    let artifacts = site.shown(&format!("tasks/{id}/events?kind=artifact&limit=1000&preview=1000")).await;
    let expected: Vec<&Value> = all.iter().filter(|event| event["type"] == "artifact").collect();
    assert_eq!(artifacts["events"].as_array().unwrap().iter().collect::<Vec<_>>(), expected);
    let tail =
        site.shown(&format!("tasks/{id}/events?kind=artifact&before={last}&limit=2&preview=1000")).await;
    assert_eq!(tail["events"].as_array().unwrap().iter().collect::<Vec<_>>(), expected[expected.len() - 2..]);
    // Where a filter hides everything, the page still says how far it read.
    let none = site.shown(&format!("tasks/{id}/events?kind=withdrawn")).await;
    assert_eq!((&none["events"], &none["after"]), (&json!([]), &json!(last)));

    let error = site
        .console_refuses(&format!("tasks/{id}/events?after={}", last + 1), &[], 409, "cursor_beyond")
        .await;
    assert_eq!(error["last"], last);
    for query in ["after=x", "after=1&before=3", "limit=0", "limit=1001", "kind=gossip", "preview=1048577"] {
        site.console_refuses(&format!("tasks/{id}/events?{query}"), &[], 400, "bad_request").await;
    }
}

#[tokio::test]
async fn large_data_is_previewed_and_fetched_by_ranges() {
    let site = Site::new().await;
    let text = "ä".repeat(30_000);
    let task = site.result("1.0", "SendMessage", json!({ "message": message(&text) })).await["task"].take();
    let id = task["id"].as_str().unwrap();
    let page = site.shown(&format!("tasks/{id}/events?preview=101")).await;
    let first = &page["events"][0];
    assert!(first.get("data").is_none());
    let preview = first["preview"].as_str().unwrap();
    assert!((99..=101).contains(&preview.len()), "cut between characters: {}", preview.len());
    let whole = site.shown(&format!("tasks/{id}/events/1")).await;
    assert_eq!(whole["data"]["parts"][0]["text"], *text);
    let data = site.console(&format!("tasks/{id}/events/1?part=data"), &[]).await;
    assert_eq!(data.body.len() as u64, first["size"].as_u64().unwrap());
    assert!(data.text().starts_with(preview));
    let part = get(&format!("/console/api/tasks/{id}/events/1?part=data"), &[("Range", "bytes=5-14")]);
    let part = site.send(part).await;
    assert_eq!((part.status, &part.body[..]), (206, &data.body[5..15]));
    assert_eq!(part.header("content-range"), format!("bytes 5-14/{}", data.body.len()));
    for seq in ["0", "99"] {
        site.console_refuses(&format!("tasks/{id}/events/{seq}"), &[], 404, "not_found").await;
    }
}

/// The task as of every event is the engine's fold of the events up to it, as the API shows them.
#[tokio::test]
async fn the_task_as_of_any_event_is_the_fold_of_the_events_before() {
    let site = Site::new().await;
    for text in ["chunks 30", "fail it broke", "ask", "hello"] {
        let id = site.begin(text).await;
        let state = match text {
            "fail it broke" => "FAILED",
            "ask" => "INPUT_REQUIRED",
            _ => "COMPLETED",
        };
        site.until_state(&id, state).await;
        let log = site.shown(&format!("tasks/{id}/events?limit=1000&preview=100000")).await;
        let start: Value = site.shown(&format!("tasks/{id}/at/0")).await;
        let mut folded: Task = serde_json::from_value(start["task"].clone()).unwrap();
        assert_eq!((folded.seq, folded.history.len()), (0, 0));
        for event in log["events"].as_array().unwrap() {
            let at: i64 = nuncio_wire::timestamp::parse(event["timestamp"].as_str().unwrap()).unwrap().0;
            let entry: Entry =
                serde_json::from_value(json!([at, { event["type"].as_str().unwrap(): event["data"] }]))
                    .unwrap();
            folded = folded.fold([&entry]);
            let shown = site.shown(&format!("tasks/{id}/at/{}", event["seq"])).await;
            assert_eq!(shown["task"], serde_json::to_value(&folded).unwrap(), "{text} at {}", event["seq"]);
        }
        let last = log["last"].as_u64().unwrap();
        site.console_refuses(&format!("tasks/{id}/at/{}", last + 1), &[], 409, "cursor_beyond").await;
    }
}

/// A frame is the very data that a follower in that dialect gets.
#[tokio::test]
async fn an_event_on_the_wire_is_what_its_followers_get() {
    let site = Site::new().await;
    let id = site.begin("chunks 5").await;
    site.until_state(&id, "COMPLETED").await;
    for (version, name, method) in
        [("1.0", "a2a-1.0", "SubscribeToTask"), ("0.3", "a2a-0.3", "tasks/resubscribe")]
    {
        let headers = [("A2A-Version", version), ("Last-Event-ID", "1")];
        let mut stream = site.stream_with(&headers, method, json!({ "id": id })).await;
        let mut compared = 0;
        while let Some((seq, data)) = stream.next().await {
            let seq = seq.unwrap();
            let wire = site.shown(&format!("tasks/{id}/wire/{seq}?as={name}")).await;
            let text = wire["frames"][0]["text"].as_str().unwrap();
            assert_eq!(serde_json::from_str::<Value>(text).unwrap(), data, "{name} {seq}");
            compared += 1;
        }
        assert!(compared >= 6, "{name}: {compared}");
    }
    let all = site.shown(&format!("tasks/{id}/wire/3")).await;
    let names: Vec<&str> =
        all["frames"].as_array().unwrap().iter().map(|frame| frame["as"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "a2a-0.1",
            "a2a-0.3",
            "a2a-1.0",
            "mcp-2024-11-05",
            "mcp-2025-03-26",
            "mcp-2025-06-18",
            "mcp-2025-11-25",
            "mcp-2026-07-28",
            "webhook"
        ]
    );
    for frame in all["frames"].as_array().unwrap() {
        assert!(
            frame["text"].is_string() != frame["why"].is_string(),
            "a frame, or why there is none: {frame}"
        );
    }
    site.console_refuses(&format!("tasks/{id}/wire/3?as=xmpp"), &[], 400, "bad_request").await;
    site.console_refuses(&format!("tasks/{id}/wire/999"), &[], 404, "not_found").await;
}

const MIB: u64 = 1024 * 1024;

/// Writes pieces of 100 kB, as many as the message says.
struct LargePieces;

#[async_trait]
impl Agent for LargePieces {
    fn profile(&self) -> Profile {
        Profile::new("large", "Writes large pieces.")
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        let count: usize = cx.text().parse().map_err(AgentError::failed)?;
        for _ in 0..count {
            cx.artifact(Chunk::text("large", "x".repeat(100_000))).await?;
        }
        Ok(Outcome::done())
    }
}

/// A site with a finished task whose log has pieces of 100 kB, and the task's id.
async fn large_log(count: usize, change: impl FnOnce(&mut Setup)) -> (Site, String) {
    let site = Site::with(|setup| {
        setup.agents.push(Arc::new(LargePieces));
        change(setup);
    })
    .await;
    let submit = Submit::new("large", Message::text("m", Role::User, count.to_string()));
    let id = site.engine.submit(&Caller::local(), submit).await.unwrap().origin.id.to_string();
    site.until_state(&id, "COMPLETED").await;
    (site, id)
}

/// Backward as forward, a page ends after so many bytes of content, however little of it is shown.
#[tokio::test]
async fn a_page_is_bounded_by_the_content_of_its_events() {
    let (site, id) = large_log(40, |_| {}).await;
    for kinds in ["", "&kind=artifact&kind=message"] {
        let (mut seen, mut before) = (vec![], u64::MAX >> 11);
        while before > 1 {
            let path = format!("tasks/{id}/events?before={before}&limit=1000&preview=0{kinds}");
            let page = site.shown(&path).await;
            let events = page["events"].as_array().unwrap();
            let bytes: u64 = events.iter().map(|event| event["size"].as_u64().unwrap()).sum();
            assert!(bytes <= MIB + 100 * 1024, "{bytes} bytes of content are on one page");
            let numbers = events.iter().map(|event| event["seq"].as_u64().unwrap());
            seen.splice(0..0, numbers);
            before = page["before"].as_u64().unwrap();
            assert!(before <= seen[0], "{page}");
        }
        let page = site.shown(&format!("tasks/{id}/events?limit=1000{kinds}")).await;
        assert!(page["events"].as_array().unwrap().len() < 40, "forward it ends as well");
        let shown = if kinds.is_empty() { page["last"].as_u64().unwrap() } else { 41 };
        assert_eq!(seen.len() as u64, shown, "nothing is left out: {seen:?}");
        assert!(seen.is_sorted_by(|a, b| a < b));
    }
}

/// An event in every dialect is as many frames, which are in memory together.
#[tokio::test]
async fn the_frames_of_an_event_are_reserved_before_they_are_made() {
    let (site, id) = large_log(1, |setup| {
        setup.options.bytes_in_flight = 16 * MIB;
        setup.options.bytes_in_flight_per_caller = 4 * MIB;
    })
    .await;
    let caller = Caller::local();
    let events = site.shown(&format!("tasks/{id}/events")).await["events"].take();
    let artifact = events.as_array().unwrap().iter().find(|event| event["type"] == "artifact").unwrap();
    let wire = format!("tasks/{id}/wire/{}", artifact["seq"]);
    // What is left has room for the reading of the log, and for some of the frames.
    let held = site.engine.charge_bytes(&caller, 3 * MIB);
    let mut waiting: Vec<_> =
        (0..256).map(|_| Box::pin(site.engine.reserve_bytes(&caller, 4 * MIB))).collect();
    assert!(waiting.iter_mut().all(|reservation| reservation.as_mut().now_or_never().is_none()));
    let one = site.shown(&format!("{wire}?as=webhook")).await;
    assert_eq!(one["frames"].as_array().unwrap().len(), 1);
    let error = site.console_refuses(&wire, &[], 503, "busy").await;
    assert!(error["message"].as_str().unwrap().contains("bytes-in-flight"), "{error}");
    drop((held, waiting));
    let all = site.shown(&wire).await;
    assert!(all["frames"].to_string().len() > 500_000, "many frames of 100 kB");
    within("the release of all bytes", async {
        while site.engine.bytes_in_flight() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// What is read of a log, and the body of a request, is counted before it is in memory.
#[tokio::test]
async fn a_caller_that_holds_all_its_bytes_reads_no_log_and_sends_no_body() {
    let (site, id) = large_log(3, |setup| {
        setup.options.bytes_in_flight = 4 * MIB;
        setup.options.bytes_in_flight_per_caller = MIB;
    })
    .await;
    let caller = Caller::local();
    let held = site.engine.charge_bytes(&caller, MIB);
    // As many reservations as may wait: the next one is refused at once.
    let mut waiting: Vec<_> = (0..256).map(|_| Box::pin(site.engine.reserve_bytes(&caller, MIB))).collect();
    assert!(waiting.iter_mut().all(|reservation| reservation.as_mut().now_or_never().is_none()));
    let reads = ["events?before=9", "events?after=0", "events/3", "events/3?part=data", "wire/3", "at/3"];
    for read in reads {
        let error = site.console_refuses(&format!("tasks/{id}/{read}"), &[], 503, "busy").await;
        assert!(error["message"].as_str().unwrap().contains("bytes-in-flight"), "{error}");
    }
    let answer = json!({ "questionId": "q", "action": "accept", "content": { "text": "x".repeat(100_000) } });
    refused(&site.console_post(&format!("tasks/{id}/answers"), &[], &answer).await, 503, "busy");
    // What holds nothing goes on.
    site.shown("tasks").await;
    drop((held, waiting));
    for read in reads {
        site.shown(&format!("tasks/{id}/{read}")).await;
    }
    assert_eq!(site.console_post(&format!("tasks/{id}/answers"), &[], &answer).await.status, 409);
    within("the release of all bytes", async {
        while site.engine.bytes_in_flight() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
