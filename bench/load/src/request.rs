//! The requests of the workloads.

use std::cell::Cell;

use bytes::Bytes;
use clap::ValueEnum;
use http_body_util::Full;
use hyper::{
    Request,
    header::{self, HeaderValue},
};
use uuid::Uuid;

use crate::{endpoint::Endpoint, grpc};

/// What is echoed: 200 bytes that begin with none of the bench agent's words.
pub(crate) const TEXT: &str = "hello, this is a message of the length that people write when they ask an \
    agent for something that takes more than a sentence to say but less than a page, two hundred bytes \
    of it, and then the end....";

/// How a server is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Dialect {
    /// A2A 1.0
    A2a,
    /// A2A 1.0 over HTTP+JSON
    A2aRest,
    /// A2A 1.0 over gRPC
    A2aGrpc,
    /// What ra2a 0.10.1 understands: method names of A2A 0.3, streams at a path of their own, and an
    /// explicit wish to wait for the task's end
    Ra2a,
    /// MCP 2025-11-25: every connection has a session
    McpSessions,
    /// MCP 2026-07-28: every request stands for itself
    McpStateless,
}

impl Dialect {
    /// HTTP/2 rather than HTTP/1.1.
    pub(crate) fn is_http2(self) -> bool {
        self == Self::A2aGrpc
    }
}

/// Makes requests, each with an id of its own.
pub(crate) struct Requests {
    pub(crate) dialect: Dialect,
    host: String,
    scheme: &'static str,
    path: String,
    run: Uuid,
    made: Cell<u64>,
}

impl Requests {
    /// Requests to an endpoint, its messages to a path there.
    pub(crate) fn new(endpoint: &Endpoint, path: &str) -> Self {
        Self {
            dialect: endpoint.dialect,
            host: format!("127.0.0.1:{}", endpoint.port),
            scheme: endpoint.scheme(),
            path: path.to_owned(),
            run: Uuid::new_v4(),
            made: Cell::new(0),
        }
    }

    pub(crate) fn send(&self, text: &str) -> Request<Full<Bytes>> {
        match self.dialect {
            Dialect::A2aRest => return self.rest("/message:send", self.message(text)),
            Dialect::A2aGrpc => return self.grpc("SendMessage", &grpc::send(&self.message_id(), text)),
            _ => {}
        }
        let method = if self.is_ra2a() { "message/send" } else { "SendMessage" };
        self.a2a(&self.path, method, &self.message(text))
    }

    /// What an endpoint is asked: the input object of agents that are programs.
    pub(crate) fn plain(&self, text: &str) -> Request<Full<Bytes>> {
        let body = format!(
            r#"{{"type":"input","protocol":1,"agent":"bench","task":"{}","context":"bench","attempt":1,"text":"{text}","data":null,"messages":[{{"role":"user","parts":[{{"text":"{text}"}}]}}],"answers":[]}}"#,
            self.run
        );
        self.post_body(&self.path, body)
    }

    pub(crate) fn stream(&self, text: &str) -> Request<Full<Bytes>> {
        match self.dialect {
            Dialect::A2aRest => return self.rest("/message:stream", self.message(text)),
            Dialect::A2aGrpc => {
                return self.grpc("SendStreamingMessage", &grpc::send(&self.message_id(), text));
            }
            _ => {}
        }
        let (path, method) =
            if self.is_ra2a() { ("/stream", "message/stream") } else { ("/", "SendStreamingMessage") };
        self.a2a(path, method, &self.message(text))
    }

    pub(crate) fn get(&self, task: &str) -> Request<Full<Bytes>> {
        match self.dialect {
            Dialect::A2aRest => {
                return Request::get(format!("/tasks/{task}"))
                    .header(header::HOST, &self.host)
                    .header("a2a-version", "1.0")
                    .body(Full::default())
                    .expect("every part of it is a valid one");
            }
            Dialect::A2aGrpc => return self.grpc("GetTask", &grpc::get(task)),
            _ => {}
        }
        let method = if self.is_ra2a() { "tasks/get" } else { "GetTask" };
        self.a2a("/", method, &format!(r#"{{"id":"{task}"}}"#))
    }

    /// One page of 50; an empty token asks for the first.
    pub(crate) fn list(&self, token: &str) -> Request<Full<Bytes>> {
        let method = if self.is_ra2a() { "tasks/list" } else { "ListTasks" };
        self.a2a("/", method, &format!(r#"{{"pageSize":50,"pageToken":"{token}"}}"#))
    }

    fn rest(&self, path: &str, body: String) -> Request<Full<Bytes>> {
        let mut request = self.post_body(path, body);
        request.headers_mut().insert("a2a-version", HeaderValue::from_static("1.0"));
        request
    }

    fn grpc(&self, method: &str, message: &[u8]) -> Request<Full<Bytes>> {
        Request::post(format!("{}://{}/lf.a2a.v1.A2AService/{method}", self.scheme, self.host))
            .header(header::CONTENT_TYPE, "application/grpc")
            .header(header::TE, "trailers")
            .header("a2a-version", "1.0")
            .body(Full::from(grpc::framed(message)))
            .expect("every part of it is a valid one")
    }

    /// An id that no other message has.
    fn message_id(&self) -> String {
        let no = self.made.replace(self.made.get() + 1);
        format!("{}-{no}", self.run.simple())
    }

    fn message(&self, text: &str) -> String {
        // JSON-RPC counts its requests, the other bindings their messages.
        let no = match self.dialect {
            Dialect::A2aRest => self.made.replace(self.made.get() + 1),
            _ => self.made.get(),
        };
        let run = self.run.simple();
        let configuration =
            if self.is_ra2a() { r#","configuration":{"returnImmediately":false}"# } else { "" };
        format!(
            r#"{{"message":{{"messageId":"{run}-{no}","role":"ROLE_USER","parts":[{{"text":"{text}"}}]}}{configuration}}}"#
        )
    }

    fn is_ra2a(&self) -> bool {
        self.dialect == Dialect::Ra2a
    }

    fn a2a(&self, path: &str, method: &str, params: &str) -> Request<Full<Bytes>> {
        let mut request = self.post(path, method, params);
        request.headers_mut().insert("a2a-version", HeaderValue::from_static("1.0"));
        request
    }

    /// A request with an id of its own.
    pub(crate) fn post(&self, path: &str, method: &str, params: &str) -> Request<Full<Bytes>> {
        let id = self.made.get();
        self.made.set(id + 1);
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
        self.post_body(path, body)
    }

    pub(crate) fn post_body(&self, path: &str, body: String) -> Request<Full<Bytes>> {
        Request::post(path)
            .header(header::HOST, &self.host)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, text/event-stream")
            .body(Full::from(body))
            .expect("every part of it is a valid one")
    }
}
