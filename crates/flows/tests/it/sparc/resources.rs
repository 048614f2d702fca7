//! What can be read: workflows, artifacts, histories, templates, capabilities; and the prompts.

use std::collections::BTreeMap;

use nuncio_engine::{
    Caller, Grants,
    surface::{ContentBlock, HandlerError, HandlerReply, HandlerRequest},
};
use nuncio_flows::sparc::{SparcOptions, SparcPhase, SparcRole};
use serde_json::{Value, json};

use super::stage::{example, me, stage};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workflow_its_artifacts_and_its_history_are_read_by_their_addresses() {
    let (stage, _folder) = stage(SparcOptions::default()).await;
    stage.workflow_at("a/b ü", SparcPhase::Pseudocode).await;
    let uri = "sparc://workflow/a%2Fb%20%C3%BC";
    let (workflow, meta) = stage.read(&me(), uri).await.unwrap();
    assert_eq!(workflow, stage.status("a/b ü").await);
    assert_eq!(workflow["contextId"], "a/b ü");
    assert_eq!(workflow["metadata"]["agentType"], "coder");
    assert_eq!(workflow["metadata"]["batchtoolsEnabled"], false);
    assert_eq!((&meta["type"], &meta["cachePolicy"]), (&json!("sparc"), &json!("dynamic")));
    assert_eq!(meta["permissions"], json!(["read", "write", "execute"]));
    assert_eq!(meta["lastModified"], workflow["metadata"]["lastModified"]);

    let noted = &workflow["artifacts"][0];
    let address = noted["uri"].as_str().unwrap();
    assert_eq!(address, format!("{uri}/artifacts/specification/1"));
    assert_eq!(workflow["phases"]["specification"]["artifact"], *address);
    let (artifact, _) = stage.read(&me(), address).await.unwrap();
    assert_eq!(artifact["content"], example(SparcPhase::Specification));
    assert_eq!(artifact["size"], example(SparcPhase::Specification).to_string().len());
    assert_eq!((&artifact["by"], &artifact["gate"]["passed"]), (&noted["by"], &json!(true)));

    let (history, _) = stage.read(&me(), &format!("{uri}/history?after=1&limit=1")).await.unwrap();
    assert_eq!((&history["entries"][0]["n"], &history["next"]), (&json!(2), &Value::Null));
    for bad in ["limit=0", "limit=1000", "limit=x", "after=-1"] {
        let read = stage.read(&me(), &format!("{uri}/history?{bad}")).await;
        assert!(matches!(read, Err(HandlerError::Invalid(_))), "{bad}");
    }
    for missing in [
        "sparc://workflow/nothing".to_owned(),
        "sparc://workflow/nothing/history".to_owned(),
        format!("{uri}/artifacts/specification/2"),
        format!("{uri}/artifacts/specification/01"),
        format!("{uri}/artifacts/specification/+1"),
        format!("{uri}/artifacts/planning/1"),
        "sparc://phase/planning/template".to_owned(),
        "sparc://agent/sparc-gate/capabilities".to_owned(),
        "sparc://workflow/..%2f..%2fhome/artifacts/specification/1".to_owned(),
    ] {
        let read = stage.read(&me(), &missing).await;
        assert_eq!(read, Err(HandlerError::NotFound(missing.clone())), "{missing}");
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn templates_and_capabilities_are_static_and_equal_to_what_is_applied_and_to_the_cards() {
    let (stage, _folder) = stage(SparcOptions::default()).await;
    for phase in SparcPhase::ALL {
        let uri = format!("sparc://phase/{phase}/template");
        let offered = stage.engine.catalog().surface().resource(&uri).expect("a resource of its own");
        assert_eq!(offered.profile.fresh_ms, Some(30_000));
        let (template, meta) = stage.read(&me(), &uri).await.unwrap();
        assert_eq!(template["examples"][0]["artifact"], example(phase));
        assert_eq!((&meta["cachePolicy"], &meta["permissions"]), (&json!("static"), &json!(["read"])));
    }
    for role in SparcRole::ALL {
        let uri = format!("sparc://agent/{}/capabilities", role.name());
        let (shown, _) = stage.read(&me(), &uri).await.unwrap();
        let card = &stage.engine.catalog().get(role.name()).unwrap().profile;
        assert_eq!(shown["name"], card.name);
        assert_eq!(shown["description"], card.description);
        assert_eq!(shown["version"], card.version);
        assert_eq!(shown["inputModes"], json!(card.input_modes));
        assert_eq!(shown["outputModes"], json!(card.output_modes));
        let skills: Vec<(&str, &str)> =
            card.skills.iter().map(|skill| (skill.id.as_str(), skill.description.as_str())).collect();
        let shown_skills: Vec<(&str, &str)> = shown["skills"]
            .as_array()
            .unwrap()
            .iter()
            .map(|skill| (skill["id"].as_str().unwrap(), skill["description"].as_str().unwrap()))
            .collect();
        assert_eq!(shown_skills, skills);
        assert_eq!(shown["specializations"], json!(role.phases()));
    }
    let nobody = Caller::local().limited_to(Grants::parse("read:memory").unwrap());
    let read = stage.read(&nobody, "sparc://phase/specification/template").await;
    assert!(matches!(read, Err(HandlerError::Forbidden(_))), "{read:?}");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn addresses_are_completed_as_far_as_the_caller_may_see() {
    let (stage, _folder) = stage(SparcOptions::default()).await;
    for name in ["team-a", "team-b", "other"] {
        stage.workflow_at(name, SparcPhase::Specification).await;
    }
    stage.submit("team-a", SparcPhase::Specification, json!({})).await.unwrap();
    let templates = stage.engine.catalog().surface().templates();
    let family = templates.iter().find(|template| template.profile.uri.contains("artifacts")).unwrap();
    let complete = async |caller: &Caller, variable: &str, typed: &str| {
        let known = [("contextId", "team-a"), ("phase", "specification")];
        let known: BTreeMap<String, String> =
            known.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        family.handler.complete(caller, variable, typed, &known).await
    };
    assert_eq!(complete(&me(), "contextId", "team").await, ["team-a", "team-b"]);
    assert_eq!(complete(&me(), "phase", "p").await, ["pseudocode"]);
    assert_eq!(complete(&me(), "version", "").await, ["1"]);
    let limited = Caller::local().limited_to(Grants::parse("read:sparc:*b").unwrap());
    assert_eq!(complete(&limited, "contextId", "").await, ["team-b"]);
    assert!(complete(&Caller::named("acme/eve"), "contextId", "").await.is_empty());
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_is_a_prompt_for_each_phase() {
    let (stage, _folder) = stage(SparcOptions::default()).await;
    for phase in SparcPhase::ALL {
        let prompt = stage.engine.catalog().surface().prompt(&format!("sparc_{phase}")).expect("a prompt");
        let required: Vec<(&str, bool)> = prompt
            .profile
            .arguments
            .iter()
            .map(|argument| (argument.name.as_str(), argument.required))
            .collect();
        assert_eq!(required, [("goal", true), ("context", false)]);
        let given = json!({ "goal": "Brew tea", "context": "Water is there" });
        let request = HandlerRequest::new(me(), given.as_object().cloned().unwrap());
        let HandlerReply::Done(said) = prompt.handler.get(request).await.unwrap() else { panic!("it asks") };
        let ContentBlock::Text(text) = &said.messages[0].content else { panic!("{said:?}") };
        for part in ["Brew tea", "Water is there", "Guidelines:", "https://json-schema.org"] {
            assert!(text.contains(part), "{phase}: {part}");
        }
    }
    stage.stop().await;
}
