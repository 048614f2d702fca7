//! What survives when the process dies in the middle.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use super::world::{World, many, until, waits};

#[test]
fn what_was_finished_before_a_crash_is_not_done_again() {
    let world = World::new();
    let first = world.life();
    let id = first.block_on(first.server.submit(json!({
        "operations": many(300, "files.write", |n| json!({ "path": "lines", "content": format!("o{n}\n"), "append": true })),
    })));
    let finished = first.block_on(async {
        let enough = |status: &Value| status["counts"]["succeeded"].as_u64() >= Some(100);
        first.server.when(&id, "a third is done", enough).await
    });
    first.cut();
    let finished: HashSet<String> = finished["operations"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|operation| operation["status"] == "succeeded")
        .map(|operation| operation["id"].as_str().unwrap().to_owned())
        .collect();
    assert!(finished.len() < 300, "it was cut in the middle");

    let second = world.life();
    let ended = second.block_on(second.server.ended(&id));
    assert_eq!(ended["counts"]["succeeded"], 300);
    let mut times: HashMap<String, usize> = HashMap::new();
    for line in world.lines("lines") {
        *times.entry(line).or_default() += 1;
    }
    assert_eq!(times.len(), 300, "everything was done");
    for id in &finished {
        assert_eq!(times[id], 1, "{id} was finished before the crash");
    }
    // What ran when it was cut, or waited for its commit, may have been done without being noted: how much that is
    // depends on the disk. It is done once more, and no more often.
    assert!(times.values().all(|count| *count <= 2), "{times:?}");
    let metrics = &ended["metrics"];
    assert!(
        metrics["wallMs"].as_f64().unwrap() > 0.0 && metrics["concurrency"].as_f64().unwrap() <= 5.01,
        "{metrics}"
    );

    let totals = second.block_on(second.server.read("batchtools://metrics/performance"));
    assert_eq!(totals["overall"]["optimizationsApplied"], 1, "counted once");
    let queue = second.block_on(second.server.read("batchtools://queue/status"));
    assert_eq!(queue["operations"], json!([]));
}

#[test]
fn a_call_that_was_under_way_is_found_again() {
    let world = World::new();
    let first = world.life();
    let call = json!({ "agent": "gauge", "input": { "ms": 400 } });
    let operations = many(3, "agent.call", |_| call.clone());
    let id = first.block_on(first.server.submit(json!({ "operations": operations })));
    first.block_on(until("the calls run", async || (world.gauge.calls() == 3).then_some(())));
    first.cut();
    let second = world.life();
    let ended = second.block_on(second.server.ended(&id));
    assert_eq!(ended["counts"]["succeeded"], 3);
    // The calls were cut in their step, which is begun again; but they are the same three tasks.
    let list = nuncio_engine::List { agent: Some("gauge".into()), page_size: 10, ..Default::default() };
    let tasks = second.block_on(second.server.engine.list(&second.server.caller, list)).unwrap();
    assert_eq!(tasks.total, 3);
}

#[test]
fn a_paused_batch_stays_paused_after_a_restart_and_settings_hold() {
    let world = World::new();
    let first = world.life();
    let id = first.block_on(async {
        first.server.call("batch_configure", json!({ "maxConcurrency": 2 })).await;
        let id = first.server.submit(json!({ "operations": waits(30, 30) })).await;
        first.server.when(&id, "some are done", |status| status["done"].as_f64() >= Some(4.0)).await;
        first.server.call("batch_pause", json!({ "batchId": id })).await;
        id
    });
    first.cut();

    let second = world.life();
    let server = &second.server;
    second.block_on(async {
        assert_eq!(server.read("batchtools://config/settings").await["maxConcurrency"], 2);
        let taken_up = |status: &Value| status["done"].as_f64() >= Some(4.0);
        let before = server.when(&id, "it is taken up", taken_up).await;
        assert_eq!(before["paused"], true);
        // Another one passes it by.
        let other = server.run(json!({ "operations": waits(20, 20) })).await;
        assert_eq!(other["counts"]["succeeded"], 20);
        let after = server.status(&id).await;
        assert!(after["done"].as_f64().unwrap() < 30.0, "{after}");
        assert_eq!((after["paused"].as_bool(), after["status"].as_str()), (Some(true), Some("working")));
        let queue = server.read("batchtools://queue/status").await;
        assert_eq!((queue["queueSize"].as_u64(), queue["activeBatches"].as_u64()), (Some(1), Some(0)));
        server.call("batch_resume", json!({ "batchId": id })).await;
        assert_eq!(server.ended(&id).await["counts"]["succeeded"], 30);
    });
}

