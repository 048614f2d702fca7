//! `nuncio task list`: the caller's tasks, most recent status change first, in pages.

use clap::Args;
use nuncio_engine::task::State;
use nuncio_wire::a2a::ListTasks;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::operator::{self, OperatorTaskQuery, TenantTaskFlags};
use crate::{
    connection::{AgentConnection, AgentFlags},
    error::CliError,
    output, program,
    text::{TextOutput, state_name},
};

#[derive(Args)]
pub(crate) struct Flags {
    /// Only tasks of this conversation
    #[arg(long, env = "A2ACLI_CONTEXT_ID", value_name = "ID")]
    context_id: Option<String>,
    /// Only tasks in this state, such as working or input-required
    #[arg(long, visible_alias = "state", value_name = "STATE", value_parser = state)]
    status: Option<State>,
    /// The number of tasks per page, at most 100
    #[arg(long, default_value_t = ListTasks::DEFAULT_PAGE_SIZE, value_name = "N", value_parser = page_size)]
    page_size: usize,
    /// The page to show: the page token that the previous page printed
    #[arg(long, value_name = "TOKEN")]
    page_token: Option<String>,
    /// The maximum number of history messages to show for each task
    #[arg(long, env = "A2ACLI_HISTORY", value_name = "N")]
    history: Option<usize>,
    /// Include the artifacts, in JSON
    #[arg(long)]
    include_artifacts: bool,
    #[command(flatten)]
    operator: TenantTaskFlags,
    #[command(flatten)]
    pub(crate) agent: AgentFlags,
}

pub(super) async fn run(flags: Flags) -> Result<(), CliError> {
    if flags.operator.tenant.is_some() {
        let wanted = OperatorTaskQuery {
            state: flags.status,
            page_size: flags.page_size,
            page_token: flags.page_token,
        };
        return operator::list(&flags.operator, flags.agent.output.format, wanted).await;
    }
    let list = ListTasks {
        context: flags.context_id,
        state: flags.status,
        page_size: flags.page_size,
        page_token: flags.page_token,
        // The history is seldom needed in a list.
        history_length: Some(flags.history.unwrap_or(0)),
        since: None,
        include_artifacts: flags.include_artifacts,
    };
    let connection = flags.agent.resolve()?;
    connection.bounded(print(&connection, list)).await
}

async fn print(connection: &AgentConnection, list: ListTasks) -> Result<(), CliError> {
    let client = connection.client().await?;
    let page = client.list(list).await.map_err(|error| connection.failed(error))?;
    match (connection.output.is_json(), connection.output.stream) {
        (true, false) => return output::json(&page.json),
        (true, true) => {
            let tasks: RawTaskPage<'_> =
                serde_json::from_str(page.json.get()).map_err(std::io::Error::other)?;
            return tasks.tasks.into_iter().try_for_each(output::json);
        }
        (false, _) => {}
    }
    let mut text = TextOutput::default();
    text.list(&page.value);
    if let Some(next) = &page.value.next {
        let flags = &connection.target.flags;
        text.field("Next", &format!("{} task list{flags} --page-token {next}", program()));
    }
    output::text(&text.0)
}

/// The tasks of a page, as raw JSON.
#[derive(Deserialize)]
struct RawTaskPage<'a> {
    #[serde(borrow, default)]
    tasks: Vec<&'a RawValue>,
}

fn state(text: &str) -> Result<State, String> {
    let wanted = text.to_ascii_lowercase().replace('_', "-");
    let wanted = wanted.strip_prefix("task-state-").unwrap_or(&wanted);
    State::ALL.into_iter().find(|state| state_name(*state) == wanted).ok_or_else(|| {
        let names: Vec<_> = State::ALL.into_iter().map(state_name).collect();
        format!("expected one of {}", names.join(", "))
    })
}

fn page_size(text: &str) -> Result<usize, String> {
    let size = text.parse().ok().filter(|size| (1..=ListTasks::MAX_PAGE_SIZE).contains(size));
    size.ok_or_else(|| format!("a page has 1 to {} tasks", ListTasks::MAX_PAGE_SIZE))
}
