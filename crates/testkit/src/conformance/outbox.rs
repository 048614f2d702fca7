//! Checks of webhooks: what is due, which node delivers it, and what happens to undeliverable events.

use std::{sync::Arc, time::Duration};

use nuncio_engine::{
    clock::Timestamp,
    store::{
        AddedWebhooks, Change, CommitError, CommitReceipt, DeliveryOutcome, DueWebhook, FailedDelivery,
        FailedDeliveryQuery, NewTask, RunChange, Store, TaskNo, Webhook, WebhookError,
    },
    task::State,
};

use super::fixtures::{
    StoreFixtureExt, assert_is, at, by_runner, by_version, create, create_as, events, new_task, node, webhook,
};

const LEASE: Duration = Duration::from_millis(100);

/// A running task with the webhook `w`; its log has one event.
async fn followed(store: &Arc<dyn Store>) -> CommitReceipt {
    let new = NewTask { webhooks: vec![webhook("w")], ..new_task() };
    store.commit_ok(create_as(new, State::Working, at(0), RunChange::Lease(node()))).await
}

/// Appends one event and returns its number.
async fn append(store: &Arc<dyn Store>, task: TaskNo) -> u64 {
    let mut change = by_runner(task, 1);
    change.events = Some(events(1, "event"));
    store.commit_ok(change).await.seq
}

async fn due(store: &Arc<dyn Store>, now: i64) -> Vec<DueWebhook> {
    store.claim_deliveries(node(), at(now), LEASE, 10).await.unwrap()
}

fn retry(up_to: u64, at: Timestamp) -> DeliveryOutcome {
    DeliveryOutcome::Retry { up_to, at, reason: format!("retry at {}", at.0) }
}

fn dead(seq: u64, now: i64) -> DeliveryOutcome {
    DeliveryOutcome::Dead {
        seq,
        delivery: format!("d{seq}"),
        reason: format!("refused at {now}"),
        at: at(now),
    }
}

/// Added, replaced, counted, listed by id and removed.
pub async fn webhooks_are_kept_per_task(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let task = store.create_task(create(NewTask { webhooks: vec![webhook("m")], ..new_task() })).await;
    let other = store.create_task(create(new_task())).await;
    for id in ["z", "a"] {
        store.put_webhook(task, webhook(id), 3).await.unwrap();
    }
    assert_eq!(store.webhooks(task).await.unwrap(), ["a", "m", "z"].map(webhook));
    assert_is!(store.put_webhook(task, webhook("b"), 3).await, Err(WebhookError::TooMany(3)));
    let replaced = Webhook { config: "other".into(), cursor: 1, ..webhook("m") };
    store.put_webhook(task, replaced.clone(), 3).await.unwrap();
    assert_eq!(store.webhooks(task).await.unwrap(), [webhook("a"), replaced, webhook("z")]);
    assert!(store.webhooks(other).await.unwrap().is_empty());
    assert!(store.delete_webhook(task, "a").await.unwrap());
    assert!(!store.delete_webhook(task, "a").await.unwrap());
    assert!(!store.delete_webhook(other, "z").await.unwrap());
    store.put_webhook(task, webhook("b"), 3).await.unwrap();
}

