//! The audit. Triggers refuse to change a line, and to delete one unless a sweep has set the age from which
//! lines may be deleted.

use nuncio_engine::{
    access::{AccessKind, Action},
    clock::Timestamp,
    knowledge::{AuditEntry, AuditQuery},
};
use rusqlite::{Connection, Error, Result, Row, params, types::Type};

use super::{
    super::{names::SqliteNameCache, read::number, write_session::WriteSession},
    whole,
};

/// The columns that `line` reads.
pub(super) const LINE: &str =
    "no, at, owner, caller, origin, operation, action, kind, resource, refused, credential";

/// Appends lines in order.
pub(super) fn append(session: &mut WriteSession, entries: &[AuditEntry]) -> Result<()> {
    entries.iter().try_for_each(|entry| insert(session, None, entry))
}

/// Appends a line, under the given number or the next one.
pub(super) fn insert(session: &mut WriteSession, no: Option<i64>, entry: &AuditEntry) -> Result<()> {
    let WriteSession { conn, names, .. } = session;
    let owner = names.owner_no(conn, &entry.tenant)?;
    conn.prepare_cached(&format!(
        "INSERT INTO audit ({LINE}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)"
    ))?
    .execute(params![
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
        entry.credential
    ])?;
    Ok(())
}

/// Audit lines, newest first.
pub(super) fn query(
    conn: &Connection,
    names: &mut SqliteNameCache,
    query: &AuditQuery,
) -> Result<Vec<(u64, AuditEntry)>> {
    let owner = match &query.tenant {
        None => None,
        Some(tenant) => match names.find_owner(conn, tenant)? {
            None => return Ok(vec![]),
            owner => owner,
        },
    };
    // A comparison that is left out costs nothing, and lets the right index give the order.
    let when = |given: bool, condition: &'static str| if given { condition } else { "" };
    conn.prepare_cached(&format!(
        "SELECT {LINE} FROM audit
         WHERE no < ?1 {} {} {} {} {} {} {} ORDER BY no DESC LIMIT ?8",
        when(owner.is_some(), "AND owner = ?2"),
        when(query.caller.is_some(), "AND caller = ?3"),
        when(query.kind.is_some(), "AND kind = ?4"),
        when(query.since.is_some(), "AND at >= ?5"),
        when(query.refused, "AND refused IS NOT NULL"),
        when(query.until.is_some(), "AND at < ?6"),
        when(query.resource.is_some(), "AND instr(resource, ?7) > 0"),
    ))?
    .query_map(
        params![
            query.before.map_or(i64::MAX, whole),
            owner,
            query.caller,
            query.kind.map(AccessKind::name),
            query.since.map(|since| since.0),
            query.until.map(|until| until.0),
            query.resource,
            whole(query.limit as u64)
        ],
        |row| line(conn, names, row),
    )?
    .collect()
}

pub(super) fn line(
    conn: &Connection,
    names: &mut SqliteNameCache,
    row: &Row<'_>,
) -> Result<(u64, AuditEntry)> {
    let (action, kind): (String, String) = (row.get(6)?, row.get(7)?);
    let entry = AuditEntry {
        at: Timestamp(row.get(1)?),
        tenant: names.owner(conn, row.get(2)?)?,
        caller: row.get(3)?,
        from: row.get(4)?,
        operation: row.get(5)?,
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
/// statement runs.
pub(super) fn expire(session: &WriteSession, before: Timestamp, limit: usize) -> Result<usize> {
    let conn = &session.conn;
    let horizon = |before: Option<i64>| {
        conn.prepare_cached("UPDATE audit_horizon SET before = ?1")?.execute([before]).map(drop)
    };
    horizon(Some(before.0))?;
    let gone = conn
        .prepare_cached(
            "DELETE FROM audit WHERE no IN (
               SELECT no FROM audit INDEXED BY audit_at WHERE at < ?1 ORDER BY at LIMIT ?2)",
        )?
        .execute(params![before.0, whole(limit as u64)])?;
    horizon(None)?;
    Ok(gone)
}
