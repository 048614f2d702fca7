//! Rows of JSON objects as a table for people.

use serde_json::Value;

use super::text::plain;

/// A table with these columns (a heading and a member), each as wide as its widest cell.
pub(super) fn table(columns: &[(&str, &str)], rows: &[Value]) -> String {
    let cells: Vec<Vec<String>> =
        rows.iter().map(|row| columns.iter().map(|(_, member)| cell(&row[*member])).collect()).collect();
    let width = |n: usize, heading: &str| {
        let widest = cells.iter().map(|row| row[n].chars().count()).max().unwrap_or(0);
        widest.max(heading.chars().count())
    };
    let widths: Vec<usize> = columns.iter().enumerate().map(|(n, (heading, _))| width(n, heading)).collect();
    let headings = columns.iter().map(|(heading, _)| (*heading).to_owned()).collect();
    let mut out = String::new();
    for row in std::iter::once(&headings).chain(&cells) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:<width$}  "));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => plain(text).replace(['\n', '\t'], " "),
        Value::Array(items) => items.iter().map(cell).collect::<Vec<_>>().join(" "),
        Value::Bool(yes) => (if *yes { "yes" } else { "no" }).to_owned(),
        other => other.to_string(),
    }
}
