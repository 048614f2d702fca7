//! Parsing of method params, for servers; the counterpart of `request.rs`.

use nuncio_engine::content::Metadata;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    Dialect,
    call::{A2aCall, ListTasks, SendMessage},
    fault::{A2aFault, A2aProblem},
    input::{self, EnumValue, JsonPath, MalformedInput, WholeNumber, non_empty},
    message::MessageIn,
    method::A2aMethod,
    status,
    webhook::WebhookIn,
};
use crate::timestamp;

pub(super) const ROOT: &str = "params";
const AT: JsonPath<'static> = JsonPath::Root(ROOT);

pub(super) fn read(dialect: Dialect, method: &str, params: Option<&RawValue>) -> Result<A2aCall, A2aFault> {
    let Some(method) = A2aMethod::find(dialect, method) else {
        let message = format!("there is no method {method:?} in A2A {}", dialect.version());
        return Err(dialect.problem(A2aProblem::MethodNotFound, message));
    };
    let json = params.map_or("{}", RawValue::get);
    // Serde would accept an array for a struct, element by element.
    let call = if json.starts_with('{') {
        read_method(dialect, method, json)
    } else {
        Err(AT.malformed("expected an object"))
    };
    call.map_err(|malformed| dialect.malformed(&malformed))
}

/// The `tenant` of params. Most name none, and are not parsed for it; what is no JSON names none.
pub(super) fn read_tenant(json: &str) -> Result<Option<String>, MalformedInput> {
    #[derive(Deserialize)]
    #[serde(expecting = "an object")]
    struct TenantIn {
        tenant: Option<String>,
    }
    if !json.contains("\"tenant\"") || serde_json::from_str::<&RawValue>(json).is_err() {
        return Ok(None);
    }
    Ok(non_empty(input::parse::<TenantIn>(ROOT, json)?.tenant))
}

/// Reads the params of a method, which must be an object.
pub(super) fn read_method(
    dialect: Dialect,
    method: A2aMethod,
    json: &str,
) -> Result<A2aCall, MalformedInput> {
    Ok(match method {
        A2aMethod::Send => A2aCall::Send(Box::new(read_send(dialect, json)?)),
        A2aMethod::Stream => A2aCall::Stream(Box::new(read_send(dialect, json)?)),
        A2aMethod::List => A2aCall::List(input::parse::<ListParamsIn<'_>>(ROOT, json)?.read(dialect)?),
        A2aMethod::Get => {
            let params: TaskParamsIn = input::parse(ROOT, json)?;
            let history_length = natural(params.history_length, "historyLength", &AT)?;
            A2aCall::Get { task: AT.required_text("id", params.id)?, history_length }
        }
        A2aMethod::Cancel => {
            let params: TaskParamsIn = input::parse(ROOT, json)?;
            A2aCall::Cancel { task: AT.required_text("id", params.id)?, metadata: params.metadata }
        }
        A2aMethod::Subscribe => {
            let params: TaskParamsIn = input::parse(ROOT, json)?;
            A2aCall::Subscribe { task: AT.required_text("id", params.id)? }
        }
        A2aMethod::SetWebhook => {
            let (task, config) = input::parse::<WebhookIn>(ROOT, json)?.read(dialect, AT)?;
            A2aCall::SetWebhook { task, config }
        }
        A2aMethod::GetWebhook => {
            let (task, id) = input::parse::<TaskParamsIn>(ROOT, json)?.webhook(dialect)?;
            // Only 1.0 requires the webhook's id.
            let id = if dialect >= Dialect::V1 { Some(AT.required("id", id)?) } else { id };
            A2aCall::GetWebhook { task, id }
        }
        A2aMethod::ListWebhooks => {
            let mut params: TaskParamsIn = input::parse(ROOT, json)?;
            let page_size = natural(params.page_size.take(), "pageSize", &AT)?.filter(|size| *size > 0);
            let page_token = non_empty(params.page_token.take());
            let (task, _) = params.webhook(dialect)?;
            A2aCall::ListWebhooks { task, page_size, page_token }
        }
        A2aMethod::DeleteWebhook => {
            let (task, id) = input::parse::<TaskParamsIn>(ROOT, json)?.webhook(dialect)?;
            let name = if dialect >= Dialect::V1 { "id" } else { "pushNotificationConfigId" };
            A2aCall::DeleteWebhook { task, id: AT.required(name, id)? }
        }
        A2aMethod::ExtendedCard => A2aCall::ExtendedCard,
    })
}

/// The params of all methods that name a task and little else.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct TaskParamsIn {
    id: Option<String>,
    #[serde(alias = "task_id")]
    task_id: Option<String>,
    push_notification_config_id: Option<String>,
    #[serde(alias = "history_length")]
    history_length: Option<WholeNumber>,
    #[serde(alias = "page_size")]
    page_size: Option<WholeNumber>,
    #[serde(alias = "page_token")]
    page_token: Option<String>,
    metadata: Option<Metadata>,
}

