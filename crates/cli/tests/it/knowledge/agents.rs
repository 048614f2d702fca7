//! `nuncio agents …`.

use super::World;

#[test]
fn agents_are_listed_and_probed() {
    let world = World::new(&[]);
    let listed = world.run(&["agents"]).exits(0);
    let head: Vec<&str> =
        listed.stdout.lines().next().unwrap().split("  ").map(str::trim).filter(|s| !s.is_empty()).collect();
    assert_eq!(head, ["NAME", "KIND", "STATUS", "BREAKER", "LAST SEEN", "LATENCY", "URL"]);
    let echo = listed.stdout.lines().find(|line| line.starts_with("echo ")).unwrap();
    assert!(echo.contains("local") && echo.contains("healthy") && echo.contains("closed"), "{echo}");
    assert!(echo.ends_with(&format!("{}/agents/echo", world.server.url())), "{echo}");
    assert_eq!(listed.field("Total"), listed.field("Healthy"));

    let json = world.run(&["agents", "list", "-o", "json"]).exits(0).json();
    let names: Vec<&str> =
        json["agents"].as_array().unwrap().iter().map(|agent| agent["agentType"].as_str().unwrap()).collect();
    assert!(names.contains(&"echo") && names.contains(&"travel_agent"), "{names:?}");
    assert_eq!(json["discovery"]["totalAgents"], names.len());

    let probed = world.run(&["agents", "probe", "echo", "-o", "json"]).exits(0).json();
    assert_eq!(
        (probed["status"].as_str(), probed["agentCard"]["name"].as_str()),
        (Some("healthy"), Some("echo"))
    );
    assert!(world.run(&["agents", "probe", "echo"]).exits(0).stdout.contains("echo  local  healthy"));
    let nobody = world.run(&["agents", "probe", "nobody"]).exits(1);
    assert!(nobody.stderr.contains("there is no agent \"nobody\""), "{}", nobody.stderr);
}

#[test]
fn those_who_are_not_well_are_listed_alone() {
    let world = World::new(&[]);
    for args in [&["agents", "--unhealthy"][..], &["agents", "list", "--unhealthy"]] {
        let listed = world.run(args).exits(0);
        assert!(listed.stdout.starts_with("All are well.\n"), "{}", listed.stdout);
    }
}
