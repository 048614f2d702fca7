//! `nuncio task list`: the caller's tasks, most recent status change first, in pages: a table, which for a server of ours
//! names agents and requests; with `--verbose`, a block for each task.

use clap::Args;
use nuncio_client::a2a::{A2aClient, A2aResponse};
use nuncio_engine::task::State;
use nuncio_wire::a2a::{ListTasks, TaskList, TaskView};
use serde::Deserialize;
use serde_json::{json, value::RawValue};

use super::{
    operator::{self, MORE_OF_SEVERAL, OperatorTaskQuery, TenantTaskFlags},
    rows::{RowOwners, ShownTask, add_details, task_blocks, task_table},
};
use crate::{
    connection::{AgentConnection, AgentFlags},
    console_client::ConsoleClient,
    error::CliError,
    output::{self, note},
    program,
    server_connection::quoted,
    text::{TextOutput, shown_state, state_name, time},
};

#[derive(Args)]
pub(crate) struct Flags {
    /// Only tasks of this conversation
    #[arg(long, env = "A2ACLI_CONTEXT_ID", value_name = "ID")]
    context_id: Option<String>,
    /// Only tasks in this state, such as working or input-required; several with commas, or repeated
    #[arg(long = "state", visible_alias = "status", value_name = "STATE", value_delimiter = ',', value_parser = state)]
    states: Vec<State>,
    /// The maximum number to list, at most 100
    #[arg(long = "limit", visible_alias = "page-size", default_value_t = ListTasks::DEFAULT_PAGE_SIZE, value_name = "N", value_parser = page_size)]
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
    let mut states = vec![];
    for state in flags.states {
        if !states.contains(&state) {
            states.push(state);
        }
    }
    if states.len() > 1 && flags.page_token.is_some() {
        return Err(CliError::Usage("--page-token is for a list of one --state".to_owned()));
    }
    if flags.operator.tenant.is_some() {
        let wanted = OperatorTaskQuery {
            agent: flags.agent.agent_name().map(str::to_owned),
            states,
            verbose: flags.agent.output.verbose,
            page_size: flags.page_size,
            page_token: flags.page_token,
        };
        return operator::list(&flags.operator, flags.agent.output.format, wanted).await;
    }
    let list = ListTasks {
        context: flags.context_id,
        state: None,
        page_size: flags.page_size,
        page_token: flags.page_token,
        // The history is seldom needed in a list.
        history_length: Some(flags.history.unwrap_or(0)),
        since: None,
        include_artifacts: flags.include_artifacts,
    };
    let connection = flags.agent.resolve()?;
    connection.bounded(print(&connection, list, &states)).await
}

async fn print(connection: &AgentConnection, list: ListTasks, states: &[State]) -> Result<(), CliError> {
    let client = connection.client().await?;
    let mut list = ListTasks { state: states.first().copied(), ..list };
    let again = repeated_flags(&list);
    let limit = list.page_size;
    let mut page = client.list(list.clone()).await.map_err(|error| connection.failed(error))?;
    for state in states.iter().skip(1) {
        list.state = Some(*state);
        let more = client.list(list.clone()).await.map_err(|error| connection.failed(error))?;
        page = merged(page, more, limit)?;
    }
    if states.len() > 1 && page.value.next.take().is_some() {
        note(MORE_OF_SEVERAL);
    }
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
    let rows = rows_of(connection, &client, &page.value).await;
    text.0.push_str(&if connection.output.verbose { task_blocks(&rows) } else { task_table(&rows) });
    if let Some(total) = page.value.total {
        text.gap();
        text.field("Total", &total.to_string());
    }
    if let Some(next) = &page.value.next {
        let flags = &connection.target.flags;
        text.field("Next", &format!("{} task list{flags}{again} --page-token {next}", program()));
    }
    output::text(&text.0)
}

/// The flags that the next page needs, too.
fn repeated_flags(list: &ListTasks) -> String {
    let mut flags = String::new();
    if let Some(context) = &list.context {
        flags.push_str(&format!(" --context-id {}", quoted(context)));
    }
    if let Some(state) = list.state {
        flags.push_str(&format!(" --state {}", state_name(state)));
    }
    if list.page_size != ListTasks::DEFAULT_PAGE_SIZE {
        flags.push_str(&format!(" --limit {}", list.page_size));
    }
    flags
}

async fn rows_of(connection: &AgentConnection, client: &A2aClient, page: &TaskList) -> Vec<ShownTask> {
    let mut rows: Vec<ShownTask> = page
        .tasks
        .iter()
        .map(|task| ShownTask {
            id: task.id.clone(),
            context: task.context.clone(),
            state: shown_state(task.state, task.unknown_state.as_ref()).to_owned(),
            status_at: task.at.map(time),
            reason: reason(task),
            ..ShownTask::default()
        })
        .collect();
    // Only a server of ours declares cursors. Another one is not asked for what it does not have.
    if client.has_cursors()
        && !rows.is_empty()
        && let Ok(console) = ConsoleClient::of_agent(connection).await
    {
        add_details(&console, &mut rows, RowOwners::Own).await;
    }
    rows
}

/// Why a task failed or was rejected, as its last message says it.
fn reason(task: &TaskView) -> Option<String> {
    let message = task.message.as_ref().filter(|_| matches!(task.state, State::Failed | State::Rejected))?;
    Some(message.joined_text()).filter(|text| !text.trim().is_empty())
}

/// Two lists as one: the most recent change first, at most `limit` tasks. `next` says whether there are more.
fn merged(
    one: A2aResponse<TaskList>,
    other: A2aResponse<TaskList>,
    limit: usize,
) -> Result<A2aResponse<TaskList>, CliError> {
    let raw = |page: &A2aResponse<TaskList>| -> Result<Vec<Box<RawValue>>, CliError> {
        let tasks: RawTaskPage<'_> = serde_json::from_str(page.json.get()).map_err(std::io::Error::other)?;
        Ok(tasks.tasks.into_iter().map(ToOwned::to_owned).collect())
    };
    let tasks = raw(&one)?.into_iter().chain(raw(&other)?);
    let (one, other) = (one.value, other.value);
    let mut tasks: Vec<_> = one.tasks.into_iter().chain(other.tasks).zip(tasks).collect();
    tasks.sort_by_key(|(task, _)| std::cmp::Reverse(task.at));
    let next = one.next.or(other.next).or_else(|| (tasks.len() > limit).then(String::new));
    tasks.truncate(limit);
    let total = one.total.zip(other.total).map(|(one, other)| one + other);
    let (tasks, raw): (Vec<_>, Vec<_>) = tasks.into_iter().unzip();
    let json = json!({ "tasks": raw, "nextPageToken": "", "pageSize": limit, "totalSize": total });
    let json = serde_json::value::to_raw_value(&json).map_err(std::io::Error::other)?;
    Ok(A2aResponse { value: TaskList { tasks, next, total }, json })
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
