//! Tables for people: aligned columns, and numbers with units.
//!
//! On a terminal rows fit its width: cells are clipped, then columns are left out; names and ids stay whole. A file or a
//! pipe gets every cell in full. Text of others is shown without control characters.

use std::io::{IsTerminal as _, stdout};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::text::plain;

/// Cells are not clipped below this width.
const NARROWEST: usize = 8;
const GAP: &str = "  ";

pub(crate) struct Table {
    head: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    /// Columns whose cells are never clipped.
    whole: &'static [&'static str],
    /// Columns that are left out where a row would not fit, the first one first.
    optional: &'static [&'static str],
}

/// How a table is laid out.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TableLayout {
    /// Characters per row; `None`: no limit.
    width: Option<usize>,
    /// Whether the head is bold.
    bold: bool,
}

impl TableLayout {
    /// The layout for the standard output.
    pub(crate) fn of_stdout() -> Self {
        if !stdout().is_terminal() {
            return Self::default();
        }
        let width = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
        let bold = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        Self { width, bold }
    }
}

impl Table {
    /// A table with these columns. A column whose name ends in a space is aligned as numbers.
    pub(crate) fn new(head: &[&'static str]) -> Self {
        Self { head: head.to_vec(), rows: vec![], whole: &[], optional: &[] }
    }

    /// Never clips the cells of these columns: a name or an id that is cut cannot be typed.
    pub(crate) fn whole(mut self, columns: &'static [&'static str]) -> Self {
        self.whole = columns;
        self
    }

    /// Leaves these columns out where clipping is not enough, the first one first.
    pub(crate) fn optional(mut self, columns: &'static [&'static str]) -> Self {
        self.optional = columns;
        self
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| plain(&cell).replace(['\n', '\t'], " ")).collect());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table as text, laid out for the standard output.
    pub(crate) fn show(&self) -> String {
        self.render(TableLayout::of_stdout())
    }

    fn render(&self, look: TableLayout) -> String {
        let widths = self.widths(look.width);
        let mut out = String::new();
        let head: Vec<String> = self.head.iter().map(|name| name.trim_end().to_owned()).collect();
        let line = self.line(&head, &widths);
        out.push_str(&if look.bold { format!("\u{1b}[1m{line}\u{1b}[0m\n") } else { format!("{line}\n") });
        for row in &self.rows {
            out.push_str(&self.line(row, &widths));
            out.push('\n');
        }
        out
    }

    fn line(&self, cells: &[String], widths: &[Option<usize>]) -> String {
        let cell = |(at, cell): (usize, &String)| {
            let width = widths[at]?;
            let cell = clipped(cell, width);
            let room = " ".repeat(width.saturating_sub(cell.chars().count()));
            Some(if self.head[at].ends_with(' ') { format!("{room}{cell}") } else { format!("{cell}{room}") })
        };
        let cells: Vec<String> = cells.iter().take(self.head.len()).enumerate().filter_map(cell).collect();
        cells.join(GAP).trim_end().to_owned()
    }

    /// The width of each column: that of its widest cell, or less where the row would not fit. The widest
    /// columns shrink first; where that is not enough, optional columns are left out (`None`).
    fn widths(&self, limit: Option<usize>) -> Vec<Option<usize>> {
        let widest = |at: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count());
            cells.chain([self.head[at].trim_end().chars().count()]).max().unwrap_or(0)
        };
        let natural: Vec<usize> = (0..self.head.len()).map(widest).collect();
        let mut shown: Vec<Option<usize>> = natural.iter().copied().map(Some).collect();
        let mut optional = self.optional.iter();
        loop {
            let fitted = self.shrunk(&shown, limit);
            if limit.is_none_or(|limit| total_width(&fitted) <= limit) {
                return fitted;
            }
            let Some(dropped) = optional.next() else { return fitted };
            for (at, name) in self.head.iter().enumerate() {
                if name.trim_end() == *dropped {
                    shown[at] = None;
                }
            }
        }
    }

    /// The widths after the columns that may be clipped have shrunk, as far as they may.
    fn shrunk(&self, widths: &[Option<usize>], limit: Option<usize>) -> Vec<Option<usize>> {
        let mut widths = widths.to_vec();
        while limit.is_some_and(|limit| total_width(&widths) > limit) {
            let may_shrink = |at: usize| !self.whole.contains(&self.head[at].trim_end());
            let shrinkable = widths.iter_mut().enumerate().filter(|(at, _)| may_shrink(*at));
            let widest = shrinkable.filter_map(|(_, width)| width.as_mut()).max();
            let Some(most) = widest.filter(|most| **most > NARROWEST) else { break };
            *most -= 1;
        }
        widths
    }
}