/// A change of an existing task adds webhooks together with its events: all of them, or nothing at all.
pub async fn a_change_adds_its_webhooks_or_nothing(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let made = followed(&store).await;
    let adding = |mut change: Change, ids: &[&str], cap: usize| {
        let hooks = ids.iter().map(|id| Webhook { cursor: 1, ..webhook(id) }).collect();
        change.webhooks = Some(AddedWebhooks { hooks, cap });
        change.events = Some(events(1, "message"));
        change
    };
    let moved = adding(by_version(made.task, made.version + 1), &["a"], 9);
    assert_is!(store.commit_err(moved).await, CommitError::Moved);
    let fenced = adding(by_runner(made.task, made.epoch + 1), &["a"], 9);
    assert_is!(store.commit_err(fenced).await, CommitError::Fenced);
    let gone = adding(by_version(TaskNo(made.task.0 + 77), 1), &["a"], 9);
    assert_is!(store.commit_err(gone).await, CommitError::Gone);
    let many = adding(by_version(made.task, made.version), &["a", "b"], 2);
    assert_is!(store.commit_err(many).await, CommitError::TooManyWebhooks(2));
    assert_eq!(store.webhooks(made.task).await.unwrap(), [webhook("w")]);
    assert_eq!(store.log(made.task, 0, 1 << 20).await.unwrap().len(), 1, "no message of theirs is there");

    // The one that is there is replaced, and counts once.
    let added = store.commit_ok(adding(by_version(made.task, made.version), &["a", "w"], 2)).await;
    assert_eq!((added.first_seq, added.seq, added.version), (2, 2, made.version + 1));
    let from_message = |id: &str| Webhook { cursor: 1, ..webhook(id) };
    assert_eq!(store.webhooks(made.task).await.unwrap(), [from_message("a"), from_message("w")]);
    let mut due: Vec<(String, u64)> =
        due(&store, 1).await.into_iter().map(|due| (due.hook.id, due.hook.cursor)).collect();
    due.sort_unstable();
    assert_eq!(due, [("a".to_owned(), 1), ("w".to_owned(), 1)], "both have the message to deliver");
    for id in ["a", "w"] {
        store.record_delivery(made.task, id, DeliveryOutcome::Delivered { up_to: 2 }).await.unwrap();
    }
    append(&store, made.task).await;
    assert_eq!(self::due(&store, 2).await.len(), 2, "and all that follows");
}

/// A webhook is due as soon as the log is beyond its cursor, and idle when all is delivered; each at its own
/// pace.
pub async fn webhooks_follow_the_log(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    assert_eq!(store.next_delivery_due().await.unwrap(), None);
    let made = followed(&store).await;
    assert!(store.next_delivery_due().await.unwrap().is_some_and(|due| due <= at(0)));
    let claimed = due(&store, 1).await;
    assert_eq!(claimed.len(), 1);
    let delivery = &claimed[0];
    assert_eq!((&delivery.hook, delivery.attempts, delivery.replay), (&webhook("w"), 0, None));
    assert_eq!((delivery.row.no, delivery.row.seq), (made.task, 1));
    store.record_delivery(made.task, "w", DeliveryOutcome::Delivered { up_to: 1 }).await.unwrap();
    assert!(due(&store, 1_000).await.is_empty());
    assert_eq!(store.next_delivery_due().await.unwrap(), None);

    append(&store, made.task).await;
    let claimed = due(&store, 1_001).await;
    assert_eq!(claimed[0].hook.cursor, 1);
    // The log grows during a delivery: it is not handed out again, but due as soon as the outcome is recorded.
    append(&store, made.task).await;
    assert!(due(&store, 1_002).await.is_empty());
    store.record_delivery(made.task, "w", DeliveryOutcome::Delivered { up_to: 2 }).await.unwrap();
    assert_eq!(due(&store, 1_003).await[0].hook.cursor, 2);
    store.record_delivery(made.task, "w", DeliveryOutcome::Delivered { up_to: 3 }).await.unwrap();

    // A webhook that is added later begins at its own cursor.
    store.put_webhook(made.task, Webhook { cursor: 3, ..webhook("late") }, 9).await.unwrap();
    assert!(due(&store, 1_004).await.is_empty(), "nothing after its cursor yet");
    append(&store, made.task).await;
    let mut ids: Vec<String> =
        due(&store, 1_005).await.into_iter().map(|delivery| delivery.hook.id).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["late", "w"]);
    assert!(store.delete_webhook(made.task, "late").await.unwrap());
    store.record_delivery(made.task, "late", DeliveryOutcome::Delivered { up_to: 4 }).await.unwrap();
    assert_eq!(store.webhooks(made.task).await.unwrap().len(), 1, "a settlement brings nothing back");
}

