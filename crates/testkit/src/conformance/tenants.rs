//! Checks of the operator's actions across owners.

use std::{sync::Arc, time::Duration};

use nuncio_engine::{
    access::{AccessKind, Action},
    clock::Timestamp,
    knowledge::{
        AuditEntry, AuditQuery, ExpectedVersion, MemoryKey, MemoryPut, MemoryQuery, MemorySearch, RecordKey,
        RecordWrite,
    },
    store::{JournalRecord, ListCursor, ListQuery, NewTask, RunChange, Session, Store, TaskKey, TaskNo},
    task::{State, TaskId},
    tenant_store::{MeasuredTasks, TenantTasks},
};

use super::{
    fixtures::{StoreFixtureExt, at, by_runner, create_as, events, new_task, node, webhook},
    knowledge_memory::put,
};

async fn make(store: &Arc<dyn Store>, owner: &str, agent: &str, state: State, ms: i64) -> TaskId {
    let new = NewTask { owner: owner.into(), agent: agent.into(), ..new_task() };
    store.create_task(create_as(new.clone(), state, at(ms), RunChange::Rest)).await;
    new.id
}

fn all_of(tenant: Option<&str>) -> TenantTasks {
    TenantTasks { tenant: tenant.map(str::to_owned), limit: 100, ..TenantTasks::default() }
}

/// Counts what waits: tasks that ask, but not called ones, and the webhooks that are due.
pub async fn figures_count_what_waits(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    assert_eq!(store.figures(at(0)).await.unwrap().waiting_for_answer, 0);
    make(&store, "acme/ada", "echo", State::Completed, 10).await;
    make(&store, "acme/ada", "echo", State::Working, 20).await;
    let asking = make(&store, "acme/ada", "echo", State::InputRequired, 3_000).await;
    make(&store, "beta/bob", "echo", State::AuthRequired, 5_000).await;
    let called = NewTask { owner: "beta/bob".into(), parent: Some(asking), ..new_task() };
    store.create_task(create_as(called, State::InputRequired, at(1_000), RunChange::Rest)).await;
    let hooked = NewTask { webhooks: vec![webhook("hook")], ..new_task() };
    store.create_task(create_as(hooked, State::Working, at(20), RunChange::Rest)).await;

    let figures = store.figures(at(10_000)).await.unwrap();
    assert_eq!((figures.waiting_for_answer, figures.oldest_question), (2, Some(Duration::from_secs(7))));
    assert_eq!((figures.webhooks_due, figures.webhooks_failing, figures.dead_letters), (1, 0, 0));
    assert_eq!(figures.oldest_failure, None);
    assert!(figures.bytes > 0, "{figures:?}");
}

