//! The output of the chat: a terminal with progress bars, plain lines, or one JSON object per line.
//!
//! On a terminal the bottom is either an edited line or progress bars; all other output appears above it.

use std::{
    collections::{BTreeMap, HashMap},
    io::{self, Write as _},
    time::{Duration, Instant},
};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use nuncio_engine::event::{Level, Progress};

use super::{
    line_renderer::{
        LineLayout, LineRenderer, LineStyle, RunEvent, RunLabel, ScreenItem, measure, object, percent,
    },
    prompt_printer::PromptPrinter,
    run_store::UnfinishedText,
};
use crate::text::plain;

/// The least time between two progress lines of one run, where there are no bars.
const QUIET: Duration = Duration::from_millis(500);
/// The resolution of bars.
const PARTS: u64 = 1000;

pub(super) struct Screen {
    lines: LineRenderer,
    kind: ScreenKind,
    /// Log lines below this level are not shown.
    pub(super) level: Level,
    /// The last progress line of each run, and when it was shown.
    last_progress: HashMap<u32, (Instant, String)>,
    /// The reader of the output has closed it.
    pub(super) broken: bool,
    /// Lines held back until [`Self::release`].
    held_output: Option<String>,
}

enum ScreenKind {
    Terminal(TerminalScreen),
    Plain,
    Json,
}

struct TerminalScreen {
    bars: MultiProgress,
    shown: BTreeMap<u32, ProgressBar>,
    /// Prints lines above the edited line.
    above: PromptPrinter,
    editing: bool,
    /// The last line is incomplete: bars would be drawn over it.
    within_line: bool,
}

impl Screen {
    /// A terminal; `above` prints lines while one is edited.
    pub(super) fn terminal(level: Level, colour: bool, above: PromptPrinter) -> Self {
        let bars = MultiProgress::with_draw_target(ProgressDrawTarget::stdout());
        let terminal =
            TerminalScreen { bars, shown: BTreeMap::new(), above, editing: false, within_line: false };
        Self::new(ScreenKind::Terminal(terminal), level, colour)
    }

    /// Plain lines, for files and pipes.
    pub(super) fn plain(level: Level) -> Self {
        Self::new(ScreenKind::Plain, level, false)
    }

    /// JSON objects, for programs.
    pub(super) fn json(level: Level) -> Self {
        Self::new(ScreenKind::Json, level, false)
    }

    fn new(kind: ScreenKind, level: Level, colour: bool) -> Self {
        Self {
            lines: LineRenderer::new(LineStyle { colour }),
            kind,
            level,
            last_progress: HashMap::new(),
            broken: false,
            held_output: None,
        }
    }

    pub(super) fn is_terminal(&self) -> bool {
        matches!(self.kind, ScreenKind::Terminal(_))
    }

    /// Shows an item. `watched`: whether the user watches this run now, rather than the prompt.
    pub(super) fn show(&mut self, shown: &ScreenItem<'_>, watched: bool) {
        if let ScreenItem::Run(_, RunEvent::Log(line)) = shown
            && line.level < self.level
        {
            return;
        }
        if let ScreenKind::Json = self.kind {
            return self.print(&format!("{}\n", object(shown)));
        }
        if let ScreenItem::Run(who, RunEvent::Progress(progress)) = shown {
            return self.progress(who, progress, watched);
        }
        if let ScreenItem::Run(who, RunEvent::Ended(..) | RunEvent::Lost(_) | RunEvent::Detached(_)) = shown {
            self.remove_progress_bar(who.run);
        }
        let text = self.lines.render(shown, self.layout(watched));
        self.print(&text);
    }

    fn layout(&self, watched: bool) -> LineLayout {
        match &self.kind {
            ScreenKind::Terminal(terminal) => {
                LineLayout { width: Some(terminal_width()), streams: watched && !terminal.editing }
            }
            ScreenKind::Plain | ScreenKind::Json => LineLayout::default(),
        }
    }

    fn progress(&mut self, who: &RunLabel, progress: &Progress, watched: bool) {
        match &mut self.kind {
            ScreenKind::Terminal(_) if !watched => {}
            ScreenKind::Terminal(terminal) => terminal.progress(who, progress),
            ScreenKind::Plain | ScreenKind::Json => {
                let line = measure(progress);
                let is_end = percent(progress) == Some(100);
                let last = self.last_progress.get(&who.run);
                let is_new = last.is_none_or(|(at, said)| *said != line && (is_end || at.elapsed() >= QUIET));
                if is_new {
                    self.last_progress.insert(who.run, (Instant::now(), line));
                    let shown = ScreenItem::Run(who, RunEvent::Progress(progress));
                    let text = self.lines.render(&shown, LineLayout::default());
                    self.print(&text);
                }
            }
        }
    }

