//! gRPC on the same port: calls, streams that continue, deadlines, refusals as statuses, health and reflection.

use std::time::Duration;

use bytes::Bytes;
use nuncio_wire::{
    a2a::card::CURSOR_EXTENSION,
    grpc::{self, GrpcCode},
};
use serde_json::{Value, json};

use crate::{
    grpc_client::{self, GrpcCall, GrpcClient},
    site::{Site, message, unique},
    socket::{post, within},
};

const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";

fn send(text: &str) -> Value {
    json!({ "message": message(text) })
}

async fn client(site: &Site) -> GrpcClient {
    GrpcClient::connect(site.address).await
}

/// The cursor that an event carries.
fn cursor(event: &Value) -> u64 {
    let payload = event.as_object().unwrap().values().next().unwrap();
    payload["metadata"][CURSOR_EXTENSION].as_str().unwrap().parse().unwrap()
}

async fn rest_of(call: &mut GrpcCall) -> Vec<Value> {
    let mut events = vec![];
    while let Some(event) = call.next().await {
        events.push(event);
    }
    events
}

#[tokio::test]
async fn a_message_is_sent_and_its_task_is_read_in_both_generations() {
    let site = Site::new().await;
    let client = client(&site).await;
    let task = client.a2a("SendMessage", &send("hello")).await.result()["task"].clone();
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
    let read = client.a2a("GetTask", &json!({ "id": task["id"] })).await.result();
    assert_eq!(read["artifacts"], task["artifacts"]);
    // The same task by its name in 0.3, and over JSON-RPC.
    let name = format!("tasks/{}", task["id"].as_str().unwrap());
    let older = client.call("/a2a.v1.A2AService/GetTask", &[], &json!({ "name": name })).await.result();
    assert_eq!((&older["id"], &older["status"]["state"]), (&task["id"], &json!("TASK_STATE_COMPLETED")));
    let over_rpc = site.result("1.0", "GetTask", json!({ "id": task["id"] })).await;
    assert_eq!(over_rpc["artifacts"], task["artifacts"]);
    let listed = client.a2a("ListTasks", &json!({ "pageSize": 1 })).await.result();
    assert_eq!((&listed["totalSize"], &listed["tasks"][0]["id"]), (&json!(1), &task["id"]));
}

/// From every cursor the rest, in the same bytes; also after the end.
#[tokio::test]
async fn a_stream_continues_after_any_cursor() {
    let site = Site::new().await;
    let client = client(&site).await;
    let mut stream = client.open("SendStreamingMessage", &[], &send("chunks 4")).await;
    assert_eq!(stream.header("content-type"), Some("application/grpc"));
    let all = rest_of(&mut stream).await;
    assert_eq!(stream.status().await.code, GrpcCode::Ok);
    assert!(all.len() >= 6, "{all:?}");
    assert!(all.is_sorted_by_key(cursor));
    let id = json!({ "id": all[0]["task"]["id"] });
    for (index, event) in all.iter().enumerate() {
        let after = cursor(event).to_string();
        let mut stream = client.open("SubscribeToTask", &[("last-event-id", &after)], &id).await;
        assert_eq!(rest_of(&mut stream).await, all[index + 1..], "after {after}");
        assert_eq!(stream.status().await.code, GrpcCode::Ok);
    }
    let refused = client.a2a("SubscribeToTask", &id).await;
    assert_eq!(refused.refusal(), (GrpcCode::FailedPrecondition, "UNSUPPORTED_OPERATION"));
    let far = client.open("SubscribeToTask", &[("last-event-id", "999")], &id).await.answer().await;
    assert_eq!(far.refusal(), (GrpcCode::InvalidArgument, "INVALID_PARAMS"));
}

