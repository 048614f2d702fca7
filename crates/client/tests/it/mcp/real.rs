//! Calls of nuncio's own server, in every revision.

use nuncio_client::{
    mcp::{McpPeer, McpPeerOptions},
    peer::{Peer as _, PeerError, PeerLocation},
};
use nuncio_engine::{Answer, Part, State, question::Ask};
use nuncio_wire::mcp::McpVersion;
use serde_json::json;

use super::stage::{Seen, Stage, follow, options, say, until, with, within};

/// The revisions that are spoken over Streamable HTTP.
const REVISIONS: [McpVersion; 4] =
    [McpVersion::V2025_03_26, McpVersion::V2025_06_18, McpVersion::V2025_11_25, McpVersion::V2026_07_28];

#[tokio::test]
async fn the_newest_revision_is_spoken_unless_another_is_wanted() {
    let stage = Stage::new().await;
    let peer = McpPeer::new(PeerLocation::Url(stage.url.clone()), options());
    assert_eq!(peer.name(), None, "nothing is called before it is needed");
    assert_eq!(within(peer.version()).await, Ok(McpVersion::V2026_07_28));
    assert_eq!(peer.name().as_deref(), Some("nuncio"));
    for version in REVISIONS {
        assert_eq!(within(stage.peer(version).version()).await, Ok(version));
    }
}

#[tokio::test]
async fn the_channel_of_2024_is_found_where_it_is() {
    let stage = Stage::new().await;
    let sse = stage.url.join("/sse").unwrap();
    for version in [None, Some(McpVersion::V2024_11_05)] {
        let peer = McpPeer::new(PeerLocation::Url(sse.clone()), McpPeerOptions { version, ..options() });
        assert_eq!(within(peer.version()).await, Ok(McpVersion::V2024_11_05));
        let mut call = peer.begin(say("plain", "tell 2")).await.unwrap();
        let seen = follow(&mut call).await.unwrap();
        assert_eq!(seen.text(), "told 2");
        assert!(seen.told.contains(&"2: step 2".to_owned()), "{:?}", seen.told);
        let mut call = peer.begin(say("plain", "sample")).await.unwrap();
        assert_eq!(follow(&mut call).await.unwrap().text(), "something");
    }
    let both = McpPeerOptions { version: Some(McpVersion::V2024_11_05), ..options() };
    let peer = McpPeer::new(PeerLocation::Url(stage.url.clone()), both);
    assert_eq!(within(peer.version()).await, Ok(McpVersion::V2024_11_05), "also over Streamable HTTP");
}

#[tokio::test]
async fn tools_are_offers() {
    let stage = Stage::new().await;
    for version in REVISIONS {
        let offers = within(stage.peer(version).list_capabilities()).await.unwrap();
        let names: Vec<&str> = offers.iter().map(|offer| offer.name.as_str()).collect();
        for name in ["add", "either", "plain", "tasks"] {
            assert!(names.contains(&name), "{version:?}: {names:?}");
        }
        let add = offers.iter().find(|offer| offer.name == "add").unwrap();
        assert_eq!(add.input_schema.as_ref().unwrap()["required"], json!(["a", "b"]));
    }
}

#[tokio::test]
async fn a_plain_call_tells_how_far_it_is() {
    let stage = Stage::new().await;
    for version in REVISIONS {
        let mut call = stage.peer(version).begin(say("plain", "tell 3")).await.unwrap();
        let seen = follow(&mut call).await.unwrap();
        let told = ["line 1", "1: step 1", "line 2", "2: step 2", "line 3", "3: step 3"];
        assert_eq!(seen.told, told, "{version:?}");
        assert_eq!(seen.text(), "told 3");
        assert_eq!(seen.ended.unwrap().state, State::Completed);
        assert_eq!(
            seen.handles.is_empty(),
            version.is_stateless(),
            "a session leads back, a request does not"
        );
    }
}

#[tokio::test]
async fn a_structured_result_is_a_data_part() {
    let stage = Stage::new().await;
    for version in REVISIONS {
        let mut call = stage.peer(version).begin(with("add", json!({ "a": 2, "b": 3 }))).await.unwrap();
        let seen = follow(&mut call).await.unwrap();
        let sum = json!({ "sum": 5 });
        let expected = match version >= McpVersion::V2025_06_18 {
            true => Part::data(sum),
            false => Part::text(sum.to_string()),
        };
        assert_eq!(seen.result, [expected], "{version:?}");
    }
}

