//! What the wire costs a request: `cargo bench -p nuncio-wire`.
//!
//! Times of one thread, best of several rounds, so that a busy machine shows in the spread and not in the figure.

#![allow(clippy::print_stdout, reason = "the figures are the output")]

use std::{hint::black_box, time::Instant};

use nuncio_engine::{
    clock::Timestamp,
    content::{Message, Part, Role},
    event::{ArtifactChunk, Entry, Event, Status},
    task::{Origin, State, Task, TaskId},
};
use nuncio_wire::{
    a2a::{Dialect, GrpcMethod, TaskDetail, TaskIds},
    grpc,
    jsonrpc::{self, RpcId},
    protobuf::ProtobufLimits,
    sse,
};

const BODY: &[u8] = br#"{"jsonrpc":"2.0","id":"8f1b2c3d","method":"SendMessage","params":{"message":{"messageId":"0c5e7a52-9c5b-4f0e-8a63-2f6d6f0b8f11","role":"ROLE_USER","parts":[{"text":"say it again"}]},"configuration":{"historyLength":10}}}"#;

fn main() {
    let chunk = ArtifactChunk {
        id: "echo".to_owned(),
        index: 0,
        parts: vec![Part::text("say it again")],
        append: false,
        last: true,
        name: None,
        description: None,
        metadata: None,
        extensions: vec![],
    };
    let log = [
        Event::Message(Message::text("0c5e7a52-9c5b-4f0e-8a63-2f6d6f0b8f11", Role::User, "say it again")),
        Event::Artifact(chunk),
        Event::Status(Status { state: State::Completed, message: None, by: None }),
    ];
    let log = log.map(|event| Entry(Timestamp(1_731_700_000_123), event));
    let task = Task::new(Origin {
        id: TaskId::parse("01920000-0000-7000-8000-000000000001").unwrap_or_else(|| unreachable!()),
        client_id: None,
        context: "ctx-01920000-0000-7000-8000-000000000001".to_owned(),
        agent: "echo".to_owned(),
        owner: "local".to_owned(),
        dialect: Dialect::V1.name().to_owned(),
        metadata: None,
        trace: None,
        accepts_reply: false,
    })
    .fold(&log);
    let ids = TaskIds { task: "01920000-0000-7000-8000-000000000001", context: &task.origin.context };
    let id = RpcId::string("8f1b2c3d");

    let mut out = Vec::with_capacity(4096);
    measure("read SendMessage", || {
        let request = jsonrpc::parse_request(black_box(BODY), 64).unwrap_or_else(|_| unreachable!());
        black_box(Dialect::V1.read_call(&request.method, request.params)).is_ok()
    });
    measure("write its task", || {
        out.clear();
        jsonrpc::write_result(&mut out, &id, |out| {
            Dialect::V1.write_sent(out, black_box(&task), TaskDetail::default());
        });
        !out.is_empty()
    });
    measure("write an artifact frame", || {
        out.clear();
        sse::write_numbered_event(&mut out, Some(2), |out| {
            jsonrpc::write_result(out, &id, |out| {
                Dialect::V1.write_event(out, black_box(&ids), 2, &log[1]);
            });
        });
        !out.is_empty()
    });
    measure_grpc(&task, &ids, &log[1]);
}

/// The same over gRPC, where JSON is between the engine's types and the message.
fn measure_grpc(task: &Task, ids: &TaskIds<'_>, chunk: &Entry) {
    let limits = ProtobufLimits { max_depth: 64, max_json_bytes: 1 << 20 };
    let find = |path| GrpcMethod::find(path).unwrap_or_else(|| unreachable!());
    let send = find("/lf.a2a.v1.A2AService/SendMessage");
    let stream = find("/lf.a2a.v1.A2AService/SendStreamingMessage");
    let mut message = Vec::new();
    let body = jsonrpc::parse_request(BODY, 64).unwrap_or_else(|_| unreachable!());
    let params = body.params.map_or("", |params| params.get());
    assert!(send.write_request(&mut message, params.as_bytes()).is_ok());
    measure("gRPC: read SendMessage", || {
        let json = send.read_request(black_box(&message), limits).unwrap_or_else(|_| unreachable!());
        black_box(send.read_call(&json)).is_ok()
    });
    let mut out = Vec::with_capacity(4096);
    measure("gRPC: write its task", || {
        out.clear();
        grpc::write_message(&mut out, |out| send.write_sent(out, black_box(task), TaskDetail::default()))
            .is_ok()
    });
    measure("gRPC: … by its JSON", || {
        out.clear();
        let mut json = Vec::with_capacity(1024);
        Dialect::V1.write_sent(&mut json, black_box(task), TaskDetail::default());
        grpc::write_message(&mut out, |out| send.write_result(out, json, None)).is_ok()
    });
    measure("gRPC: write an artifact", || {
        out.clear();
        let mut json = Vec::with_capacity(512);
        Dialect::V1.write_event(&mut json, black_box(ids), 2, chunk);
        grpc::write_message(&mut out, |out| stream.write_result(out, json, Some(2))).is_ok()
    });
}

fn measure(name: &str, mut once: impl FnMut() -> bool) {
    const TIMES: u32 = 20_000;
    let rounds = (0..15).map(|_| {
        let start = Instant::now();
        assert!((0..TIMES).all(|_| once()), "{name}");
        start.elapsed() / TIMES
    });
    println!("{name:<24} {:>8} ns", rounds.min().unwrap_or_default().as_nanos());
}