#[tokio::test]
async fn a_tenant_names_an_agent_and_at_its_address_only_its_tasks_exist() {
    let site = Site::new().await;
    let client = client(&site).await;
    let mut sent = send("hello");
    sent["tenant"] = "actor".into();
    let task = client.a2a("SendMessage", &sent).await.result()["task"]["id"].clone();
    for tenant in [json!("actor"), json!("")] {
        client.a2a("GetTask", &json!({ "id": task, "tenant": tenant })).await.result();
    }
    let elsewhere = client.a2a("GetTask", &json!({ "id": task, "tenant": "unpushed" })).await;
    assert_eq!(elsewhere.refusal(), (GrpcCode::NotFound, "TASK_NOT_FOUND"));
    let missing = client.a2a("GetTask", &json!({ "id": task, "tenant": "nobody" })).await;
    assert_eq!(missing.status.code, GrpcCode::NotFound);
    assert!(missing.status.message.contains("nobody"), "{:?}", missing.status);
}

/// 0.3 has no other way to the card for a client of gRPC alone.
#[tokio::test]
async fn in_0_3_the_card_is_read_over_grpc() {
    let path = "/a2a.v1.A2AService/GetAgentCard";
    let site = Site::new().await;
    let card = client(&site).await.call(path, &[], &json!({})).await.result();
    assert_eq!((&card["name"], &card["protocolVersion"]), (&json!("actor"), &json!("0.3.0")));
    let private = Site::with(|setup| setup.server.private_cards = true).await;
    let refused = client(&private).await.call(path, &[], &json!({})).await;
    assert_eq!(refused.status.code, GrpcCode::Unimplemented);
}

#[tokio::test]
async fn errors_are_statuses_with_details() {
    let site = Site::new().await;
    let client = client(&site).await;
    let missing = client.a2a("GetTask", &json!({ "id": "nobody" })).await;
    assert_eq!(missing.refusal(), (GrpcCode::NotFound, "TASK_NOT_FOUND"));
    assert_eq!((missing.http_status, missing.status.message.as_str()), (200, "Task not found: nobody"));
    assert_eq!(missing.status.details[0]["metadata"]["taskId"], "nobody");
    let incomplete = client.a2a("SendMessage", &json!({})).await;
    assert_eq!(incomplete.refusal(), (GrpcCode::InvalidArgument, "INVALID_PARAMS"));
    assert_eq!(incomplete.status.details[1]["fieldViolations"][0]["field"], "message");
    // A stream that cannot begin is a call that failed.
    let mut unsent = send("x");
    unsent["message"]["taskId"] = "nobody".into();
    let refused = client.a2a("SendStreamingMessage", &unsent).await;
    assert_eq!((refused.refusal(), refused.messages.len()), ((GrpcCode::NotFound, "TASK_NOT_FOUND"), 0));
}

#[tokio::test]
async fn the_version_is_that_of_the_service() {
    let site = Site::new().await;
    let client = client(&site).await;
    let path = "/lf.a2a.v1.A2AService/ListTasks";
    for version in ["1.0", "1.0.1"] {
        client.call(path, &[("a2a-version", version)], &json!({})).await.result();
    }
    for version in ["0.3", "2.0", "x"] {
        let refused = client.call(path, &[("a2a-version", version)], &json!({})).await;
        assert_eq!(refused.refusal(), (GrpcCode::FailedPrecondition, "VERSION_NOT_SUPPORTED"), "{version}");
    }
}

/// A deadline ends the call; the task goes on.
#[tokio::test]
async fn a_deadline_ends_a_call_and_not_its_task() {
    let site = Site::new().await;
    let client = client(&site).await;
    let path = "/lf.a2a.v1.A2AService/SendMessage";
    let late = client.call(path, &[("grpc-timeout", "200m")], &send("wait")).await;
    assert_eq!(late.status.code, GrpcCode::DeadlineExceeded);
    let listed = client.a2a("ListTasks", &json!({})).await.result();
    assert_eq!(listed["tasks"][0]["status"]["state"], "TASK_STATE_WORKING");
    let metadata = [("grpc-timeout", "200m")];
    let mut stream = client.open("SendStreamingMessage", &metadata, &send("wait")).await;
    let events = rest_of(&mut stream).await;
    assert!(!events.is_empty());
    assert_eq!(stream.status().await.code, GrpcCode::DeadlineExceeded);
    let task = json!({ "id": events[0]["task"]["id"] });
    let read = client.a2a("GetTask", &task).await.result();
    assert_eq!(read["status"]["state"], "TASK_STATE_WORKING");
    let wrong = client.call(path, &[("grpc-timeout", "soon")], &send("x")).await;
    assert_eq!(wrong.status.code, GrpcCode::InvalidArgument);
}

