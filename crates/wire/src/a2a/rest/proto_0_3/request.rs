//! Requests: the body of REST, and what gRPC translates to protobuf. Names stand for ids: `tasks/{id}`.

use serde_json::{Value, json};

use super::{AT, Members, change, is_empty_object, message, params, rename};
use crate::a2a::{
    Dialect,
    call::A2aCall,
    input::{self, MalformedInput},
};

const CONFIGS: &str = "/pushNotificationConfigs";

impl Dialect {
    /// Writes a call as REST and gRPC carry it: in 1.0 the params of JSON-RPC, in 0.3 the ProtoJSON of its message. The
    /// body of REST has no use for members that are in the path. Returns false if the dialect has no such method, or none
    /// of these bindings; nothing was written then.
    pub fn write_rest_request(self, out: &mut Vec<u8>, call: &A2aCall) -> bool {
        match self {
            Self::V0_1 => false,
            Self::V0_3 => match write_request(call) {
                Some(request) => {
                    crate::json::value(out, &request);
                    true
                }
                None => false,
            },
            Self::V1 => self.write_call(out, call).is_some(),
        }
    }
}

fn write_request(call: &A2aCall) -> Option<Value> {
    let mut plain = Vec::new();
    Dialect::V0_3.write_call(&mut plain, call)?;
    let plain: Members = serde_json::from_slice(&plain).ok()?;
    // Proto has no absence for numbers: 0 is none.
    let number = |number: &Option<usize>| number.unwrap_or_default();
    Some(match call {
        A2aCall::Send(_) | A2aCall::Stream(_) => write_send(plain),
        A2aCall::Get { task, history_length } => {
            json!({ "name": task_name(task), "historyLength": number(history_length) })
        }
        A2aCall::Cancel { task, .. } | A2aCall::Subscribe { task } => json!({ "name": task_name(task) }),
        A2aCall::SetWebhook { task, config } => {
            let named = super::result::write_webhook(plain);
            json!({ "parent": task_name(task), "configId": config.id, "config": named })
        }
        A2aCall::GetWebhook { task, id } => json!({ "name": webhook_name(task, id.as_deref()) }),
        A2aCall::DeleteWebhook { task, id } => json!({ "name": webhook_name(task, Some(id)) }),
        A2aCall::ListWebhooks { task, page_size, page_token } => {
            let token = page_token.as_deref().unwrap_or_default();
            json!({ "parent": task_name(task), "pageSize": number(page_size), "pageToken": token })
        }
        A2aCall::ExtendedCard => json!({}),
        A2aCall::List(_) => return None,
    })
}

fn write_send(mut request: Members) -> Value {
    change(&mut request, "message", message::write_message);
    change(&mut request, "configuration", |mut configuration| {
        rename(&mut configuration, "pushNotificationConfig", "pushNotification");
        configuration
    });
    Value::Object(request)
}

/// The params of `message/send` from the body of a request in either form.
pub(in crate::a2a) fn read_send(body: &str) -> Result<String, MalformedInput> {
    let mut request: Members = input::parse(params::ROOT, body)?;
    rename(&mut request, "request", "message");
    let mut proto = false;
    change(&mut request, "message", |members| {
        proto = members.contains_key("content");
        message::read_message(members)
    });
    change(&mut request, "configuration", |mut configuration| {
        rename(&mut configuration, "pushNotification", "pushNotificationConfig");
        rename(&mut configuration, "push_notification", "pushNotificationConfig");
        change(&mut configuration, "pushNotificationConfig", read_webhook);
        configuration
    });
    if proto {
        // In ProtoJSON absence is the default: `blocking: false` is not written.
        let configuration = request.entry("configuration").or_insert_with(|| json!({}));
        if let Value::Object(configuration) = configuration {
            configuration.entry("blocking").or_insert(Value::Bool(false));
        }
    }
    Ok(Value::Object(request).to_string())
}

/// The webhook alone, as an object, from the body of a request: `{config: {pushNotificationConfig}}`, what the
/// specification and the Python client write, or `{pushNotificationConfig}`, what the JavaScript client writes.
pub(in crate::a2a) fn read_webhook_request(body: &str) -> Result<String, MalformedInput> {
    let mut request: Members = input::parse(params::ROOT, body)?;
    rename(&mut request, "config_id", "configId");
    let id = request.shift_remove("configId");
    if let Some(Value::Object(config)) = request.shift_remove("config") {
        request = config;
    }
    rename(&mut request, "push_notification_config", "pushNotificationConfig");
    let Some(Value::Object(webhook)) = request.shift_remove("pushNotificationConfig") else {
        return Err(AT.member("pushNotificationConfig").malformed("expected an object"));
    };
    let mut webhook = read_webhook(webhook);
    let has_id = webhook.get("id").and_then(Value::as_str).is_some_and(|id| !id.is_empty());
    if let Some(id) = id.filter(|_| !has_id) {
        webhook.insert("id".to_owned(), id);
    }
    Ok(Value::Object(webhook).to_string())
}

/// A webhook without what ProtoJSON writes for what is not set.
pub(super) fn read_webhook(mut webhook: Members) -> Members {
    if webhook.get("authentication").is_some_and(is_empty_object) {
        webhook.shift_remove("authentication");
    }
    change(&mut webhook, "authentication", |mut authentication| {
        authentication.entry("schemes").or_insert_with(|| json!([]));
        authentication
    });
    webhook
}

fn task_name(task: &str) -> String {
    format!("tasks/{task}")
}

/// The id in `tasks/{id}`; the specification's own paths add the collection of a task's webhooks.
pub(in crate::a2a) fn read_task_name(name: &str) -> Option<String> {
    let id = name.strip_prefix("tasks/").map(|id| id.strip_suffix(CONFIGS).unwrap_or(id));
    id.filter(|id| !id.is_empty()).map(str::to_owned)
}

/// Without an id: the task's only webhook.
pub(super) fn webhook_name(task: &str, id: Option<&str>) -> String {
    match id {
        Some(id) => format!("tasks/{task}{CONFIGS}/{id}"),
        None => task_name(task),
    }
}

/// The ids of a task and of its webhook; the latter may be empty.
pub(in crate::a2a) fn read_webhook_name(name: &str) -> Option<(String, String)> {
    match name.rsplit_once("/pushNotificationConfigs/") {
        Some((task, id)) => Some((read_task_name(task)?, id.to_owned())),
        None => Some((read_task_name(name)?, String::new())),
    }
}
