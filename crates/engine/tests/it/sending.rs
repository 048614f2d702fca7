//! A send that is repeated is one task, and what a caller may not see does not exist.

use std::{future::Future, pin::pin, time::Duration};

use futures_util::future::join_all;
use nuncio_engine::{
    Caller, Chunk, Engine, Error, Level, List, Message, Next, Outcome, Part, Reply, Role, State, Submit,
    TaskContext, store::Precondition, webhook::WebhookConfig,
};
use serde_json::json;
use uuid::Uuid;

use crate::world::{CommitMoment, EngineExt, Gate, World, me, reply_to, said, text_of, to, until, within};

fn echo() -> World {
    World::new()
        .agent("echo", async |cx: TaskContext| {
            cx.artifact(Chunk::text("echo", cx.text())).await?;
            Ok(Outcome::done())
        })
        .agent("worker", async |cx: TaskContext| {
            cx.step("work", async |_| Ok(())).await?;
            cx.canceled().await;
            Ok(Outcome::canceled("enough"))
        })
        .agent("curious", async |cx: TaskContext| {
            let form = json!({"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]});
            let first = cx.ask("First?", form.clone()).await?;
            let second = cx.ask("Second?", form).await?;
            cx.artifact(Chunk::text("answers", format!("{first:?} {second:?}"))).await?;
            Ok(Outcome::done())
        })
}

fn with_key(agent: &str, key: &str, text: &str) -> Submit {
    let mut submit = Submit::new(agent, Message::text("m-1", Role::User, text));
    submit.idempotency_key = Some(key.into());
    submit
}

async fn count(engine: &Engine, caller: &Caller) -> u64 {
    engine.list(caller, List { page_size: 1, ..Default::default() }).await.unwrap().total
}

// -------------------------------------------------------------------------------------------- durability

/// Whether the future is still not ready when everything else has had its turn.
async fn waits<T>(future: &mut (impl Future<Output = T> + Unpin)) -> bool {
    tokio::time::timeout(Duration::from_millis(50), future).await.is_err()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_acknowledged_before_it_is_durable() {
    for (agent, text) in [("echo", "go"), ("worker", "go")] {
        let (world, gate) = (echo(), Gate::new());
        let store = gate.on(world.open().await, CommitMoment::Before, |_| true);
        let engine = world.start_on(store).await;
        let mut sending = pin!(engine.send(to(agent, text)));
        assert!(waits(&mut sending).await, "{agent}: a submit");
        gate.arrival().await;
        assert_eq!(count(&engine, &me()).await, 0);
        gate.open();
        let task = sending.await;
        assert_eq!(engine.task(task.origin.id).await.origin, task.origin);
    }
    for what in ["reply", "cancel"] {
        let (world, gate) = (echo(), Gate::new());
        let store = gate.on(world.open().await, CommitMoment::Before, |change| {
            matches!(change.guard, Precondition::Version { .. }) && change.events.is_some()
                || change.cancel.is_some()
        });
        let engine = world.start_on(store).await;
        let task = engine.run(to("curious", "go")).await;
        let mut asking = pin!(async {
            match what {
                "reply" => engine.say(&task, said("one")).await.unwrap(),
                _ => engine.cancel(&me(), &task.origin.id.to_string()).await.unwrap(),
            }
        });
        assert!(waits(&mut asking).await, "a {what}");
        gate.arrival().await;
        assert_eq!(engine.task(task.origin.id).await.state, State::InputRequired);
        gate.open();
        asking.await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_hears_of_what_is_not_durable() {
    let world = World::new().agent("speaker", async |cx: TaskContext| {
        cx.step("work", async |_| Ok(())).await?;
        cx.log(Level::Info, "done").await?;
        Ok(Outcome::done())
    });
    let gate = Gate::new();
    let store = gate.on(world.open().await, CommitMoment::Before, |change| {
        matches!(change.guard, Precondition::Runner { .. }) && change.events.is_some()
    });
    let engine = world.start_on(store).await;
    let task = engine.send(to("speaker", "go")).await;
    gate.arrival().await;
    let mut follower = engine.follow(&me(), &task.origin.id.to_string(), task.seq).await.unwrap();
    assert!(waits(&mut pin!(follower.next())).await, "it has not said so yet");
    gate.open();
    assert!(matches!(within(follower.next()).await.unwrap(), Next::Batch(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_whose_sender_hangs_up_is_run_all_the_same() {
    let (world, gate) = (echo(), Gate::new());
    let store = gate.on(world.open().await, CommitMoment::Before, |change| {
        matches!(change.guard, Precondition::Create(_))
    });
    let engine = world.start_on(store).await;
    let sending = tokio::spawn({
        let engine = engine.clone();
        async move { engine.send(to("curious", "go")).await }
    });
    gate.arrival().await;
    sending.abort();
    assert!(sending.await.unwrap_err().is_cancelled());
    gate.open();
    until("it asks", async || {
        let list = engine.list(&me(), List { page_size: 1, ..Default::default() }).await.unwrap();
        list.tasks.first().filter(|task| task.state == State::InputRequired).map(|_| ())
    })
    .await;
}

// -------------------------------------------------------------------------------------------- repetition

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_key_is_the_same_task_while_it_runs_and_after_a_restart() {
    let world = echo();
    let engine = world.start().await;
    let first = engine.send(with_key("worker", "k", "go")).await;
    let again = engine.send(with_key("worker", "k", "go")).await;
    assert_eq!(again.origin, first.origin);
    engine.stop().await;
    drop(engine);
    let engine = world.start().await;
    let after = engine.send(with_key("worker", "k", "go")).await;
    assert_eq!(after.origin, first.origin);
    engine.cancel(&me(), &first.origin.id.to_string()).await.unwrap();
    let ended = engine.send(with_key("worker", "k", "go")).await;
    assert_eq!((ended.origin.id, ended.state), (first.origin.id, State::Canceled));
    assert_eq!(count(&engine, &me()).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_at_once_under_one_key_are_one_task() {
    let engine = echo().start().await;
    for agent in ["echo", "worker"] {
        let sends = (0..50).map(|_| engine.send(with_key(agent, agent, "go")));
        let tasks = join_all(sends).await;
        assert!(tasks.iter().all(|task| task.origin == tasks[0].origin), "{agent}");
    }
    assert_eq!(count(&engine, &me()).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_not_reused_for_another_request() {
    let engine = echo().start().await;
    engine.send(with_key("echo", "k", "hello")).await;
    let mut others = vec![with_key("echo", "k", "goodbye"), with_key("worker", "k", "hello")];
    others.push(with_key("echo", "k", "hello"));
    others[2].context = Some("elsewhere".into());
    others.push(with_key("echo", "k", "hello"));
    others[3].metadata = json!({"k": 1}).as_object().cloned();
    for other in others {
        let error = engine.submit(&me(), other).await.unwrap_err();
        assert!(matches!(error, Error::KeyReused), "{error}");
    }
    let local = me();
    let (one, two) = tokio::join!(
        engine.submit(&local, with_key("worker", "race", "a")),
        engine.submit(&local, with_key("worker", "race", "b"))
    );
    assert_eq!(usize::from(one.is_ok()) + usize::from(two.is_ok()), 1, "{one:?} {two:?}");
    assert_eq!(count(&engine, &me()).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_its_callers_own() {
    let engine = echo().start().await;
    let (ada, bob) = (Caller::named("ada"), Caller::named("bob"));
    let one = engine.submit(&ada, with_key("echo", "k", "from ada")).await.unwrap();
    let two = engine.submit(&bob, with_key("echo", "k", "from bob")).await.unwrap();
    assert_ne!(one.origin.id, two.origin.id);
    assert_eq!((text_of(&one, "echo").as_str(), text_of(&two, "echo").as_str()), ("from ada", "from bob"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_key_a_message_id_marks_no_repetition_unless_it_is_set_so() {
    let hello = || Submit::new("echo", Message::text("m-1", Role::User, "hello"));
    let engine = echo().start().await;
    assert_ne!(engine.send(hello()).await.origin.id, engine.send(hello()).await.origin.id);

    let engine = echo().options(|options| options.idempotent_message_ids = true).start().await;
    let first = engine.send(hello()).await;
    assert_eq!(engine.send(hello()).await.origin, first.origin);
    let error = engine.submit(&me(), Submit::new("echo", Message::text("m-1", Role::User, "other"))).await;
    assert!(matches!(error, Err(Error::KeyReused)));
    // In a protocol without message ids no two messages are the same.
    let nameless = || Submit::new("echo", Message::text("", Role::User, "hello"));
    assert_ne!(engine.send(nameless()).await.origin.id, engine.send(nameless()).await.origin.id);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_sent_twice_does_not_answer_the_next_question() {
    let engine = echo().options(|options| options.idempotent_message_ids = true).start().await;
    let task = engine.run(to("curious", "go")).await;
    let first = Message::text("answer-1", Role::User, "one");
    let told = engine.say(&task, first.clone()).await.unwrap();
    let task = engine.settled(&told).await;
    assert_eq!(task.questions[0].1.text, "Second?");
    let again = engine.say(&task, first).await.unwrap();
    assert_eq!(again, engine.task(task.origin.id).await, "nothing changed");
    assert_eq!(again.questions.len(), 1);
    engine.say(&task, said("two")).await.unwrap();
    let task = engine.ended(&task).await;
    assert!(text_of(&task, "answers").contains("two"), "{task:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_without_an_id_is_given_one() {
    let engine = echo().start().await;
    let task = engine.send(Submit::new("worker", Message::text("", Role::User, "go"))).await;
    engine.say(&task, Message::text("", Role::User, "more")).await.unwrap();
    let task = engine.task(task.origin.id).await;
    let ids: Vec<&str> = task.history.iter().map(|message| message.id.as_str()).collect();
    assert!(ids.len() == 2 && ids.iter().all(|id| !id.is_empty()) && ids[0] != ids[1], "{ids:?}");
}

// --------------------------------------------------------------------------------------------- chosen ids

fn chosen(agent: &str, id: &str, text: &str) -> Submit {
    let mut submit = to(agent, text);
    submit.client_id = Some(id.into());
    submit
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_callers_with_one_chosen_id_never_meet() {
    let engine = echo().start().await;
    let (ada, bob) = (Caller::named("ada"), Caller::named("bob"));
    let one = engine.submit(&ada, chosen("worker", "my-task", "from ada")).await.unwrap();
    let two = engine.submit(&bob, chosen("worker", "my-task", "from bob")).await.unwrap();
    assert_ne!(one.origin.id, two.origin.id);
    for (caller, task) in [(&ada, &one), (&bob, &two)] {
        let got = engine.get(caller, "my-task").await.unwrap();
        assert_eq!((got.origin.id, got.origin.public_id().as_str()), (task.origin.id, "my-task"));
        assert_eq!(engine.get(caller, &task.origin.id.to_string()).await.unwrap().origin, got.origin);
    }
    engine.cancel(&ada, "my-task").await.unwrap();
    assert_eq!(engine.get(&bob, "my-task").await.unwrap().state, State::Working, "bob's goes on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_send_to_a_chosen_id_is_its_second_message() {
    let engine = echo().start().await;
    let first = engine.send(chosen("worker", "my-task", "one")).await;
    let second = engine.send(chosen("worker", "my-task", "two")).await;
    assert_eq!(second.origin.id, first.origin.id);
    let said: Vec<String> = second.history.iter().map(Message::joined_text).collect();
    assert_eq!(said, ["one", "two"]);
    // Also when both are first.
    let local = me();
    let (one, two) = tokio::join!(
        engine.submit(&local, chosen("worker", "race", "a")),
        engine.submit(&local, chosen("worker", "race", "b"))
    );
    assert_eq!(one.unwrap().origin.id, two.unwrap().origin.id);
    assert_eq!(engine.get(&me(), "race").await.unwrap().history.len(), 2);
    assert_eq!(count(&engine, &me()).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_key_is_no_second_message_although_the_id_is_chosen() {
    let engine = echo().start().await;
    let send = |text: &str| {
        let mut submit = with_key("worker", "k", text);
        submit.client_id = Some("my-task".into());
        submit
    };
    let first = engine.send(send("one")).await;
    let again = engine.send(send("one")).await;
    assert_eq!((again.origin.id, again.history.len()), (first.origin.id, 1));
}

// --------------------------------------------------------------------------------------------- visibility

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_caller_may_not_see_is_answered_as_what_does_not_exist() {
    let engine = echo().start().await;
    let (ada, bob) = (Caller::named("ada"), Caller::named("bob"));
    let task = engine.submit(&ada, chosen("worker", "adas", "go")).await.unwrap();
    let no = engine.row(task.origin.id).await.no;
    until("its step is done", async || {
        (!engine.store_for_tests().journal(no).await.unwrap().is_empty()).then_some(())
    })
    .await;
    let before = engine.row(task.origin.id).await;
    let hook = WebhookConfig {
        id: "hook".into(),
        url: "https://a.example".into(),
        token: None,
        authentication: None,
        dialect: "engine".into(),
    };
    let nobodys = Uuid::now_v7().to_string();
    for (theirs, none) in [(task.origin.id.to_string(), nobodys), ("adas".into(), "nobodys".into())] {
        let all = async |name: &str| {
            let reply = Reply {
                task: name.into(),
                context: None,
                message: said("hi"),
                idempotency_key: None,
                webhooks: vec![hook.clone()],
            };
            let refusals = [
                engine.get(&bob, name).await.err(),
                engine.reply(&bob, reply).await.err(),
                engine.cancel(&bob, name).await.err(),
                engine.follow(&bob, name, 0).await.err(),
                engine.follow(&bob, name, 999).await.err(),
                engine.put_webhook(&bob, name, hook.clone()).await.err(),
                engine.webhooks(&bob, name).await.err(),
                engine.webhook(&bob, name, Some("hook")).await.err(),
                engine.delete_webhook(&bob, name, "hook").await.err(),
            ];
            refusals.map(|error| error.expect("refused").to_string().replace(name, "it"))
        };
        let (seen, unseen) = (all(&theirs).await, all(&none).await);
        assert_eq!(seen, unseen, "the same words for what is there and what is not");
        assert!(unseen.iter().all(|words| words == "there is no task it"), "{unseen:?}");
    }
    assert_eq!(engine.row(task.origin.id).await, before, "and nothing changed");
    assert_eq!(count(&engine, &bob).await, 0);
    assert_eq!(engine.webhooks(&ada, "adas").await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_of_anothers_identity_can_be_chosen_as_an_id() {
    let engine = echo().start().await;
    let (ada, bob) = (Caller::named("ada"), Caller::named("bob"));
    let adas = engine.submit(&ada, to("worker", "go")).await.unwrap();
    let name = adas.origin.id.to_string();
    let bobs = engine.submit(&bob, chosen("worker", &name, "mine")).await.unwrap();
    assert_ne!(bobs.origin.id, adas.origin.id);
    assert_eq!(engine.get(&bob, &name).await.unwrap().origin.id, bobs.origin.id);
    assert_eq!(engine.get(&ada, &name).await.unwrap().origin.id, adas.origin.id);
}

// ------------------------------------------------------------------------------------------------ refusals

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_contradicts_itself_or_the_task_is_refused_and_makes_nothing() {
    let engine = echo().start().await;
    let task = engine.send(to("worker", "go")).await;
    let refused = async |submit: Submit| engine.submit(&me(), submit).await.unwrap_err();

    assert!(matches!(refused(to("nobody", "go")).await, Error::NoSuchAgent(name) if name == "nobody"));
    let empty = Submit::new("echo", Message::of("m", Role::User, vec![]));
    assert!(refused(empty).await.to_string().contains("at least one part"));
    let mut picture = Part::text("…");
    picture.media_type = Some("image/png".into());
    let picture = Submit::new("echo", Message::of("m", Role::User, vec![picture]));
    assert!(matches!(refused(picture).await, Error::ContentType(_)));
    let mut picky = to("echo", "go");
    picky.accepted_output_modes = vec!["image/*".into()];
    assert!(matches!(refused(picky).await, Error::ContentType(_)));
    let mut modest = to("echo", "go");
    modest.accepted_output_modes = vec!["image/*".into(), "text/*".into()];
    engine.send(modest).await;
    for modes in [vec!["text/plain".to_owned(); 101], vec!["text/plain".to_owned(), "x".repeat(256)]] {
        let mut greedy = to("echo", "go");
        greedy.accepted_output_modes = modes;
        assert!(matches!(refused(greedy).await, Error::Limit(why) if why.contains("acceptedOutputModes")));
    }
    let mut full = to("echo", "go");
    full.accepted_output_modes = vec!["text/plain".to_owned(); 100];
    engine.send(full).await;

    let mut elsewhere = reply_to(&task, said("hi"));
    elsewhere.context = Some("elsewhere".into());
    assert!(engine.reply(&me(), elsewhere).await.unwrap_err().to_string().contains("contextId"));
    let mut here = reply_to(&task, said("hi"));
    here.context = Some(task.origin.context.clone());
    assert_eq!(engine.reply(&me(), here).await.unwrap().history.len(), 2);

    let ended = engine.send(to("echo", "go")).await;
    let error = engine.say(&ended, said("more")).await.unwrap_err();
    assert!(matches!(error, Error::Ended(State::Completed)), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_that_comes_with_a_message_hears_of_what_follows() {
    let engine = echo().start().await;
    let task = engine.send(to("worker", "go")).await;
    let mut reply = reply_to(&task, said("tell me"));
    reply.webhooks = vec![WebhookConfig {
        id: "hook".into(),
        url: "https://a.example".into(),
        token: Some("secret".into()),
        authentication: None,
        dialect: "engine".into(),
    }];
    let before = engine.row(task.origin.id).await;
    engine.reply(&me(), reply).await.unwrap();
    let hooks = engine.store_for_tests().webhooks(before.no).await.unwrap();
    assert!(hooks.len() == 1 && hooks[0].cursor >= before.seq, "not of what came before: {hooks:?}");
    let shown = engine.webhooks(&me(), &task.origin.id.to_string()).await.unwrap();
    assert_eq!(shown[0].token, None, "secrets never come out");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_takes_nothing_new() {
    let engine = echo().start().await;
    let task = engine.send(to("worker", "go")).await;
    engine.begin_stop();
    for refused in [engine.submit(&me(), to("echo", "go")).await, engine.say(&task, said("hi")).await] {
        match refused {
            Err(Error::Busy { why, .. }) => assert!(why.contains("stopping"), "{why}"),
            other => panic!("{other:?}"),
        }
    }
    within(engine.stop()).await;
}

/// A page is read in pieces, because tasks may be large; what is not looked at is left out, or not read at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_tasks_is_whole_with_and_without_what_they_made() {
    let world = World::new().agent("maker", async |cx: TaskContext| {
        cx.artifact(Chunk::text("made", "much")).await?;
        Ok(Outcome::done())
    });
    let engine = world.start().await;
    for n in 0..25 {
        engine.run(to("maker", &format!("{n}"))).await;
    }
    let mut page_token = None;
    let mut seen = vec![];
    for size in [12, 13] {
        let list = List { page_size: size, page_token: page_token.take(), ..List::default() };
        let bare = List { without_artifacts: true, ..list.clone() };
        let (ids, bare) =
            (engine.list_ids(&me(), list.clone()).await.unwrap(), engine.list(&me(), bare).await.unwrap());
        let whole = engine.list(&me(), list).await.unwrap();
        assert_eq!((whole.tasks.len(), whole.total, bare.total), (size, 25, 25));
        for ((task, bare), id) in whole.tasks.iter().zip(&bare.tasks).zip(&ids.ids) {
            assert_eq!((task.origin.id, bare.origin.id), (*id, *id));
            assert_eq!((task.artifacts.len(), bare.artifacts.len()), (1, 0));
            assert_eq!(task.history, bare.history);
            seen.push(*id);
        }
        assert_eq!(
            (&whole.next_page_token, &bare.next_page_token),
            (&ids.next_page_token, &ids.next_page_token)
        );
        page_token = whole.next_page_token;
    }
    assert_eq!(page_token, None);
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 25, "each is there once");
}

/// A client that was cut off sends again while its first request is still under way: both are the same task, also at the
/// address of an agent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sends_of_one_id_that_meet_are_one_task_at_an_agents_address() {
    let engine = World::new().agent("a", async |_: TaskContext| Ok(Outcome::done())).start().await;
    let caller = me().at_agent("a");
    for round in 0..40 {
        let sends = (0..8).map(|_| {
            let (engine, caller, mut submit) = (engine.clone(), caller.clone(), to("a", "hello"));
            submit.client_id = Some(format!("mine-{round}"));
            submit.idempotency_key = Some(format!("key-{round}"));
            submit.message.id = format!("m-{round}");
            tokio::spawn(async move { engine.submit(&caller, submit).await })
        });
        let sent: Vec<_> = join_all(sends).await;
        let ids: std::collections::HashSet<_> =
            sent.into_iter().map(|sent| sent.unwrap().unwrap().origin.id).collect();
        assert_eq!(ids.len(), 1, "round {round}");
    }
    engine.stop().await;
}