/// Lists the tasks of all owners of one tenant only, newest first, filtered and in pages.
pub async fn tasks_are_listed_by_tenant(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let known = store.tenants();
    let a = make(&store, "acme/ada", "echo", State::Completed, 10).await;
    let b = make(&store, "acme/bob", "other", State::Working, 20).await;
    let c = make(&store, "acme/ada", "echo", State::InputRequired, 30).await;
    // Names around the range, and a caller of the home tenant with the same name as the tenant.
    let near = make(&store, "acme-2/ada", "echo", State::Working, 40).await;
    make(&store, "acme0/ada", "echo", State::Working, 50).await;
    let home = make(&store, "acme", "echo", State::Working, 60).await;
    let ids = async |query: TenantTasks| {
        known.tenant_tasks(&query).await.unwrap().iter().map(|row| row.id).collect::<Vec<_>>()
    };
    assert_eq!(ids(all_of(Some("acme"))).await, [c, b, a]);
    assert_eq!(ids(all_of(Some("acme-2"))).await, [near]);
    assert_eq!(ids(all_of(Some("home"))).await, [home]);
    assert_eq!(ids(all_of(Some("nobody"))).await, []);
    assert_eq!(ids(all_of(None)).await.len(), 6);
    assert_eq!(ids(TenantTasks { live: true, ..all_of(Some("acme")) }).await, [c, b]);
    assert_eq!(ids(TenantTasks { state: Some(State::Completed), ..all_of(Some("acme")) }).await, [a]);
    assert_eq!(ids(TenantTasks { state: Some(State::Working), ..all_of(Some("acme")) }).await, [b]);
    assert_eq!(ids(TenantTasks { owner: Some("acme/ada".into()), ..all_of(Some("acme")) }).await, [c, a]);
    assert_eq!(ids(TenantTasks { owner: Some("acme".into()), ..all_of(Some("acme")) }).await, []);
    assert_eq!(ids(TenantTasks { agent: Some("other".into()), ..all_of(Some("acme")) }).await, [b]);
    assert_eq!(ids(TenantTasks { agent: Some("none".into()), ..all_of(Some("acme")) }).await, []);
    let (mut seen, mut after) = (vec![], None);
    loop {
        let page = known.tenant_tasks(&TenantTasks { after, limit: 2, ..all_of(None) }).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(ListCursor { status_at: last.status_at, no: last.no });
        seen.extend(page.iter().map(|row| row.status_at));
    }
    assert_eq!(seen, [60, 50, 40, 30, 20, 10].map(at));

    assert_eq!(known.owners("acme", "", 10).await.unwrap(), ["acme/ada", "acme/bob"]);
    assert_eq!(known.owners("acme", "acme/ada", 10).await.unwrap(), ["acme/bob"]);
    assert_eq!(known.owners("home", "", 10).await.unwrap(), ["acme"]);
    assert_eq!(known.tenant_names("", 10).await.unwrap(), ["acme", "acme-2", "acme0", "home"]);
    assert_eq!(known.tenant_names("acme-2", 1).await.unwrap(), ["acme0"]);
    store.knowledge().write_records(vec![record("zeta", "k", "1")]).await.unwrap();
    assert_eq!(known.tenant_names("home", 10).await.unwrap(), ["zeta"], "it has a record and no task");
}

/// A task is deleted with all its data, running or not; others stay, and totals are right.
pub async fn a_task_is_deleted_whole(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let new = NewTask {
        client_id: Some("mine".into()),
        idempotency: Some(("key".into(), [1; 32])),
        webhooks: vec![webhook("w")],
        ..new_task()
    };
    let mut change = create_as(new.clone(), State::Working, at(0), RunChange::Lease(node()));
    change.events = Some(events(3, "three"));
    let task = store.create_task(change).await;
    store.put_snapshot(task, 1, "fold".into()).await.unwrap();
    let kept = make(&store, "alice", "echo", State::Completed, 5).await;
    assert_eq!(store.tenants().delete_tasks(&[task]).await.unwrap(), 1);
    assert_eq!(store.tenants().delete_tasks(&[task]).await.unwrap(), 0, "once");
    assert!(store.row(&TaskKey::Id(new.id)).await.unwrap().is_none());
    assert!(store.log(task, 0, 1_000).await.unwrap().is_empty());
    assert!(store.webhooks(task).await.unwrap().is_empty());
    assert_eq!(store.next_delivery_due().await.unwrap(), None);
    assert_eq!(store.idempotent("alice", "key").await.unwrap(), None);
    store.commit_err(by_runner(task, 1)).await;
    store.row_of(kept).await;
    let query = ListQuery {
        owner: "alice".into(),
        context: None,
        state: None,
        agent: None,
        since: None,
        after: None,
        limit: 9,
        only_rows: true,
    };
    assert_eq!(store.list(&query).await.unwrap().total, 1);
    // Its client id and idempotency key can be used by another task.
    let (client_id, idempotency) = (new.client_id.clone(), new.idempotency.clone());
    let again = NewTask { client_id, idempotency, ..new_task() };
    store.create_task(create_as(again, State::Working, at(1), RunChange::Lease(node()))).await;
    drop(store);
    let store = open().await;
    assert!(store.row(&TaskKey::Id(new.id)).await.unwrap().is_none(), "also after a restart");
}

