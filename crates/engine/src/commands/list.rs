//! Lists a caller's tasks, newest status first, in pages.

use crate::{
    access::Caller,
    clock::Timestamp,
    engine::Inner,
    error::Error,
    store::{ListCursor, ListQuery, TaskNo},
    task::{State, Task},
};

/// The most tasks on one page.
pub const MAX_PAGE: usize = 100;

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

impl Inner {
    pub(crate) async fn list(&self, caller: &Caller, list: List) -> Result<Listed, Error> {
        if !(1..=MAX_PAGE).contains(&list.page_size) {
            return Err(Error::Invalid(format!("pageSize: a page has 1 to {MAX_PAGE} tasks")));
        }
        let after =
            list.page_token.filter(|token| !token.is_empty()).map(|token| read_token(&token)).transpose()?;
        let query = ListQuery {
            owner: caller.owner().to_owned(),
            context: list.context,
            state: list.state,
            agent: list.agent,
            since: list.since,
            after,
            limit: list.page_size,
        };
        let page = self.store.list(&query).await?;
        let mut tasks = Vec::with_capacity(page.tasks.len());
        for opened in &page.tasks {
            tasks.push(self.fold(opened).await?);
        }
        Ok(Listed { tasks, next_page_token: page.next.map(write_token), total: page.total })
    }
}

fn write_token(cursor: ListCursor) -> String {
    format!("{:x}.{:x}", cursor.status_at.0, cursor.no.0)
}

fn read_token(token: &str) -> Result<ListCursor, Error> {
    let parsed = token.split_once('.').and_then(|(at, no)| {
        Some(ListCursor {
            status_at: Timestamp(i64::from_str_radix(at, 16).ok()?),
            no: TaskNo(i64::from_str_radix(no, 16).ok()?),
        })
    });
    parsed.ok_or_else(|| Error::Invalid("pageToken: not a token that this server gave".into()))
}
