//! Overviews of tasks: rows without a fold, newest status first, filtered by sets of states and agents.
//!
//! A list of a protocol shows whole tasks of one caller. An overview shows many rows at once, to a person or a program
//! that looks for one of them, and of a whole tenant to callers that may administer its tasks. It reads no more than it
//! shows: the row, and for each the first words of its log.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use crate::{
    access::{Action, Caller, tenant_of},
    admin::{ADMIN_TASKS, reaches},
    clock::Timestamp,
    commands::{fork::ForkPoint, list::MAX_PAGE},
    content::{Content, Message},
    engine::{Engine, EngineCore},
    error::Error,
    event::{self, Entry, Event},
    store::{ListCursor, ListQuery, NodeId, TaskKey, TaskNo, TaskRow, TaskTally},
    task::{Origin, State, TaskId},
    task_header::TaskHeader,
    tenant_store::TenantTasks,
};

/// The maximum number of agents in one filter.
pub const MAX_FILTER_AGENTS: usize = 16;
/// The maximum number of rows that are considered for one page where a filter has to read rows to decide. What is read beyond
/// is one read ahead for each pair of a state and an agent.
pub const MAX_ROWS_READ: usize = 2_000;
/// How many rows a page reads at once where a filter has to read rows to decide, whatever its limit; and the least that one of
/// several reads has.
const ROWS_AT_ONCE: usize = 200;
const MIN_ROWS_AT_ONCE: usize = 16;
/// The maximum number of characters of a row's texts.
const TEXT_CHARS: usize = 160;
/// The maximum number of tasks above a task, and of tasks that it called, in its family.
const MAX_CALLERS: usize = 64;
const MAX_CALLED: usize = 200;
/// How many bytes of logs are read for the texts of one page. Rows after that have none.
const TEXT_READ: usize = 8 * 1024 * 1024;

/// Whose tasks an overview shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum OverviewScope {
    /// The caller's own.
    #[default]
    Own,
    /// Those of one owner whom the caller may administer, for callers with the scope `read:admin:tasks`.
    Owner(String),
    /// All that the caller may administer, with the scope `read:admin:tasks`: those of its tenant, and of all tenants if
    /// the caller is of the home tenant.
    Administered,
}

/// A filter and a page position. An empty set of states or agents means all.
#[derive(Debug, Clone, Default)]
pub struct OverviewQuery {
    /// Whose tasks.
    pub scope: OverviewScope,
    /// Only tasks in one of these states.
    pub states: Vec<State>,
    /// Only tasks of one of these agents; at most [`MAX_FILTER_AGENTS`].
    pub agents: Vec<String>,
    /// Only tasks of this conversation.
    pub context: Option<String>,
    /// Only tasks that no task called.
    pub roots: bool,
    /// Only tasks whose status changed at or after this time.
    pub since: Option<Timestamp>,
    /// Only tasks whose status changed before this time.
    pub before: Option<Timestamp>,
    /// Only tasks whose id begins with this text.
    pub id_prefix: Option<String>,
    /// Continue after this position.
    pub after: Option<ListCursor>,
    /// The maximum number of rows; 1 to [`MAX_PAGE`].
    pub limit: usize,
}

/// What an overview shows of a task.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskOverview {
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
    /// The sequence number of its last event.
    pub seq: u64,
    /// The number of its leases so far.
    pub epoch: u64,
    /// The node that runs it at present.
    pub node: Option<NodeId>,
    /// Consecutive attempts that committed nothing new.
    pub attempts: u32,
    /// Whether cancelling was requested.
    pub cancel: bool,
    /// The beginning of the first message's text; `None` if it was not read.
    pub first_text: Option<String>,
    /// The beginning of the final message, of a task that failed or was rejected.
    pub why: Option<String>,
}

/// A page of rows.
#[derive(Debug, Clone)]
pub struct OverviewPage {
    /// The rows, newest status first.
    pub rows: Vec<TaskOverview>,
    /// Where the next page begins; `None` after the last page.
    pub next: Option<ListCursor>,
    /// How many tasks match on all pages; `None` where counting would read more than the page.
    pub total: Option<u64>,
    /// The counts by state and by agent, each under all filters but its own; `None` as for the total.
    pub facets: Option<OverviewFacets>,
}

