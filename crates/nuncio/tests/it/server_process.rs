//! A server in a process of its own, which a test can kill.
//!
//! `start` returns when the server takes requests. The process is killed when this is dropped, also by a
//! failing test. `restart` begins another process on the same folder and the same port, so that a client's
//! addresses stay good.

use std::{
    io::{BufRead as _, BufReader, Read},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, ExitStatus, Stdio},
    sync::{Arc, Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::command;

/// Long, because other tests may be building on the same machine; nobody waits for it when all is well.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct ServerProcess {
    child: Child,
    data: PathBuf,
    flags: Vec<String>,
    url: String,
    greeting: String,
    log: Arc<Mutex<String>>,
}

impl ServerProcess {
    /// A server on a data folder, with further flags of `nuncio serve`. Without `--listen` it takes a free
    /// port.
    pub(crate) fn start(data: &Path, flags: &[&str]) -> Self {
        Self::try_start(data, flags).unwrap_or_else(|log| panic!("the server did not start:\n{log}"))
    }

    /// The same; what the server said where it did not start.
    pub(crate) fn try_start(data: &Path, flags: &[&str]) -> Result<Self, String> {
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let mut args = vec!["serve".to_owned(), "--data".to_owned(), data.display().to_string()];
        if !flags.iter().any(|flag| flag.starts_with("--listen")) {
            args.extend(["--listen".to_owned(), "127.0.0.1:0".to_owned()]);
        }
        args.extend(flags.iter().cloned());
        let mut command = command::nuncio_in(data.parent().unwrap());
        command.args(&args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();

        let log = Arc::new(Mutex::new(String::new()));
        collect(child.stderr.take().unwrap(), Arc::clone(&log));
        let lines = lines_of(child.stdout.take().unwrap());
        let Some((greeting, url)) = greeting(&lines) else {
            let _ = child.kill();
            let _ = child.wait();
            // The reader of the log ends with the process.
            thread::sleep(Duration::from_millis(50));
            return Err(log.lock().unwrap().clone());
        };
        Ok(Self { child, data: data.to_owned(), flags, url, greeting, log })
    }

    /// `http://127.0.0.1:PORT`
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.url.trim_start_matches("http://").parse().unwrap()
    }

    #[allow(dead_code, reason = "for tests that look at the process")]
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// What it printed when it was ready.
    pub(crate) fn greeting(&self) -> &str {
        &self.greeting
    }

    /// What it has logged so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Ends it as a crash would: no time for anything.
    pub(crate) fn kill9(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the server does not end:\n{}", self.log());
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Another process on the same folder and port, with the same flags. The one before must have ended.
    pub(crate) fn restart(&mut self) {
        assert!(self.child.try_wait().unwrap().is_some(), "the server still runs");
        let address = self.addr().to_string();
        let mut flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        if let Some(at) = flags.iter().position(|flag| *flag == "--listen") {
            flags.drain(at..at + 2);
        }
        flags.extend(["--listen", &address]);
        let started = Self::start(&self.data, &flags);
        *self = started;
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the server prints when it is ready, and the address in it.
fn greeting(lines: &mpsc::Receiver<String>) -> Option<(String, String)> {
    let deadline = Instant::now() + PATIENCE;
    let (mut greeting, mut url) = (String::new(), None);
    loop {
        let line = lines.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()?;
        greeting.push_str(&line);
        greeting.push('\n');
        if let Some(endpoint) = line.strip_prefix("Endpoint:") {
            url = Some(endpoint.trim().trim_end_matches('/').to_owned());
        }
        // The last line of it.
        if line.contains(" send ") {
            return url.map(|url| (greeting, url));
        }
    }
}

fn lines_of(stdout: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            // Nobody listens any more: read on, so that the server can write on.
            let _ = sender.send(line);
        }
    });
    lines
}

fn collect(stderr: impl Read + Send + 'static, log: Arc<Mutex<String>>) {
    thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            let mut log = log.lock().unwrap();
            log.push_str(&line);
            log.push('\n');
        }
    });
}
