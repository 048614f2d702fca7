//! Calls that are cut, left and taken up again: by the same peer, and by another as after a crash.

use std::collections::BTreeSet;

use nuncio_client::peer::{CallHandle, Peer as _, PeerError};
use nuncio_engine::State;
use nuncio_wire::mcp::McpVersion;

use super::{
    proxy::Proxy,
    stage::{Seen, Stage, follow, follow_on, peer_at, say, until, within},
};

const TOLD: [&str; 8] =
    ["line 1", "1: step 1", "line 2", "2: step 2", "line 3", "3: step 3", "line 4", "4: step 4"];

#[tokio::test]
async fn a_stream_that_is_cut_after_any_event_goes_on_by_itself() {
    let stage = Stage::new().await;
    for version in [McpVersion::V2025_03_26, McpVersion::V2025_11_25] {
        for events in 1.. {
            let proxy = Proxy::cutting_after(events, &stage.url).await;
            let mut call = peer_at(&proxy.url, version).begin(say("plain", "tell 4")).await.unwrap();
            let seen = follow(&mut call).await.unwrap();
            assert_eq!(
                (seen.told, seen.result[0].as_text().unwrap()),
                (TOLD.map(String::from).into(), "told 4")
            );
            if !proxy.has_cut() {
                assert!(events > 9, "it should have been cut more often: {events}");
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_call_is_taken_up_by_another_process_after_any_event() {
    let stage = Stage::new().await;
    let mut call = stage.peer(McpVersion::V2025_11_25).begin(say("plain", "tell 4")).await.unwrap();
    // The handles, each with what was told before it.
    let (mut seen, mut places) = (Seen::default(), vec![]);
    while seen.ended.is_none() {
        let known = seen.handles.len();
        until(&mut call, &mut seen, |seen| seen.handles.len() > known).await.unwrap();
        if seen.ended.is_none() {
            places.push((seen.handles.last().unwrap().clone(), seen.told.len()));
        }
    }
    assert!(places.len() >= 8, "{places:?}");
    for (handle, told) in places {
        let written = serde_json::to_string(&handle).unwrap();
        let handle: CallHandle = serde_json::from_str(&written).unwrap();
        let mut call = stage.peer(McpVersion::V2025_11_25).resume(&handle).await.unwrap();
        let rest = follow(&mut call).await.unwrap();
        assert_eq!(rest.told, TOLD[told..], "after {told}");
        assert_eq!(rest.text(), "told 4");
    }
}

#[tokio::test]
async fn a_call_whose_process_died_goes_on_in_another_with_its_question() {
    let stage = Stage::new().await;
    for (version, offer) in [
        (McpVersion::V2025_06_18, "plain"),
        (McpVersion::V2025_11_25, "plain"),
        (McpVersion::V2025_11_25, "tasks"),
        (McpVersion::V2026_07_28, "plain"),
        (McpVersion::V2026_07_28, "tasks"),
    ] {
        let mut call = stage.peer(version).begin(say(offer, "ask-both")).await.unwrap();
        let mut seen = Seen::default();
        until(&mut call, &mut seen, |seen| seen.questions.len() == 2 && !seen.handles.is_empty())
            .await
            .unwrap();
        let handle = seen.handles.pop().unwrap();
        assert_eq!(handle.task.is_some(), offer == "tasks");
        drop(call);
        let mut call = stage.peer(version).resume(&handle).await.unwrap();
        let rest = follow(&mut call).await.unwrap();
        assert_eq!(rest.text(), "yes, yes", "{version:?} {offer}");
    }
}

/// A question that is answered the moment that a call is taken up crosses on the way with the same question, which the
/// server puts again under another id: it is told under one id, and asked once.
#[tokio::test]
async fn a_question_that_crosses_its_answer_is_asked_once() {
    let stage = Stage::new().await;
    for (offer, round) in (0..10).flat_map(|round| [("plain", round), ("tasks", round)]) {
        let mut call = stage.peer(McpVersion::V2025_11_25).begin(say(offer, "ask")).await.unwrap();
        let mut seen = Seen::default();
        until(&mut call, &mut seen, |seen| !seen.questions.is_empty()).await.unwrap();
        drop(call);
        let handle = seen.handles.last().unwrap();
        let mut call = stage.peer(McpVersion::V2025_11_25).resume(handle).await.unwrap();
        let rest = follow(&mut call).await.unwrap();
        assert_eq!(rest.text(), "yes", "{offer}, round {round}");
        let asked: BTreeSet<&str> = rest.questions.iter().map(|question| question.id.as_str()).collect();
        assert_eq!(asked.len(), 1, "{offer}, round {round}: {asked:?}");
    }
}

#[tokio::test]
async fn a_task_is_followed_and_taken_up_by_its_id() {
    let stage = Stage::new().await;
    for version in [McpVersion::V2025_11_25, McpVersion::V2026_07_28] {
        stage.open(0);
        let mut call = stage.peer(version).begin(say("tasks", "tell-slowly 2")).await.unwrap();
        let mut seen = Seen::default();
        until(&mut call, &mut seen, |seen| !seen.handles.is_empty()).await.unwrap();
        let handle = seen.handles.pop().unwrap();
        let task = handle.task.clone().unwrap();
        stage.open(1);
        until(&mut call, &mut seen, |seen| seen.told.iter().any(|told| told.contains("step 1")))
            .await
            .unwrap();
        drop(call);
        stage.open(2);
        let mut call = stage.peer(version).resume(&handle).await.unwrap();
        let rest = follow(&mut call).await.unwrap();
        assert_eq!(rest.text(), "told 2", "{version:?}");
        assert_eq!(rest.handles.last().unwrap().task.as_ref(), Some(&task));
        // It is there still, for whoever comes late.
        let mut call = stage.peer(version).resume(&handle).await.unwrap();
        assert_eq!(follow(&mut call).await.unwrap().text(), "told 2");
    }
}

#[tokio::test]
async fn tasks_ask_fail_and_are_preferred_where_they_are_offered() {
    let stage = Stage::new().await;
    for version in [McpVersion::V2025_11_25, McpVersion::V2026_07_28] {
        for (text, expected) in
            [("ask-both", "yes, yes"), ("ask", "yes"), ("sample", "something"), ("hello", "hello")]
        {
            let mut call = stage.peer(version).begin(say("tasks", text)).await.unwrap();
            let seen = follow(&mut call).await.unwrap();
            assert_eq!(seen.text(), expected, "{version:?} {text}");
        }
        let mut call = stage.peer(version).begin(say("tasks", "fail for a reason")).await.unwrap();
        let ended = follow(&mut call).await.unwrap().ended.unwrap();
        assert_eq!(
            (ended.state, ended.message.unwrap().joined_text()),
            (State::Failed, "for a reason".into())
        );
    }
    let mut call = stage.peer(McpVersion::V2025_11_25).begin(say("either", "hello")).await.unwrap();
    assert!(follow(&mut call).await.unwrap().handles[0].task.is_some());
}

#[tokio::test]
async fn a_call_is_stopped() {
    let stage = Stage::new().await;
    for (version, offer) in [
        (McpVersion::V2025_11_25, "plain"),
        (McpVersion::V2026_07_28, "plain"),
        (McpVersion::V2025_11_25, "tasks"),
        (McpVersion::V2026_07_28, "tasks"),
    ] {
        let mut call = stage.peer(version).begin(say(offer, "wait")).await.unwrap();
        let mut seen = Seen::default();
        until(&mut call, &mut seen, |seen| !seen.told.is_empty()).await.unwrap();
        within(call.cancel()).await.unwrap();
        until(&mut call, &mut seen, |_| false).await.unwrap();
        assert_eq!(seen.ended.unwrap().state, State::Canceled, "{version:?} {offer}");
        // The agent was told, too.
        within(async {
            while stage.at_work().await > 0 {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        })
        .await;
    }
}

#[tokio::test]
async fn what_nobody_knows_is_gone() {
    let stage = Stage::new().await;
    for (version, offer) in [
        (McpVersion::V2025_11_25, "plain"),
        (McpVersion::V2025_11_25, "tasks"),
        (McpVersion::V2026_07_28, "tasks"),
    ] {
        let peer = stage.peer(version);
        let mut call = peer.begin(say(offer, "ask")).await.unwrap();
        let mut seen = Seen::default();
        until(&mut call, &mut seen, |seen| !seen.questions.is_empty()).await.unwrap();
        let handle = seen.handles.last().unwrap().clone();
        // Another server does not know it.
        let other = Stage::new().await;
        let mut call = other.peer(version).resume(&handle).await.unwrap();
        let gone = loop {
            match within(call.next()).await {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert!(matches!(gone, PeerError::Gone(_)), "{version:?} {offer}: {gone:?}");
    }
}

#[tokio::test]
async fn a_session_in_which_calls_go_on_outlives_the_peer() {
    let stage = Stage::new().await;
    let peer = stage.peer(McpVersion::V2025_11_25);
    let mut call = peer.begin(say("plain", "ask")).await.unwrap();
    let mut seen = Seen::default();
    until(&mut call, &mut seen, |seen| !seen.questions.is_empty()).await.unwrap();
    within(peer.close()).await;
    let cut = until(&mut call, &mut seen, |_| false).await;
    assert!(matches!(cut, Err(PeerError::Cut(_))), "{cut:?}");
    let mut call = stage.peer(McpVersion::V2025_11_25).resume(seen.handles.last().unwrap()).await.unwrap();
    assert_eq!(follow(&mut call).await.unwrap().text(), "yes");
    // Without calls it is ended, and the peer begins another one when it is used again.
    let before = within(peer.request("ping", serde_json::json!({}))).await;
    assert!(before.is_ok(), "{before:?}");
    within(peer.close()).await;
    let mut call = peer.begin(say("plain", "hello")).await.unwrap();
    let mut seen = Seen::default();
    follow_on(&mut call, &mut seen).await.unwrap();
    assert_eq!(seen.text(), "hello");
}

#[tokio::test]
async fn changes_of_the_tools_are_told() {
    let stage = Stage::new().await;
    for version in [McpVersion::V2025_11_25, McpVersion::V2026_07_28] {
        let peer = stage.peer(version);
        within(peer.list_capabilities()).await.unwrap();
        let waiting = tokio::spawn({
            let peer = peer.clone();
            async move { peer.wait_for_change().await }
        });
        // It may not be listening yet, so the tools change until it has heard of it.
        within(async {
            while !waiting.is_finished() {
                stage.add_tool();
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        })
        .await;
    }
}
