//! Searches in a namespace. Keys and words are matched in their indexes; only the rows of the page are read.

use std::{collections::HashSet, time::Instant};

use nuncio_engine::knowledge::{MemoryQuery, MemorySearch, MemorySearchPage, SEARCHED_BYTES};
use rusqlite::{Connection, ErrorCode, Result, params};

use super::{
    super::names::SqliteNameCache,
    memory::space,
    page::{SqliteKeyRange, entry, entry_columns},
    whole,
};
use crate::knowledge::{CompiledPattern, tokenize};

/// Numbers of entries, with their ranks.
type Hits = Vec<(i64, Option<f64>)>;

/// Steps of SQLite's virtual machine between two checks of the deadline: some tens of microseconds.
const STEPS: i32 = 1_000;

/// A page of matches, with the total; interrupted at its deadline, wherever SQLite is by then.
pub(super) fn search(
    conn: &mut Connection,
    names: &mut SqliteNameCache,
    query: &MemorySearch,
) -> Result<MemorySearchPage> {
    let deadline = Instant::now() + query.within;
    conn.progress_handler(STEPS, Some(move || Instant::now() >= deadline))?;
    let found = search_to_the_end(conn, names, query);
    conn.progress_handler(0, None::<fn() -> bool>)?;
    match found {
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
            Ok(MemorySearchPage { entries: vec![], total: 0, is_cut: true })
        }
        found => found,
    }
}

/// Runs the search in one consistent read.
fn search_to_the_end(
    conn: &Connection,
    names: &mut SqliteNameCache,
    query: &MemorySearch,
) -> Result<MemorySearchPage> {
    let _reading = conn.unchecked_transaction()?;
    let mut found = MemorySearchPage { entries: vec![], total: 0, is_cut: false };
    let Some(owner) = names.find_owner(conn, &query.tenant)? else { return Ok(found) };
    let Some(space) = space(conn, owner, &query.namespace)? else { return Ok(found) };
    let over: HashSet<i64> = conn
        .prepare_cached("SELECT no FROM memory INDEXED BY memory_over WHERE space = ?1 AND expires_at <= ?2")?
        .query_map(params![space.no, query.now.0], |row| row.get(0))?
        .collect::<Result<_>>()?;
    let mut hits = match &query.what {
        MemoryQuery::Keys(pattern) => {
            by_key(conn, space.no, &CompiledPattern::read(pattern), query.max_keys)?
        }
        MemoryQuery::Words(sought) => by_words(conn, space.no, sought, query.max_keys)?,
    };
    let Some(hits) = &mut hits else { return Ok(MemorySearchPage { is_cut: true, ..found }) };
    hits.retain(|(no, _)| !over.contains(no));
    found.total = hits.len() as u64;
    let offset = usize::try_from(query.offset).unwrap_or(usize::MAX);
    let mut read = conn.prepare_cached(concat!(
        "SELECT ",
        entry_columns!("iif(size <= ?2, value, '')"),
        " FROM memory JOIN memory_value USING (no) WHERE no = ?1"
    ))?;
    for (no, rank) in hits.drain(..).skip(offset).take(query.limit) {
        found.entries.push((read.query_row(params![no, whole(SEARCHED_BYTES)], entry)?, rank));
    }
    Ok(found)
}

/// Entries whose keys match, the shortest first. The index returns them in key order, and the stable sort keeps
/// it. `None` if there are more than `max_keys` keys to compare.
fn by_key(conn: &Connection, space: i64, pattern: &CompiledPattern, max_keys: u64) -> Result<Option<Hits>> {
    let span = SqliteKeyRange::new(&pattern.prefix(), "");
    let mut keys = conn.prepare_cached(
        "SELECT no, key FROM memory INDEXED BY memory_key WHERE space = ?1 AND key >= ?2 AND key < ?3 ORDER BY key",
    )?;
    let mut rows = keys.query(params![space, span.from, span.end()])?;
    let (mut fitting, mut seen) = (vec![], 0);
    while let Some(row) = rows.next()? {
        seen += 1;
        if seen > max_keys {
            return Ok(None);
        }
        let key = row.get_ref(1)?.as_str()?;
        if pattern.fits(key) {
            fitting.push((key.chars().count(), row.get(0)?));
        }
    }
    fitting.sort_by_key(|(length, _)| *length);
    Ok(Some(fitting.into_iter().map(|(_, no)| (no, None)).collect()))
}

/// Entries that contain all of the words, the best rank first, then by key. `None` if there are more than
/// `max_keys`.
fn by_words(conn: &Connection, space: i64, sought: &[String], max_keys: u64) -> Result<Option<Hits>> {
    // Letters, digits and the namespace's number in quotes: nothing in it is FTS5 syntax.
    let all: Vec<String> =
        sought.iter().flat_map(|word| tokenize(word)).map(|word| format!("\"{space}:{word}\"")).collect();
    if all.is_empty() {
        return Ok(Some(vec![]));
    }
    let most = i64::try_from(max_keys).unwrap_or(i64::MAX);
    let mut hits: Vec<(i64, f64, String)> = conn
        .prepare_cached(
            "SELECT memory_words.rowid, -bm25(memory_words), memory.key FROM memory_words
             JOIN memory ON memory.no = memory_words.rowid WHERE memory_words MATCH ?1 LIMIT ?2",
        )?
        .query_map(params![all.join(" AND "), most.saturating_add(1)], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })?
        .collect::<Result<_>>()?;
    if hits.len() as u64 > max_keys {
        return Ok(None);
    }
    hits.sort_by(|(_, a, a_key), (_, b, b_key)| b.total_cmp(a).then_with(|| a_key.cmp(b_key)));
    let ranked = |(no, score, _): (i64, f64, String)| (no, Some(score.max(0.0) / (1.0 + score.max(0.0))));
    Ok(Some(hits.into_iter().map(ranked).collect()))
}
