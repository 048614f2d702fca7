//! Tasks as rows, and one task's row with its details.

use nuncio_engine::{
    State,
    clock::Timestamp,
    commands::list::{read_token, write_token},
    engine::{OverviewFacets, OverviewQuery, OverviewScope, TaskOverview},
};
use nuncio_wire::timestamp;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{api::ConsoleRequest, forks::point_view, problem::ConsoleProblem};

/// The rows of a page (`console.page`).
pub(super) const ROWS: u64 = 50;
pub(super) const MAX_ROWS: u64 = 100;

/// `GET /tasks`
pub(super) async fn list(request: &ConsoleRequest<'_>) -> Result<Value, ConsoleProblem> {
    let known = ["state", "agent", "owner", "context", "roots", "since", "before", "id", "limit", "cursor"];
    request.check_parameters(&known)?;
    // Before the rows are read, so that nothing falls between them and the stream that continues here.
    let live_from = request.engine().clock().now();
    let mut query = query_of(request)?;
    let digest = digest_of(&query);
    if let Some(cursor) = request.parameter("cursor")? {
        query.after = Some(read_cursor(cursor, &digest)?);
    }
    let page = request.engine().overview(&request.caller, &query).await?;
    let next = page.next.map(|next| format!("{digest}.{}", write_token(next)));
    Ok(json!({
        "rows": page.rows.iter().map(row).collect::<Vec<_>>(),
        "next": next,
        "total": page.total,
        "facets": page.facets.as_ref().map(facets),
        "liveCursor": live_cursor(live_from),
        "now": request.now(),
    }))
}

/// The cursor of the topic `rows`: a time.
pub(super) fn live_cursor(at: Timestamp) -> String {
    format!("r-{:x}", at.0)
}

/// `GET /tasks/{id}`
pub(super) async fn show(request: &ConsoleRequest<'_>, id: &str) -> Result<Value, ConsoleProblem> {
    request.check_parameters(&[])?;
    let found = request.engine().task_details(&request.reader_of(id).await?, id).await?;
    Ok(json!({
        "row": row(&found.row),
        "origin": found.origin,
        "agentVersion": found.agent_version,
        "forkedFrom": found.forked_from.map(point_view),
        "epoch": found.row.epoch,
        "node": found.row.node.map(|node| node.0.to_string()),
        "ranMs": found.ran_ms,
        "bytes": found.bytes,
        "traceUrl": null,
        "expires": null,
        "now": request.now(),
    }))
}

/// `GET /tasks/{id}/family`
pub(super) async fn family(request: &ConsoleRequest<'_>, id: &str) -> Result<Value, ConsoleProblem> {
    request.check_parameters(&[])?;
    let family = request.engine().task_family(&request.reader_of(id).await?, id).await?;
    Ok(json!({
        "callers": family.callers.iter().map(row).collect::<Vec<_>>(),
        "called": family.called.iter().map(row).collect::<Vec<_>>(),
        "more": family.is_cut,
        "now": request.now(),
    }))
}

/// `POST /tasks/{id}/cancel`
pub(super) async fn cancel(request: &ConsoleRequest<'_>, id: &str) -> Result<Value, ConsoleProblem> {
    request.check_parameters(&[])?;
    let own = request.reader_of(id).await?.owner() == request.caller.owner();
    let task = match own {
        true => request.engine().cancel(&request.caller, id).await?,
        // As the operator's command does, with the scope that it needs.
        false => request.engine().admin_cancel(&request.caller, None, id).await?.1,
    };
    Ok(json!({ "taskId": task.origin.id.to_string(), "state": task.state.name(), "lastEvent": task.seq }))
}

/// A row as JSON.
pub(super) fn row(row: &TaskOverview) -> Value {
    let mut shown = json!({
        "taskId": row.id.to_string(),
        "contextId": row.context,
        "agent": row.agent,
        "owner": row.owner,
        "state": row.state.name(),
        "statusAt": timestamp::format(row.status_at),
        "createdAt": timestamp::format(row.created_at),
        "events": row.seq,
        "attempts": row.attempts,
        "parentId": row.parent.map(|parent| parent.to_string()),
        "cancelRequested": row.cancel && !row.state.is_terminal(),
        "firstText": row.first_text,
    });
    if let Some(why) = &row.why {
        shown["why"] = why.as_str().into();
    }
    shown
}

fn facets(facets: &OverviewFacets) -> Value {
    let states = facets.states.iter().map(|(state, count)| (state.name().to_owned(), json!(count)));
    json!({ "state": Map::from_iter(states), "agent": facets.agents })
}

