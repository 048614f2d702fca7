//! Stores that earlier versions of the schema wrote: they open, are brought up to date, and nothing is lost. The
//! files are never changed; each version gets one of its own beside them (`fill` of 0..17, as
//! Python's `sqlite3` dumps it; virtual tables are declared after their shadow tables).

use nuncio_engine::store::TaskStore as _;
use std::path::Path;

use nuncio_engine::{
    clock::Timestamp,
    knowledge::{AuditQuery, Knowledge as _},
    store::{Change, FailedDeliveryQuery, NodeId, OwnerClaim, Precondition, TaskNo, WebhookStore as _},
    task::TaskId,
};
use nuncio_store::{
    SqliteStore,
    archive::{ArchiveItem, ArchiveKind},
};
use uuid::Uuid;

use crate::archive::{
    all, compare_knowledge, compare_sessions, dump, fill, fill_credentials, fill_knowledge, fill_sessions,
    sqlite,
};

/// Tasks of every kind, and no sessions yet.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_of_schema_1_opens_with_all_that_it_holds() {
    let folder = tempfile::tempdir().unwrap();
    let old = of_another_day(folder.path(), 1, include_str!("golden/store-1.sql"));
    holds_what_fill_made(&old).await;
    compare_sessions(&old, 0..0).await;
    // What it could not hold before it holds now.
    fill_sessions(&old, 0..5).await;
    drop(old);
    compare_sessions(&sqlite(folder.path()), 0..5).await;
}

/// The same tasks, and sessions.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_of_schema_2_opens_with_all_that_it_holds() {
    let folder = tempfile::tempdir().unwrap();
    let old = of_another_day(folder.path(), 2, include_str!("golden/store-2.sql"));
    holds_what_fill_made(&old).await;
    compare_sessions(&old, 0..17).await;
    fill_sessions(&old, 100..120).await;
}

/// The same tasks and sessions, and knowledge: it is there, is found, and can be written to.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_of_schema_3_opens_with_all_that_it_holds() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let old = of_another_day(folder.path(), 3, include_str!("golden/store-3.sql"));
    holds_what_fill_made(&old).await;
    compare_sessions(&old, 0..17).await;
    let new = sqlite(other.path());
    fill_knowledge(&new, 0..17).await;
    compare_knowledge(&new, &old, 17).await;
    for store in [&new, &old] {
        fill_knowledge(store, 17..20).await;
    }
    compare_knowledge(&new, &old, 20).await;
    let [new, old] = [other, folder].map(|folder| weights(folder.path()));
    assert!(new.len() == 2 && new == old, "what is counted of names since then: {new:?} {old:?}");
}

/// The same, and what names weigh.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_of_schema_4_opens_with_all_that_it_holds() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let old = of_another_day(folder.path(), 4, include_str!("golden/store-4.sql"));
    holds_what_fill_made(&old).await;
    compare_sessions(&old, 0..17).await;
    let new = sqlite(other.path());
    fill_knowledge(&new, 0..17).await;
    compare_knowledge(&new, &old, 17).await;
    let [new, old] = [other, folder].map(|folder| weights(folder.path()));
    assert!(new.len() == 2 && new == old, "what is counted of names: {new:?} {old:?}");
}

/// The same, and who is behind a line of the audit. Tasks are due by their node alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_of_schema_5_opens_with_all_that_it_holds() {
    holds_all_and_lets_claim(5, include_str!("golden/store-5.sql")).await;
}

/// The same; tasks are due by owner.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_of_schema_6_opens_with_all_that_it_holds() {
    holds_all_and_lets_claim(6, include_str!("golden/store-6.sql")).await;
}

/// The same, and why a delivery fails.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_of_schema_7_opens_with_all_that_it_holds() {
    holds_all_and_lets_claim(7, include_str!("golden/store-7.sql")).await;
}

/// The same, and whose deliveries fail.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_of_schema_8_opens_with_all_that_it_holds() {
    holds_all_and_lets_claim(8, include_str!("golden/store-8.sql")).await;
}

/// The same; SQLite counts no lines of the audit.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_of_schema_9_opens_with_all_that_it_holds() {
    holds_all_and_lets_claim(9, include_str!("golden/store-9.sql")).await;
}

