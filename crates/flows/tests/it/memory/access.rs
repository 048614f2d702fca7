//! Who may do what, and that a refusal says nothing about what there is.

use futures_util::StreamExt as _;
use nuncio_engine::{
    AccessKind, Caller, Grants, Rate,
    knowledge::{AuditQuery, ExpectedVersion},
    surface::HandlerError,
};
use nuncio_flows::memory::MemoryOptions;
use serde_json::{Value, json};

use super::{Bank, me};

fn limited(scopes: &str) -> Caller {
    Caller::named("ada").limited_to(Grants::parse(scopes).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_reads_what_it_was_granted_and_is_refused_the_rest_whether_it_is_there_or_not() {
    let bank = Bank::new().await;
    for namespace in ["team-a", "team-b", "private"] {
        bank.store(namespace, "k", json!("word")).await;
    }
    let ada = limited("read:memory:team-*");
    let (_, meta) = bank.read_as(&ada, "memory://data/team-a/k").await.unwrap();
    assert_eq!(meta["permissions"], json!(["read"]));
    for namespace in ["private", "nowhere"] {
        let expected = HandlerError::Forbidden(format!("read:memory:{namespace}"));
        for uri in [
            format!("memory://data/{namespace}/k"),
            format!("memory://data/{namespace}/other"),
            format!("memory://namespace/{namespace}/keys"),
            format!("memory://search/{namespace}?pattern=*"),
            format!("memory://search/{namespace}?text=word"),
        ] {
            assert_eq!(bank.read_as(&ada, &uri).await.unwrap_err(), expected, "{uri}");
        }
        for (tool, arguments) in [
            ("memory_get", json!({ "namespace": namespace, "key": "k" })),
            ("memory_list", json!({ "namespace": namespace })),
            ("memory_search", json!({ "namespace": namespace, "pattern": "*" })),
            ("memory_export", json!({ "namespace": namespace })),
        ] {
            assert_eq!(bank.call_as(&ada, tool, arguments).await.unwrap_err(), expected, "{tool}");
        }
    }
    for (tool, arguments) in [
        ("memory_store", json!({ "namespace": "team-a", "key": "k", "value": 1 })),
        ("memory_delete", json!({ "namespace": "team-a", "key": "k" })),
        ("memory_clear", json!({ "namespace": "team-a", "confirm": true })),
        ("memory_import", json!({ "namespace": "team-a", "lines": "", "mode": "keep" })),
    ] {
        let refused = bank.call_as(&ada, tool, arguments).await.unwrap_err();
        assert_eq!(refused, HandlerError::Forbidden("write:memory:team-a".into()), "{tool}");
    }
    let listed = bank.call_as(&ada, "memory_list", json!({})).await.unwrap().structured.unwrap();
    assert_eq!(listed, json!({ "namespaces": ["team-a", "team-b"] }));
    let nobody = limited("read:sparc");
    let refused = bank.call_as(&nobody, "memory_list", json!({})).await.unwrap_err();
    assert_eq!(refused, HandlerError::Forbidden("read:memory".into()));

    bank.engine.flush_audit().await;
    let query = AuditQuery { caller: Some("ada".into()), refused: true, limit: 100, ..AuditQuery::default() };
    let lines = bank.engine.store_for_tests().knowledge().audit(&query).await.unwrap().entries;
    assert_eq!(lines.len(), 2 * (5 + 4) + 4 + 1, "each of them is in the audit");
    let said: Vec<(&str, &str)> =
        lines.iter().map(|(_, line)| (&*line.operation, line.resource.as_str())).collect();
    for line in [
        ("memory.get", "memory://data/private/k"),
        ("memory.list", "memory://namespace/nowhere/keys"),
        ("memory.search", "memory://search/private?"),
        ("memory.export", "memory://namespace/private/keys"),
        ("memory.store", "memory://data/team-a/k"),
        ("memory.delete", "memory://data/team-a/k"),
        ("memory.clear", "memory://namespace/team-a/keys"),
        ("memory.import", "memory://namespace/team-a/keys"),
    ] {
        assert!(said.contains(&line), "{line:?} in {said:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_of_namespaces_never_names_what_the_caller_may_not_read() {
    let bank = Bank::new().await;
    let memory = bank.engine.memory();
    let own = ["a-mine", "z-mine", "~other"].map(str::to_owned);
    let names = (0..9_997).map(|n| format!("other-{n:05}")).chain(own);
    futures_util::stream::iter(names)
        .for_each_concurrent(500, async |name| {
            memory.store(&me(), &name, "k", &json!(1), None, ExpectedVersion::Any).await.unwrap();
        })
        .await;
    let ada = limited("read:memory:*-mine");
    let list =
        async |given: Value| bank.call_as(&ada, "memory_list", given).await.unwrap().structured.unwrap();
    assert_eq!(list(json!({})).await, json!({ "namespaces": ["a-mine", "z-mine"] }));
    assert_eq!(list(json!({ "limit": 1 })).await, json!({ "namespaces": ["a-mine"], "next": "a-mine" }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_belongs_to_another_tenant_does_not_exist() {
    let bank = Bank::new().await;
    bank.store("n", "k", json!("word")).await;
    let other = Caller::named("acme/ada");
    for uri in ["memory://data/n/k", "memory://namespace/n/keys"] {
        assert_eq!(bank.read_as(&other, uri).await.unwrap_err(), HandlerError::NotFound(uri.into()));
    }
    for query in ["pattern=*", "text=word"] {
        let (found, _) = bank.read_as(&other, &format!("memory://search/n?{query}")).await.unwrap();
        assert_eq!(found["pagination"]["total"], 0);
    }
    let said = async |caller: &Caller, tool: &str, arguments: Value| {
        bank.call_as(caller, tool, arguments).await.map(|output| output.structured.unwrap())
    };
    assert_eq!(said(&other, "memory_list", json!({})).await.unwrap(), json!({ "namespaces": [] }));
    let cleared = said(&other, "memory_clear", json!({ "namespace": "n", "confirm": true })).await.unwrap();
    assert_eq!(cleared["cleared"], 0);
    let deleted = said(&other, "memory_delete", json!({ "namespace": "n", "key": "k" })).await.unwrap();
    assert_eq!(deleted["deleted"], false);
    let first = json!({ "namespace": "n", "key": "k", "value": "theirs", "expectedVersion": 0 });
    assert_eq!(said(&other, "memory_store", first).await.unwrap()["version"], 1);
    assert_eq!(bank.read("memory://data/n/k").await.unwrap()["value"], "word");
    let (theirs, _) = bank.read_as(&other, "memory://data/n/k").await.unwrap();
    assert_eq!(theirs["value"], "theirs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn completions_are_of_what_the_caller_may_read() {
    let bank = Bank::new().await;
    for namespace in ["team-a", "team-b", "private"] {
        for key in ["one", "other", "two/three"] {
            bank.store(namespace, key, json!(1)).await;
        }
    }
    for n in 0..150 {
        bank.store("team-c", &format!("k{n:03}"), json!(n)).await;
    }
    let ada = limited("read:memory:team-*");
    let complete = async |variable: &str, typed: &str, namespace: Option<&str>| {
        let known = namespace.map(|name| ("namespace".to_owned(), name.to_owned())).into_iter().collect();
        let mut all = vec![];
        for template in bank.engine.catalog().surface().templates() {
            all.push(template.handler.complete(&ada, variable, typed, &known).await);
        }
        assert!(all.iter().all(|one| *one == all[0]), "{all:?}");
        all.remove(0)
    };
    assert_eq!(complete("namespace", "", None).await, ["team-a", "team-b", "team-c"]);
    assert_eq!(complete("namespace", "p", None).await, [""; 0]);
    assert_eq!(complete("key", "o", Some("team-a")).await, ["one", "other"]);
    assert_eq!(complete("key", "o", Some("private")).await, [""; 0]);
    assert_eq!(complete("key", "", None).await, [""; 0]);
    assert_eq!(complete("key", "k", Some("team-c")).await.len(), 100);
    assert_eq!(complete("page", "", Some("team-a")).await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_too_fast_is_told_when_to_come_again() {
    let rate: Rate = "5/s".parse().unwrap();
    let bank = Bank::with(
        |options| options.access.rates = vec![(AccessKind::Memory, rate)],
        MemoryOptions::default(),
    )
    .await;
    for n in 0..5 {
        bank.store("n", &n.to_string(), json!(n)).await;
    }
    let error = bank.read_as(&me(), "memory://data/n/0").await.unwrap_err();
    assert!(matches!(error, HandlerError::Later { too_fast: true, .. }), "{error:?}");
    bank.read_as(&Caller::named("bob"), "memory://data/n/0").await.expect("another has a rate of its own");
}
