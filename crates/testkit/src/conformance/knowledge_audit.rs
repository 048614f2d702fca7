//! Checks of the audit and the usage counters.

use std::sync::Arc;

use nuncio_engine::{
    access::{AccessKind, Action, HOME_TENANT},
    clock::Timestamp,
    knowledge::{AuditEntry, AuditQuery},
    store::Store,
};
use tokio::task::JoinSet;

use super::fixtures::at;

fn line(n: i64) -> AuditEntry {
    AuditEntry {
        at: at(n),
        tenant: if n % 2 == 0 { "acme" } else { "other" }.into(),
        caller: if n % 3 == 0 { "acme/ada" } else { "acme/bob" }.into(),
        from: (n % 5 == 0).then(|| "192.0.2.1".into()),
        operation: format!("op.{n}").into(),
        action: Action::ALL[n as usize % 3],
        kind: AccessKind::ALL[n as usize % 5],
        resource: format!("memory://namespace/{n}/é'"),
        refused: (n % 4 == 0).then(|| "no such grant".into()),
        credential: (n % 7 == 0).then(|| format!("token{n}").into()),
    }
}

fn everything() -> AuditQuery {
    AuditQuery { limit: 1_000, ..AuditQuery::default() }
}

/// Lines are read back whole, newest first, filtered and in pages; only age removes them.
pub async fn the_audit_is_read_backwards(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let known = store.knowledge();
    known.append_audit([].into()).await.unwrap();
    known.append_audit((0..20).map(line).collect()).await.unwrap();
    known.append_audit((20..60).map(line).collect()).await.unwrap();
    drop(store);
    let store = open().await;
    let known = store.knowledge();
    let lines = async |query: AuditQuery| {
        let found = known.audit(&query).await.unwrap().entries;
        assert!(found.windows(2).all(|pair| pair[0].0 > pair[1].0), "by number, downwards");
        found.into_iter().map(|(_, entry)| entry).collect::<Vec<_>>()
    };
    let like = |fits: fn(&AuditEntry) -> bool| (0..60).rev().map(line).filter(fits).collect::<Vec<_>>();
    assert_eq!(lines(everything()).await, like(|_| true));
    let tenant = |name: &str| AuditQuery { tenant: Some(name.into()), ..everything() };
    assert_eq!(lines(tenant("acme")).await, like(|line| line.tenant == "acme"));
    assert_eq!(lines(tenant("nobody")).await, []);
    let query = AuditQuery { caller: Some("acme/ada".into()), ..everything() };
    assert_eq!(lines(query).await, like(|line| &*line.caller == "acme/ada"));
    let query = AuditQuery { kind: Some(AccessKind::Sparc), ..everything() };
    assert_eq!(lines(query).await, like(|line| line.kind == AccessKind::Sparc));
    let query = AuditQuery { refused: true, ..tenant("acme") };
    assert_eq!(lines(query).await, like(|line| line.refused.is_some() && line.tenant == "acme"));
    let query = AuditQuery { since: Some(at(50)), caller: Some("acme/bob".into()), ..everything() };
    assert_eq!(lines(query).await, like(|line| line.at >= at(50) && &*line.caller == "acme/bob"));

    let query = AuditQuery { since: Some(at(10)), until: Some(at(20)), ..everything() };
    assert_eq!(lines(query).await, like(|line| (at(10)..at(20)).contains(&line.at)));
    let whole = line(12).resource;
    for text in [&whole[..], &whole[2..], "%", "_", "12", "memory"] {
        let query = AuditQuery { resource: Some(text.into()), ..everything() };
        let expected: Vec<_> =
            like(|_| true).into_iter().filter(|line| line.resource.contains(text)).collect();
        assert_eq!(lines(query).await, expected, "{text}");
    }

    let (mut seen, mut before) = (vec![], None);
    loop {
        let page = known.audit(&AuditQuery { before, limit: 7, ..tenant("acme") }).await.unwrap().entries;
        let Some((last, _)) = page.last() else { break };
        before = Some(*last);
        seen.extend(page.into_iter().map(|(_, entry)| entry));
    }
    assert_eq!(seen, like(|line| line.tenant == "acme"), "page by page");

    // A page ends when it has read as many lines of its tenant as it may, and says where the next one begins.
    let rare = AuditQuery { resource: Some("/12/".into()), max_read: Some(7), ..tenant("acme") };
    assert!(line(12).tenant == "acme");
    let (mut seen, mut pages, mut before) = (vec![], 0, None);
    loop {
        let page = known.audit(&AuditQuery { before, ..rare.clone() }).await.unwrap();
        pages += 1;
        seen.extend(page.entries.into_iter().map(|(_, entry)| entry));
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(seen, [line(12)]);
    assert_eq!(pages, like(|line| line.tenant == "acme").len() / 7 + 1);
    let page = known.audit(&AuditQuery { limit: 3, max_read: Some(7), ..tenant("acme") }).await.unwrap();
    assert_eq!((page.entries.len(), page.next), (3, Some(page.entries[2].0)), "a full page");

    let newest = known.audit(&everything()).await.unwrap().entries[0].0;
    assert_eq!(known.expire_audit(at(0), 100).await.unwrap(), 0, "before, not at");
    assert_eq!(known.expire_audit(at(10), 4).await.unwrap(), 4, "as many as asked for");
    assert_eq!(known.expire_audit(at(10), 100).await.unwrap(), 6);
    assert_eq!(lines(everything()).await, like(|line| line.at >= at(10)));
    assert_eq!(known.expire_audit(Timestamp(i64::MAX), 1_000).await.unwrap(), 50);
    assert_eq!(lines(everything()).await, []);
    known.append_audit([line(1)].into()).await.unwrap();
    assert!(known.audit(&everything()).await.unwrap().entries[0].0 > newest, "a number is never used again");
}

/// A number is never used again: neither after the line that had it has expired, nor after all lines have, nor after a
/// restart.
pub async fn numbers_of_audit_lines_are_not_used_again(open: impl AsyncFn() -> Arc<dyn Store>) {
    let newest =
        async |store: &Arc<dyn Store>| store.knowledge().audit(&everything()).await.unwrap().entries[0].0;
    let mut store = open().await;
    store.knowledge().append_audit([line(50), line(51)].into()).await.unwrap();
    // A clock that was set back: the newest line is the oldest by time.
    store.knowledge().append_audit([line(1)].into()).await.unwrap();
    let mut last = newest(&store).await;
    for (before, expected) in [(at(2), 1), (Timestamp(i64::MAX), 3)] {
        assert_eq!(store.knowledge().expire_audit(before, 100).await.unwrap(), expected);
        drop(store);
        store = open().await;
        store.knowledge().append_audit([line(50)].into()).await.unwrap();
        let next = newest(&store).await;
        assert!(next > last, "{next} after {last}");
        last = next;
    }
}

/// The lines of the home tenant are found among those of others, page by page, and a page reads no more lines than it may.
pub async fn audit_lines_of_the_home_tenant_are_found(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let known = store.knowledge();
    let home = |n: i64| AuditEntry { tenant: HOME_TENANT.into(), ..line(n) };
    let of_home = AuditQuery { tenant: Some(HOME_TENANT.into()), ..everything() };
    known.append_audit((0..20).map(line).collect()).await.unwrap();
    assert_eq!(known.audit(&of_home).await.unwrap().entries, []);
    known.append_audit((20..30).map(home).collect()).await.unwrap();
    known
        .append_audit((30..60).map(|n| if n % 10 == 0 { home(n) } else { line(n) }).collect())
        .await
        .unwrap();
    let expected: Vec<_> = [50, 40, 30].into_iter().chain((20..30).rev()).map(home).collect();
    for max_read in [None, Some(7)] {
        let (mut seen, mut pages, mut before) = (vec![], 0, None);
        loop {
            let query = AuditQuery { before, limit: 2, max_read, ..of_home.clone() };
            let page = known.audit(&query).await.unwrap();
            pages += 1;
            assert!(page.entries.len() <= 2 && pages <= 60);
            seen.extend(page.entries.into_iter().map(|(_, entry)| entry));
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        assert_eq!(seen, expected, "{max_read:?}");
    }
    // Those of other tenants are not of it, nor the reverse.
    let of_acme = AuditQuery { tenant: Some("acme".into()), ..everything() };
    let found = known.audit(&of_acme).await.unwrap().entries;
    assert!(!found.is_empty() && found.iter().all(|(_, line)| line.tenant == "acme"), "{found:?}");
}

/// Concurrent appends: every line is stored once.
pub async fn audit_lines_of_many_are_all_kept(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let mut writers = JoinSet::new();
    for n in 0..40 {
        let store = Arc::clone(&store);
        let lines = (n * 10..n * 10 + 10).map(line).collect();
        writers.spawn(async move { store.knowledge().append_audit(lines).await.unwrap() });
    }
    writers.join_all().await;
    let mut lines = store.knowledge().audit(&everything()).await.unwrap().entries;
    lines.sort_by_key(|(_, entry)| entry.at);
    let found: Vec<_> = lines.into_iter().map(|(_, entry)| entry).collect();
    assert_eq!(found, (0..400).map(line).collect::<Vec<_>>());
}

/// Counters add up across callers, and return their totals in the order of the arguments.
pub async fn usage_adds_up(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let mut nodes = JoinSet::new();
    for n in 0..10 {
        let store = Arc::clone(&store);
        nodes.spawn(async move {
            // In both orders concurrently.
            let mut uses = vec![("a".to_owned(), 1), ("b".to_owned(), n), ("c é".to_owned(), 0)];
            if n % 2 == 0 {
                uses.reverse();
            }
            let totals = store.knowledge().add_usage(&uses, at(0)).await.unwrap();
            assert_eq!(totals.len(), 3);
            assert_eq!(totals[if n % 2 == 0 { 0 } else { 2 }], 0);
        });
    }
    nodes.join_all().await;
    let now =
        |uses: &[(&str, u64)]| uses.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect::<Vec<_>>();
    let known = store.knowledge();
    assert_eq!(known.add_usage(&now(&[("b", 0), ("a", 5), ("d", 2)]), at(1)).await.unwrap(), [45, 15, 2]);
    assert_eq!(known.add_usage(&now(&[("a", 1), ("a", 1)]), at(1)).await.unwrap(), [16, 17]);
    assert_eq!(known.add_usage(&[], at(1)).await.unwrap(), [0; 0]);
}
