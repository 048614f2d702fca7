//! Progress on the standard error: a bar on a terminal, a line now and then elsewhere, nothing for programs.

use std::{
    io::{IsTerminal as _, stderr},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{output::note, text::plain};

/// The least time between two lines where there is no terminal.
const QUIET: Duration = Duration::from_secs(1);

pub(crate) enum ProgressDisplay {
    /// Shows nothing: the output is for programs.
    Silent,
    /// On a terminal.
    Bar(ProgressBar),
    /// In a file or a pipe.
    Lines { last: Option<(Instant, String)> },
}

impl ProgressDisplay {
    /// Shows progress unless the output is for programs.
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

    /// The same, but shows nothing where there is no terminal.
    pub(crate) fn on_terminal(for_programs: bool) -> Self {
        match Self::new(for_programs) {
            Self::Lines { .. } => Self::Silent,
            shown => shown,
        }
    }

    /// Shows how much is done, and the total if it is known.
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

    /// Shows a sentence at once, which stays.
    pub(crate) fn announce(&self, sentence: &str) {
        match self {
            Self::Silent => {}
            Self::Bar(bar) => bar.println(plain(sentence)),
            Self::Lines { .. } => note(sentence),
        }
    }

    /// Clears the display while the user is asked something.
    pub(crate) fn hide(&self) {
        if let Self::Bar(bar) = self {
            bar.disable_steady_tick();
            bar.finish_and_clear();
        }
    }

    /// Draws it again.
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
    // The templates are constants; an invalid one falls back to the default bar.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
