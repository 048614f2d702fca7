//! `examples/agents`, run as it stands there; only the port of the endpoint is a free one.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use super::{ending, id, lines, send};
use crate::server_process::ServerProcess;

/// A process that ends with the test.
struct Beside(Child);

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn copied() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let examples: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/agents");
    for file in fs::read_dir(examples).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), dir.path().join(file.file_name())).unwrap();
    }
    dir
}

fn weather(dir: &Path) -> (Beside, String) {
    let mut command = Command::new("python3");
    let mut child =
        command.args(["weather.py", "0"]).current_dir(dir).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening on ").unwrap().to_owned();
    (Beside(child), address)
}

#[test]
fn the_examples_do_what_they_say() {
    let dir = copied();
    let (_weather, address) = weather(dir.path());
    let file = dir.path().join("nuncio.toml");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("127.0.0.1:8099"));
    fs::write(&file, text.replace("127.0.0.1:8099", &address)).unwrap();
    let mut server = ServerProcess::start(&dir.path().join("data"), &[]);

    let task = send(&server, "shout", "hello there", None);
    assert_eq!(ending(&task), ("TASK_STATE_COMPLETED", "HELLO THERE!"));

    let task = send(&server, "count", "one two three", None);
    let printed = task["artifacts"][0]["parts"][0]["text"].as_str().unwrap();
    assert_eq!(printed.split_whitespace().collect::<Vec<_>>(), ["1", "3", "14"]);

    let task = send(&server, "trips", "Lisbon", None);
    assert_eq!(ending(&task), ("TASK_STATE_INPUT_REQUIRED", "A seat to Lisbon costs 120. Which class?"));
    server.kill9();
    server.restart();
    let task = send(&server, "trips", "first", Some(id(&task)));
    assert_eq!(ending(&task), ("TASK_STATE_COMPLETED", "Booked: Lisbon, first class."));
    assert_eq!(lines(&dir.path().join("bookings.log")).len(), 1, "one seat was held");

    let task = send(&server, "weather", "Rome", None);
    assert_eq!(ending(&task), ("TASK_STATE_COMPLETED", "21 degrees in Rome, and no cloud."));
    let task = send(&server, "weather", " ", None);
    assert_eq!(ending(&task), ("TASK_STATE_INPUT_REQUIRED", "Which city?"));
    let task = send(&server, "weather", "Oslo", Some(id(&task)));
    assert_eq!(ending(&task).1, "21 degrees in Oslo, and no cloud.");
}