/// Lines of the audit keep their numbers and are found by tenant, and new ones come after all that there ever were: also where
/// those with the highest numbers, or all, had expired before.
#[tokio::test(flavor = "multi_thread")]
async fn the_audit_continues_after_the_lines_of_an_older_schema() {
    let sql = include_str!("golden/store-8.sql");
    let expire = "UPDATE audit_horizon SET before = 99999; DELETE FROM audit";
    let reset = "UPDATE audit_horizon SET before = NULL;";
    for (what, expired, left) in [
        ("none", String::new(), [9, 11]),
        ("the newest", format!("{expire} WHERE no > 15; {reset}"), [8, 7]),
        ("all", format!("{expire}; {reset}"), [0, 0]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let old = of_another_day(folder.path(), 8, &format!("{sql};{expired}"));
        for (tenant, expected) in ["home", "acme"].into_iter().zip(left) {
            let query = AuditQuery { tenant: Some(tenant.into()), limit: 100, ..AuditQuery::default() };
            let found = old.audit(&query).await.unwrap().entries;
            assert_eq!(found.len(), expected, "{what}: {tenant}");
            assert!(found.iter().all(|(no, line)| line.tenant == tenant && *no <= 20), "{what}: {found:?}");
        }
        fill_credentials(&old, 3..4).await;
        let newest = old.audit(&AuditQuery { limit: 1, ..AuditQuery::default() }).await.unwrap();
        assert_eq!(newest.entries[0].0, 21, "{what}");
    }
}

/// What each version wrote, brought up to date, is the schema that a new store has, and its failed deliveries are listed by
/// their tenant.
#[tokio::test(flavor = "multi_thread")]
async fn old_stores_have_the_schema_of_new_ones() {
    let fresh = tempfile::tempdir().unwrap();
    drop(sqlite(fresh.path()));
    let expected = objects(fresh.path());
    for (version, sql) in [
        (7, include_str!("golden/store-7.sql")),
        (8, include_str!("golden/store-8.sql")),
        (9, include_str!("golden/store-9.sql")),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let old = of_another_day(folder.path(), version, sql);
        for (tenant, count) in [("home", 2), ("acme", 0)] {
            let query = FailedDeliveryQuery {
                dead: true,
                tenant: Some(tenant.into()),
                owner: None,
                after: None,
                limit: 10,
            };
            assert_eq!(old.failed_deliveries(&query).await.unwrap().len(), count, "{version}: {tenant}");
        }
        drop(old);
        assert_eq!(objects(folder.path()), expected, "{version}");
    }
}

/// The names and the declarations of everything in a database, without white space.
fn objects(dir: &Path) -> Vec<(String, String)> {
    let conn = rusqlite::Connection::open(dir.join("nuncio.db")).unwrap();
    let sql = "SELECT name, ifnull(sql, '') FROM sqlite_master ORDER BY name";
    let mut statement = conn.prepare(sql).unwrap();
    let objects = statement.query_map([], |row| {
        let declared: String = row.get(1)?;
        // A dump quotes names differently.
        Ok((row.get(0)?, declared.split_whitespace().collect::<Vec<_>>().join(" ").replace('"', "'")))
    });
    objects
        .unwrap()
        .map(Result::unwrap)
        // SQLite keeps its table of sequences after the last of them.
        .filter(|(name, _): &(String, _)| !name.starts_with("memory_words") && name != "sqlite_sequence")
        .collect()
}

async fn holds_all_and_lets_claim(version: i64, sql: &str) {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let old = of_another_day(folder.path(), version, sql);
    let new = sqlite(other.path());
    fill(&new, 0..17).await;
    // What is due is claimed by owner, in the old one as in a new one.
    let mut claimed = vec![];
    for store in [&old, &new] {
        let wants =
            ["alice", "bob"].map(|owner| OwnerClaim { owner: owner.into(), called: false, limit: 100 });
        let rows = store.claim_of(NodeId(Uuid::now_v7()), Timestamp(10_000), &wants).await.unwrap();
        let mut rows: Vec<_> =
            rows.into_iter().map(|claimed| (claimed.row.owner, claimed.row.created_at)).collect();
        rows.sort();
        claimed.push(rows);
    }
    assert!(!claimed[0].is_empty() && claimed[0] == claimed[1], "{claimed:?}");
    drop(old);

    let folder = tempfile::tempdir().unwrap();
    let old = of_another_day(folder.path(), version, sql);
    holds_what_fill_made(&old).await;
    compare_sessions(&old, 0..17).await;
    fill_knowledge(&new, 0..17).await;
    fill_credentials(&new, 0..3).await;
    compare_knowledge(&new, &old, 17).await;
    let credentials: Vec<_> = all(&old, ArchiveKind::Audit)
        .await
        .into_iter()
        .filter_map(|item| match item {
            ArchiveItem::Audit(_, line) => line.credential.as_deref().map(str::to_owned),
            other => panic!("{other:?} is no line of the audit"),
        })
        .collect();
    assert_eq!(credentials, ["credential-0", "credential-1", "credential-2"]);
    let [new, old] = [other, folder].map(|folder| weights(folder.path()));
    assert!(new.len() == 2 && new == old, "what is counted of names: {new:?} {old:?}");
}

/// Bytes, names and namespaces of each tenant, as they are counted; that is what there is.
pub(crate) fn weights(dir: &Path) -> Vec<(String, i64, i64, i64)> {
    let conn = rusqlite::Connection::open(dir.join("nuncio.db")).unwrap();
    let rows = |sql: &str| -> Vec<(String, i64, i64, i64)> {
        let mut statement = conn.prepare(sql).unwrap();
        let rows =
            statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))).unwrap();
        rows.map(Result::unwrap).collect()
    };
    let counted = rows(
        "SELECT name, bytes, names, spaces FROM memory_tenant JOIN owner ON owner.no = memory_tenant.owner
         WHERE spaces > 0 ORDER BY name",
    );
    let there = rows(
        "SELECT name, sum(size), sum(octet_length(key) + octet_length(namespace) + 200),
           count(DISTINCT memory_space.no)
         FROM owner JOIN memory_space ON memory_space.owner = owner.no JOIN memory ON memory.space = memory_space.no
         GROUP BY name ORDER BY name",
    );
    assert_eq!(counted, there);
    counted
}

