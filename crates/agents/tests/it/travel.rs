use std::time::Duration;

use nuncio_engine::{
    Error, Event, Level, Part, State, Task,
    question::{Ask, Question},
};
use serde_json::{Value, json};

use crate::server::{Server, ending, lines, percents, result_data, result_text, submit};

const AGENT: &str = "travel_agent";

/// A trip that waits for its price to be confirmed.
async fn asking(server: &Server, part: Part) -> Task {
    let task = server.send(AGENT, part).await;
    assert_eq!(task.state, State::InputRequired);
    task
}

fn question(task: &Task) -> &Question {
    let [(_, question)] = &task.questions[..] else { panic!("one question, not {:?}", task.questions) };
    question
}

/// What every ending but one has in common.
async fn assert_not_booked(server: &Server, task: &Task) {
    assert!(!server.journaled_steps(task).await.contains(&"book".to_owned()), "nothing was booked");
    assert!(ending(task).1.contains("ot booked"), "and it says so: {:?}", ending(task).1);
    let made = serde_json::to_string(&task.artifacts).unwrap();
    assert!(!made.contains("TRIP-"), "no reference: {made}");
}

#[tokio::test]
async fn the_third_step_asks_to_confirm_the_price() {
    let server = Server::start(Duration::from_millis(1)).await;
    let task = asking(&server, Part::text("Book a trip to Lisbon")).await;
    let question = question(&task);
    assert_eq!(question.text, "Please confirm the estimated price of $1200 for your trip to Lisbon");
    let Ask::Form { schema } = &question.ask else { panic!("a form, not {:?}", question.ask) };
    assert_eq!(schema["properties"]["confirm"]["type"], "boolean");
    assert_eq!(schema["properties"]["notes"]["type"], "string");
    assert_eq!(schema["required"], json!(["confirm"]));
    assert_eq!(server.journaled_steps(&task).await, ["flights", "dates", "price"]);
    let log = server.log_until(&task, |event| matches!(event, Event::Question(_))).await;
    assert_eq!(percents(&log), [0.0, 25.0, 50.0]);
}

#[tokio::test]
async fn a_yes_books_once() {
    let server = Server::start(Duration::from_millis(1)).await;
    let task = asking(&server, Part::data(json!({ "destination": "Rome" }))).await;
    let answer = json!({ "action": "accept", "content": { "confirm": true, "notes": "a window seat" } });
    let task = server.answer(&task, Part::data(answer)).await;

    let booking = result_data(&task);
    let reference = booking["reference"].as_str().unwrap();
    let words = format!("Trip to Rome booked for $1200. Reference: {reference}.");
    assert_eq!(ending(&task), (State::Completed, words.clone(), vec!["itinerary"]));
    assert_eq!(result_text(&task), words);
    assert_eq!(booking["destination"], "Rome");
    assert_eq!(booking["status"], "booked");
    assert_eq!(booking["price"], json!({ "amount": 1200, "currency": "USD" }));
    assert_eq!(booking["notes"], "a window seat");
    assert_eq!(server.journaled_steps(&task).await, ["flights", "dates", "price", "book"]);
    assert_eq!(percents(&server.log(&task).await), [0.0, 25.0, 50.0, 75.0, 100.0]);
}

#[tokio::test]
async fn a_yes_may_be_a_word() {
    let server = Server::start(Duration::ZERO).await;
    let task = asking(&server, Part::text("Rome")).await;
    let task = server.answer(&task, Part::text("yes")).await;
    assert_eq!(task.state, State::Completed);
    assert_eq!(result_data(&task)["status"], "booked");
    assert_eq!(result_data(&task)["notes"], Value::Null);
}

