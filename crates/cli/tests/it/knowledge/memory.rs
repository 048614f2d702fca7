//! `nuncio memory …`.

use serde_json::{Value, json};

use super::World;
use crate::command::{nuncio_in, run};

/// Keys that a URL, a shell or a terminal would like to read their own way.
const ODD: [&str; 8] =
    ["task:1/spec", "a b", "100%", "..%2f..", "größe/☂", "-dash", "?pattern=*&x#y", "quote\"'$HOME"];

#[test]
fn a_value_is_kept_and_found_again() {
    let world = World::new(&[]);
    let set = world.run(&["memory", "set", "notes", "greeting", "hello"]).exits(0);
    assert_eq!(set.stdout, "greeting is at version 1 in notes.\n");
    assert_eq!(world.run(&["memory", "get", "notes", "greeting"]).exits(0).stdout, "hello\n");

    let set =
        world.run(&["memory", "set", "notes", "n", "{\"a\": [1, 2]}", "--ttl", "1h", "-o", "json"]).exits(0);
    assert_eq!(set.json()["version"], 1);
    let got = world.run(&["memory", "get", "notes", "n", "-o", "json"]).exits(0).json();
    assert_eq!(got["value"], json!({ "a": [1, 2] }));
    assert_eq!(got["metadata"]["ttl"], 3600);
    let text = world.run(&["memory", "get", "notes", "n", "--verbose"]).exits(0);
    assert_eq!([text.field("Version"), text.field("TTL"), text.field("Reads")], ["1", "1h", "2"]);

    // What looks like JSON is JSON, unless it is said to be text.
    world.run(&["memory", "set", "notes", "number", "42"]).exits(0);
    world.run(&["memory", "set", "notes", "digits", "42", "--text"]).exits(0);
    let value =
        |key: &str| world.run(&["memory", "get", "notes", key, "-o", "json"]).exits(0).json()["value"].take();
    assert_eq!((value("number"), value("digits")), (json!(42), json!("42")));

    let listed = world.run(&["memory", "list", "notes"]).exits(0);
    assert!(listed.stdout.starts_with("KEY "), "{}", listed.stdout);
    assert_eq!(listed.field("Total"), "4");
    assert_eq!(world.run(&["memory", "list"]).exits(0).stdout, "NAMESPACE\nnotes\n");

    let deleted = world.run(&["memory", "delete", "notes", "n"]).exits(0);
    assert_eq!(deleted.stdout, "n is gone from notes.\n");
    let again = world.run(&["memory", "delete", "notes", "n"]).exits(0);
    assert_eq!(again.stdout, "There is no n in notes.\n");
    let gone = world.run(&["memory", "get", "notes", "n"]).exits(1);
    assert!(gone.stdout.is_empty() && gone.stderr.contains("there is no key \"n\""), "{}", gone.stderr);
}

#[test]
fn values_come_from_files_and_from_the_standard_input() {
    let world = World::new(&[]);
    let file = world.file("value.json", "{\"from\": \"a file\"}\n");
    world.run(&["memory", "set", "ns", "file", "--file", file.to_str().unwrap()]).exits(0);
    world.run_with_input(&["memory", "set", "ns", "stdin", "--file", "-"], "[1, 2]").exits(0);
    world.run_with_input(&["memory", "set", "ns", "text", "--file", "-", "--text"], "two\nlines\n").exits(0);
    let value =
        |key: &str| world.run(&["memory", "get", "ns", key, "-o", "json"]).exits(0).json()["value"].take();
    assert_eq!(value("file"), json!({ "from": "a file" }));
    assert_eq!(value("stdin"), json!([1, 2]));
    assert_eq!(value("text"), "two\nlines\n");
    assert_eq!(world.run(&["memory", "get", "ns", "text"]).exits(0).stdout, "two\nlines\n");

    let wrong = world.run_with_input(&["memory", "set", "ns", "x", "--file", "-"], "not JSON").exits(2);
    assert!(wrong.stderr.contains("--text keeps it as a string"), "{}", wrong.stderr);
    let wrong = world.run(&["memory", "set", "ns", "x", "{\"a\": "]).exits(2);
    assert!(wrong.stderr.contains("the value is not JSON"), "{}", wrong.stderr);
    world.run(&["memory", "set", "ns", "x", "--file", "no such file"]).exits(2);
    world.run(&["memory", "set", "ns", "x", "y", "--file", "value.json"]).exits(2);
    for ttl in ["0s", "1500ms", "soon"] {
        world.run(&["memory", "set", "ns", "x", "y", "--ttl", ttl]).exits(2);
    }
}

