//! The server's derived keys: the same after every restart, different in every database.

use crate::world::World;

#[tokio::test]
async fn a_derived_key_is_the_same_after_a_restart_and_another_in_another_database() {
    let world = World::new();
    let first = world.start().await;
    let key = first.derive_key("context");
    assert_ne!(key, first.derive_key("webhook"), "one purpose, one key");
    first.stop().await;
    let second = world.start().await;
    assert_eq!(second.derive_key("context"), key, "a restart changes nothing");
    second.stop().await;

    let elsewhere = World::new();
    let other = elsewhere.start().await;
    assert_ne!(other.derive_key("context"), key, "no two servers share a key");
    other.stop().await;
}
