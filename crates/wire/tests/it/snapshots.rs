//! The bytes on the wire, to be looked at: of every kind of event, task and call, in every dialect.

use nuncio_wire::{
    a2a::{Dialect, TaskDetail, TaskIds, TaskListPage},
    jsonrpc::RpcId,
    sse,
};

use crate::{samples, text};

fn snapshot(name: &str, dialect: Dialect, lines: impl IntoIterator<Item = (String, String)>) {
    let lines: Vec<String> = lines.into_iter().map(|(what, json)| format!("{what}\n    {json}\n")).collect();
    let name = format!("{name}_{}", dialect.version().replace('.', "_"));
    insta::assert_snapshot!(name, lines.join("\n"));
}

#[test]
fn events() {
    let ids = TaskIds { task: "t-1", context: "c-1" };
    for dialect in Dialect::ALL {
        let lines = samples::events().into_iter().zip(1..).map(|((name, entry), seq)| {
            let mut frame = None;
            let json = text(|out| frame = dialect.write_event(out, &ids, seq, &entry));
            let ends = match frame {
                None => "no frame",
                Some(frame) if frame.ends_stream => "ends the stream",
                Some(frame) if frame.ends_turn => "ends the turn",
                Some(_) => "goes on",
            };
            (format!("{name} ({ends})"), json)
        });
        snapshot("events", dialect, lines);
    }
}

#[test]
fn tasks() {
    let asked = ["message", "working", "question"];
    for dialect in Dialect::ALL {
        let write =
            |events: &[&str], view| text(|out| dialect.write_task(out, &samples::task_after(events), view));
        let finished = samples::finished_task();
        let two = [samples::task_after(&["message"]), finished.clone()];
        let view = TaskDetail { history_length: Some(0), artifacts: true };
        let page = TaskListPage { tasks: &two, view, page_size: 50, total: 2, next: None };
        let (_, completed) = samples::events().into_iter().find(|(name, _)| *name == "completed").unwrap();
        let mut lines = vec![
            ("just made", write(&["message"], TaskDetail::default())),
            ("in progress", write(&["message", "working", "progress"], TaskDetail::default())),
            ("waiting", write(&asked, TaskDetail::default())),
            ("answered", write(&[&asked[..], &["answer"]].concat(), TaskDetail::default())),
            (
                "waiting for an authorization",
                write(&["message", "authorization"], TaskDetail::history(Some(0))),
            ),
            (
                "the answer to a send",
                text(|out| dialect.write_sent(out, &finished, TaskDetail::history(Some(0)))),
            ),
            (
                "the beginning of a stream",
                text(|out| {
                    dialect.write_stream_start(out, &two[0], TaskDetail::default());
                }),
            ),
            (
                "a push",
                text(|out| assert!(dialect.push_body(out, &finished, finished.seq, &completed).is_some())),
            ),
            ("a webhook", text(|out| dialect.write_webhook(out, "t-1", &samples::webhook(dialect)))),
            ("webhooks", text(|out| dialect.write_webhooks(out, "t-1", &[samples::webhook(dialect)], None))),
            ("a deleted webhook", text(|out| dialect.write_deleted(out))),
        ];
        if dialect == Dialect::V1 {
            lines.push(("a list", text(|out| dialect.write_list(out, &page))));
        }
        snapshot("tasks", dialect, lines.into_iter().map(|(what, json)| (what.to_owned(), json)));
    }
}

#[test]
fn calls() {
    for dialect in Dialect::ALL {
        let lines = samples::calls(dialect).into_iter().filter_map(|call| {
            let mut method = None;
            let json = text(|out| method = dialect.write_call(out, &call));
            method.map(|method| (method.to_owned(), json))
        });
        snapshot("calls", dialect, lines);
    }
}

#[test]
fn a_frame_of_a_stream() {
    let (_, entry) = samples::events().remove(1);
    let ids = TaskIds { task: "t-1", context: "c-1" };
    let frame = text(|out| {
        sse::write_numbered_event(out, Some(7), |out| {
            nuncio_wire::jsonrpc::write_result(out, &RpcId::number(1), |out| {
                Dialect::V1.write_event(out, &ids, 7, &entry);
            });
        });
    });
    insta::assert_snapshot!(frame, @r#"
    id: 7
    data: {"jsonrpc":"2.0","id":1,"result":{"statusUpdate":{"taskId":"t-1","contextId":"c-1","status":{"state":"TASK_STATE_WORKING","timestamp":"2024-11-15T19:46:41.000Z"}}}}
    "#);
}
