//! Searches in a namespace: keys by a regular expression, words by a full-text index. A page with the total
//! over all pages is one statement.

use std::{collections::BTreeMap, fmt::Write as _};

use nuncio_engine::{
    knowledge::{MemoryQuery, MemorySearch, MemorySearchPage, SEARCHED_BYTES},
    store::StoreError,
};

use super::{
    super::{
        pool::{Param, PostgresPool},
        read::number,
    },
    page::{ENTRY, PostgresKeyRange, SPACE, entry},
    whole,
};
use crate::knowledge::{CompiledPattern, tokenize};

/// Maximum bytes of indexed words per value: PostgreSQL accepts a megabyte.
const MAX_BYTES: usize = 900_000;
/// Maximum positions per word, and the highest position, as PostgreSQL defines them.
const MAX_PLACES: usize = 255;
const LAST_PLACE: usize = 16_383;

/// A page of matches, with the total.
pub(super) async fn search(
    pool: &PostgresPool,
    query: &MemorySearch,
) -> Result<MemorySearchPage, StoreError> {
    let (offset, limit) = (whole(query.offset), whole(query.limit as u64));
    // One more shows that there are too many.
    let most = whole(query.max_keys.saturating_add(1));
    let (tenant, namespace, now) = (&query.tenant, &query.namespace, query.now.0);
    let rows = match &query.what {
        MemoryQuery::Keys(pattern) => {
            let pattern = CompiledPattern::read(pattern);
            let span = PostgresKeyRange::new(&pattern.prefix(), "");
            let sql = sql(
                "NULL::real, length(m.key)",
                &span.holds("m.key", 7, 8),
                "m.key ~ $6",
                "p.place, p.key",
                9,
            );
            let regex = pattern.regex();
            let params: [Param<'_>; 9] =
                [tenant, namespace, &now, &offset, &limit, &regex, &span.from, &span.end, &most];
            pool.search(&sql, &params, query.within).await?
        }
        MemoryQuery::Words(sought) => {
            let Some(all) = all_of(tenant, namespace, sought) else {
                return Ok(MemorySearchPage { is_cut: false, ..cut() });
            };
            let sql = sql(
                "ts_rank(m.words, $6::text::tsquery, 32), 0",
                "m.words @@ $6::text::tsquery",
                "true",
                "p.rank DESC, p.key",
                7,
            );
            pool.search(&sql, &[tenant, namespace, &now, &offset, &limit, &all, &most], query.within).await?
        }
    };
    let Some(rows) = rows else { return Ok(cut()) };
    let total = rows.first().map_or(0, |row| number(row, 10));
    if rows.first().is_some_and(|row| number(row, 11) > query.max_keys) {
        return Ok(cut());
    }
    // The first row has the total, and nothing else if the page is empty.
    let found = rows.iter().filter(|row| row.get::<_, Option<&str>>(0).is_some());
    let entries = found.map(|row| (entry(row), row.get::<_, Option<f32>>(9).map(f64::from)));
    Ok(MemorySearchPage { entries: entries.collect(), total, is_cut: false })
}

/// The empty page of a search that took too long or had too many candidates.
fn cut() -> MemorySearchPage {
    MemorySearchPage { entries: vec![], total: 0, is_cut: true }
}

/// Reads the candidates from the index (at most `most`), filters them, selects the page by the order, and only
/// then reads rows.
fn sql(measures: &str, looked_at: &str, fits: &str, order: &str, most: usize) -> String {
    let columns =
        ENTRY.replace("m.value", &format!("CASE WHEN m.size <= {SEARCHED_BYTES} THEN m.value ELSE '' END"));
    format!(
        "WITH looked AS MATERIALIZED (
           SELECT m.tenant, m.space, m.key, m.expires_at, {measures} FROM {SPACE}
           JOIN memory m ON m.tenant = s.tenant AND m.space = s.no
           WHERE {looked_at} LIMIT ${most}
         ), hit AS MATERIALIZED (
           SELECT m.tenant, m.space, m.key, m.rank, m.place
           FROM looked m(tenant, space, key, expires_at, rank, place)
           WHERE {fits} AND (m.expires_at IS NULL OR m.expires_at > $3)
         ), place(tenant, space, key, rank, place) AS (SELECT * FROM hit
         ), page AS (
           SELECT p.* FROM place p ORDER BY {order} OFFSET $4 LIMIT $5
         )
         SELECT {columns}, p.rank, t.total, t.looked
         FROM (SELECT (SELECT count(*) FROM hit) AS total, (SELECT count(*) FROM looked) AS looked) t
         LEFT JOIN (page p JOIN memory m ON m.tenant = p.tenant AND m.space = p.space AND m.key = p.key) ON true
         ORDER BY {order}"
    )
}

/// The prefix of a namespace's words in the index, so that a search reads no others. It need not be unique: the
/// columns decide. (FNV-1a; it must be the same on every node and in every version.)
fn mark(tenant: &str, namespace: &str) -> String {
    let bytes = tenant.bytes().chain([b'\n']).chain(namespace.bytes());
    let hash = bytes
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    format!("{hash:x}")
}

/// The words of a text with their positions, in the syntax of a `tsvector`. Words are letters and digits:
/// nothing needs escaping.
pub(super) fn vector(tenant: &str, namespace: &str, text: &str) -> String {
    let mark = mark(tenant, namespace);
    let (mut places, mut bytes): (BTreeMap<String, Vec<usize>>, usize) = (BTreeMap::new(), 0);
    for (place, word) in (1..).zip(tokenize(text)) {
        let cost = mark.len() + word.len() + 8;
        let known = places.entry(word).or_insert_with(|| {
            bytes += cost;
            vec![]
        });
        if known.len() < MAX_PLACES && place <= LAST_PLACE || known.is_empty() {
            known.push(place.min(LAST_PLACE));
            bytes += 2;
        }
        if bytes > MAX_BYTES {
            break;
        }
    }
    let mut vector = String::with_capacity(bytes);
    for (word, places) in places {
        // Writing to a string does not fail.
        let _ = write!(vector, "'{mark}:{word}':");
        for (n, place) in places.into_iter().enumerate() {
            let _ = write!(vector, "{}{place}", if n == 0 { "" } else { "," });
        }
        vector.push(' ');
    }
    vector
}

/// All of these words, in the syntax of a `tsquery`; `None` if there are none.
fn all_of(tenant: &str, namespace: &str, sought: &[String]) -> Option<String> {
    let mark = mark(tenant, namespace);
    let all: Vec<String> =
        sought.iter().flat_map(|word| tokenize(word)).map(|word| format!("'{mark}:{word}'")).collect();
    (!all.is_empty()).then(|| all.join(" & "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_written_with_their_namespace_and_places() {
        let mark = mark("acme", "n");
        assert_eq!(
            vector("acme", "n", "to be, or not TO be"),
            format!("'{mark}:be':2,6 '{mark}:not':4 '{mark}:or':3 '{mark}:to':1,5 ")
        );
        assert_eq!(
            all_of("acme", "n", &["To".into(), "it's".into()]),
            Some(format!("'{mark}:to' & '{mark}:it' & '{mark}:s'"))
        );
        assert_eq!(all_of("acme", "n", &["' | 'x".into()]), Some(format!("'{mark}:x'")));
        assert_eq!(all_of("acme", "n", &["'".into()]), None);
        assert_ne!(mark, super::mark("acm", "e\nn"));
    }
}