#[tokio::test]
async fn a_client_that_goes_away_cancels_no_task() {
    let site = Site::new().await;
    let gone = client(&site).await;
    let mut stream = gone.open("SendStreamingMessage", &[], &send("wait")).await;
    let task = stream.next().await.unwrap()["task"]["id"].as_str().unwrap().to_owned();
    site.until_state(&task, "WORKING").await;
    drop((stream, gone));
    let client = client(&site).await;
    let read = client.a2a("GetTask", &json!({ "id": task })).await.result();
    assert_eq!(read["status"]["state"], "TASK_STATE_WORKING");
    client.a2a("CancelTask", &json!({ "id": task })).await.result();
}

#[tokio::test]
async fn what_is_no_request_of_grpc_is_refused() {
    let site = Site::with(|setup| setup.server.limits.max_body_bytes = 64 * 1024).await;
    let client = client(&site).await;
    let path = "/lf.a2a.v1.A2AService/GetTask";
    let raw = async |metadata: &[(&str, &str)], body: &[u8]| {
        client.begin(path, metadata, body.to_vec(), true).await.answer().await
    };
    for (body, code) in [
        (&b""[..], GrpcCode::Internal),
        (&[0, 0, 0, 0, 9, 1], GrpcCode::Internal),
        (&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0], GrpcCode::Internal),
        (&[1, 0, 0, 0, 0], GrpcCode::Unimplemented),
        (&[0, 0, 0, 0, 2, 0x12, 9], GrpcCode::InvalidArgument),
        (&[0, 0, 0, 0, 3, 0x12, 1, 0xff], GrpcCode::InvalidArgument),
        (&[0, 0, 0, 0, 0], GrpcCode::InvalidArgument),
        (&[7; 65 * 1024], GrpcCode::ResourceExhausted),
    ] {
        let refused = raw(&[], body).await;
        assert_eq!(refused.status.code, code, "{:?}", refused.status);
        assert!(!refused.status.message.is_empty());
    }
    for content_type in ["application/grpc-web", "application/grpc+json"] {
        assert_eq!(raw(&[("content-type", content_type)], b"").await.http_status, 415);
    }
    let unknown = client.begin("/lf.a2a.v1.A2AService/DropTables", &[], vec![], true).await.answer().await;
    assert_eq!(unknown.status.code, GrpcCode::Unimplemented);
    // Deeper than JSON may be.
    let mut deep = json!(1);
    for _ in 0..100 {
        deep = json!([deep]);
    }
    let mut sent = send("x");
    sent["message"]["parts"] = json!([{ "data": deep }]);
    let refused = client.a2a("SendMessage", &sent).await;
    assert_eq!(refused.status.code, GrpcCode::InvalidArgument);
    assert!(refused.status.message.contains("nested too deeply"), "{:?}", refused.status);
    // Over HTTP/1 there are no trailers.
    let answer = site.send(&post(path, &[("content-type", "application/grpc")], "")).await;
    assert_eq!(answer.status, 505);
    // The connection and the server are as they were.
    client.a2a("SendMessage", &send("hello")).await.result();
}

