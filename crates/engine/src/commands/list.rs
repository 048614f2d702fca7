//! Lists a caller's tasks, newest status first, in pages.

use crate::{
    access::Caller,
    clock::Timestamp,
    engine::Inner,
    error::Error,
    store::{ListCursor, ListQuery, TaskNo, TaskRow},
    task::{State, Task, TaskId},
};

/// The most tasks on one page.
pub const MAX_PAGE: usize = 100;
/// Tasks that are read from the store and folded at a time: they may be large.
const AT_ONCE: usize = 10;

/// Which tasks to list.
#[derive(Debug, Clone, Default)]
pub struct List {
    /// Only of this conversation.
    pub context: Option<String>,
    /// Only in this state.
    pub state: Option<State>,
    /// Only of this agent.
    pub agent: Option<String>,
    /// Only those whose status changed at or after this.
    pub since: Option<Timestamp>,
    /// Where the page before ended.
    pub page_token: Option<String>,
    /// How many tasks; 1 to [`MAX_PAGE`].
    pub page_size: usize,
    /// Leaves the artifacts out, for those who do not look at them: they may be large.
    pub without_artifacts: bool,
}

/// A page of tasks.
#[derive(Debug, Clone)]
pub struct Listed {
    /// The tasks.
    pub tasks: Vec<Task>,
    /// Where the next page begins; `None` after the last.
    pub next_page_token: Option<String>,
    /// How many tasks match, on all pages.
    pub total: u64,
}

/// A page of the ids of tasks.
#[derive(Debug, Clone)]
pub struct ListedIds {
    /// The ids.
    pub ids: Vec<TaskId>,
    /// Where the next page begins; `None` after the last.
    pub next_page_token: Option<String>,
}

/// A page of the rows of tasks.
#[derive(Debug, Clone)]
pub struct ListedRows {
    /// The rows.
    pub rows: Vec<TaskRow>,
    /// Where the next page begins; `None` after the last.
    pub next_page_token: Option<String>,
}

impl Inner {
    pub(crate) async fn list(&self, caller: &Caller, list: List) -> Result<Listed, Error> {
        let (size, bare) = (list.page_size, list.without_artifacts);
        let mut query = query(caller, list)?;
        let (mut tasks, mut total) = (Vec::with_capacity(size), None);
        loop {
            query.limit = AT_ONCE.min(size - tasks.len());
            let page = self.store.list(&query).await?;
            for opened in &page.tasks {
                let mut task = self.fold(opened).await?;
                if bare {
                    task.artifacts = vec![];
                }
                tasks.push(task);
            }
            let total = *total.get_or_insert(page.total);
            query.after = page.next;
            if page.next.is_none() || tasks.len() >= size {
                return Ok(Listed { tasks, next_page_token: page.next.map(write_token), total });
            }
        }
    }

    /// The rows alone: nothing is folded.
    pub(crate) async fn list_rows(&self, caller: &Caller, list: List) -> Result<ListedRows, Error> {
        let query = ListQuery { only_rows: true, ..query(caller, list)? };
        let page = self.store.list(&query).await?;
        let rows = page.tasks.into_iter().map(|opened| opened.row).collect();
        Ok(ListedRows { rows, next_page_token: page.next.map(write_token) })
    }

    /// The ids alone: nothing is folded.
    pub(crate) async fn list_ids(&self, caller: &Caller, list: List) -> Result<ListedIds, Error> {
        let query = ListQuery { only_rows: true, ..query(caller, list)? };
        let page = self.store.list(&query).await?;
        let ids = page.tasks.iter().map(|opened| opened.row.id).collect();
        Ok(ListedIds { ids, next_page_token: page.next.map(write_token) })
    }
}

fn query(caller: &Caller, list: List) -> Result<ListQuery, Error> {
    if !(1..=MAX_PAGE).contains(&list.page_size) {
        return Err(Error::Invalid(format!("pageSize: a page has 1 to {MAX_PAGE} tasks")));
    }
    let after =
        list.page_token.filter(|token| !token.is_empty()).map(|token| read_token(&token)).transpose()?;
    Ok(ListQuery {
        owner: caller.owner().to_owned(),
        context: list.context,
        state: list.state,
        agent: list.agent,
        since: list.since,
        after,
        limit: list.page_size,
        only_rows: false,
    })
}

pub(crate) fn write_token(cursor: ListCursor) -> String {
    format!("{:x}.{:x}", cursor.status_at.0, cursor.no.0)
}

pub(crate) fn read_token(token: &str) -> Result<ListCursor, Error> {
    let parsed = token.split_once('.').and_then(|(at, no)| {
        Some(ListCursor {
            status_at: Timestamp(i64::from_str_radix(at, 16).ok()?),
            no: TaskNo(i64::from_str_radix(no, 16).ok()?),
        })
    });
    parsed.ok_or_else(|| Error::Invalid("pageToken: not a token that this server gave".into()))
}