#[test]
fn a_change_that_somebody_else_made_is_not_lost() {
    let world = World::new(&[]);
    let set = |value: &str, expect: &str| world.run(&["memory", "set", "ns", "k", value, "--expect", expect]);
    set("first", "0").exits(0);
    let conflict = set("again", "0").exits(1);
    assert!(conflict.stderr.contains("version 1"), "{}", conflict.stderr);
    set("second", "1").exits(0);
    let conflict =
        world.run(&["memory", "set", "ns", "k", "lost", "--expect", "1", "-o", "json"]).exits(1).json();
    assert_eq!(conflict["error"]["code"], "NUNCIO_ERR_TOOL");
    assert!(conflict["error"]["message"].as_str().unwrap().contains("version 2"), "{conflict}");
    world.run(&["memory", "delete", "ns", "k", "--expect", "1"]).exits(1);
    assert_eq!(world.run(&["memory", "get", "ns", "k"]).exits(0).stdout, "second\n");
    world.run(&["memory", "delete", "ns", "k", "--expect", "2"]).exits(0);
}

#[test]
fn lists_and_searches_have_pages() {
    let world = World::new(&[]);
    let lines: String =
        (0..1203).map(|n| format!("{}\n", json!({ "key": format!("k{n:04}"), "value": n }))).collect();
    let imported = world.run_with_input(&["memory", "import", "many"], &lines).exits(0);
    assert_eq!(imported.stdout, "1203 entries written to many; 0 were there and stayed.\n");

    let page = world.run(&["memory", "list", "many", "--limit", "2"]).exits(0);
    assert_eq!(page.field("Total"), "1203");
    let next = page.field("Next");
    let more =
        run(std::process::Command::new("sh").args(["-c", next]).current_dir(world.dir.path())).exits(0);
    assert!(more.stdout.contains("k0002") && !more.stdout.contains("k0001"), "{}", more.stdout);
    let all = world.run(&["memory", "list", "many", "--all", "-o", "json"]).exits(0).json_lines();
    assert_eq!(all.len(), 1203);
    assert_eq!(all[1202]["key"], "k1202");
    let some = world.run(&["memory", "list", "many", "--prefix", "k12", "-o", "json"]).exits(0).json();
    assert_eq!(some["keys"].as_array().unwrap().len(), 3);

    let found = world.run(&["memory", "search", "many", "k12*"]).exits(0);
    assert!(found.stdout.starts_with("SCORE  KEY "), "{}", found.stdout);
    assert_eq!(found.field("Total"), "3");
    let found = world.run(&["memory", "search", "many", "*", "--limit", "5"]).exits(0);
    let next = found.field("Next");
    assert!(next.contains("--page 2 --limit 5") && next.contains("'*'"), "{next}");
    let more =
        run(std::process::Command::new("sh").args(["-c", next]).current_dir(world.dir.path())).exits(0);
    assert!(more.stdout.contains("k0005"), "{}", more.stdout);
    let found = world.run(&["memory", "search", "many", "--text", "77", "-o", "json"]).exits(0).json();
    assert_eq!(found["results"][0]["key"], "k0077", "{found}");
    let none = world.run(&["memory", "search", "many", "zzz"]).exits(0);
    assert!(none.stdout.starts_with("Nothing was found."), "{}", none.stdout);

    world.run(&["memory", "search", "many"]).exits(2);
    world.run(&["memory", "search", "many", "*", "--page", "0"]).exits(2);
    let wrong = world.run(&["memory", "search", "many", "[open"]).exits(1);
    assert!(wrong.stderr.contains("pattern"), "{}", wrong.stderr);
}

#[test]
fn an_export_is_imported_as_it_was() {
    let world = World::new(&[]);
    for (n, key) in ODD.iter().enumerate() {
        let value = json!({ "n": n, "text": format!("line\n\u{2028}\t{key}") }).to_string();
        world.run(&["memory", "set", "--", "from", key, &value]).exits(0);
    }
    let exported = world.run(&["memory", "export", "from", "out.jsonl"]).exits(0);
    assert_eq!(exported.stdout, "8 entries of from in out.jsonl.\n");
    let text = std::fs::read_to_string(world.dir.path().join("out.jsonl")).unwrap();
    assert_eq!(text.lines().count(), ODD.len());
    assert!(!world.dir.path().join("out.jsonl.part").exists());
    // The standard output has the lines and nothing else.
    assert_eq!(world.run(&["memory", "export", "from", "-o", "json"]).exits(0).stdout, text);

    let imported = world.run(&["memory", "import", "to", "out.jsonl", "-o", "json"]).exits(0).json();
    assert_eq!(imported, json!({ "namespace": "to", "written": 8, "kept": 0 }));
    let again = world.run(&["memory", "export", "to"]).exits(0);
    let bare = |text: &str| -> Vec<Value> {
        let parse = |line: &str| serde_json::from_str::<Value>(line).unwrap();
        text.lines().map(parse).map(|line| json!([line["key"], line["value"], line["ttl"]])).collect()
    };
    assert_eq!(bare(&again.stdout), bare(&text));
    for key in ODD {
        let got = world.run(&["memory", "get", "-o", "json", "--", "to", key]).exits(0).json();
        assert_eq!(got["key"], *key);
    }

    let kept =
        world.run(&["memory", "import", "to", "out.jsonl", "--mode", "keep", "-o", "json"]).exits(0).json();
    assert_eq!((&kept["written"], &kept["kept"]), (&json!(0), &json!(8)));
    let refused = world.run(&["memory", "import", "to", "out.jsonl", "--mode", "fail"]).exits(1);
    assert!(refused.stderr.contains("nothing is imported"), "{}", refused.stderr);
}

