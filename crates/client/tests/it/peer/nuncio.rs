//! A Nuncio server at the other end, in every dialect.

use nuncio_client::{
    a2a::{
        A2aBinding, A2aClient, A2aCredentials, A2aHttpOptions, A2aPeer, A2aPeerOptions, CardReference,
        InterfacePreference, fetch_card,
    },
    peer::{CallEvent, Peer, PeerConnectOptions, PeerError, PeerLocation, PeerProtocol, connect},
};
use nuncio_engine::{
    Message, Role, State,
    question::{Answer, Ask},
    webhook::WebhookConfig,
};
use nuncio_wire::a2a::{Dialect, SendMessage, StreamEvent};
use serde_json::json;
use url::Url;

use super::{Story, begin, call, site::Site, to_end, turn, within};

/// A protocol version, and the binding that it is spoken in.
type Way = (Dialect, A2aBinding);

const WAYS: [Way; 7] = [
    (Dialect::V1, A2aBinding::JsonRpc),
    (Dialect::V1, A2aBinding::HttpJson),
    (Dialect::V1, A2aBinding::Grpc),
    (Dialect::V0_3, A2aBinding::JsonRpc),
    (Dialect::V0_3, A2aBinding::HttpJson),
    (Dialect::V0_3, A2aBinding::Grpc),
    (Dialect::V0_1, A2aBinding::JsonRpc),
];

fn options((dialect, binding): Way) -> A2aPeerOptions {
    A2aPeerOptions { dialect: Some(dialect), transport: Some(binding), ..A2aPeerOptions::default() }
}

/// Where the agent is. Over gRPC 0.3 has nothing that names one: there it is the default agent, by the server's card.
fn url(site: &Site, way: Way) -> Url {
    match way {
        (Dialect::V0_3, A2aBinding::Grpc) => site.url("/.well-known/agent-card.json"),
        _ => site.url("/agents/actor"),
    }
}

fn peer(site: &Site, way: Way) -> A2aPeer {
    A2aPeer::new(url(site, way), options(way))
}

fn filled() -> Answer {
    Answer::Accept(json!({ "name": "Ada", "age": 36 }))
}

#[tokio::test]
async fn a_server_offers_all_of_its_agents_and_an_agent_itself() {
    let site = Site::start().await;
    let whole = connect(&PeerLocation::Url(site.url("/")), &PeerConnectOptions::default()).await.unwrap();
    assert_eq!(whole.protocol(), PeerProtocol::A2a);
    let offers = within(whole.list_capabilities()).await.unwrap();
    let names: Vec<_> = offers.iter().map(|offer| offer.name.as_str()).collect();
    assert_eq!(names, ["actor", "idle"]);
    assert_eq!(offers[0].description, "Does what it is told.");
    assert_eq!(offers[0].skills[0].tags, ["acting"]);
    assert_eq!(offers[0].skills[0].examples, ["count 3"]);
    let one = A2aPeer::new(site.url("/agents/idle"), A2aPeerOptions::default());
    assert_eq!(within(one.list_capabilities()).await.unwrap().len(), 1);
    assert_eq!(one.name().as_deref(), Some("idle"));
    let refused = within(one.begin(begin("actor", "x"))).await.err().unwrap();
    assert!(refused.to_string().contains("there is idle"), "{refused}");
}

#[tokio::test]
async fn the_same_is_told_in_every_dialect() {
    let site = Site::start().await;
    for (dialect, binding) in WAYS {
        let peer = peer(&site, (dialect, binding));
        let story = call(&peer, "actor", "count 3", vec![]).await.unwrap();
        let artifact = if dialect == Dialect::V0_1 { "0" } else { "counted" };
        assert_eq!(story.artifacts, [(artifact.to_owned(), "1 2 3 ".to_owned())], "{dialect:?} {binding:?}");
        assert_eq!((story.progress, story.words()), (3, "counted".to_owned()), "{dialect:?} {binding:?}");
        let story = call(&peer, "actor", "reject no thanks", vec![]).await.unwrap();
        let expected = if dialect == Dialect::V0_1 { State::Failed } else { State::Rejected };
        assert_eq!((story.ended.as_ref().unwrap().state, story.words()), (expected, "no thanks".to_owned()));
    }
}

