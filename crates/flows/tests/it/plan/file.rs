//! The plan's file: what may stand in it, and what is said of what may not.

use std::time::Duration;

use nuncio_engine::{Profile, Skill};
use nuncio_flows::plan::{
    PROBLEMS, Plan, PlanDrawing, PlanGraph, PlanOptions, PlanTarget, Roster, Synthesis, draw,
};
use serde_json::json;

fn parse(text: &str) -> Result<Plan, Vec<String>> {
    let read = Plan::parse(text, &PlanOptions::default());
    read.map_err(|problems| problems.0.iter().map(ToString::to_string).collect())
}

#[track_caller]
fn wrong(text: &str, expected: &[&str]) {
    assert_eq!(parse(text).expect_err(text), expected, "{text}");
}

const WHOLE: &str = r#"
name = "all of it"
request = "do it"
retry = { attempts = 2, backoff = "2s" }
[budget]
retries = 7
time = "1h"
[synthesis]
agent = "writer"
prompt = "Join {{ tasks.a.text }}"
[[tasks]]
id = "a"
agent = "worker"
input = "{{ request }}"
[[tasks]]
id = "b"
needs = ["a"]
skill = "sums"
tags = ["fast"]
input = { text = "x", data = { n = "{{ tasks.a.data.n }}", list = [1, "y"] } }
retry = { attempts = 5 }
timeout = 90
fallbacks = ["worker", { skill = "sums" }, { agent = "writer" }]
optional = true
"#;

#[test]
fn everything_that_may_stand_in_a_file_is_read_and_written_back() {
    let plan = parse(WHOLE).unwrap();
    assert_eq!((plan.name.as_str(), plan.request.as_deref()), ("all of it", Some("do it")));
    assert_eq!((plan.budget.retries, plan.budget.time), (Some(7), Some(Duration::from_secs(3600))));
    let [a, b] = &plan.tasks[..] else { panic!("{plan:?}") };
    assert_eq!((a.retry.attempts, a.retry.backoff), (2, Duration::from_secs(2)));
    assert_eq!((b.retry.attempts, b.retry.backoff), (5, Duration::from_secs(2)), "the rest is the plan's");
    assert_eq!(b.by, PlanTarget::Skill { skill: "sums".into(), tags: vec!["fast".into()] });
    assert_eq!((b.timeout, b.fallbacks.len(), b.optional), (Some(Duration::from_secs(90)), 3, true));
    assert!(matches!(&plan.synthesis, Synthesis::By(PlanTarget::Agent(name), Some(_)) if name == "writer"));
    assert_eq!(Plan::read(&plan.to_value(), &PlanOptions::default()).as_ref(), Ok(&plan));
    assert_eq!(parse(&plan.to_toml()).as_ref(), Ok(&plan), "{}", plan.to_toml());
    assert_eq!(parse(&plan.to_value().to_string()).as_ref(), Ok(&plan), "JSON is as good");
}

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    wrong(
        r#"
        nmae = "x"
        [budget]
        retries = -1
        [synthesis]
        template = "{{ tasks.z.text }}"
        model = true
        [[tasks]]
        id = "a"
        needs = ["b", "a"]
        agent = "worker"
        skill = "sums"
        [[tasks]]
        id = "b c"
        agent = "worker"
        timeout = "soon"
        retry = { attempts = 0, back = 1 }
        input = { txt = "x" }
        [[tasks]]
        agent = 7
        "#,
        &[
            "nmae: there is no such key (is \"name\" meant?); there are: name, request, tasks, retry, budget, synthesis",
            "task a, skill: there is an agent already: give one or the other",
            "task b c, input.txt: there is no such key (is \"text\" meant?); there are: text, data",
            "task b c, retry.back: there is no such key (is \"backoff\" meant?); there are: attempts, backoff",
            "task b c, retry.attempts: a whole number from 1 to 20 is wanted, not 0",
            "task b c, timeout: a time up to 365d is wanted, such as \"30s\" or \"5m\", not \"soon\"",
            "task #3, id: every task needs an id",
            "task #3, agent: a text is wanted, not a number",
            "budget.retries: a whole number from 0 to 4294967295 is wanted, not -1",
            "synthesis: give one of: template, agent, skill, model",
            "task b c, id: an id is 1 to 64 letters, digits, '-' and '_', not \"b c\"",
            "synthesis.template: {{ tasks.z.text }}: there is no task \"z\"",
        ],
    );
}

