//! Tells the program which commit it was built from: `NUNCIO_COMMIT` where it is set, as packages do, else what git says. Only
//! for optimised builds: a build for tests would be linked again after every commit.

use std::{env, process::Command};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=NUNCIO_COMMIT");
    if env::var_os("NUNCIO_COMMIT").is_some() || env::var("PROFILE").is_ok_and(|profile| profile != "release")
    {
        return;
    }
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else { return };
    println!("cargo:rustc-env=NUNCIO_COMMIT={commit}");
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo:rerun-if-changed={log}");
    }
}

/// What git says about the sources, if they are in a repository of git.
fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned()).filter(|text| !text.is_empty())
}
