//! Tasks of any tenant, for the operator: `--tenant` calls the server of the data folder with the operator
//! token. `rows` prints their list.

use std::path::PathBuf;

use clap::Args;
use nuncio_engine::task::State;
use serde_json::{Value, json};

use super::rows::{RowOwners, ShownTask, add_details, task_blocks, task_table};
use crate::{
    console_client::ConsoleClient,
    error::CliError,
    operator::{OperatorBackend, OperatorServer},
    output::{self, Format, note},
    program, server,
    server_connection::quoted,
    text::{TextOutput, state_name},
};

#[derive(Args, Debug, Clone)]
pub(crate) struct TenantTaskFlags {
    /// As the operator: all tasks of this tenant, of any owner. Calls the server of the data folder
    #[arg(long, value_name = "TENANT", conflicts_with_all = ["agent_card", "bearer"])]
    pub(super) tenant: Option<String>,
    /// The data folder of the server, with --tenant. Default: the one that `nuncio serve` would use here
    #[arg(long, value_name = "DIR", requires = "tenant")]
    pub(super) data: Option<PathBuf>,
}

pub(super) struct OperatorTaskQuery {
    pub(super) agent: Option<String>,
    /// Those in one of these states; none: in any.
    pub(super) states: Vec<State>,
    pub(super) verbose: bool,
    pub(super) page_size: usize,
    pub(super) page_token: Option<String>,
}

/// Where tasks in several states are listed and do not fit a page: each state has pages of its own.
pub(super) const MORE_OF_SEVERAL: &str =
    "There are more: --limit shows more of them, and with one --state there are pages.";

/// The requests that a list of these states needs: one for each, or one for any state.
pub(super) fn each_state(states: &[State]) -> Vec<Option<State>> {
    match states {
        [] => vec![None],
        states => states.iter().copied().map(Some).collect(),
    }
}

