//! A question parks its task, survives a restart, and is answered once, in whatever form the answer comes.

use std::{sync::Arc, time::Duration};

use nuncio_engine::{
    AgentError, Answer, Chunk, Error, Event, Message, Next, Outcome, Part, Role, State, TaskContext,
    question::AnswerError,
    store::{Change, Precondition, RunChange},
    surface::Abilities,
    webhook::WebhookConfig,
};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::world::{
    CommitMoment, EngineExt, Gate, World, cases, data, me, reply_to, said, text_of, to, until, within,
};

/// One required field of a type, and one that may be left out.
fn form(of: &str) -> Value {
    json!({
        "type": "object",
        "properties": { "value": { "type": of }, "note": { "type": "string" } },
        "required": ["value"],
        "additionalProperties": false,
    })
}

/// Asks for a string and writes down what it gets.
async fn curious(cx: TaskContext) -> Result<Outcome, AgentError> {
    let answer = cx.ask("What is it called?", form("string")).await?;
    cx.artifact(Chunk::text("answer", serde_json::to_string(&answer).unwrap())).await?;
    Ok(Outcome::done())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_asks_holds_nothing_and_survives_a_restart() {
    let world = World::new().agent("curious", curious);
    let engine = world.start().await;
    let task = engine.run(to("curious", "go")).await;
    assert_eq!(task.state, State::InputRequired);
    let task = engine.parked(&task).await;
    engine.stop().await;
    drop(engine);

    let engine = world.start().await;
    let again = engine.parked(&task).await;
    assert_eq!(again, task, "a restart changes nothing about a question");
    let task = engine.say(&task, said("Ada")).await.unwrap();
    assert_eq!(task.state, State::Working);
    let task = engine.ended(&task).await;
    assert_eq!(
        (task.state, text_of(&task, "answer").as_str()),
        (State::Completed, r#"{"accept":{"value":"Ada"}}"#)
    );
    engine.checked(task.origin.id).await;
}

/// An answer is deeper in the event that holds it, and in the message of that event. It has to be read again all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_as_deep_as_it_may_come_in_is_read_again() {
    let world = World::new().agent("loose", async |cx: TaskContext| {
        let mut loose = form("string");
        loose["additionalProperties"] = true.into();
        cx.ask("What is it called?", loose).await?;
        Ok(Outcome::done())
    });
    let engine = world.start().await;
    let task = engine.run(to("loose", "go")).await;
    let task = engine.parked(&task).await;
    // As deep as the parser of incoming JSON allows.
    let deep = format!(r#"{{"value": "Ada", "z": {}{}}}"#, "[".repeat(126), "]".repeat(126));
    engine.say(&task, said(deep)).await.unwrap();
    let task = engine.ended(&task).await;
    assert_eq!(task.state, State::Completed);
    engine.checked(task.origin.id).await;
    engine.stop().await;
    drop(engine);
    let engine = world.start().await;
    assert_eq!(engine.ended(&task).await.state, State::Completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_is_understood_in_every_form() {
    let world = World::new().agent("curious", async |cx: TaskContext| {
        let answer = cx.ask("What is it?", form(&cx.text())).await?;
        cx.artifact(Chunk::text("answer", serde_json::to_string(&answer).unwrap())).await?;
        Ok(Outcome::done())
    });
    let engine = world.start().await;
    let check = async |of: &str, message: Message, expected: Answer| {
        let task = engine.run(to("curious", of)).await;
        let task = engine.say(&task, message.clone()).await.unwrap();
        let task = engine.ended(&task).await;
        let expected = serde_json::to_string(&expected).unwrap();
        assert_eq!(text_of(&task, "answer"), expected, "{of}: {message:?}");
        engine.checked(task.origin.id).await;
    };
    let accept = |value: Value| Answer::Accept(json!({ "value": value }));
    check("string", said("Ada"), accept(json!("Ada"))).await;
    check("string", said("  Ada \n"), accept(json!("Ada"))).await;
    check("string", said("42"), accept(json!("42"))).await;
    check("integer", said("42"), accept(json!(42))).await;
    check("number", said("4.5"), accept(json!(4.5))).await;
    check("boolean", said("Yes"), accept(json!(true))).await;
    check("boolean", said("n"), accept(json!(false))).await;
    check("string", said(r#"{"value": "Ada"}"#), accept(json!("Ada"))).await;
    check("string", said(r#"{"action": "decline"}"#), Answer::Decline(None)).await;
    check("integer", data(json!({"value": 42})), accept(json!(42))).await;
    check("integer", data(json!({"value": 42, "questionId": "q1"})), accept(json!(42))).await;
    check("integer", data(json!({"action": "accept", "content": {"value": 42}})), accept(json!(42))).await;
    check("string", data(json!({"action": "decline"})), Answer::Decline(None)).await;
    let note = || Answer::decline("too dear");
    check("string", said(r#"{"action": "decline", "note": "too dear"}"#), note()).await;
    check("string", data(json!({"action": "decline", "content": {"notes": "too dear"}})), note()).await;
    check("string", data(json!({"action": "decline", "content": "too dear"})), note()).await;
    let beside =
        Message::of("m1", Role::User, vec![Part::text("too dear"), Part::data(json!({"action": "decline"}))]);
    check("string", beside, note()).await;
    check("string", data(json!({"action": "decline", "note": 7, "content": {}})), Answer::Decline(None))
        .await;
    check("string", data(json!({"action": "cancel", "questionId": "q1"})), Answer::Cancel).await;
    let with_words =
        Message::of("m", Role::User, vec![Part::text("here:"), Part::data(json!({"value": "Ada"}))]);
    check("string", with_words, accept(json!("Ada"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_does_not_fit_changes_nothing() {
    let world = World::new().agent("curious", async |cx: TaskContext| {
        cx.ask("How many?", form("integer")).await?;
        Ok(Outcome::done())
    });
    let engine = world.start().await;
    let task = engine.run(to("curious", "go")).await;
    let task = engine.parked(&task).await;
    let before = engine.row(task.origin.id).await;
    for message in [
        said("many"),
        said(r#"{"value": "many"}"#),
        data(json!({"value": 4.5})),
        data(json!({})),
        data(json!({"value": 4, "more": 5})),
        data(json!({"action": "accept"})),
        data(json!({"action": "accept", "content": {"value": "four"}})),
        data(json!({"value": 4, "questionId": "another"})),
    ] {
        let hook = WebhookConfig {
            id: "hook".into(),
            url: "https://a.example".into(),
            token: None,
            authentication: None,
            dialect: "engine".into(),
        };
        let mut reply = reply_to(&task, message.clone());
        reply.webhooks = vec![hook];
        let error = engine.reply(&me(), reply).await.unwrap_err();
        assert!(
            matches!(error, Error::Answer(AnswerError::Schema(_)) | Error::NotAsked(_)),
            "{message:?}: {error}"
        );
        assert_eq!(engine.row(task.origin.id).await, before, "{message:?}");
        assert_eq!(engine.task(task.origin.id).await, task, "{message:?}");
        assert_eq!(engine.webhooks(&me(), &task.origin.id.to_string()).await.unwrap(), [], "{message:?}");
    }
    // And then it is answered all the same.
    engine.say(&task, said("4")).await.unwrap();
    assert_eq!(engine.ended(&task).await.state, State::Completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bare_word_does_not_answer_a_form_of_two_fields() {
    let world = World::new().agent("curious", async |cx: TaskContext| {
        let schema = json!({
            "type": "object",
            "properties": { "from": { "type": "string" }, "to": { "type": "string" } },
            "required": ["from", "to"],
        });
        let answer = cx.ask("From where to where?", schema).await?;
        cx.artifact(Chunk::text("answer", serde_json::to_string(&answer).unwrap())).await?;
        Ok(Outcome::done())
    });
    let engine = world.start().await;
    let task = engine.run(to("curious", "go")).await;
    let error = engine.say(&task, said("Paris")).await.unwrap_err();
    assert!(error.to_string().contains("from, to"), "{error}");
    engine.say(&task, said(r#"{"from": "Rome", "to": "Paris"}"#)).await.unwrap();
    let task = engine.ended(&task).await;
    assert_eq!(text_of(&task, "answer"), r#"{"accept":{"from":"Rome","to":"Paris"}}"#);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_authorization_is_asked_for_and_a_model_is_asked_where_there_is_one() {
    let world = World::new().agent("curious", async |cx: TaskContext| {
        let answer = match cx.text().as_str() {
            "login" => cx.authorize("Sign in", "https://a.example/login").await?,
            _ => cx.sample("Say something", Some("be brief".into()), 5).await?,
        };
        cx.artifact(Chunk::text("answer", answer.text().unwrap_or("nothing"))).await?;
        Ok(Outcome::done())
    });
    let engine = world.start().await;
    let task = engine.run(to("curious", "login")).await;
    assert_eq!(task.state, State::AuthRequired);
    assert_eq!(task.status_message.as_ref().unwrap().data().unwrap()["url"], "https://a.example/login");
    engine.parked(&task).await;
    engine.say(&task, said("done")).await.unwrap();
    assert_eq!(text_of(&engine.ended(&task).await, "answer"), "done");

    let mut sampling = to("curious", "sample");
    sampling.abilities = Abilities { ask: true, sample: true, ..Abilities::default() };
    let task = engine.run(sampling).await;
    assert_eq!(task.state, State::InputRequired);
    engine.say(&task, said("words")).await.unwrap();
    let task = engine.ended(&task).await;
    assert_eq!(text_of(&task, "answer"), "words");
    engine.checked(task.origin.id).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_text_is_asked_for_in_one_line() {
    let world = World::new().agent("curious", async |cx: TaskContext| {
        let name = cx.ask_text("What is it called?").await?;
        cx.artifact(Chunk::text("answer", format!("{name:?}")).complete()).await?;
        Ok(Outcome::done())
    });
    let engine = world.start().await;
    let answers = [
        (said("Ada"), r#"Some("Ada")"#),
        (said("42"), r#"Some("42")"#),
        (data(json!({"text": "Ada"})), r#"Some("Ada")"#),
        (said(r#"{"action": "decline"}"#), "None"),
        (data(json!({"action": "cancel"})), "None"),
    ];
    for (message, expected) in answers {
        let task = engine.run(to("curious", "go")).await;
        let task = engine.say(&task, message).await.unwrap();
        assert_eq!(text_of(&engine.ended(&task).await, "answer"), expected);
    }
    let mut deaf = to("curious", "go");
    deaf.abilities = Abilities::default();
    assert_eq!(text_of(&engine.send(deaf).await, "answer"), "None");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_cannot_be_asked_is_not_asked() {
    let world = World::new().agent("curious", async |cx: TaskContext| {
        let answers = [
            cx.ask("Name?", form("string")).await?,
            cx.authorize("Sign in", "https://a.example").await?,
            cx.sample("Say something", None, 5).await?,
        ];
        assert_eq!(answers, [Answer::Unavailable, Answer::Unavailable, Answer::Unavailable]);
        Ok(Outcome::done())
    });
    let engine = world.start().await;
    let mut deaf = to("curious", "go");
    deaf.abilities = Abilities::default();
    let task = engine.send(deaf).await;
    assert_eq!(task.state, State::Completed, "{task:?}");
}

/// Two lines of work that ask at the same time.
async fn twins(cx: TaskContext) -> Result<Outcome, AgentError> {
    let ask = async |name: &'static str, kind: &'static str| {
        let branch = cx.branch(name);
        let answer = match kind {
            "form" => branch.ask(format!("{name}?"), form("string")).await?,
            _ => branch.authorize(format!("{name}?"), "https://a.example").await?,
        };
        branch.artifact(Chunk::text(name, serde_json::to_string(&answer).unwrap())).await
    };
    let (one, two) = tokio::join!(ask("left", "link"), ask("right", "form"));
    one.and(two).map(|()| Outcome::done())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_id_picks_one_of_two_open_questions() {
    let world = World::new().agent("twins", twins);
    let engine = world.start().await;
    let task = engine.run(to("twins", "go")).await;
    let task = engine.parked(&task).await;
    let open: Vec<_> = task.questions.iter().map(|(_, question)| question.id.clone()).collect();
    assert_eq!(open, ["leftq1", "rightq1"]);
    assert_eq!(task.state, State::AuthRequired, "the oldest is shown");
    engine.checked(task.origin.id).await;

    let answer = data(json!({"questionId": "rightq1", "value": "R"}));
    let task = engine.say(&task, answer).await.unwrap();
    assert_eq!((task.state, task.questions.len()), (State::AuthRequired, 1));
    let task = until("the right line has gone on", async || {
        let task = engine.task(task.origin.id).await;
        (!task.artifacts.is_empty()).then_some(task)
    })
    .await;
    assert_eq!(text_of(&task, "right"), r#"{"accept":{"value":"R"}}"#);
    let task = engine.parked(&task).await;
    engine.checked(task.origin.id).await;

    engine.say(&task, data(json!({"action": "decline"}))).await.unwrap();
    let task = engine.ended(&task).await;
    assert_eq!((task.state, text_of(&task, "left").as_str()), (State::Completed, "\"decline\""));
    engine.checked(task.origin.id).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_open_questions_the_next_is_shown_when_the_first_is_answered() {
    let world = World::new().agent("twins", twins);
    let engine = world.start().await;
    let task = engine.run(to("twins", "go")).await;
    let task = engine.parked(&task).await;
    assert_eq!(task.state, State::AuthRequired);
    let task = engine.say(&task, said("signed in")).await.unwrap();
    assert_eq!(task.state, State::InputRequired);
    assert_eq!(task.status_message.as_ref().unwrap().data().unwrap()["questionId"], "rightq1");
    engine.parked(&task).await;
    engine.checked(task.origin.id).await;
    engine.say(&task, said("R")).await.unwrap();
    assert_eq!(engine.ended(&task).await.state, State::Completed);
    engine.checked(task.origin.id).await;
}

/// A question is the status while it is open, and progress after it: also where an answer and progress are committed at
/// the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_that_races_an_answer_has_one_time_in_the_row_and_in_the_log() {
    let world = World::new().agent("racer", async |cx: TaskContext| {
        let (asking, working) = (cx.branch("asking"), cx.branch("working"));
        let work = async {
            for n in 0..3 {
                working.progress(f64::from(n), None, "on").await?;
                working.step(&n.to_string(), async |_| Ok(())).await?;
            }
            working.artifact(Chunk::text("worked", "yes")).await
        };
        let (answer, worked) = tokio::join!(asking.ask("Name?", form("string")), work);
        answer?;
        worked?;
        cx.canceled().await;
        Err(AgentError::Canceled)
    });
    let engine = world.start().await;
    for n in 0..20 {
        let begun = engine.send(to("racer", "go")).await;
        let asking = until("it asks", async || {
            let task = engine.task(begun.origin.id).await;
            (!task.questions.is_empty()).then_some(task)
        })
        .await;
        tokio::time::sleep(Duration::from_micros(n * 150)).await;
        engine.say(&asking, data(json!({"value": "x"}))).await.unwrap();
        until("it works on", async || {
            let task = engine.task(begun.origin.id).await;
            (task.state == State::Working && !task.artifacts.is_empty()).then_some(())
        })
        .await;
        engine.checked(begun.origin.id).await;
        engine.cancel(&me(), &begun.origin.id.to_string()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_is_told_in_the_order_in_which_it_was_said() {
    let world = World::new().agent("curious", curious);
    let engine = world.start().await;
    let task = engine.run(to("curious", "go")).await;
    engine.say(&task, said("Ada")).await.unwrap();
    let task = engine.ended(&task).await;
    let said: Vec<String> = task.history.iter().map(Message::joined_text).collect();
    assert_eq!(said, ["go", "What is it called?", "Ada"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_within_lines_wait_without_a_run_too() {
    let world = World::new().agent("deep", async |cx: TaskContext| {
        let outer = cx.branch("outer");
        let inner = outer.branch("inner");
        let answer = inner.ask("Who?", form("string")).await?;
        inner.artifact(Chunk::text("answer", serde_json::to_string(&answer).unwrap())).await?;
        Ok(Outcome::done())
    });
    let engine = world.start().await;
    let task = engine.run(to("deep", "go")).await;
    let task = engine.parked(&task).await;
    engine.say(&task, said("Ada")).await.unwrap();
    assert_eq!(engine.ended(&task).await.state, State::Completed);
}

// ------------------------------------------------------------------------------------------------ races

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_races_the_park_is_never_lost() {
    let world = World::new()
        .agent("curious", curious)
        .agent("twins", twins)
        // Whoever waits for the next look at the queue waits for ever.
        .options(|options| options.claim_poll = Duration::from_secs(3600));
    let engine = world.start().await;
    for round in 0..cases(150, 2_000) {
        let agent = if round % 2 == 0 { "curious" } else { "twins" };
        let task = engine.send(to(agent, "go")).await;
        let mut follower = engine.follow(&me(), &task.origin.id.to_string(), 0).await.unwrap();
        loop {
            let batch = match within(follower.next()).await.unwrap() {
                Next::Batch(batch) => batch,
                Next::End => break,
                Next::Closing | Next::Nudge(_) => panic!("nobody stops this"),
            };
            for (_, entry) in batch.iter() {
                if let Event::Question(question) = entry.event() {
                    let answer =
                        json!({"questionId": question.id, "action": "accept", "content": {"value": "A"}});
                    engine.say(&task, data(answer)).await.unwrap();
                }
            }
        }
        let task = engine.checked(task.origin.id).await;
        assert_eq!(task.state, State::Completed, "round {round}: {task:?}");
    }
}

/// Whether a runner lets go of a task that waits.
fn is_park(change: &Change) -> bool {
    matches!(change.guard, Precondition::Version { .. })
        && change.events.is_none()
        && matches!(change.run, RunChange::Rest | RunChange::Due(_))
}

/// Whether somebody answers a question.
fn is_answer(change: &Change) -> bool {
    matches!(change.guard, Precondition::Version { .. }) && !change.journal.is_empty()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_comes_right_after_the_park_wakes_the_task() {
    let gate = Gate::new();
    let world = World::new()
        .agent("curious", curious)
        .options(|options| options.claim_poll = Duration::from_secs(3600));
    let store = gate.on(world.open().await, CommitMoment::After, is_park);
    let engine = world.start_on(store).await;
    let task = engine.run(to("curious", "go")).await;
    // Parked, and the run that did it has not looked up yet.
    gate.arrival().await;
    engine.say(&task, said("Ada")).await.unwrap();
    assert_eq!(engine.ended(&task).await.state, State::Completed);
    gate.open();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_has_let_go_does_not_take_its_successor_with_it() {
    let gate = Gate::new();
    let world = World::new()
        .agent("curious", async |cx: TaskContext| {
            cx.ask("Go on?", form("string")).await?;
            cx.log(nuncio_engine::Level::Info, "going on").await?;
            cx.canceled().await;
            Err(AgentError::Canceled)
        })
        .options(|options| options.cancel_grace = Duration::from_secs(3600));
    let store = gate.on(world.open().await, CommitMoment::After, is_park);
    let engine = world.start_on(store).await;
    let task = engine.run(to("curious", "go")).await;
    gate.arrival().await;
    engine.say(&task, said("yes")).await.unwrap();
    until("the second run is at work", async || {
        let log = engine.log(task.origin.id).await;
        matches!(log.last()?.event(), Event::Log(_)).then_some(())
    })
    .await;
    // The first run leaves only now, and the second must still be found, to be told.
    until("both are there", async || (engine.load().0 == 2).then_some(())).await;
    gate.open();
    until("the first run has left", async || (engine.load().0 == 1).then_some(())).await;
    let task = within(engine.cancel(&me(), &task.origin.id.to_string())).await.unwrap();
    assert_eq!(task.state, State::Canceled);
    until("the second run has ended", async || (engine.load().0 == 0).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_durable_but_not_told_yet_is_not_parked_over() {
    let gate = Gate::new();
    let go = Arc::new(Semaphore::new(0));
    let wait = Arc::clone(&go);
    let world = World::new().agent("pair", move |cx: TaskContext| {
        let wait = Arc::clone(&wait);
        async move {
            let asking = async {
                let branch = cx.branch("asking");
                branch.ask("Who?", form("string")).await?;
                branch.artifact(Chunk::text("answer", "got it")).await
            };
            let sleeping = async {
                let branch = cx.branch("sleeping");
                branch
                    .step("wait", async |_| {
                        wait.acquire().await.unwrap().forget();
                        Ok(())
                    })
                    .await?;
                branch.sleep(Duration::from_secs(3600)).await
            };
            let (one, two) = tokio::join!(asking, sleeping);
            one.and(two).map(|()| Outcome::done())
        }
    });
    let store = gate.on(world.open().await, CommitMoment::After, is_answer);
    let engine = world.start_on(store).await;
    let task = engine.run(to("pair", "go")).await;
    let answering = tokio::spawn({
        let (engine, task) = (engine.clone(), task.clone());
        async move { engine.say(&task, said("Ada")).await }
    });
    gate.arrival().await;
    // The other line ends its step and goes to sleep, so that the whole task could be parked.
    go.add_permits(1);
    let task = until("the asking line has its answer", async || {
        let task = engine.task(task.origin.id).await;
        (!task.artifacts.is_empty()).then_some(task)
    })
    .await;
    assert_eq!(text_of(&task, "answer"), "got it");
    gate.open();
    answering.await.unwrap().unwrap();
    engine.parked(&task).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_that_is_put_while_the_one_before_it_is_answered_is_listed() {
    let gate = Gate::new();
    let go = Arc::new(Semaphore::new(0));
    let wait = Arc::clone(&go);
    let world = World::new().agent("pair", move |cx: TaskContext| {
        let wait = Arc::clone(&wait);
        async move {
            let ask = async |name: &'static str| {
                let branch = cx.branch(name);
                if name == "second" {
                    drop(wait.acquire().await);
                }
                branch.ask(format!("{name}?"), form("string")).await
            };
            let (one, two) = tokio::join!(ask("first"), ask("second"));
            one.and(two).map(|_| Outcome::done())
        }
    });
    let store = gate.on(world.open().await, CommitMoment::After, is_answer);
    let engine = world.start_on(store).await;
    let task = engine.run(to("pair", "go")).await;
    let answering = tokio::spawn({
        let (engine, task) = (engine.clone(), task.clone());
        async move { engine.say(&task, said("Ada")).await }
    });
    // The first answer is durable, and its run has not been told, when the second question is put.
    gate.arrival().await;
    go.add_permits(1);
    let task = until("the second question is put", async || {
        let task = engine.checked(task.origin.id).await;
        (task.questions.len() == 1).then_some(task)
    })
    .await;
    assert_eq!((task.state, task.questions[0].1.id.as_str()), (State::InputRequired, "secondq1"));
    gate.open();
    answering.await.unwrap().unwrap();
    engine.parked(&task).await;
    engine.say(&task, said("Bob")).await.unwrap();
    assert_eq!(engine.ended(&task).await.state, State::Completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_races_the_park_does_not_keep_the_run_alive() {
    let gate = Gate::new();
    let world = World::new().agent("sleeper", async |cx: TaskContext| {
        cx.sleep(Duration::from_secs(3600)).await?;
        Ok(Outcome::done())
    });
    let store = gate.on(world.open().await, CommitMoment::Before, is_park);
    let engine = world.start_on(store).await;
    let task = engine.send(to("sleeper", "go")).await;
    gate.arrival().await;
    engine.say(&task, said("by the way")).await.unwrap();
    gate.open();
    engine.parked(&task).await;
}
