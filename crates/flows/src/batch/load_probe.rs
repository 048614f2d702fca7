//! A probe of the machine's load. A value that cannot be measured is `None`, and never delays a batch.

use std::{collections::VecDeque, fmt::Debug, fs};

use parking_lot::Mutex;

/// Samples of CPU time that are retained, one per second: the window over which CPU use is measured.
const SAMPLES: usize = 10;

/// Measures the machine's load, as shares from 0 to 1.
pub trait LoadProbe: Debug + Send + Sync + 'static {
    /// The share of the machine's memory in use, by all processes.
    fn memory(&self) -> Option<f64>;
    /// The share of CPU time used in the last seconds.
    fn cpu(&self) -> Option<f64>;
    /// Takes a sample. Called once per second.
    fn sample(&self) {}
}

/// The load of the host, read from `/proc`.
#[derive(Debug, Default)]
pub struct HostLoadProbe {
    samples: Mutex<VecDeque<CpuTime>>,
}

/// CPU time since the machine started, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CpuTime {
    idle: u64,
    total: u64,
}

impl LoadProbe for HostLoadProbe {
    fn memory(&self) -> Option<f64> {
        memory_share(&fs::read_to_string("/proc/meminfo").ok()?)
    }

    fn cpu(&self) -> Option<f64> {
        let samples = self.samples.lock();
        cpu_share(*samples.front()?, *samples.back()?)
    }

    fn sample(&self) {
        let Some(time) = fs::read_to_string("/proc/stat").ok().and_then(|stat| cpu_time(&stat)) else {
            return;
        };
        let mut samples = self.samples.lock();
        if samples.len() >= SAMPLES {
            samples.pop_front();
        }
        samples.push_back(time);
    }
}

/// The share of memory that is not available.
fn memory_share(meminfo: &str) -> Option<f64> {
    let field = |name: &str| -> Option<f64> {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let (total, available) = (field("MemTotal")?, field("MemAvailable")?);
    (total > 0.0).then(|| (1.0 - available / total).clamp(0.0, 1.0))
}

/// Parses the first line: user, nice, system, idle, iowait, irq, softirq, steal. The later fields are already
/// included in these.
fn cpu_time(stat: &str) -> Option<CpuTime> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line.split_whitespace().take(8).map_while(|tick| tick.parse().ok()).collect();
    let idle = ticks.get(3)? + ticks.get(4).unwrap_or(&0);
    Some(CpuTime { idle, total: ticks.iter().sum() })
}

fn cpu_share(first: CpuTime, last: CpuTime) -> Option<f64> {
    let total = last.total.checked_sub(first.total).filter(|total| *total > 0)?;
    let idle = last.idle.saturating_sub(first.idle).min(total);
    Some(1.0 - idle as f64 / total as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_from_what_the_system_says() {
        assert_eq!(memory_share("MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:  250 kB\n"), Some(0.75));
        assert_eq!(memory_share("MemTotal: 1000 kB\n"), None, "not measured");
        let first = cpu_time("cpu  10 0 10 70 10 0 0 0 5 0\ncpu0 1 1 1 1\n").expect("a first line");
        assert_eq!(first, CpuTime { idle: 80, total: 100 });
        let last = cpu_time("cpu  40 0 10 140 10 0 0 0 5 0\n").expect("a first line");
        assert_eq!(cpu_share(first, last), Some(1.0 - 70.0 / 100.0));
        assert_eq!(cpu_share(last, last), None, "no time has passed");
        assert_eq!(cpu_time("intr 1 2 3"), None);
    }

    #[test]
    fn one_sample_measures_nothing() {
        let machine = HostLoadProbe::default();
        assert_eq!(machine.cpu(), None);
        machine.sample();
        assert_eq!(machine.cpu(), None);
        for _ in 0..2 * SAMPLES {
            machine.sample();
        }
        assert!(machine.samples.lock().len() <= SAMPLES, "bounded");
    }
}
