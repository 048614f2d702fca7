//! How many tasks one task may make and have at work, and that one tenant's crowd does not stand in another's way.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use nuncio_engine::{Caller, MeteredResource, Outcome, State, TaskContext, context::CallEnd};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::{
    calling::ended,
    world::{EngineExt, World, last_words, said, to, until},
};

// ------------------------------------------------------------------------------------------------ budgets

/// How many tasks of an agent are at work, and the most that ever were.
#[derive(Default)]
struct Crowd {
    now: AtomicUsize,
    most: AtomicUsize,
    order: Mutex<Vec<String>>,
}

impl Crowd {
    fn enter(self: &Arc<Self>) -> Present {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        Present(Arc::clone(self))
    }
}

struct Present(Arc<Crowd>);

impl Drop for Present {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

/// `fan` calls so many others as its text says, all at once, each with what follows; `leaf` works until it is let go.
fn fans(crowd: &Arc<Crowd>, gate: &Arc<Semaphore>) -> World {
    let (crowd, gate) = (Arc::clone(crowd), Arc::clone(gate));
    World::new()
        .agent("fan", async |cx: TaskContext| {
            let text = cx.text();
            let (count, rest) = text.split_once(' ').unwrap_or((&text, ""));
            let agent = if rest.is_empty() { "leaf" } else { "fan" };
            let calls = (0..count.parse().unwrap()).map(|n: usize| {
                let branch = cx.branch(&n.to_string());
                let input = if rest.is_empty() { cx.caller().owner().to_owned() } else { rest.to_owned() };
                async move { branch.call_until(agent, said(input), None).await.map(|called| called.end) }
            });
            let mut refused = HashSet::new();
            for end in join_all(calls).await {
                match end? {
                    CallEnd::Ended(task) if task.state == State::Completed => {}
                    CallEnd::Ended(task) | CallEnd::Late(task) => drop(refused.insert(last_words(&task))),
                    CallEnd::Refused(why) => drop(refused.insert(why)),
                }
            }
            Ok(match refused.into_iter().next() {
                Some(why) => Outcome::failed(why),
                None => Outcome::done(),
            })
        })
        .agent("leaf", move |cx: TaskContext| {
            let (crowd, gate) = (Arc::clone(&crowd), Arc::clone(&gate));
            async move {
                let text = cx.text();
                cx.step("work", async |_| {
                    let _present = crowd.enter();
                    gate.acquire().await.unwrap().forget();
                    Ok(())
                })
                .await?;
                crowd.order.lock().unwrap().push(text);
                Ok(Outcome::done())
            }
        })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn called_tasks_obey_the_cap_on_running_tasks_and_all_end() {
    let (crowd, gate) = (Arc::new(Crowd::default()), Arc::new(Semaphore::new(0)));
    let engine = fans(&crowd, &gate).options(|options| options.max_running = 4).start().await;
    let ada = Caller::named("acme/ada");
    let task = engine.submit(&ada, to("fan", "40")).await.unwrap();
    until("four are at work", async || (crowd.now.load(Ordering::SeqCst) >= 4).then_some(())).await;
    // Each that ends lets one more in.
    for _ in 0..40 {
        gate.add_permits(1);
        tokio::task::yield_now().await;
    }
    let task = ended(&engine, &ada, &task).await;
    assert_eq!(task.state, State::Completed, "{}", last_words(&task));
    let most = crowd.most.load(Ordering::SeqCst);
    assert!(most <= 4, "{most} tasks ran at once, and max_running is 4");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_within_calls_at_the_cap_do_not_wait_for_each_other_for_ever() {
    let (crowd, gate) = (Arc::new(Crowd::default()), Arc::new(Semaphore::new(1_000)));
    let engine = fans(&crowd, &gate).options(|options| options.max_running = 2).start().await;
    let ada = Caller::named("acme/ada");
    let mut tasks = vec![];
    for _ in 0..4 {
        tasks.push(engine.submit(&ada, to("fan", "3 3 3")).await.unwrap());
    }
    for task in tasks {
        let task = ended(&engine, &ada, &task).await;
        assert_eq!(task.state, State::Completed, "{}", last_words(&task));
    }
    until("nothing runs", async || (engine.load() == (0, 0)).then_some(())).await;
    assert_eq!(crowd.order.lock().unwrap().len(), 4 * 27);
}

// ------------------------------------------------------------------------------------------------- shares

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_that_fills_the_queue_causes_no_refusal_for_another() {
    let (crowd, gate) = (Arc::new(Crowd::default()), Arc::new(Semaphore::new(0)));
    let world = fans(&crowd, &gate).options(|options| {
        options.max_running = 2;
        options.max_queued = 8;
    });
    let engine = world.start().await;
    let (loud, quiet) = (Caller::named("acme/loud"), Caller::named("beta/quiet"));
    let mut refused = 0;
    for _ in 0..20 {
        refused += usize::from(engine.submit(&loud, to("leaf", "loud")).await.is_err());
    }
    assert_eq!(refused, 10, "two run and eight wait");
    let task = engine.submit(&quiet, to("leaf", "quiet")).await.expect("the other tenant is served");
    until("it runs at once", async || {
        let task = engine.get(&quiet, &task.origin.id.to_string()).await.unwrap();
        (task.state == State::Working).then_some(())
    })
    .await;
    gate.add_permits(100);
    assert_eq!(ended(&engine, &quiet, &task).await.state, State::Completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_tenants_long_queue_does_not_stand_before_anothers_short_one() {
    let (crowd, gate) = (Arc::new(Crowd::default()), Arc::new(Semaphore::new(0)));
    let world = fans(&crowd, &gate).options(|options| {
        options.max_running = 1;
        options.claim_poll = Duration::from_millis(50);
    });
    let engine = world.start().await;
    let (loud, quiet) = (Caller::named("acme/loud"), Caller::named("beta/quiet"));
    for _ in 0..50 {
        engine.submit(&loud, to("leaf", "loud")).await.unwrap();
    }
    let mut tasks = vec![];
    for _ in 0..5 {
        tasks.push(engine.submit(&quiet, to("leaf", "quiet")).await.unwrap());
    }
    gate.add_permits(55);
    for task in &tasks {
        assert_eq!(ended(&engine, &quiet, task).await.state, State::Completed);
    }
    until("all have ended", async || (crowd.order.lock().unwrap().len() == 55).then_some(())).await;
    let order = crowd.order.lock().unwrap().clone();
    let last = order.iter().rposition(|who| who == "quiet").unwrap();
    assert!(last < 20, "the last of the short queue was number {last} of 55: {order:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tree_of_calls_makes_no_more_tasks_than_its_budget() {
    let (crowd, gate) = (Arc::new(Crowd::default()), Arc::new(Semaphore::new(1_000)));
    let engine = fans(&crowd, &gate).options(|options| options.calls.tasks_per_root = 10).start().await;
    let ada = Caller::named("acme/ada");
    let task = engine.submit(&ada, to("fan", "4 4 4")).await.unwrap();
    let task = ended(&engine, &ada, &task).await;
    assert_eq!(task.state, State::Failed);
    assert!(last_words(&task).starts_with("limits.tasks-per-root: "), "{}", last_words(&task));
    assert_eq!(engine.store_for_tests().descendants(task.origin.id, 1_000).await.unwrap(), 10);
    // Another root has a budget of its own.
    let task = engine.submit(&ada, to("fan", "10")).await.unwrap();
    assert_eq!(ended(&engine, &ada, &task).await.state, State::Completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_budget_of_a_tree_survives_a_restart() {
    let form = json!({"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]});
    let world = World::new()
        .options(|options| options.calls.tasks_per_root = 3)
        .agent("serial", move |cx: TaskContext| {
            let form = form.clone();
            async move {
                cx.call("leaf", said("1")).await?;
                cx.call("leaf", said("2")).await?;
                cx.ask("Go on?", form).await?;
                cx.call("leaf", said("3")).await?;
                cx.call("leaf", said("4")).await?;
                Ok(Outcome::done())
            }
        })
        .agent("leaf", async |cx: TaskContext| Ok(Outcome::said(cx.text())));
    let engine = world.start().await;
    let task = engine.run(to("serial", "go")).await;
    assert_eq!(task.state, State::InputRequired, "{}", last_words(&task));
    engine.stop().await;
    drop(engine);
    let engine = world.start().await;
    engine.say(&task, said("yes")).await.unwrap();
    let task = engine.ended(&task).await;
    assert_eq!(task.state, State::Failed);
    assert!(last_words(&task).starts_with("limits.tasks-per-root: "), "{}", last_words(&task));
    assert_eq!(engine.store_for_tests().descendants(task.origin.id, 1_000).await.unwrap(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tree_of_calls_has_only_so_many_at_work_and_is_canceled_at_once() {
    let (crowd, gate) = (Arc::new(Crowd::default()), Arc::new(Semaphore::new(0)));
    // Those at work do not look up: each is let go after the grace period.
    let world = fans(&crowd, &gate).options(|options| {
        options.calls.running_per_root = 8;
        options.cancel_grace = Duration::from_millis(200);
    });
    let engine = world.start().await;
    let ada = Caller::named("acme/ada");
    let task = engine.submit(&ada, to("fan", "4 100")).await.unwrap();
    until("it is at work", async || (crowd.now.load(Ordering::SeqCst) >= 4).then_some(())).await;
    let other = engine.submit(&ada, to("fan", "2")).await.unwrap();
    until("so is another", async || (crowd.now.load(Ordering::SeqCst) >= 6).then_some(())).await;
    assert!(engine.load().0 <= 12, "{:?}", engine.load());
    let began = Instant::now();
    let task = engine.cancel(&ada, &task.origin.id.to_string()).await.unwrap();
    assert_eq!(task.state, State::Canceled);
    assert!(began.elapsed() < Duration::from_secs(2), "it took {:?}", began.elapsed());
    assert_eq!(engine.store_for_tests().live_children(task.origin.id).await.unwrap(), []);
    gate.add_permits(1_000);
    assert_eq!(ended(&engine, &ada, &other).await.state, State::Completed);
    until("nothing runs", async || (engine.load() == (0, 0)).then_some(())).await;
    let made = engine.store_for_tests().descendants(task.origin.id, 1_000).await.unwrap();
    assert!(made <= 12, "{made} were made of 404");
}

#[test]
fn called_tasks_obey_the_cap_after_a_restart_too() {
    let (crowd, gate) = (Arc::new(Crowd::default()), Arc::new(Semaphore::new(0)));
    let world = fans(&crowd, &gate).options(|options| options.max_running = 4);
    let ada = Caller::named("acme/ada");
    let life = world.life();
    let task = life.block_on(async {
        let task = life.engine.submit(&ada, to("fan", "40")).await.unwrap();
        until("four are at work", async || (crowd.now.load(Ordering::SeqCst) >= 4).then_some(())).await;
        task
    });
    life.cut();
    let life = world.life();
    life.block_on(async {
        until("four are at work again", async || (life.engine.load().0 >= 4).then_some(())).await;
        gate.add_permits(1_000);
        assert_eq!(ended(&life.engine, &ada, &task).await.state, State::Completed);
    });
    let most = crowd.most.load(Ordering::SeqCst);
    assert!(most <= 4 + 4, "{most} at once, those counted that died with the first process");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_operator_sees_what_each_tenant_uses() {
    let (crowd, gate) = (Arc::new(Crowd::default()), Arc::new(Semaphore::new(0)));
    let engine = fans(&crowd, &gate).start().await;
    let (ada, eve) = (Caller::named("acme/ada"), Caller::named("beta/eve"));
    let task = engine.submit(&ada, to("fan", "3")).await.unwrap();
    engine.submit(&eve, to("leaf", "x")).await.unwrap();
    until("all are at work", async || (crowd.now.load(Ordering::SeqCst) == 4).then_some(())).await;
    let used = |engine: &nuncio_engine::Engine| -> Vec<(String, u64)> {
        let report = engine.usage_report();
        report.into_iter().map(|used| (used.tenant.clone(), used.of(MeteredResource::RunningTasks))).collect()
    };
    assert_eq!(used(&engine), [("acme".to_owned(), 4), ("beta".to_owned(), 1)]);
    gate.add_permits(4);
    ended(&engine, &ada, &task).await;
    until("nothing is used", async || {
        let uses = |usage: &nuncio_engine::TenantUsage| {
            usage.of(MeteredResource::RunningTasks) + usage.of(MeteredResource::WaitingTasks) > 0
        };
        (!engine.usage_report().iter().any(uses)).then_some(())
    })
    .await;
}

/// A bomb of nested calls and thousands of tasks by one tenant, while another's calls stay fast.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_tenants_one_hostile() {
    let (crowd, gate) = (Arc::new(Crowd::default()), Arc::new(Semaphore::new(0)));
    let world = fans(&crowd, &gate)
        .options(|options| {
            options.max_running = 200;
            options.max_queued = 500;
            options.calls.running_per_root = 100;
            options.cancel_grace = Duration::from_millis(500);
        })
        .agent("echo", async |cx: TaskContext| Ok(Outcome::said(cx.text())))
        .agent("slow", async |cx: TaskContext| {
            cx.step("work", async |_| Ok(())).await?;
            Ok(Outcome::said(cx.text()))
        });
    let engine = world.start().await;
    let (loud, quiet) = (Caller::named("acme/loud"), Caller::named("beta/quiet"));
    let bomb = engine.submit(&loud, to("fan", "50 50 50")).await.unwrap();
    let mut refused = 0;
    for _ in 0..2_000 {
        refused += usize::from(engine.submit(&loud, to("leaf", "loud")).await.is_err());
    }
    assert!(refused > 1_000, "the tenant is refused what is beyond its own: {refused}");
    let mut longest = Duration::ZERO;
    for n in 0..100 {
        let agent = ["echo", "slow", "fan"][n % 3];
        let text = if agent == "fan" { "0" } else { "hello" };
        let began = Instant::now();
        let task = engine.submit(&quiet, to(agent, text)).await.expect("the other is never refused");
        assert_eq!(ended(&engine, &quiet, &task).await.state, State::Completed);
        longest = longest.max(began.elapsed());
    }
    assert!(longest < Duration::from_secs(2), "the slowest call took {longest:?}");
    // Roots of one tenant, its called tasks, and the few beyond for each depth.
    assert!(engine.usage().used("acme/loud", MeteredResource::RunningTasks).total <= 200 + 200 + 50);
    let began = Instant::now();
    let bomb = engine.cancel(&loud, &bomb.origin.id.to_string()).await.unwrap();
    assert_eq!(bomb.state, State::Canceled, "after {:?}", began.elapsed());
}
