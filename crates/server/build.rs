//! Embeds the console's files: writes a table of their names and contents, so that `cargo build` alone is enough. Scripts
//! and styles are embedded without their comments, which are a fifth of what a browser would load.

use std::{
    env,
    error::Error,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

/// The folders that are served; tests, documentation and settings of tools are not.
const FOLDERS: [&str; 4] = ["", "core", "screens", "ui"];
const ENDINGS: [&str; 4] = ["css", "html", "js", "svg"];

fn main() -> Result<(), Box<dyn Error>> {
    let console = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../console").canonicalize()?;
    let output = PathBuf::from(env::var("OUT_DIR")?);
    let mut table = String::from("&[\n");
    for folder in FOLDERS {
        let path = console.join(folder);
        println!("cargo::rerun-if-changed={}", path.display());
        let mut files: Vec<PathBuf> =
            fs::read_dir(&path)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
        files.sort();
        for file in files {
            let ending = file.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
            if !file.is_file() || !ENDINGS.contains(&ending) {
                continue;
            }
            println!("cargo::rerun-if-changed={}", file.display());
            let name =
                file.strip_prefix(&console)?.to_str().ok_or("a file of the console has no plain name")?;
            let embedded = match ending {
                "js" | "css" => {
                    let copy = output.join(name.replace('/', "-"));
                    fs::write(&copy, without_comments(&fs::read_to_string(&file)?))?;
                    copy
                }
                _ => file.clone(),
            };
            writeln!(table, "    ({name:?}, include_bytes!({:?})),", embedded.display().to_string())?;
        }
    }
    table.push(']');
    fs::write(output.join("console_files.rs"), table)?;
    Ok(())
}

/// The text with comments that are lines of their own left empty: every other line stays where it is, so that a browser
/// names the same lines as the source has. A comment behind code stays.
fn without_comments(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut is_comment = false;
    for line in text.lines() {
        let start = line.trim_start();
        is_comment |= start.starts_with("/*");
        if is_comment {
            // Code behind the end of a comment stays.
            if let Some((_, rest)) = line.split_once("*/") {
                is_comment = false;
                kept.push_str(rest.trim());
            }
        } else if !start.starts_with("//") {
            kept.push_str(line);
        }
        kept.push('\n');
    }
    kept
}