/// No other node gets a delivery until its lease expires; then any node does, from the same cursor.
pub async fn a_delivery_is_leased(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let first = followed(&store).await;
    followed(&store).await;
    let one = store.claim_deliveries(node(), at(1), LEASE, 1).await.unwrap();
    assert_eq!(one.len(), 1, "as many as asked for");
    let other = due(&store, 2).await;
    assert_eq!(other.len(), 1);
    assert_ne!(one[0].row.no, other[0].row.no);
    assert!(due(&store, 100).await.is_empty());
    assert_eq!(store.next_delivery_due().await.unwrap(), Some(at(101)), "when the first lease is over");
    let again = due(&store, 101).await;
    assert_eq!((again.len(), again[0].row.no, again[0].hook.cursor), (1, one[0].row.no, 0));
    // The slow node records its outcome after all: it does no harm.
    store.record_delivery(first.task, "w", DeliveryOutcome::Delivered { up_to: 1 }).await.unwrap();
    store.record_delivery(first.task, "w", DeliveryOutcome::Delivered { up_to: 0 }).await.unwrap();
    store.record_delivery(first.task, "w", retry(0, at(5_000))).await.unwrap();
    assert_eq!(store.webhooks(first.task).await.unwrap()[0].cursor, 1, "a cursor never goes back");
}

/// After a failure the webhook waits for its retry time, whatever happens meanwhile, and counts its attempts.
pub async fn a_retry_keeps_its_time(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let made = followed(&store).await;
    let fail = async |up_to: u64, when: Timestamp| {
        store.record_delivery(made.task, "w", retry(up_to, when)).await.unwrap();
    };
    assert_eq!(due(&store, 1).await[0].attempts, 0);
    fail(0, at(50)).await;
    append(&store, made.task).await;
    assert!(due(&store, 49).await.is_empty(), "new events do not shorten the wait");
    assert_eq!(store.next_delivery_due().await.unwrap(), Some(at(50)));
    let claimed = due(&store, 50).await;
    assert_eq!((claimed[0].attempts, claimed[0].hook.cursor, claimed[0].row.seq), (1, 0, 2));
    fail(0, at(60)).await;
    assert_eq!(due(&store, 60).await[0].attempts, 2);
    fail(1, at(70)).await;
    let claimed = due(&store, 70).await;
    assert_eq!((claimed[0].attempts, claimed[0].hook.cursor), (1, 1), "another event: counted anew");
    store.record_delivery(made.task, "w", DeliveryOutcome::Delivered { up_to: 2 }).await.unwrap();
    append(&store, made.task).await;
    assert_eq!(due(&store, 80).await[0].attempts, 0);
}

/// A delivery that is given up becomes a dead letter, and the next event is delivered.
pub async fn a_dead_letter_blocks_nothing(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let made = followed(&store).await;
    append(&store, made.task).await;
    append(&store, made.task).await;
    assert_eq!(due(&store, 1).await.len(), 1);
    store.record_delivery(made.task, "w", dead(2, 5)).await.unwrap();
    let claimed = due(&store, 6).await;
    assert_eq!((claimed[0].hook.cursor, claimed[0].attempts, claimed[0].replay), (2, 0, None));
    store.record_delivery(made.task, "w", dead(3, 7)).await.unwrap();
    assert!(due(&store, 8).await.is_empty());

    let letters = store.dead_letters(10).await.unwrap();
    assert_eq!(letters.iter().map(|letter| letter.seq).collect::<Vec<_>>(), [3, 2], "newest first");
    let letter = &letters[1];
    assert_eq!((&*letter.delivery, &*letter.webhook, &*letter.reason), ("d2", "w", "refused at 5"));
    assert_eq!((letter.task, letter.at), (claimed[0].row.id, at(5)));
    assert_eq!(store.dead_letters(1).await.unwrap(), letters[..1]);
    assert!(store.delete_webhook(made.task, "w").await.unwrap());
    assert!(store.dead_letters(10).await.unwrap().is_empty(), "they go with their webhook");
}

