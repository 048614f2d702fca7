//! A request becomes a plan: by rules, or by an agent whose answer is checked and asked for once more.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use nuncio_agents::{AgentOptions, built_in};
use nuncio_client::model::{Model, ModelOptions};
use nuncio_engine::{Message, Outcome, Part, Profile, Reply, Role, State, TaskContext};
use nuncio_flows::plan::{Plan, PlanMakeError, PlanOptions, PlanTarget, Roster, make};
use serde_json::json;

use super::world::{World, completed, does, result, said};

/// The built-in agents as if their work were real.
fn roster() -> Roster {
    let agents = built_in(&AgentOptions::default());
    Roster::new(agents.iter().map(|agent| Profile { demo: false, ..agent.profile() }))
}

/// The built-in agents as they are, and one that books as well.
fn roster_with_demos() -> Roster {
    let demos = built_in(&AgentOptions::default());
    let mut books = Profile::new("bookings", "Books trips");
    books.skills[0].id = "book_trip".into();
    Roster::new(demos.iter().map(|agent| agent.profile()).chain([books]))
}

#[test]
fn each_part_goes_to_whoever_fits_it_best() {
    let request = "Research durable execution and research agent protocols, then book a trip to Lisbon. Finally, echo the results.";
    let made = make(request, &roster(), &PlanOptions::default()).unwrap();
    let found: Vec<(&str, String, Vec<&str>)> = made
        .plan
        .tasks
        .iter()
        .map(|task| (task.id.as_str(), task.by.to_string(), task.needs.iter().map(String::as_str).collect()))
        .collect();
    assert_eq!(
        found,
        [
            ("research-durable-execution", "research_agent".to_owned(), vec![]),
            ("research-protocols", "research_agent".to_owned(), vec![]),
            (
                "book-trip-lisbon",
                "travel_agent".to_owned(),
                vec!["research-durable-execution", "research-protocols"]
            ),
            (
                "echo-results",
                "echo".to_owned(),
                vec!["research-durable-execution", "research-protocols", "book-trip-lisbon"]
            ),
        ]
    );
    let file = made.to_toml();
    assert!(file.contains("# travel_agent fits by 0."), "{file}");
    // What is made is always a valid file, which says the same.
    let read = Plan::parse(&file, &PlanOptions::default()).unwrap();
    assert_eq!(read, made.plan);
    assert_eq!(read.check(&roster()), Ok(()));
}

#[test]
fn what_nobody_fits_is_said() {
    let error =
        make("Research Rome. Paint the garage green.", &roster(), &PlanOptions::default()).unwrap_err();
    let PlanMakeError::Nobody(unfit) = &error else { panic!("{error}") };
    assert_eq!(unfit.len(), 1);
    assert_eq!(unfit[0].part, "Paint the garage green");
    let words = error.to_string();
    assert!(
        words.starts_with("nobody here fits these parts of the request:\n- \"Paint the garage green\""),
        "{words}"
    );
    assert_eq!(make("  ", &roster(), &PlanOptions::default()).unwrap_err(), PlanMakeError::Empty);
    let few = PlanOptions { tasks_per_plan: 1, ..PlanOptions::default() };
    let error = make("Research Rome. Research Oslo.", &roster(), &few).unwrap_err();
    assert_eq!(error, PlanMakeError::TooMany(2, 1));
}

#[test]
fn a_demonstration_is_given_what_names_it_and_nothing_else() {
    let (roster, options) = (roster_with_demos(), PlanOptions::default());
    let by = |request: &str| -> Vec<String> {
        let made = make(request, &roster, &options).unwrap_or_else(|error| panic!("{request}: {error}"));
        assert!(made.matches.iter().all(|found| found.others.iter().all(|(agent, _)| agent != "echo")));
        made.plan.tasks.iter().map(|task| task.by.to_string()).collect()
    };
    assert_eq!(by("Book a trip to Lisbon"), ["bookings"], "travel_agent is a demonstration");
    assert_eq!(by("Book a trip to Lisbon with travel_agent")[0], "travel_agent");
    assert_eq!(
        by("Research tides (RESEARCH_AGENT), then book a trip to Oslo"),
        ["research_agent", "bookings"]
    );

    // An agent is named by a whole word.
    for request in ["Research tides", "Research tides, not research_agents"] {
        let error = make(request, &roster, &options).unwrap_err();
        let PlanMakeError::Nobody(unfit) = &error else { panic!("{error}") };
        assert_eq!(unfit[0].demo.as_deref(), Some("research_agent"));
        assert!(error.to_string().contains("research_agent would fit, and is a demonstration"), "{error}");
    }
}

