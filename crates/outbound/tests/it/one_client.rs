//! The rule that this crate exists for, read from the source of all crates.

use std::{fs, path::Path};

/// Every request leaves through this crate: no other one names the HTTP library outside of its tests, and this one
/// builds a client in one place.
#[test]
fn the_http_library_is_named_in_this_crate_only_and_a_client_is_built_once() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let (mut named, mut built, mut read) = (vec![], vec![], 0);
    for package in fs::read_dir(crates).unwrap() {
        let package = package.unwrap().path();
        let ours = package.file_name().is_some_and(|name| name == "outbound");
        visit(&package.join("src"), &mut |path, text| {
            read += 1;
            if text.contains("reqwest") && !ours {
                named.push(path.to_owned());
            }
            for _ in text.matches("Client::builder(") {
                built.push(path.to_owned());
            }
        });
    }
    assert!(read > 300, "only {read} files were found");
    assert!(named.is_empty(), "{named:?} should use nuncio_outbound::HttpClient");
    assert_eq!(built, [crates.join("outbound/src/http.rs")]);
}

fn visit(folder: &Path, seen: &mut dyn FnMut(&Path, &str)) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            visit(&path, seen);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            seen(&path, &fs::read_to_string(&path).unwrap());
        }
    }
}
