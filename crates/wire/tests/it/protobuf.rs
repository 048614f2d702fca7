//! Protobuf against a second implementation, and against input that no good peer sends.

use nuncio_wire::protobuf::{self, DescriptorPool, ProtobufLimits};
use proptest::prelude::*;
use prost_reflect::{DynamicMessage, prost::Message as _};
use serde_json::{Value, json};

const FILES: [&str; 7] = [
    "lf/a2a/v1/a2a.proto",
    "a2a/v1/a2a.proto",
    "grpc/health/v1/health.proto",
    "grpc/reflection/v1/reflection.proto",
    "grpc/reflection/v1alpha/reflection.proto",
    "google/rpc/status.proto",
    "google/rpc/error_details.proto",
];

const LIMITS: ProtobufLimits = ProtobufLimits { max_depth: 64, max_json_bytes: 1 << 20 };

fn compile() -> protox::Compiler {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/proto");
    let mut compiler = protox::Compiler::new([folder]).unwrap();
    compiler.include_imports(true).include_source_info(false).open_files(FILES).unwrap();
    compiler
}

/// The message type in the second implementation.
fn other(name: &str) -> prost_reflect::MessageDescriptor {
    use std::sync::LazyLock;
    static POOL: LazyLock<prost_reflect::DescriptorPool> = LazyLock::new(|| compile().descriptor_pool());
    POOL.get_message_by_name(name).unwrap()
}

#[test]
fn descriptors_are_compiled_from_the_proto_files() {
    let compiled = compile().encode_file_descriptor_set();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/proto/descriptors.bin");
    if std::env::var_os("NUNCIO_WRITE_DESCRIPTORS").is_some() {
        std::fs::write(path, &compiled).unwrap();
    }
    let stored = std::fs::read(path).unwrap();
    assert!(stored == compiled, "proto/descriptors.bin is not compiled from proto/: see lf/a2a/v1/a2a.proto");
}

fn to_json(name: &str, bytes: &[u8]) -> Result<Value, String> {
    let json =
        protobuf::message(name).unwrap().read_json(bytes, LIMITS).map_err(|error| error.to_string())?;
    Ok(serde_json::from_str(json.get()).unwrap())
}

fn to_bytes(name: &str, json: &Value) -> Result<Vec<u8>, String> {
    let mut out = vec![];
    let json = json.to_string();
    let written = protobuf::message(name).unwrap().write_from_json(&mut out, json.as_bytes());
    written.map(|()| out).map_err(|error| error.to_string())
}

/// Both implementations read the same message from JSON, and ours reads back what it wrote.
#[track_caller]
fn check(name: &str, json: &Value) {
    let ours = to_bytes(name, json).unwrap();
    let theirs = DynamicMessage::deserialize(other(name), json).unwrap();
    let read = DynamicMessage::decode(other(name), &ours[..]).unwrap();
    assert_eq!(read, theirs, "{json}");
    assert_eq!(to_json(name, &theirs.encode_to_vec()).unwrap(), to_json(name, &ours).unwrap());
    assert_eq!(to_json(name, &ours).unwrap(), *json);
}

#[test]
fn messages_are_those_of_the_other_implementation() {
    let message = json!({
        "messageId": "m", "contextId": "c", "role": "ROLE_USER",
        "parts": [
            { "text": "" },
            { "text": "héllo \u{1F600} \" \\ \n" },
            { "raw": "AAECAw==", "filename": "a.bin", "mediaType": "application/octet-stream" },
            { "url": "https://x/y", "metadata": { "a": { "b": [1, 2.5, null, true, "x", [], {}] } } },
            { "data": null },
            { "data": [1, { "k": -3 }] },
            { "data": 9007199254740992_i64 },
            {},
        ],
        "metadata": { "": 0, "n": null },
        "extensions": ["urn:a", "urn:b"],
        "referenceTaskIds": ["t"],
    });
    check("lf.a2a.v1.Message", &message);
    let timestamps = [
        "2026-11-18T00:00:00Z",
        "1969-12-31T23:59:59.5Z",
        "2025-10-28T10:30:00.123Z",
        "0001-01-01T00:00:00Z",
    ];
    for timestamp in timestamps {
        let status =
            json!({ "state": "TASK_STATE_INPUT_REQUIRED", "message": message, "timestamp": timestamp });
        check("lf.a2a.v1.StreamResponse", &json!({ "statusUpdate": { "taskId": "t", "status": status } }));
    }
    let send =
        json!({ "message": message, "configuration": { "historyLength": 0, "returnImmediately": true } });
    check("lf.a2a.v1.SendMessageRequest", &send);
    let card = json!({
        "name": "a",
        "securitySchemes": { "bearer": { "httpAuthSecurityScheme": { "scheme": "Bearer" } }, "tls": { "mtlsSecurityScheme": {} } },
        "securityRequirements": [{ "schemes": { "bearer": { "list": [] }, "tls": { "list": ["x"] } } }],
        "capabilities": { "streaming": false },
    });
    let mut written = card.clone();
    // A list that is empty is absent.
    written["securityRequirements"][0]["schemes"]["bearer"] = json!({});
    let ours = to_bytes("lf.a2a.v1.AgentCard", &card).unwrap();
    assert_eq!(to_json("lf.a2a.v1.AgentCard", &ours).unwrap(), written);
    check("lf.a2a.v1.AgentCard", &written);
    let older = json!({ "message": { "messageId": "m", "content": [{ "data": { "data": { "a": 1 } } }] } });
    check("a2a.v1.SendMessageRequest", &older);
    check("google.rpc.ErrorInfo", &json!({ "reason": "R", "metadata": { "a": "b", "c": "" } }));
    check("grpc.reflection.v1.ExtensionNumberResponse", &json!({ "extensionNumber": [1, -1, 0] }));
}

