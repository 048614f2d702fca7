//! Maintenance of a schema by a process of its own, also while servers use it: statistics and compaction.

use tokio_postgres::Client;

use super::{PostgresOpenError, PostgresOptions, pool, schema::KNOWN_SCHEMA};
use crate::statistics::{CompactionReport, KINDS, STATES, StoreStatistics, state_count};

/// The bytes of all tables of the schema, with their indexes.
const SIZE: &str = "SELECT CAST(coalesce(sum(pg_total_relation_size(c.oid)), 0) AS bigint) FROM pg_class c
    JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r'";

/// The tables of the schema.
const TABLES: &str = "SELECT tablename::text FROM pg_tables WHERE schemaname = $1 ORDER BY tablename";

/// Reads statistics. The schema is not migrated.
pub(crate) async fn statistics(
    url: &str,
    options: &PostgresOptions,
) -> Result<StoreStatistics, PostgresOpenError> {
    let client = connect(url, options).await?;
    let schema: i32 =
        client.query_one("SELECT coalesce(max(version), 0) FROM schema_version", &[]).await?.get(0);
    let mut kinds = vec![];
    for kind in &KINDS {
        let exists = client.query_one("SELECT to_regclass($1) IS NOT NULL", &[&kind.table]).await?;
        if !exists.get::<_, bool>(0) {
            continue;
        }
        let row = client.query_one(&kind.sql(), &[]).await?;
        kinds.push(kind.read(row.get(0), row.get(1), row.get(2), row.get(3)));
    }
    let states = client.query(STATES, &[]).await?;
    Ok(StoreStatistics {
        bytes: size(&client, options).await?,
        log_bytes: None,
        free_bytes: None,
        schema: schema.unsigned_abs(),
        known_schema: KNOWN_SCHEMA as u32,
        kinds,
        states: states
            .iter()
            .filter_map(|row| state_count(i64::from(row.get::<_, i16>(0)), row.get(1)))
            .collect(),
    })
}

/// Frees the room of deleted rows for new ones, and renews what the planner knows. Servers may work meanwhile; the
/// files become smaller only where the end of a table is empty.
pub(crate) async fn compact(
    url: &str,
    options: &PostgresOptions,
) -> Result<CompactionReport, PostgresOpenError> {
    let client = connect(url, options).await?;
    let before = size(&client, options).await?;
    for row in client.query(TABLES, &[&options.schema]).await? {
        let table: String = row.get(0);
        // A name of this program's own migrations. Each by itself: VACUUM runs in no transaction.
        client.batch_execute(&format!("VACUUM (ANALYZE) \"{table}\"")).await?;
    }
    Ok(CompactionReport { before, after: size(&client, options).await? })
}

async fn connect(url: &str, options: &PostgresOptions) -> Result<Client, PostgresOpenError> {
    let config = pool::config(url, &options.schema)?;
    let (client, connection) = config.connect(pool::tls()).await.map_err(PostgresOpenError::Connect)?;
    // It ends with its client.
    tokio::spawn(connection);
    let exists: bool = client
        .query_one("SELECT to_regclass($1) IS NOT NULL", &[&format!("{}.schema_version", options.schema)])
        .await?
        .get(0);
    match exists {
        true => Ok(client),
        false => Err(PostgresOpenError::NoStore(options.schema.clone())),
    }
}

async fn size(client: &Client, options: &PostgresOptions) -> Result<u64, PostgresOpenError> {
    let bytes: i64 = client.query_one(SIZE, &[&options.schema]).await?.get(0);
    Ok(bytes.unsigned_abs())
}
