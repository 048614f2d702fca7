//! Servers in processes of their own: how they are started, spoken to, lost and ended.

use std::{collections::BTreeMap, path::Path, time::Duration};

use nuncio_client::{
    mcp::{McpPeer, McpPeerOptions},
    peer::{Peer as _, PeerError, PeerLocation, PeerProgram},
};
use nuncio_engine::State;
use nuncio_wire::mcp::McpVersion;
use serde_json::json;

use super::stage::{Seen, follow, follow_on, options, until, with, within};

/// A server of 2025-11-25 in a shell, whose tool `t` does what `call` says. It is given `$id` and `$line`, and says
/// things by `say`.
fn script(discover: &str, call: &str) -> String {
    format!(
        r#"
say() {{ printf '%s\n' "$1"; }}
result() {{ say "{{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":$1}}"; }}
done_with() {{ result "{{\"content\":[{{\"type\":\"text\",\"text\":\"$1\"}}]}}"; }}
while read -r line; do
  id=$(printf '%s' "$line" | sed 's/.*"id":\([^,}}]*\).*/\1/')
  case "$line" in
    *'"server/discover"'*) {discover} ;;
    *'"initialize"'*) result '{{"protocolVersion":"2025-11-25","capabilities":{{}},"serverInfo":{{"name":"shell"}}}}' ;;
    *'"tools/list"'*) result '{{"tools":[{{"name":"t","inputSchema":{{"type":"object"}}}}]}}' ;;
    *'"tools/call"'*) {call} ;;
    *'"ping"'*) result '{{}}' ;;
  esac
done
"#
    )
}

const UNKNOWN: &str =
    r#"say "{\"jsonrpc\":\"2.0\",\"id\":$id,\"error\":{\"code\":-32601,\"message\":\"no\"}}""#;

fn shell(script: &str) -> PeerProgram {
    PeerProgram { command: vec!["sh".into(), "-c".into(), script.into()], env: BTreeMap::new(), dir: None }
}

fn peer(program: PeerProgram) -> McpPeer {
    let options = McpPeerOptions {
        probe_timeout: Duration::from_millis(300),
        exit_grace: Duration::from_millis(200),
        term_grace: Duration::from_millis(200),
        ..options()
    };
    McpPeer::new(PeerLocation::Command(program), options)
}

async fn call(peer: &McpPeer) -> Result<Seen, PeerError> {
    let mut call = peer.begin(with("t", json!({}))).await?;
    follow(&mut call).await
}

#[tokio::test]
async fn a_program_of_old_is_greeted_however_it_answers_what_it_does_not_know() {
    for discover in [UNKNOWN, ":", "exit 3"] {
        let peer = peer(shell(&script(discover, "done_with hello")));
        assert_eq!(within(peer.version()).await, Ok(McpVersion::V2025_11_25), "{discover}");
        assert_eq!(peer.name().as_deref(), Some("shell"));
        assert_eq!(call(&peer).await.unwrap().text(), "hello");
        within(peer.check_reachable()).await.unwrap();
        within(peer.close()).await;
    }
}

#[tokio::test]
async fn a_program_may_be_new_and_slow() {
    let discovered = r#"sleep 1; result '{"supportedVersions":["2026-07-28"],"capabilities":{}}'"#;
    let peer = peer(shell(&script(discovered, "done_with hello")));
    assert_eq!(within(peer.version()).await, Ok(McpVersion::V2026_07_28));
    assert_eq!(call(&peer).await.unwrap().text(), "hello");
}

#[tokio::test]
async fn a_program_tells_and_asks_while_it_works() {
    let work = r#"
      echo 'this is no message'
      token=$(printf '%s' "$line" | sed 's/.*"progressToken":\("[^"]*"\).*/\1/')
      say "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":$token,\"progress\":1,\"message\":\"half\"}}"
      say '{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"Sure?","requestedSchema":{"type":"object"}}}'
      read -r answer
      case "$answer" in *'"accept"'*) done_with sure ;; *) done_with unsure ;; esac"#;
    let seen = call(&peer(shell(&script(UNKNOWN, work)))).await.unwrap();
    assert_eq!((seen.told.join(", "), seen.text()), ("1: half".into(), "sure".into()));
    assert_eq!(seen.questions[0].text, "Sure?");
    assert!(seen.handles.is_empty(), "a call on pipes ends with them");
}

