//! The journal of a task: its runs and steps with their times, and who sees what the steps returned.

use std::sync::Arc;

use async_trait::async_trait;
use nuncio_engine::{Agent, AgentError, Caller, Message, Outcome, Part, Profile, Role, Submit, TaskContext};
use serde_json::{Value, json};

use crate::{guests::Guests, site::Site};

/// Two steps, of which one fails.
struct Stepping;

#[async_trait]
impl Agent for Stepping {
    fn profile(&self) -> Profile {
        Profile::new("stepping", "Does steps.")
    }

    async fn run(&self, cx: TaskContext) -> Result<Outcome, AgentError> {
        cx.step("look", async |_| Ok("the password of the house".to_owned())).await?;
        cx.step::<(), _>("fail", async |_| Err(AgentError::failed("no such thing"))).await.unwrap_err();
        Ok(Outcome::done())
    }
}

async fn stepped(site: &Site, owner: &str) -> String {
    let message = Message::of("m-1", Role::User, vec![Part::text("go")]);
    let caller = Caller::named(owner);
    let task = site.engine.submit(&caller, Submit::new("stepping", message)).await.unwrap();
    let task = site.engine.wait_until_idle(&caller, task).await.unwrap();
    task.origin.id.to_string()
}

#[tokio::test]
async fn steps_have_times_and_their_results_are_for_administrators_of_the_home_tenant() {
    let site = Site::with(|setup| {
        setup.agents = vec![Arc::new(Stepping)];
        setup.server.authenticator = Some(Arc::new(Guests::default()));
    })
    .await;
    let id = stepped(&site, "acme/ada").await;
    let path = format!("tasks/{id}/journal");
    let read = async |path: &str, token: &str| {
        let bearer = format!("Bearer {token}");
        let answer = site.console(path, &[("Authorization", &bearer)]).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    };
    let names = |journal: &Value| -> Vec<Value> {
        journal["effects"].as_array().unwrap().iter().map(|effect| effect["name"].clone()).collect()
    };
    let own = read(&path, "acme/ada;read:a2a").await;
    assert_eq!(names(&own), ["look", "fail"]);
    assert_eq!(own["results"], false);
    assert!(!own.to_string().contains("password") && !own.to_string().contains("no such thing"), "{own}");
    for effect in own["effects"].as_array().unwrap() {
        assert!(effect["beganAt"].as_str() <= effect["endedAt"].as_str(), "{effect}");
    }
    let run = &own["runs"][0];
    assert_eq!((&run["end"], own["runs"].as_array().unwrap().len()), (&json!("ended"), 1), "{own}");
    assert_eq!(run["node"], site.engine.node().0.to_string());

    // A step may hold what the agent fetched with the operator's keys: no administrator of another tenant reads it.
    let of_tenant = read(&path, "acme/root;read:admin:tasks+read:a2a").await;
    assert_eq!((names(&of_tenant), &of_tenant["results"]), (names(&own), &json!(false)));
    assert_eq!(of_tenant["effects"], own["effects"]);

    let admin = read(&path, "root;read:admin:tasks+read:a2a").await;
    assert_eq!(admin["results"], true);
    assert_eq!(admin["effects"][0]["result"], "\"the password of the house\"");
    assert_eq!(
        (&admin["effects"][1]["ok"], &admin["effects"][1]["result"]),
        (&json!(false), &json!("no such thing"))
    );

    let page = read(&format!("{path}?limit=1"), "acme/ada;read:a2a").await;
    assert_eq!((names(&page), &page["next"]), (vec![json!("look")], &json!(1)));
    let rest = read(&format!("{path}?limit=1&after=1"), "acme/ada;read:a2a").await;
    assert_eq!((names(&rest), &rest["next"]), (vec![json!("fail")], &Value::Null));

    for stranger in ["acme/eve;read:a2a", "other/root;read:admin:tasks+read:a2a"] {
        let bearer = format!("Bearer {stranger}");
        site.console_refuses(&path, &[("Authorization", &bearer)], 404, "not_found").await;
    }
}
