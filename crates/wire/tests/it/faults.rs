//! Errors: the code of every engine error in every dialect, and how they are written.

use std::time::Duration;

use nuncio_engine::{error::Error, question::AnswerError, task::State};
use nuncio_wire::{
    a2a::{A2aProblem, Dialect},
    jsonrpc::RpcId,
};
use serde_json::json;

use crate::{text, value};

#[test]
fn every_engine_error_has_its_code() {
    let text = || "why".to_owned();
    let table = [
        (Error::NoSuchTask(text()), [-32001, -32001, -32001]),
        (Error::NoSuchAgent(text()), [-32600, -32600, -32600]),
        (Error::Ended(State::Completed), [-32009, -32602, -32004]),
        (Error::Unanswered(text()), [-32009, -32602, -32004]),
        (Error::NotCancelable(State::Completed), [-32002, -32002, -32002]),
        (Error::Invalid(text()), [-32602, -32602, -32602]),
        (Error::Answer(AnswerError::Schema(text())), [-32602, -32602, -32602]),
        (Error::ContentType(text()), [-32005, -32005, -32005]),
        (Error::ExtensionRequired(text()), [-32004, -32004, -32008]),
        (Error::Unsupported(text()), [-32004, -32004, -32004]),
        (Error::PushUnsupported, [-32003, -32003, -32003]),
        (Error::NoSuchWebhook(text()), [-32001, -32001, -32001]),
        (Error::KeyReused, [-32602, -32602, -32602]),
        (Error::UnknownCursor { asked: 9, last: 3 }, [-32602, -32602, -32602]),
        (Error::Limit(text()), [-32010, -32602, -32602]),
        (Error::Busy { why: text(), retry_after: Duration::from_secs(2) }, [-32011, -32603, -32603]),
        (Error::Internal(text()), [-32603, -32603, -32603]),
    ];
    for (error, codes) in table {
        for (dialect, code) in Dialect::ALL.into_iter().zip(codes) {
            let fault = dialect.fault(&error);
            assert_eq!(fault.code, code, "{error:?} in {dialect:?}");
            // These say it in the specification's words, with the dialect's names of states.
            let own = matches!(error, Error::NoSuchTask(_) | Error::Ended(_) | Error::NotCancelable(_));
            assert!(own || fault.message.ends_with(&error.to_string()), "{}", fault.message);
        }
    }
}

#[test]
fn what_the_engine_does_not_know_has_its_code() {
    for (problem, codes) in [
        (A2aProblem::ParseError, [-32700, -32700, -32700]),
        (A2aProblem::InvalidRequest, [-32600, -32600, -32600]),
        (A2aProblem::StreamingUnsupported, [-32006, -32004, -32004]),
        (A2aProblem::Unauthenticated, [-32007, -32603, -32603]),
        (A2aProblem::Forbidden, [-32008, -32603, -32603]),
        (A2aProblem::ExtendedCardUnsupported, [-32004, -32007, -32004]),
        (A2aProblem::ExtendedCardNotConfigured, [-32004, -32007, -32007]),
        (A2aProblem::ExtensionRequired, [-32004, -32004, -32008]),
        (A2aProblem::VersionNotSupported, [-32004, -32009, -32009]),
        (A2aProblem::Unavailable, [-32011, -32603, -32603]),
    ] {
        let found = Dialect::ALL.map(|dialect| dialect.problem(problem, "why").code);
        assert_eq!(found, codes, "{problem:?}");
    }
}

#[test]
fn faults_of_1_0_carry_their_reason() {
    let fault = Dialect::V1.fault(&Error::NoSuchTask("t-1".to_owned()));
    assert_eq!(
        value(|out| Dialect::V1.write_fault(out, Some(&RpcId::number(1)), &fault)),
        json!({ "jsonrpc": "2.0", "id": 1, "error": {
            "code": -32001,
            "message": "Task not found: t-1",
            "data": [{
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "TASK_NOT_FOUND",
                "domain": "a2a-protocol.org",
                "metadata": { "taskId": "t-1" },
            }],
        }})
    );
}

#[test]
fn faults_of_1_0_name_the_field() {
    let fault = Dialect::V1.read_call("GetTask", None).unwrap_err();
    let data = &value(|out| Dialect::V1.write_fault(out, None, &fault))["error"]["data"];
    assert_eq!(data[0]["reason"], "INVALID_PARAMS");
    assert_eq!(
        data[1],
        json!({
            "@type": "type.googleapis.com/google.rpc.BadRequest",
            "fieldViolations": [{ "field": "id", "description": "params.id: is required" }],
        })
    );
}

#[test]
fn older_faults_carry_an_object_or_nothing() {
    let dialect = Dialect::V0_3;
    let write = |fault| text(|out| dialect.write_fault(out, Some(&RpcId::string("r")), &fault));
    assert_eq!(
        write(dialect.fault(&Error::NotCancelable(State::Canceled))),
        r#"{"jsonrpc":"2.0","id":"r","error":{"code":-32002,"message":"Task cannot be canceled: canceled"}}"#
    );
    assert_eq!(
        write(dialect.read_call("tasks/get", None).unwrap_err()),
        r#"{"jsonrpc":"2.0","id":"r","error":{"code":-32602,"message":"params.id: is required","data":{"field":"id"}}}"#
    );
}

#[test]
fn official_tools_find_the_words_they_look_for() {
    for (error, words) in [
        (Error::NoSuchTask("t-1".to_owned()), &["task not found", "t-1"][..]),
        (Error::NotCancelable(State::Failed), &["task cannot be canceled", "task_state_failed"]),
        (Error::Ended(State::Rejected), &["(task_state_rejected)", "start a new task"]),
        (Error::PushUnsupported, &["push", "notification", "not", "supported"]),
        (Error::Unsupported("why".to_owned()), &["operation", "not", "supported"]),
        (Error::ContentType("why".to_owned()), &["incompatible", "content", "type"]),
    ] {
        let message = Dialect::V1.fault(&error).message.to_lowercase();
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    }
}

#[test]
fn what_a_fault_quotes_has_an_end() {
    let long = "é".repeat(100_000);
    for dialect in Dialect::ALL {
        let unknown = dialect.fault(&Error::NoSuchTask(long.clone()));
        let method = dialect.read_call(&long, None).unwrap_err();
        let params = json!({ "id": "t", "metadata": { &long: 1 }, "message": long, "historyLength": long })
            .to_string();
        let params = serde_json::value::RawValue::from_string(params).unwrap();
        let name = if dialect == Dialect::V1 { "SendMessage" } else { "tasks/get" };
        let malformed = dialect.read_call(name, Some(&params)).unwrap_err();
        for fault in [unknown, method, malformed] {
            assert!(fault.message.len() > 400 && fault.message.ends_with('…'), "{}", fault.message);
            assert!(text(|out| dialect.write_fault(out, None, &fault)).len() < 4000);
        }
    }
}
