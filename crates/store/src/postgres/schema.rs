//! The database schema: the first node that opens it creates or migrates it, while other nodes wait.

use tokio_postgres::{Client, Config};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{PostgresOpenError, PostgresOptions};

/// The migrations, in order; the position is the version. A released one is never changed.
const MIGRATIONS: &[&str] = &[
    include_str!("../../migrations/postgres/0001_tasks.sql"),
    include_str!("../../migrations/postgres/0002_sessions.sql"),
    include_str!("../../migrations/postgres/0003_knowledge.sql"),
    include_str!("../../migrations/postgres/0004_memory_weight.sql"),
    include_str!("../../migrations/postgres/0005_operator.sql"),
    include_str!("../../migrations/postgres/0006_due_by_owner.sql"),
    include_str!("../../migrations/postgres/0007_failed_deliveries.sql"),
    include_str!("../../migrations/postgres/0008_failed_deliveries_by_tenant.sql"),
    include_str!("../../migrations/postgres/0009_plain_creations.sql"),
];

/// The newest version of the schema.
pub(super) const KNOWN_SCHEMA: usize = MIGRATIONS.len();

/// The advisory lock for schema changes; its second key is the schema's own number.
const LOCK: i32 = 0x6e75_6e63;

/// The settings that make a commit durable, and the values that do not.
const DURABLE: [(&str, &[&str]); 3] =
    [("fsync", &["off"]), ("full_page_writes", &["off"]), ("synchronous_commit", &["off"])];

/// Checks that the server does not lose acknowledged writes, and migrates the schema.
pub(super) async fn prepare(
    config: &Config,
    tls: &MakeRustlsConnect,
    options: &PostgresOptions,
) -> Result<(), PostgresOpenError> {
    let (mut client, connection) = config.connect(tls.clone()).await.map_err(PostgresOpenError::Connect)?;
    let connection = tokio::spawn(connection);
    check_durable(&client, &options.allow_unsafe).await?;
    migrate(&mut client, &options.schema).await?;
    drop(client);
    let _ = connection.await;
    Ok(())
}

async fn check_durable(client: &Client, allowed: &[String]) -> Result<(), PostgresOpenError> {
    for (name, lies) in DURABLE {
        let value: String = client.query_one("SELECT current_setting($1)", &[&name]).await?.get(0);
        if !lies.contains(&value.as_str()) {
            continue;
        }
        if !allowed.iter().any(|allowed| allowed == name) {
            return Err(PostgresOpenError::NotDurable { name: name.into(), value });
        }
        tracing::warn!("{name} is {value}: a crash of the database can lose acknowledged writes");
    }
    Ok(())
}

async fn migrate(client: &mut Client, schema: &str) -> Result<(), PostgresOpenError> {
    let known = MIGRATIONS.len() as i32;
    // Locked until the end of the transaction: other nodes wait, and then find nothing to migrate.
    let change = client.transaction().await?;
    change.execute("SELECT pg_advisory_xact_lock($1, hashtext($2))", &[&LOCK, &schema]).await?;
    // Safe to interpolate: the name was checked for letters, digits and underscores.
    change.batch_execute(&format!("CREATE SCHEMA IF NOT EXISTS {schema}")).await?;
    change.batch_execute("CREATE TABLE IF NOT EXISTS schema_version (version integer NOT NULL)").await?;
    let found: i32 =
        change.query_one("SELECT coalesce(max(version), 0) FROM schema_version", &[]).await?.get(0);
    if found > known {
        return Err(PostgresOpenError::NewerSchema { found, known });
    }
    for (version, step) in (1..).zip(MIGRATIONS).skip(found as usize) {
        change.batch_execute(step).await?;
        change.execute("INSERT INTO schema_version (version) VALUES ($1)", &[&version]).await?;
        tracing::info!(version, schema, "migrated the database schema");
    }
    Ok(change.commit().await?)
}
