//! The operator's access to tasks of any tenant.

use super::{ADMIN_TASKS, reaches};
use crate::{
    access::{AccessKind, Action, Caller, Grant, Grants, TASKS, tenant_of},
    authorization::open_authorization,
    clock::Timestamp,
    commands::list::{MAX_PAGE, read_token, write_token},
    engine::{Engine, EngineCore},
    error::Error,
    question::Answer,
    sent_by::SentBy,
    store::{ListCursor, TaskKey, TaskRow},
    task::{State, Task, TaskId},
    task_header::TaskHeader,
    tenant_store::TenantTasks,
};

/// A filter and a page position for listing tasks.
#[derive(Debug, Clone, Default)]
pub struct AdminList {
    /// Only tasks of this tenant; `None`: of all that the caller may access.
    pub tenant: Option<String>,
    /// Only tasks of this owner.
    pub owner: Option<String>,
    /// Only tasks that have not ended.
    pub live: bool,
    /// Only tasks in this state.
    pub state: Option<State>,
    /// Only tasks of this agent.
    pub agent: Option<String>,
    /// The token of the previous page.
    pub page_token: Option<String>,
    /// The maximum number of tasks; 1 to [`MAX_PAGE`].
    pub page_size: usize,
}

/// What the operator sees of a task: everything but its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminTask {
    /// The task's id.
    pub id: TaskId,
    /// The owner: the caller that created it.
    pub owner: String,
    /// The conversation it belongs to.
    pub context: String,
    /// The agent that works on it.
    pub agent: String,
    /// The task that called it, if any.
    pub parent: Option<TaskId>,
    /// The current state.
    pub state: State,
    /// When the current state was entered.
    pub status_at: Timestamp,
    /// The time of creation.
    pub created_at: Timestamp,
    /// Whether cancelling was requested.
    pub cancel: bool,
    /// The id of the token with which it was created, if this server issued it.
    pub credential: Option<String>,
}

impl AdminTask {
    pub(super) fn of(row: &TaskRow) -> Result<Self, Error> {
        Ok(Self {
            id: row.id,
            owner: row.owner.clone(),
            context: row.context.clone(),
            agent: row.agent.clone(),
            parent: row.parent,
            state: row.state,
            status_at: row.status_at,
            created_at: row.created_at,
            cancel: row.cancel,
            credential: TaskHeader::decode(&row.head)?.credential,
        })
    }
}

/// A page of tasks.
#[derive(Debug, Clone)]
pub struct AdminPage {
    /// The tasks, newest status first.
    pub tasks: Vec<AdminTask>,
    /// Where the next page begins; `None` after the last page.
    pub next_page_token: Option<String>,
}

impl Engine {
    /// A page of tasks of a tenant, or of all, newest status first.
    pub async fn admin_list(&self, caller: &Caller, list: AdminList) -> Result<AdminPage, Error> {
        let resource = format!("admin://tasks?tenant={}", list.tenant.as_deref().unwrap_or("*"));
        self.allow_admin(caller, Action::Read, ADMIN_TASKS, "admin.task.list", &resource)?;
        if !(1..=MAX_PAGE).contains(&list.page_size) {
            return Err(Error::Invalid(format!("pageSize: a page has 1 to {MAX_PAGE} tasks")));
        }
        let token = list.page_token.filter(|token| !token.is_empty());
        let after = token.map(|token| read_token(&token)).transpose()?;
        let tenant = match list.tenant {
            Some(tenant) if !reaches(caller, &tenant) => {
                return Ok(AdminPage { tasks: vec![], next_page_token: None });
            }
            None if !reaches(caller, "") => Some(caller.tenant().to_owned()),
            tenant => tenant,
        };
        let query = TenantTasks {
            tenant,
            owner: list.owner,
            live: list.live,
            state: list.state,
            agent: list.agent,
            after,
            // One more, to know whether there is a next page.
            limit: list.page_size + 1,
        };
        let permit = self.0.list_permit(caller).await?;
        let mut rows = self.0.store.tenants().tenant_tasks(&query).await?;
        drop(permit);
        let more = rows.len() > list.page_size;
        rows.truncate(list.page_size);
        let last = rows.last().filter(|_| more);
        let next = last.map(|row| write_token(ListCursor { status_at: row.status_at, no: row.no }));
        let tasks = rows.iter().map(AdminTask::of).collect::<Result<_, _>>()?;
        Ok(AdminPage { tasks, next_page_token: next })
    }

    /// The current state of a task of any tenant.
    pub async fn admin_get(
        &self,
        caller: &Caller,
        tenant: Option<&str>,
        task: &str,
    ) -> Result<(AdminTask, Task), Error> {
        self.allow_admin(caller, Action::Read, ADMIN_TASKS, "admin.task.get", &address(tenant, task))?;
        let row = self.0.reach(caller, tenant, task).await?;
        let opened = self.0.store.open(&TaskKey::Id(row.id)).await?;
        let opened = opened.ok_or_else(|| Error::NoSuchTask(task.to_owned()))?;
        Ok((AdminTask::of(&opened.row)?, self.0.fold(&opened).await?))
    }

