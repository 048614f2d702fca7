//! The metrics of the process itself, read from `/proc` when they are rendered. Where there is no `/proc`, there are none but
//! the limit of file descriptors.

use std::fs;

use nuncio_engine::metric::{self, MetricFamily};
use rustix::process::{Resource, getrlimit};

/// Ticks per second in what Linux shows to programs, on every machine that this is built for (USER_HZ).
const TICKS: f64 = 100.0;

/// Whether a family is one of these.
pub(super) fn is_family(family: &MetricFamily) -> bool {
    family.name.starts_with("process_")
}

/// The families that can be read, with their values.
pub(super) fn read() -> Vec<(MetricFamily, f64)> {
    let stat = fs::read_to_string("/proc/self/stat").ok();
    let stat = stat.as_deref().and_then(ProcessStat::parse);
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let memory = |field: &str| kilobytes(&status, field).map(|kilobytes| (kilobytes * 1024) as f64);
    let boot = fs::read_to_string("/proc/stat").ok().as_deref().and_then(boot_time);
    let started = stat.as_ref().zip(boot).map(|(stat, boot)| boot as f64 + stat.started as f64 / TICKS);
    // The folder of the descriptors is read through one of them.
    let open = fs::read_dir("/proc/self/fd").ok().map(|open| (open.count() as f64 - 1.0).max(0.0));
    let found = [
        (metric::PROCESS_CPU, stat.as_ref().map(|stat| stat.cpu_ticks as f64 / TICKS)),
        (metric::PROCESS_RESIDENT_MEMORY, memory("VmRSS:")),
        (metric::PROCESS_VIRTUAL_MEMORY, memory("VmSize:")),
        (metric::PROCESS_START_TIME, started),
        (metric::PROCESS_OPEN_FDS, open),
        (metric::PROCESS_MAX_FDS, getrlimit(Resource::Nofile).current.map(|most| most as f64)),
    ];
    found.into_iter().filter_map(|(family, value)| Some((family, value?))).collect()
}

/// The fields of `/proc/self/stat` that matter here (proc(5)).
#[derive(Debug, PartialEq, Eq)]
struct ProcessStat {
    cpu_ticks: u64,
    /// Ticks from the start of the machine.
    started: u64,
}

impl ProcessStat {
    fn parse(text: &str) -> Option<Self> {
        // The name of the program is in parentheses, and may contain some.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // The first of them is the third of the file.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self { cpu_ticks: field(14)? + field(15)?, started: field(22)? })
    }
}

/// A field of `/proc/self/status` in kilobytes.
fn kilobytes(status: &str, field: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix(field))?;
    value.trim().strip_suffix(" kB")?.parse().ok()
}

/// When the machine started, in seconds since 1970.
fn boot_time(stat: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_found_whatever_the_program_is_called() {
        let text = "4711 (a) b) c) S 1 2 3 4 5 6 7 8 9 10 120 30 13 14 15 16 17 18 9000 1048576 256 1";
        assert_eq!(ProcessStat::parse(text), Some(ProcessStat { cpu_ticks: 150, started: 9000 }));
        assert_eq!(ProcessStat::parse("4711 (a"), None);
        assert_eq!(boot_time("cpu 1 2\nbtime 1700000000\nprocesses 9\n"), Some(1_700_000_000));
        assert_eq!(kilobytes("VmSize:\t    100 kB\nVmRSS:\t      7 kB\n", "VmRSS:"), Some(7));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_all_of_them() {
        let found = read();
        assert_eq!(found.len(), 6, "{found:?}");
        let value = |name: &str| found.iter().find(|(family, _)| family.name == name).unwrap().1;
        assert!(value("process_resident_memory_bytes") > 1_000_000.0);
        assert!(value("process_open_fds") >= 3.0 && value("process_max_fds") > value("process_open_fds"));
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        let started = value("process_start_time_seconds");
        assert!(started <= now + 1.0 && started > now - 24.0 * 3600.0, "{started} {now}");
    }
}