#[tokio::test]
async fn a_question_is_the_same_form_and_its_answer_goes_over() {
    let site = Site::start().await;
    for (dialect, binding) in WAYS {
        let story = call(&peer(&site, (dialect, binding)), "actor", "ask", vec![filled()]).await.unwrap();
        let [question] = &story.asked[..] else { panic!("one question: {:?}", story.asked) };
        let Ask::Form { schema } = &question.ask else { panic!("{question:?}") };
        assert_eq!(schema["required"], json!(["name", "age"]));
        assert_eq!(story.text(), "before \"Ada\" is 36", "{dialect:?} {binding:?}");
        assert_eq!(story.ended.unwrap().state, State::Completed);
        let story = call(&peer(&site, (dialect, binding)), "actor", "ask", vec![Answer::decline("too dear")])
            .await
            .unwrap();
        assert!(
            story.text().ends_with(r#"Decline(Some("too dear"))"#),
            "{dialect:?} {binding:?}: {}",
            story.text()
        );
        let story = call(&peer(&site, (dialect, binding)), "actor", "authorize", vec![Answer::Decline(None)])
            .await
            .unwrap();
        assert!(matches!(&story.asked[0].ask, Ask::Authorization { url } if url == "https://login.example/"));
        assert_eq!(story.words(), "not allowed");
    }
}

#[tokio::test]
async fn every_handle_leads_to_what_follows_it() {
    let site = Site::start().await;
    for (dialect, binding) in WAYS {
        let peer = peer(&site, (dialect, binding));
        let whole = call(&peer, "actor", "count 4", vec![]).await.unwrap();
        assert!(whole.handles.len() > 4, "{:?}", whole.handles);
        for handle in &whole.handles {
            // Another process knows nothing but the handle.
            let other = self::peer(&site, (dialect, binding));
            let mut seen = Story::default();
            for kept in &whole.told_before(handle) {
                seen.take(kept.clone());
            }
            let mut resumed = within(other.resume(handle)).await.unwrap();
            turn(&mut resumed, &mut seen).await.unwrap();
            assert_eq!(seen.text(), "1 2 3 4 ", "{dialect:?} {binding:?} {handle:?}");
            assert_eq!(seen.ended, whole.ended);
        }
    }
}

#[tokio::test]
async fn an_open_question_is_told_again_to_who_comes_back_and_is_answered_once() {
    let site = Site::start().await;
    for (dialect, binding) in WAYS {
        let first = peer(&site, (dialect, binding));
        let mut story = Story::default();
        let mut asking = within(first.begin(begin("actor", "ask"))).await.unwrap();
        turn(&mut asking, &mut story).await.unwrap();
        let handle = loop {
            if let CallEvent::HandleUpdated(handle) = within(asking.next()).await.unwrap() {
                break handle;
            }
        };
        drop(asking);
        let mut again = within(peer(&site, (dialect, binding)).resume(&handle)).await.unwrap();
        turn(&mut again, &mut story).await.unwrap();
        assert_eq!(story.asked.len(), 2);
        assert_eq!(story.asked[0], story.asked[1], "under one id");
        let id = story.asked[0].id.clone();
        let refused = within(again.answer(&id, Answer::Accept(json!({ "name": "Ada" })))).await.unwrap_err();
        assert!(matches!(refused, PeerError::Refused(_)), "the age is missing: {refused:?}");
        within(again.answer(&id, filled())).await.unwrap();
        turn(&mut again, &mut story).await.unwrap();
        assert_eq!(story.text(), "before \"Ada\" is 36", "{dialect:?} {binding:?}");
        // Whoever comes back after that finds the answer given.
        let mut late = within(peer(&site, (dialect, binding)).resume(&handle)).await.unwrap();
        let gone = within(late.answer(&id, filled())).await.unwrap_err();
        assert!(matches!(gone, PeerError::Gone(_)), "{gone:?}");
        turn(&mut late, &mut story).await.unwrap();
        assert_eq!(story.ended.unwrap().state, State::Completed);
    }
}

#[tokio::test]
async fn a_call_outlives_a_restart_of_the_server() {
    for (dialect, binding) in WAYS {
        let site = Site::start().await;
        let peer = peer(&site, (dialect, binding));
        let mut story = Story::default();
        let mut asking = within(peer.begin(begin("actor", "ask"))).await.unwrap();
        turn(&mut asking, &mut story).await.unwrap();
        let mut waiting = within(peer.begin(begin("actor", "wait"))).await.unwrap();
        loop {
            if let CallEvent::Progress(_) = within(waiting.next()).await.unwrap() {
                break;
            }
        }
        let site = within(site.stop()).await.start().await;
        within(asking.answer(&story.asked[0].id, filled())).await.unwrap();
        turn(&mut asking, &mut story).await.unwrap();
        assert_eq!(story.text(), "before \"Ada\" is 36", "{dialect:?} {binding:?}");
        within(waiting.cancel()).await.unwrap();
        let mut story = Story::default();
        turn(&mut waiting, &mut story).await.unwrap();
        assert_eq!(story.ended.unwrap().state, State::Canceled);
        drop(site);
    }
}

#[tokio::test]
async fn without_streams_the_task_is_looked_at() {
    let site = Site::without_streams().await;
    for (dialect, binding) in WAYS {
        let peer = peer(&site, (dialect, binding));
        let story = call(&peer, "actor", "count 3", vec![]).await.unwrap();
        assert_eq!((story.text(), story.words().as_str()), ("1 2 3 ", "counted"), "{dialect:?} {binding:?}");
        let story = call(&peer, "actor", "ask", vec![filled()]).await.unwrap();
        assert_eq!(story.text(), "before \"Ada\" is 36", "{dialect:?} {binding:?}");
        let mut waiting = within(peer.begin(begin("actor", "wait"))).await.unwrap();
        within(waiting.cancel()).await.unwrap();
        let story = to_end(&mut waiting, vec![]).await.unwrap();
        assert_eq!(
            (story.ended.as_ref().unwrap().state, story.words()),
            (State::Canceled, "stopped in the middle".into())
        );
    }
}

#[tokio::test]
async fn a_task_that_is_not_there_is_gone() {
    let site = Site::start().await;
    let peer = peer(&site, WAYS[0]);
    let mut handle = call(&peer, "actor", "x", vec![]).await.unwrap().handles.pop().unwrap();
    handle.state["task"] = "no-such-task".into();
    let error = within(peer.resume(&handle)).await.err().unwrap();
    assert!(matches!(error, PeerError::Gone(_)), "{error:?}");
}

#[tokio::test]
async fn the_same_message_is_one_task() {
    let site = Site::start().await;
    let peer = peer(&site, WAYS[0]);
    let begin = begin("actor", "count 2");
    let mut tasks = vec![];
    for _ in 0..2 {
        let mut call = within(peer.begin(begin.clone())).await.unwrap();
        let story = to_end(&mut call, vec![]).await.unwrap();
        assert_eq!(story.text(), "1 2 ");
        tasks.push(story.handles[0].task.clone());
    }
    assert_eq!(tasks[0], tasks[1]);
}

#[tokio::test]
async fn what_is_there_is_found_out() {
    let site = Site::start().await;
    let found = |path: &str, protocol| {
        let place = PeerLocation::Url(site.url(path));
        async move {
            within(connect(&place, &PeerConnectOptions { protocol, ..PeerConnectOptions::default() })).await
        }
    };
    assert_eq!(found("/", None).await.unwrap().protocol(), PeerProtocol::A2a);
    assert_eq!(found("/agents/idle", None).await.unwrap().protocol(), PeerProtocol::A2a);
    assert_eq!(
        found("/agents/idle/.well-known/agent-card.json", None).await.unwrap().protocol(),
        PeerProtocol::A2a
    );
    assert_eq!(found("/mcp", None).await.unwrap().protocol(), PeerProtocol::Mcp);
    assert_eq!(found("/mcp", Some(PeerProtocol::Mcp)).await.unwrap().protocol(), PeerProtocol::Mcp);
    let nothing = found("/nothing/here", None).await.err().unwrap().to_string();
    assert!(nothing.contains("neither A2A nor MCP") && nothing.contains("/nothing/here"), "{nothing}");
    let nobody = PeerLocation::Url(Url::parse("http://127.0.0.1:1/").unwrap());
    let error = within(connect(&nobody, &PeerConnectOptions::default())).await.err().unwrap();
    assert!(matches!(&error, PeerError::Unreachable { at, .. } if at.contains("127.0.0.1:1")), "{error:?}");
}

#[tokio::test]
async fn the_webhooks_of_a_task_are_set_read_listed_and_deleted() {
    let site = Site::start().await;
    let options = A2aHttpOptions::default();
    for (dialect, binding) in WAYS {
        let reference = CardReference::parse(url(&site, (dialect, binding)).as_str()).unwrap();
        let card = fetch_card(&reference, &options).await.unwrap();
        let preference =
            InterfacePreference { dialect, bindings: vec![binding.name().to_owned()], only: true };
        let client = A2aClient::new(&card.value, &preference, &A2aCredentials::default(), &options).unwrap();
        let mut send =
            SendMessage::new(Message::text(format!("m-{dialect:?}-{binding:?}"), Role::User, "count 1"));
        if dialect == Dialect::V0_1 {
            send.client_task_id = Some("t-0.1".into());
        }
        let sent = within(client.send(send)).await.unwrap();
        let StreamEvent::Task(task) = sent.value else { panic!("{dialect:?} {binding:?}: {:?}", sent.value) };
        let config = |id: &str| WebhookConfig {
            id: id.into(),
            url: format!("https://example.com/{id}"),
            token: Some("t0ken".into()),
            authentication: None,
            dialect: String::new(),
        };
        // 0.1 has one a task, and names none.
        let named = (dialect != Dialect::V0_1).then_some("a");
        let missing = within(client.get_webhook(&task.id, named)).await.unwrap_err();
        assert_eq!(missing.rpc_code(), Some(-32001), "{dialect:?} {binding:?}: {missing}");
        let set = within(client.set_webhook(&task.id, config("a"))).await.unwrap();
        assert_eq!(
            (&*set.value.url, &set.value.token),
            ("https://example.com/a", &None),
            "{dialect:?} {binding:?}"
        );
        let got = within(client.get_webhook(&task.id, named)).await.unwrap();
        assert_eq!(got.value.url, "https://example.com/a", "{dialect:?} {binding:?}");
        if named.is_none() {
            // And there is no way to take it back.
            within(client.delete_webhook(&task.id, "a")).await.unwrap_err();
            continue;
        }
        within(client.set_webhook(&task.id, config("b"))).await.unwrap();
        let got = within(client.get_webhook(&task.id, Some("b"))).await.unwrap();
        assert_eq!(got.value.url, "https://example.com/b", "{dialect:?} {binding:?}");
        within(client.delete_webhook(&task.id, "a")).await.unwrap();
        let left = within(client.list_webhooks(&task.id)).await.unwrap();
        assert_eq!(
            left.iter().map(|config| &*config.id).collect::<Vec<_>>(),
            ["b"],
            "{dialect:?} {binding:?}"
        );
    }
}
