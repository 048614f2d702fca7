//! The audit. Triggers refuse to change a line, and to delete one unless a sweep has set the age from which
//! lines may be deleted.

use nuncio_engine::{
    access::{AccessKind, Action, HOME_TENANT},
    clock::Timestamp,
    knowledge::{AuditEntry, AuditPage, AuditQuery},
};
use rusqlite::{
    Connection, Error, Result, Row, Statement, params,
    types::{Type, ValueRef},
};

use super::{
    super::{names::SqliteNameCache, read::number, write_session::WriteSession},
    whole,
};

/// The columns that `line` reads.
pub(super) const LINE: &str =
    "no, at, owner, caller, origin, operation, action, kind, resource, refused, credential";

const INSERT: &str = "INSERT INTO audit
  (no, at, owner, caller, origin, operation, action, kind, resource, refused, credential, tenant)
  VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";

/// Appends lines in order, under the next numbers.
pub(super) fn append(session: &mut WriteSession, entries: &[AuditEntry]) -> Result<()> {
    let WriteSession { conn, names, .. } = session;
    let first: i64 = conn
        .prepare_cached("SELECT 1 + max(last, ifnull((SELECT max(no) FROM audit), 0)) FROM audit_horizon")?
        .query_row([], |row| row.get(0))?;
    let mut statement = conn.prepare_cached(INSERT)?;
    for (no, entry) in (first..).zip(entries) {
        let owner = names.owner_no(conn, &entry.tenant)?;
        execute(&mut statement, no, owner, entry)?;
    }
    Ok(())
}

/// Inserts a line under its number.
pub(super) fn insert(session: &mut WriteSession, no: i64, entry: &AuditEntry) -> Result<()> {
    let WriteSession { conn, names, .. } = session;
    let owner = names.owner_no(conn, &entry.tenant)?;
    let mut statement = conn.prepare_cached(INSERT)?;
    execute(&mut statement, no, owner, entry)
}

fn execute(statement: &mut Statement<'_>, no: i64, owner: i64, entry: &AuditEntry) -> Result<()> {
    // NULL for the home tenant, whose lines are in no index.
    let tenant = (entry.tenant != HOME_TENANT).then_some(owner);
    statement.execute(params![
        no,
        entry.at.0,
        owner,
        entry.caller,
        entry.from,
        entry.operation,
        entry.action.name(),
        entry.kind.name(),
        entry.resource,
        entry.refused,
        entry.credential,
        tenant
    ])?;
    Ok(())
}

/// A page of the audit. Filters are decided here and not by SQLite, so that the lines that are read can be counted. So is the
/// home tenant: its lines are in no index.
pub(super) fn query(conn: &Connection, names: &mut SqliteNameCache, query: &AuditQuery) -> Result<AuditPage> {
    let owner = match &query.tenant {
        None => None,
        Some(tenant) => match names.find_owner(conn, tenant)? {
            None => return Ok(AuditPage::default()),
            owner => owner,
        },
    };
    let is_home = query.tenant.as_deref() == Some(HOME_TENANT);
    let indexed = owner.filter(|_| !is_home);
    let of_tenant = if indexed.is_some() { "AND tenant = ?2" } else { "AND ?2 IS NULL" };
    let sql = format!("SELECT {LINE} FROM audit WHERE no < ?1 {of_tenant} ORDER BY no DESC LIMIT ?3");
    let most = query.max_read.map_or(i64::MAX, |most| whole(most as u64));
    let mut statement = conn.prepare_cached(&sql)?;
    let mut rows = statement.query(params![query.before.map_or(i64::MAX, whole), indexed, most])?;
    let (mut page, mut read) = (AuditPage::default(), 0);
    while let Some(row) = rows.next()? {
        read += 1;
        let is_of_tenant = !is_home || owner == Some(row.get(2)?);
        if is_of_tenant && is_wanted(query, row)? {
            page.entries.push(line(conn, names, row)?);
        }
        if page.entries.len() >= query.limit || read == most {
            page.next = Some(number(row, 0)?);
            break;
        }
    }
    Ok(page)
}

/// Whether a line passes the filters. Compares what SQLite holds, without a copy.
fn is_wanted(query: &AuditQuery, row: &Row<'_>) -> Result<bool> {
    let at = Timestamp(row.get(1)?);
    Ok(query.since.is_none_or(|since| at >= since)
        && query.until.is_none_or(|until| at < until)
        && !(query.refused && row.get_ref(9)? == ValueRef::Null)
        && query.caller.as_deref().map_or(Ok(true), |caller| text(row, 3).map(|found| found == caller))?
        && query.kind.map_or(Ok(true), |kind| text(row, 7).map(|found| found == kind.name()))?
        && query
            .resource
            .as_deref()
            .map_or(Ok(true), |part| text(row, 8).map(|found| found.contains(part)))?)
}

fn text<'row>(row: &'row Row<'_>, column: usize) -> Result<&'row str> {
    Ok(row.get_ref(column)?.as_str()?)
}

pub(super) fn line(
    conn: &Connection,
    names: &mut SqliteNameCache,
    row: &Row<'_>,
) -> Result<(u64, AuditEntry)> {
    let (action, kind): (String, String) = (row.get(6)?, row.get(7)?);
    let entry = AuditEntry {
        at: Timestamp(row.get(1)?),
        tenant: names.owner(conn, row.get(2)?)?.into(),
        caller: row.get(3)?,
        from: row.get(4)?,
        operation: row.get::<_, String>(5)?.into(),
        action: Action::ALL
            .into_iter()
            .find(|known| known.name() == action)
            .ok_or_else(|| unknown(6, &action))?,
        kind: AccessKind::ALL
            .into_iter()
            .find(|known| known.name() == kind)
            .ok_or_else(|| unknown(7, &kind))?,
        resource: row.get(8)?,
        refused: row.get(9)?,
        credential: row.get(10)?,
    };
    Ok((number(row, 0)?, entry))
}

fn unknown(column: usize, name: &str) -> Error {
    Error::FromSqlConversionFailure(column, Type::Text, format!("the audit says {name:?}").into())
}

/// Deletes lines older than that, oldest first; returns how many. The deletion age is reset before any other
/// statement runs. The highest number is recorded first: the line that has it may be deleted.
pub(super) fn expire(session: &WriteSession, before: Timestamp, limit: usize) -> Result<usize> {
    let conn = &session.conn;
    conn.prepare_cached(
        "UPDATE audit_horizon SET before = ?1, last = max(last, ifnull((SELECT max(no) FROM audit), 0))",
    )?
    .execute([before.0])?;
    let gone = conn
        .prepare_cached(
            "DELETE FROM audit WHERE no IN (
               SELECT no FROM audit INDEXED BY audit_at WHERE at < ?1 ORDER BY at LIMIT ?2)",
        )?
        .execute(params![before.0, whole(limit as u64)])?;
    conn.prepare_cached("UPDATE audit_horizon SET before = NULL")?.execute([])?;
    Ok(gone)
}
