//! Owners and agents as small numbers: they repeat in every row and in most indexes. The tables only grow, so
//! what was looked up stays true; an owner's name changes only where its tenant is erased, and then all is forgotten.

use std::collections::HashMap;

use nuncio_engine::store::StoreError;
use parking_lot::Mutex;
use tokio_postgres::Client;

use super::{error::store_error, pool::PostgresPool};

/// Past this many entries a directory is emptied and fills again: owners can be many.
const KEPT: usize = 16_384;

/// What has a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum NameKind {
    Owner,
    Agent,
}

/// The numbers that this process knows.
#[derive(Default)]
pub(super) struct PostgresNameCache {
    known: Mutex<HashMap<(NameKind, String), i32>>,
}

impl PostgresNameCache {
    /// The number, if it ever had a task (or, an owner, a session).
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

    /// The number, which is given if there is none. In a transaction of its own: a number that no task has does
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
            // Looked for first: an insert that conflicts uses up a number.
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

    /// Forgets all of them: an owner was given another name.
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
