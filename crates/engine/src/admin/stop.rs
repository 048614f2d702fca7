//! Bulk cancelling of tasks: those of a token, or of a tenant.

use std::sync::Arc;

use futures_util::{StreamExt as _, stream};

use crate::{
    access::Caller,
    commands::cancel::{Workplace, decide_cancel_request},
    engine::EngineCore,
    error::Error,
    sent_by::SentBy,
    store::{ListCursor, TaskKey, TaskRow},
    task::TaskId,
    task_header::TaskHeader,
    tenant_store::TenantTasks,
};

/// The page size when reading tasks.
const PAGE: usize = 256;
/// The number of tasks canceled concurrently.
const AT_ONCE: usize = 32;
/// How often a decision is retried because the task has changed.
const DECIDE_AGAIN: usize = 32;

/// Which tasks to cancel.
pub(super) enum CancelTarget<'a> {
    /// Tasks created with this token of an owner, and the tasks that they called.
    Token { owner: &'a str, id: &'a str },
    /// A tenant's tasks that run, or wait to run. Tasks that wait for an answer keep waiting: while the
    /// tenant is suspended, no caller can answer.
    Running(&'a str),
    /// All tasks of a tenant that have not ended.
    Tenant(&'a str),
}

/// The result of one pass.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CancelPass {
    /// Tasks that had not ended.
    pub(super) found: u64,
    /// Tasks whose cancelling this pass was the first to request.
    pub(super) canceled: u64,
}

impl EngineCore {
    /// Requests the cancelling of every task of the target, once, and waits for none of them: there may be
    /// many, and an agent that does not react is dropped after the grace period.
    ///
    /// Tasks that no other task called go first: an agent whose called task ends before it does would
    /// continue, and call another.
    pub(super) async fn cancel_all(self: &Arc<Self>, target: &CancelTarget<'_>) -> Result<CancelPass, Error> {
        let roots = self.cancel_some(target, true).await?;
        let called = self.cancel_some(target, false).await?;
        Ok(CancelPass { found: roots.found + called.found, canceled: roots.canceled + called.canceled })
    }

    async fn cancel_some(
        self: &Arc<Self>,
        target: &CancelTarget<'_>,
        roots: bool,
    ) -> Result<CancelPass, Error> {
        let mut pass = CancelPass::default();
        let mut query = TenantTasks { live: true, limit: PAGE, ..TenantTasks::default() };
        match target {
            CancelTarget::Token { owner, .. } => query.owner = Some((*owner).to_owned()),
            CancelTarget::Running(tenant) | CancelTarget::Tenant(tenant) => {
                query.tenant = Some((*tenant).to_owned());
            }
        }
        loop {
            let rows = self.store.tenants().tenant_tasks(&query).await?;
            let Some(last) = rows.last() else { return Ok(pass) };
            query.after = Some(ListCursor { status_at: last.status_at, no: last.no });
            let meant = rows.iter().filter(|row| row.parent.is_none() == roots && target.means(row));
            let meant: Vec<TaskId> = meant.map(|row| row.id).collect();
            let begin = |id: TaskId| {
                let engine = Arc::clone(self);
                async move { (id, engine.begin_cancel(id).await) }
            };
            let mut asked = stream::iter(meant.into_iter().map(begin)).buffer_unordered(AT_ONCE);
            while let Some((id, asked)) = asked.next().await {
                pass.found += 1;
                match asked {
                    Ok(first) => pass.canceled += u64::from(first),
                    // It is found again by the next pass, and keeps no other task from being canceled.
                    Err(error) => {
                        tracing::warn!(task = %id, %error, "a task could not be canceled; retrying");
                    }
                }
            }
        }
    }

    /// Requests the cancelling of a task, or ends it if no agent works on it; returns whether this call was
    /// the first.
    async fn begin_cancel(self: &Arc<Self>, id: TaskId) -> Result<bool, Error> {
        for _ in 0..DECIDE_AGAIN {
            let Some(opened) = self.store.open(&TaskKey::Id(id)).await? else { return Ok(false) };
            let row = &opened.row;
            if row.state.is_terminal() {
                return Ok(false);
            }
            let workplace = self.workplace(row);
            let by = SentBy::of(&Caller::local().over("operator"), &row.owner);
            if workplace == Workplace::Nowhere {
                let mut task = self.fold(&opened).await?;
                match self.cancel_at_rest(row, &mut task, true, by).await? {
                    true => return Ok(true),
                    false => continue,
                }
            }
            if row.cancel {
                return Ok(false);
            }
            let decision = decide_cancel_request(row, workplace, by, self.clock.now());
            // A header that cannot be decoded must not keep the operator from stopping the task.
            let origin = TaskHeader::decode(&row.head).unwrap_or_default().origin(row);
            if self.commit_command(&origin, &row.id.to_string(), decision).await?.is_none() {
                continue;
            }
            return Ok(true);
        }
        // It changes faster than this loop; the next pass finds it again.
        Ok(false)
    }
}

impl CancelTarget<'_> {
    fn means(&self, row: &TaskRow) -> bool {
        match self {
            // A header that cannot be decoded names no token.
            Self::Token { id, .. } => {
                TaskHeader::decode(&row.head).is_ok_and(|head| head.credential.as_deref() == Some(*id))
            }
            Self::Running(_) => !row.state.is_interrupted(),
            Self::Tenant(_) => true,
        }
    }
}
