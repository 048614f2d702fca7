//! Calls that get lost, break and are refused: what is made again, and what is not.

use std::{sync::atomic::Ordering, time::Duration};

use nuncio_agents::configured::spec::LostCallPolicy;
use nuncio_client::peer::{PeerError, PeerProtocol};
use nuncio_engine::{Part, State};

use super::{
    Server, ending,
    far::{Act, Far, ended, form},
    made_with, named, progress, restart, submit, until,
};

#[tokio::test]
async fn what_may_have_been_carried_out_is_not_said_again_where_the_table_says_so() {
    for (lost, calls) in [(LostCallPolicy::Fail, 1), (LostCallPolicy::Again, 2)] {
        let far = Far::new(PeerProtocol::A2a, true, vec![vec![ended(State::Completed, "")]]);
        far.refusals.lock().unwrap().push_back(PeerError::Cut("HTTP 504".into()));
        let server = Server::with(vec![made_with(&far, |remote| remote.lost = lost).agent]).await;
        let task = server.send("far", Part::text("x")).await;
        assert_eq!(task.state == State::Completed, lost == LostCallPolicy::Again, "{:?}", ending(&task));
        assert_eq!(far.asked().len(), calls, "{lost:?}");
    }
}

#[tokio::test]
async fn who_is_busy_for_longer_than_patience_lasts_is_tried_once_more_at_its_end() {
    let far = Far::new(PeerProtocol::A2a, true, vec![vec![ended(State::Completed, "")]]);
    let busy = PeerError::Busy { why: "later".into(), retry_after: Some(Duration::from_secs(u64::MAX)) };
    far.refusals.lock().unwrap().push_back(busy);
    let server = super::server(&far).await;
    assert_eq!(server.send("far", Part::text("x")).await.state, State::Completed);
    assert_eq!(far.asked().len(), 2);
}

#[tokio::test]
async fn every_outage_of_a_long_call_gets_the_whole_patience() {
    let patience = Duration::from_millis(400);
    let script = vec![Act::CutOnce, progress(1.0), Act::Hold, Act::CutOnce, ended(State::Completed, "")];
    let far = Far::new(PeerProtocol::A2a, true, vec![script]);
    let agent = made_with(&far, |remote| {
        remote.patience.resume = patience;
        remote.lost = LostCallPolicy::Fail;
    });
    let server = Server::with(vec![agent.agent]).await;
    let task = server.submit(submit("far", Part::text("x"))).await;
    until(|| far.resumed.load(Ordering::SeqCst) == 1).await;
    // Longer than anybody is waited for in one outage.
    tokio::time::sleep(patience * 2).await;
    far.on.notify_one();
    let task = server.settle(task).await;
    assert_eq!(task.state, State::Completed, "{:?}", ending(&task));
    assert_eq!((far.asked().len(), far.resumed.load(Ordering::SeqCst)), (1, 2));
}

#[tokio::test]
async fn an_outage_of_a_running_call_ends_its_task_and_the_call_is_not_made_again() {
    let script = vec![progress(1.0), Act::OutageOnce, ended(State::Completed, "")];
    let far = Far::new(PeerProtocol::A2a, true, vec![script]);
    let server = super::server(&far).await;
    let task = server.send("far", Part::text("x")).await;
    let words = "far away has been unreachable for 300 s: nobody is there".to_owned();
    assert_eq!(ending(&task), (State::Failed, words, vec![]));
    assert!(!task.is_unreachable(), "the work was begun, so no other agent may begin it");
    assert_eq!((far.asked().len(), far.resumed.load(Ordering::SeqCst)), (1, 0));
}

#[tokio::test]
async fn an_outage_while_a_question_waits_for_its_answer_does_not_end_the_task() {
    let asks = super::question("who", "Who?");
    let script = vec![Act::Wonder(asks), Act::OutageOnce, form("who", "Who?"), ended(State::Completed, "")];
    let far = Far::new(PeerProtocol::A2a, true, vec![script]);
    let server = super::server(&far).await;
    let task = server.send("far", Part::text("x")).await;
    assert_eq!(task.state, State::InputRequired, "{:?}", ending(&task));
    until(|| far.outages.load(Ordering::SeqCst) == 1).await;
    let task = server.answer(&task, named("Ada")).await;
    assert_eq!(task.state, State::Completed, "{:?}", ending(&task));
    assert_eq!((far.asked().len(), far.resumed.load(Ordering::SeqCst)), (1, 1));
}