#[test]
fn a_skill_is_not_that_of_a_demonstration_where_another_agent_has_it() {
    let book = PlanTarget::Skill { skill: "book_trip".into(), tags: vec![] };
    assert_eq!(roster_with_demos().matching_agents(&book), ["bookings"]);
    let demos = Roster::new(built_in(&AgentOptions::default()).iter().map(|agent| agent.profile()));
    assert_eq!(demos.matching_agents(&book), ["travel_agent"], "a plan that wants it has it");
}

#[test]
fn a_request_in_another_language_goes_by_words_of_the_cards_or_needs_a_model() {
    let roster = Roster::new([
        Profile::new("viajes", "Reserva hoteles y vuelos"),
        Profile::new("foundry", "Makes die casts and moulds"),
    ]);
    let made = make("Reserva un hotel para la noche", &roster, &PlanOptions::default()).unwrap();
    assert_eq!(made.plan.tasks[0].by.to_string(), "viajes");
    // An article is no word that says what somebody can do.
    let error = make("Buche die Reise", &roster, &PlanOptions::default()).unwrap_err();
    let PlanMakeError::Nobody(unfit) = &error else { panic!("{error}") };
    assert_eq!(unfit[0].part, "Buche die Reise");
    let words = error.to_string();
    assert!(words.contains("another language") && words.contains("let a model make it"), "{words}");
}

