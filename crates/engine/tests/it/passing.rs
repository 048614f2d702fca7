//! What a called task asks is asked by the one that called it, and answered once, wherever the answer comes.

use std::sync::Arc;

use nuncio_engine::{AgentError, Answer, Chunk, Engine, List, Outcome, State, Task, TaskContext};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::world::{EngineExt, World, data, me, said, text_of, to, until};

fn form() -> Value {
    json!({ "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"] })
}

/// Asks twice and says what it was told.
async fn child(cx: TaskContext) -> Result<Outcome, AgentError> {
    let first = cx.ask("First?", form()).await?;
    let second = cx.ask("Second?", form()).await?;
    cx.artifact(Chunk::text("heard", format!("{} {}", told(&first), told(&second)))).await?;
    Ok(Outcome::done())
}

fn told(answer: &Answer) -> String {
    match answer {
        Answer::Accept(data) => data["name"].as_str().unwrap_or("?").to_owned(),
        other => format!("{other:?}"),
    }
}

async fn calls(cx: TaskContext, agent: &str) -> Result<Outcome, AgentError> {
    let called = cx.call(agent, said("go")).await?;
    let heard = called.artifacts.iter().find(|artifact| artifact.id == "heard");
    let heard = heard.and_then(|heard| heard.parts[0].as_text()).unwrap_or("nothing").to_owned();
    cx.artifact(Chunk::text("heard", format!("{heard} ({:?})", called.state))).await?;
    Ok(Outcome::done())
}

fn world() -> World {
    World::new()
        .agent("parent", async |cx: TaskContext| calls(cx, "child").await)
        .agent("grandparent", async |cx: TaskContext| calls(cx, "parent").await)
        .agent("child", child)
}

/// The task once it asks this.
async fn asking(engine: &Engine, task: &Task, text: &str) -> Task {
    let id = task.origin.id.to_string();
    until("it asks", async || {
        let task = engine.get(&me(), &id).await.unwrap();
        let asks = task.questions.iter().any(|(_, question)| question.text == text);
        asks.then(|| Task::clone(&task))
    })
    .await
}