#[tokio::test]
async fn an_answer_that_makes_the_call_again_is_given_once_where_the_table_says_so() {
    for by_calling in [true, false] {
        let script = vec![form("who", "Who?"), Act::Hold, ended(State::Completed, "")];
        let far = Far::new(PeerProtocol::A2a, true, vec![script]);
        far.by_calling.store(by_calling, Ordering::SeqCst);
        let server =
            Server::with(vec![made_with(&far, |remote| remote.lost = LostCallPolicy::Fail).agent]).await;
        let task = server.send("far", Part::text("x")).await;
        let task = server.try_answer(&task, named("Ada")).await.unwrap();
        until(|| far.asked()[0].answers.len() == 1).await;
        let server = restart(server, &far).await;
        far.on.notify_one();
        let task = server.settle(task).await;
        assert_eq!(task.state == State::Failed, by_calling, "{:?}", ending(&task));
        assert_eq!((far.asked().len(), far.asked()[0].answers.len()), (1, 1));
    }
}

#[tokio::test]
async fn whoever_is_replaced_stays_until_its_calls_have_ended() {
    // One call is at work, another waits for an answer.
    let scripts = vec![
        vec![progress(1.0), Act::Hold, ended(State::Completed, "")],
        vec![form("who", "Who?"), ended(State::Completed, "")],
    ];
    let far = Far::new(PeerProtocol::A2a, false, scripts);
    let made = made_with(&far, |remote| remote.lost = LostCallPolicy::Fail);
    let server = Server::with(vec![made.agent]).await;
    let working = server.submit(submit("far", Part::text("x"))).await;
    server.log_until(&working, |event| matches!(event, nuncio_engine::Event::Progress(_))).await;
    let waiting = server.send("far", Part::text("x")).await;
    assert_eq!(waiting.state, State::InputRequired);

    let living = made.managed.unwrap();
    let retired = tokio::spawn(async move { living.retire().await });
    let waiting = server.answer(&waiting, named("Ada")).await;
    assert_eq!(waiting.state, State::Completed, "{:?}", ending(&waiting));
    assert!(!retired.is_finished() && !far.closed.load(Ordering::SeqCst));
    far.on.notify_one();
    let working = server.settle(working).await;
    assert_eq!(working.state, State::Completed, "{:?}", ending(&working));
    until(|| retired.is_finished()).await;
    assert!(far.closed.load(Ordering::SeqCst));
}

#[tokio::test]
async fn an_answer_is_remembered_through_any_number_of_lost_calls() {
    let ask = |id: &str, text: &str| form(id, text);
    let scripts = vec![
        vec![ask("a1", "Who?"), ask("a2", "Why?"), Act::Cut],
        vec![Act::Cut],
        vec![ask("c1", "Who?"), Act::Cut],
        vec![ask("d1", "Who?"), ask("d2", "Why?"), ended(State::Completed, "")],
    ];
    let far = Far::new(PeerProtocol::A2a, false, scripts);
    let server = super::server(&far).await;
    let task = server.send("far", Part::text("x")).await;
    let task = server.answer(&task, named("Ada")).await;
    let task = server.answer(&task, named("because")).await;
    assert_eq!(task.state, State::Completed, "nobody is asked again: {:?}", task.questions);
    let said: Vec<_> = far.asked()[3].answers.iter().map(|(_, answer)| answer.clone()).collect();
    let accepted = |name: &str| nuncio_engine::Answer::Accept(serde_json::json!({ "name": name }));
    assert_eq!(said, [accepted("Ada"), accepted("because")]);
}

