//! The disk's own limit: how often a second 4 KiB become durable, one after the other.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::Path,
    time::{Duration, Instant},
};

use serde_json::json;

const BLOCK: [u8; 4096] = [7; 4096];
/// Blocks of the file whose blocks are allocated before the clock starts.
const ALLOCATED: u64 = 256;

/// Prints one JSON line: appending to a new file, and overwriting one that has its blocks (as the
/// write-ahead log does once it has grown). It is the second that a commit waits for.
pub(crate) fn measure(dir: &Path, each: Duration) -> anyhow::Result<()> {
    let path = dir.join("fsync-probe");
    let append = rate(&path, each, 0)?;
    let overwrite = rate(&path, each, ALLOCATED)?;
    fs::remove_file(&path)?;
    println!("{}", json!({ "append_per_s": append, "overwrite_per_s": overwrite }));
    Ok(())
}

fn rate(path: &Path, long: Duration, allocated: u64) -> anyhow::Result<u64> {
    let file = File::create(path)?;
    for block in 0..allocated {
        file.write_all_at(&BLOCK, block * BLOCK.len() as u64)?;
    }
    file.sync_all()?;
    let start = Instant::now();
    let mut done = 0;
    while start.elapsed() < long {
        let block = if allocated == 0 { done } else { done % allocated };
        file.write_all_at(&BLOCK, block * BLOCK.len() as u64)?;
        file.sync_data()?;
        done += 1;
    }
    Ok((done as f64 / start.elapsed().as_secs_f64()) as u64)
}
