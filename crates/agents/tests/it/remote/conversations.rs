//! The other side's own names of conversations: one for each owner and context, whatever the callers call theirs.

use nuncio_client::peer::{CallEvent, PeerError, PeerProtocol};
use nuncio_engine::{Caller, Part, State};

use super::{
    Act, Server,
    far::{Far, ended},
    server, submit, within,
};

/// A call in the conversation `main` of that owner, and which one the other side was named.
async fn named(server: &Server, far: &Far, owner: &str) -> Option<String> {
    let caller = Caller::named(owner);
    let mut submit = submit("far", Part::text("x"));
    submit.context = Some("main".into());
    let task = within(server.engine.submit(&caller, submit)).await.unwrap();
    let task = within(server.engine.wait_until_idle(&caller, task)).await.unwrap();
    assert_eq!(task.state, State::Completed, "{:?}", task.status_message);
    far.asked().last().unwrap().begin.clone().unwrap().context
}

fn in_conversation(name: &str) -> Vec<Act> {
    vec![Act::Tell(CallEvent::Context(name.into())), ended(State::Completed, "")]
}

#[tokio::test]
async fn the_other_side_names_a_conversation_and_is_named_it_with_the_next_message_of_the_same_owner() {
    let scripts = ["a-1", "b-1", "a-1", "a-1", "b-1"].map(in_conversation);
    let far = Far::new(PeerProtocol::A2a, true, scripts.into());
    let server = server(&far).await;
    assert_eq!(named(&server, &far, "acme/ann").await, None);
    assert_eq!(named(&server, &far, "beta/bob").await, None, "another tenant has not spoken there yet");
    assert_eq!(named(&server, &far, "acme/ann").await.as_deref(), Some("a-1"));
    let server = super::restart(server, &far).await;
    assert_eq!(named(&server, &far, "acme/ann").await.as_deref(), Some("a-1"));
    assert_eq!(named(&server, &far, "beta/bob").await.as_deref(), Some("b-1"));
}

#[tokio::test]
async fn a_conversation_that_the_other_side_does_not_know_any_more_is_begun_anew() {
    for refusal in [PeerError::Refused("no such context".into()), PeerError::Gone("not found".into())] {
        let far = Far::new(PeerProtocol::A2a, true, ["old", "new", "new"].map(in_conversation).into());
        let server = server(&far).await;
        assert_eq!(named(&server, &far, "acme/ann").await, None);
        far.refusals.lock().unwrap().push_back(refusal);
        assert_eq!(named(&server, &far, "acme/ann").await, None, "said again without the old one");
        assert_eq!(far.asked()[1].begin.as_ref().unwrap().context.as_deref(), Some("old"));
        assert_eq!(named(&server, &far, "acme/ann").await.as_deref(), Some("new"));
    }
}

#[tokio::test]
async fn a_name_that_is_too_long_is_not_kept() {
    let far = Far::new(PeerProtocol::A2a, true, [&"x".repeat(2000), "b"].map(in_conversation).into());
    let server = server(&far).await;
    assert_eq!(named(&server, &far, "acme/ann").await, None);
    assert_eq!(named(&server, &far, "acme/ann").await, None);
}