/// Counts of tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OverviewFacets {
    /// By state.
    pub states: BTreeMap<State, u64>,
    /// By agent.
    pub agents: BTreeMap<String, u64>,
}

/// One task as an overview shows it, with what only its header knows.
#[derive(Debug, Clone)]
pub struct DetailedTask {
    /// The row.
    pub row: TaskOverview,
    /// The task's immutable attributes.
    pub origin: Origin,
    /// The version of the agent that began it.
    pub agent_version: String,
    /// How long its agent has run, without the time it waited.
    pub ran_ms: u64,
    /// The approximate size of its log in bytes.
    pub bytes: u64,
    /// Where it was forked off another task, if it was.
    pub forked_from: Option<ForkPoint>,
}

/// The tasks around a task.
#[derive(Debug, Clone, Default)]
pub struct TaskFamily {
    /// Those that called it, outermost first.
    pub callers: Vec<TaskOverview>,
    /// Those that it called, in the order of the calls.
    pub called: Vec<TaskOverview>,
    /// Whether it called more than these.
    pub is_cut: bool,
}

impl Engine {
    /// A page of rows.
    pub async fn overview(&self, caller: &Caller, query: &OverviewQuery) -> Result<OverviewPage, Error> {
        check(query)?;
        self.watch_overview(caller, query.scope.clone())?.read(query).await
    }

    /// Access to rows for as long as a stream lasts: allowed and audited once, as a follower of a task is, and not with
    /// each read.
    pub fn watch_overview(&self, caller: &Caller, scope: OverviewScope) -> Result<OverviewWatch, Error> {
        match scope {
            OverviewScope::Own => self.allow_task(caller, Action::Read, "task.list", "")?,
            OverviewScope::Owner(_) | OverviewScope::Administered => {
                let tenant = if reaches(caller, "") { "*" } else { caller.tenant() };
                let resource = format!("admin://tasks?tenant={tenant}");
                self.allow_admin(caller, Action::Read, ADMIN_TASKS, "admin.task.list", &resource)?;
            }
        }
        Ok(OverviewWatch { engine: Arc::clone(&self.0), caller: caller.clone(), scope })
    }

    /// One task with the details of its header.
    pub async fn task_details(&self, caller: &Caller, task: &str) -> Result<DetailedTask, Error> {
        self.allow_task(caller, Action::Read, "task.get", task)?;
        let row = self.0.find_row(caller, task).await?;
        let head = TaskHeader::decode(&row.head)?;
        let origin = head.origin(&row);
        let TaskHeader { agent_version, ran_ms, bytes, forked_from, .. } = head;
        let mut read = 0;
        let row = self.0.overview_of(row, &mut read).await?;
        Ok(DetailedTask { row, origin, agent_version, ran_ms, bytes, forked_from })
    }

    /// The tasks around a task, as far as the caller may see them.
    pub async fn task_family(&self, caller: &Caller, task: &str) -> Result<TaskFamily, Error> {
        self.allow_task(caller, Action::Read, "task.family", task)?;
        let row = self.0.find_row(caller, task).await?;
        let (mut family, mut read) = (TaskFamily::default(), 0);
        let mut parent = row.parent;
        // A chain of calls is bounded when it is made; this bounds a damaged one.
        while let Some(id) = parent.filter(|_| family.callers.len() < MAX_CALLERS) {
            let found = self.0.store.row(&TaskKey::Id(id)).await?;
            let Some(found) = found.filter(|found| caller.sees(&found.owner)) else { break };
            parent = found.parent;
            family.callers.push(self.0.overview_of(found, &mut read).await?);
        }
        family.callers.reverse();
        let mut called = self.0.store.children(row.id, MAX_CALLED + 1).await?;
        family.is_cut = called.len() > MAX_CALLED;
        called.truncate(MAX_CALLED);
        for found in called.into_iter().filter(|found| caller.sees(&found.owner)) {
            family.called.push(self.0.overview_of(found, &mut read).await?);
        }
        Ok(family)
    }
}

/// A caller's access to rows of one scope.
pub struct OverviewWatch {
    engine: Arc<EngineCore>,
    caller: Caller,
    scope: OverviewScope,
}

