//! Agents that stand for somebody elsewhere: what is said, asked, answered and stopped there, through everything that
//! may happen to either side.

mod conversations;
mod far;
mod lost;
mod outage;
mod tools;
mod withdrawn;

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use nuncio_agents::configured::{
    AgentSpec, BuiltAgent,
    remote::{RemoteAgentBuilder, RemoteTimeouts},
    spec::LostCallPolicy,
};
use nuncio_client::peer::{CallEvent, Peer, PeerProtocol, whole_artifact};
use nuncio_engine::{
    Answer, Event, Message, Part, State, Task,
    event::{ArtifactChunk, Progress},
};
use serde_json::{Value, json};

use self::far::{Act, Far, FarPeer, ended, form, question};
use crate::server::{Server, ending, submit, within};

fn made_with(far: &Arc<Far>, change: impl FnOnce(&mut RemoteAgentBuilder)) -> BuiltAgent {
    let kind = if far.protocol == PeerProtocol::Mcp { "mcp" } else { "a2a" };
    let table = json!({ "name": "far", "kind": kind, "url": "http://far.example/" });
    let Value::Object(table) = table else { unreachable!() };
    let spec = AgentSpec::read(&table, &|_| None).unwrap();
    let peer: Arc<dyn Peer> = Arc::new(FarPeer(Arc::clone(far)));
    let mut remote = RemoteAgentBuilder::new(peer);
    remote.lost = LostCallPolicy::Again;
    remote.patience = RemoteTimeouts {
        begin: Duration::from_millis(500),
        resume: Duration::from_secs(10),
        first_pause: Duration::from_millis(5),
        look: Duration::from_secs(600),
        ..RemoteTimeouts::default()
    };
    change(&mut remote);
    remote.build(&spec)
}

fn made(far: &Arc<Far>) -> BuiltAgent {
    made_with(far, |_| {})
}

async fn server(far: &Arc<Far>) -> Server {
    Server::with(vec![made(far).agent]).await
}

/// Another process on the same store, which comes to the same other side.
async fn restart(server: Server, far: &Arc<Far>) -> Server {
    far.broken.notify_waiters();
    server.restart().await
}

fn chunk(text: &str, append: bool, last: bool) -> Act {
    Act::Tell(CallEvent::Artifact(ArtifactChunk {
        append,
        last,
        ..whole_artifact("text", vec![Part::text(text)])
    }))
}

fn progress(done: f64) -> Act {
    Act::Tell(CallEvent::Progress(Progress {
        done,
        total: Some(2.0),
        text: Some("at work".into()),
        data: None,
    }))
}

fn text_of(task: &Task) -> String {
    task.artifacts.iter().flat_map(|artifact| &artifact.parts).filter_map(Part::as_text).collect()
}

async fn until(what: impl Fn() -> bool) {
    let waited = async {
        while !what() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waited).await.expect("this should have come long ago");
}