#[tokio::test]
async fn an_answer_is_not_given_to_the_next_question_in_the_same_words() {
    let script = vec![form("q1", "Next?"), Act::Hold, form("q2", "Next?"), ended(State::Completed, "")];
    let far = Far::new(PeerProtocol::A2a, true, vec![script]);
    let server = super::server(&far).await;
    let task = server.send("far", Part::text("x")).await;
    let task = server.try_answer(&task, named("Ada")).await.unwrap();
    until(|| far.asked()[0].answers.len() == 1).await;
    let server = restart(server, &far).await;
    far.on.notify_one();
    let task = server.settle(task).await;
    assert_eq!(task.state, State::InputRequired, "{:?}", ending(&task));
    let task = server.answer(&task, named("Bob")).await;
    assert_eq!(task.state, State::Completed);
    let given: Vec<_> = far.asked()[0].answers.iter().map(|(id, _)| id.clone()).collect();
    assert_eq!(given, ["q1", "q2"]);
}

#[tokio::test]
async fn whether_a_call_may_be_made_twice_is_written_down_before_it_is_made() {
    for idempotent in [true, false] {
        let far = Far::new(PeerProtocol::A2a, true, vec![vec![ended(State::Completed, "")]]);
        far.offers.lock().unwrap()[0].idempotent = idempotent;
        let server =
            Server::with(vec![made_with(&far, |remote| remote.lost = LostCallPolicy::Safe).agent]).await;
        let task = server.send("far", Part::text("x")).await;
        let row = server.row(&task).await;
        let journal = server.engine.store_for_tests().journal(row.no).await.unwrap();
        let records = journal.iter().map(|record| String::from_utf8_lossy(&record.0).into_owned());
        let intend = records.into_iter().find(|record| record.contains("\"intend\"")).unwrap();
        assert!(intend.contains(&idempotent.to_string()), "{intend}");
    }
}

#[tokio::test]
async fn an_answer_that_was_lost_with_the_connection_is_given_again() {
    let script = vec![form("q1", "Who?"), ended(State::Completed, "")];
    let far = Far::new(PeerProtocol::A2a, true, vec![script]);
    far.deaf.store(2, Ordering::SeqCst);
    let server = super::server(&far).await;
    let task = server.send("far", Part::text("x")).await;
    let task = server.answer(&task, named("Ada")).await;
    assert_eq!(task.state, State::Completed, "{:?}", ending(&task));
    assert_eq!((far.asked().len(), far.asked()[0].answers.len()), (1, 1));
}

#[tokio::test]
async fn whoever_is_replaced_is_not_kept_for_ever() {
    let far = Far::new(PeerProtocol::A2a, false, vec![vec![form("who", "Who?")]]);
    let made = made_with(&far, |remote| remote.patience.retire = Duration::from_millis(50));
    let server = Server::with(vec![made.agent]).await;
    let task = server.send("far", Part::text("x")).await;
    assert_eq!(task.state, State::InputRequired);
    let living = made.managed.unwrap();
    tokio::time::timeout(Duration::from_secs(20), living.retire()).await.expect("it is let go");
    assert!(far.closed.load(Ordering::SeqCst));
}

#[tokio::test]
async fn a_call_that_is_lost_while_it_begins_is_made_again_by_default_only_where_that_is_safe() {
    for (idempotent, calls) in [(false, 1), (true, 2)] {
        let far = Far::new(PeerProtocol::A2a, true, vec![vec![ended(State::Completed, "")]]);
        far.offers.lock().unwrap()[0].idempotent = idempotent;
        far.refusals.lock().unwrap().push_back(PeerError::Cut("the connection broke".into()));
        let server =
            Server::with(vec![made_with(&far, |remote| remote.lost = LostCallPolicy::default()).agent]).await;
        let task = server.send("far", Part::text("x")).await;
        assert_eq!(far.asked().len(), calls, "{:?}", ending(&task));
        assert_eq!(task.state == State::Completed, idempotent, "{:?}", ending(&task));
        let ids: Vec<_> = far.asked().iter().map(|asked| asked.begin.clone().unwrap().input.id).collect();
        assert!(ids.iter().all(|id| *id == ids[0]), "one call, one key: {ids:?}");
    }
}