#[tokio::test]
async fn a_question_is_never_put_to_another_call() {
    let (asked, refused) = ((1, "sure".to_owned()), (0, "refused".to_owned()));
    for (max_connections, then) in [(8, &asked), (1, &refused)] {
        let folder = tempfile::tempdir().unwrap();
        let mut program = shell(&script(UNKNOWN, ASKS));
        program.env.insert("FOLDER".into(), folder.path().to_str().unwrap().into());
        let probe_timeout = Duration::from_millis(300);
        let options = McpPeerOptions { max_connections, probe_timeout, ..options() };
        let peer = McpPeer::new(PeerLocation::Command(program), options);
        // As long as nobody knows that it asks, calls share one process, and what may be anybody's is refused.
        let seen = ask_at_once(&peer, folder.path(), 2).await;
        assert!(seen.iter().all(|seen| *seen == refused), "{seen:?}");
        // From then on each has a process of its own, as far as there are enough, and is asked what it caused.
        let seen = ask_at_once(&peer, folder.path(), 3).await;
        assert!(seen.iter().all(|seen| seen == then), "{max_connections}: {seen:?}");
        within(peer.close()).await;
    }
}

/// A call asks once the file `ask` is there, while the process reads on, and ends once the file `end` is there. What
/// came of its question is in a file of its own.
const ASKS: &str = r#"
      ( until [ -e "$FOLDER/ask" ]; do sleep 0.02; done
        say "{\"jsonrpc\":\"2.0\",\"id\":\"q$id\",\"method\":\"elicitation/create\",\"params\":{\"message\":\"Sure?\",\"requestedSchema\":{\"type\":\"object\"}}}"
        until [ -e "$FOLDER/end" ]; do sleep 0.02; done
        done_with "$(cat "$FOLDER/came.$$.q$id")" ) & ;;
    *'"id":"q'*)
      came="came.$$.$(printf '%s' "$id" | tr -d '"')"
      case "$line" in *'"accept"'*) word=sure ;; *several*) word=refused ;; *) word=else ;; esac
      printf '%s' "$word" > "$FOLDER/new.$$"; mv "$FOLDER/new.$$" "$FOLDER/$came""#;

/// Makes so many calls that all ask at the same time; how often each was asked here, and what it said.
async fn ask_at_once(peer: &McpPeer, folder: &Path, count: usize) -> Vec<(usize, String)> {
    for file in std::fs::read_dir(folder).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    let mut calls = vec![];
    for _ in 0..count {
        calls.push(peer.begin(with("t", json!({}))).await.unwrap());
    }
    std::fs::write(folder.join("ask"), "").unwrap();
    let came = || {
        let names = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().starts_with("came.")).count()
    };
    let all_came = async {
        while came() < count {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        std::fs::write(folder.join("end"), "").unwrap();
    };
    let (seen, ()) =
        tokio::join!(futures_util::future::join_all(calls.iter_mut().map(follow)), within(all_came));
    seen.into_iter().map(|seen| seen.unwrap()).map(|seen| (seen.questions.len(), seen.text())).collect()
}

#[tokio::test]
async fn a_call_is_taken_back() {
    let work = r#"
      say '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"begun"}}'
      read -r cancelled
      printf '%s' "$cancelled" > "$TOLD""#;
    let folder = tempfile::tempdir().unwrap();
    let told = folder.path().join("told");
    let mut program = shell(&script(UNKNOWN, work));
    program.env.insert("TOLD".into(), told.to_str().unwrap().into());
    let peer = peer(program);
    let mut call = peer.begin(with("t", json!({}))).await.unwrap();
    let mut seen = Seen::default();
    until(&mut call, &mut seen, |seen| !seen.told.is_empty()).await.unwrap();
    within(call.cancel()).await.unwrap();
    until(&mut call, &mut seen, |_| false).await.unwrap();
    assert_eq!(seen.ended.unwrap().state, State::Canceled);
    let written = until_written(&told).await;
    assert!(written.contains("notifications/cancelled"), "{written}");
}

#[tokio::test]
async fn a_program_that_dies_takes_its_calls_with_it_and_is_started_again() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("mark");
    // The first time it dies, with words.
    let work =
        r#"if [ -e "$MARK" ]; then done_with again; else : > "$MARK"; echo 'out of paper' >&2; exit 7; fi"#;
    let mut program = shell(&script(UNKNOWN, work));
    program.env.insert("MARK".into(), mark.to_str().unwrap().into());
    let peer = peer(program);
    let cut = call(&peer).await.unwrap_err();
    assert!(
        matches!(&cut, PeerError::Cut(why) if why.contains("7") && why.contains("out of paper")),
        "{cut:?}"
    );
    assert_eq!(call(&peer).await.unwrap().text(), "again");
}

