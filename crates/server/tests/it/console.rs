//! The console's API: who may call it, what it shows, and its live stream.

mod access;
mod audit;
mod configuration;
mod forks;
mod journal;
mod live;
mod live_resource;
mod log;
mod openapi;
mod selections;
mod senders;
mod server_state;
mod streams;
mod tasks;
mod webhooks;

use serde_json::Value;

use crate::{
    site::Site,
    socket::{Answer, bare, get, post},
};

const API: &str = "/console/api";

impl Site {
    /// An answer of the API, whatever its status.
    async fn console(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send(get(&format!("{API}/{path}"), headers)).await
    }

    /// What the API shows to a request without credentials.
    async fn shown(&self, path: &str) -> Value {
        let answer = self.console(path, &[]).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.json()
    }

    async fn console_post(&self, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
        self.send(post(&format!("{API}/{path}"), headers, body.to_string())).await
    }

    async fn console_delete(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send(bare("DELETE", &format!("{API}/{path}"), headers)).await
    }

    /// Refused with this status and this code.
    async fn console_refuses(&self, path: &str, headers: &[(&str, &str)], status: u16, code: &str) -> Value {
        refused(&self.console(path, headers).await, status, code)
    }
}

fn refused(answer: &Answer, status: u16, code: &str) -> Value {
    let said = answer.json();
    assert_eq!((answer.status, said["error"]["code"].as_str()), (status, Some(code)), "{said}");
    said["error"].clone()
}