fn record(tenant: &str, kind: &str, id: &str) -> RecordWrite {
    RecordWrite {
        key: RecordKey::new(tenant, kind, id),
        body: Some(format!("{tenant} {kind} {id}").into()),
        expected: ExpectedVersion::Any,
        expires_at: (id == "2").then(|| at(1)),
        now: at(0),
    }
}

/// Records of every kind and sessions of one tenant are read and deleted; those of others stay.
pub async fn what_a_tenant_has_is_deleted(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let known = store.tenants();
    for tenant in ["acme", "other"] {
        let writes =
            [("a", "1"), ("a", "2"), ("b", "1"), ("c", "é")].map(|(kind, id)| record(tenant, kind, id));
        store.knowledge().write_records(writes.to_vec()).await.unwrap();
    }
    let names = async |after| {
        let page = known.tenant_records("acme", after, 3).await.unwrap();
        page.into_iter().map(|one| (one.kind, one.record.id, one.expires_at)).collect::<Vec<_>>()
    };
    let name = |kind: &str, id: &str, expires: Option<Timestamp>| (kind.to_owned(), id.to_owned(), expires);
    assert_eq!(
        names(None).await,
        [name("a", "1", None), name("a", "2", Some(at(1))), name("b", "1", None)],
        "in order, expired ones too"
    );
    assert_eq!(names(Some(("b", "1"))).await, [name("c", "é", None)]);
    assert_eq!(known.delete_tenant_records("acme", 3).await.unwrap(), 3);
    assert_eq!(known.delete_tenant_records("acme", 3).await.unwrap(), 1);
    assert_eq!(known.delete_tenant_records("acme", 3).await.unwrap(), 0);
    assert_eq!(known.delete_tenant_records("nobody", 3).await.unwrap(), 0);
    assert_eq!(known.tenant_records("other", None, 9).await.unwrap().len(), 4);

    for (id, owner) in [("s1", "acme/ada"), ("s2", "acme/ada"), ("s3", "acme/bob")] {
        let session =
            Session { id: id.into(), owner: owner.into(), body: "x".into(), version: 1, used_at: at(0) };
        assert!(store.create_session(session, 9).await.unwrap());
    }
    assert_eq!(known.delete_sessions_of("acme/ada", 1).await.unwrap(), 1);
    assert_eq!(known.delete_sessions_of("acme/ada", 9).await.unwrap(), 1);
    assert_eq!(known.delete_sessions_of("nobody", 9).await.unwrap(), 0);
    assert!(store.session("s3").await.unwrap().is_some());

    // A former name can be used again, for another owner.
    known.rename_owner("acme/bob", "erased:1/2").await.unwrap();
    known.rename_owner("acme/none", "erased:1/3").await.unwrap();
    known.forget_names().await;
    assert_eq!(known.owners("acme", "", 9).await.unwrap(), ["acme/ada"]);
    assert_eq!(store.session("s3").await.unwrap().unwrap().owner, "erased:1/2");
    let again = make(&store, "acme/bob", "echo", State::Working, 1).await;
    assert_eq!(store.row_of(again).await.owner, "acme/bob");
}

/// A search finds what is stored under a name that another tenant had before.
pub async fn a_former_name_of_a_tenant_is_searched_anew(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let (bank, known) = (store.knowledge(), store.tenants());
    let search = MemorySearch {
        tenant: "acme".into(),
        namespace: "n".into(),
        what: MemoryQuery::Keys("k*".into()),
        offset: 0,
        limit: 10,
        max_keys: 1_000,
        within: Duration::from_secs(60),
        now: at(1),
    };
    bank.put_memory(put("n", "k1", "one")).await.unwrap();
    // Each search connection has seen the name.
    for _ in 0..8 {
        assert_eq!(bank.search_memory(&search).await.unwrap().total, 1);
    }
    assert_eq!(bank.clear_memory("acme", "n", 9).await.unwrap(), 1);
    known.rename_owner("acme", "erased:2/1").await.unwrap();
    known.forget_names().await;
    bank.put_memory(put("n", "k2", "two")).await.unwrap();
    assert_eq!(bank.search_memory(&search).await.unwrap().total, 1, "the new tenant's entry");
}