#[tokio::test]
async fn refusals_before_the_binding_are_statuses_too() {
    let site = Site::new().await;
    let client = client(&site).await;
    let path = "/lf.a2a.v1.A2AService/ListTasks";
    let body = grpc_client::message(path, &json!({})).unwrap();
    let refused = client.begin(path, &[("origin", "http://evil.example")], body, true).await.answer().await;
    assert_eq!((refused.http_status, refused.status.code), (200, GrpcCode::PermissionDenied));
    let crowded = Site::with(|setup| setup.server.limits.max_streams = 1).await;
    let client = GrpcClient::connect(crowded.address).await;
    let mut first = client.open("SendStreamingMessage", &[], &send("wait")).await;
    first.next().await.unwrap();
    let second = client.a2a("SendStreamingMessage", &send("wait")).await;
    assert_eq!(second.refusal(), (GrpcCode::Unavailable, "UNAVAILABLE"), "{:?}", second.status);
    assert_eq!(crowded.total().await, 1);
}

#[tokio::test]
async fn extensions_and_keys_are_metadata() {
    let site = Site::new().await;
    let client = client(&site).await;
    let key = unique("key");
    let metadata = [("idempotency-key", key.as_str()), ("a2a-extensions", CURSOR_EXTENSION)];
    let path = "/lf.a2a.v1.A2AService/SendMessage";
    let sent = send("hello");
    let first = client.call(path, &metadata, &sent).await;
    assert_eq!(first.headers["a2a-extensions"], CURSOR_EXTENSION);
    let (first, second) = (first.result(), client.call(path, &metadata, &sent).await.result());
    assert_eq!(first["task"]["id"], second["task"]["id"]);
    assert_eq!(site.total().await, 1);
}

#[tokio::test]
async fn a_stream_ends_with_a_status_when_the_server_stops() {
    let site = Site::new().await;
    let client = client(&site).await;
    let mut stream = client.open("SendStreamingMessage", &[], &send("wait")).await;
    let first = stream.next().await.unwrap();
    assert!(cursor(&first) >= 1);
    let stopping = site.begin_stop();
    rest_of(&mut stream).await;
    let status = stream.status().await;
    assert_eq!(status.code, GrpcCode::Unavailable);
    assert!(status.message.contains("last-event-id"), "{status:?}");
    stopping.finish().await;
}

#[tokio::test]
async fn health_is_checked_and_watched() {
    let site = Site::new().await;
    let client = client(&site).await;
    let check = async |service: &str| {
        client.call("/grpc.health.v1.Health/Check", &[], &json!({ "service": service })).await
    };
    for service in ["", "lf.a2a.v1.A2AService", "a2a.v1.A2AService"] {
        assert_eq!(check(service).await.result(), json!({ "status": "SERVING" }));
    }
    assert_eq!(check("no.Such").await.status.code, GrpcCode::NotFound);
    let path = "/grpc.health.v1.Health/Watch";
    let watch = async |service: &str| {
        let body = grpc_client::message(path, &json!({ "service": service })).unwrap();
        client.begin(path, &[], body, true).await
    };
    let mut unknown = watch("no.Such").await;
    assert_eq!(unknown.next().await.unwrap(), json!({ "status": "SERVICE_UNKNOWN" }));
    let mut watched = watch("").await;
    assert_eq!(watched.next().await.unwrap(), json!({ "status": "SERVING" }));
    let stopping = site.begin_stop();
    assert_eq!(watched.next().await.unwrap(), json!({ "status": "NOT_SERVING" }));
    assert_eq!(watched.next().await, None);
    assert_eq!(unknown.next().await, None);
    drop((unknown, watched));
    stopping.finish().await;
}