/// The width of a row, with the gaps.
fn total_width(widths: &[Option<usize>]) -> usize {
    let shown: Vec<usize> = widths.iter().copied().flatten().collect();
    shown.iter().sum::<usize>() + GAP.len() * shown.len().saturating_sub(1)
}

fn clipped(cell: &str, width: usize) -> String {
    if cell.chars().count() <= width {
        return cell.to_owned();
    }
    cell.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// A table of JSON objects; each column has a heading and a member.
pub(super) fn table(columns: &[(&'static str, &str)], rows: &[Value]) -> String {
    let heads: Vec<&'static str> = columns.iter().map(|(heading, _)| *heading).collect();
    let mut table = Table::new(&heads).whole(&["ID", "NAME", "TENANT"]);
    for row in rows {
        table.row(columns.iter().map(|(_, member)| words(&row[*member])));
    }
    table.show()
}

fn words(value: &Value) -> String {
    match value {
        Value::Array(items) => items.iter().map(words).collect::<Vec<_>>().join(" "),
        Value::Bool(yes) => (if *yes { "yes" } else { "no" }).to_owned(),
        other => cell(other),
    }
}

/// A member as a cell: strings without quotes, a missing one as a dash.
pub(crate) fn cell(value: &(impl Serialize + ?Sized)) -> String {
    match json(value) {
        Value::Null => "-".to_owned(),
        Value::String(text) => text,
        other => other.to_string(),
    }
}

/// A member of an answer as JSON. Members are plain data: their serialization cannot fail.
fn json(value: &(impl Serialize + ?Sized)) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

/// A number of bytes with its unit.
pub(crate) fn bytes(value: &(impl Serialize + ?Sized)) -> String {
    let Some(bytes) = json(value).as_f64() else { return cell(value) };
    let mut size = bytes;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if size < 1024.0 {
            return if unit == "B" { format!("{size} B") } else { format!("{size:.1} {unit}") };
        }
        size /= 1024.0;
    }
    format!("{size:.1} TiB")
}

/// The age of a timestamp, such as `5m ago`.
pub(crate) fn age(value: &(impl Serialize + ?Sized)) -> String {
    age_at(&json(value), Timestamp::now())
}

fn age_at(value: &Value, now: Timestamp) -> String {
    let Some(then) = value.as_str().and_then(|text| text.parse::<Timestamp>().ok()) else {
        return cell(value);
    };
    match now.duration_since(then).as_secs() {
        // The clocks of two machines may differ by seconds.
        ..=0 => "now".to_owned(),
        seconds => format!("{} ago", long(seconds.unsigned_abs())),
    }
}

/// Seconds, in the largest unit that fits.
pub(crate) fn seconds(value: &(impl Serialize + ?Sized)) -> String {
    json(value).as_f64().map_or_else(|| cell(value), |seconds| long(seconds.max(0.0) as u64))
}

/// Milliseconds, in a readable unit.
pub(crate) fn millis(value: &(impl Serialize + ?Sized)) -> String {
    match json(value).as_f64() {
        None => cell(value),
        Some(millis) if millis < 1.0 => format!("{millis:.2} ms"),
        Some(millis) if millis < 1000.0 => format!("{millis:.0} ms"),
        Some(millis) if millis < 60_000.0 => format!("{:.1} s", millis / 1000.0),
        Some(millis) => long((millis / 1000.0) as u64),
    }
}

/// A measured number: two decimals, unless it is a count.
pub(crate) fn figure(value: &(impl Serialize + ?Sized)) -> String {
    let value = json(value);
    match value.as_f64().filter(|_| value.is_f64()) {
        Some(number) => format!("{number:.2}"),
        None => cell(&value),
    }
}

/// A number with its noun, singular or plural.
pub(crate) fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// The time since a timestamp, such as `5m`.
pub(crate) fn time_since(value: &(impl Serialize + ?Sized)) -> String {
    let shown = age(value);
    shown.strip_suffix(" ago").unwrap_or(&shown).to_owned()
}

fn long(seconds: u64) -> String {
    let units = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];
    let (unit, factor) = units.into_iter().find(|(_, factor)| seconds >= *factor).unwrap_or(("s", 1));
    format!("{}{unit}", seconds / factor)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["KEY", "SIZE "]);
        table.row(["short".into(), "5 B".into()]);
        table.row(["a key\nthat goes on and on".into(), "10.5 KiB".into()]);
        table
    }

    #[test]
    fn columns_are_aligned_and_nothing_is_lost_without_a_terminal() {
        let expected = "KEY                          SIZE\n\
                        short                         5 B\n\
                        a key that goes on and on  10.5 KiB\n";
        let shown = table().render(TableLayout::default());
        assert_eq!(shown.lines().nth(2), expected.lines().nth(2));
        assert!(
            shown
                .lines()
                .take(2)
                .all(|line| line.chars().count() == "a key that goes on and on  10.5 KiB".len())
        );
    }

    #[test]
    fn rows_fit_a_terminal() {
        let shown = table().render(TableLayout { width: Some(24), bold: true });
        assert!(shown.starts_with("\u{1b}[1mKEY"), "{shown:?}");
        let lines: Vec<&str> = shown.lines().skip(1).collect();
        assert_eq!(lines, ["short                5 B", "a key that go…  10.5 KiB"]);
        assert_eq!(table().widths(Some(1)), [Some(NARROWEST); 2], "there is an end to it");
    }

    #[test]
    fn names_stay_whole_and_optional_columns_are_left_out() {
        let table = || {
            let mut table = Table::new(&["NAME", "URL", "STATUS", "TIME "]).whole(&["NAME"]);
            table.row(
                ["a_name_that_is_long", "http://127.0.0.1:8080/agents", "healthy", "5 ms"].map(str::to_owned),
            );
            table.optional(&["TIME", "URL"])
        };
        let at = |width| {
            let shown = table().render(TableLayout { width: Some(width), bold: false });
            shown.lines().nth(1).unwrap().to_owned()
        };
        assert_eq!(at(80), "a_name_that_is_long  http://127.0.0.1:8080/agents  healthy  5 ms");
        assert_eq!(at(50), "a_name_that_is_long  http://127.0.…  healthy  5 ms");
        assert_eq!(at(40), "a_name_that_is_long  http://12…  healthy");
        assert_eq!(at(30), "a_name_that_is_long  healthy");
        assert_eq!(at(10), "a_name_that_is_long  healthy", "a name is never cut");
    }

    #[test]
    fn figures_are_for_people() {
        let check = |shown: String, expected: &str| assert_eq!(shown, expected);
        check(bytes(&json!(0)), "0 B");
        check(bytes(&json!(1023)), "1023 B");
        check(bytes(&json!(1536)), "1.5 KiB");
        check(bytes(&json!(3_u64 << 40)), "3.0 TiB");
        check(bytes(&json!(null)), "-");
        let now: Timestamp = "2026-07-28T12:00:00Z".parse().unwrap();
        check(age_at(&json!("2026-07-28T11:59:01Z"), now), "59s ago");
        check(age_at(&json!("2026-07-25T12:00:00.000Z"), now), "3d ago");
        check(age_at(&json!("2026-07-28T12:00:01Z"), now), "now");
        check(age_at(&json!("soon"), now), "soon");
        check(seconds(&json!(3600)), "1h");
        check(seconds(&json!(null)), "-");
        check(millis(&json!(0.25)), "0.25 ms");
        check(millis(&json!(1500)), "1.5 s");
        check(figure(&json!(2.3456)), "2.35");
        check(figure(&json!(7)), "7");
        check(figure(&json!(0.0)), "0.00");
        check(count(1, "key", "keys"), "1 key");
        check(count(0, "key", "keys"), "0 keys");
    }
}
