//! Checks of task lists: order, pages, filters and totals.

use std::{cmp::Reverse, sync::Arc};

use nuncio_engine::{
    clock::Timestamp,
    store::{ListQuery, NewTask, RunChange, Store, TaskNo},
    task::{State, TaskId},
};

use super::fixtures::{StoreFixtureExt, at, by_version, create_as, new_task};

fn all_of(owner: &str) -> ListQuery {
    ListQuery {
        owner: owner.into(),
        context: None,
        state: None,
        agent: None,
        since: None,
        after: None,
        limit: 50,
        only_rows: false,
    }
}

/// Walks all pages; every page has the same total and is as full as it can be.
async fn walk(store: &Arc<dyn Store>, query: &ListQuery) -> (Vec<TaskNo>, u64) {
    let (mut query, mut found, mut totals) = (query.clone(), vec![], vec![]);
    loop {
        let page = store.list(&query).await.unwrap();
        totals.push(page.total);
        assert!(page.tasks.len() <= query.limit);
        found.extend(page.tasks.iter().map(|task| task.row.no));
        for task in &page.tasks {
            assert_eq!(task.log.len(), 1, "each comes with what is needed to fold it");
        }
        let rows = store.list(&ListQuery { only_rows: true, ..query.clone() }).await.unwrap();
        assert_eq!((rows.next, rows.total), (page.next, page.total));
        for (alone, task) in rows.tasks.iter().zip(&page.tasks) {
            assert!(
                alone.row == task.row && alone.log.is_empty() && alone.snapshot.is_none(),
                "or without it"
            );
        }
        match page.next {
            Some(next) => {
                assert_eq!(page.tasks.len(), query.limit, "only the last page is short");
                query.after = Some(next);
            }
            None => break,
        }
    }
    totals.dedup();
    assert_eq!(totals.len(), 1, "the total is that of all pages");
    (found, totals[0])
}

/// Newest status first, ties by newest task; a task whose status changes moves to the front.
pub async fn list_pages_do_not_overlap(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let mut made = vec![];
    for ms in [5, 5, 5, 9, 1] {
        made.push(store.commit_ok(create_as(new_task(), State::Working, at(ms), RunChange::Rest)).await);
    }
    let nos = |order: &[usize]| -> Vec<TaskNo> { order.iter().map(|n| made[*n].task).collect() };
    for limit in 1..=6 {
        let (found, total) = walk(&store, &ListQuery { limit, ..all_of("alice") }).await;
        assert_eq!((found, total), (nos(&[3, 2, 1, 0, 4]), 5), "pages of {limit}");
    }
    let mut change = by_version(made[4].task, 1);
    change.state = Some((State::Completed, at(10)));
    store.commit_ok(change).await;
    assert_eq!(walk(&store, &all_of("alice")).await.0, nos(&[4, 3, 2, 1, 0]));
    assert_eq!(walk(&store, &all_of("bob")).await, (vec![], 0));
}

/// A context holds the task that opened it and those that joined; it belongs to its owner.
pub async fn list_knows_contexts(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let opener = new_task();
    let context = Some(opener.id.own_context());
    let first = store.create_task(create_as(opener.clone(), State::Completed, at(5), RunChange::Rest)).await;
    let mut joined = vec![];
    for ms in [1, 9] {
        let new = NewTask { context: context.clone(), ..new_task() };
        joined.push(store.create_task(create_as(new, State::Working, at(ms), RunChange::Rest)).await);
    }
    let stranger = NewTask { owner: "bob".into(), context: context.clone(), ..new_task() };
    let strange = store.create_task(create_as(stranger, State::Working, at(1), RunChange::Rest)).await;
    let named = NewTask { context: Some("a name".into()), ..new_task() };
    let named = store.create_task(create_as(named, State::Working, at(1), RunChange::Rest)).await;
    // Its own context, given explicitly.
    let spelled = new_task();
    let spelled = NewTask { context: Some(spelled.id.own_context()), ..spelled };
    let own = store.create_task(create_as(spelled.clone(), State::Working, at(1), RunChange::Rest)).await;

    for limit in [1, 2, 50] {
        let query = ListQuery { context: context.clone(), limit, ..all_of("alice") };
        assert_eq!(walk(&store, &query).await, (vec![joined[1], first, joined[0]], 3));
        let ended = ListQuery { state: Some(State::Completed), ..query.clone() };
        assert_eq!(walk(&store, &ended).await, (vec![first], 1));
        let recent = ListQuery { since: Some(at(5)), ..query.clone() };
        assert_eq!(walk(&store, &recent).await, (vec![joined[1], first], 2));
        let of_others = ListQuery { agent: Some("nobody".into()), ..query.clone() };
        assert_eq!(walk(&store, &of_others).await, (vec![], 0));
        assert_eq!(walk(&store, &ListQuery { owner: "bob".into(), ..query }).await, (vec![strange], 1));
    }
    let query = ListQuery { context: Some("a name".into()), ..all_of("alice") };
    assert_eq!(walk(&store, &query).await, (vec![named], 1));
    let query = ListQuery { context: spelled.context, ..all_of("alice") };
    assert_eq!(walk(&store, &query).await, (vec![own], 1));
}

