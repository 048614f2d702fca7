//! Lists a caller's tasks, newest status first, in pages.

use crate::{
    access::Caller,
    clock::Timestamp,
    engine::EngineCore,
    error::Error,
    finished_cache,
    outline::OutlinedTask,
    store::{ListCursor, ListQuery, TaskKey, TaskNo, TaskRow},
    task::{State, Task, TaskId},
    task_header,
};

/// The maximum number of tasks on one page.
pub const MAX_PAGE: usize = 100;
/// How many bytes of storage are read for one page (at least one task).
const PAGE_READ: usize = 16 * 1024 * 1024;

/// A filter and a page position for listing tasks.
#[derive(Debug, Clone, Default)]
pub struct List {
    /// Only tasks of this conversation.
    pub context: Option<String>,
    /// Only tasks in this state.
    pub state: Option<State>,
    /// Only tasks of this agent.
    pub agent: Option<String>,
    /// Only tasks whose status changed at or after this time.
    pub since: Option<Timestamp>,
    /// The token of the previous page.
    pub page_token: Option<String>,
    /// The maximum number of tasks; 1 to [`MAX_PAGE`]. A page of large tasks has fewer.
    pub page_size: usize,
    /// Leaves out artifacts, which may be large.
    pub without_artifacts: bool,
    /// The maximum number of latest messages of each task; `None`: all.
    pub history: Option<usize>,
}

/// A page of tasks.
#[derive(Debug, Clone)]
pub struct FoldedTaskPage {
    /// The tasks, newest status first.
    pub tasks: Vec<Task>,
    /// Where the next page begins; `None` after the last page.
    pub next_page_token: Option<String>,
    /// How many tasks match, on all pages.
    pub total: u64,
}

/// A page of the ids of tasks.
#[derive(Debug, Clone)]
pub struct TaskIdPage {
    /// The ids, newest status first.
    pub ids: Vec<TaskId>,
    /// Where the next page begins; `None` after the last page.
    pub next_page_token: Option<String>,
}

/// A page of the rows of tasks.
#[derive(Debug, Clone)]
pub struct TaskRowPage {
    /// The rows, newest status first.
    pub rows: Vec<TaskRow>,
    /// Where the next page begins; `None` after the last page.
    pub next_page_token: Option<String>,
}

impl EngineCore {
    /// A page ends early if it holds as many bytes as a page may, or if that many were read for it.
    pub(crate) async fn list(&self, caller: &Caller, list: List) -> Result<FoldedTaskPage, Error> {
        let (whole, history) = (!list.without_artifacts, list.history);
        let page = self.store.list(&query(caller, list)?).await?;
        let mut listed =
            FoldedTaskPage { tasks: vec![], next_page_token: page.next.map(write_token), total: page.total };
        let page_bytes = self.options.page_bytes;
        let (mut shown, mut read, mut before) = (0, 0, None);
        for opened in page.tasks {
            let row = opened.row;
            let weight = task_header::weight(&row.head);
            let is_full = shown >= page_bytes || read >= PAGE_READ || (whole && shown + weight > page_bytes);
            if let Some(before) = before
                && is_full
            {
                listed.next_page_token = Some(write_token(before));
                break;
            }
            before = Some(ListCursor { status_at: row.status_at, no: row.no });
            let Some(found) = self.listed(caller, &row, whole, history).await? else { continue };
            read += found.read;
            shown += finished_cache::size(&found.task) as u64;
            listed.tasks.push(found.task);
        }
        Ok(listed)
    }

    /// One task of a list; `None` if it was deleted meanwhile.
    async fn listed(
        &self,
        caller: &Caller,
        row: &TaskRow,
        whole: bool,
        history: Option<usize>,
    ) -> Result<Option<OutlinedTask>, Error> {
        if let Some(task) = self.finished(row.id) {
            let mut task = if whole { Task::clone(&task) } else { task_header::outline_of(&task) };
            task_header::shorten(&mut task, history);
            return Ok(Some(OutlinedTask { task, read: 0 }));
        }
        let _permit = self.reserve_for(caller, row).await?;
        if !whole {
            return self.outline(row, history).await;
        }
        let Some(opened) = self.store.open(&TaskKey::Id(row.id)).await? else { return Ok(None) };
        let mut task = self.fold(&opened).await?;
        task_header::shorten(&mut task, history);
        let log = opened.log.iter().map(|batch| batch.bytes.len()).sum::<usize>();
        let read = log + opened.snapshot.map_or(0, |(_, bytes)| bytes.len());
        Ok(Some(OutlinedTask { task, read }))
    }

    /// Reads only rows: nothing is folded.
    pub(crate) async fn list_rows(&self, caller: &Caller, list: List) -> Result<TaskRowPage, Error> {
        let page = self.store.list(&query(caller, list)?).await?;
        let rows = page.tasks.into_iter().map(|opened| opened.row).collect();
        Ok(TaskRowPage { rows, next_page_token: page.next.map(write_token) })
    }

    /// Reads only ids: nothing is folded.
    pub(crate) async fn list_ids(&self, caller: &Caller, list: List) -> Result<TaskIdPage, Error> {
        let page = self.store.list(&query(caller, list)?).await?;
        let ids = page.tasks.iter().map(|opened| opened.row.id).collect();
        Ok(TaskIdPage { ids, next_page_token: page.next.map(write_token) })
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
        agent: caller.only_agent().map(str::to_owned).or(list.agent),
        since: list.since,
        after,
        limit: list.page_size,
        only_rows: true,
    })
}

/// The text of a cursor, for clients.
pub fn write_token(cursor: ListCursor) -> String {
    format!("{:x}.{:x}", cursor.status_at.0, cursor.no.0)
}

/// Reads the text of a cursor.
pub fn read_token(token: &str) -> Result<ListCursor, Error> {
    let parsed = token.split_once('.').and_then(|(at, no)| {
        Some(ListCursor {
            status_at: Timestamp(i64::from_str_radix(at, 16).ok()?),
            no: TaskNo(i64::from_str_radix(no, 16).ok()?),
        })
    });
    parsed.ok_or_else(|| Error::Invalid("pageToken: not a token that this server issued".into()))
}