#[tokio::test]
async fn services_describe_themselves() {
    let site = Site::new().await;
    let client = client(&site).await;
    for path in [REFLECTION, &REFLECTION.replace(".v1.", ".v1alpha.")] {
        let ask = |request: Value| grpc_client::message(path, &request).unwrap();
        let mut call = client.begin(path, &[], ask(json!({ "listServices": "" })), false).await;
        let listed = call.next().await.unwrap();
        let names: Vec<_> = listed["listServicesResponse"]["service"]
            .as_array()
            .unwrap()
            .iter()
            .map(|service| service["name"].as_str().unwrap())
            .collect();
        assert!(
            names.contains(&"lf.a2a.v1.A2AService") && names.contains(&"grpc.health.v1.Health"),
            "{names:?}"
        );
        for (request, files) in [
            (json!({ "fileContainingSymbol": "lf.a2a.v1.A2AService" }), 4),
            (json!({ "fileByFilename": "google/protobuf/struct.proto" }), 1),
        ] {
            call.sending.send_data(Bytes::from(ask(request.clone())), false).unwrap();
            let answer = call.next().await.unwrap();
            assert_eq!(answer["originalRequest"], request);
            assert_eq!(
                answer["fileDescriptorResponse"]["fileDescriptorProto"].as_array().unwrap().len(),
                files
            );
        }
        call.sending.send_data(Bytes::from(ask(json!({ "fileContainingSymbol": "no.Such" }))), true).unwrap();
        assert_eq!(call.next().await.unwrap()["errorResponse"]["errorCode"], 5);
        assert_eq!(call.next().await, None);
        assert_eq!(call.status().await.code, GrpcCode::Ok);
    }
}

/// A stream of requests that goes quiet, or does not end, holds nothing for long.
#[tokio::test]
async fn a_reflection_stream_is_bounded() {
    let site = Site::with(|setup| setup.server.limits.body_timeout = Duration::from_millis(200)).await;
    let client = client(&site).await;
    let request = grpc_client::message(REFLECTION, &json!({ "listServices": "" })).unwrap();
    let mut quiet = client.begin(REFLECTION, &[], request.clone(), false).await;
    quiet.next().await.unwrap();
    assert_eq!(quiet.next().await, None);
    assert_eq!(quiet.status().await.code, GrpcCode::DeadlineExceeded);
    let many = client.begin(REFLECTION, &[], request.repeat(101), true).await.answer().await;
    assert_eq!((many.messages.len(), many.status.code), (100, GrpcCode::ResourceExhausted));
    let mut large = vec![];
    grpc::write_message(&mut large, |out| {
        out.resize(out.len() + 5000, 0);
        Ok::<_, ()>(())
    })
    .unwrap();
    let refused = client.begin(REFLECTION, &[], large, true).await.answer().await;
    assert_eq!(refused.status.code, GrpcCode::ResourceExhausted);
}

/// They need no token: without a limit of their own anyone could hold as many as there is memory for.
#[tokio::test]
async fn streams_that_need_no_caller_are_few() {
    let site = Site::new().await;
    let client = client(&site).await;
    let path = "/grpc.health.v1.Health/Watch";
    let body = grpc_client::message(path, &json!({})).unwrap();
    let mut watching = vec![];
    for _ in 0..64 {
        let mut watch = client.begin(path, &[], body.clone(), true).await;
        watch.next().await.unwrap();
        watching.push(watch);
    }
    for path in [path, REFLECTION] {
        let refused = client.begin(path, &[], body.clone(), true).await.answer().await;
        assert_eq!(refused.status.code, GrpcCode::ResourceExhausted, "{path}");
    }
    client.call("/grpc.health.v1.Health/Check", &[], &json!({})).await.result();
    drop(watching);
    within("a free stream", async {
        while client.begin(path, &[], body.clone(), true).await.next().await.is_none() {}
    })
    .await;
}

/// One that does not read its stream holds little, and others are served meanwhile.
#[tokio::test]
async fn a_client_that_does_not_read_holds_up_no_other() {
    let site = Site::new().await;
    let slow = client(&site).await;
    let mut unread = vec![];
    for _ in 0..8 {
        unread.push(slow.open("SendStreamingMessage", &[], &send("chunks 2000")).await);
    }
    let client = client(&site).await;
    for _ in 0..20 {
        within("another client's call", client.a2a("SendMessage", &send("hello"))).await.result();
    }
    drop(unread);
}
