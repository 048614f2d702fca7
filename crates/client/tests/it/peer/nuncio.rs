//! A Nuncio server at the other end, in every dialect.

use nuncio_client::{
    a2a::{A2aOptions, A2aPeer},
    peer::{Connect, Peer, PeerError, Place, Protocol, connect},
};
use nuncio_engine::{
    State,
    question::{Answer, Ask},
};
use nuncio_wire::a2a::Dialect;
use serde_json::json;

use super::{begin, call, site::Site, to_end, turn, within, Story};

fn peer(site: &Site, dialect: Dialect) -> A2aPeer {
    let options = A2aOptions { dialect: Some(dialect), ..A2aOptions::default() };
    A2aPeer::new(site.url("/agents/actor"), options)
}

fn filled() -> Answer {
    Answer::Accept(json!({ "name": "Ada", "age": 36 }))
}

#[tokio::test]
async fn a_server_offers_all_of_its_agents_and_an_agent_itself() {
    let site = Site::start().await;
    let whole = connect(&Place::Url(site.url("/")), &Connect::default()).await.unwrap();
    assert_eq!(whole.protocol(), Protocol::A2a);
    let offers = within(whole.offers()).await.unwrap();
    let names: Vec<_> = offers.iter().map(|offer| offer.name.as_str()).collect();
    assert_eq!(names, ["actor", "idle"]);
    assert_eq!(offers[0].description, "Does what it is told.");
    assert_eq!(offers[0].skills[0].tags, ["acting"]);
    assert_eq!(offers[0].skills[0].examples, ["count 3"]);
    let one = A2aPeer::new(site.url("/agents/idle"), A2aOptions::default());
    assert_eq!(within(one.offers()).await.unwrap().len(), 1);
    assert_eq!(one.name().as_deref(), Some("idle"));
    let refused = within(one.begin(begin("actor", "x"))).await.err().unwrap();
    assert!(refused.to_string().contains("there is idle"), "{refused}");
}

#[tokio::test]
async fn the_same_is_told_in_every_dialect() {
    let site = Site::start().await;
    for dialect in Dialect::ALL {
        let peer = peer(&site, dialect);
        let story = call(&peer, "actor", "count 3", vec![]).await.unwrap();
        let artifact = if dialect == Dialect::V0_1 { "0" } else { "counted" };
        assert_eq!(story.artifacts, [(artifact.to_owned(), "1 2 3 ".to_owned())], "{dialect:?}");
        assert_eq!((story.progress, story.words()), (3, "counted".to_owned()), "{dialect:?}");
        let story = call(&peer, "actor", "reject no thanks", vec![]).await.unwrap();
        let expected = if dialect == Dialect::V0_1 { State::Failed } else { State::Rejected };
        assert_eq!((story.ended.as_ref().unwrap().state, story.words()), (expected, "no thanks".to_owned()));
    }
}

#[tokio::test]
async fn a_question_is_the_same_form_and_its_answer_goes_over() {
    let site = Site::start().await;
    for dialect in Dialect::ALL {
        let story = call(&peer(&site, dialect), "actor", "ask", vec![filled()]).await.unwrap();
        let [question] = &story.asked[..] else { panic!("one question: {:?}", story.asked) };
        let Ask::Form { schema } = &question.ask else { panic!("{question:?}") };
        assert_eq!(schema["required"], json!(["name", "age"]));
        assert_eq!(story.text(), "before \"Ada\" is 36", "{dialect:?}");
        assert_eq!(story.ended.unwrap().state, State::Completed);
        let story = call(&peer(&site, dialect), "actor", "authorize", vec![Answer::Decline]).await.unwrap();
        assert!(matches!(&story.asked[0].ask, Ask::Authorization { url } if url == "https://login.example/"));
        assert_eq!(story.words(), "not allowed");
    }
}