pub(super) async fn list(
    flags: &TenantTaskFlags,
    format: Format,
    wanted: OperatorTaskQuery,
) -> Result<(), CliError> {
    let tenant = flags.tenant.clone().unwrap_or_default();
    let server = server(flags).await?;
    let mut pages = vec![];
    for state in each_state(&wanted.states) {
        let mut query = vec![("tenant", tenant.clone()), ("pageSize", wanted.page_size.to_string())];
        query.extend(wanted.agent.clone().map(|agent| ("agent", agent)));
        query.extend(state.map(|state| ("state", state_name(state).to_owned())));
        query.extend(wanted.page_token.clone().map(|token| ("pageToken", token)));
        pages.push(server.get("/admin/tasks", &query).await?);
    }
    let has_more = pages.iter().any(|page| page["nextPageToken"].is_string());
    let mut page = pages.pop().unwrap_or_default();
    if !pages.is_empty() {
        let all = pages.iter().chain([&page]).filter_map(|page| page["tasks"].as_array()).flatten();
        let mut all: Vec<Value> = all.cloned().collect();
        all.sort_by(|one, other| other["statusAt"].as_str().cmp(&one["statusAt"].as_str()));
        let is_cut = has_more || all.len() > wanted.page_size;
        all.truncate(wanted.page_size);
        page = json!({ "tasks": all, "nextPageToken": null });
        if is_cut {
            note(MORE_OF_SEVERAL);
        }
    }
    if format == Format::Json {
        return output::json_text(&page.to_string());
    }
    let tasks = page["tasks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text_of = |task: &Value, member: &str| task[member].as_str().map(str::to_owned);
    let mut rows: Vec<ShownTask> = tasks
        .iter()
        .map(|task| ShownTask {
            id: text_of(task, "id").unwrap_or_default(),
            agent: text_of(task, "agent"),
            owner: text_of(task, "owner"),
            token: text_of(task, "token"),
            state: text_of(task, "state").unwrap_or_default(),
            status_at: text_of(task, "statusAt"),
            ..ShownTask::default()
        })
        .collect();
    let console = ConsoleClient::of_folder(flags.data.clone())?;
    add_details(&console, &mut rows, RowOwners::All).await;
    let mut text = TextOutput(if wanted.verbose { task_blocks(&rows) } else { task_table(&rows) });
    if let Some(next) = page["nextPageToken"].as_str() {
        let agent = wanted.agent.map(|agent| format!(" --agent {agent}")).unwrap_or_default();
        let state: String =
            wanted.states.iter().map(|state| format!(" --state {}", state_name(*state))).collect();
        let data = data_flag(flags);
        let command = format!("{} task list --tenant {tenant}{data}{agent}{state}", program());
        text.field("Next", &format!("{command} --limit {} --page-token {next}", wanted.page_size));
    }
    output::text(&text.0)
}

pub(super) fn data_flag(flags: &TenantTaskFlags) -> String {
    let quote = |data: &PathBuf| format!(" --data {}", quoted(&data.display().to_string()));
    flags.data.as_ref().map(quote).unwrap_or_default()
}

/// An agent names no task here: a tenant's task is named by its id alone.
pub(super) fn refuse_agent(agent: Option<&str>) -> Result<(), CliError> {
    match agent {
        None => Ok(()),
        Some(_) => {
            Err(CliError::Usage("--agent and --tenant do not go together here: leave out --agent".into()))
        }
    }
}

pub(super) async fn get(flags: &TenantTaskFlags, format: Format, task: &str) -> Result<(), CliError> {
    let tenant = flags.tenant.clone().unwrap_or_default();
    let found = server(flags).await?.get(&path(task), &[("tenant", tenant)]).await?;
    show(format, &found)
}

pub(super) async fn cancel(flags: &TenantTaskFlags, format: Format, task: &str) -> Result<(), CliError> {
    let at = format!("{}/cancel{}", path(task), of_tenant(flags));
    show(format, &server(flags).await?.post(&at, &Value::Null).await?)
}

pub(super) async fn authorize(
    flags: &TenantTaskFlags,
    format: Format,
    task: &str,
    question: Option<&str>,
    decline: bool,
) -> Result<(), CliError> {
    let mut at = format!("{}/authorize{}", path(task), of_tenant(flags));
    if let Some(question) = question {
        at.push_str(&format!("&question={}", encoded(question)));
    }
    if decline {
        at.push_str("&answer=decline");
    }
    show(format, &server(flags).await?.post(&at, &Value::Null).await?)
}

pub(super) async fn delete(flags: &TenantTaskFlags, format: Format, task: &str) -> Result<(), CliError> {
    let at = format!("{}{}", path(task), of_tenant(flags));
    show(format, &server(flags).await?.delete(&at).await?)
}

async fn server(flags: &TenantTaskFlags) -> Result<OperatorServer, CliError> {
    OperatorBackend::find(&server::configured_for(flags.data.clone())).await?.server().await
}

fn path(task: &str) -> String {
    format!("/admin/tasks/{}", encoded(task))
}

fn of_tenant(flags: &TenantTaskFlags) -> String {
    format!("?tenant={}", encoded(flags.tenant.as_deref().unwrap_or_default()))
}

fn encoded(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

fn show(format: Format, task: &Value) -> Result<(), CliError> {
    if format == Format::Json {
        return output::json_text(&task.to_string());
    }
    let mut text = TextOutput::default();
    for (label, member) in [
        ("Task", "id"),
        ("State", "state"),
        ("Since", "statusAt"),
        ("Agent", "agent"),
        ("Owner", "owner"),
        ("Context", "contextId"),
        ("Token", "token"),
        ("Parent", "parent"),
    ] {
        if let Some(value) = task[member].as_str() {
            text.field(label, value);
        }
    }
    if task["deleted"] == true {
        text.field("Deleted", "yes");
    }
    output::text(&text.0)
}
