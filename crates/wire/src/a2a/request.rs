//! Writing the params of a method, for clients; the counterpart of `params.rs`.

use super::{
    Dialect,
    call::{A2aCall, ListTasks, SendMessage},
    message::{self, MessageIds},
    method::A2aMethod,
    status,
    webhook::{self, SecretVisibility},
};
use crate::{
    json::{self, JsonObject},
    timestamp,
};

/// Writes the params and returns the method. `None`: the dialect has no such method; nothing was written.
pub(super) fn write(out: &mut Vec<u8>, dialect: Dialect, call: &A2aCall) -> Option<&'static str> {
    let name = A2aMethod::of(call).name(dialect)?;
    if let A2aCall::SetWebhook { task, config } = call {
        webhook::write(out, dialect, task, config, SecretVisibility::Sent);
        return Some(name);
    }
    json::object(out, |params| match call {
        A2aCall::Send(send) | A2aCall::Stream(send) => write_send(params, dialect, send),
        A2aCall::Get { task, history_length } => {
            params.value("id", task);
            params.optional("historyLength", history_length.as_ref());
        }
        A2aCall::List(list) => write_list(params, dialect, list),
        A2aCall::Cancel { task, metadata } => {
            params.value("id", task);
            params.optional("metadata", metadata.as_ref());
        }
        A2aCall::Subscribe { task } => params.value("id", task),
        A2aCall::GetWebhook { task, id } => write_webhook_ids(params, dialect, task, id.as_ref()),
        A2aCall::DeleteWebhook { task, id } => write_webhook_ids(params, dialect, task, Some(id)),
        A2aCall::ListWebhooks { task, page_size, page_token } => {
            write_webhook_ids(params, dialect, task, None);
            if dialect >= Dialect::V1 {
                params.optional("pageSize", page_size.as_ref());
                params.optional("pageToken", page_token.as_ref());
            }
        }
        A2aCall::SetWebhook { .. } | A2aCall::ExtendedCard => {}
    });
    Some(name)
}

fn write_webhook_ids(params: &mut JsonObject<'_>, dialect: Dialect, task: &str, id: Option<&String>) {
    match dialect {
        Dialect::V0_1 => params.value("id", task),
        Dialect::V0_3 => {
            params.value("id", task);
            params.optional("pushNotificationConfigId", id);
        }
        Dialect::V1 => {
            params.value("taskId", task);
            params.optional("id", id);
        }
    }
}

fn write_send(params: &mut JsonObject<'_>, dialect: Dialect, send: &SendMessage) {
    if dialect == Dialect::V0_1 {
        params.value("id", send.client_task_id.as_ref().or(send.task_id.as_ref()).map_or("", String::as_str));
        params.optional("sessionId", send.context_id.as_ref());
    }
    let addressee = MessageIds { task: send.task_id.as_deref(), context: send.context_id.as_deref() };
    message::write(params.key("message"), dialect, addressee, &send.message);
    if dialect == Dialect::V0_1 {
        params.optional("historyLength", send.history_length.as_ref());
        if let Some(config) = &send.webhook {
            webhook::write_inline(params.key("pushNotification"), dialect, config);
        }
    } else {
        params.object("configuration", |configuration| write_configuration(configuration, dialect, send));
    }
    params.optional("metadata", send.metadata.as_ref());
}

fn write_configuration(configuration: &mut JsonObject<'_>, dialect: Dialect, send: &SendMessage) {
    configuration.list("acceptedOutputModes", &send.accepted_output_modes);
    configuration.optional("historyLength", send.history_length.as_ref());
    let name = match dialect {
        Dialect::V0_1 | Dialect::V0_3 => {
            configuration.value("blocking", &send.blocking);
            "pushNotificationConfig"
        }
        Dialect::V1 => {
            configuration.optional("returnImmediately", (!send.blocking).then_some(&true));
            "taskPushNotificationConfig"
        }
    };
    if let Some(config) = &send.webhook {
        webhook::write_inline(configuration.key(name), dialect, config);
    }
}

fn write_list(params: &mut JsonObject<'_>, dialect: Dialect, list: &ListTasks) {
    params.optional("contextId", list.context.as_ref());
    params.optional("status", list.state.map(|state| status::state_name(dialect, state)));
    params.value("pageSize", &list.page_size);
    params.optional("pageToken", list.page_token.as_ref());
    params.optional("historyLength", list.history_length.as_ref());
    if let Some(since) = list.since {
        timestamp::write(params.key("statusTimestampAfter"), since);
    }
    params.optional("includeArtifacts", list.include_artifacts.then_some(&true));
}
