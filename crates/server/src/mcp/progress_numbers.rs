//! The numbers of the progress notifications of one call.
//!
//! MCP requires each number to be greater than the previous one. The agent's own progress keeps its figures; a
//! part of the result gets a number between two of them, above the last one by a tiny step for each event of
//! the log. So the number of an event follows from the log, and a resumed stream continues above what was sent
//! before.

use nuncio_engine::event::Progress;

/// The increment per event, relative to figures above 1.
const STEP: f64 = 1e-9;

#[derive(Debug)]
pub(crate) struct ProgressNumbers {
    /// The progress that the agent reported.
    done: Option<f64>,
    /// The total that the agent reported.
    pub(crate) total: Option<f64>,
    /// The last number sent.
    last: f64,
}

impl Default for ProgressNumbers {
    fn default() -> Self {
        Self { done: None, total: None, last: f64::NEG_INFINITY }
    }
}

impl ProgressNumbers {
    /// The number for the agent's progress; `None` if it is no further than before.
    pub(crate) fn of_progress(&mut self, seq: u64, progress: &Progress) -> Option<f64> {
        if self.done.is_some_and(|done| progress.done <= done) || !progress.done.is_finite() {
            return None;
        }
        (self.done, self.total) = (Some(progress.done), progress.total);
        Some(if progress.done > self.last { self.rise(progress.done) } else { self.of_chunk(seq) })
    }

    /// The number for a part of the result.
    pub(crate) fn of_chunk(&mut self, seq: u64) -> f64 {
        let done = self.done.unwrap_or_default();
        self.rise(done + done.abs().max(1.0) * STEP * seq as f64)
    }

    fn rise(&mut self, number: f64) -> f64 {
        self.last = number.max(self.last.next_up());
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(done: f64) -> Progress {
        Progress { done, total: Some(100.0), text: None, data: None }
    }

    #[test]
    fn numbers_rise_whatever_comes_between_the_agents_figures() {
        let mut numbers = ProgressNumbers::default();
        let told: Vec<f64> = [
            Some(numbers.of_chunk(2)),
            numbers.of_progress(3, &progress(0.0)),
            numbers.of_progress(4, &progress(25.0)),
            Some(numbers.of_chunk(5)),
            Some(numbers.of_chunk(6)),
            numbers.of_progress(7, &progress(25.0)),
            numbers.of_progress(8, &progress(50.0)),
            numbers.of_progress(9, &progress(-3.0)),
            Some(numbers.of_chunk(10)),
            numbers.of_progress(11, &progress(1e15)),
            Some(numbers.of_chunk(12)),
            numbers.of_progress(13, &progress(f64::NAN)),
        ]
        .into_iter()
        .flatten()
        .collect();
        assert_eq!(told.len(), 9, "what is no further than before has no number: {told:?}");
        assert!(told.is_sorted_by(|before, after| before < after), "{told:?}");
        assert_eq!((told[2], told[5]), (25.0, 50.0), "the agent's figures are its own");
    }

    #[test]
    fn a_stream_that_is_resumed_goes_on_above_what_was_sent() {
        let mut before = ProgressNumbers::default();
        before.of_progress(3, &progress(25.0));
        let sent = (4..5000).map(|seq| before.of_chunk(seq)).last().unwrap();
        // Only the end of the seen events is read again, and the task knows its last progress.
        let mut resumed = ProgressNumbers::default();
        resumed.of_progress(3, &progress(25.0));
        resumed.of_chunk(4999);
        assert!(resumed.of_chunk(5000) > sent);
    }
}