impl OverviewWatch {
    /// A page of rows, of the scope that access was granted to.
    pub async fn read(&self, query: &OverviewQuery) -> Result<OverviewPage, Error> {
        check(query)?;
        self.engine.admin.check_open(self.caller.tenant())?;
        let query = OverviewQuery { scope: self.scope.clone(), ..query.clone() };
        let _permit = self.engine.list_permit(&self.caller).await?;
        self.engine.overview(&self.caller, &query).await
    }
}

pub(super) fn check(query: &OverviewQuery) -> Result<(), Error> {
    if !(1..=MAX_PAGE).contains(&query.limit) {
        return Err(Error::Invalid(format!("limit: a page has 1 to {MAX_PAGE} rows")));
    }
    if query.agents.len() > MAX_FILTER_AGENTS {
        return Err(Error::Invalid(format!("agent: a filter has at most {MAX_FILTER_AGENTS} agents")));
    }
    Ok(())
}

impl EngineCore {
    async fn overview(&self, caller: &Caller, query: &OverviewQuery) -> Result<OverviewPage, Error> {
        let found = self.matching_rows(caller, query).await?;
        let rows = self.overviews_of(found.rows).await?;
        // Counters exist for an owner, its agents and its states, and for no other filter.
        let counted = query.scope == OverviewScope::Own
            && query.context.is_none()
            && query.since.is_none()
            && query.before.is_none()
            && query.id_prefix.is_none()
            && !query.roots;
        let (mut total, mut facets) = (None, None);
        if counted {
            let tally = self.store.tally(caller.owner()).await?;
            let tally =
                tally.into_iter().filter(|row| caller.only_agent().is_none_or(|only| only == row.agent));
            let tally: Vec<TaskTally> = tally.collect();
            let of_state = |row: &TaskTally| query.states.is_empty() || query.states.contains(&row.state);
            let of_agent = |row: &TaskTally| query.agents.is_empty() || query.agents.contains(&row.agent);
            let mut counts = OverviewFacets::default();
            let mut matching = 0;
            for row in &tally {
                if of_agent(row) {
                    *counts.states.entry(row.state).or_default() += row.count;
                }
                if of_state(row) {
                    *counts.agents.entry(row.agent.clone()).or_default() += row.count;
                }
                if of_agent(row) && of_state(row) {
                    matching += row.count;
                }
            }
            (total, facets) = (Some(matching), Some(counts));
        }
        Ok(OverviewPage { rows, next: found.next, total, facets })
    }

    pub(super) async fn overviews_of(&self, found: Vec<TaskRow>) -> Result<Vec<TaskOverview>, Error> {
        let (mut rows, mut read) = (Vec::with_capacity(found.len()), 0);
        for row in found {
            rows.push(self.overview_of(row, &mut read).await?);
        }
        Ok(rows)
    }

    /// The rows of a page: ordered reads for each pair of a state and an agent, merged. Every row is read once.
    pub(super) async fn matching_rows(
        &self,
        caller: &Caller,
        query: &OverviewQuery,
    ) -> Result<MatchingRows, Error> {
        if let Some(id) = query.id_prefix.as_deref().and_then(TaskId::parse) {
            return self.only_row(caller, query, id).await;
        }
        // A position before the first row of that time: `before` is where the list begins.
        let begin = query.before.map(|before| ListCursor { status_at: before, no: TaskNo(i64::MIN) });
        let after = match (query.after, begin) {
            (Some(after), Some(begin)) if order(&begin) < order(&after) => Some(begin),
            (Some(after), _) => Some(after),
            (None, begin) => begin,
        };
        let mut sources = sources(caller, query, after);
        let count = sources.len().max(1);
        // First what a page needs where no row is passed over, with the row that shows that more follow.
        let mut at_once = query.limit.div_ceil(count) + 1;
        let (mut rows, mut read, mut cursor) = (vec![], 0, None);
        loop {
            let is_full = rows.len() == query.limit || read == MAX_ROWS_READ;
            for source in sources.iter_mut().filter(|source| source.rows.is_empty() && !source.ended) {
                let wanted = if is_full { 1 } else { at_once };
                let found = self.rows_of(caller, query, source, wanted).await?;
                source.ended = found.len() < wanted;
                source.rows = found.into();
                if let Some(last) = source.rows.back() {
                    source.after = Some(cursor_of(last));
                }
            }
            at_once = (ROWS_AT_ONCE / count).max(MIN_ROWS_AT_ONCE);
            // Until one of them has to be read again.
            loop {
                let newest = sources
                    .iter_mut()
                    .filter(|source| !source.rows.is_empty())
                    .max_by_key(|source| source.rows.front().map(|row| (row.status_at, row.no)));
                let Some(source) = newest else { return Ok(MatchingRows { rows, next: None }) };
                if rows.len() == query.limit || read == MAX_ROWS_READ {
                    return Ok(MatchingRows { rows, next: cursor });
                }
                let Some(row) = source.rows.pop_front() else { break };
                let is_exhausted = source.rows.is_empty() && !source.ended;
                if query.since.is_some_and(|since| row.status_at < since) {
                    return Ok(MatchingRows { rows, next: None });
                }
                cursor = Some(cursor_of(&row));
                read += 1;
                if is_shown(caller, query, &row) {
                    rows.push(row);
                }
                if is_exhausted {
                    break;
                }
            }
        }
    }