#[tokio::test]
async fn a_form_that_does_not_confirm_books_nothing() {
    let server = Server::start(Duration::ZERO).await;
    let task = asking(&server, Part::text("Rome")).await;
    let task = server.answer(&task, Part::data(json!({ "confirm": false, "notes": "too dear" }))).await;
    let words = "Not booked: you did not confirm $1200 for the trip to Rome. You said: too dear";
    assert_eq!(ending(&task), (State::Completed, words.into(), vec![]));
    assert_not_booked(&server, &task).await;
    assert_eq!(percents(&server.log(&task).await), [0.0, 25.0, 50.0, 100.0]);
}

#[tokio::test]
async fn a_declined_question_books_nothing() {
    let server = Server::start(Duration::ZERO).await;
    let task = asking(&server, Part::text("Rome")).await;
    let task = server.answer(&task, Part::data(json!({ "action": "decline" }))).await;
    let words = "Not booked: the offer for Rome was declined.";
    assert_eq!(ending(&task), (State::Completed, words.into(), vec![]));
    assert_not_booked(&server, &task).await;
    let task = asking(&server, Part::text("Rome")).await;
    let task = server.answer(&task, Part::data(json!({ "action": "decline", "note": "too dear" }))).await;
    assert_eq!(ending(&task).1, format!("{words} You said: too dear"));
}

#[tokio::test]
async fn a_dismissed_question_cancels() {
    let server = Server::start(Duration::ZERO).await;
    let task = asking(&server, Part::text("Rome")).await;
    let task = server.answer(&task, Part::data(json!({ "action": "cancel" }))).await;
    let words = "Not booked: the question about the trip to Rome was dismissed.";
    assert_eq!(ending(&task), (State::Canceled, words.into(), vec![]));
    assert_not_booked(&server, &task).await;
}

#[tokio::test]
async fn with_nobody_to_ask_there_is_a_quote_and_no_booking() {
    let server = Server::start(Duration::ZERO).await;
    let mut quiet = submit(AGENT, Part::text("Rome"));
    quiet.abilities.ask = false;
    let task = server.submit(quiet).await;
    let task = server.settle(task).await;
    let words =
        "The trip to Rome costs $1200. Price quoted, not booked: nobody could be asked to confirm it.";
    assert_eq!(ending(&task), (State::Completed, words.into(), vec!["quote"]));
    assert_eq!(result_data(&task)["status"], "quoted");
    assert_not_booked(&server, &task).await;
}

#[tokio::test]
async fn an_answer_that_does_not_fit_changes_nothing() {
    let server = Server::start(Duration::ZERO).await;
    let task = asking(&server, Part::text("Rome")).await;
    for answer in [json!({}), json!({ "confirm": "perhaps" }), json!({ "action": "accept" })] {
        let refused = server.try_answer(&task, Part::data(answer)).await;
        assert!(matches!(refused, Err(Error::Answer(_))), "{refused:?}");
    }
    assert_eq!(server.get(&task).await, task);
}

#[tokio::test]
async fn the_destination_is_paris_unless_told() {
    let server = Server::start(Duration::ZERO).await;
    for part in [Part::data(json!({})), Part::data(json!({ "destination": " " })), Part::text("")] {
        let task = asking(&server, part).await;
        assert!(question(&task).text.ends_with("your trip to Paris"));
    }
}

#[tokio::test]
async fn a_destination_is_found_in_a_sentence_and_taken_whole_as_an_argument() {
    let server = Server::start(Duration::ZERO).await;
    let place = "the Road to Hana";
    for (part, place) in
        [(Part::text(place), "Hana"), (Part::data(json!({ "destination": place })), "the Road to Hana")]
    {
        let task = asking(&server, part).await;
        assert!(question(&task).text.ends_with(&format!("your trip to {place}")), "{task:?}");
    }
}

#[tokio::test]
async fn an_argument_of_the_wrong_kind_is_rejected() {
    let server = Server::start(Duration::ZERO).await;
    let task = server.send(AGENT, Part::data(json!({ "destination": 7 }))).await;
    assert_eq!(ending(&task), (State::Rejected, "destination: a string is wanted, not 7".into(), vec![]));
    let task = server.send(AGENT, Part::text("far ".repeat(1_000))).await;
    assert_eq!(task.state, State::Rejected);
}

