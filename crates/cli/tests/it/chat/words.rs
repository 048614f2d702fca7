//! Text that an agent writes while it works: it is on the screen as it comes, in lines of the terminal's width.

use std::fs;

use super::terminal::{PROMPT, Terminal};
use crate::server_process::ServerProcess;

/// Writes a part of a sentence, waits until it may go on, and writes the rest.
const SCRIPT: &str = r#"read input
echo '{"type":"artifact","text":"Twice three is","last":false}'
while [ ! -e may-go ]; do sleep 0.02; done
echo '{"type":"artifact","text":" six, as far as anybody knows","append":true,"last":true}'
echo '{"type":"done","text":"said"}'"#;

#[test]
fn a_text_is_shown_as_it_comes_and_broken_between_words() {
    for protocol in ["", "/mcp"] {
        let dir = tempfile::tempdir().unwrap();
        let table = format!(
            "[[agent]]\nname = \"tells\"\nkind = \"process\"\ncommand = [\"sh\", \"-c\", \'\'\'{SCRIPT}\'\'\']\n"
        );
        fs::write(dir.path().join("nuncio.toml"), table).unwrap();
        let server = ServerProcess::start(&dir.path().join("data"), &[]);
        let address = format!("{}{protocol}", server.url());
        let mut chat = Terminal::start_sized(dir.path(), &["--server", &address], 40);
        chat.command("tells text=go");
        // The last word is held back, because more of it may follow.
        chat.expect("  Twice three");
        fs::write(dir.path().join("may-go"), "").unwrap();
        chat.expect(" is six, as far as anybody");
        chat.expect("\n  knows");
        chat.expect("completed in");
        chat.expect(PROMPT);
        let text = chat.text();
        assert!(text.contains("  Twice three is six, as far as anybody"), "one line: {text}");
        // Its stream was open all the time.
        chat.never("is back");
        chat.never("waits for the server");
    }
}
