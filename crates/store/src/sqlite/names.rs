//! The cache of owner and agent numbers: their names repeat in every row and in most indexes.
//!
//! Each connection caches what it has read. The tables only grow, so entries stay valid; the writer clears its
//! cache when a batch is rolled back, and every connection does when a tenant was erased.

use std::{collections::HashMap, sync::Arc};

use rusqlite::{Connection, OptionalExtension, Result};

/// Maximum entries: beyond it a directory is cleared and fills again, because there can be many owners.
const KEPT: usize = 16_384;

/// The name caches of one connection.
#[derive(Default)]
pub(super) struct SqliteNameCache {
    owners: NameDirectory,
    agents: NameDirectory,
}

impl SqliteNameCache {
    /// The owner of that number.
    pub(super) fn owner(&mut self, conn: &Connection, no: i64) -> Result<String> {
        self.owners.name(conn, no, "SELECT name FROM owner WHERE no = ?1")
    }

    /// The agent of that number.
    pub(super) fn agent(&mut self, conn: &Connection, no: i64) -> Result<String> {
        self.agents.name(conn, no, "SELECT name FROM agent WHERE no = ?1")
    }

    /// The number of an owner, if it ever had a task or a session.
    pub(super) fn find_owner(&mut self, conn: &Connection, name: &str) -> Result<Option<i64>> {
        self.owners.find(conn, name, "SELECT no FROM owner WHERE name = ?1")
    }

    /// The number of an agent, if it ever had a task.
    pub(super) fn find_agent(&mut self, conn: &Connection, name: &str) -> Result<Option<i64>> {
        self.agents.find(conn, name, "SELECT no FROM agent WHERE name = ?1")
    }

    /// The number of an owner, which is assigned if there is none. For the writer.
    pub(super) fn owner_no(&mut self, conn: &Connection, name: &str) -> Result<i64> {
        match self.find_owner(conn, name)? {
            Some(no) => Ok(no),
            None => self.owners.add(conn, name, "INSERT INTO owner (name) VALUES (?1)"),
        }
    }

    /// The number of an agent, which is assigned if there is none. For the writer.
    pub(super) fn agent_no(&mut self, conn: &Connection, name: &str) -> Result<i64> {
        match self.find_agent(conn, name)? {
            Some(no) => Ok(no),
            None => self.agents.add(conn, name, "INSERT INTO agent (name) VALUES (?1)"),
        }
    }
}

/// Numbers and names, in both directions.
#[derive(Default)]
struct NameDirectory {
    by_no: HashMap<i64, Arc<str>>,
    by_name: HashMap<Arc<str>, i64>,
}

impl NameDirectory {
    fn name(&mut self, conn: &Connection, no: i64, sql: &str) -> Result<String> {
        if let Some(name) = self.by_no.get(&no) {
            return Ok(name.to_string());
        }
        let name: String = conn.prepare_cached(sql)?.query_row([no], |row| row.get(0))?;
        self.insert(no, &name);
        Ok(name)
    }

    fn find(&mut self, conn: &Connection, name: &str, sql: &str) -> Result<Option<i64>> {
        if let Some(no) = self.by_name.get(name) {
            return Ok(Some(*no));
        }
        let no = conn.prepare_cached(sql)?.query_row([name], |row| row.get(0)).optional()?;
        if let Some(no) = no {
            self.insert(no, name);
        }
        Ok(no)
    }

    fn add(&mut self, conn: &Connection, name: &str, sql: &str) -> Result<i64> {
        conn.prepare_cached(sql)?.execute([name])?;
        let no = conn.last_insert_rowid();
        self.insert(no, name);
        Ok(no)
    }

    fn insert(&mut self, no: i64, name: &str) {
        if self.by_no.len() >= KEPT {
            self.by_no.clear();
            self.by_name.clear();
        }
        let name: Arc<str> = name.into();
        self.by_no.insert(no, Arc::clone(&name));
        self.by_name.insert(name, no);
    }
}
