//! The cost of operations, and the table it is printed in.

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};

/// The CPU time that this process has used.
pub(crate) fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// The cost of a number of operations together.
#[derive(Clone, Copy)]
pub(crate) struct Cost {
    count: usize,
    wall: Duration,
    cpu: Duration,
}

impl Cost {
    pub(crate) fn of(count: usize, started: Instant, used: Duration) -> Self {
        Self { count, wall: started.elapsed(), cpu: cpu().saturating_sub(used) }
    }

    fn per_second(&self) -> f64 {
        self.count as f64 / self.wall.as_secs_f64()
    }

    fn cpu_micros(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.count as f64
    }
}

#[derive(Default)]
pub(crate) struct Table(String);

impl Table {
    pub(crate) fn row(&mut self, what: &str, ours: &Cost, direct: &Cost) {
        let _ = writeln!(
            self.0,
            "| {what} | {:.0} | {:.0} | {:.2} x | {:.1} | {:.1} |",
            ours.per_second(),
            direct.per_second(),
            ours.per_second() / direct.per_second(),
            ours.cpu_micros(),
            direct.cpu_micros(),
        );
    }

    pub(crate) fn text(&self) -> String {
        format!(
            "| what | ours, per s | SQLite, per s | ratio | ours, µs of CPU each | SQLite, µs of CPU each |\n\
             | --- | ---: | ---: | ---: | ---: | ---: |\n{}",
            self.0
        )
    }
}