/// The task that was called, by the question that was passed on.
fn called(task: &Task) -> String {
    let (_, question) = &task.questions[0];
    question.id.split_once('.').unwrap().0.to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_goes_up_and_its_answer_down_through_restarts() {
    let world = world();
    for (agent, restarts) in
        [("parent", false), ("grandparent", false), ("parent", true), ("grandparent", true)]
    {
        let mut engine = world.start().await;
        let task = engine.run(to(agent, "go")).await;
        for (text, answer) in [("First?", "Ada"), ("Second?", "Bob")] {
            let asking = asking(&engine, &task, text).await;
            assert_eq!((asking.state, asking.questions.len()), (State::InputRequired, 1));
            if restarts {
                engine.parked(&asking).await;
                engine.stop().await;
                drop(engine);
                engine = world.start().await;
            }
            let refused = engine.say(&asking, data(json!({ "name": 1 }))).await;
            assert!(refused.is_err(), "the schema is that of the task that asks");
            engine.say(&asking, said(answer)).await.unwrap();
        }
        let ended = engine.ended(&task).await;
        assert!(text_of(&ended, "heard").starts_with("Ada Bob (Completed)"), "{}", text_of(&ended, "heard"));
        engine.checked(ended.origin.id).await;
        engine.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_inbox_lists_a_question_once_with_the_path_that_it_came() {
    let world = world();
    let engine = world.start().await;
    let task = engine.run(to("grandparent", "go")).await;
    let mut watch = engine.watch_questions(&me()).unwrap();
    for (text, answer) in [("First?", "Ada"), ("Second?", "Bob")] {
        let asking = asking(&engine, &task, text).await;
        let open = watch.read().await.unwrap();
        let fresh = engine.open_questions(&me()).await.unwrap();
        assert_eq!(open.questions, fresh.questions, "what a watch remembers is what the store has");
        let [question] = &open.questions[..] else { panic!("{:?}", open.questions) };
        assert_eq!((question.task, &*question.question), (task.origin.id, &asking.questions[0].1));
        // The same way from the other end.
        let (child, _) = question.path[2];
        let family = engine.task_family(&me(), &child.to_string()).await.unwrap();
        let callers: Vec<&str> = family.callers.iter().map(|row| row.agent.as_str()).collect();
        assert_eq!((callers, family.called.len()), (vec!["grandparent", "parent"], 0));
        let family = engine.task_family(&me(), &task.origin.id.to_string()).await.unwrap();
        assert_eq!((family.callers.len(), family.called[0].agent.as_str()), (0, "parent"));
        let agents: Vec<&str> = question.path.iter().map(|(_, agent)| agent.as_str()).collect();
        assert_eq!(agents, ["grandparent", "parent", "child"]);
        engine
            .answer(&me(), &question.task.to_string(), &question.question.id, &told_name(answer))
            .await
            .unwrap();
    }
    engine.ended(&task).await;
    assert!(watch.read().await.unwrap().questions.is_empty());
    engine.stop().await;
}

fn told_name(name: &str) -> Answer {
    Answer::Accept(json!({ "name": name }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_answers_the_called_task_answers_for_both() {
    let world = world();
    let engine = world.start().await;
    for agent in ["parent", "grandparent"] {
        let task = engine.run(to(agent, "go")).await;
        for (text, answer) in [("First?", "Ada"), ("Second?", "Bob")] {
            let asking = asking(&engine, &task, text).await;
            let mut child = called(&asking);
            if agent == "grandparent" {
                let parent = engine.get(&me(), &child).await.unwrap();
                child = called(&parent);
            }
            let child = engine.get(&me(), &child).await.unwrap();
            engine.say(&child, said(answer)).await.unwrap();
        }
        let ended = engine.ended(&task).await;
        assert!(text_of(&ended, "heard").starts_with("Ada Bob (Completed)"), "{}", text_of(&ended, "heard"));
        assert!(ended.questions.is_empty());
        engine.checked(ended.origin.id).await;
    }
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_called_task_that_is_canceled_takes_its_question_along() {
    let world = world();
    let engine = world.start().await;
    let task = engine.run(to("parent", "go")).await;
    let asking = asking(&engine, &task, "First?").await;
    engine.parked(&asking).await;
    let child = called(&asking);
    until("the called task asks", async || {
        let parked = engine.get(&me(), &child).await.unwrap();
        (parked.state == State::InputRequired).then_some(())
    })
    .await;
    engine.cancel(&me(), &child).await.unwrap();
    let ended = engine.ended(&task).await;
    assert_eq!(text_of(&ended, "heard"), "nothing (Canceled)");
    engine.checked(ended.origin.id).await;
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_called_task_that_ends_without_its_answer_takes_its_question_along() {
    let gives_up = Arc::new(Notify::new());
    let gate = Arc::clone(&gives_up);
    let world = World::new()
        .agent("parent", async |cx: TaskContext| calls(cx, "child").await)
        .agent("grandparent", async |cx: TaskContext| calls(cx, "parent").await)
        .agent("child", move |cx: TaskContext| {
            let gate = Arc::clone(&gate);
            async move {
                let (asks, waits) = (cx.branch("asks"), cx.branch("waits"));
                tokio::select! {
                    answer = asks.ask("First?", form()) => answer.map(|_| Outcome::said("answered")),
                    waited = waits.step("wait", async |_| { gate.notified().await; Ok(()) }) => {
                        waited.map(|()| Outcome::said("gave up"))
                    }
                }
            }
        });
    let engine = world.start().await;
    let task = engine.send(to("grandparent", "go")).await;
    asking(&engine, &task, "First?").await;
    gives_up.notify_one();
    let ended = engine.ended(&task).await;
    assert_eq!(text_of(&ended, "heard"), "nothing (Completed) (Completed)");
    engine.stop().await;
}

/// An answer that comes while a server starts again: the tasks above may relay the question after it has its answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_question_is_left_open_above_a_task_that_has_ended() {
    for _ in 0..if std::env::var_os("NUNCIO_FULL").is_some() { 40 } else { 3 } {
        let all = (0..16).map(async |_| {
            let world = World::new()
                .options(|options| options.max_running = 1)
                .agent("parent", async |cx: TaskContext| calls(cx, "child").await)
                .agent("grandparent", async |cx: TaskContext| calls(cx, "parent").await)
                .agent("child", async |cx: TaskContext| {
                    cx.ask("First?", form()).await?;
                    Ok(Outcome::done())
                });
            let engine = world.start().await;
            let task = engine.send(to("grandparent", "go")).await;
            let asking = until("somebody asks", async || {
                let list = List { page_size: 10, state: Some(State::InputRequired), ..Default::default() };
                engine.list(&me(), list).await.unwrap().tasks.pop()
            })
            .await;
            engine.stop().await;
            drop(engine);
            let engine = world.start().await;
            engine.say(&asking, said("me")).await.unwrap();
            assert_eq!(engine.ended(&task).await.state, State::Completed);
            engine.stop().await;
        });
        futures_util::future::join_all(all).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_is_canceled_while_what_it_called_asks_ends_as_canceled() {
    let world = World::new().agent("child", child).agent("many", async |cx: TaskContext| {
        let call = async |name: String| cx.branch(&name).call("child", said("go")).await;
        futures_util::future::try_join_all((0..20).map(|n| call(format!("b{n}")))).await?;
        Ok(Outcome::done())
    });
    let engine = world.start().await;
    for _ in 0..5 {
        let task = engine.run(to("many", "go")).await;
        until("all ask", async || {
            let asking = engine.get(&me(), &task.origin.id.to_string()).await.unwrap();
            (asking.questions.len() == 20).then_some(())
        })
        .await;
        engine.parked(&task).await;
        // Those that were called go first: that they ask no more is no news for the one that goes with them.
        let canceled = engine.cancel(&me(), &task.origin.id.to_string()).await.unwrap();
        assert_eq!(canceled.state, State::Canceled);
        assert_eq!(engine.ended(&task).await.state, State::Canceled);
    }
    engine.stop().await;
}
