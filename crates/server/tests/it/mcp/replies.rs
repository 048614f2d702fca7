//! An agent that answers with a message: over MCP that is a plain result.

use std::sync::Arc;

use serde_json::json;

use super::{
    WITH_SESSIONS,
    client::{Client, saying},
    stage::Stage,
};
use crate::replies::Replier;

#[tokio::test]
async fn a_reply_is_a_plain_result_in_every_revision() {
    let stage = Stage::with(|setup| setup.agents.push(Arc::new(Replier))).await;
    for version in WITH_SESSIONS {
        let client = Client::session(&stage, version, json!({})).await;
        for text in ["now", "later", "progress"] {
            let result = client.ok("tools/call", saying("replier", text)).await;
            assert_eq!(result["content"][0]["text"], "hello", "{version}: {result}");
            assert_ne!(result["isError"], true, "{version}: {result}");
        }
    }
    let client = Client::stateless(&stage, json!({}));
    let result = client.ok("tools/call", saying("replier", "later")).await;
    assert_eq!(result["content"][0]["text"], "hello", "{result}");
}
