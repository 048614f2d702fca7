//! The file descriptor limit: every connection uses a descriptor, and so do files, agents and outbound calls.
//!
//! Most systems start a process with a soft limit of 1,024 and allow it to raise that itself. A server
//! without free descriptors can accept no connection and open no file, so connections are limited below that.

use nuncio_server::HttpLimits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The highest limit requested: some programs close every descriptor up to their limit.
const ENOUGH: u64 = 65_536;

/// Raises the soft limit of this process as far as allowed. Child processes inherit it.
pub fn raise_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(ENOUGH, |maximum| maximum.min(ENOUGH));
    if current.is_none_or(|current| current >= wanted) {
        return;
    }
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }) {
        tracing::warn!(%error, "the limit of file descriptors cannot be raised");
    }
}

/// Limits connections to three quarters of the descriptors; the rest is for everything else.
pub(crate) fn bound_connections(limits: &mut HttpLimits) {
    let Some(descriptors) = getrlimit(Resource::Nofile).current else { return };
    let most = connections_for(descriptors);
    if limits.max_connections > most {
        tracing::info!(
            "max-connections is {most}, not {}: this process may open {descriptors} files (ulimit -n)",
            limits.max_connections
        );
        limits.max_connections = most;
    }
}

fn connections_for(descriptors: u64) -> usize {
    usize::try_from(descriptors / 4 * 3).unwrap_or(usize::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_descriptors_is_for_everything_but_connections() {
        let mut limits = HttpLimits::default();
        bound_connections(&mut limits);
        let allowed = getrlimit(Resource::Nofile).current.map_or(usize::MAX, connections_for);
        assert_eq!(limits.max_connections, HttpLimits::default().max_connections.min(allowed));
        assert_eq!(connections_for(1_024), 768);
        assert_eq!(connections_for(0), 1);
    }
}
