//! What the resources show: the source's shapes, times that go by, and what is refused.

use std::time::Duration;

use nuncio_engine::{
    Caller,
    surface::{HandlerError, SurfaceChange},
};
use nuncio_flows::memory::MemoryOptions;
use serde_json::json;

use super::{Bank, invalid, me, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_and_values_have_the_shape_of_the_source() {
    let bank = Bank::new().await;
    bank.call(
        "memory_store",
        json!({ "namespace": "sparc-workflow", "key": "task:123:specification", "value": { "goal": "tea" }, "ttl": 3600 }),
    )
    .await;
    bank.clock.advance(Duration::from_secs(60));
    bank.store("sparc-workflow", "task:124", json!([1, 2])).await;
    bank.clock.advance(Duration::from_secs(60));

    let (data, meta) =
        bank.read_as(&me(), "memory://data/sparc-workflow/task:123:specification").await.unwrap();
    assert_eq!(
        data,
        json!({
            "key": "task:123:specification",
            "value": { "goal": "tea" },
            "metadata": {
                "namespace": "sparc-workflow",
                "created": "2023-11-14T22:13:20.000Z",
                "updated": "2023-11-14T22:13:20.000Z",
                "accessed": "2023-11-14T22:15:20.000Z",
                "accessCount": 1,
                "ttl": 3600,
                "version": 1,
                "size": 14,
            },
        })
    );
    assert_eq!(
        serde_json::Value::Object(meta),
        json!({
            "resourceId": "memory://data/sparc-workflow/task%3A123%3Aspecification",
            "type": "memory",
            "lastModified": "2023-11-14T22:13:20.000Z",
            "cachePolicy": "dynamic",
            "permissions": ["read", "write"],
            "schema": "http://here/schemas/memory-data.json",
        })
    );

    let (keys, meta) = bank.read_as(&me(), "memory://namespace/sparc-workflow/keys").await.unwrap();
    assert_eq!(
        keys,
        json!({
            "namespace": "sparc-workflow",
            "keys": [
                {
                    "key": "task:123:specification",
                    "created": "2023-11-14T22:13:20.000Z",
                    "accessed": "2023-11-14T22:15:20.000Z",
                    "size": 14,
                    "ttl": 3600,
                },
                {
                    "key": "task:124",
                    "created": "2023-11-14T22:14:20.000Z",
                    "accessed": "2023-11-14T22:14:20.000Z",
                    "size": 5,
                    "ttl": null,
                },
            ],
            "stats": { "total": 2, "size": 19, "oldestEntry": "2023-11-14T22:13:20.000Z" },
        })
    );
    assert_eq!(meta["lastModified"], "2023-11-14T22:14:20.000Z");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_keys_lead_from_one_to_the_next() {
    let bank = Bank::new().await;
    for n in 0..25 {
        bank.store("n", &format!("a/{n:02}"), json!(n)).await;
    }
    bank.store("n", "b", json!(0)).await;
    let mut uri = "memory://namespace/n/keys?limit=10&prefix=a%2F".to_owned();
    let mut pages = vec![];
    loop {
        let page = bank.read(&uri).await.unwrap();
        assert_eq!(page["stats"]["total"], 26, "the stats are of all of it");
        let keys = page["keys"].as_array().unwrap();
        pages.push(keys.iter().map(|key| key["key"].as_str().unwrap().to_owned()).collect::<Vec<_>>());
        match page.get("next") {
            Some(next) => uri = next.as_str().unwrap().to_owned(),
            None => break,
        }
    }
    assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), [10, 10, 5]);
    let all: Vec<String> = (0..25).map(|n| format!("a/{n:02}")).collect();
    assert_eq!(pages.concat(), all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_there_is_not_found_and_what_is_wrong_is_said() {
    let bank = Bank::new().await;
    bank.store("n", "k", json!(1)).await;
    for uri in [
        "memory://data/n/other",
        "memory://data/other/k",
        "memory://namespace/other/keys",
        "memory://data/n/a/k",
        "memory://data/n",
        "memory://data//k",
        "memory://other/n",
    ] {
        let error = bank.read(uri).await.unwrap_err();
        assert_eq!(error, HandlerError::NotFound(uri.into()));
    }
    let (long_name, long_key, long_pattern) = ("n".repeat(129), "k".repeat(513), "p".repeat(257));
    for (uri, words) in [
        ("memory://namespace/n/keys?limit=0", "limit: from 1 to 1000"),
        ("memory://namespace/n/keys?limit=1001", "limit: from 1 to 1000"),
        ("memory://namespace/n/keys?limit=x", "limit: a whole number"),
        ("memory://namespace/n/keys?page=1", "\"page\": this resource takes no query of that name"),
        ("memory://search/n", "pattern: must be given"),
        ("memory://search/n?pattern=a&text=b", "give one of them"),
        ("memory://search/n?pattern=a&page=0", "page: pages are counted from 1"),
        ("memory://search/n?pattern=a&page=-1", "page: a whole number"),
        ("memory://search/n?pattern=a&limit=101", "limit: from 1 to 100"),
        ("memory://search/n?pattern=a&limit=0", "limit: from 1 to 100"),
        ("memory://search/n?pattern=", "pattern: must not be empty"),
        ("memory://search/n?pattern=%5Ba", "pattern: has a [ that is not closed"),
        ("memory://search/n?pattern=***a***b***", "pattern_stars"),
        ("memory://search/n?text=%20", "text: has no letters or digits"),
        ("memory://search/n?pattern=a&sort=b", "\"sort\": this resource takes no query"),
        ("memory://data/n/a%00b", "key: has the control character U+0000"),
        (&format!("memory://data/{long_name}/k"), "namespace_bytes"),
        (&format!("memory://namespace/{long_name}/keys"), "namespace_bytes"),
        (&format!("memory://data/n/{long_key}"), "key_bytes"),
        (&format!("memory://namespace/n/keys?prefix={long_key}"), "prefix: has 513 bytes"),
        (&format!("memory://search/n?pattern={long_pattern}"), "pattern_bytes"),
        (&format!("memory://search/n?text={long_pattern}"), "pattern_bytes"),
    ] {
        let why = invalid(bank.read(uri).await);
        assert!(why.contains(words), "{uri}: {why}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_whose_time_has_come_is_gone_from_every_view() {
    let bank = Bank::new().await;
    let short = json!({ "namespace": "n", "key": "short", "value": "fleeting words", "ttl": 60 });
    bank.call("memory_store", short.clone()).await;
    bank.store("n", "long", json!("lasting words")).await;
    bank.store("m", "k", json!("fleeting")).await;
    bank.clock.advance(Duration::from_millis(59_999));
    assert_eq!(bank.read("memory://data/n/short").await.unwrap()["metadata"]["ttl"], 60);
    // Written again, its time begins again.
    bank.call("memory_store", short.clone()).await;
    bank.clock.advance(Duration::from_millis(59_999));
    let seen = bank.read("memory://search/n?text=words").await.unwrap();
    assert_eq!(seen["pagination"]["total"], 2);

    bank.clock.advance(Duration::from_millis(1));
    let gone = bank.read("memory://data/n/short").await.unwrap_err();
    assert_eq!(gone, HandlerError::NotFound("memory://data/n/short".into()));
    let keys = bank.read("memory://namespace/n/keys").await.unwrap();
    assert_eq!((keys["keys"].as_array().unwrap().len(), &keys["stats"]["total"]), (1, &json!(1)));
    for query in ["pattern=*", "pattern=short", "text=words", "text=fleeting"] {
        let found = bank.read(&format!("memory://search/n?{query}")).await.unwrap();
        let keys: Vec<_> = found["results"].as_array().unwrap().iter().map(|one| &one["key"]).collect();
        let expected = usize::from(matches!(query, "pattern=*" | "text=words"));
        assert_eq!((keys.len(), &found["pagination"]["total"]), (expected, &json!(expected)), "{query}");
    }
    let exported = bank.call("memory_export", json!({ "namespace": "n" })).await;
    assert_eq!(exported["count"], 1);
    let templates = bank.engine.catalog().surface().templates();
    let known = [("namespace".to_owned(), "n".to_owned())].into();
    assert_eq!(templates[1].handler.complete(&me(), "key", "", &known).await, ["long"]);
    // A namespace of nothing but such entries is none.
    bank.call("memory_delete", json!({ "namespace": "n", "key": "long" })).await;
    assert!(bank.read("memory://namespace/n/keys").await.is_err());
    assert_eq!(bank.call("memory_list", json!({})).await, json!({ "namespaces": ["m"] }));
    // And the key is free again.
    let mut again = short;
    again["expectedVersion"] = 0.into();
    assert_eq!(bank.call("memory_store", again).await["version"], 1);
    assert_eq!(bank.read("memory://data/n/short").await.unwrap()["metadata"]["accessCount"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_are_told_of_their_own_tenant_and_of_nothing_else() {
    let bank =
        Bank::with(|options| options.sweep_poll = Duration::from_millis(5), MemoryOptions::default()).await;
    let mut changes = bank.engine.catalog().surface().changes();
    let mut heard = |tenant: &str, uri: &str| {
        let mut count = 0;
        while let Ok(change) = changes.try_recv() {
            count += usize::from(
                matches!(change, SurfaceChange::Updated(updated) if updated.concerns(tenant, uri)),
            );
        }
        count
    };
    let followed = [
        "memory://data/n/task:1",
        "memory://data/n/task%3A1",
        "memory://namespace/n/keys",
        "memory://namespace/n/keys?after=x&limit=3",
        "memory://search/n?pattern=task*",
    ];
    for uri in followed {
        bank.store("n", "task:1", json!(1)).await;
        assert_eq!(heard("home", uri), 1, "{uri}: written");
        bank.call("memory_delete", json!({ "namespace": "n", "key": "task:1" })).await;
        assert_eq!(heard("home", uri), 1, "{uri}: deleted");
        bank.call("memory_delete", json!({ "namespace": "n", "key": "task:1" })).await;
        assert_eq!(heard("home", uri), 0, "{uri}: it was not there");
        bank.store("n", "task:1", json!(1)).await;
        heard("home", uri);
        bank.call("memory_clear", json!({ "namespace": "n", "confirm": true })).await;
        assert_eq!(heard("home", uri), 1, "{uri}: cleared");
        let fleeting = json!({ "namespace": "n", "key": "task:1", "value": 1, "ttl": 1 });
        bank.call("memory_store", fleeting).await;
        assert_eq!(heard("home", uri), 1);
        bank.read("memory://data/n/task:1").await.unwrap();
        assert_eq!(heard("home", uri), 0, "{uri}: a read tells nobody");
        bank.clock.advance(Duration::from_secs(1));
        until("its follower is told that it has expired", async || (heard("home", uri) == 1).then_some(()))
            .await;

        let other = Caller::named("acme/ada");
        let same = json!({ "namespace": "n", "key": "task:1", "value": 1 });
        bank.call_as(&other, "memory_store", same).await.unwrap();
        assert_eq!(heard("home", uri), 0, "{uri}: another tenant's");
        bank.store("m", "task:1", json!(1)).await;
        assert_eq!(heard("home", uri), 0, "{uri}: another namespace's");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_are_counted_before_they_are_written_and_after() {
    let bank =
        Bank::with(|options| options.reads_flush = Duration::from_millis(20), MemoryOptions::default()).await;
    bank.store("n", "k", json!(1)).await;
    let count = async || bank.read("memory://data/n/k").await.unwrap()["metadata"]["accessCount"].as_u64();
    for expected in 1..=40 {
        assert_eq!(count().await, Some(expected));
    }
    let key =
        nuncio_engine::knowledge::MemoryKey { tenant: "home".into(), namespace: "n".into(), key: "k".into() };
    until("all of them are in the store", async || {
        let now = bank.engine.clock().now();
        let kept = bank.engine.store_for_tests().knowledge().memory(&key, now).await.unwrap().unwrap();
        (kept.reads == 40).then_some(())
    })
    .await;
    let found = bank.read("memory://search/n?pattern=k").await.unwrap();
    assert_eq!(found["results"][0]["metadata"]["accessCount"], 40, "a search is no read");
    assert_eq!(count().await, Some(41));
}
