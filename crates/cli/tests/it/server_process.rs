//! A server in a process of its own, which a test can kill.
//!
//! `start` returns when the server takes requests. The process is killed when this is dropped, also by a
//! failing test. `restart` begins another process on the same folder and the same port, so that a client's
//! addresses stay good; `respawn` does the same and does not wait for it.

use std::{
    io::{BufRead as _, BufReader, Read},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    command,
    reserved_port::ReservedPort,
    test_agents::{self, Cluster},
};

/// Long, because other tests may be building on the same machine; nobody waits for it when all is well.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is run.
enum Program {
    /// `nuncio serve`, with further variables of the environment.
    Nuncio(Vec<(String, String)>),
    /// The agents of `test_agents.rs`, served by the embedding library: alone, or as a node of a cluster.
    TestAgents(Option<Cluster>),
}

impl Program {
    fn command(&self, data: &Path, listen: &str, flags: &[String]) -> Command {
        let dir = data.parent().unwrap();
        match self {
            Self::Nuncio(environment) => {
                let mut command = command::nuncio_in(dir);
                command.envs(environment.iter().map(|(name, value)| (name, value)));
                command.args(["serve", "--listen", listen, "--data"]).arg(data).args(flags);
                command
            }
            Self::TestAgents(cluster) => test_agents::command(data, listen, cluster.as_ref()),
        }
    }

    /// Whether what is printed at the start is complete with this line.
    fn is_last_of_greeting(&self, line: &str) -> bool {
        match self {
            // With --log-format json it is one line.
            Self::Nuncio(_) => line.contains(" send ") || line.starts_with('{'),
            Self::TestAgents(_) => line.starts_with("Data:"),
        }
    }
}

pub(crate) struct ServerProcess {
    program: Program,
    child: Child,
    data: PathBuf,
    flags: Vec<String>,
    url: String,
    /// What it has printed so far.
    lines: mpsc::Receiver<String>,
    greeting: String,
    is_ready: bool,
    log: Arc<Mutex<String>>,
    /// Nobody else's while the process is dead; `None` where the test has chosen the address.
    _port: Option<ReservedPort>,
}

impl ServerProcess {
    /// A server on a data folder, with further flags of `nuncio serve`. Without `--listen` it has a reserved port.
    pub(crate) fn start(data: &Path, flags: &[&str]) -> Self {
        Self::try_start(data, flags).unwrap_or_else(|log| panic!("the server did not start:\n{log}"))
    }

    /// The same, with further variables of the environment.
    pub(crate) fn start_with(data: &Path, flags: &[&str], environment: &[(String, String)]) -> Self {
        Self::try_start_with(data, flags, environment.to_vec())
            .unwrap_or_else(|log| panic!("the server did not start:\n{log}"))
    }

    /// The same as `start`; what the server said where it did not start.
    pub(crate) fn try_start(data: &Path, flags: &[&str]) -> Result<Self, String> {
        Self::try_start_with(data, flags, vec![])
    }

    pub(crate) fn try_start_with(
        data: &Path,
        flags: &[&str],
        environment: Vec<(String, String)>,
    ) -> Result<Self, String> {
        let mut flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let listen = flags
            .iter()
            .position(|flag| *flag == "--listen")
            .map(|at| flags.drain(at..at + 2).nth(1).unwrap());
        Self::try_start_program(Program::Nuncio(environment), data, listen, flags)
    }

    /// A server with the agents of `test_agents.rs`.
    pub(crate) fn start_test_agents(data: &Path) -> Self {
        Self::try_start_program(Program::TestAgents(None), data, None, vec![])
            .unwrap_or_else(|log| panic!("the server did not start:\n{log}"))
    }

    /// One of the servers with these agents that share a database.
    pub(crate) fn start_node(data: &Path, cluster: &Cluster) -> Self {
        let program = Program::TestAgents(Some(cluster.clone()));
        Self::try_start_program(program, data, None, vec![])
            .unwrap_or_else(|log| panic!("the server did not start:\n{log}"))
    }

    fn try_start_program(
        program: Program,
        data: &Path,
        listen: Option<String>,
        flags: Vec<String>,
    ) -> Result<Self, String> {
        let port = listen.is_none().then(ReservedPort::take);
        let listen = listen.or_else(|| port.as_ref().map(ReservedPort::address)).unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let (child, lines) = spawn(program.command(data, &listen, &flags), &log);
        let mut server = Self {
            program,
            child,
            data: data.to_owned(),
            flags,
            url: String::new(),
            lines,
            greeting: String::new(),
            is_ready: false,
            log,
            _port: port,
        };
        if server.ready_within(PATIENCE) {
            return Ok(server);
        }
        let _ = server.child.kill();
        let _ = server.child.wait();
        // The reader of the log ends with the process.
        thread::sleep(Duration::from_millis(50));
        Err(server.log())
    }

    /// `http://127.0.0.1:PORT`
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.url.trim_start_matches("http://").parse().unwrap()
    }

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

    /// Waits until it has logged that text.
    pub(crate) fn logs(&self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.log().contains(text) {
            assert!(Instant::now() < deadline, "it never logged {text:?}:\n{}", self.log());
            thread::sleep(Duration::from_millis(5));
        }
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
        self.respawn();
        self.ready();
    }

    /// The same, without a wait for it: the process has only begun.
    pub(crate) fn respawn(&mut self) {
        assert!(self.child.try_wait().unwrap().is_some(), "the server still runs");
        let command = self.program.command(&self.data, &self.addr().to_string(), &self.flags);
        (self.child, self.lines) = spawn(command, &self.log);
        self.greeting.clear();
        self.is_ready = false;
    }

    /// Waits until it takes requests.
    pub(crate) fn ready(&mut self) {
        assert!(self.ready_within(PATIENCE), "the server did not start:\n{}", self.log());
    }

    /// Waits that long until it takes requests; whether it does.
    pub(crate) fn ready_within(&mut self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        while !self.is_ready {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else { return false };
            if let Some(endpoint) = line.strip_prefix("Endpoint:") {
                self.url = endpoint.trim().trim_end_matches('/').to_owned();
            }
            if let Ok(line) = serde_json::from_str::<serde_json::Value>(&line) {
                self.url = line["url"].as_str().unwrap_or_default().to_owned();
            }
            // The command to try names the real address, whatever the public one is.
            if let Some((_, after)) = line.split_once(" send -a ") {
                self.url = after.split(' ').next().unwrap().to_owned();
            }
            self.greeting.push_str(&line);
            self.greeting.push('\n');
            self.is_ready = self.program.is_last_of_greeting(&line);
        }
        true
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(mut command: Command, log: &Arc<Mutex<String>>) -> (Child, mpsc::Receiver<String>) {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    collect(child.stderr.take().unwrap(), Arc::clone(log));
    let lines = lines_of(child.stdout.take().unwrap());
    (child, lines)
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
