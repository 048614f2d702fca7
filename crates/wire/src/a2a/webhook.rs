//! Webhooks (push notification configs): flat in 1.0, nested before; one scheme in 1.0, a list before.

use nuncio_engine::webhook::{Authentication, WebhookConfig};
use serde::Deserialize;

use super::{
    Dialect,
    input::{self, JsonPath, MalformedInput, non_empty},
};
use crate::json::{self, JsonObject};

/// Whether secrets are written: a client sends them, a server never returns them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SecretVisibility {
    Sent,
    Kept,
}

/// Writes a webhook together with the task that it belongs to.
pub(super) fn write(
    out: &mut Vec<u8>,
    dialect: Dialect,
    task: &str,
    config: &WebhookConfig,
    secrets: SecretVisibility,
) {
    json::object(out, |object| match dialect {
        Dialect::V0_1 | Dialect::V0_3 => {
            object.value(if dialect == Dialect::V0_1 { "id" } else { "taskId" }, task);
            object.object("pushNotificationConfig", |inner| write_members(inner, dialect, config, secrets));
        }
        Dialect::V1 => {
            object.value("taskId", task);
            write_members(object, dialect, config, secrets);
        }
    });
}

/// Writes a webhook as part of a send request, which does not name the task.
pub(super) fn write_inline(out: &mut Vec<u8>, dialect: Dialect, config: &WebhookConfig) {
    json::object(out, |object| write_members(object, dialect, config, SecretVisibility::Sent));
}

fn write_members(
    object: &mut JsonObject<'_>,
    dialect: Dialect,
    config: &WebhookConfig,
    secrets: SecretVisibility,
) {
    let show = secrets == SecretVisibility::Sent;
    if dialect > Dialect::V0_1 && !config.id.is_empty() {
        object.value("id", &config.id);
    }
    object.value("url", &config.url);
    object.optional("token", config.token.as_ref().filter(|_| show));
    let Some(authentication) = &config.authentication else { return };
    if dialect >= Dialect::V1 && authentication.schemes.is_empty() {
        return;
    }
    object.object("authentication", |inner| {
        match dialect {
            Dialect::V0_1 | Dialect::V0_3 => inner.value("schemes", &authentication.schemes),
            Dialect::V1 => inner.value("scheme", authentication.schemes.first().map_or("", String::as_str)),
        }
        inner.optional("credentials", authentication.credentials.as_ref().filter(|_| show));
    });
}

/// A webhook of any generation; in 1.0 with the task beside the rest, before that with a nested config.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
pub(super) struct WebhookIn {
    id: Option<String>,
    #[serde(alias = "task_id")]
    task_id: Option<String>,
    url: Option<String>,
    token: Option<String>,
    authentication: Option<AuthenticationIn>,
    #[serde(alias = "push_notification_config")]
    push_notification_config: Option<Box<WebhookIn>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct AuthenticationIn {
    schemes: Option<Vec<String>>,
    scheme: Option<String>,
    credentials: Option<String>,
}

impl WebhookIn {
    /// Reads a webhook and the task that it belongs to.
    pub(super) fn read(
        mut self,
        dialect: Dialect,
        at: JsonPath<'_>,
    ) -> Result<(String, WebhookConfig), MalformedInput> {
        match dialect {
            Dialect::V0_1 | Dialect::V0_3 => {
                let (name, task) =
                    if dialect == Dialect::V0_1 { ("id", self.id) } else { ("taskId", self.task_id) };
                let task = at.required_text(name, task)?;
                let config = at.required("pushNotificationConfig", self.push_notification_config)?;
                Ok((task, config.read_inline(dialect, at.member("pushNotificationConfig"))?))
            }
            Dialect::V1 => {
                let task = at.required_text("taskId", self.task_id.take())?;
                Ok((task, self.read_inline(dialect, at)?))
            }
        }
    }

    /// Reads a webhook alone. A missing id becomes an empty one: the server assigns it.
    pub(super) fn read_inline(
        self,
        dialect: Dialect,
        at: JsonPath<'_>,
    ) -> Result<WebhookConfig, MalformedInput> {
        let read_authentication = |given: AuthenticationIn| -> Result<Authentication, MalformedInput> {
            let path = at.member("authentication");
            let schemes = match dialect {
                Dialect::V0_1 | Dialect::V0_3 => path.required("schemes", given.schemes)?,
                Dialect::V1 => vec![path.required_text("scheme", given.scheme)?],
            };
            Ok(Authentication { schemes, credentials: non_empty(given.credentials) })
        };
        Ok(WebhookConfig {
            id: if dialect == Dialect::V0_1 { String::new() } else { self.id.unwrap_or_default() },
            url: at.required_text("url", self.url)?,
            token: non_empty(self.token),
            authentication: self.authentication.map(read_authentication).transpose()?,
            dialect: dialect.name().to_owned(),
        })
    }
}

/// A page of webhooks in 1.0, and over gRPC in 0.3; otherwise it is a bare list.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct WebhookPageIn {
    configs: Option<Vec<WebhookIn>>,
    #[serde(alias = "next_page_token")]
    next_page_token: Option<String>,
}

/// Reads a page of webhooks and the token of the next page.
pub(super) fn read_page(
    dialect: Dialect,
    json: &str,
) -> Result<(Vec<WebhookConfig>, Option<String>), MalformedInput> {
    let root = JsonPath::Root("result");
    let (configs, next, at) = if dialect >= Dialect::V1 || json.trim_start().starts_with('{') {
        let page: WebhookPageIn = input::parse("result", json)?;
        (page.configs.unwrap_or_default(), page.next_page_token, root.member("configs"))
    } else {
        (input::parse("result", json)?, None, root)
    };
    let read = |(index, config): (usize, WebhookIn)| config.read(dialect, at.element(index));
    let configs = configs.into_iter().enumerate().map(read).map(|read| read.map(|(_, config)| config));
    Ok((configs.collect::<Result<_, _>>()?, non_empty(next)))
}