#[test]
fn one_for_each() {
    let made =
        make("Research the sights for each of Rome, Oslo and Bern", &roster(), &PlanOptions::default())
            .unwrap();
    let parts: Vec<&str> = made.matches.iter().map(|found| found.part.as_str()).collect();
    assert_eq!(
        parts,
        ["Research the sights for Rome", "Research the sights for Oslo", "Research the sights for Bern"]
    );
    assert!(made.plan.tasks.iter().all(|task| task.needs.is_empty()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_is_made_into_a_plan_and_run() {
    let paints = does("painter", "paint", async |cx: TaskContext| {
        Ok(Outcome::said(format!("painted: {}", cx.text())))
    });
    let server = World::new(vec![paints]).serve().await;
    let task = server.begin(Part::text("paint the fence, then paint the door")).await;
    let ended = server.ended(&task).await;
    completed(&ended);
    assert!(
        result(&ended)
            .contains("painted: paint the door\n\nWhat came of paint-fence:\npainted: paint the fence"),
        "{}",
        result(&ended)
    );
    let task = server.begin(Part::text("sing a song")).await;
    let ended = server.ended(&task).await;
    assert_eq!(ended.state, State::Rejected);
    assert!(said(&ended).contains("nobody here fits"), "{}", said(&ended));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_makes_the_plan_and_is_asked_once_more_where_it_is_wrong() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let planner = does("planner", "plan", move |cx: TaskContext| {
        let n = counted.fetch_add(1, Ordering::SeqCst);
        async move {
            let good = "Here you are:\n```json\n{\"tasks\": [{\"id\": \"a\", \"agent\": \"painter\", \"input\": \"{{ request }}\"}]}\n```";
            match n {
                // The second question tells what was wrong with the first answer.
                1 => {
                    let told = cx.text().contains("there is no agent \"paitner\"; is \"painter\" meant?");
                    Ok(if told { Outcome::said(good) } else { Outcome::failed("not told") })
                }
                _ => Ok(Outcome::said(good.replace("painter", "paitner"))),
            }
        }
    });
    let paints = does("painter", "paint", async |cx: TaskContext| {
        Ok(Outcome::said(format!("painted: {}", cx.text())))
    });
    let server = World::new(vec![planner, paints]).serve().await;
    let task = server.begin(Part::data(json!({ "request": "the fence", "by": "planner" }))).await;
    let ended = server.ended(&task).await;
    completed(&ended);
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    assert!(result(&ended).contains("painted: the fence"), "{}", result(&ended));
    // Wrong twice is the end of it.
    let task =
        server.begin(Part::data(json!({ "request": "the fence", "by": "planner", "make": true }))).await;
    let ended = server.ended(&task).await;
    assert_eq!((ended.state, asked.load(Ordering::SeqCst)), (State::Rejected, 4));
    assert!(
        said(&ended).starts_with("what was made is not a valid plan:\ntask a, agent"),
        "{}",
        said(&ended)
    );
    let task = server.begin(Part::data(json!({ "request": "x", "by": "planer" }))).await;
    assert_eq!(said(&*server.ended(&task).await), "by: there is no agent \"planer\"; is \"planner\" meant?");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_makes_a_plan_is_not_told_of_demonstrations_and_may_not_use_them() {
    let planner = does("planner", "plan", async |cx: TaskContext| {
        let input = format!("told: {}", cx.text().contains("- show: "));
        Ok(Outcome::said(json!({ "tasks": [{ "id": "a", "agent": "show", "input": input }] }).to_string()))
    });
    let show = does("show", "show", async |cx: TaskContext| Ok(Outcome::said(cx.text()))).demo();
    let server = World::new(vec![planner, show]).serve().await;
    let task = server.begin(Part::data(json!({ "request": "a picture", "by": "planner" }))).await;
    let ended = server.ended(&task).await;
    assert_eq!(ended.state, State::Rejected);
    assert!(said(&ended).contains("there is no agent \"show\""), "{}", said(&ended));
    let task = server.begin(Part::data(json!({ "request": "show a picture", "by": "planner" }))).await;
    let ended = server.ended(&task).await;
    completed(&ended);
    assert!(result(&ended).contains("told: true"), "{}", result(&ended));
}

/// A stand-in for a model that makes plans: says the same to everybody, and counts how often it is asked.
async fn planning_model(plan: &'static str) -> (String, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let answer = async move || {
        counted.fetch_add(1, Ordering::SeqCst);
        let message = json!({ "role": "assistant", "content": plan });
        let choice = json!({ "index": 0, "message": message, "finish_reason": "stop" });
        ([("content-type", "application/json")], json!({ "choices": [choice] }).to_string())
    };
    let app = axum::Router::new().fallback(answer);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    (url, asked)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_that_a_model_made_goes_on_when_there_is_none_any_more() {
    let (url, asked) = planning_model(r#"{"tasks": [{"id": "a", "agent": "asker"}]}"#).await;
    let asker = does("asker", "ask", async |cx: TaskContext| {
        let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
        Ok(Outcome::said(format!("{:?}", cx.ask("Who?", schema).await?)))
    });
    let mut world = World::new(vec![asker]);
    world.sampler = Some(Arc::new(Model::new(&ModelOptions::new(url, "small")).unwrap()));
    let server = world.serve().await;
    let task = server.begin(Part::data(json!({ "request": "ask somebody", "model": true }))).await;
    server.when(&task, "it asks", |task| !task.questions.is_empty()).await;
    server.engine.stop().await;
    server.let_go();
    drop(server);
    world.sampler = None;
    let server = world.serve().await;
    let asking = server.when(&task, "it still asks", |task| !task.questions.is_empty()).await;
    let data = json!({ "questionId": asking.questions[0].1.id, "action": "decline" });
    let reply = Reply {
        task: task.origin.id.to_string(),
        context: None,
        message: Message::of("m", Role::User, vec![Part::data(data)]),
        idempotency_key: None,
        webhooks: vec![],
    };
    server.engine.reply(&server.caller, reply).await.unwrap();
    let ended = server.ended(&task).await;
    completed(&ended);
    assert!(result(&ended).contains("Decline"), "{}", result(&ended));
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_that_is_only_made_is_told_as_the_tool_promises() {
    let planner = does("planner", "plan", async |_| {
        let input = "Answer as JSON:\n{\"a\": 1}";
        let plan = json!({ "tasks": [{ "id": "a", "agent": "painter", "input": input }] });
        Ok(Outcome::said(plan.to_string()))
    });
    let paints = does("painter", "paint", async |_| Ok(Outcome::done()));
    let server = World::new(vec![planner, paints]).serve().await;
    let ask = json!({ "request": "the fence", "by": "planner", "make": true });
    let task = server.begin(Part::data(ask)).await;
    let ended = server.ended(&task).await;
    completed(&ended);
    let parts = &ended.artifacts.iter().find(|artifact| artifact.id == "plan").unwrap().parts;
    let made = Message::of("", Role::Agent, parts.clone()).data().cloned().unwrap();
    let schema = server.engine.catalog().surface().tool("plan_make").unwrap();
    assert_eq!(schema.output.as_ref().unwrap().refuse(&made), None, "{made}");
    assert_eq!(made["file"].as_str(), parts[0].as_text());
    let read = Plan::parse(made["file"].as_str().unwrap(), &PlanOptions::default()).unwrap();
    assert_eq!(read.tasks[0].input.text.as_deref(), Some("Answer as JSON:\n{\"a\": 1}"));
}