/// Opens what that version wrote.
fn of_another_day(dir: &Path, version: i64, sql: &str) -> SqliteStore {
    let conn = rusqlite::Connection::open(dir.join("nuncio.db")).unwrap();
    conn.execute_batch(sql).unwrap();
    conn.pragma_update(None, "user_version", version).unwrap();
    drop(conn);
    sqlite(dir)
}

/// What was in it is what `fill` makes of 0..17; only the identities are others. And it can be written to.
async fn holds_what_fill_made(old: &SqliteStore) {
    let folder = tempfile::tempdir().unwrap();
    let new = sqlite(folder.path());
    let expected = fill(&new, 0..17).await;
    let found: Vec<_> = all(old, ArchiveKind::Tasks)
        .await
        .into_iter()
        .map(|item| match item {
            ArchiveItem::Task(dump) => dump.row.id,
            other => panic!("{other:?} is no task"),
        })
        .collect();
    assert_eq!(found.len(), expected.len());
    for (was, is) in expected.into_iter().zip(found) {
        let mut dumps = vec![];
        for (store, id) in [(&new, was), (old, is)] {
            let mut dump = dump(store, id).await.unwrap();
            let own = TaskId::of_own_context(&dump.row.context) == Some(id);
            dump.row.context = if own { "its own".into() } else { dump.row.context };
            dump.row.parent = dump.row.parent.map(|_| TaskId(Uuid::nil()));
            dump.row.id = TaskId(Uuid::nil());
            for letter in &mut dump.details.dead_letters {
                letter.task = TaskId(Uuid::nil());
                // Not counted at that time.
                letter.attempts = 0;
            }
            // Due since it was made, by the clock of that day.
            for (_, hook) in &mut dump.webhooks {
                hook.due_at = hook.due_at.map(|_| Timestamp(0));
            }
            for hook in &mut dump.details.hooks {
                hook.due_at = hook.due_at.map(|_| Timestamp(0));
            }
            dumps.push(dump);
        }
        assert_eq!(dumps[0], dumps[1]);
    }
    old.commit(Change::new(Precondition::Version { task: TaskNo(1), version: 0 })).await.unwrap_err();
    fill(old, 100..120).await;
}