#[tokio::test]
async fn a_form_is_asked_and_answered() {
    let stage = Stage::new().await;
    for version in REVISIONS {
        let mut call = stage.peer(version).begin(say("plain", "ask")).await.unwrap();
        let seen = follow(&mut call).await.unwrap();
        if version == McpVersion::V2025_03_26 {
            // It knows no forms.
            assert_eq!((seen.text().as_str(), seen.questions.len()), ("unavailable", 0));
            continue;
        }
        assert_eq!(seen.text(), "yes", "{version:?}");
        let question = &seen.questions[0];
        assert_eq!(question.text, "Really?");
        assert!(matches!(&question.ask, Ask::Form { schema } if schema["required"] == json!(["confirm"])));
    }
}

#[tokio::test]
async fn the_note_of_a_decline_arrives_over_there() {
    let stage = Stage::new().await;
    for version in [McpVersion::V2025_06_18, McpVersion::V2025_11_25, McpVersion::V2026_07_28] {
        for (answer, heard) in
            [(Answer::decline("too dear"), "declined: too dear"), (Answer::Decline(None), "declined")]
        {
            let mut call = stage.peer(version).begin(say("plain", "ask")).await.unwrap();
            let mut seen = Seen::default();
            until(&mut call, &mut seen, |seen| !seen.questions.is_empty()).await.unwrap();
            within(call.answer(&seen.questions[0].id, answer)).await.unwrap();
            until(&mut call, &mut seen, |seen| seen.ended.is_some()).await.unwrap();
            assert_eq!(seen.text(), heard, "{version:?}");
        }
    }
}

#[tokio::test]
async fn several_questions_are_open_at_once() {
    let stage = Stage::new().await;
    for version in [McpVersion::V2025_11_25, McpVersion::V2026_07_28] {
        let mut call = stage.peer(version).begin(say("plain", "ask-both")).await.unwrap();
        let seen = follow(&mut call).await.unwrap();
        assert_eq!(seen.text(), "yes, yes", "{version:?}");
    }
}

#[tokio::test]
async fn a_sample_is_asked_and_said() {
    let stage = Stage::new().await;
    for version in REVISIONS {
        let mut call = stage.peer(version).begin(say("plain", "sample")).await.unwrap();
        let seen = follow(&mut call).await.unwrap();
        assert_eq!(seen.text(), "something", "{version:?}");
        let sample = Ask::Sample { system: Some("Be brief.".into()), max_tokens: 50 };
        assert_eq!((&*seen.questions[0].text, &seen.questions[0].ask), ("Say something.", &sample));
    }
}

#[tokio::test]
async fn a_tool_that_failed_says_why() {
    let stage = Stage::new().await;
    for version in REVISIONS {
        let mut call = stage.peer(version).begin(say("plain", "fail for a reason")).await.unwrap();
        let ended = follow(&mut call).await.unwrap().ended.unwrap();
        assert_eq!(ended.state, State::Failed, "{version:?}");
        assert_eq!(ended.message.unwrap().joined_text(), "for a reason");
    }
}

#[tokio::test]
async fn what_is_not_there_is_refused_by_name() {
    let stage = Stage::new().await;
    for version in REVISIONS {
        let refused = stage.peer(version).begin(say("nobody", "hello")).await.err().unwrap();
        assert!(matches!(&refused, PeerError::Refused(why) if why.contains("nobody")), "{refused:?}");
        let refused = stage.peer(version).request("resources/read", json!({ "uri": "none://x" })).await;
        assert!(matches!(&refused, Err(PeerError::Refused(why)) if why.contains("none://x")), "{refused:?}");
    }
    let nowhere =
        McpPeer::new(PeerLocation::Url("http://127.0.0.1:1/mcp".parse().unwrap()), McpPeerOptions::default());
    assert!(matches!(nowhere.check_reachable().await, Err(PeerError::Unreachable { .. })));
}