#[test]
fn needs_and_references_are_checked_as_a_whole() {
    let task = |id: &str, needs: &str, input: &str| {
        format!("[[tasks]]\nid = \"{id}\"\nneeds = [{needs}]\nagent = \"w\"\ninput = '{input}'\n")
    };
    wrong(
        &[task("a", "\"c\"", ""), task("b", "\"a\"", ""), task("c", "\"b\"", ""), task("d", "\"c\"", "")]
            .concat(),
        &["task a, needs: these need each other: a -> c -> b -> a"],
    );
    wrong(
        &task("a", "\"a\"", ""),
        &["task a, needs[0]: a task cannot need itself", "task a, needs: these need each other: a -> a"],
    );
    wrong(
        &[
            task("research", "", ""),
            task("b", "\"reserch\"", "{{ tasks.research.text }} {{ tasks.x.text }} {{ what }}"),
        ]
        .concat(),
        &[
            "task b, needs[0]: there is no task \"reserch\"; is \"research\" meant?",
            "task b, input.text: {{ what }} is no reference; there are: request, plan.name, and tasks.ID.text, .data, .data.PATH, .agent, .state and .id",
        ],
    );
    wrong(
        &[task("a", "", ""), task("b", "", "{{ tasks.a.text }}"), task("c", "\"b\"", "{{ tasks.a.text }}")]
            .concat(),
        &[
            "task b, input.text: {{ tasks.a.text }}: \"a\" is not done before this task; add it to needs",
            "task c, input.text: {{ tasks.a.text }}: \"a\" is not done before this task; add it to needs",
        ],
    );
    assert!(
        parse(
            &[task("a", "", ""), task("b", "\"a\"", ""), task("c", "\"b\"", "{{ tasks.a.text }}")].concat()
        )
        .is_ok()
    );
    wrong(
        &[task("a", "", ""), task("a", "", "")].concat(),
        &["task a, id: there are two tasks of this id, the 1st and the 2nd"],
    );
    wrong("", &["tasks: a plan has at least one task"]);
    wrong("tasks = []", &["tasks: a plan has at least one task"]);
    let broken = parse("name = ").unwrap_err();
    assert!(broken[0].starts_with("file: it is not TOML: "), "{broken:?}");
    assert!(parse("{\"tasks\": ").unwrap_err()[0].starts_with("file: it is not JSON: "));
}

#[test]
fn every_limit_has_a_name() {
    let options = PlanOptions {
        tasks_per_plan: 2,
        plan_bytes: 400,
        input_bytes: 10,
        fallbacks_per_task: 1,
        attempts_per_task: 3,
        ..PlanOptions::default()
    };
    let check = |text: &str, limit: &str| {
        let why = Plan::parse(text, &options).unwrap_err().to_string();
        assert!(why.contains(limit), "{limit} in {why}");
    };
    let task = |id: &str, more: &str| format!("[[tasks]]\nid = \"{id}\"\nagent = \"w\"\n{more}\n");
    check(
        &[task("a", ""), task("b", ""), task("c", "")].concat(),
        "tasks_per_plan: a plan has at most 2 tasks, not 3",
    );
    check(&task("a", &format!("# {}", "x".repeat(400))), "plan_bytes: a plan has at most 400 bytes");
    check(&task("a", "input = \"more than ten\""), "input_bytes: an input has at most 10 bytes, not 13");
    check(&task("a", "fallbacks = [\"x\", \"y\"]"), "fallbacks_per_task: a task has at most 1 fallbacks");
    check(&task("a", "retry = { attempts = 4 }"), "a whole number from 1 to 3");
    let large = json!({ "tasks": [], "name": "x".repeat(500) });
    assert!(Plan::read(&large, &options).unwrap_err().to_string().contains("plan_bytes"));
}

fn roster() -> Roster {
    let profile = |name: &str, skill: &str, tags: &[&str]| {
        let mut profile = Profile::new(name, "");
        profile.skills = vec![Skill::new(skill, skill, "")];
        profile.skills[0].tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
        profile
    };
    Roster::new([
        profile("worker", "sums", &["fast"]),
        profile("writer", "letters", &[]),
        profile("w2", "sums", &[]),
    ])
}

#[test]
fn there_has_to_be_somebody_for_everything() {
    assert_eq!(parse(WHOLE).unwrap().check(&roster()), Ok(()));
    let text = WHOLE
        .replace("agent = \"worker\"", "agent = \"wroker\"")
        .replace("tags = [\"fast\"]", "tags = [\"slow\"]")
        .replace("{ skill = \"sums\" }", "{ skill = \"zzzzzz\" }")
        .replace("[synthesis]\nagent = \"writer\"", "[synthesis]\nagent = \"riter\"");
    let problems = parse(&text).unwrap().check(&roster()).unwrap_err().to_string();
    assert_eq!(
        problems,
        "task a, agent: there is no agent \"wroker\"; is \"worker\" meant?\n\
         task b, skill: nobody has the skill \"sums\" with the tags slow\n\
         task b, fallbacks[1]: there is no skill \"zzzzzz\"; there are: sums, letters, sums\n\
         synthesis: there is no agent \"riter\"; is \"writer\" meant?"
    );
    assert_eq!(
        roster().matching_agents(&PlanTarget::Skill { skill: "sums".into(), tags: vec![] }),
        ["worker", "w2"]
    );
}