#[test]
fn a_crash_while_chunks_are_joined_leaves_the_whole_file_and_no_parts() {
    let world = World::new();
    let content = "some words that come again and again\n".repeat(20_000);
    let first = world.life();
    let id = first.block_on(first.server.submit(json!({
        "strategy": "parallel_content_processing",
        "process": { "content": content, "operation": "compress", "chunkBytes": 1_024, "to": "out/joined.gz" },
    })));
    // From when the file is there until the batch has ended, its parts are being taken away.
    let started = std::time::Instant::now();
    while !world.file("out/joined.gz").exists() {
        assert!(started.elapsed().as_secs() < 120, "never joined");
        std::thread::yield_now();
    }
    first.cut();

    let second = world.life();
    let ended = second.block_on(second.server.ended(&id));
    assert_eq!(ended["status"], "completed", "{}", ended["message"]);
    let mut back = String::new();
    let file = std::fs::File::open(world.file("out/joined.gz")).unwrap();
    std::io::Read::read_to_string(&mut flate2::read::MultiGzDecoder::new(file), &mut back).unwrap();
    assert!(back == content, "{} bytes", back.len());
    assert_eq!(std::fs::read_dir(world.file("out")).unwrap().count(), 1, "no parts are left");
}

/// A rerun of a selection that is cut in the middle sends each message once, whatever was under way.
#[test]
fn a_rerun_that_is_cut_sends_each_message_once() {
    const COUNT: u64 = 100;
    let world = World::new();
    let first = world.life();
    let message = |n: u64| {
        let part = nuncio_engine::Part::data(json!({ "n": n }));
        nuncio_engine::Message::of(format!("m-{n}"), nuncio_engine::Role::User, vec![part])
    };
    let (engine, caller) = (first.server.engine.clone(), first.server.caller.clone());
    let total = async |engine: &nuncio_engine::Engine| {
        let list = nuncio_engine::List { agent: Some("adder".into()), page_size: 1, ..Default::default() };
        engine.list(&caller, list).await.unwrap().total
    };
    let id = first.block_on(async {
        for n in 0..COUNT {
            engine.submit(&caller, nuncio_engine::Submit::new("adder", message(n))).await.unwrap();
        }
        let query = nuncio_engine::engine::OverviewQuery {
            agents: vec!["adder".into()],
            limit: 1,
            ..Default::default()
        };
        let (selection, _) = engine.create_selection(&caller, &query).await.unwrap();
        assert_eq!(selection.tasks.len() as u64, COUNT);
        let rerun = json!({ "id": "o", "type": "task.rerun", "args": { "selection": selection.id } });
        let id = first.server.submit(json!({ "operations": [rerun] })).await;
        let began = async || (total(&engine).await > COUNT + COUNT / 5).then_some(());
        until("some were sent again", began).await;
        id
    });
    let sent = first.block_on(async { total(&engine).await });
    drop(engine);
    first.cut();
    assert!(sent < 2 * COUNT, "it was cut in the middle");

    let second = world.life();
    let ended = second.block_on(second.server.ended(&id));
    assert_eq!(ended["counts"]["succeeded"], COUNT, "{ended}");
    assert_eq!(second.block_on(async { total(&second.server.engine).await }), 2 * COUNT);
    let mut made: Vec<&str> = ended["operations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|operation| operation["output"]["newTaskId"].as_str().unwrap())
        .collect();
    made.sort_unstable();
    made.dedup();
    assert_eq!(made.len() as u64, COUNT, "each operation has a task of its own");
}
