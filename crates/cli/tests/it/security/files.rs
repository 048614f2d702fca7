//! Files that hold tasks and secrets are their owner's alone, whatever the folder around them allows.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use crate::{
    command::{nuncio_in, run},
    server_process::ServerProcess,
};

/// The files of a folder that others may open, with their modes.
fn open_files(dir: &Path) -> Vec<String> {
    let mut found = vec![];
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        if entry.path().is_dir() {
            found.extend(open_files(&entry.path()));
        } else if mode & 0o077 != 0 {
            found.push(format!("{} {mode:o}", entry.file_name().display()));
        }
    }
    found
}

#[test]
fn what_is_written_is_for_nobody_else_also_in_an_open_folder() {
    let dir = tempfile::tempdir().unwrap();
    let open = |path: &Path| {
        fs::create_dir(path).unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    };
    let (data, backup) = (dir.path().join("nuncio-data"), dir.path().join("backup"));
    open(&data);
    open(&backup);
    let nuncio = |args: &[&str]| run(nuncio_in(dir.path()).args(args)).exits(0);
    let mut server = ServerProcess::start(&data, &[]);
    nuncio(&["send", "hello"]);
    nuncio(&["memory", "set", "notes", "key", "a secret"]);
    assert_eq!(open_files(&data), Vec::<String>::new());

    nuncio(&["store", "backup", "backup"]);
    assert_eq!(open_files(&backup), Vec::<String>::new());
    nuncio(&["memory", "export", "notes", "notes.jsonl"]);
    let mode = fs::metadata(dir.path().join("notes.jsonl")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    // What an older version made, or a copy lost, is put right.
    server.terminate();
    for name in ["nuncio.db", "webhook-secret", "state-secret"] {
        fs::set_permissions(data.join(name), Permissions::from_mode(0o644)).unwrap();
    }
    server.restart();
    assert_eq!(open_files(&data), Vec::<String>::new());
    nuncio(&["send", "hello"]);
}
