use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use nuncio_engine::{Agent, AgentError, Event, Level, Outcome, Part, Profile, State, Task, TaskContext};
use serde_json::json;

use crate::server::{Server, ending, lines, percents, result_data, submit};

const AGENT: &str = "long_running_agent";

/// The lines that tell of the steps, each once and in order.
fn step_lines() -> Vec<String> {
    (1..=50).map(|n| format!("Processing step {n}/50 ({}%)", n * 2)).collect()
}

async fn assert_all_done(server: &Server, task: &Task) {
    assert_eq!(ending(task), (State::Completed, "All 50 steps are done.".into(), vec!["result"]));
    assert_eq!(result_data(task), json!({ "steps": 50 }));
    let log = server.log(task).await;
    assert_eq!(lines(&log, Level::Info), step_lines());
    assert_eq!(lines(&log, Level::Warning).len(), 5);
    assert_eq!(lines(&log, Level::Debug).len(), 60);
    assert_eq!(lines(&log, Level::Error).len(), 0);
    assert_eq!(percents(&log), (1..=50).map(f64::from).collect::<Vec<_>>());
    let steps: Vec<String> = (1..=50).map(|n| format!("step-{n}")).collect();
    assert_eq!(server.journaled_steps(task).await, steps);
}

#[tokio::test]
async fn fifty_steps_are_logged_at_levels_that_can_be_filtered() {
    let server = Server::start(Duration::ZERO).await;
    let task = server.send(AGENT, Part::data(json!({}))).await;
    assert_all_done(&server, &task).await;
}

#[tokio::test]
async fn it_goes_on_where_it_stopped_when_the_server_is_restarted() {
    let mut server = Server::start(Duration::from_millis(5)).await;
    let task = server.submit(submit(AGENT, Part::text("go"))).await;
    for reached in [5.0, 20.0, 35.0] {
        server.log_until(&task, |event| matches!(event, Event::Progress(at) if at.done >= reached)).await;
        server = server.restart().await;
        assert!(!server.get(&task).await.state.is_terminal(), "it was cut in the middle");
    }
    let task = server.settle(task).await;
    assert_all_done(&server, &task).await;
}

#[tokio::test]
async fn a_cancel_stops_it_at_once() {
    let server = Server::start(Duration::from_secs(600)).await;
    let task = server.submit(submit(AGENT, Part::text("go"))).await;
    server.log_until(&task, |event| matches!(event, Event::Log(_))).await;
    assert_eq!(server.cancel(&task).await.state, State::Canceled);
    assert_eq!(server.journaled_steps(&task).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_cancel_between_quick_steps_stops_it_too() {
    let server = Server::start(Duration::from_millis(10)).await;
    let task = server.submit(submit(AGENT, Part::text("go"))).await;
    server.log_until(&task, |event| matches!(event, Event::Progress(at) if at.done >= 10.0)).await;
    let task = server.cancel(&task).await;
    assert_eq!(task.state, State::Canceled);
    assert!(server.journaled_steps(&task).await.len() < 50);
}

/// The same shape of work with an effect that can be counted.
struct Tally {
    done: Arc<Mutex<Vec<u32>>>,
}

#[async_trait]
impl Agent for Tally {
    fn profile(&self) -> Profile {
        Profile::new("tally", "Notes each of its steps.")
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        for n in 1..=50 {
            let step = cx.step("count", async |_| {
                tokio::time::sleep(Duration::from_millis(2)).await;
                self.done.lock().unwrap().push(n);
                Ok(n)
            });
            assert_eq!(step.await?, n, "a replayed step returns what it returned");
            cx.progress(n.into(), Some(50.0), "").await?;
        }
        Ok(Outcome::done())
    }
}

#[tokio::test]
async fn what_a_step_did_is_not_done_again_after_a_restart() {
    let done = Arc::new(Mutex::new(vec![]));
    let mut server = Server::with(vec![Arc::new(Tally { done: Arc::clone(&done) })]).await;
    let task = server.submit(submit("tally", Part::text("go"))).await;
    for reached in [5.0, 20.0, 35.0] {
        server.log_until(&task, |event| matches!(event, Event::Progress(at) if at.done >= reached)).await;
        server = server.restart().await;
    }
    let task = server.settle(task).await;
    assert_eq!(task.state, State::Completed, "{:?}", task.status_message);
    assert_eq!(*done.lock().unwrap(), (1..=50).collect::<Vec<_>>());
}