fn query_of(request: &ConsoleRequest<'_>) -> Result<OverviewQuery, ConsoleProblem> {
    let roots = match request.parameter("roots")? {
        None | Some("false") => false,
        Some("true") => true,
        Some(other) => {
            let message = format!("roots: expected true or false, got {other:?}");
            return Err(ConsoleProblem::bad_request("roots", message));
        }
    };
    let limit = request.number("limit", MAX_ROWS)?.unwrap_or(ROWS);
    if limit == 0 {
        return Err(ConsoleProblem::bad_request("limit", format!("limit: a page has 1 to {MAX_ROWS} rows")));
    }
    let filter = Filter {
        states: request.parameters("state"),
        agents: request.parameters("agent"),
        owner: request.parameter("owner")?,
        context: request.parameter("context")?,
        roots,
        since: request.parameter("since")?,
        before: request.parameter("before")?,
        id: request.parameter("id")?,
    };
    filter.query(request, limit as usize)
}

/// Which tasks are meant, as parameters or a body say it.
pub(super) struct Filter<'a> {
    pub(super) states: Vec<&'a str>,
    pub(super) agents: Vec<&'a str>,
    pub(super) owner: Option<&'a str>,
    pub(super) context: Option<&'a str>,
    pub(super) roots: bool,
    pub(super) since: Option<&'a str>,
    pub(super) before: Option<&'a str>,
    pub(super) id: Option<&'a str>,
}

impl Filter<'_> {
    pub(super) fn query(
        self,
        request: &ConsoleRequest<'_>,
        limit: usize,
    ) -> Result<OverviewQuery, ConsoleProblem> {
        let states = self.states.into_iter().map(state_named).collect::<Result<Vec<_>, _>>()?;
        let id_prefix = self.id.map(str::to_ascii_lowercase);
        if let Some(prefix) = &id_prefix
            && (prefix.is_empty()
                || prefix.len() > 36
                || prefix.bytes().any(|b| !b.is_ascii_hexdigit() && b != b'-'))
        {
            let message = "id: expected the beginning of a task id, 1 to 36 hexadecimal digits and hyphens";
            return Err(ConsoleProblem::bad_request("id", message));
        }
        Ok(OverviewQuery {
            scope: scope_of(request, self.owner),
            states,
            agents: self.agents.into_iter().map(str::to_owned).collect(),
            context: self.context.map(str::to_owned),
            roots: self.roots,
            since: time("since", self.since)?,
            before: time("before", self.before)?,
            id_prefix,
            after: None,
            limit,
        })
    }
}

/// Whose tasks are meant. The caller's own name means its own tasks, for which it needs no scope of an administrator.
pub(super) fn scope_of(request: &ConsoleRequest<'_>, owner: Option<&str>) -> OverviewScope {
    match owner.filter(|owner| !owner.is_empty()) {
        None => OverviewScope::Own,
        Some("all") => OverviewScope::Administered,
        Some(owner) if owner == request.caller.owner() => OverviewScope::Own,
        Some(owner) => OverviewScope::Owner(owner.to_owned()),
    }
}

fn state_named(name: &str) -> Result<State, ConsoleProblem> {
    State::ALL.into_iter().find(|state| state.name() == name).ok_or_else(|| {
        let names = State::ALL.map(State::name).join(", ");
        ConsoleProblem::bad_request("state", format!("state: {name:?} is none of {names}"))
    })
}

fn time(name: &'static str, given: Option<&str>) -> Result<Option<Timestamp>, ConsoleProblem> {
    let Some(text) = given else { return Ok(None) };
    // A date alone is its beginning, in UTC.
    let whole = if text.len() == 10 { format!("{text}T00:00:00Z") } else { text.to_owned() };
    match timestamp::parse(&whole) {
        Some(at) => Ok(Some(at)),
        None => {
            let message = format!("{name}: expected a time such as 2026-11-18T05:00:00Z, got {text:?}");
            Err(ConsoleProblem::bad_request(name, message))
        }
    }
}

/// Identifies the filters of a query: a cursor is good for the same ones only.
fn digest_of(query: &OverviewQuery) -> String {
    let OverviewQuery { scope, states, agents, context, roots, since, before, id_prefix, .. } = query;
    let filters = format!("{:?}", (scope, states, agents, context, roots, since, before, id_prefix));
    let digest = Sha256::digest(filters);
    digest[..6].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read_cursor(cursor: &str, digest: &str) -> Result<nuncio_engine::store::ListCursor, ConsoleProblem> {
    let refused =
        || ConsoleProblem::bad_request("cursor", "cursor: it is not from a page with the same filters");
    let (made_for, token) = cursor.split_once('.').ok_or_else(refused)?;
    match made_for == digest {
        true => read_token(token).map_err(|_| refused()),
        false => Err(refused()),
    }
}
