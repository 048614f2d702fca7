//! The input of the chat: a terminal with a line editor, or a file or pipe. A thread of its own reads each,
//! and only when a line was requested.

use std::{
    io::{self, BufRead as _},
    path::PathBuf,
    sync::mpsc as channel,
    thread,
};

use nuncio_engine::redact::Redactor;
use rustix::termios::{QueueSelector, tcflush};
use rustyline::{
    CompletionType, Config, Context, Editor, Helper,
    completion::Completer,
    error::ReadlineError,
    highlight::{CmdKind, Highlighter},
    hint::Hinter,
    history::FileHistory,
    validate::Validator,
};
use tokio::sync::mpsc;

use super::{
    complete::{Vocabulary, complete},
    prompt_printer::PromptPrinter,
};

/// The most lines in the history.
const MOST_HISTORY: usize = 1000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LineInput {
    Line(String),
    /// Ctrl+C.
    Interrupted,
    /// Ctrl+D, or the end of the file.
    End,
}

/// A request for a line.
#[derive(Debug, Default)]
pub(super) struct LineRequest {
    /// The prompt on a terminal.
    pub(super) prompt: String,
    /// What can be completed.
    pub(super) vocabulary: Vocabulary,
    /// Whether the line is a command, which goes into the history.
    pub(super) command: bool,
    /// On a terminal: what was typed before the prompt is discarded, because it was meant for something else.
    pub(super) discards_typed: bool,
}

/// The source of typed lines.
pub(super) struct ChatInput {
    wanted: channel::Sender<LineRequest>,
    typed: mpsc::UnboundedReceiver<LineInput>,
}

impl ChatInput {
    /// Requests a line. One at a time.
    pub(super) fn request_line(&self, wanted: LineRequest) {
        let _ = self.wanted.send(wanted);
    }

    /// The requested line. Cancel safe: it may be dropped and called again.
    pub(super) async fn next_line(&mut self) -> LineInput {
        self.typed.recv().await.unwrap_or(LineInput::End)
    }

    /// Reads lines from the standard input.
    pub(super) fn plain() -> Self {
        let (wanted, wants) = channel::channel::<LineRequest>();
        let (send, typed) = mpsc::unbounded_channel();
        thread::spawn(move || {
            let mut lines = io::stdin().lock().lines();
            for _ in wants {
                let line = match lines.next() {
                    Some(Ok(line)) => LineInput::Line(line),
                    Some(Err(_)) | None => LineInput::End,
                };
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Self { wanted, typed }
    }

    /// One command, then the end of the input. Answers to questions are read from the standard input.
    pub(super) fn after(command: String) -> Self {
        let (wanted, wants) = channel::channel::<LineRequest>();
        let (send, typed) = mpsc::unbounded_channel();
        thread::spawn(move || {
            let mut command = Some(command);
            let mut lines = io::stdin().lines();
            for wanted in wants {
                let line = if wanted.command { command.take() } else { lines.next().and_then(Result::ok) };
                if send.send(line.map_or(LineInput::End, LineInput::Line)).is_err() {
                    return;
                }
            }
        });
        Self { wanted, typed }
    }

    /// A terminal, with line editing, a history file and completion.
    pub(super) fn terminal(history: Option<PathBuf>, above: PromptPrinter) -> Result<Self, ReadlineError> {
        let config = Config::builder()
            .auto_add_history(false)
            .history_ignore_space(true)
            .max_history_size(MOST_HISTORY)?
            .completion_type(CompletionType::List)
            .build();
        let mut editor: Editor<ChatLineHelper, FileHistory> = Editor::with_config(config)?;
        editor.set_helper(Some(ChatLineHelper { vocabulary: Vocabulary::None, above: above.clone() }));
        // At the first start there is no history file.
        if let Some(history) = &history {
            let _ = editor.load_history(history);
        }
        let (wanted, wants) = channel::channel::<LineRequest>();
        let (send, typed) = mpsc::unbounded_channel();
        thread::spawn(move || {
            let redactor = Redactor::default();
            for LineRequest { prompt, vocabulary, command, discards_typed } in wants {
                if let Some(words) = editor.helper_mut() {
                    words.vocabulary = vocabulary;
                }
                if discards_typed {
                    discard_typed();
                }
                above.begin(&prompt);
                let typed = editor.readline(&prompt);
                above.end();
                let typed = match typed {
                    Ok(line) => LineInput::Line(line),
                    Err(ReadlineError::Interrupted) => LineInput::Interrupted,
                    Err(_) => LineInput::End,
                };
                if let (true, LineInput::Line(line)) = (command, &typed)
                    && !line.trim().is_empty()
                    && redactor.text(line) == *line
                    && editor.add_history_entry(line.as_str()).unwrap_or(false)
                {
                    // At once, because the process may be killed. A line that cannot be written is not
                    // remembered.
                    if let Some(history) = &history {
                        let _ = editor.append_history(history);
                    }
                }
                if send.send(typed).is_err() {
                    return;
                }
            }
        });
        Ok(Self { wanted, typed })
    }
}

/// Discards what was typed and not read yet. The editor has no more than that: it reads each line with a buffer of its
/// own.
fn discard_typed() {
    // It fails only where the input is no terminal any more. Then the editor reports that.
    let _ = tcflush(io::stdin(), QueueSelector::IFlush);
}

/// Completes words, and passes the edited line on to the prompt printer.
struct ChatLineHelper {
    vocabulary: Vocabulary,
    above: PromptPrinter,
}

impl Completer for ChatLineHelper {
    type Candidate = String;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(complete(&self.vocabulary, line, at))
    }
}

/// Gives no hints: the editor calls it with the line after each change.
impl Hinter for ChatLineHelper {
    type Hint = String;

    fn hint(&self, line: &str, at: usize, _: &Context<'_>) -> Option<String> {
        self.above.edited(line, at);
        None
    }
}

/// The same for keys that only move the cursor.
impl Highlighter for ChatLineHelper {
    fn highlight_char(&self, line: &str, at: usize, _: CmdKind) -> bool {
        self.above.edited(line, at);
        false
    }
}

impl Validator for ChatLineHelper {}
impl Helper for ChatLineHelper {}