impl TaskParamsIn {
    /// The ids of the task and the webhook: `id` is the webhook's in 1.0, and the task's before.
    fn webhook(self, dialect: Dialect) -> Result<(String, Option<String>), MalformedInput> {
        let (name, task, id) = match dialect {
            Dialect::V0_1 => ("id", self.id, None),
            Dialect::V0_3 => ("id", self.id, self.push_notification_config_id),
            Dialect::V1 => ("taskId", self.task_id, self.id),
        };
        Ok((AT.required_text(name, task)?, non_empty(id)))
    }
}

/// The params of the methods that send a message, in all generations.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct SendIn<'a> {
    id: Option<String>,
    session_id: Option<String>,
    #[serde(borrow)]
    message: Option<MessageIn<'a>>,
    configuration: Option<SendConfigurationIn>,
    push_notification: Option<WebhookIn>,
    history_length: Option<WholeNumber>,
    metadata: Option<Metadata>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct SendConfigurationIn {
    #[serde(alias = "accepted_output_modes")]
    accepted_output_modes: Option<Vec<String>>,
    blocking: Option<bool>,
    #[serde(alias = "return_immediately")]
    return_immediately: Option<bool>,
    #[serde(alias = "history_length")]
    history_length: Option<WholeNumber>,
    push_notification_config: Option<WebhookIn>,
    #[serde(alias = "task_push_notification_config")]
    task_push_notification_config: Option<WebhookIn>,
}

fn read_send(dialect: Dialect, json: &str) -> Result<SendMessage, MalformedInput> {
    let params: SendIn<'_> = input::parse(ROOT, json)?;
    let sent = AT.required("message", params.message)?.read_sent(dialect, AT.member("message"))?;
    let mut send = SendMessage { metadata: params.metadata, ..SendMessage::new(sent.message) };
    if dialect == Dialect::V0_1 {
        send.client_task_id = Some(AT.required_text("id", params.id)?);
        send.context_id = non_empty(params.session_id);
        send.blocking = false;
        send.history_length = natural(params.history_length, "historyLength", &AT)?;
        let webhook = params.push_notification;
        send.webhook =
            webhook.map(|hook| hook.read_inline(dialect, AT.member("pushNotification"))).transpose()?;
        return Ok(send);
    }
    let at = AT.member("configuration");
    let configuration = params.configuration.unwrap_or_default();
    (send.task_id, send.context_id) = (sent.task, sent.context);
    send.history_length = natural(configuration.history_length, "historyLength", &at)?;
    send.accepted_output_modes = configuration.accepted_output_modes.unwrap_or_default();
    let (blocking, name, webhook) = match dialect {
        Dialect::V0_1 | Dialect::V0_3 => {
            (configuration.blocking, "pushNotificationConfig", configuration.push_notification_config)
        }
        Dialect::V1 => (
            configuration.return_immediately.map(|immediately| !immediately),
            "taskPushNotificationConfig",
            configuration.task_push_notification_config,
        ),
    };
    send.blocking = blocking.unwrap_or(true);
    send.webhook = webhook.map(|hook| hook.read_inline(dialect, at.member(name))).transpose()?;
    Ok(send)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct ListParamsIn<'a> {
    #[serde(alias = "context_id")]
    context_id: Option<String>,
    #[serde(borrow)]
    status: Option<EnumValue<'a>>,
    #[serde(alias = "page_size")]
    page_size: Option<WholeNumber>,
    #[serde(alias = "page_token")]
    page_token: Option<String>,
    #[serde(alias = "history_length")]
    history_length: Option<WholeNumber>,
    #[serde(alias = "status_timestamp_after")]
    status_timestamp_after: Option<String>,
    #[serde(alias = "include_artifacts")]
    include_artifacts: Option<bool>,
}

impl ListParamsIn<'_> {
    fn read(self, dialect: Dialect) -> Result<ListTasks, MalformedInput> {
        let read_state = |word: &EnumValue<'_>| status::read_name(dialect, word, &AT.member("status"));
        let read_time = |text: &String| {
            let at = AT.member("statusTimestampAfter");
            timestamp::parse(text)
                .ok_or_else(|| at.malformed("expected an ISO 8601 time, e.g. 2025-10-28T10:30:00Z"))
        };
        let page_size = match self.page_size {
            None => ListTasks::DEFAULT_PAGE_SIZE,
            Some(WholeNumber(size)) => match usize::try_from(size) {
                Ok(size @ 1..=ListTasks::MAX_PAGE_SIZE) => size,
                _ => return Err(AT.member("pageSize").malformed(format!("expected 1 to 100, got {size}"))),
            },
        };
        Ok(ListTasks {
            context: non_empty(self.context_id),
            state: self.status.as_ref().map(read_state).transpose()?.flatten(),
            page_size,
            page_token: non_empty(self.page_token),
            history_length: natural(self.history_length, "historyLength", &AT)?,
            since: non_empty(self.status_timestamp_after).as_ref().map(read_time).transpose()?,
            include_artifacts: self.include_artifacts.unwrap_or_default(),
        })
    }
}

/// A number that is not negative.
pub(super) fn natural(
    number: Option<WholeNumber>,
    name: &'static str,
    at: &JsonPath<'_>,
) -> Result<Option<usize>, MalformedInput> {
    let read = |WholeNumber(number): WholeNumber| {
        usize::try_from(number)
            .map_err(|_| at.member(name).malformed(format!("expected a number from 0, got {number}")))
    };
    number.map(read).transpose()
}