fn line(tenant: &str, caller: &str, refused: Option<&str>) -> AuditEntry {
    AuditEntry {
        at: at(1),
        tenant: tenant.to_owned().into(),
        caller: caller.into(),
        from: Some("192.0.2.1".into()),
        operation: "memory.store".into(),
        action: Action::Write,
        kind: AccessKind::Memory,
        resource: format!("memory://{caller}"),
        refused: refused.map(str::to_owned),
        credential: Some("abc".into()),
    }
}

/// Audit lines of an erased tenant change only in what identifies a person; those of other tenants never
/// change.
pub async fn only_identities_of_audit_lines_change(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let (known, tenants) = (store.knowledge(), store.tenants());
    let (mine, other) = (line("acme", "acme/ada", Some("no")), line("other", "other/bob", None));
    known.append_audit([mine.clone(), other.clone()].into()).await.unwrap();
    let everything = || AuditQuery { limit: 10, ..AuditQuery::default() };
    let lines = known.audit(&everything()).await.unwrap().entries;
    let (no, found) = lines.iter().find(|(_, line)| line.tenant == "acme").cloned().unwrap();
    let (other_no, _) = lines.iter().find(|(_, line)| line.tenant == "other").cloned().unwrap();
    assert_eq!(found, mine);
    let mut erased = AuditEntry {
        tenant: "erased:1".into(),
        caller: "erased:1/2".into(),
        from: None,
        resource: "memory:erased".into(),
        refused: Some("refused".into()),
        credential: None,
        ..mine.clone()
    };
    let hostile = vec![(other_no, AuditEntry { caller: "nobody".into(), ..other.clone() })];
    tenants.rewrite_audit("acme", hostile).await.unwrap();
    let allowed = AuditEntry { refused: None, ..erased.clone() };
    tenants.rewrite_audit("acme", vec![(no, allowed)]).await.unwrap_err();
    assert!(known.audit(&everything()).await.unwrap().entries.contains(&(no, mine)), "nothing has changed");
    // Fields that are not identity are not written, whatever the argument holds.
    erased.operation = "something.else".into();
    tenants.rewrite_audit("acme", vec![(no, erased.clone())]).await.unwrap();
    erased.operation = "memory.store".into();
    let found = known.audit(&everything()).await.unwrap().entries;
    assert!(found.contains(&(no, erased)) && found.contains(&(other_no, other)), "{found:?}");
    let of_acme = AuditQuery { tenant: Some("acme".into()), ..everything() };
    assert_eq!(known.audit(&of_acme).await.unwrap().entries, []);
}

