//! The figures of the documents are those of the last runs: where a table of `bench/` changes, what quotes it has to.

use std::{fs, path::Path};

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The cells of the row of a table that begins so.
fn row(table: &str, first: &str) -> Vec<String> {
    let cells = |line: &str| -> Vec<String> {
        line.trim().trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let found = table.lines().filter(|line| line.starts_with('|')).map(cells).find(|row| row[0] == first);
    found.unwrap_or_else(|| panic!("there is no row {first:?}"))
}

#[track_caller]
fn quotes(document: &str, figure: &str) {
    assert!(read(document).contains(figure), "{document} does not say {figure:?}");
}

#[test]
fn the_page_on_scale_says_what_was_measured_on_postgresql() {
    let results = read("bench/results-postgres.md");
    let (one, pgbench) = (row(&results, "1 node"), row(&results, "pgbench -N"));
    let (nodes, database) = (&one[5], &one[6]);
    quotes("docs/scale.md", &format!("{database} s (`pgbench -N`: {} s per 1,000 transactions)", pgbench[6]));
    quotes("docs/scale.md", &format!("| {nodes} s |"));
    quotes("docs/scale.md", &format!("At {database} CPU-seconds per 1,000 sends"));
    let times: f64 = one[2].trim_end_matches(" ×").parse().unwrap();
    for document in ["docs/scale.md", "README.md"] {
        quotes(document, &format!("{times:.1} ×"));
    }
    let event = results.split("follower on another node ").nth(1).unwrap();
    quotes("docs/scale.md", event.split(" after").next().unwrap());
}

#[test]
fn the_readme_says_what_was_measured() {
    let results = read("bench/results.md");
    let ours = row(&results, "nuncio");
    for (n, figure) in [(1, "sends"), (5, "gets"), (7, "events"), (9, "idle streams")] {
        assert!(read("README.md").contains(&ours[n]), "README.md does not say {} ({figure})", ours[n]);
    }
}
