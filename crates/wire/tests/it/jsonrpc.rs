//! The framing: what is a request, and what is said to what is none.

use nuncio_wire::jsonrpc::{self, RpcId, RpcRequestErrorKind, parse_request, parse_response};
use proptest::prelude::*;
use serde_json::json;

use crate::text;

fn refused(body: &[u8]) -> (RpcRequestErrorKind, Option<String>, String) {
    let error = parse_request(body, 32).expect_err(&String::from_utf8_lossy(body));
    (error.kind, error.id.map(|id| id.as_json().to_owned()), error.message)
}

#[test]
fn what_is_not_json_is_a_parse_error() {
    for body in [
        &b""[..],
        b" ",
        b"{",
        b"nonsense",
        br#"{"jsonrpc":"2.0","id":1,"method":"a""#,
        br#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":}}"#,
        br#"{"jsonrpc":"2.0","id":1,"method":"a"} trailing"#,
        br#"{"jsonrpc":"2.0","id":01,"method":"a"}"#,
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\",\"params\":{\"text\":\"\xc3\x28\"}}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"new\nline\"}",
    ] {
        let (kind, id, message) = refused(body);
        assert_eq!((kind, id), (RpcRequestErrorKind::Parse, None), "{message}");
        assert_eq!(parse_request(body, 32).unwrap_err().code(), -32700);
    }
}

#[test]
fn json_that_is_no_request_is_invalid() {
    for (body, id, word) in [
        (r#"[{"jsonrpc":"2.0","id":1,"method":"a"}]"#, None, "batches"),
        ("[]", None, "batches"),
        ("7", None, "object"),
        ("null", None, "object"),
        (r#""text""#, None, "object"),
        ("{}", None, "jsonrpc"),
        (r#"{"id":1,"method":"a"}"#, Some("1"), "jsonrpc"),
        (r#"{"jsonrpc":"1.0","id":1,"method":"a"}"#, Some("1"), "jsonrpc"),
        (r#"{"jsonrpc":2.0,"id":1,"method":"a"}"#, Some("1"), "jsonrpc"),
        (r#"{"jsonrpc":"2.0","id":"x"}"#, Some("\"x\""), "method"),
        (r#"{"jsonrpc":"2.0","id":"x","method":5}"#, Some("\"x\""), "method"),
        (r#"{"jsonrpc":"2.0","id":"x","method":null}"#, Some("\"x\""), "method"),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"a"}"#, None, "id"),
        (r#"{"jsonrpc":"2.0","id":1e3,"method":"a"}"#, None, "id"),
        (r#"{"jsonrpc":"2.0","id":{"a":1},"method":"a"}"#, None, "id"),
        (r#"{"jsonrpc":"2.0","id":[1],"method":"a"}"#, None, "id"),
        (r#"{"jsonrpc":"2.0","id":true,"method":"a"}"#, None, "id"),
    ] {
        let (kind, given, message) = refused(body.as_bytes());
        assert_eq!((kind, given.as_deref()), (RpcRequestErrorKind::Invalid, id), "{body}");
        assert!(message.contains(word), "{body}: {message}");
        assert_eq!(parse_request(body.as_bytes(), 32).unwrap_err().code(), -32600);
    }
    let long = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"a"}}"#, "x".repeat(RpcId::MAX_LEN));
    assert_eq!(refused(long.as_bytes()).0, RpcRequestErrorKind::Invalid);
}

#[test]
fn requests_are_taken_apart() {
    let body = br#" {"params" : {"a":[1 ,2]}, "jsonrpc":"2.0","id": 7 ,"method":"tasks\/get","extra":{}} "#;
    let request = parse_request(body, 32).unwrap();
    assert_eq!(request.id, Some(RpcId::number(7)));
    assert_eq!(request.method, "tasks/get");
    assert_eq!(request.params.unwrap().get(), r#"{"a":[1 ,2]}"#);

    let notification = parse_request(br#"{"jsonrpc":"2.0","method":"a","params":null}"#, 32).unwrap();
    assert!(notification.id.is_none() && notification.params.is_none());

    let twice = parse_request(br#"{"jsonrpc":"2.0","method":"a","id":1,"id":2,"method":"b"}"#, 32).unwrap();
    assert_eq!((twice.id, &*twice.method), (Some(RpcId::number(2)), "b"));
}

#[test]
fn ids_go_back_as_they_came() {
    for id in ["0", "-0", "-5", "123456789012345678901234567890", r#""""#, r#""\u00e9\/""#, "\"é🦀\"", "null"]
    {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"a"}}"#);
        let given = parse_request(body.as_bytes(), 32).unwrap().id.unwrap();
        let answer = text(|out| jsonrpc::write_result(out, &given, |out| out.extend_from_slice(b"{}")));
        assert_eq!(answer, format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
    }
}

#[test]
fn deep_nesting_is_refused_before_anything_is_built() {
    let nested = |depth: usize| {
        // The request and its params are two levels.
        let (open, close) = ("[".repeat(depth - 2), "]".repeat(depth - 2));
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"a","params":{{"[[[\"[":{open}{close}}}}}"#)
    };
    assert!(parse_request(nested(32).as_bytes(), 32).is_ok());
    let (kind, id, message) = refused(nested(33).as_bytes());
    assert_eq!((kind, id.as_deref()), (RpcRequestErrorKind::Invalid, Some("1")));
    assert!(message.contains("32"), "{message}");
    // Far deeper than any stack.
    assert_eq!(refused(nested(1_000_000).as_bytes()).0, RpcRequestErrorKind::Invalid);
}

#[test]
fn errors_are_written() {
    let data = json!({ "field": "id" });
    let error = text(|out| {
        jsonrpc::write_error(out, Some(&RpcId::string("a\"b")), -32602, "bad \"id\"", Some(&data));
    });
    assert_eq!(
        error,
        r#"{"jsonrpc":"2.0","id":"a\"b","error":{"code":-32602,"message":"bad \"id\"","data":{"field":"id"}}}"#
    );
    let error = text(|out| jsonrpc::write_error(out, None, -32700, "no", None));
    assert_eq!(error, r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}"#);
}

#[test]
fn responses_are_taken_apart() {
    let response = parse_response(br#"{"jsonrpc":"2.0","id":"a","result":{"x":1}}"#).unwrap();
    assert_eq!(response.id, Some(RpcId::string("a")));
    assert_eq!(response.outcome.unwrap().get(), r#"{"x":1}"#);
    assert_eq!(parse_response(br#"{"id":1,"result":null}"#).unwrap().outcome.unwrap().get(), "null");

    let response =
        parse_response(br#"{"id":1,"result":null,"error":{"code":-32001,"message":"no task","data":[1]}}"#);
    let error = response.unwrap().outcome.unwrap_err();
    assert_eq!((error.code, &*error.message, error.data), (-32001, "no task", Some(json!([1]))));

    for body in [&b"{}"[..], b"[]", b"<html>", b"\xff", br#"{"id":1,"error":"text"}"#] {
        assert!(parse_response(body).is_err(), "{}", String::from_utf8_lossy(body));
    }
}

proptest! {
    #[test]
    fn no_body_breaks_it(body in prop_oneof![
        prop::collection::vec(any::<u8>(), 0..64),
        "[\\[\\]{}\":,0-9a-z\\\\ .]{0,64}".prop_map(String::into_bytes),
        "\\{\"jsonrpc\":\"2.0\",\"id\":[\\[\\]{}\":,0-9a-z\\\\ .]{0,32}\\}".prop_map(String::into_bytes),
    ]) {
        let _ = parse_request(&body, 4);
        let _ = parse_response(&body);
    }
}