fn diamond() -> Plan {
    let task =
        |id: &str, needs: &str| format!("[[tasks]]\nid = \"{id}\"\nneeds = [{needs}]\nagent = \"w\"\n");
    let text = [
        "name = \"a & b\"\n".to_owned(),
        task("last", "\"left\", \"right\""),
        task("left", "\"first\""),
        task("right", "\"first\""),
        task("first", "") + "optional = true\n",
    ];
    parse(&text.concat()).unwrap()
}

#[test]
fn the_graph_knows_order_levels_and_the_longest_way() {
    let plan = diamond();
    let graph = PlanGraph::of(&plan);
    assert_eq!(graph.order(), [3, 1, 2, 0]);
    assert_eq!(graph.levels(), [2, 1, 1, 0]);
    assert_eq!(graph.critical_path(|n| if n == 2 { 5.0 } else { 1.0 }), (vec![3, 2, 0], 7.0));
    let before = graph.before();
    assert!(before.is_before(3, 0) && !before.is_before(0, 3) && !before.is_before(1, 2));
    assert_eq!(graph.find_cycle(), None);
}

#[test]
fn a_plan_is_drawn_the_same_every_time() {
    let plan = diamond();
    assert_eq!(
        draw(&plan, None, PlanDrawing::Text),
        "a & b (4 tasks)\n  first  w  (optional)\n    └ left   w  after first\n    └ right  w  after first\n      \
         └ last   w  after left, right\nlongest way: first -> left -> last\n"
    );
    assert_eq!(
        draw(&plan, None, PlanDrawing::Mermaid),
        "flowchart LR\n  t0[\"last<br/>w\"]\n  t1[\"left<br/>w\"]\n  t2[\"right<br/>w\"]\n  t3([\"first<br/>w\"])\n  \
         t1 --> t0\n  t2 --> t0\n  t3 --> t1\n  t3 --> t2\n"
    );
    let svg = draw(&plan, None, PlanDrawing::Svg);
    assert_eq!(svg, draw(&plan, None, PlanDrawing::Svg));
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
    assert_eq!((svg.matches("<rect ").count(), svg.matches("marker-end").count()), (4, 4));
    assert!(svg.contains("<title>a &amp; b</title>") && svg.contains("stroke-dasharray"));
}

#[test]
fn times_are_written_as_they_are_read() {
    for (time, words) in
        [(90_000, "90s"), (120_000, "2m"), (1_500, "1500ms"), (86_400_000, "1d"), (7_200_000, "2h")]
    {
        assert_eq!(nuncio_engine::duration::format(Duration::from_millis(time)), words);
        let text = format!("[budget]\ntime = \"{words}\"\n[[tasks]]\nid = \"a\"\nagent = \"w\"\n");
        assert_eq!(parse(&text).unwrap().budget.time, Some(Duration::from_millis(time)));
    }
}

#[test]
fn a_plan_that_is_wrong_all_over_is_refused_soon_and_in_few_words() {
    let begun = std::time::Instant::now();
    let needs: Vec<String> = (0..150_000).map(|n| format!("x{n}")).collect();
    let many = json!({ "tasks": [{ "id": "a", "agent": "w", "needs": needs }] });
    let problems =
        Plan::read(&many, &PlanOptions { plan_bytes: 1 << 22, ..PlanOptions::default() }).unwrap_err();
    assert_eq!(
        problems.to_string(),
        "task a, tasks_per_plan: there are at most 1000 tasks to need, not 150000"
    );
    let task =
        |n: usize| json!({ "id": format!("task-{n:04}"), "agent": "w", "needs": [format!("tusk-{n:04}")] });
    let tasks: Vec<_> = (0..1_000).map(task).collect();
    let problems = Plan::read(&json!({ "tasks": tasks }), &PlanOptions::default()).unwrap_err();
    assert_eq!(problems.0.len(), PROBLEMS + 1);
    assert_eq!(
        problems.0.last().unwrap().to_string(),
        "problems: these are the first 50; put them right to see what else is wrong"
    );
    // Valid, with a reference to every task before: what is before what is found out once.
    let task = |n: usize| {
        let before: Vec<String> = (0..n).map(|before| format!("t{before}")).collect();
        let text: String = before.iter().map(|id| format!("{{{{ tasks.{id}.text }}}}")).collect();
        json!({ "id": format!("t{n}"), "agent": "w", "needs": before, "input": text })
    };
    let tasks: Vec<_> = (0..250).map(task).collect();
    Plan::read(&json!({ "tasks": tasks }), &PlanOptions { plan_bytes: 1 << 22, ..PlanOptions::default() })
        .unwrap();
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}
