//! A real nginx in front of a server. It ends with the value.

use std::{
    fs,
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Nginx {
    child: Child,
    port: u16,
    _dir: tempfile::TempDir,
}

impl Nginx {
    /// Passes everything on to `upstream`, such as `http://127.0.0.1:8080` or `http://unix:/path`, with these lines
    /// beside its `proxy_pass`.
    pub(crate) fn start(upstream: &str, lines: &str) -> Self {
        Self::start_as(None, upstream, lines)
    }

    /// The same, with workers of another user, which only the superuser can start.
    pub(crate) fn start_as(user: Option<&str>, upstream: &str, lines: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        // The port is free for a moment; where another process takes it nginx ends, and the test says so.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let config = dir.path().join("nginx.conf");
        fs::write(&config, configuration(dir.path(), user, port, upstream, lines)).unwrap();
        let child = Command::new("nginx")
            .args(["-e", "stderr", "-p"])
            .arg(dir.path())
            .arg("-c")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("nginx: {error}: run scripts/install-test-packages"));
        let mut nginx = Self { child, port, _dir: dir };
        let until = Instant::now() + PATIENCE;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            assert_eq!(nginx.child.try_wait().unwrap(), None, "nginx ended");
            assert!(Instant::now() < until, "nginx does not listen");
            thread::sleep(Duration::from_millis(20));
        }
        nginx
    }

    /// `http://127.0.0.1:PORT`
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // A master that is killed leaves its workers behind; asked to end, it ends them.
        let pid = Pid::from_child(&self.child);
        let _ = kill_process(pid, Signal::TERM);
        let _ = self.child.wait();
    }
}

/// In the foreground, touching nothing but its own folder.
fn configuration(dir: &Path, user: Option<&str>, port: u16, upstream: &str, lines: &str) -> String {
    let dir = dir.display();
    let process = match user {
        Some(user) => format!("user {user};"),
        None => "master_process off;".to_owned(),
    };
    format!(
        "daemon off; {process} worker_processes 1; pid {dir}/pid; error_log stderr warn;\n\
         events {{ worker_connections 256; }}\n\
         http {{\n access_log off;\n client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy;\n\
         fastcgi_temp_path {dir}/fastcgi; uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;\n\
         server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass {upstream}; {lines} }} }}\n}}\n"
    )
}