/// A replayed dead letter is a separate delivery: it moves no cursor and blocks nothing.
pub async fn a_replay_stays_beside_the_cursor(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let made = followed(&store).await;
    append(&store, made.task).await;
    due(&store, 1).await;
    store.record_delivery(made.task, "w", dead(1, 2)).await.unwrap();
    due(&store, 3).await;
    store.record_delivery(made.task, "w", dead(2, 4)).await.unwrap();
    assert_eq!(store.replay_dead_letters(Some("nothing"), at(5)).await.unwrap(), 0);
    assert_eq!(store.replay_dead_letters(Some("d1"), at(5)).await.unwrap(), 1);
    assert_eq!(store.next_delivery_due().await.unwrap(), Some(at(5)));

    append(&store, made.task).await;
    let mut claimed = due(&store, 6).await;
    claimed.sort_by_key(|delivery| delivery.replay);
    assert_eq!(claimed.iter().map(|delivery| delivery.replay).collect::<Vec<_>>(), [None, Some(1)]);
    assert_eq!((claimed[1].hook.cursor, &claimed[1].hook.config), (2, &webhook("w").config));
    assert!(due(&store, 7).await.is_empty(), "both are leased");

    // It fails again: it is dead again, and the webhook's own delivery is not affected.
    store.record_delivery(made.task, "w", dead(1, 8)).await.unwrap();
    assert!(due(&store, 9).await.is_empty());
    assert_eq!(store.webhooks(made.task).await.unwrap()[0].cursor, 2);
    let letters = store.dead_letters(10).await.unwrap();
    assert_eq!((letters.len(), letters[0].seq, &*letters[0].reason), (2, 1, "refused at 8"));
    store.record_delivery(made.task, "w", DeliveryOutcome::Delivered { up_to: 3 }).await.unwrap();

    assert_eq!(store.replay_dead_letters(None, at(10)).await.unwrap(), 2);
    let mut replays: Vec<_> = due(&store, 11).await.into_iter().map(|delivery| delivery.replay).collect();
    replays.sort_unstable();
    assert_eq!(replays, [Some(1), Some(2)]);
    for seq in [1, 2] {
        store.record_delivery(made.task, "w", DeliveryOutcome::Replayed { seq }).await.unwrap();
    }
    assert!(store.dead_letters(10).await.unwrap().is_empty());
    assert_eq!(store.webhooks(made.task).await.unwrap()[0].cursor, 3);
    assert_eq!(store.next_delivery_due().await.unwrap(), None);
}

/// An event that is committed while an outcome is recorded is due afterwards, in either order.
pub async fn a_settlement_beside_a_commit_loses_nothing(open: impl AsyncFn() -> Arc<dyn Store>) {
    const TASKS: usize = 200;
    let store = open().await;
    let mut tasks = vec![];
    for _ in 0..TASKS {
        tasks.push(followed(&store).await);
    }
    let leased = store.claim_deliveries(node(), at(0), LEASE, TASKS).await.unwrap();
    assert_eq!(leased.len(), TASKS);
    let mut races = tokio::task::JoinSet::new();
    for made in &tasks {
        let (store, task, up_to) = (Arc::clone(&store), made.task, made.seq);
        races.spawn(async move {
            let settle = store.record_delivery(task, "w", DeliveryOutcome::Delivered { up_to });
            let (settled, _) = tokio::join!(settle, append(&store, task));
            settled.unwrap();
        });
    }
    races.join_all().await;
    // The lease has not expired: what is claimed now was made due by the commit or by the outcome.
    let due = store.claim_deliveries(node(), at(1), LEASE, TASKS).await.unwrap();
    assert_eq!(due.len(), TASKS, "some were committed, and nobody will ever deliver them");
}

async fn failed(store: &Arc<dyn Store>, query: FailedDeliveryQuery) -> Vec<FailedDelivery> {
    store.failed_deliveries(&query).await.unwrap()
}