    /// Holds lines back until [`Self::release`].
    pub(super) fn hold(&mut self) {
        self.held_output.get_or_insert_default();
    }

    /// Shows the lines that were held back.
    pub(super) fn release(&mut self) {
        if let Some(text) = self.held_output.take().filter(|text| !text.is_empty()) {
            self.write(&text);
        }
    }

    /// The text of a run whose last line is incomplete and was not shown.
    pub(super) fn unfinished(&self, run: u32) -> Option<UnfinishedText> {
        match self.kind {
            ScreenKind::Json => None,
            ScreenKind::Terminal(_) | ScreenKind::Plain => self.lines.unfinished(run),
        }
    }

    /// Continues such a text.
    pub(super) fn restore_unfinished(&mut self, run: u32, unfinished: UnfinishedText) {
        self.lines.restore_unfinished(run, unfinished);
    }

    /// Removes the progress bar of a run.
    pub(super) fn remove_progress_bar(&mut self, run: u32) {
        self.last_progress.remove(&run);
        if let ScreenKind::Terminal(terminal) = &mut self.kind
            && let Some(bar) = terminal.shown.remove(&run)
        {
            bar.finish_and_clear();
            terminal.bars.remove(&bar);
        }
    }

    /// Whether a line is being edited from now on.
    pub(super) fn editing(&mut self, editing: bool) {
        // The prompt begins a line.
        let end = self.lines.end_line();
        self.print(end);
        if let ScreenKind::Terminal(terminal) = &mut self.kind {
            terminal.editing = editing;
            terminal.draw_bars();
        }
    }

    fn print(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        match &mut self.held_output {
            Some(held) => held.push_str(text),
            None => self.write(text),
        }
    }

    fn write(&mut self, text: &str) {
        let within_line = self.lines.is_within_line();
        let written = match &mut self.kind {
            ScreenKind::Terminal(terminal) => terminal.write(text, within_line),
            ScreenKind::Plain | ScreenKind::Json => write(text),
        };
        self.broken |= written.is_err();
    }
}

impl TerminalScreen {
    /// Writes above the edited line, or the bars. `within_line`: the text ends within a line.
    fn write(&mut self, text: &str, within_line: bool) -> io::Result<()> {
        if self.editing {
            return self.above.print(text);
        }
        if within_line {
            self.within_line = true;
            self.draw_bars();
        }
        let written = self.bars.suspend(|| write(text));
        if !within_line && std::mem::take(&mut self.within_line) {
            self.draw_bars();
        }
        written
    }

    /// Draws the bars where nothing else is at the bottom.
    fn draw_bars(&self) {
        if self.editing || self.within_line {
            let _ = self.bars.clear();
            self.bars.set_draw_target(ProgressDrawTarget::hidden());
        } else {
            self.bars.set_draw_target(ProgressDrawTarget::stdout());
        }
    }

    fn progress(&mut self, who: &RunLabel, progress: &Progress) {
        let width = terminal_width();
        let bar = self.shown.entry(who.run).or_insert_with(|| {
            let bar = self.bars.add(ProgressBar::new(PARTS));
            bar.set_prefix(format!("[{} {}]", who.run, plain(&who.offer)));
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        match percent(progress) {
            Some(percent) => {
                // Narrow terminals have room for the text only.
                let template = match width {
                    0..50 => "{percent:>3}% {wide_msg}",
                    50..90 => "{prefix} [{bar:10}] {percent:>3}% {wide_msg}",
                    _ => "{prefix} [{bar:24}] {percent:>3}% {wide_msg} {elapsed}",
                };
                bar.set_style(style(template));
                bar.set_position(percent * PARTS / 100);
            }
            None => {
                bar.set_style(style("{prefix} {spinner} {wide_msg} {elapsed}"));
            }
        }
        let words = progress.text.as_deref().map(|text| plain(text).replace('\n', " ")).unwrap_or_default();
        bar.set_message(if percent(progress).is_none() {
            format!("{} {words}", progress.done)
        } else {
            words
        });
    }
}

fn terminal_width() -> usize {
    terminal_size::terminal_size().map_or(80, |(width, _)| usize::from(width.0))
}

fn style(template: &str) -> ProgressStyle {
    // The templates are constants; an invalid one falls back to the default bar.
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    style.progress_chars("=> ")
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
