//! The size of a store and what it holds, by kind. Read with plain SQL that both databases understand.

use nuncio_engine::{State, clock::Timestamp};

/// What a store holds, and the room that it takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreStatistics {
    /// Bytes of the database.
    pub bytes: u64,
    /// Bytes of the write-ahead log; `None` where it belongs to the database server.
    pub log_bytes: Option<u64>,
    /// Bytes of the database that hold nothing: a compaction returns them. `None` where that is not known.
    pub free_bytes: Option<u64>,
    /// The version of the schema.
    pub schema: u32,
    /// The newest schema version that this program knows.
    pub known_schema: u32,
    /// The kinds of items.
    pub kinds: Vec<KindStatistics>,
    /// How many tasks are in which state; states without tasks are left out.
    pub states: Vec<(State, u64)>,
}

/// The items of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KindStatistics {
    /// The kind, such as `tasks`.
    pub kind: &'static str,
    /// How many there are.
    pub count: u64,
    /// Bytes of their contents, without indexes.
    pub bytes: u64,
    /// The time of the oldest one, where they have times.
    pub oldest: Option<Timestamp>,
    /// The time of the newest one.
    pub newest: Option<Timestamp>,
}

/// What a compaction did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactionReport {
    /// Bytes of the store before.
    pub before: u64,
    /// Bytes of the store afterwards.
    pub after: u64,
}

/// A kind of items in the database.
pub(crate) struct KindTable {
    pub(crate) kind: &'static str,
    /// Its table. A store of an older schema may not have it.
    pub(crate) table: &'static str,
    /// The bytes of one row.
    bytes: &'static str,
    /// The column with its time in milliseconds.
    time: Option<&'static str>,
}

const fn kind(
    kind: &'static str,
    table: &'static str,
    bytes: &'static str,
    time: Option<&'static str>,
) -> KindTable {
    KindTable { kind, table, bytes, time }
}

pub(crate) const KINDS: [KindTable; 10] = [
    kind("tasks", "task", "length(head)", Some("created_at")),
    kind("event batches", "log", "length(bytes)", None),
    kind("journal records", "journal", "length(bytes)", None),
    kind("snapshots", "snapshot", "length(fold)", None),
    kind("webhooks", "webhook", "length(config)", None),
    kind("failed deliveries", "dead_letter", "length(reason)", Some("at")),
    kind("sessions", "session", "length(body)", Some("used_at")),
    kind("memory entries", "memory", "size", Some("created_at")),
    kind("records", "record", "length(body)", Some("updated_at")),
    kind("audit lines", "audit", "length(resource)", Some("at")),
];

impl KindTable {
    /// Count, bytes, oldest and newest of the kind, as one row of four numbers of which the last two may be null.
    pub(crate) fn sql(&self) -> String {
        let Self { table, bytes, time, .. } = self;
        let time = time.unwrap_or("CAST(NULL AS bigint)");
        format!(
            "SELECT count(*), CAST(coalesce(sum({bytes}), 0) AS bigint), min({time}), max({time}) FROM {table}"
        )
    }

    /// The statistics from that row.
    pub(crate) fn read(
        &self,
        count: i64,
        bytes: i64,
        oldest: Option<i64>,
        newest: Option<i64>,
    ) -> KindStatistics {
        KindStatistics {
            kind: self.kind,
            count: count.unsigned_abs(),
            bytes: bytes.unsigned_abs(),
            oldest: oldest.map(Timestamp),
            newest: newest.map(Timestamp),
        }
    }
}

/// Tasks by state: the code and the count.
pub(crate) const STATES: &str = "SELECT state, count(*) FROM task GROUP BY state ORDER BY state";

/// A row of [`STATES`]; `None` for a code that this version does not know.
pub(crate) fn state_count(code: i64, count: i64) -> Option<(State, u64)> {
    Some((State::from_code(u8::try_from(code).ok()?)?, count.unsigned_abs()))
}
