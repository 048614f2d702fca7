//! `nuncio task push-config …`: where an agent sends the updates of a task. `nuncio listen` receives them.
//!
//! JSON is the protocol's own: a `TaskPushNotificationConfig`, or the list response.

use clap::{Args, Subcommand};
use nuncio_client::a2a::{A2aClient, A2aClientError};
use nuncio_engine::webhook::{Authentication, WebhookConfig};
use serde_json::json;
use url::Url;

use crate::{
    connection::{AgentConnection, AgentFlags},
    error::CliError,
    output,
    text::TextOutput,
};

#[derive(Subcommand)]
pub(crate) enum PushConfigCommand {
    /// Have the updates of a task sent to a URL
    #[command(visible_alias = "create")]
    Set(SetFlags),
    /// Show one configuration of a task
    Get(OneFlags),
    /// List the configurations of a task
    List(ListFlags),
    /// Delete a configuration of a task
    Delete(OneFlags),
}

#[derive(Args)]
pub(crate) struct SetFlags {
    /// The task
    #[arg(value_name = "TASK", env = "A2ACLI_TASK_ID")]
    task: String,
    /// The URL that receives the updates
    #[arg(long, value_name = "URL")]
    url: Url,
    /// The id of the configuration. Default: the agent assigns one
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// The token that deliveries carry. Other users of this machine can see flags: prefer NUNCIO_WEBHOOK_TOKEN
    #[arg(long, env = "NUNCIO_WEBHOOK_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    token: Option<String>,
    /// The HTTP authentication scheme that deliveries use, such as Bearer
    #[arg(long, value_name = "SCHEME")]
    auth_scheme: Option<String>,
    /// The credentials for it. Other users of this machine can see flags: prefer NUNCIO_WEBHOOK_CREDENTIALS
    #[arg(
        long,
        env = "NUNCIO_WEBHOOK_CREDENTIALS",
        hide_env_values = true,
        value_name = "TEXT",
        requires = "auth_scheme"
    )]
    auth_credentials: Option<String>,
    #[command(flatten)]
    agent: AgentFlags,
}

#[derive(Args)]
pub(crate) struct OneFlags {
    /// The task
    #[arg(value_name = "TASK")]
    task: String,
    /// The id of the configuration
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    agent: AgentFlags,
}

#[derive(Args)]
pub(crate) struct ListFlags {
    /// The task
    #[arg(value_name = "TASK", env = "A2ACLI_TASK_ID")]
    task: String,
    /// The page to show: the page token that the previous page printed
    #[arg(long, value_name = "TOKEN")]
    page_token: Option<String>,
    #[command(flatten)]
    agent: AgentFlags,
}

impl PushConfigCommand {
    pub(super) fn agent(&self) -> &AgentFlags {
        match self {
            Self::Set(flags) => &flags.agent,
            Self::Get(flags) | Self::Delete(flags) => &flags.agent,
            Self::List(flags) => &flags.agent,
        }
    }

    pub(super) async fn run(self) -> Result<(), CliError> {
        let connection = self.agent().clone().resolve()?;
        connection.bounded(self.execute(&connection)).await
    }

    async fn execute(self, connection: &AgentConnection) -> Result<(), CliError> {
        let client = connection.client().await?;
        let failed = |error| connection.failed(error);
        match self {
            Self::Set(flags) => {
                check_capability(connection, &client)?;
                let dialect = client.dialect().name().to_owned();
                let authentication = flags.auth_scheme.map(|scheme| Authentication {
                    schemes: vec![scheme],
                    credentials: flags.auth_credentials,
                });
                let config = WebhookConfig {
                    id: flags.id.unwrap_or_default(),
                    url: flags.url.into(),
                    token: flags.token,
                    authentication,
                    dialect,
                };
                let stored = client.set_webhook(&flags.task, config).await.map_err(failed)?;
                print_one(connection, &flags.task, &stored.value, &stored.json)
            }
            Self::Get(flags) => {
                let found = client.get_webhook(&flags.task, Some(flags.id.as_str())).await.map_err(failed)?;
                print_one(connection, &flags.task, &found.value, &found.json)
            }
            Self::List(flags) => {
                let page = client.list_webhook_page(&flags.task, flags.page_token).await.map_err(failed)?;
                if connection.output.is_json() {
                    return output::json(&page.json);
                }
                let (configs, next) = &page.value;
                let mut text = TextOutput::default();
                for config in configs {
                    show(&mut text, &flags.task, config);
                    text.gap();
                }
                text.field("Total", &configs.len().to_string());
                if let Some(next) = next {
                    text.field("Next page token", next);
                }
                output::text(&text.0)
            }
            Self::Delete(flags) => {
                client.delete_webhook(&flags.task, &flags.id).await.map_err(failed)?;
                if connection.output.is_json() {
                    return output::json_text(&json!({}).to_string());
                }
                let mut text = TextOutput::default();
                text.field("Task", &flags.task);
                text.field("Deleted", &flags.id);
                output::text(&text.0)
            }
        }
    }
}

/// An agent without the capability is not asked (`a2a-cli`, section 13.3).
fn check_capability(connection: &AgentConnection, client: &A2aClient) -> Result<(), CliError> {
    if client.has_push_notifications() {
        return Ok(());
    }
    let why = "the agent's card declares no push notifications: `task get --wait` polls the task".to_owned();
    Err(connection.failed(A2aClientError::Unsupported(why)))
}

fn print_one(
    connection: &AgentConnection,
    task: &str,
    config: &WebhookConfig,
    json: &serde_json::value::RawValue,
) -> Result<(), CliError> {
    if connection.output.is_json() {
        return output::json(json);
    }
    let mut text = TextOutput::default();
    show(&mut text, task, config);
    output::text(&text.0)
}

/// The secrets of a configuration are never shown, also where an agent returns them.
fn show(text: &mut TextOutput, task: &str, config: &WebhookConfig) {
    text.field("Task", task);
    text.field("Id", &config.id);
    text.field("URL", &config.url);
    if let Some(authentication) = &config.authentication {
        text.field("Authentication", &authentication.schemes.join(", "));
    }
}
