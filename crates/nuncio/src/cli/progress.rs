//! How far something is, beside the output: a bar on a terminal, a line now and then elsewhere, nothing for programs.

use std::{
    io::{IsTerminal as _, stderr},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::output::note;

/// How often a line is written where there is no terminal.
const QUIET: Duration = Duration::from_secs(1);

/// What is shown of work that takes its time.
pub(crate) enum ProgressDisplay {
    /// Nobody looks.
    Silent,
    /// On a terminal.
    Bar(ProgressBar),
    /// In a file or a pipe.
    Lines { last: Option<(Instant, String)> },
}

impl ProgressDisplay {
    /// Shows it unless the output is for programs.
    pub(crate) fn new(for_programs: bool) -> Self {
        if for_programs {
            return Self::Silent;
        }
        if !stderr().is_terminal() {
            return Self::Lines { last: None };
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.enable_steady_tick(Duration::from_millis(200));
        Self::Bar(bar)
    }

    /// The same, but with nothing to say where there is no terminal.
    pub(crate) fn on_terminal(for_programs: bool) -> Self {
        match Self::new(for_programs) {
            Self::Lines { .. } => Self::Silent,
            shown => shown,
        }
    }

    /// So much is done, of so much if that is known.
    pub(crate) fn update_progress(&mut self, done: u64, total: Option<u64>, words: &str) {
        match self {
            Self::Silent => {}
            Self::Bar(bar) => {
                match total {
                    Some(total) if bar.length() != Some(total) => {
                        bar.set_style(style("{bar:30} {pos}/{len} {msg} {elapsed}"));
                        bar.set_length(total);
                    }
                    Some(_) => {}
                    None => bar.set_style(style("{spinner} {pos} {msg} {elapsed}")),
                }
                bar.set_position(done);
                bar.set_message(words.to_owned());
            }
            Self::Lines { last } => {
                let line = match total {
                    Some(total) => format!("{done} of {total} {words}"),
                    None => format!("{done} {words}"),
                };
                let line = line.trim_end().to_owned();
                let is_new = last.as_ref().is_none_or(|(at, said)| *said != line && at.elapsed() >= QUIET);
                let is_end = total == Some(done) && last.as_ref().is_none_or(|(_, said)| *said != line);
                if is_new || is_end {
                    note(&line);
                    *last = Some((Instant::now(), line));
                }
            }
        }
    }

    /// Takes it off the terminal while somebody is asked something.
    pub(crate) fn hide(&self) {
        if let Self::Bar(bar) = self {
            bar.disable_steady_tick();
            bar.finish_and_clear();
        }
    }

    /// Shows it again.
    pub(crate) fn show(&mut self) {
        if let Self::Bar(bar) = self {
            bar.reset_eta();
            bar.enable_steady_tick(Duration::from_millis(200));
        }
    }
}

impl Drop for ProgressDisplay {
    fn drop(&mut self) {
        self.hide();
    }
}

fn style(template: &str) -> ProgressStyle {
    // The templates are ours; one that is wrong falls back to the plain bar.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
