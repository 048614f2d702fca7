//! Where lines come from: a terminal with an editor, or a file or pipe line by line. Each is read by a thread of its
//! own, and only when somebody wants a line.

use std::{
    io::{self, BufRead as _},
    path::PathBuf,
    sync::mpsc as channel,
    thread,
};

use nuncio_engine::redact::Redactor;
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

/// Lines that are remembered.
const MOST_HISTORY: usize = 1000;

/// What was typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LineInput {
    Line(String),
    /// Ctrl+C.
    Interrupted,
    /// Ctrl+D, or the end of the file.
    End,
}

/// A line that is wanted.
#[derive(Debug, Default)]
pub(super) struct LineRequest {
    /// What stands before it on a terminal.
    pub(super) prompt: String,
    /// What words may become.
    pub(super) vocabulary: Vocabulary,
    /// Whether it is a command, which is remembered.
    pub(super) command: bool,
}

/// Where lines come from.
pub(super) struct ChatInput {
    wanted: channel::Sender<LineRequest>,
    typed: mpsc::UnboundedReceiver<LineInput>,
}

impl ChatInput {
    /// Wants a line. One at a time.
    pub(super) fn request_line(&self, wanted: LineRequest) {
        let _ = self.wanted.send(wanted);
    }

    /// The line that was wanted. May be dropped and asked for again.
    pub(super) async fn next_line(&mut self) -> LineInput {
        self.typed.recv().await.unwrap_or(LineInput::End)
    }

    /// Lines of the standard input, as they come.
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

    /// One command and then the end. What is asked meanwhile is read from the standard input.
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

    /// A terminal: lines are edited, remembered in a file, and completed.
    pub(super) fn terminal(history: PathBuf, above: PromptPrinter) -> Result<Self, ReadlineError> {
        let config = Config::builder()
            .auto_add_history(false)
            .history_ignore_space(true)
            .max_history_size(MOST_HISTORY)?
            .completion_type(CompletionType::List)
            .build();
        let mut editor: Editor<ChatLineHelper, FileHistory> = Editor::with_config(config)?;
        editor.set_helper(Some(ChatLineHelper { vocabulary: Vocabulary::None, above: above.clone() }));
        // At the first start there is none.
        let _ = editor.load_history(&history);
        let (wanted, wants) = channel::channel::<LineRequest>();
        let (send, typed) = mpsc::unbounded_channel();
        thread::spawn(move || {
            let redactor = Redactor::default();
            for LineRequest { prompt, vocabulary, command } in wants {
                if let Some(words) = editor.helper_mut() {
                    words.vocabulary = vocabulary;
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
                    // At once: the process may be killed. What cannot be written is not remembered.
                    let _ = editor.append_history(&history);
                }
                if send.send(typed).is_err() {
                    return;
                }
            }
        });
        Ok(Self { wanted, typed })
    }
}

/// Completes words, and remembers what is edited.
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

/// Hints nothing: it is where the editor says what the line has become.
impl Hinter for ChatLineHelper {
    type Hint = String;

    fn hint(&self, line: &str, at: usize, _: &Context<'_>) -> Option<String> {
        self.above.edited(line, at);
        None
    }
}

/// The same for strokes that only move the cursor.
impl Highlighter for ChatLineHelper {
    fn highlight_char(&self, line: &str, at: usize, _: CmdKind) -> bool {
        self.above.edited(line, at);
        false
    }
}

impl Validator for ChatLineHelper {}
impl Helper for ChatLineHelper {}
