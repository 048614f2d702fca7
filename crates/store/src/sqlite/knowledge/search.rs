//! Searching a namespace. Keys and words are decided in their indexes; rows are read for the page alone.

use std::collections::HashSet;

use nuncio_engine::knowledge::{MemoryFound, MemorySearch, SEARCHED_BYTES, Sought};
use rusqlite::{Connection, Result, params};

use super::{
    super::names::Names,
    memory::space,
    page::{ENTRY, Span, entry},
};
use crate::knowledge::{Pattern, words};

/// A page of what was found, and how much there is: one consistent reading.
pub(super) fn search(conn: &Connection, names: &mut Names, query: &MemorySearch) -> Result<MemoryFound> {
    let _reading = conn.unchecked_transaction()?;
    let mut found = MemoryFound { entries: vec![], total: 0 };
    let Some(owner) = names.find_owner(conn, &query.tenant)? else { return Ok(found) };
    let Some(space) = space(conn, owner, &query.namespace)? else { return Ok(found) };
    let over: HashSet<i64> = conn
        .prepare_cached("SELECT no FROM memory INDEXED BY memory_over WHERE space = ?1 AND expires_at <= ?2")?
        .query_map(params![space.no, query.now.0], |row| row.get(0))?
        .collect::<Result<_>>()?;
    let mut hits = match &query.what {
        Sought::Keys(pattern) => by_key(conn, space.no, &Pattern::read(pattern))?,
        Sought::Words(sought) => by_words(conn, space.no, sought)?,
    };
    hits.retain(|(no, _)| !over.contains(no));
    found.total = hits.len() as u64;
    let offset = usize::try_from(query.offset).unwrap_or(usize::MAX);
    let columns = ENTRY.replace("value", &format!("iif(size <= {SEARCHED_BYTES}, value, '')"));
    let mut read = conn.prepare_cached(&format!(
        "SELECT {columns} FROM memory JOIN memory_value USING (no) WHERE no = ?1"
    ))?;
    for (no, rank) in hits.into_iter().skip(offset).take(query.limit) {
        found.entries.push((read.query_row([no], entry)?, rank));
    }
    Ok(found)
}

/// Those whose keys fit, the shortest first. The index tells them in the order of their keys, and the sort keeps it.
fn by_key(conn: &Connection, space: i64, pattern: &Pattern) -> Result<Vec<(i64, Option<f64>)>> {
    let span = Span::new(&pattern.prefix(), "");
    let mut keys = conn.prepare_cached(
        "SELECT no, key FROM memory INDEXED BY memory_key WHERE space = ?1 AND key >= ?2 AND key < ?3 ORDER BY key",
    )?;
    let mut rows = keys.query(params![space, span.from, span.end()])?;
    let mut fitting = vec![];
    while let Some(row) = rows.next()? {
        let key = row.get_ref(1)?.as_str()?;
        if pattern.fits(key) {
            fitting.push((key.chars().count(), row.get(0)?));
        }
    }
    fitting.sort_by_key(|(length, _)| *length);
    Ok(fitting.into_iter().map(|(_, no)| (no, None)).collect())
}

/// Those that have all of the words in them, the best first, then by key.
fn by_words(conn: &Connection, space: i64, sought: &[String]) -> Result<Vec<(i64, Option<f64>)>> {
    // Letters, digits and the namespace's number in quotes: there is nothing in it that FTS5 could take for syntax.
    let all: Vec<String> =
        sought.iter().flat_map(|word| words(word)).map(|word| format!("\"{space}:{word}\"")).collect();
    if all.is_empty() {
        return Ok(vec![]);
    }
    let mut hits: Vec<(i64, f64, String)> = conn
        .prepare_cached(
            "SELECT memory_words.rowid, -bm25(memory_words), memory.key FROM memory_words
             JOIN memory ON memory.no = memory_words.rowid WHERE memory_words MATCH ?1",
        )?
        .query_map([all.join(" AND ")], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<Result<_>>()?;
    hits.sort_by(|(_, a, a_key), (_, b, b_key)| b.total_cmp(a).then_with(|| a_key.cmp(b_key)));
    Ok(hits.into_iter().map(|(no, score, _)| (no, Some(score.max(0.0) / (1.0 + score.max(0.0))))).collect())
}