/// The reference model of a list.
#[derive(Clone)]
struct ListModelTask {
    no: TaskNo,
    id: TaskId,
    owner: &'static str,
    agent: &'static str,
    context: Option<&'static str>,
    state: State,
    status_at: Timestamp,
}

fn expected(tasks: &[ListModelTask], query: &ListQuery) -> Vec<TaskNo> {
    let mut found: Vec<&ListModelTask> = tasks
        .iter()
        .filter(|task| {
            let own = task.id.own_context();
            task.owner == query.owner
                && query.context.as_deref().is_none_or(|context| task.context.unwrap_or(&own) == context)
                // Without a filter a list has every state but one: an answer by a message is no task.
                && query.state.map_or(task.state != State::Replied, |state| task.state == state)
                && query.agent.as_ref().is_none_or(|agent| task.agent == agent)
                && query.since.is_none_or(|since| task.status_at >= since)
        })
        .collect();
    found.sort_by_key(|task| Reverse((task.status_at, task.no)));
    found.iter().map(|task| task.no).collect()
}

/// Random tasks with random histories, under every combination of filters, against the model above.
pub async fn list_agrees_with_a_plain_model(open: impl AsyncFn() -> Arc<dyn Store>) {
    let store = open().await;
    let mut dice = Dice(0x2545_F491_4F6C_DD1D);
    let (owners, agents) = (["alice", "bob"], ["echo", "travel", "research"]);
    let contexts = [None, None, Some("one"), Some("two")];
    let states: Vec<State> = State::ALL.into_iter().chain([State::Replied, State::Replied]).collect();
    let mut tasks: Vec<ListModelTask> = vec![];
    for _ in 0..150 {
        let (owner, agent, context) = (*dice.of(&owners), *dice.of(&agents), *dice.of(&contexts));
        let (state, status_at) = (*dice.of(&states), at(dice.below(40)));
        let new = NewTask {
            owner: owner.into(),
            agent: agent.into(),
            context: context.map(str::to_owned),
            ..new_task()
        };
        let id = new.id;
        let no = store.create_task(create_as(new, state, status_at, RunChange::Rest)).await;
        tasks.push(ListModelTask { no, id, owner, agent, context, state, status_at });
        let moved = dice.below(tasks.len() as i64) as usize;
        let moved = &mut tasks[moved];
        if !moved.state.is_terminal() {
            (moved.state, moved.status_at) = (*dice.of(&states), at(dice.below(40)));
            let mut change = by_version(moved.no, store.row_of(moved.id).await.version);
            change.state = Some((moved.state, moved.status_at));
            store.commit_ok(change).await;
        }
    }
    assert_eq!(store.tally("stranger").await.unwrap(), vec![]);
    for owner in owners {
        let mut counted = std::collections::BTreeMap::new();
        for task in tasks.iter().filter(|task| task.owner == owner && task.state != State::Replied) {
            *counted.entry((task.agent.to_owned(), task.state)).or_insert(0) += 1;
        }
        let tally = store.tally(owner).await.unwrap();
        let tally: Vec<_> = tally.into_iter().map(|row| ((row.agent, row.state), row.count)).collect();
        assert_eq!(tally, counted.into_iter().collect::<Vec<_>>(), "the counters of {owner}");
        for context in [None, Some("one"), Some("none such"), Some(&*tasks[0].id.own_context())] {
            for state in [None, Some(State::Working), Some(State::Completed), Some(State::Replied)] {
                for agent in [None, Some("travel"), Some("none such")] {
                    for since in [None, Some(at(20))] {
                        let query = ListQuery {
                            context: context.map(str::to_owned),
                            state,
                            agent: agent.map(str::to_owned),
                            since,
                            limit: 1 + dice.below(12) as usize,
                            ..all_of(owner)
                        };
                        let expected = expected(&tasks, &query);
                        let total = expected.len() as u64;
                        assert_eq!(walk(&store, &query).await, (expected, total), "{query:?}");
                    }
                }
            }
        }
    }
}

/// Pseudo-random numbers from a seed: the same tasks in every run. (xorshift64*)
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: i64) -> i64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as i64) % n
    }

    fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as i64) as usize]
    }
}
