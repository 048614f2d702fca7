//! A caller's tasks, newest status first, filtered and in pages.

use std::{slice::from_ref, time::Duration};

use nuncio_engine::{
    AgentError, Caller, Chunk, Error, List, Outcome, State, Submit, Task, TaskContext,
    clock::{Clock, Timestamp},
    commands::list::MAX_PAGE,
};
use serde_json::json;

use crate::world::{EngineExt, HandClock, World, me, said, to, until};

fn world() -> World {
    let any = async |cx: TaskContext| match cx.text().as_str() {
        "ask" => {
            let form = json!({"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]});
            cx.ask("Who?", form).await?;
            Ok(Outcome::done())
        }
        "work" => {
            cx.canceled().await;
            Err(AgentError::Canceled)
        }
        "fail" => Ok(Outcome::failed("so be it")),
        _ => Ok(Outcome::done()),
    };
    World::new().agent("a", any).agent("b", any)
}

fn page(size: usize) -> List {
    List { page_size: size, ..Default::default() }
}

fn ids(tasks: &[Task]) -> Vec<String> {
    tasks.iter().map(|task| task.origin.id.to_string()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_filter_finds_what_it_names() {
    let clock = HandClock::new();
    let engine = world().clock(&clock).start().await;
    let send = async |agent: &str, text: &str, context: &str| {
        clock.advance(Duration::from_secs(1));
        let mut submit: Submit = to(agent, text);
        submit.context = Some(context.into());
        engine.run(submit).await
    };
    let done = send("a", "done", "one").await;
    let asks = send("a", "ask", "two").await;
    engine.parked(&asks).await;
    let fails = send("b", "fail", "one").await;
    clock.advance(Duration::from_secs(1));
    let works = engine.send(to("b", "work")).await;

    let list = async |list: List| {
        let listed = engine.list(&me(), List { page_size: 10, ..list }).await.unwrap();
        assert_eq!(listed.total, listed.tasks.len() as u64);
        assert_eq!(listed.next_page_token, None);
        listed.tasks
    };
    let by =
        |context: Option<&str>, state: Option<State>, agent: Option<&str>, since: Option<Timestamp>| List {
            context: context.map(Into::into),
            state,
            agent: agent.map(Into::into),
            since,
            ..Default::default()
        };
    let all = list(by(None, None, None, None)).await;
    assert_eq!(ids(&all), ids(&[works.clone(), fails.clone(), asks.clone(), done.clone()]), "newest first");
    for task in &all {
        assert_eq!(*task, engine.task(task.origin.id).await, "a list shows what `get` shows");
    }
    assert_eq!(ids(&list(by(Some("one"), None, None, None)).await), ids(&[fails.clone(), done.clone()]));
    assert_eq!(ids(&list(by(None, Some(State::InputRequired), None, None)).await), ids(from_ref(&asks)));
    assert_eq!(ids(&list(by(None, Some(State::Working), None, None)).await), ids(from_ref(&works)));
    assert_eq!(ids(&list(by(None, Some(State::Failed), None, None)).await), ids(from_ref(&fails)));
    assert_eq!(ids(&list(by(None, None, Some("b"), None)).await), ids(&[works.clone(), fails.clone()]));
    let since = Some(fails.status_at);
    assert_eq!(ids(&list(by(None, None, None, since)).await), ids(&[works.clone(), fails.clone()]));
    assert_eq!(
        ids(&list(by(Some("one"), Some(State::Failed), Some("b"), since)).await),
        ids(from_ref(&fails))
    );
    let own = works.origin.context.clone();
    assert_eq!(ids(&list(by(Some(&own), None, None, None)).await), ids(&[works]));
    for nothing in [
        by(Some("three"), None, None, None),
        by(None, Some(State::Rejected), None, None),
        by(None, None, Some("c"), None),
        by(None, None, None, Some(clock.now().after(Duration::from_secs(1)))),
        by(Some("two"), Some(State::Failed), None, None),
    ] {
        assert_eq!(list(nothing).await, []);
    }

    // A task moves to the front when its status changes.
    clock.advance(Duration::from_secs(1));
    engine.say(&asks, said("me")).await.unwrap();
    engine.ended(&asks).await;
    assert_eq!(list(by(None, None, None, None)).await[0].origin.id, asks.origin.id);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_any_size_are_the_whole_list() {
    // All at one moment, so that ties are told apart too.
    let engine = world().clock(&HandClock::new()).start().await;
    futures_util::future::join_all((0..25).map(|_| engine.send(to("a", "done")))).await;
    let whole = engine.list(&me(), page(100)).await.unwrap();
    assert_eq!((whole.tasks.len(), whole.total, whole.next_page_token), (25, 25, None));
    for size in [1, 7, 24, 25, 26] {
        let (mut seen, mut token) = (vec![], None);
        loop {
            let listed = engine.list(&me(), List { page_token: token, ..page(size) }).await.unwrap();
            assert!(listed.tasks.len() <= size);
            assert_eq!(listed.total, 25);
            seen.extend(listed.tasks);
            token = listed.next_page_token;
            if token.is_none() {
                break;
            }
        }
        assert_eq!(ids(&seen), ids(&whole.tasks), "pages of {size}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_that_cannot_be_is_refused() {
    let engine = world().start().await;
    engine.send(to("a", "done")).await;
    for size in [0, MAX_PAGE + 1, usize::MAX] {
        let error = engine.list(&me(), page(size)).await.unwrap_err();
        assert!(matches!(&error, Error::Invalid(why) if why.starts_with("pageSize: ")), "{error}");
    }
    engine.list(&me(), page(MAX_PAGE)).await.unwrap();
    for token in ["nonsense", "1", ".", "1.", ".1", "x.1", "1.x", "1.2.3", "99999999999999999.1", " 1.2"] {
        let error = engine.list(&me(), List { page_token: Some(token.into()), ..page(1) }).await.unwrap_err();
        assert!(matches!(&error, Error::Invalid(why) if why.starts_with("pageToken: ")), "{token}: {error}");
    }
    let first = engine.list(&me(), List { page_token: Some(String::new()), ..page(1) }).await.unwrap();
    assert_eq!(first.tasks.len(), 1, "an empty token is the first page");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_is_of_the_callers_own_tasks() {
    let engine = world().start().await;
    let (ada, bob) = (Caller::named("ada"), Caller::named("bob"));
    let mut submit = to("a", "done");
    submit.context = Some("shared".into());
    let adas = engine.submit(&ada, submit).await.unwrap();
    let shared = List { context: Some("shared".into()), ..page(10) };
    assert_eq!(ids(&engine.list(&ada, shared.clone()).await.unwrap().tasks), ids(from_ref(&adas)));
    assert_eq!(engine.list(&bob, shared).await.unwrap().total, 0);
    assert_eq!(engine.list(&bob, page(10)).await.unwrap().total, 0);
    let own = List { context: Some(adas.origin.id.own_context()), ..page(10) };
    assert_eq!(engine.list(&bob, own).await.unwrap().total, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_shows_states_as_they_change() {
    let engine = world().start().await;
    let task = engine.send(to("a", "work")).await;
    let in_state = async |state: State| {
        let listed = engine.list(&me(), List { state: Some(state), ..page(10) }).await.unwrap();
        ids(&listed.tasks)
    };
    assert_eq!(in_state(State::Working).await, ids(from_ref(&task)));
    engine.cancel(&me(), &task.origin.id.to_string()).await.unwrap();
    until("it is listed as canceled", async || {
        (in_state(State::Canceled).await == ids(from_ref(&task))).then_some(())
    })
    .await;
    assert_eq!(in_state(State::Working).await, Vec::<String>::new());
}

/// Talks and makes things: `N` megabytes of results in pieces, with words between them.
fn makers() -> World {
    World::new().agent("maker", async |cx: TaskContext| {
        for n in 0..cx.text().parse::<usize>().unwrap() {
            cx.progress(n as f64, None, "on it").await?;
            for _ in 0..16 {
                cx.artifact(Chunk::text("made", "x".repeat(64 * 1024))).await?;
            }
        }
        Ok(Outcome::said("here it is"))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_shows_of_large_tasks_what_their_fold_would_show() {
    let engine = makers().start().await;
    for size in ["0", "1", "3"] {
        engine.run(to("maker", size)).await;
    }
    for history in [None, Some(0), Some(1), Some(9)] {
        let bare = List { without_artifacts: true, history, ..page(10) };
        let listed = engine.list(&me(), bare).await.unwrap();
        assert_eq!((listed.tasks.len(), listed.total, listed.next_page_token), (3, 3, None));
        for shown in listed.tasks {
            let mut whole = Task::clone(&*engine.get(&me(), &shown.origin.id.to_string()).await.unwrap());
            whole.artifacts.clear();
            let surplus = whole.history.len() - history.unwrap_or(usize::MAX).min(whole.history.len());
            whole.history.drain(..surplus);
            assert_eq!(shown, whole, "{history:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_ends_at_its_bytes_and_the_next_goes_on_after_it() {
    let engine = makers().options(|options| options.page_bytes = 2_500_000).start().await;
    let mut made = vec![];
    for size in ["1", "3", "0", "1", "1", "0"] {
        made.push(engine.run(to("maker", size)).await.origin.id.to_string());
    }
    made.reverse();
    let (mut seen, mut pages, mut token) = (vec![], vec![], None);
    loop {
        let listed = engine.list(&me(), List { page_token: token, ..page(100) }).await.unwrap();
        assert_eq!(listed.total, 6);
        pages.push(listed.tasks.len());
        seen.extend(ids(&listed.tasks));
        token = listed.next_page_token;
        if token.is_none() {
            break;
        }
    }
    assert_eq!(seen, made, "each once, in order");
    assert_eq!(pages, [4, 1, 1], "one that is larger than a page stands alone");
    let bare = List { without_artifacts: true, ..page(100) };
    assert_eq!(
        engine.list(&me(), bare).await.unwrap().tasks.len(),
        6,
        "artifacts that are not shown do not count"
    );
}
