//! The cache of owner and agent numbers: their names repeat in every row and in most indexes. The tables only
//! grow, so entries stay valid; an owner's name changes only when its tenant is erased, and then the cache is
//! cleared.

use std::collections::HashMap;

use nuncio_engine::store::StoreError;
use parking_lot::Mutex;
use tokio_postgres::Client;

use super::{error::store_error, pool::PostgresPool};

/// Maximum entries: beyond it the cache is cleared and fills again, because there can be many owners.
const KEPT: usize = 16_384;

/// The kinds of names that have numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum NameKind {
    Owner,
    Agent,
}

/// The numbers that this process has read.
#[derive(Default)]
pub(super) struct PostgresNameCache {
    known: Mutex<HashMap<(NameKind, String), i32>>,
}

impl PostgresNameCache {
    /// The number of a name, if it ever had a task (or, for an owner, a session).
    pub(super) async fn find(
        &self,
        pool: &PostgresPool,
        of: NameKind,
        name: &str,
    ) -> Result<Option<i32>, StoreError> {
        if let Some(no) = self.cached(of, name) {
            return Ok(Some(no));
        }
        let sql = match of {
            NameKind::Owner => "SELECT no FROM owner WHERE name = $1",
            NameKind::Agent => "SELECT no FROM agent WHERE name = $1",
        };
        let found = pool.read_one(sql, &[&name]).await?.map(|row| row.get(0));
        if let Some(no) = found {
            self.insert(of, name, no);
        }
        Ok(found)
    }

    /// The number of a name, which is assigned if there is none. In its own transaction: an unused number does
    /// no harm.
    pub(super) async fn number(&self, client: &Client, of: NameKind, name: &str) -> Result<i32, StoreError> {
        if let Some(no) = self.cached(of, name) {
            return Ok(no);
        }
        let (add, find) = match of {
            NameKind::Owner => (
                "INSERT INTO owner (name) VALUES ($1) ON CONFLICT DO NOTHING",
                "SELECT no FROM owner WHERE name = $1",
            ),
            NameKind::Agent => (
                "INSERT INTO agent (name) VALUES ($1) ON CONFLICT DO NOTHING",
                "SELECT no FROM agent WHERE name = $1",
            ),
        };
        let number = async {
            // Selected first: an insert that conflicts uses up a number.
            if let Some(row) = client.query_opt(find, &[&name]).await? {
                return Ok(row.get(0));
            }
            client.execute(add, &[&name]).await?;
            client.query_one(find, &[&name]).await.map(|row| row.get(0))
        };
        let no = number.await.map_err(|error| store_error(&error))?;
        self.insert(of, name, no);
        Ok(no)
    }

    /// Clears the cache: an owner was renamed.
    pub(super) fn forget(&self) {
        self.known.lock().clear();
    }

    fn cached(&self, of: NameKind, name: &str) -> Option<i32> {
        self.known.lock().get(&(of, name.to_owned())).copied()
    }

    fn insert(&self, of: NameKind, name: &str, no: i32) {
        let mut known = self.known.lock();
        if known.len() >= KEPT {
            known.clear();
        }
        known.insert((of, name.to_owned()), no);
    }
}