fn failures(dead: bool) -> FailedDeliveryQuery {
    FailedDeliveryQuery { dead, tenant: None, owner: None, after: None, limit: 10 }
}

/// What fails is listed with its last error, newest first, in pages, by tenant and by owner, until it succeeds.
pub async fn failed_deliveries_are_listed(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let mut tasks = vec![];
    for owner in ["alice", "acme/bob", "acme/carol", "acme2/bob"] {
        let new = NewTask { owner: owner.into(), webhooks: vec![webhook("w"), webhook("x")], ..new_task() };
        tasks.push(
            store.commit_ok(create_as(new, State::Working, at(0), RunChange::Lease(node()))).await.task,
        );
    }
    assert!(failed(&store, failures(false)).await.is_empty(), "what was not attempted has not failed");
    assert_eq!(due(&store, 1).await.len(), 8);
    store.record_delivery(tasks[0], "w", retry(0, at(50))).await.unwrap();
    assert!(due(&store, 2).await.is_empty());
    for task in &tasks[1..] {
        store.record_delivery(*task, "w", retry(0, at(60))).await.unwrap();
    }
    let listed = failed(&store, failures(false)).await;
    let owners = |listed: &[FailedDelivery]| -> Vec<String> {
        listed.iter().map(|failed| failed.row.owner.clone()).collect()
    };
    assert_eq!(owners(&listed), ["acme2/bob", "acme/carol", "acme/bob", "alice"], "newest first");
    let first = &listed[3];
    assert_eq!((&*first.hook.id, first.seq, first.attempts), ("w", 1, 1));
    assert_eq!((first.due_at, first.in_progress, first.at), (Some(at(50)), false, at(1)));
    assert_eq!(first.reason.as_deref(), Some(&*format!("retry at {}", at(50).0)));
    let page = failed(&store, FailedDeliveryQuery { limit: 2, ..failures(false) }).await;
    let after = Some(page[1].cursor());
    let rest = failed(&store, FailedDeliveryQuery { after, ..failures(false) }).await;
    assert_eq!([owners(&page), owners(&rest)].concat(), owners(&listed), "each once");
    let of_tenant = FailedDeliveryQuery { tenant: Some("acme".into()), ..failures(false) };
    assert_eq!(owners(&failed(&store, of_tenant.clone()).await), ["acme/carol", "acme/bob"]);
    let of_owner = FailedDeliveryQuery { owner: Some("acme/bob".into()), ..of_tenant };
    assert_eq!(owners(&failed(&store, of_owner.clone()).await), ["acme/bob"]);
    let of_another = FailedDeliveryQuery { tenant: Some("acme2".into()), ..of_owner };
    assert!(failed(&store, of_another).await.is_empty());

    // A second failure keeps the time of the first.
    assert_eq!(due(&store, 50).await.len(), 1);
    assert!(failed(&store, failures(false)).await[3].in_progress);
    store.record_delivery(tasks[0], "w", retry(0, at(90))).await.unwrap();
    let again = &failed(&store, failures(false)).await[3];
    assert_eq!((again.attempts, again.at, again.due_at), (2, at(1), Some(at(90))));
    let progress = store.webhook_progress(tasks[0]).await.unwrap();
    assert_eq!((&*progress[0].hook.id, progress[0].attempts, progress[0].dead), ("w", 2, 0));
    assert_eq!((progress[0].failing_since, progress[0].due_at), (Some(at(1)), Some(at(90))));
    assert_eq!((progress[1].attempts, progress[1].failing_since, progress[1].in_progress), (0, None, true));

    // It is given up, and the others succeed.
    store.record_delivery(tasks[0], "w", dead(1, 95)).await.unwrap();
    for task in &tasks[1..] {
        store.record_delivery(*task, "w", DeliveryOutcome::Delivered { up_to: 1 }).await.unwrap();
    }
    assert!(failed(&store, failures(false)).await.is_empty());
    let letters = failed(&store, failures(true)).await;
    assert_eq!(owners(&letters), ["alice"]);
    let letter = &letters[0];
    assert_eq!((letter.seq, letter.attempts, letter.due_at, letter.at), (1, 3, None, at(95)));
    assert_eq!(letter.reason.as_deref(), Some("refused at 95"));
    let progress = store.webhook_progress(tasks[0]).await.unwrap();
    assert_eq!((progress[0].dead, progress[0].attempts, progress[0].failing_since), (1, 0, None));
    let home = FailedDeliveryQuery { tenant: Some("home".into()), ..failures(true) };
    assert_eq!(failed(&store, home).await.len(), 1);
    let other = FailedDeliveryQuery { tenant: Some("acme".into()), ..failures(true) };
    assert!(failed(&store, other).await.is_empty());
}