    async fn only_row(
        &self,
        caller: &Caller,
        query: &OverviewQuery,
        id: TaskId,
    ) -> Result<MatchingRows, Error> {
        let row = self.store.row(&TaskKey::Id(id)).await?.filter(|row| {
            row.state != State::Replied
                && match &query.scope {
                    OverviewScope::Own => caller.sees_task(&row.owner, &row.agent),
                    OverviewScope::Owner(owner) => {
                        row.owner == *owner && reaches(caller, tenant_of(&row.owner))
                    }
                    OverviewScope::Administered => reaches(caller, tenant_of(&row.owner)),
                }
                && (query.states.is_empty() || query.states.contains(&row.state))
                && (query.agents.is_empty() || query.agents.contains(&row.agent))
                && query.since.is_none_or(|since| row.status_at >= since)
                && query.before.is_none_or(|before| row.status_at < before)
                && query.after.is_none()
                && is_shown(caller, query, row)
        });
        Ok(MatchingRows { rows: row.into_iter().collect(), next: None })
    }

    async fn rows_of(
        &self,
        caller: &Caller,
        query: &OverviewQuery,
        source: &RowSource<'_>,
        limit: usize,
    ) -> Result<Vec<TaskRow>, Error> {
        let RowSource { state, agent, after, .. } = source;
        let (state, agent, after) = (*state, agent.map(str::to_owned), *after);
        let owner = match &query.scope {
            OverviewScope::Own => {
                let list = ListQuery {
                    owner: caller.owner().to_owned(),
                    context: query.context.clone(),
                    state,
                    agent,
                    since: query.since,
                    after,
                    limit,
                    only_rows: true,
                };
                let page = self.store.list(&list).await?;
                return Ok(page.tasks.into_iter().map(|opened| opened.row).collect());
            }
            OverviewScope::Owner(owner) => Some(owner.clone()),
            OverviewScope::Administered => None,
        };
        let tenant = (!reaches(caller, "")).then(|| caller.tenant().to_owned());
        let tasks = TenantTasks { tenant, owner, live: false, state, agent, after, limit };
        Ok(self.store.tenants().tenant_tasks(&tasks).await?)
    }

    /// The row with the first words of its log. `read` counts the bytes that a page has read for such words.
    async fn overview_of(&self, row: TaskRow, read: &mut usize) -> Result<TaskOverview, Error> {
        let (mut first_text, mut why) = (None, None);
        if *read < TEXT_READ {
            let first = self.entry_at(&row, 1, read).await?;
            first_text = Some(first.map(|entry| request_of(&entry)).unwrap_or_default());
            if matches!(row.state, State::Failed | State::Rejected) {
                let last = self.entry_at(&row, row.seq, read).await?;
                why = last.map(|entry| text_of(&entry)).filter(|text| !text.is_empty());
            }
        }
        Ok(TaskOverview {
            id: row.id,
            owner: row.owner,
            context: row.context,
            agent: row.agent,
            parent: row.parent,
            state: row.state,
            status_at: row.status_at,
            created_at: row.created_at,
            seq: row.seq,
            epoch: row.epoch,
            node: row.node,
            attempts: row.attempts,
            cancel: row.cancel,
            first_text,
            why,
        })
    }