#[test]
fn what_may_be_written_in_two_ways_is_read_in_both() {
    let name = "lf.a2a.v1.ListTasksRequest";
    let camel =
        json!({ "contextId": "c", "pageSize": 3, "status": "TASK_STATE_WORKING", "includeArtifacts": false });
    let snake = json!({ "context_id": "c", "page_size": "3", "status": 2, "include_artifacts": false, "unknown": [1] });
    assert_eq!(to_bytes(name, &camel), to_bytes(name, &snake));
    assert_eq!(
        to_bytes(name, &json!({ "pageSize": 3.0, "contextId": null, "status": null })),
        to_bytes(name, &json!({ "pageSize": 3 }))
    );
    assert_eq!(
        to_bytes("lf.a2a.v1.Part", &json!({ "raw": "_-8" })),
        to_bytes("lf.a2a.v1.Part", &json!({ "raw": "/+8=" }))
    );
}

/// Elements that lie apart, a scalar and a message that occur twice, alternatives of one group, packed numbers.
#[test]
fn fields_that_occur_more_than_once_are_merged() {
    let join = |name: &str, parts: &[Value]| {
        let bytes: Vec<u8> = parts.iter().flat_map(|part| to_bytes(name, part).unwrap()).collect();
        let theirs = DynamicMessage::decode(other(name), &bytes[..]).unwrap();
        assert_eq!(to_json(name, &bytes).unwrap(), to_json(name, &theirs.encode_to_vec()).unwrap());
        to_json(name, &bytes).unwrap()
    };
    let task = join(
        "lf.a2a.v1.Task",
        &[
            json!({ "id": "1", "history": [{ "messageId": "a" }], "status": { "state": "TASK_STATE_WORKING" }, "metadata": { "a": 1, "b": 1 } }),
            json!({ "artifacts": [{ "name": "x" }] }),
            json!({ "id": "2", "history": [{ "messageId": "b" }], "status": { "timestamp": "2026-01-01T00:00:00Z" }, "metadata": { "b": 2 } }),
        ],
    );
    assert_eq!(
        task,
        json!({
            "id": "2", "artifacts": [{ "name": "x" }], "history": [{ "messageId": "a" }, { "messageId": "b" }],
            "status": { "state": "TASK_STATE_WORKING", "timestamp": "2026-01-01T00:00:00Z" }, "metadata": { "a": 1, "b": 2 },
        })
    );
    let part = join("lf.a2a.v1.Part", &[json!({ "text": "t" }), json!({ "url": "u", "filename": "f" })]);
    assert_eq!(part, json!({ "url": "u", "filename": "f" }));
    let packed = [0x12, 3, 1, 0x96, 1];
    assert_eq!(
        to_json("grpc.reflection.v1.ExtensionNumberResponse", &packed).unwrap(),
        json!({ "extensionNumber": [1, 150] })
    );
}

