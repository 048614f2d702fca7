//! Everything that is said in 0.1 satisfies the schema that was published for it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use jsonschema::Validator;
use nuncio_engine::error::Error;
use nuncio_wire::{
    a2a::{A2aCall, Dialect, TaskDetail, TaskIds, card},
    jsonrpc::{self, RpcId},
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{cards, samples, strategies, value};

const DIALECT: Dialect = Dialect::V0_1;

/// The validator of a definition; each is compiled once.
fn definition(name: &str) -> Arc<Validator> {
    static COMPILED: Mutex<BTreeMap<String, Arc<Validator>>> = Mutex::new(BTreeMap::new());
    let compile = || {
        let mut schema: Value = serde_json::from_str(include_str!("fixtures/a2a-0.1.schema.json")).unwrap();
        schema["allOf"] = json!([{ "$ref": format!("#/$defs/{name}") }]);
        Arc::new(jsonschema::validator_for(&schema).unwrap())
    };
    Arc::clone(COMPILED.lock().unwrap().entry(name.to_owned()).or_insert_with(compile))
}

fn check(name: &str, instance: &Value) {
    let errors: Vec<_> =
        definition(name).iter_errors(instance).map(|e| format!("{} at {}", e, e.instance_path())).collect();
    assert!(errors.is_empty(), "{name}: {errors:?}\n{instance:#}");
}

fn response(write: impl FnOnce(&mut Vec<u8>)) -> Value {
    value(|out| jsonrpc::write_result(out, &RpcId::string("r-1"), write))
}

fn request(call: &A2aCall) -> Option<Value> {
    let mut params = vec![];
    let method = DIALECT.write_call(&mut params, call)?;
    Some(value(|out| {
        jsonrpc::write_request(out, &RpcId::number(1), method, |out| out.extend_from_slice(&params));
    }))
}

fn schema_of(call: &A2aCall) -> &'static str {
    match call {
        A2aCall::Send(_) => "SendTaskRequest",
        A2aCall::Stream(_) => "SendTaskStreamingRequest",
        A2aCall::Get { .. } => "GetTaskRequest",
        A2aCall::Cancel { .. } => "CancelTaskRequest",
        A2aCall::Subscribe { .. } => "TaskResubscriptionRequest",
        A2aCall::SetWebhook { .. } => "SetTaskPushNotificationRequest",
        _ => "GetTaskPushNotificationRequest",
    }
}

#[test]
fn the_schema_refuses_what_is_wrong() {
    let task =
        response(|out| Dialect::V0_3.write_task(out, &samples::finished_task(), TaskDetail::default()));
    assert!(!definition("SendTaskResponse").is_valid(&task), "parts of 0.3 have no type");
}

#[test]
fn requests() {
    let calls: Vec<_> =
        samples::calls(DIALECT).into_iter().filter_map(|call| Some((request(&call)?, call))).collect();
    assert_eq!(calls.len(), 7);
    for (request, call) in calls {
        check(schema_of(&call), &request);
    }
}

#[test]
fn responses() {
    for (events, _) in samples::events().iter().map(|(name, _)| (["message", name], ())).skip(1) {
        let task = samples::task_after(&events);
        for name in ["SendTaskResponse", "GetTaskResponse", "CancelTaskResponse"] {
            check(name, &response(|out| DIALECT.write_sent(out, &task, TaskDetail::default())));
        }
        let start = response(|out| {
            DIALECT.write_stream_start(out, &task, TaskDetail::default());
        });
        check("SendTaskStreamingResponse", &start);
    }
    let webhook = response(|out| DIALECT.write_webhook(out, "t-1", &samples::webhook(DIALECT)));
    check("SetTaskPushNotificationResponse", &webhook);
    check("GetTaskPushNotificationResponse", &webhook);
    let fault = DIALECT.fault(&Error::NoSuchTask("t-1".to_owned()));
    check("GetTaskResponse", &value(|out| DIALECT.write_fault(out, Some(&RpcId::number(1)), &fault)));
}

#[test]
fn pushes_are_tasks() {
    let task = samples::finished_task();
    let (_, completed) = samples::events().into_iter().find(|(name, _)| *name == "completed").unwrap();
    let body = value(|out| assert!(DIALECT.push_body(out, &task, task.seq, &completed).is_some()));
    check("Task", &body);
    assert_eq!(body["taskId"], body["id"]);
}

#[test]
fn cards_satisfy_it() {
    let (profile, cx) = cards::sample();
    check("AgentCard", &card::v0_1(&profile, &cx));
    check("AgentCard", &card::combined(&profile, &cx));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_task(task in strategies::task()) {
        check("SendTaskResponse", &response(|out| DIALECT.write_task(out, &task, TaskDetail::default())));
    }

    #[test]
    fn any_event(seq in 1..1000_u64, entry in strategies::entry()) {
        let ids = TaskIds { task: "t-1", context: "c-1" };
        let mut event = vec![];
        if let Some(frame) = DIALECT.write_event(&mut event, &ids, seq, &entry) {
            let event = response(|out| out.extend_from_slice(&event));
            check("SendTaskStreamingResponse", &event);
            prop_assert_eq!(event["result"]["final"].as_bool().unwrap_or_default(), frame.ends_stream);
        }
    }

    #[test]
    fn any_request(call in strategies::call(DIALECT)) {
        if let Some(request) = request(&call) {
            check(schema_of(&call), &request);
        }
    }
}
