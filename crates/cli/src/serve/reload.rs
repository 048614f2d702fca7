//! Live reload of `nuncio.toml`: agents are added, changed and removed without a restart.
//!
//! The file is polled every second, and read at once on SIGHUP. An invalid file changes nothing and is logged
//! once. Other settings are read only at startup; those that changed are named in the log.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use nuncio::agents::fleet::{Fleet, FleetError};
use sha2::{Digest as _, Sha256};
use tokio::signal::unix::Signal;

use crate::config::{self, Config, FlagValues, LoadedConfig, SETTINGS};

/// The poll interval.
const LOOK_EVERY: Duration = Duration::from_secs(1);

pub(super) struct ConfigReloader {
    flags: FlagValues,
    file: PathBuf,
    /// The configuration that the server was started with.
    config: Config,
    seen: Option<FileStamp>,
    /// The stamp of the previous poll, if the file has changed since it was read. For debouncing.
    changing: Option<Option<FileStamp>>,
    /// The digest of the last content that was read, valid or not.
    digest: Option<[u8; 32]>,
}

/// What changes when a file is written, known without reading it.
#[derive(PartialEq, Eq, Clone, Copy)]
struct FileStamp {
    changed: Option<SystemTime>,
    length: u64,
    inode: u64,
}

impl ConfigReloader {
    pub(super) fn new(flags: &FlagValues, loaded: &LoadedConfig) -> Self {
        let mut reload = Self {
            flags: flags.clone(),
            file: loaded.file.clone(),
            config: loaded.config.clone(),
            seen: None,
            changing: None,
            digest: None,
        };
        // So that the first poll does not reload what was just loaded. A write in between is found by its
        // content.
        reload.seen = reload.stamp();
        reload.digest = reload.content();
        reload
    }

    /// Polls the file for as long as the server runs. `hangup` is SIGHUP.
    pub(super) async fn run(mut self, fleet: Fleet, mut hangup: Signal) {
        loop {
            let asked = tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => false,
                told = hangup.recv() => told.is_some(),
            };
            if asked {
                tracing::info!(file = %self.file.display(), "asked to read the configuration again");
            }
            if self.is_new() || asked {
                self.apply(&fleet).await;
            }
        }
    }

    /// Whether the file's content differs from what was read last.
    fn is_new(&mut self) -> bool {
        let stamp = self.stamp();
        if stamp == self.seen {
            self.changing = None;
            return false;
        }
        // Debounce: an editor may still be writing, so the file is read once its stamp has stopped changing.
        if self.changing != Some(stamp) {
            self.changing = Some(stamp);
            return false;
        }
        self.seen = stamp;
        let digest = self.content();
        std::mem::replace(&mut self.digest, digest) != digest
    }

    fn stamp(&self) -> Option<FileStamp> {
        let metadata = fs::metadata(&self.file).ok()?;
        Some(FileStamp { changed: metadata.modified().ok(), length: metadata.len(), inode: metadata.ino() })
    }

    fn content(&self) -> Option<[u8; 32]> {
        fs::read(&self.file).ok().map(|bytes| Sha256::digest(bytes).into())
    }

    async fn apply(&self, fleet: &Fleet) {
        let loaded = config::load(&self.flags, Some(&self.file));
        let read =
            loaded.and_then(|loaded| Ok((loaded.config.agents.specs(&loaded.config.data)?, loaded.config)));
        let (specs, config) = match read {
            Ok(read) => read,
            Err(error) => return tracing::error!("{error}; the agents stay as they were"),
        };
        match fleet.apply(specs).await {
            Ok(applied) if applied.is_empty() => {
                tracing::info!(file = %self.file.display(), "the configuration was read again; no agent has changed");
            }
            Ok(applied) => tracing::info!(file = %self.file.display(), "agents: {applied}"),
            Err(FleetError::Spec(error)) => {
                tracing::error!("{}; the agents stay as they were", config.agents.wrong(&error));
            }
            Err(error) => {
                tracing::error!("{}: {error}; the agents stay as they were", self.file.display());
            }
        }
        if config.serves_builtin_agents() != self.config.serves_builtin_agents() {
            tracing::info!(
                "{}: the built-in agents are {} after a restart (builtin-agents)",
                self.file.display(),
                if config.serves_builtin_agents() { "served" } else { "not served any more" }
            );
        }
        let changed = self.changed(&config);
        if !changed.is_empty() {
            tracing::warn!(
                "{}: a change of {} takes effect after a restart",
                self.file.display(),
                changed.join(", ")
            );
        }
    }

    /// The settings that differ from those the server was started with.
    fn changed(&self, config: &Config) -> Vec<&'static str> {
        let (before, now) = (&self.config, config);
        let changed = SETTINGS.iter().filter(|setting| (setting.get)(before) != (setting.get)(now));
        let listed = before.agents.listed().ne(now.agents.listed());
        changed.map(|setting| setting.key).chain(listed.then_some("[[agent]] with serve = false")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_when_it_has_come_to_rest() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("nuncio.toml");
        let agent =
            |name: &str| format!("[[agent]]\nname = \"{name}\"\nkind = \"process\"\ncommand = [\"cat\"]\n");
        fs::write(&file, agent("one")).unwrap();
        let loaded = config::load(&FlagValues::new(), Some(&file)).unwrap();
        let mut reload = ConfigReloader::new(&FlagValues::new(), &loaded);
        assert!(!reload.is_new());
        let mut writing = agent("one");
        for name in ["two", "three"] {
            writing += &agent(name);
            fs::write(&file, &writing).unwrap();
            assert!(!reload.is_new(), "somebody may be writing it still");
        }
        assert!(reload.is_new());
        assert!(!reload.is_new());
    }
}