#[test]
fn what_is_malformed_is_refused_with_its_place() {
    let refused = |name, json| to_bytes(name, &json).unwrap_err();
    assert!(refused("lf.a2a.v1.Part", json!({ "text": 1 })).contains("a text for text"));
    assert!(refused("lf.a2a.v1.Part", json!({ "raw": "%" })).contains("raw: it is not base64"));
    assert!(
        refused("lf.a2a.v1.Message", json!({ "role": "ROLE_X" })).contains("role: there is no \"ROLE_X\"")
    );
    assert!(refused("lf.a2a.v1.Message", json!({ "parts": 3 })).contains("for parts"));
    assert!(refused("lf.a2a.v1.Message", json!({ "metadata": [] })).contains("an object"));
    assert!(refused("lf.a2a.v1.TaskStatus", json!({ "timestamp": "soon" })).contains("no time of ISO 8601"));
    assert!(refused("lf.a2a.v1.Task", json!(null)).contains("expected an object"));
    let read = |name, bytes: &[u8]| to_json(name, bytes).unwrap_err();
    assert_eq!(read("lf.a2a.v1.Part", &[0x0a, 1, 0xff]), "text: the text is not UTF-8");
    assert_eq!(read("lf.a2a.v1.Part", &[0x08, 1]), "text: a value of another type");
    assert_eq!(
        read("google.protobuf.Value", &[0x11, 0, 0, 0, 0, 0, 0, 0xf0, 0x7f]),
        "a value is no number of JSON (it is infinite, or not a number)"
    );
    let far = to_bytes("lf.a2a.v1.TaskStatus", &json!({})).unwrap();
    assert_eq!(to_json("lf.a2a.v1.TaskStatus", &far).unwrap(), json!({}));
    assert!(
        read("google.protobuf.Timestamp", &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f])
            .contains("out of range")
    );
}

#[test]
fn nesting_and_size_are_bounded() {
    let mut deep = json!(1);
    for _ in 0..100 {
        deep = json!([deep]);
    }
    let bytes = to_bytes("lf.a2a.v1.Part", &json!({ "data": deep })).unwrap();
    assert_eq!(to_json("lf.a2a.v1.Part", &bytes).unwrap_err(), "the message is nested too deeply");
    let zeros = to_bytes("lf.a2a.v1.Part", &json!({ "text": "\0".repeat(1 << 19) })).unwrap();
    assert_eq!(to_json("lf.a2a.v1.Part", &zeros).unwrap_err(), "the message is too large as JSON");
    // Two bytes each: many small ones are no way around it.
    let many = [0x2a, 0].repeat(1 << 19);
    assert_eq!(to_json("lf.a2a.v1.Message", &many).unwrap_err(), "the message is too large as JSON");
}

#[test]
fn services_and_files_are_found_by_name() {
    let pool = DescriptorPool::get();
    let service = pool.service("lf.a2a.v1.A2AService").unwrap();
    assert_eq!(service.methods.len(), 11);
    let method = service.methods.iter().find(|method| method.name == "SubscribeToTask").unwrap();
    assert!(method.streams);
    assert_eq!(
        (method.input().name(), method.output().name()),
        ("lf.a2a.v1.SubscribeToTaskRequest", "lf.a2a.v1.StreamResponse")
    );
    let file = pool.file_of_symbol("lf.a2a.v1.A2AService.GetTask").unwrap();
    assert_eq!(file, "lf/a2a/v1/a2a.proto");
    // With what it imports, and nothing twice.
    assert_eq!(pool.file(file).unwrap().len(), 4);
    assert_eq!(
        pool.file_of_symbol("grpc.health.v1.HealthCheckResponse.ServingStatus"),
        Some("grpc/health/v1/health.proto")
    );
    assert!(pool.file("nothing.proto").is_none() && pool.file_of_symbol("no.Such").is_none());
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-1_000_000_i64..1_000_000).prop_map(Value::from),
        any::<f64>()
            .prop_filter("finite", |number| number.is_finite() && number.fract() != 0.0)
            .prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map(".{0,4}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_json_value_is_read_back(value in any_json()) {
        let part = json!({ "data": value, "metadata": { "v": value } });
        let bytes = to_bytes("lf.a2a.v1.Part", &part).unwrap();
        let theirs = DynamicMessage::deserialize(other("lf.a2a.v1.Part"), &part).unwrap();
        prop_assert_eq!(DynamicMessage::decode(other("lf.a2a.v1.Part"), &bytes[..]).unwrap(), theirs);
        prop_assert_eq!(to_json("lf.a2a.v1.Part", &bytes).unwrap(), part);
    }

    #[test]
    fn no_bytes_break_it(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0..200_usize) {
        for name in ["lf.a2a.v1.SendMessageRequest", "a2a.v1.SendMessageRequest", "lf.a2a.v1.AgentCard", "google.protobuf.Struct"] {
            let _ = to_json(name, &bytes);
        }
        let valid = to_bytes("lf.a2a.v1.Message", &json!({ "messageId": "m", "parts": [{ "data": { "a": [1, "x"] } }], "metadata": { "k": 1 } })).unwrap();
        let mut changed = valid.clone();
        for (at, byte) in bytes.iter().enumerate().take(3) {
            changed[(cut * 7 + at) % valid.len()] = *byte;
        }
        let _ = to_json("lf.a2a.v1.Message", &changed);
        let _ = to_json("lf.a2a.v1.Message", &valid[..cut % valid.len()]);
    }
}