/// The size of tasks is read in pages, by owner; that of memory and records, by tenant.
pub async fn what_tenants_store_is_measured(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let known = store.tenants();
    assert_eq!(known.measure_tasks(TaskNo(0), 10).await.unwrap(), MeasuredTasks::default());
    assert_eq!(known.measure_knowledge().await.unwrap(), []);
    let (text, head) = (events(1, "some text"), "the head");
    for (n, owner) in ["acme/ada", "acme/bob", "acme/ada", "eve"].into_iter().enumerate() {
        let webhooks = if n == 0 { vec![webhook("a"), webhook("b")] } else { vec![] };
        let new = NewTask { owner: owner.into(), webhooks, ..new_task() };
        let mut change = create_as(new, State::Working, at(0), RunChange::Lease(node()));
        change.events = Some(text.clone());
        change.head = Some(head.into());
        change.journal = vec![JournalRecord("12345".into()), JournalRecord("123".into())];
        let task = store.create_task(change).await;
        if n == 2 {
            store.put_snapshot(task, 1, "a fold".into()).await.unwrap();
        }
    }
    let one = (text.bytes.len() + head.len() + 8) as u64;
    let mut found: std::collections::BTreeMap<String, (u64, u64, u64)> = std::collections::BTreeMap::new();
    let mut after = Some(TaskNo(0));
    while let Some(from) = after {
        let page = known.measure_tasks(from, 2).await.unwrap();
        for owner in page.owners {
            let sum = found.entry(owner.owner).or_default();
            *sum = (sum.0 + owner.tasks, sum.1 + owner.bytes, sum.2 + owner.webhooks);
        }
        after = page.next;
    }
    let expected = [("acme/ada", (2, 2 * one + 6, 2)), ("acme/bob", (1, one, 0)), ("eve", (1, one, 0))];
    assert_eq!(found, expected.map(|(owner, sums)| (owner.to_owned(), sums)).into());

    store.knowledge().write_records(vec![record("acme", "k", "1")]).await.unwrap();
    let put = MemoryPut {
        key: MemoryKey { tenant: "zeta".into(), namespace: "n".into(), key: "key".into() },
        value: "\"value\"".into(),
        text: String::new(),
        ttl_ms: None,
        expected: ExpectedVersion::Any,
        now: at(0),
        max_entries: 10,
        max_bytes: 1_000,
        max_namespaces: 10,
    };
    let weight = put.weight();
    store.knowledge().put_memory(put).await.unwrap();
    let mut measured = known.measure_knowledge().await.unwrap();
    measured.sort();
    assert_eq!(measured, [("acme".to_owned(), "1acme k 1".len() as u64), ("zeta".to_owned(), weight)]);
}

/// Counters of one tenant's callers are deleted, and words of deleted entries; those of other tenants stay.
pub async fn counters_and_words_of_a_tenant_are_deleted(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let (known, tenants) = (store.knowledge(), store.tenants());
    let names = ["a2a acme/ada", "memory acme/b c", "a2a acme", "a2a acme-2/ada", "a2a eve", "a2a x/acme/y"];
    let uses: Vec<(String, u64)> = names.iter().map(|name| ((*name).to_owned(), 1)).collect();
    known.add_usage(&uses, at(0)).await.unwrap();
    tenants.delete_usage_of("acme").await.unwrap();
    assert_eq!(known.add_usage(&uses, at(1)).await.unwrap(), [1, 1, 2, 2, 2, 2]);

    let put = |tenant: &str, n: u32| MemoryPut {
        key: MemoryKey { tenant: tenant.into(), namespace: "n".into(), key: format!("k{n}") },
        value: "1".into(),
        text: format!("wombat number{n}"),
        ttl_ms: None,
        expected: ExpectedVersion::Any,
        now: at(0),
        max_entries: 100,
        max_bytes: 1_000_000,
        max_namespaces: 10,
    };
    for n in 0..40 {
        known.put_memory(put("acme", n)).await.unwrap();
        known.put_memory(put("other", n)).await.unwrap();
    }
    while known.clear_memory("acme", "n", 16).await.unwrap() > 0 {}
    for _ in 0..2 {
        tenants.purge_deleted_words().await.unwrap();
    }
    let search = |tenant: &str| MemorySearch {
        tenant: tenant.into(),
        namespace: "n".into(),
        what: MemoryQuery::Words(vec!["wombat".into()]),
        offset: 0,
        limit: 1,
        max_keys: 1_000,
        within: Duration::from_secs(60),
        now: at(0),
    };
    assert_eq!(known.search_memory(&search("acme")).await.unwrap().total, 0);
    assert_eq!(known.search_memory(&search("other")).await.unwrap().total, 40);
    known.put_memory(put("acme", 7)).await.unwrap();
    assert_eq!(known.search_memory(&search("acme")).await.unwrap().total, 1);
}
