//! Selections: sets of tasks that a filter matched at one time, so that an act on many tasks names exactly those that its
//! caller has seen counted, whatever happens to other tasks meanwhile.
//!
//! A selection is a record in the store, good on every node and after a restart. It belongs to the caller that made it: its
//! key is derived from the caller, so another one finds nothing under the same id. It expires. It gives no rights: an act
//! on one of its tasks is checked like an act on any task.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Engine, EngineCore, OverviewQuery, TaskOverview, overview};
use crate::{
    access::{Action, Caller},
    clock::Timestamp,
    error::Error,
    knowledge::ExpectedVersion,
    records::Records,
    store::TaskRow,
    task::TaskId,
};

const KIND: &str = "selection";
/// The rows that are shown of a new selection.
const EXAMPLES: usize = 20;
/// The tasks of one read.
const PAGE: usize = 1_000;

/// A set of tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// The id by which its caller names it.
    pub id: String,
    /// The tasks, newest status first.
    pub tasks: Vec<TaskId>,
    /// When they matched.
    pub as_of: Timestamp,
    /// Until when it can be used.
    pub expires_at: Timestamp,
}

/// A selection as it is stored.
#[derive(Serialize, Deserialize)]
struct StoredSelection {
    tasks: Vec<TaskId>,
    as_of: Timestamp,
    expires_at: Timestamp,
}

impl Engine {
    /// Freezes the tasks that a filter matches now; with them the first rows, to show. [`Error::Limit`] where they are
    /// more than `Limits::selected_tasks`. The query's position does not matter, nor does its limit.
    pub async fn create_selection(
        &self,
        caller: &Caller,
        query: &OverviewQuery,
    ) -> Result<(Selection, Vec<TaskOverview>), Error> {
        overview::check(query)?;
        // Allowed and audited as a list of these rows is.
        self.watch_overview(caller, query.scope.clone())?;
        let permit = self.0.list_permit(caller).await?;
        let as_of = self.0.clock.now();
        let mut rows = SelectedRows::default();
        self.0.select_rows(caller, query.clone(), &mut rows).await?;
        // A row whose status changed meanwhile has moved to the front, which was read before.
        let since = query.since.map_or(as_of, |since| since.max(as_of));
        self.0.select_rows(caller, OverviewQuery { since: Some(since), ..query.clone() }, &mut rows).await?;
        let examples = self.0.overviews_of(rows.examples).await?;
        drop(permit);
        let limits = &self.0.options.limits;
        let expires_at = as_of.after(limits.selection_life);
        let id = self.0.clock.new_id().to_string();
        let records: Records<StoredSelection> = self.records(KIND);
        let (tenant, of_caller) = (caller.tenant(), key(caller, ""));
        let earlier = records.page(Some(tenant), &of_caller, "", limits.selections_per_caller + PAGE).await?;
        let stored = StoredSelection { tasks: rows.tasks, as_of, expires_at };
        let mut write = records.put(tenant, &key(caller, &id), &stored, ExpectedVersion::Absent)?;
        write.expires_at = Some(expires_at);
        let mut writes = vec![write];
        // The oldest ones give way; ids are ordered by time.
        let surplus = (earlier.len() + 1).saturating_sub(limits.selections_per_caller.max(1));
        for old in &earlier[..surplus.min(earlier.len())] {
            writes.push(records.delete(tenant, &old.id, ExpectedVersion::Any));
        }
        self.write_records(writes).await?;
        Ok((Selection { id, tasks: stored.tasks, as_of, expires_at }, examples))
    }

    /// The selection of that id, if this caller made it and it has not expired.
    pub async fn selection(&self, caller: &Caller, id: &str) -> Result<Option<Selection>, Error> {
        self.allow_task(caller, Action::Read, "task.selection", "")?;
        // Records have ids of a limited length, and a selection has one of these.
        if TaskId::parse(id).is_none() {
            return Ok(None);
        }
        let records: Records<StoredSelection> = self.records(KIND);
        let found = records.get(caller.tenant(), &key(caller, id)).await?;
        Ok(found.map(|found| {
            let StoredSelection { tasks, as_of, expires_at } = found.value;
            Selection { id: id.to_owned(), tasks, as_of, expires_at }
        }))
    }
}

/// The rows that were found so far.
#[derive(Default)]
struct SelectedRows {
    known: HashSet<TaskId>,
    tasks: Vec<TaskId>,
    examples: Vec<TaskRow>,
}

impl EngineCore {
    async fn select_rows(
        &self,
        caller: &Caller,
        mut query: OverviewQuery,
        selected: &mut SelectedRows,
    ) -> Result<(), Error> {
        let most = self.options.limits.selected_tasks;
        (query.after, query.limit) = (None, PAGE.min(most.saturating_add(1)));
        // Each reads at most `MAX_ROWS_READ` rows.
        for _ in 0..self.options.limits.selection_reads {
            let page = self.matching_rows(caller, &query).await?;
            for row in page.rows {
                if !selected.known.insert(row.id) {
                    continue;
                }
                selected.tasks.push(row.id);
                if selected.examples.len() < EXAMPLES {
                    selected.examples.push(row);
                }
            }
            if selected.tasks.len() > most {
                let why = format!("more than {most} tasks match (console.selection): narrow the filter");
                return Err(Error::limit("console.selection", why));
            }
            match page.next {
                None => return Ok(()),
                next => query.after = next,
            }
        }
        Err(Error::limit(
            "console.selection-reads",
            "too many tasks have to be read to find those that match (console.selection-reads): narrow the filter, \
             for example by a state or a time",
        ))
    }
}

/// The id of a caller's selection among the records of its tenant.
fn key(caller: &Caller, id: &str) -> String {
    let digest = Sha256::digest(caller.owner());
    let owner: String = digest[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{owner}.{id}")
}
