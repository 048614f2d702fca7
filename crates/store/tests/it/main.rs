//! The SQLite backend: the suite of all backends, and what only a file can get wrong.

mod conformance;
mod disk;