    async fn entry_at(&self, row: &TaskRow, seq: u64, read: &mut usize) -> Result<Option<Entry>, Error> {
        let stored = self.store.log(row.no, seq.saturating_sub(1), 1).await?;
        let Some(batch) = stored.first() else { return Ok(None) };
        *read += batch.bytes.len();
        let entries = event::decode(&batch.bytes).map_err(|error| Error::Internal(error.to_string()))?;
        Ok(seq.checked_sub(batch.first_seq).and_then(|at| entries.into_iter().nth(at as usize)))
    }
}

/// The rows of a page, and where the next one begins.
pub(super) struct MatchingRows {
    pub(super) rows: Vec<TaskRow>,
    pub(super) next: Option<ListCursor>,
}

/// The rows of one state and one agent, in their order.
struct RowSource<'a> {
    state: Option<State>,
    agent: Option<&'a str>,
    /// The position of the last row that was read.
    after: Option<ListCursor>,
    /// Rows that were read and not merged yet.
    rows: VecDeque<TaskRow>,
    /// Whether no row follows these.
    ended: bool,
}

/// One source for each pair of a state and an agent.
fn sources<'a>(
    caller: &'a Caller,
    query: &'a OverviewQuery,
    after: Option<ListCursor>,
) -> Vec<RowSource<'a>> {
    // Sets: what is named twice would be read, and shown, twice.
    let states: BTreeSet<Option<State>> = match query.states.is_empty() {
        true => [None].into(),
        false => query.states.iter().copied().map(Some).collect(),
    };
    let named = query.agents.iter().map(String::as_str);
    let agents: BTreeSet<Option<&str>> = match (caller.only_agent(), query.agents.is_empty()) {
        (Some(only), true) => [Some(only)].into(),
        (Some(only), false) => named.filter(|agent| *agent == only).map(Some).collect(),
        (None, true) => [None].into(),
        (None, false) => named.map(Some).collect(),
    };
    let pairs = states.iter().flat_map(|state| agents.iter().map(move |agent| (*state, *agent)));
    pairs
        .map(|(state, agent)| RowSource { state, agent, after, rows: VecDeque::new(), ended: false })
        .collect()
}

fn cursor_of(row: &TaskRow) -> ListCursor {
    ListCursor { status_at: row.status_at, no: row.no }
}

fn order(cursor: &ListCursor) -> (Timestamp, TaskNo) {
    (cursor.status_at, cursor.no)
}

/// The filters that are decided by the row: the others are decided by what is read.
fn is_shown(caller: &Caller, query: &OverviewQuery, row: &TaskRow) -> bool {
    row.state != State::Replied
        && caller.only_agent().is_none_or(|only| only == row.agent)
        && (!query.roots || row.parent.is_none())
        && query.context.as_deref().is_none_or(|context| context == row.context)
        && query.id_prefix.as_deref().is_none_or(|prefix| row.id.to_string().starts_with(prefix))
}

/// The beginning of an entry's text, with white space joined.
fn text_of(entry: &Entry) -> String {
    let message: Option<&Message> = match entry.event() {
        Event::Message(message) => Some(message),
        Event::Status(status) => status.message.as_ref(),
        _ => None,
    };
    shortened(&message.map(Message::joined_text).unwrap_or_default())
}

/// The beginning of a request: of its text, or of its data as JSON where it has no text.
fn request_of(entry: &Entry) -> String {
    let text = text_of(entry);
    let Event::Message(message) = entry.event() else { return text };
    if !text.is_empty() {
        return text;
    }
    let data = message.parts.iter().filter_map(|part| match &part.content {
        Content::Data(data) => Some(data.to_string()),
        _ => None,
    });
    shortened(&data.collect::<Vec<_>>().join(" "))
}

/// The beginning of a text, with white space joined.
fn shortened(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().take(TEXT_CHARS).collect();
    words.join(" ").chars().take(TEXT_CHARS).collect()
}
