//! A real terminal with `nuncio` in it: what is typed goes in as keys, what appears is read as text.
//!
//! `setsid --ctty` makes the pseudo-terminal the one that Ctrl+C comes from, as a terminal window would.

use std::{
    fs::{File, OpenOptions},
    io::{Read as _, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};

use crate::command;

const PATIENCE: Duration = Duration::from_secs(60);
/// Before every command.
pub(crate) const PROMPT: &str = "nuncio> ";

pub(crate) struct Terminal {
    child: Child,
    keys: File,
    shown: Arc<Mutex<Vec<u8>>>,
    /// Up to where it was looked at.
    seen: usize,
}

impl Terminal {
    /// Starts `nuncio chat` with flags, in a folder, with its state there.
    pub(crate) fn start(dir: &Path, flags: &[&str]) -> Self {
        Self::start_sized(dir, flags, 120)
    }

    /// The same, in a window of so many columns.
    pub(crate) fn start_sized(dir: &Path, flags: &[&str], columns: u16) -> Self {
        let state = dir.join("state");
        let args = [&["chat"], flags, &["--state", state.to_str().unwrap()]].concat();
        Self::start_command(dir, &args, columns)
    }

    /// Starts any command of `nuncio`.
    pub(crate) fn start_command(dir: &Path, args: &[&str], columns: u16) -> Self {
        let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&keys).unwrap();
        unlockpt(&keys).unwrap();
        let size = Winsize { ws_row: 40, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&keys, size).unwrap();
        let name = ptsname(&keys, vec![]).unwrap().into_string().unwrap();
        let side = || Stdio::from(OpenOptions::new().read(true).write(true).open(&name).unwrap());
        let plain = command::nuncio_in(dir);
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait"]).arg(plain.get_program()).args(args);
        for (name, value) in plain.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.env("TERM", "xterm").env("NO_COLOR", "1").current_dir(dir);
        let child = command.stdin(side()).stdout(side()).stderr(side()).spawn().unwrap();
        drop(command);
        let keys = File::from(keys);
        let shown = Arc::new(Mutex::new(vec![]));
        let (mut screen, all) = (keys.try_clone().unwrap(), Arc::clone(&shown));
        thread::spawn(move || {
            let mut piece = [0; 4096];
            // An error is the end of a terminal that nobody holds any more.
            while let Ok(count @ 1..) = screen.read(&mut piece) {
                all.lock().unwrap().extend_from_slice(&piece[..count]);
            }
        });
        Self { child, keys, shown, seen: 0 }
    }

    /// All that has appeared, byte by byte.
    pub(crate) fn raw(&self) -> Vec<u8> {
        self.shown.lock().unwrap().clone()
    }

    /// All that has appeared, without what moves the cursor.
    pub(crate) fn text(&self) -> String {
        readable(&self.shown.lock().unwrap())
    }

    /// Waits until something appears, after what was waited for before.
    #[track_caller]
    pub(crate) fn expect(&mut self, wanted: &str) {
        let deadline = Instant::now() + PATIENCE;
        let mut looked = None;
        loop {
            // Nothing is looked at twice: the machine has other things to do.
            let length = self.shown.lock().unwrap().len();
            if looked == Some(length) && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(10));
                continue;
            }
            looked = Some(length);
            let text = self.text();
            if let Some(at) = text.get(self.seen..).and_then(|new| new.find(wanted)) {
                self.seen += at + wanted.len();
                return;
            }
            let new = text.get(self.seen..).unwrap_or_default();
            assert!(Instant::now() < deadline, "{wanted:?} never appeared. Since then:\n{new}\nAll:\n{text}");
        }
    }

    /// What appeared since, which must not hold something.
    #[track_caller]
    pub(crate) fn never(&self, unwanted: &str) {
        let text = self.text();
        assert!(!text.contains(unwanted), "{unwanted:?} appeared:\n{text}");
    }

    /// Types a line.
    pub(crate) fn line(&mut self, line: &str) {
        self.keys(&format!("{line}\r"));
    }

    /// Types keys.
    pub(crate) fn keys(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn ctrl_c(&mut self) {
        self.keys("\u{3}");
    }

    pub(crate) fn ctrl_d(&mut self) {
        self.keys("\u{4}");
    }

    /// Waits for the prompt and types a command.
    #[track_caller]
    pub(crate) fn command(&mut self, line: &str) {
        self.expect(PROMPT);
        self.line(line);
    }

    /// Ends it as a crash would.
    pub(crate) fn kill9(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end; its exit code.
    #[track_caller]
    pub(crate) fn ends(&mut self) -> i32 {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            assert!(Instant::now() < deadline, "it does not end:\n{}", self.text());
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Text without control sequences; what returns the carriage begins a line.
fn readable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut out = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' if chars.peek() == Some(&'[') => {
                chars.next();
                while chars.next().is_some_and(|c| !c.is_ascii_alphabetic()) {}
            }
            '\u{1b}' => drop(chars.next()),
            '\r' => out.push('\n'),
            c if c.is_control() && c != '\n' => {}
            c => out.push(c),
        }
    }
    out
}