/// A failed delivery is retried before its time, or given up so that the next event is delivered; one in progress is
/// left alone.
pub async fn a_failed_delivery_is_replayed_or_discarded(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let task = followed(&store).await.task;
    append(&store, task).await;
    for seq in [0, 1, 2, u64::MAX / 4] {
        assert!(!store.replay_delivery(task, "w", seq, at(1)).await.unwrap(), "nothing failed");
        assert!(!store.discard_delivery(task, "w", seq, at(1)).await.unwrap(), "nothing failed");
    }
    due(&store, 1).await;
    store.record_delivery(task, "w", retry(0, at(500))).await.unwrap();
    assert!(!store.replay_delivery(task, "w", 2, at(2)).await.unwrap(), "another event waits");
    assert!(!store.replay_delivery(task, "x", 1, at(2)).await.unwrap());
    assert!(store.replay_delivery(task, "w", 1, at(2)).await.unwrap());
    assert_eq!(store.next_delivery_due().await.unwrap(), Some(at(2)));
    assert_eq!(due(&store, 3).await[0].attempts, 1, "the attempts count on");
    assert!(!store.replay_delivery(task, "w", 1, at(4)).await.unwrap(), "in progress");
    assert!(!store.discard_delivery(task, "w", 1, at(4)).await.unwrap(), "in progress");
    store.record_delivery(task, "w", retry(0, at(500))).await.unwrap();

    assert!(store.discard_delivery(task, "w", 1, at(5)).await.unwrap());
    let next = &due(&store, 6).await[0];
    assert_eq!((next.hook.cursor, next.attempts), (1, 0), "the event after it");
    assert!(failed(&store, failures(true)).await.is_empty(), "no trace");
    store.record_delivery(task, "w", dead(2, 7)).await.unwrap();
    assert_eq!(failed(&store, failures(true)).await[0].attempts, 1);
    assert!(due(&store, 8).await.is_empty(), "all is delivered or given up");

    assert!(store.replay_delivery(task, "w", 2, at(9)).await.unwrap());
    assert!(!store.replay_delivery(task, "w", 2, at(9)).await.unwrap(), "it is due already");
    assert_eq!(due(&store, 10).await[0].replay, Some(2));
    assert!(!store.discard_delivery(task, "w", 2, at(11)).await.unwrap(), "in progress");
    store.record_delivery(task, "w", dead(2, 12)).await.unwrap();
    assert_eq!(failed(&store, failures(true)).await[0].attempts, 2);
    assert!(store.discard_delivery(task, "w", 2, at(13)).await.unwrap());
    assert!(!store.discard_delivery(task, "w", 2, at(13)).await.unwrap());
    assert!(store.dead_letters(10).await.unwrap().is_empty());
    // A webhook that is registered anew has failed at nothing.
    append(&store, task).await;
    due(&store, 14).await;
    store.record_delivery(task, "w", retry(2, at(500))).await.unwrap();
    store.put_webhook(task, Webhook { cursor: 2, ..webhook("w") }, 9).await.unwrap();
    assert!(failed(&store, failures(false)).await.is_empty());
}