#[tokio::test]
async fn a_program_finds_what_it_was_given_and_nothing_of_ours() {
    let work = r#"done_with "$GIVEN,$CARGO_PKG_NAME,$(pwd -P | sed 's|.*/||')""#;
    let folder = tempfile::Builder::new().prefix("here").rand_bytes(0).tempdir_in(std::env::temp_dir());
    let folder = folder.unwrap_or_else(|_| tempfile::tempdir().unwrap());
    let mut program = shell(&script(UNKNOWN, work));
    program.env.insert("GIVEN".into(), "given".into());
    program.dir = Some(folder.path().into());
    assert!(std::env::var("CARGO_PKG_NAME").is_ok(), "there is something of ours");
    let name = folder.path().file_name().unwrap().to_str().unwrap().to_owned();
    assert_eq!(call(&peer(program)).await.unwrap().text(), format!("given,,{name}"));
}

#[tokio::test]
async fn a_program_that_does_not_want_to_end_is_ended_with_all_that_it_started() {
    let folder = tempfile::tempdir().unwrap();
    let pids = folder.path().join("pids");
    // It ignores the end of its input and being told to end, and so does what it has started.
    let work = r#"
      trap '' TERM
      sh -c 'trap "" TERM; sleep 600 & wait; sleep 600' &
      echo "$$ $!" > "$PIDS"
      done_with stubborn"#;
    let mut stubborn = script(UNKNOWN, work);
    stubborn.push_str("\nsleep 600\n");
    let mut program = shell(&stubborn);
    program.env.insert("PIDS".into(), pids.to_str().unwrap().into());
    let peer = peer(program);
    assert_eq!(call(&peer).await.unwrap().text(), "stubborn");
    let written = until_written(&pids).await;
    let alive = || written.split_whitespace().filter(|pid| is_alive(pid)).count();
    assert_eq!(alive(), 2);
    within(peer.close()).await;
    within(async {
        while alive() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_started_says_so() {
    let nobody = PeerProgram { command: vec!["/no/such/program".into()], env: BTreeMap::new(), dir: None };
    let error = within(peer(nobody).check_reachable()).await.unwrap_err();
    assert!(matches!(&error, PeerError::Unreachable { at, .. } if at == "/no/such/program"), "{error:?}");
    let empty = PeerProgram { command: vec![], env: BTreeMap::new(), dir: None };
    assert!(matches!(within(peer(empty).check_reachable()).await, Err(PeerError::Unreachable { .. })));
}

#[tokio::test]
async fn a_call_of_which_nothing_is_heard_is_given_up() {
    let options = McpPeerOptions { silence: Duration::from_millis(300), ..options() };
    let peer = McpPeer::new(PeerLocation::Command(shell(&script(UNKNOWN, ":"))), options);
    let error = call(&peer).await.unwrap_err();
    assert!(matches!(&error, PeerError::Cut(why) if why.contains("sent no message for")), "{error:?}");
    within(peer.check_reachable()).await.unwrap();
}

#[tokio::test]
async fn a_call_whose_question_is_open_may_be_silent() {
    let work = r#"
      say '{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"Sure?","requestedSchema":{"type":"object"}}}'
      read -r answer
      done_with sure"#;
    let silence = Duration::from_millis(200);
    let options = McpPeerOptions { silence, ..options() };
    let peer = McpPeer::new(PeerLocation::Command(shell(&script(UNKNOWN, work))), options);
    let mut call = peer.begin(with("t", json!({}))).await.unwrap();
    let mut seen = Seen::default();
    until(&mut call, &mut seen, |seen| !seen.questions.is_empty()).await.unwrap();
    // Longer than a call may be silent at work.
    tokio::time::sleep(silence * 2).await;
    follow_on(&mut call, &mut seen).await.unwrap();
    assert_eq!(seen.text(), "sure");
}

#[tokio::test]
async fn a_line_without_end_is_refused() {
    let endless = r#"while :; do printf 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'; done"#;
    let options = McpPeerOptions { max_message: 100_000, ..options() };
    let peer = McpPeer::new(PeerLocation::Command(shell(&script(UNKNOWN, endless))), options);
    let error = call(&peer).await.unwrap_err();
    assert!(error.to_string().contains("longer than 100000 bytes"), "{error}");
    within(peer.close()).await;
}

fn is_alive(pid: &str) -> bool {
    // What has ended and was not waited for yet is as good as gone.
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

async fn until_written(file: &Path) -> String {
    within(async {
        loop {
            match std::fs::read_to_string(file) {
                Ok(text) if !text.is_empty() => return text,
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    })
    .await
}
