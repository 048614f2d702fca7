//! Errors of the server name its tools, which other clients call. Here the same is said in commands.

use std::borrow::Cow;

/// Tools, and the commands that do the same.
const COMMANDS: [(&str, &str); 38] = [
    ("agents_list", "nuncio agents list"),
    ("agents_probe", "nuncio agents probe"),
    ("batch_cancel", "nuncio batch cancel"),
    ("batch_configure", "nuncio batch config --set"),
    ("batch_list", "nuncio batch list"),
    ("batch_pause", "nuncio batch pause"),
    ("batch_resume", "nuncio batch resume"),
    ("batch_retry", "nuncio batch retry"),
    ("batch_status", "nuncio batch status"),
    ("batch_submit", "nuncio batch submit"),
    ("memory_clear", "nuncio memory clear"),
    ("memory_delete", "nuncio memory delete"),
    ("memory_export", "nuncio memory export"),
    ("memory_get", "nuncio memory get"),
    ("memory_import", "nuncio memory import"),
    ("memory_list", "nuncio memory list"),
    ("memory_search", "nuncio memory search"),
    ("memory_store", "nuncio memory set"),
    ("plan_cancel", "nuncio plan cancel"),
    ("plan_check", "nuncio plan check"),
    ("plan_list", "nuncio plan list"),
    ("plan_make", "nuncio plan make"),
    ("plan_run", "nuncio plan run"),
    ("plan_show", "nuncio plan show"),
    ("plan_status", "nuncio plan run --attach"),
    ("sparc_back", "nuncio sparc back"),
    ("sparc_history", "nuncio sparc history"),
    ("sparc_list", "nuncio sparc list"),
    ("sparc_run", "nuncio sparc run"),
    ("sparc_start", "nuncio sparc start"),
    ("sparc_status", "nuncio sparc show"),
    ("sparc_submit", "nuncio sparc submit"),
    ("task_cancel", "nuncio task cancel"),
    ("task_events", "nuncio task events"),
    ("task_get", "nuncio task get"),
    ("task_list", "nuncio task list"),
    ("task_reply", "nuncio send --task-id"),
    ("task_send", "nuncio send"),
];

/// How the server's errors begin, and what a command says.
const PHRASES: [(&str, &str); 2] = [
    ("the arguments do not fit the tool's input schema", "the input is not what the server takes"),
    (
        "by: the name of an agent with a model",
        "--by names an agent with a model, --model takes the server's own",
    ),
];

/// A message with commands in place of tools. What stands in quotes was written by a caller and stays.
pub(crate) fn in_command_words(message: &str) -> String {
    let mut message = message.to_owned();
    for (server, command) in PHRASES {
        message = message.replace(server, command);
    }
    let quoted_from_first = message.split('"').enumerate().map(|(number, piece)| match number % 2 {
        0 => Cow::Owned(replaced(piece)),
        _ => Cow::Borrowed(piece),
    });
    quoted_from_first.collect::<Vec<_>>().join("\"")
}

fn replaced(text: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(begin) = rest.find(is_word) {
        let (before, after) = rest.split_at(begin);
        let (word, after) = after.split_at(after.find(|c| !is_word(c)).unwrap_or(after.len()));
        out.push_str(before);
        match COMMANDS.binary_search_by_key(&word, |(tool, _)| tool) {
            Ok(at) => out.push_str(&format!("`{}`", COMMANDS[at].1)),
            Err(_) => out.push_str(word),
        }
        rest = after;
    }
    out.push_str(rest);
    out.replace("``", "`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_named_by_their_commands() {
        let check = |message: &str, expected: &str| assert_eq!(in_command_words(message), expected);
        check(
            r#"there is no key "memory_list" in "notes": memory_list and memory_search show those that there are"#,
            r#"there is no key "memory_list" in "notes": `nuncio memory list` and `nuncio memory search` show those that there are"#,
        );
        check("call `plan_list` first", "call `nuncio plan list` first");
        check("memory_listing and my_memory_get stay", "memory_listing and my_memory_get stay");
        check("ünïcode: agents_list", "ünïcode: `nuncio agents list`");
    }

    #[test]
    fn the_table_is_in_order() {
        assert!(COMMANDS.is_sorted_by_key(|(tool, _)| *tool));
    }
}