#[tokio::test]
async fn a_question_outlives_the_server_and_no_step_is_done_twice() {
    let server = Server::start(Duration::from_millis(1)).await;
    let task = asking(&server, Part::text("Rome")).await;
    let server = server.restart().await;
    let task = server.answer(&task, Part::data(json!({ "confirm": true }))).await;
    assert_eq!(task.state, State::Completed);
    assert_eq!(server.journaled_steps(&task).await, ["flights", "dates", "price", "book"]);
    assert_eq!(percents(&server.log(&task).await), [0.0, 25.0, 50.0, 75.0, 100.0]);

    let booked = result_data(&task);
    let server = server.restart().await;
    assert_eq!(result_data(&server.get(&task).await), booked);
}

#[tokio::test]
async fn a_cancel_stops_a_step_at_once() {
    let server = Server::start(Duration::from_secs(600)).await;
    let task = server.submit(submit(AGENT, Part::text("Rome"))).await;
    server.log_until(&task, |event| matches!(event, Event::Progress(_))).await;
    assert_eq!(server.cancel(&task).await.state, State::Canceled);
    assert_eq!(server.journaled_steps(&task).await, Vec::<String>::new());
}

/// Right after a question is put the agent is still held; a little later the task is parked. A cancel is
/// quick in both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_stops_a_question_at_once() {
    let server = Server::start(Duration::ZERO).await;
    for _ in 0..20 {
        let task = server.submit(submit(AGENT, Part::text("Rome"))).await;
        server.log_until(&task, |event| matches!(event, Event::Question(_))).await;
        assert_eq!(server.cancel(&task).await.state, State::Canceled);
    }
}

/// The price is a person's business, the summary a model's, and the booking waits for both.
#[tokio::test]
async fn the_callers_model_summarizes_the_trip_before_it_is_booked() {
    let server = Server::start(Duration::ZERO).await;
    let mut with_model = submit(AGENT, Part::text("Rome"));
    with_model.abilities.sample = true;
    let task = server.submit(with_model).await;
    let task = server.settle(task).await;
    let task = server.answer(&task, Part::data(json!({ "confirm": true }))).await;
    assert_eq!(task.state, State::InputRequired);
    assert!(matches!(question(&task).ask, Ask::Sample { max_tokens: 100, .. }), "{:?}", question(&task));
    assert!(question(&task).text.starts_with("Please summarize the travel data for the trip to Rome"));
    assert!(!server.journaled_steps(&task).await.contains(&"book".to_owned()), "not before the summary");
    let task = server.answer(&task, Part::text("Rome in spring.")).await;
    assert_eq!(task.state, State::Completed);
    assert_eq!(result_data(&task)["summary"], "Rome in spring.");
}

#[tokio::test]
async fn without_a_model_it_books_and_logs_every_step() {
    let server = Server::start(Duration::ZERO).await;
    let task = asking(&server, Part::text("Rome")).await;
    let task = server.answer(&task, Part::text("yes")).await;
    assert_eq!(result_data(&task)["summary"], Value::Null);
    let log = server.log(&task).await;
    assert_eq!(lines(&log, Level::Info).len(), 5, "{:?}", lines(&log, Level::Info));
    assert!(lines(&log, Level::Info)[0].contains("flights to Rome"));
    assert_eq!(lines(&log, Level::Notice), ["Booking without a summary: there was no model to ask"]);
}

#[tokio::test]
async fn a_message_changes_the_destination_while_the_agent_works() {
    let server = Server::start(Duration::from_millis(200)).await;
    let task = server.submit(submit(AGENT, Part::text("Rome"))).await;
    server.log_until(&task, |event| matches!(event, Event::Progress(_))).await;
    server.try_answer(&task, Part::text("destination: Oslo")).await.unwrap();
    let server = server.restart().await;
    let task = server.settle(task).await;
    assert!(question(&task).text.ends_with("your trip to Oslo"), "{}", question(&task).text);
}
