//! Questions that the other side takes back, and asks again: an answer is somebody's, or the question stands.

use nuncio_client::peer::{CallEvent, PeerProtocol};
use nuncio_engine::{Answer, Event, State};
use serde_json::json;

use super::{
    Act, Server,
    far::{Far, ended, form, question},
    moved_on, named, restart, server, within,
};

fn settled(id: &str) -> Act {
    Act::Tell(CallEvent::QuestionClosed(id.into()))
}

async fn parked(server: &Server, task: &nuncio_engine::Task) {
    while server.row(task).await.node.is_some() {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}

/// As a server of MCP does it after a reconnect: the same words under another id.
#[tokio::test]
async fn a_question_that_is_put_again_under_another_id_is_not_answered_by_the_one_that_was_taken_back() {
    let script = vec![
        Act::Wonder(question("first", "Who?")),
        Act::Hold,
        settled("first"),
        form("second", "Who?"),
        ended(State::Completed, ""),
    ];
    let far = Far::new(PeerProtocol::Mcp, true, vec![script]);
    let server = server(&far).await;
    let task = server.send("far", named("far")).await;
    assert_eq!(task.state, State::InputRequired, "{:?}", task.status_message);
    parked(&server, &task).await;
    far.on.notify_one();
    let task = moved_on(&server, task).await;
    assert_eq!(far.asked()[0].answers, vec![], "nobody has answered anything");
    assert_eq!((task.state, task.questions[0].1.text.as_str()), (State::InputRequired, "Who?"));
    let task = server.answer(&task, named("Ada")).await;
    assert_eq!(task.state, State::Completed);
    assert_eq!(far.asked()[0].answers, vec![("second".into(), Answer::Accept(json!({ "name": "Ada" })))]);
    let log = server.log(&task).await;
    let answers: Vec<_> = log.iter().filter(|event| matches!(event, Event::Answer(_))).collect();
    assert_eq!(answers.len(), 1, "one answer was given: {answers:?}");
}

/// The server dies between the withdrawal and what comes after it, and the other side has another name for it then.
#[tokio::test]
async fn a_withdrawal_is_not_passed_on_as_an_answer_after_a_restart() {
    let script = vec![
        Act::TellOnce(CallEvent::Question(question("first", "Who?"))),
        Act::Hold,
        Act::TellOnce(CallEvent::QuestionClosed("first".into())),
        Act::Hold,
        form("second", "Who?"),
        ended(State::Completed, ""),
    ];
    let far = Far::new(PeerProtocol::Mcp, true, vec![script]);
    let server = server(&far).await;
    let task = server.send("far", named("far")).await;
    parked(&server, &task).await;
    far.on.notify_one();
    within(async {
        while server.get(&task).await.state != State::Working {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    })
    .await;
    let server = restart(server, &far).await;
    let task = within(async {
        loop {
            far.on.notify_one();
            let task = server.get(&task).await;
            if task.state != State::Working {
                return task;
            }
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    })
    .await;
    assert_eq!(far.asked()[0].answers, vec![], "nobody has answered anything");
    let task = server.answer(&task, named("Ada")).await;
    assert_eq!(task.state, State::Completed);
    assert_eq!(far.asked()[0].answers, vec![("second".into(), Answer::Accept(json!({ "name": "Ada" })))]);
}
