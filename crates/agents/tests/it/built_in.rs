use std::{collections::HashSet, time::Duration};

use nuncio_agents::{AgentOptions, BenchAgent, built_in};
use nuncio_engine::{Agent, Profile};

#[test]
fn echo_comes_first_and_bench_only_when_asked_for() {
    let names: Vec<String> = profiles().into_iter().map(|profile| profile.name).collect();
    assert_eq!(names, ["echo", "travel_agent", "research_agent", "long_running_agent"]);
}

#[test]
fn a_step_takes_two_seconds_unless_told_otherwise() {
    assert_eq!(AgentOptions::default().step, Duration::from_secs(2));
}

#[test]
fn every_profile_tells_what_a_caller_needs() {
    for profile in profiles().into_iter().chain([BenchAgent.profile()]) {
        let name = &profile.name;
        let schema = profile.input_schema.as_ref().unwrap_or_else(|| panic!("{name} has a schema"));
        assert_eq!(schema["type"], "object", "{name}: MCP wants an object");
        assert!(schema["properties"].is_object(), "{name}");
        assert!(profile.description.len() > 40, "{name} is described");
        assert!(!profile.skills.is_empty(), "{name} has skills");
        let ids: HashSet<&str> = profile.skills.iter().map(|skill| skill.id.as_str()).collect();
        assert_eq!(ids.len(), profile.skills.len(), "{name}: skill ids are unique");
        for skill in &profile.skills {
            assert!(!skill.tags.is_empty() && !skill.examples.is_empty(), "{name}: {}", skill.id);
        }
    }
}

#[test]
fn the_time_limit_of_the_long_agent_grows_with_its_steps() {
    let step = Duration::from_secs(600);
    let agents = built_in(&AgentOptions { step });
    let limit = agents[3].profile().time_limit.unwrap();
    assert!(limit > step * 50);
}

fn profiles() -> Vec<Profile> {
    built_in(&AgentOptions::default()).iter().map(|agent| agent.profile()).collect()
}