/// Waits until a task does not ask any more what it asks, and then for its rest.
async fn moved_on(server: &Server, task: Task) -> Task {
    let asked = &task.questions[0].1.id;
    let waited = async {
        loop {
            let task = server.get(&task).await;
            if task.questions.iter().all(|(_, question)| question.id != *asked) {
                return task;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let task = tokio::time::timeout(Duration::from_secs(20), waited).await.expect("it is asked for ever");
    server.settle(task).await
}

fn named(name: &str) -> Part {
    Part::data(json!({ "name": name }))
}

#[tokio::test]
async fn what_is_said_goes_over_and_what_happens_comes_back() {
    let script = vec![
        progress(1.0),
        chunk("Hello, ", false, false),
        chunk("world", true, true),
        ended(State::Completed, "done"),
    ];
    let far = Far::new(PeerProtocol::A2a, true, vec![script]);
    let server = server(&far).await;
    let task = server.send("far", Part::text("say hello")).await;
    assert_eq!(ending(&task), (State::Completed, "done".into(), vec!["text"]));
    assert_eq!(text_of(&task), "Hello, world");
    assert!(task.artifacts[0].complete);
    let begun = far.asked()[0].begin.clone().unwrap();
    assert_eq!(begun.input.joined_text(), "say hello");
    assert_eq!(begun.context, None, "the other side names the conversation");
    assert!(begun.input.id.contains(&task.origin.id.to_string()), "{}", begun.input.id);
    let log = server.log(&task).await;
    assert!(log.iter().any(|event| matches!(event, Event::Progress(p) if p.total == Some(2.0))), "{log:#?}");
}

#[tokio::test]
async fn a_call_that_ends_at_once_is_written_before_it_is_made_and_with_its_end() {
    for protocol in [PeerProtocol::A2a, PeerProtocol::Mcp] {
        let script = vec![progress(1.0), chunk("Hello", false, true), ended(State::Completed, "")];
        let far = Far::new(protocol, true, vec![script; 6]);
        let server = server(&far).await;
        let mut commits = vec![];
        for _ in 0..6 {
            let task = server.send("far", Part::text("hello")).await;
            assert_eq!((task.state, text_of(&task).as_str()), (State::Completed, "Hello"));
            commits.push(server.row(&task).await.version);
        }
        // With the first it is looked what is offered there; on a busy machine others may take a moment longer.
        assert_eq!(commits.iter().min(), Some(&2), "{protocol:?}: {commits:?}");
    }
}

#[tokio::test]
async fn every_end_keeps_its_state_and_its_words() {
    for state in [State::Failed, State::Rejected, State::Canceled] {
        let far = Far::new(PeerProtocol::A2a, true, vec![vec![ended(state, "for a reason")]]);
        let task = server(&far).await.send("far", Part::text("x")).await;
        assert_eq!(ending(&task), (state, "for a reason".into(), vec![]));
    }
}

#[tokio::test]
async fn a_question_there_is_a_question_here_and_the_artifact_keeps_its_beginning() {
    let script = vec![
        chunk("Dear ", false, false),
        form("who", "Who are you?"),
        chunk("Ada", true, false),
        form("what", "What now?"),
        chunk(", goodbye", true, true),
        ended(State::Completed, ""),
    ];
    for keeps in [true, false] {
        let far = Far::new(PeerProtocol::A2a, keeps, vec![script.clone()]);
        let server = server(&far).await;
        let task = server.send("far", Part::text("write")).await;
        assert_eq!((task.state, text_of(&task).as_str()), (State::InputRequired, "Dear "));
        assert_eq!(task.questions[0].1.text, "Who are you?");
        // It waits, and holds nothing.
        let rests = async {
            while server.row(&task).await.node.is_some() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        within(rests).await;
        let task = server.answer(&task, named("Ada")).await;
        assert_eq!((task.state, text_of(&task).as_str()), (State::InputRequired, "Dear Ada"));
        let task = server.answer(&task, named("nothing")).await;
        assert_eq!((task.state, text_of(&task).as_str()), (State::Completed, "Dear Ada, goodbye"));
        let [asked] = &far.asked()[..] else { panic!("one call") };
        let answers: Vec<_> =
            asked.answers.iter().map(|(id, answer)| (id.as_str(), answer.clone())).collect();
        let accepted = |name: &str| Answer::Accept(json!({ "name": name }));
        assert_eq!(answers, [("who", accepted("Ada")), ("what", accepted("nothing"))]);
        assert_eq!(far.resumed.load(Ordering::SeqCst), 0, "the call itself waited");
    }
}

#[tokio::test]
async fn a_restart_in_the_middle_takes_the_call_up_where_it_was() {
    let script =
        vec![chunk("one ", false, false), Act::Hold, chunk("two", true, true), ended(State::Completed, "")];
    let far = Far::new(PeerProtocol::A2a, true, vec![script]);
    let server = server(&far).await;
    let task = server.submit(submit("far", Part::text("x"))).await;
    server.log_until(&task, |event| matches!(event, Event::Artifact(_))).await;
    let server = restart(server, &far).await;
    until(|| far.resumed.load(Ordering::SeqCst) == 1).await;
    far.on.notify_one();
    let task = server.settle(task).await;
    assert_eq!((task.state, text_of(&task).as_str()), (State::Completed, "one two"));
    assert_eq!(far.asked().len(), 1, "it was begun once");
}

#[tokio::test]
async fn an_answer_after_a_restart_goes_over_to_the_same_call() {
    let script = vec![
        chunk("Dear ", false, false),
        form("who", "Who?"),
        chunk("Ada", true, true),
        ended(State::Completed, ""),
    ];
    let far = Far::new(PeerProtocol::A2a, true, vec![script]);
    let server = server(&far).await;
    let task = server.send("far", Part::text("x")).await;
    let server = restart(server, &far).await;
    let task = server.answer(&task, named("Ada")).await;
    assert_eq!((task.state, text_of(&task).as_str()), (State::Completed, "Dear Ada"));
    assert_eq!((far.asked().len(), far.asked()[0].answers.len()), (1, 1));
}

#[tokio::test]
async fn a_call_that_is_gone_is_made_again_and_nobody_is_asked_twice() {
    let first = vec![form("q1", "Who?"), Act::Forget, Act::Cut];
    let second =
        vec![form("r1", "Who?"), chunk("Ada", false, true), form("r2", "Why?"), ended(State::Completed, "")];
    for keeps in [true, false] {
        let far = Far::new(PeerProtocol::A2a, keeps, vec![first.clone(), second.clone()]);
        let server = server(&far).await;
        let task = server.send("far", Part::text("x")).await;
        assert_eq!(task.questions[0].1.text, "Who?");
        let task = server.answer(&task, named("Ada")).await;
        assert_eq!(task.questions[0].1.text, "Why?", "what was answered is not asked again");
        let task = server.answer(&task, named("because")).await;
        assert_eq!((task.state, text_of(&task).as_str()), (State::Completed, "Ada"));
        let [one, two] = &far.asked()[..] else { panic!("two calls") };
        assert_eq!(one.begin.as_ref().unwrap().input.id, two.begin.as_ref().unwrap().input.id);
        assert_eq!(two.answers[0].1, Answer::Accept(json!({ "name": "Ada" })));
    }
}

#[tokio::test]
async fn a_call_that_is_gone_fails_where_the_table_says_so() {
    for (lost, idempotent, again) in [
        (LostCallPolicy::Fail, true, false),
        (LostCallPolicy::Safe, false, false),
        (LostCallPolicy::Safe, true, true),
    ] {
        let far = Far::new(
            PeerProtocol::A2a,
            false,
            vec![vec![progress(1.0), Act::Cut], vec![ended(State::Completed, "")]],
        );
        far.offers.lock().unwrap()[0].idempotent = idempotent;
        let server = Server::with(vec![made_with(&far, |remote| remote.lost = lost).agent]).await;
        let task = server.send("far", Part::text("x")).await;
        assert_eq!(task.state, if again { State::Completed } else { State::Failed }, "{lost:?} {idempotent}");
        assert_eq!(ending(&task).1.contains("the connection broke"), !again, "{}", ending(&task).1);
        assert_eq!(far.asked().len(), if again { 2 } else { 1 });
    }
}

#[tokio::test]
async fn a_restart_while_a_call_begins_makes_it_again_only_where_the_table_says_so() {
    for (lost, idempotent, again) in [
        (LostCallPolicy::Again, false, true),
        (LostCallPolicy::Fail, true, false),
        (LostCallPolicy::Safe, false, false),
        (LostCallPolicy::Safe, true, true),
    ] {
        // Nothing was heard of it yet, so nobody knows whether it was taken.
        let script = vec![Act::Hold, ended(State::Completed, "")];
        let far = Far::new(PeerProtocol::A2a, false, vec![script, vec![ended(State::Completed, "")]]);
        far.offers.lock().unwrap()[0].idempotent = idempotent;
        let server = Server::with(vec![made_with(&far, |remote| remote.lost = lost).agent]).await;
        let task = server.submit(submit("far", Part::text("x"))).await;
        until(|| far.asked().len() == 1).await;
        let server = server.restart().await;
        let task = server.settle(task).await;
        assert_eq!(task.state, if again { State::Completed } else { State::Failed }, "{lost:?} {idempotent}");
        let words = "the call was lost and is not made again: this server stopped while it began the call";
        assert_eq!(ending(&task).1, if again { "" } else { words });
        assert_eq!(far.asked().len(), if again { 2 } else { 1 }, "{lost:?} {idempotent}");
    }
}

#[tokio::test]
async fn a_restart_in_a_call_without_a_way_back_makes_it_again_only_where_the_table_says_so() {
    for (lost, idempotent, again) in [
        (LostCallPolicy::Fail, true, false),
        (LostCallPolicy::Safe, false, false),
        (LostCallPolicy::Safe, true, true),
    ] {
        let script = vec![progress(1.0), Act::Hold];
        let far = Far::new(PeerProtocol::A2a, false, vec![script, vec![ended(State::Completed, "")]]);
        far.offers.lock().unwrap()[0].idempotent = idempotent;
        let server = Server::with(vec![made_with(&far, |remote| remote.lost = lost).agent]).await;
        let task = server.submit(submit("far", Part::text("x"))).await;
        server.log_until(&task, |event| matches!(event, Event::Progress(_))).await;
        let server = server.restart().await;
        let task = server.settle(task).await;
        assert_eq!(task.state, if again { State::Completed } else { State::Failed }, "{lost:?} {idempotent}");
        let words = "the call went with the process that made it";
        assert_eq!(ending(&task).1.contains(words), !again, "{}", ending(&task).1);
        assert_eq!(far.asked().len(), if again { 2 } else { 1 });
    }
}

#[tokio::test]
async fn a_call_that_is_always_lost_is_not_made_for_ever() {
    let scripts = vec![vec![progress(1.0), Act::Cut]; 5];
    let far = Far::new(PeerProtocol::A2a, false, scripts);
    let task = server(&far).await.send("far", Part::text("x")).await;
    let words = "the call was lost 5 times: ";
    assert!(task.state == State::Failed && ending(&task).1.starts_with(words), "{:?}", ending(&task));
    assert_eq!(far.asked().len(), 5);
}

#[tokio::test]
async fn a_question_that_is_answered_over_there_is_taken_back_here() {
    let settled = |id: &str| Act::Tell(CallEvent::QuestionClosed(id.into()));
    for (keeps, rest) in [
        (true, vec![settled("who"), chunk("Eve", false, true), ended(State::Completed, "")]),
        (false, vec![settled("who"), form("why", "Why?"), ended(State::Completed, "")]),
        (false, vec![ended(State::Canceled, "nobody answered")]),
    ] {
        let script = [vec![Act::Wonder(question("who", "Who?")), Act::Hold], rest.clone()].concat();
        let far = Far::new(PeerProtocol::A2a, keeps, vec![script]);
        let server = server(&far).await;
        let task = server.send("far", Part::text("x")).await;
        assert_eq!(task.questions[0].1.text, "Who?");
        while server.row(&task).await.node.is_some() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        far.on.notify_one();
        let task = moved_on(&server, task).await;
        match &rest[1..] {
            [Act::Ask(_), _] => {
                assert_eq!(task.questions[0].1.text, "Why?");
                let task = server.answer(&task, named("Ada")).await;
                assert_eq!(task.state, State::Completed);
                assert_eq!(far.asked()[0].answers.len(), 1, "nobody was told anything about the first");
            }
            [_, _] => assert_eq!((task.state, text_of(&task).as_str()), (State::Completed, "Eve")),
            _ => assert_eq!(ending(&task), (State::Canceled, "nobody answered".into(), vec![])),
        }
        assert_eq!(far.asked().len(), 1, "it was called once");
    }
}

#[tokio::test]
async fn a_cancel_here_is_a_cancel_there() {
    let far = Far::new(PeerProtocol::A2a, true, vec![vec![progress(1.0), Act::Hold]]);
    let server = server(&far).await;
    let task = server.submit(submit("far", Part::text("x"))).await;
    server.log_until(&task, |event| matches!(event, Event::Progress(_))).await;
    let task = server.cancel(&task).await;
    assert_eq!(ending(&task), (State::Canceled, "stopped over there".into(), vec![]));
    assert!(far.asked()[0].canceled);
}

#[tokio::test]
async fn a_cancel_while_a_question_is_open_reaches_the_other_side_too() {
    for restarts in [false, true] {
        let far = Far::new(PeerProtocol::A2a, true, vec![vec![form("who", "Who?")]]);
        let mut server = server(&far).await;
        let task = server.send("far", Part::text("x")).await;
        assert_eq!(task.state, State::InputRequired);
        if restarts {
            server = restart(server, &far).await;
        }
        let task = server.cancel(&task).await;
        assert_eq!(task.state, State::Canceled);
        assert!(far.asked()[0].canceled, "after a restart: {restarts}");
    }
}

#[tokio::test]
async fn who_is_away_is_called_again_and_then_it_is_said() {
    let far = Far::new(PeerProtocol::A2a, true, vec![vec![ended(State::Completed, "")]]);
    far.away.store(3, Ordering::SeqCst);
    let server = server(&far).await;
    assert_eq!(server.send("far", Part::text("x")).await.state, State::Completed);
    far.away.store(u32::MAX, Ordering::SeqCst);
    let task = server.send("far", Part::text("x")).await;
    assert_eq!(ending(&task), (State::Failed, "far away cannot be reached: nobody is there".into(), vec![]));
}

#[tokio::test]
async fn the_agent_presents_itself_as_the_other_side_does() {
    let far = Far::new(PeerProtocol::A2a, true, vec![]);
    let made = made(&far);
    assert_eq!(made.agent.profile().description, "An agent elsewhere, spoken to in A2A.");
    let living = made.managed.unwrap();
    let seen = living.wait_for_update().await.profile();
    assert_eq!((seen.description.as_str(), seen.skills[0].id.as_str()), ("Does far.", "far"));
    let renewed = tokio::spawn(async move { living.wait_for_update().await.profile() });
    far.offers.lock().unwrap()[0].description = "Does more.".into();
    until(|| {
        far.offers_changed.notify_waiters();
        renewed.is_finished()
    })
    .await;
    assert_eq!(renewed.await.unwrap().description, "Does more.");
}

fn said(text: &str) -> Act {
    Act::Tell(CallEvent::Message(Message::text("m", nuncio_engine::Role::Agent, text)))
}

/// How far it was, with the words.
async fn progress_of(server: &Server, task: &Task) -> Vec<(f64, String)> {
    let log = server.log(task).await;
    let told = log.iter().filter_map(|event| match event {
        Event::Progress(progress) => Some((progress.done, progress.text.clone().unwrap_or_default())),
        _ => None,
    });
    told.collect()
}

#[tokio::test]
async fn who_does_not_tell_is_looked_at_from_time_to_time() {
    let far = Far::new(PeerProtocol::A2a, true, vec![]);
    let look = |remote: &mut RemoteAgentBuilder| remote.patience.look = Duration::from_millis(20);
    let living = made_with(&far, look).managed.unwrap();
    assert_eq!(living.wait_for_update().await.profile().description, "Does far.");
    far.offers.lock().unwrap()[0].description = "Does more.".into();
    let renewed = tokio::time::timeout(Duration::from_secs(20), living.wait_for_update()).await;
    assert_eq!(renewed.expect("nobody had to tell").profile().description, "Does more.");
}

#[tokio::test]
async fn words_are_counted_on_after_a_restart_and_in_another_call() {
    let first = vec![said("one"), said("two"), Act::Hold, said("three"), Act::Forget, Act::Cut];
    let second = vec![said("four"), ended(State::Completed, "")];
    let far = Far::new(PeerProtocol::A2a, true, vec![first, second]);
    let server = server(&far).await;
    let task = server.submit(submit("far", Part::text("x"))).await;
    let two = |event: &Event| matches!(event, Event::Progress(p) if p.text.as_deref() == Some("two"));
    server.log_until(&task, two).await;
    let server = restart(server, &far).await;
    until(|| far.resumed.load(Ordering::SeqCst) == 1).await;
    far.on.notify_one();
    let task = server.settle(task).await;
    assert_eq!(task.state, State::Completed);
    // What is told again after a restart is told again here, and counted on.
    let told = ["one", "two", "one", "two", "three", "four"].into_iter().zip(1..);
    let told: Vec<_> = told.map(|(words, n)| (f64::from(n), words.to_owned())).collect();
    assert_eq!(progress_of(&server, &task).await, told);
}

#[tokio::test]
async fn words_on_the_way_are_seen() {
    let far = Far::new(
        PeerProtocol::A2a,
        true,
        vec![vec![said("looking"), said("found"), ended(State::Completed, "")]],
    );
    let server = server(&far).await;
    let task = server.send("far", Part::text("x")).await;
    let seen = progress_of(&server, &task).await;
    assert_eq!(seen, [(1.0, "looking".to_owned()), (2.0, "found".to_owned())]);
}

#[tokio::test]
async fn what_is_said_to_a_task_at_work_goes_over_and_under_one_id() {
    let told =
        |text: &str| Act::Tell(CallEvent::Message(Message::text("w", nuncio_engine::Role::Agent, text)));
    let script = vec![told("at it"), Act::Hold, ended(State::Completed, "done")];
    let far = Far::new(PeerProtocol::A2a, true, vec![script]);
    let server = server(&far).await;
    let task = server.submit(submit("far", Part::text("go"))).await;
    server.log_until(&task, |event| matches!(event, Event::Progress(_))).await;
    server.tell(&task, "mine", "shorter").await;
    crate::server::until("it went over", || far.asked()[0].messages.len() == 1).await;
    let id = format!("nuncio-{}-1", task.origin.id);
    assert_eq!(far.asked()[0].messages, [(id, "shorter".to_owned())]);
    far.on.notify_one();
    assert_eq!(server.settle(task).await.state, State::Completed);
}