#[test]
fn a_line_that_is_wrong_is_named() {
    let world = World::new(&[]);
    let mut lines: String =
        (0..501).map(|n| format!("{}\n", json!({ "key": format!("k{n}"), "value": n }))).collect();
    lines.push_str("\n{\"key\": \"\", \"value\": 1}\n");
    let refused = world.run_with_input(&["memory", "import", "ns"], &lines).exits(1);
    assert!(refused.stderr.contains("line 503: key"), "{}", refused.stderr);
    assert!(refused.stderr.contains("the 500 lines before line 501 are imported"), "{}", refused.stderr);
    assert_eq!(world.run(&["memory", "list", "ns"]).exits(0).field("Total"), "500");
    let refused = world.run_with_input(&["memory", "import", "other"], "{}\n").exits(1);
    assert!(refused.stderr.contains("line 1: ") && refused.stderr.contains("nothing is imported"));
    world.run(&["memory", "import", "ns", "no such file"]).exits(2);
    world.run(&["memory", "export", "ns", "no/such/folder"]).exits(2);
}

#[test]
fn a_namespace_is_forgotten_only_when_that_is_meant() {
    let world = World::new(&[]);
    world.run(&["memory", "set", "ns", "k", "v"]).exits(0);
    let asked = world.run_with_input(&["memory", "clear", "ns"], "y\n").exits(2);
    assert!(asked.stderr.contains("--yes"), "{}", asked.stderr);
    assert_eq!(world.run(&["memory", "get", "ns", "k"]).exits(0).stdout, "v\n");
    assert_eq!(world.run(&["memory", "clear", "ns", "--yes"]).exits(0).stdout, "1 entry of ns forgotten.\n");
    assert_eq!(world.run(&["memory", "list"]).exits(0).stdout, "There are no namespaces.\n");
}

#[test]
fn a_folder_without_a_server_is_enough() {
    let dir = tempfile::tempdir().unwrap();
    let nuncio = |args: &[&str]| run(nuncio_in(dir.path()).args(args));
    nuncio(&["memory", "set", "ns", "k", "{\"kept\": true}"]).exits(0);
    assert!(dir.path().join("nuncio-data/nuncio.db").is_file());
    assert!(!dir.path().join("nuncio-data/server.json").exists(), "the server went with the command");
    let got = nuncio(&["memory", "get", "ns", "k", "-o", "json"]).exits(0);
    assert_eq!((got.json()["value"].clone(), &*got.stderr), (json!({ "kept": true }), ""));
    // A folder of another name, and one that cannot be.
    nuncio(&["memory", "set", "ns", "k", "there", "--data", "there"]).exits(0);
    assert_eq!(nuncio(&["memory", "get", "ns", "k", "--data", "there"]).exits(0).stdout, "there\n");
    std::fs::write(dir.path().join("file"), "").unwrap();
    nuncio(&["memory", "list", "--data", "file"]).exits(1);
    nuncio(&["memory", "list", "--data", "there", "-a", super::NOBODY]).exits(2);
}

#[test]
fn what_others_wrote_does_not_speak_to_the_terminal() {
    let world = World::new(&[]);
    world.run(&["memory", "set", "ns", "k", "red \u{1b}[31m\u{7}"]).exits(0);
    let got = world.run(&["memory", "get", "ns", "k"]).exits(0);
    assert_eq!(got.stdout, "red \u{fffd}[31m\u{fffd}\n");
    let found = world.run(&["memory", "search", "ns", "k"]).exits(0);
    assert!(!found.stdout.contains('\u{1b}'), "{:?}", found.stdout);
}
