//! Tasks as a table: what any agent says of them, and what a Nuncio server adds.

use serde::Deserialize;

use crate::{
    console_client::ConsoleClient,
    table::{Table, time_since},
    text::TextOutput,
};

/// Rows of a page of the console API, the most that it has.
const PAGE: usize = 100;
/// Pages that are read for one list. Rows of other tasks are among them only where a task has changed meanwhile, or
/// where many changed in the same millisecond.
const MAX_PAGES: usize = 3;
/// Characters of a reason in a table.
const REASON: usize = 80;

/// A task of a list.
#[derive(Debug, Default)]
pub(super) struct ShownTask {
    pub(super) id: String,
    pub(super) context: Option<String>,
    pub(super) agent: Option<String>,
    /// Whose task it is, where tasks of several callers are listed.
    pub(super) owner: Option<String>,
    /// The token that its caller showed.
    pub(super) token: Option<String>,
    pub(super) state: String,
    pub(super) status_at: Option<String>,
    pub(super) created_at: Option<String>,
    /// The beginning of the request.
    pub(super) request: Option<String>,
    /// Why it failed or was rejected.
    pub(super) reason: Option<String>,
}

/// Whose tasks are listed.
#[derive(Debug, Clone, Copy)]
pub(super) enum RowOwners {
    /// The caller's.
    Own,
    /// All that the caller may administer.
    All,
}

#[derive(Deserialize)]
struct ConsoleTaskPage {
    rows: Vec<ConsoleTaskRow>,
    next: Option<String>,
}

/// A row of the console API.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConsoleTaskRow {
    task_id: String,
    agent: String,
    created_at: String,
    first_text: Option<String>,
    why: Option<String>,
}

/// Adds agent, creation and request to the rows, from the server's console API. A server without one, or one that does
/// not allow it, adds nothing: the list itself is complete.
pub(super) async fn add_details(console: &ConsoleClient, rows: &mut [ShownTask], owners: RowOwners) {
    let times = || rows.iter().filter_map(|row| row.status_at.as_deref()?.parse::<jiff::Timestamp>().ok());
    let (Some(first), Some(last)) = (times().min(), times().max()) else { return };
    // `before` excludes its time.
    let until = last.as_millisecond().saturating_add(1);
    let Ok(until) = jiff::Timestamp::from_millisecond(until) else { return };
    let mut query =
        vec![("limit", PAGE.to_string()), ("since", first.to_string()), ("before", until.to_string())];
    if let RowOwners::All = owners {
        query.push(("owner", "all".to_owned()));
    }
    let mut cursor = None;
    for _ in 0..MAX_PAGES {
        let mut query = query.clone();
        query.extend(cursor.take().map(|cursor| ("cursor", cursor)));
        let page: ConsoleTaskPage = match console.get(&["tasks"], &query).await {
            Ok(page) => page,
            Err(error) => return tracing::debug!(?error, "no details of tasks"),
        };
        for found in page.rows {
            if let Some(row) = rows.iter_mut().find(|row| row.id == found.task_id) {
                row.agent = Some(found.agent);
                row.created_at = Some(found.created_at);
                row.request = found.first_text;
                row.reason = found.why.or(row.reason.take());
            }
        }
        cursor = page.next;
        if cursor.is_none() || rows.iter().all(|row| row.created_at.is_some()) {
            return;
        }
    }
}

/// The table. Columns of which nothing is known are not there.
pub(super) fn task_table(rows: &[ShownTask]) -> String {
    let is_ours = rows.iter().any(|row| row.created_at.is_some());
    let has_owners = rows.iter().any(|row| row.owner.is_some());
    let mut head = vec!["ID"];
    if is_ours || has_owners {
        head.push("AGENT");
    }
    head.push("STATE");
    // The age of a task is that since its creation, which only a server of ours names.
    head.push(if is_ours { "AGE " } else { "CHANGED " });
    if has_owners {
        head.extend(["OWNER", "TOKEN"]);
    }
    head.push(if is_ours { "REQUEST" } else { "CONTEXT" });
    if rows.iter().any(|row| row.reason.is_some()) {
        head.push("REASON");
    }
    let table = Table::new(&head).whole(&["ID", "STATE", "AGE", "CHANGED"]);
    let mut table =
        table.optional(&["REQUEST", "CONTEXT", "AGE", "CHANGED", "TOKEN", "REASON", "OWNER", "AGENT"]);
    for row in rows {
        let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
        let cell = |name: &&str| match *name {
            "ID" => row.id.clone(),
            "AGENT" => shown(&row.agent),
            "STATE" => row.state.clone(),
            "AGE " => time_since(&row.created_at),
            "CHANGED " => time_since(&row.status_at),
            "OWNER" => shown(&row.owner),
            "TOKEN" => shown(&row.token),
            "REQUEST" => shown(&row.request),
            "REASON" => row.reason.as_deref().map(short_reason).unwrap_or_default(),
            _ => shown(&row.context),
        };
        table.row(head.iter().map(cell));
    }
    table.show()
}

/// The beginning of a reason, in one line.
fn short_reason(reason: &str) -> String {
    let line = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(REASON) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// A block of lines for each task, with all that is known of it.
pub(super) fn task_blocks(rows: &[ShownTask]) -> String {
    let mut text = TextOutput::default();
    for row in rows {
        text.ids(&row.id, row.context.as_deref(), &row.state);
        let fields = [
            ("Agent", &row.agent),
            ("Owner", &row.owner),
            ("Token", &row.token),
            ("Created", &row.created_at),
            ("Updated", &row.status_at),
            ("Request", &row.request),
            ("Reason", &row.reason),
        ];
        for (label, value) in fields {
            if let Some(value) = value.as_deref().filter(|value| !value.is_empty()) {
                text.field(label, value);
            }
        }
        text.gap();
    }
    text.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_there_where_a_task_failed_and_is_cut() {
        let failed = ShownTask { reason: Some("no\nroute ".repeat(40)), ..ShownTask::default() };
        let shown = task_table(&[failed, ShownTask::default()]);
        assert!(shown.lines().next().unwrap().ends_with("REASON"), "{shown}");
        assert!(shown.contains("  no route no") && shown.contains('…'), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() < REASON + 60), "{shown}");
    }

    #[test]
    fn columns_are_those_of_which_something_is_known() {
        let task = |id: &str| ShownTask { id: id.into(), state: "working".into(), ..ShownTask::default() };
        let heads = |rows: &[ShownTask]| {
            let head = task_table(rows).lines().next().unwrap().to_owned();
            head.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(heads(&[task("1")]), ["ID", "STATE", "CHANGED", "CONTEXT"]);
        let ours = ShownTask { created_at: Some("2026-07-28T12:00:00Z".into()), ..task("2") };
        assert_eq!(heads(&[task("1"), ours]), ["ID", "AGENT", "STATE", "AGE", "REQUEST"]);
        let owned = ShownTask { owner: Some("acme/ada".into()), ..task("3") };
        assert_eq!(heads(&[owned]), ["ID", "AGENT", "STATE", "CHANGED", "OWNER", "TOKEN", "CONTEXT"]);
    }
}
