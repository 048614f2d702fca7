//! Writing the params of a method, as a client does: what `params.rs` reads.

use super::{
    Dialect,
    call::{Call, List, Send},
    message::{self, Addressee},
    method::Method,
    status,
    webhook::{self, Secrets},
};
use crate::{
    json::{self, Object},
    timestamp,
};

/// Writes the params and gives the method. `None`: the dialect has no such method; nothing was written.
pub(super) fn write(out: &mut Vec<u8>, dialect: Dialect, call: &Call) -> Option<&'static str> {
    let method = match call {
        Call::Send(_) => Method::Send,
        Call::Stream(_) => Method::Stream,
        Call::Get { .. } => Method::Get,
        Call::List(_) => Method::List,
        Call::Cancel { .. } => Method::Cancel,
        Call::Subscribe { .. } => Method::Subscribe,
        Call::SetWebhook { .. } => Method::SetWebhook,
        Call::GetWebhook { .. } => Method::GetWebhook,
        Call::ListWebhooks { .. } => Method::ListWebhooks,
        Call::DeleteWebhook { .. } => Method::DeleteWebhook,
        Call::ExtendedCard => Method::ExtendedCard,
    };
    let name = method.name(dialect)?;
    if let Call::SetWebhook { task, config } = call {
        webhook::write(out, dialect, task, config, Secrets::Sent);
        return Some(name);
    }
    json::object(out, |params| match call {
        Call::Send(send) | Call::Stream(send) => write_send(params, dialect, send),
        Call::Get { task, history_length } => {
            params.value("id", task);
            params.optional("historyLength", history_length.as_ref());
        }
        Call::List(list) => write_list(params, dialect, list),
        Call::Cancel { task, metadata } => {
            params.value("id", task);
            params.optional("metadata", metadata.as_ref());
        }
        Call::Subscribe { task } => params.value("id", task),
        Call::GetWebhook { task, id } => write_webhook_ids(params, dialect, task, id.as_ref()),
        Call::DeleteWebhook { task, id } => write_webhook_ids(params, dialect, task, Some(id)),
        Call::ListWebhooks { task, page_size, page_token } => {
            write_webhook_ids(params, dialect, task, None);
            if dialect == Dialect::V1 {
                params.optional("pageSize", page_size.as_ref());
                params.optional("pageToken", page_token.as_ref());
            }
        }
        Call::SetWebhook { .. } | Call::ExtendedCard => {}
    });
    Some(name)
}

fn write_webhook_ids(params: &mut Object<'_>, dialect: Dialect, task: &str, id: Option<&String>) {
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

fn write_send(params: &mut Object<'_>, dialect: Dialect, send: &Send) {
    if dialect == Dialect::V0_1 {
        params.value("id", send.client_task_id.as_ref().or(send.task_id.as_ref()).map_or("", String::as_str));
        params.optional("sessionId", send.context_id.as_ref());
    }
    let addressee = Addressee { task: send.task_id.as_deref(), context: send.context_id.as_deref() };
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

fn write_configuration(configuration: &mut Object<'_>, dialect: Dialect, send: &Send) {
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

fn write_list(params: &mut Object<'_>, dialect: Dialect, list: &List) {
    params.optional("contextId", list.context.as_ref());
    params.optional("status", list.state.map(|state| status::name(dialect, state)));
    params.value("pageSize", &list.page_size);
    params.optional("pageToken", list.page_token.as_ref());
    params.optional("historyLength", list.history_length.as_ref());
    if let Some(since) = list.since {
        timestamp::write(params.key("statusTimestampAfter"), since);
    }
    params.optional("includeArtifacts", list.include_artifacts.then_some(&true));
}