    /// The caller to read a task as: itself for its own task, and for a task that it may administer the task's owner, who
    /// may read tasks and nothing else. [`Error::NoSuchTask`] where neither is so.
    pub async fn admin_reader(&self, caller: &Caller, task: &str) -> Result<Caller, Error> {
        let own = TaskId::parse(task).is_none() || !caller.may(Action::Read, AccessKind::Admin, ADMIN_TASKS);
        if own || self.0.find_own(caller, task).await? {
            return Ok(caller.clone());
        }
        self.allow_admin(caller, Action::Read, ADMIN_TASKS, "admin.task.get", &address(None, task))?;
        let row = self.0.reach(caller, None, task).await?;
        let reading = Grants::only([Grant::of(&[Action::Read], AccessKind::A2a, TASKS)]);
        // The audit's lines of what follows name the owner, and here by whom it was read.
        let by = format!("admin:{}", caller.owner());
        let owner = Caller::named(row.owner.as_str()).limited_to(reading).with_credential(by);
        Ok(match caller.address() {
            Some(address) => owner.from_address(address),
            None => owner,
        })
    }

    /// Cancels a task of any tenant; returns when it has ended, or after the grace period.
    pub async fn admin_cancel(
        &self,
        caller: &Caller,
        tenant: Option<&str>,
        task: &str,
    ) -> Result<(AdminTask, Task), Error> {
        self.allow_admin(caller, Action::Write, ADMIN_TASKS, "admin.task.cancel", &address(tenant, task))?;
        let row = self.0.reach(caller, tenant, task).await?;
        let owner = Caller::named(row.owner.as_str());
        let by = SentBy::of(caller, &row.owner);
        let task = self.0.cancel_for(&owner, &row.id.to_string(), by).await?;
        let now = TaskRow { state: task.state, status_at: task.status_at, cancel: true, ..row };
        Ok((AdminTask::of(&now)?, task))
    }

    /// Answers the authorization that a task of any tenant waits for: the one of that id, else the oldest.
    pub async fn admin_authorize(
        &self,
        caller: &Caller,
        tenant: Option<&str>,
        task: &str,
        question: Option<&str>,
        answer: &Answer,
    ) -> Result<(AdminTask, Task), Error> {
        let resource = address(tenant, task);
        self.allow_admin(caller, Action::Write, ADMIN_TASKS, "admin.task.authorize", &resource)?;
        let row = self.0.reach(caller, tenant, task).await?;
        let unknown = || Error::NoSuchTask(task.to_owned());
        let opened = self.0.store.open(&TaskKey::Id(row.id)).await?.ok_or_else(unknown)?;
        let asked = open_authorization(&self.0.fold(&opened).await?, question)?.id.clone();
        let (owner, name) = (Caller::named(row.owner.as_str()), row.id.to_string());
        let by = SentBy::of(caller, &row.owner);
        let task = self.0.answer_past_client(&owner, &name, &asked, answer, ("operator", by)).await?;
        let now = TaskRow { state: task.state, status_at: task.status_at, ..row };
        Ok((AdminTask::of(&now)?, task))
    }

    /// Deletes a finished task of any tenant, with all its data.
    pub async fn admin_delete(
        &self,
        caller: &Caller,
        tenant: Option<&str>,
        task: &str,
    ) -> Result<AdminTask, Error> {
        self.allow_admin(caller, Action::Write, ADMIN_TASKS, "admin.task.delete", &address(tenant, task))?;
        let row = self.0.reach(caller, tenant, task).await?;
        if !row.state.is_terminal() {
            return Err(Error::Invalid(format!(
                "task {} has not ended ({}): cancel it first, then delete it",
                row.id,
                row.state.name()
            )));
        }
        self.0.delete_tasks(std::slice::from_ref(&row)).await?;
        AdminTask::of(&row)
    }
}

impl EngineCore {
    /// The task of that id, if the administrator may access it.
    pub(super) async fn reach(
        &self,
        caller: &Caller,
        tenant: Option<&str>,
        task: &str,
    ) -> Result<TaskRow, Error> {
        let unknown = || Error::NoSuchTask(task.chars().take(64).collect());
        let id = TaskId::parse(task).ok_or_else(unknown)?;
        let row = self.store.row(&TaskKey::Id(id)).await?.ok_or_else(unknown)?;
        let of = tenant_of(&row.owner);
        match reaches(caller, of) && tenant.is_none_or(|tenant| tenant == of) {
            true => Ok(row),
            false => Err(unknown()),
        }
    }

    /// Whether the task of that id is the caller's own.
    pub(super) async fn find_own(&self, caller: &Caller, task: &str) -> Result<bool, Error> {
        let Some(id) = TaskId::parse(task) else { return Ok(false) };
        let row = self.store.row(&TaskKey::Id(id)).await?;
        Ok(row.is_some_and(|row| caller.sees_task(&row.owner, &row.agent)))
    }

    /// Deletes tasks from the store, and from the caches of all nodes.
    pub(super) async fn delete_tasks(&self, rows: &[TaskRow]) -> Result<u64, Error> {
        let numbers: Vec<_> = rows.iter().map(|row| row.no).collect();
        let deleted = self.store.tenants().delete_tasks(&numbers).await?;
        for row in rows {
            self.forget_ended(row.id);
            self.store.knowledge().notify_nodes(format!("-{}\n{}", tenant_of(&row.owner), row.id));
            if let Some(run) = self.local_run(row.id) {
                run.cancel();
            }
        }
        Ok(deleted)
    }
}

fn address(tenant: Option<&str>, task: &str) -> String {
    match tenant {
        Some(tenant) => format!("admin://tasks/{task}?tenant={tenant}"),
        None => format!("admin://tasks/{task}"),
    }
}
