//! A client of gRPC over the frames of HTTP/2, which sends what it is told to.

use std::net::SocketAddr;

use base64::{Engine as _, prelude::BASE64_STANDARD_NO_PAD};
use bytes::Bytes;
use h2::{RecvStream, SendStream, client::SendRequest};
use http::{HeaderMap, Request, Response};
use nuncio_wire::{
    grpc::{self, GrpcCode, GrpcStatus, MessageReader},
    protobuf::{DescriptorPool, ProtobufLimits, ProtobufMethod},
};
use serde_json::Value;
use tokio::net::TcpStream;

use crate::socket::within;

const LIMITS: ProtobufLimits = ProtobufLimits { max_depth: 200, max_json_bytes: 64 << 20 };

/// The method of a path.
pub(crate) fn method(path: &str) -> &'static ProtobufMethod {
    let (service, name) = path[1..].split_once('/').unwrap();
    let service = DescriptorPool::get().service(service).unwrap();
    service.methods.iter().find(|method| method.name == name).unwrap()
}

/// The message of a request with its prefix; `None` if its type cannot say this.
pub(crate) fn message(path: &str, json: &Value) -> Option<Vec<u8>> {
    let mut out = vec![];
    let json = json.to_string();
    grpc::write_message(&mut out, |out| method(path).input().write_from_json(out, json.as_bytes())).ok()?;
    Some(out)
}

pub(crate) struct GrpcClient {
    requests: SendRequest<Bytes>,
}

/// What came of a call.
#[derive(Debug)]
pub(crate) struct GrpcAnswer {
    pub(crate) http_status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) messages: Vec<Value>,
    pub(crate) status: GrpcStatus,
}

/// A call whose answer has begun.
pub(crate) struct GrpcCall {
    path: String,
    head: http::response::Parts,
    body: RecvStream,
    reader: MessageReader,
    /// The way for further messages, of a client that streams.
    pub(crate) sending: SendStream<Bytes>,
}

impl GrpcClient {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let (requests, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        Self { requests }
    }

    /// Begins a call with these bytes as its body; `ends`: no more follow.
    pub(crate) async fn begin(
        &self,
        path: &str,
        metadata: &[(&str, &str)],
        body: Vec<u8>,
        ends: bool,
    ) -> GrpcCall {
        let mut request = Request::post(format!("http://localhost{path}")).header("te", "trailers");
        if !metadata.iter().any(|(name, _)| *name == "content-type") {
            request = request.header("content-type", "application/grpc");
        }
        for (name, value) in metadata {
            request = request.header(*name, *value);
        }
        let mut ready = within("a free stream", self.requests.clone().ready()).await.unwrap();
        let (answer, mut sending) = ready.send_request(request.body(()).unwrap(), false).unwrap();
        sending.send_data(body.into(), ends).unwrap();
        let (head, body) = within("an answer", answer).await.map(Response::into_parts).unwrap();
        GrpcCall { path: path.to_owned(), head, body, reader: MessageReader::new(64 << 20), sending }
    }

    pub(crate) async fn call(&self, path: &str, metadata: &[(&str, &str)], json: &Value) -> GrpcAnswer {
        let body = message(path, json).unwrap_or_else(|| panic!("{path}: {json}"));
        self.begin(path, metadata, body, true).await.answer().await
    }

    /// A method of A2A 1.0.
    pub(crate) async fn a2a(&self, name: &str, json: &Value) -> GrpcAnswer {
        self.call(&format!("/lf.a2a.v1.A2AService/{name}"), &[], json).await
    }

    /// Begins a stream of A2A 1.0.
    pub(crate) async fn open(&self, name: &str, metadata: &[(&str, &str)], json: &Value) -> GrpcCall {
        let path = format!("/lf.a2a.v1.A2AService/{name}");
        let body = message(&path, json).unwrap();
        self.begin(&path, metadata, body, true).await
    }
}

impl GrpcCall {
    /// The next message; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(bytes) = self.reader.next_message().unwrap() {
                let json = method(&self.path).output().read_json(&bytes, LIMITS).unwrap();
                return Some(serde_json::from_str(json.get()).unwrap());
            }
            let piece = within("a piece", self.body.data()).await?.unwrap();
            let _ = self.body.flow_control().release_capacity(piece.len());
            self.reader.push(&piece);
        }
    }

    /// The status, after all messages.
    pub(crate) async fn status(&mut self) -> GrpcStatus {
        let trailers = within("the trailers", self.body.trailers()).await.unwrap();
        let fields = trailers.unwrap_or_else(|| self.head.headers.clone());
        let text = |name| fields.get(name).map(|value| value.to_str().unwrap().to_owned());
        let code = text("grpc-status").unwrap_or_else(|| panic!("no status: {:?} {fields:?}", self.head));
        let details = text("grpc-status-details-bin")
            .map(|details| GrpcStatus::read_details(&BASE64_STANDARD_NO_PAD.decode(details).unwrap()));
        GrpcStatus {
            code: GrpcCode::parse(&code),
            message: grpc::decode_text(&text("grpc-message").unwrap_or_default()),
            details: details.unwrap_or_default(),
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) async fn answer(mut self) -> GrpcAnswer {
        let mut messages = vec![];
        let mut status = GrpcStatus::new(GrpcCode::of_http(self.head.status.as_u16()), "");
        if self.head.status == 200 {
            while let Some(message) = self.next().await {
                messages.push(message);
            }
            status = self.status().await;
        }
        GrpcAnswer { http_status: self.head.status.as_u16(), headers: self.head.headers, messages, status }
    }
}

impl GrpcAnswer {
    /// The only message of a call that succeeded.
    #[track_caller]
    pub(crate) fn result(self) -> Value {
        assert_eq!(self.status.code, GrpcCode::Ok, "{:?}", self.status);
        let [result] = <[Value; 1]>::try_from(self.messages).unwrap();
        result
    }

    /// The code and the reason of a call that failed.
    pub(crate) fn refusal(&self) -> (GrpcCode, &str) {
        let reason = self.status.details.iter().find_map(|detail| detail["reason"].as_str());
        (self.status.code, reason.unwrap_or_default())
    }
}
