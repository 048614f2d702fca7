//! The connection pool, and statements on its connections.

use std::{
    str::FromStr,
    sync::Arc,
    time::{Duration, Instant},
};

use deadpool_postgres::{Manager, ManagerConfig, RecyclingMethod, Runtime, Timeouts};
use nuncio_engine::store::StoreError;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::{Client, Config, Row, error::SqlState, types::ToSql};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::error::{PostgresErrorKind, PostgresOpenError, error_kind, store_error};

/// Deadline for opening a connection.
pub(super) const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// The initial backoff of retries.
const AGAIN: Duration = Duration::from_millis(20);

/// A parameter of a statement.
pub(super) type Param<'a> = &'a (dyn ToSql + Sync);

/// The settings of a URL, with this store's own.
pub(super) fn config(url: &str, schema: &str) -> Result<Config, PostgresOpenError> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if schema.is_empty() || schema.len() > 40 || !schema.chars().all(plain) {
        return Err(PostgresOpenError::Url(format!(
            "{schema:?} is not a name for a schema: use up to 40 small letters, digits and underscores"
        )));
    }
    let mut config = Config::from_str(url).map_err(|error| {
        PostgresOpenError::Url(format!(
            "not a PostgreSQL URL ({error}): write postgres://user@host:5432/database"
        ))
    })?;
    let own = format!("-c search_path={schema}");
    let options = config.get_options().map_or(own.clone(), |given| format!("{given} {own}"));
    config.options(options).application_name(format!("nuncio {schema}")).connect_timeout(CONNECT_WITHIN);
    // A host that vanishes without closing the connection is noticed within about 20 seconds.
    config.keepalives(true).keepalives_idle(Duration::from_secs(10));
    config.keepalives_interval(Duration::from_secs(3)).keepalives_retries(3);
    config.tcp_user_timeout(Duration::from_secs(20));
    Ok(config)
}

/// TLS as the URL requires it (`sslmode`), verified against the roots that this machine trusts.
pub(super) fn tls() -> MakeRustlsConnect {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = match builder.with_safe_default_protocol_versions() {
        Ok(builder) => builder,
        // The provider is compiled in with the versions that it supports.
        Err(error) => unreachable!("{error}"),
    };
    MakeRustlsConnect::new(builder.with_root_certificates(roots).with_no_client_auth())
}

/// The settings for opening a connection.
pub(super) struct ConnectOptions {
    pub(super) config: Config,
    pub(super) tls: MakeRustlsConnect,
}

impl ConnectOptions {
    /// Opens a dedicated connection. It closes when the client is dropped.
    pub(super) async fn connect(&self) -> Result<Client, StoreError> {
        let connecting = self.config.connect(self.tls.clone());
        let (client, connection) = match tokio::time::timeout(CONNECT_WITHIN, connecting).await {
            Ok(connected) => connected.map_err(|error| store_error(&error))?,
            Err(_) => return Err(StoreError::Unavailable("the database does not answer".into())),
        };
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to the database ended");
            }
        });
        Ok(client)
    }
}

/// A pool of connections for single statements.
pub(super) struct PostgresPool {
    pool: deadpool_postgres::Pool,
    patience: Duration,
}

impl PostgresPool {
    pub(super) fn new(
        config: &Config,
        tls: &MakeRustlsConnect,
        size: usize,
        patience: Duration,
    ) -> Result<Self, PostgresOpenError> {
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(config.clone(), tls.clone(), recycling);
        let timeouts =
            Timeouts { wait: Some(patience), create: Some(CONNECT_WITHIN), recycle: Some(patience) };
        let pool = deadpool_postgres::Pool::builder(manager)
            .max_size(size.max(1))
            .timeouts(timeouts)
            .runtime(Runtime::Tokio1)
            .build()
            .map_err(|error| PostgresOpenError::Url(error.to_string()))?;
        Ok(Self { pool, patience })
    }

    /// Runs a read, and retries it until the deadline while the database is unavailable.
    pub(super) async fn read(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, StoreError> {
        let (started, mut wait) = (Instant::now(), AGAIN);
        loop {
            match self.run(sql, params).await {
                Err(StoreError::Unavailable(_)) if started.elapsed() + wait < self.patience => {
                    tokio::time::sleep(wait).await;
                    wait *= 2;
                }
                result => return result,
            }
        }
    }

    /// Runs a read that returns at most one row.
    pub(super) async fn read_one(&self, sql: &str, params: &[Param<'_>]) -> Result<Option<Row>, StoreError> {
        Ok(self.read(sql, params).await?.pop())
    }

    /// Takes a connection from the pool.
    pub(super) async fn client(&self) -> Result<deadpool_postgres::Object, StoreError> {
        self.pool.get().await.map_err(|error| match error {
            deadpool_postgres::PoolError::Backend(error) => store_error(&error),
            other => StoreError::Unavailable(format!("no connection to the database: {other}")),
        })
    }

    /// Runs a search: a read with a statement timeout. `None` if it timed out.
    pub(super) async fn search(
        &self,
        sql: &str,
        params: &[Param<'_>],
        within: Duration,
    ) -> Result<Option<Vec<Row>>, StoreError> {
        let mut client = self.client().await?;
        let answer = async {
            let statement = client.prepare_cached(sql).await?;
            let reading = client.build_transaction().read_only(true).start().await?;
            let limit = format!("SET LOCAL statement_timeout = {}", within.as_millis().max(1));
            reading.batch_execute(&limit).await?;
            let rows = reading.query(&statement, params).await;
            reading.rollback().await?;
            rows
        };
        let answered = tokio::time::timeout(within + self.patience, answer).await;
        match answered {
            Ok(Ok(rows)) => Ok(Some(rows)),
            Ok(Err(error)) if error.code() == Some(&SqlState::QUERY_CANCELED) => Ok(None),
            Ok(Err(error)) => {
                if error_kind(&error) == PostgresErrorKind::Lost {
                    drop(deadpool_postgres::Object::take(client));
                }
                Err(store_error(&error))
            }
            Err(_) => {
                drop(deadpool_postgres::Object::take(client));
                Err(StoreError::Unavailable(format!("the database has not answered for {:?}", self.patience)))
            }
        }
    }

    /// Runs a statement once, without a retry.
    pub(super) async fn run(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>, StoreError> {
        let client = self.client().await?;
        let answer = async {
            let statement = client.prepare_cached(sql).await?;
            client.query(&statement, params).await
        };
        match tokio::time::timeout(self.patience, answer).await {
            Ok(Ok(rows)) => Ok(rows),
            Ok(Err(error)) => {
                if error_kind(&error) == PostgresErrorKind::Lost {
                    // Removed from the pool.
                    drop(deadpool_postgres::Object::take(client));
                }
                Err(store_error(&error))
            }
            Err(_) => {
                drop(deadpool_postgres::Object::take(client));
                Err(StoreError::Unavailable(format!("the database has not answered for {:?}", self.patience)))
            }
        }
    }

    pub(super) fn close(&self) {
        self.pool.close();
    }
}
