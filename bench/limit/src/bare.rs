//! The cost of HTTP itself: bare hyper that reads a request's body, parses nothing and answers with a fixed task, as JSON
//! over HTTP/1.1 or as a message of gRPC over HTTP/2. The difference of the two is what gRPC costs a server that does
//! all else at no cost.

use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, combinators::WithTrailers};
use hyper::{
    HeaderMap, Request, Response,
    body::Incoming,
    header::{self, HeaderValue},
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;

use crate::task_json;

const ID: &str = "01990000-0000-7000-8000-000000000000";
/// What the load generator sends and expects in the echo.
const TEXT: &str = "hello, this is a message of the length that people write when they ask an \
    agent for something that takes more than a sentence to say but less than a page, two hundred bytes \
    of it, and then the end....";

type Trailers = std::future::Ready<Option<Result<HeaderMap, Infallible>>>;

/// Serves until the process is ended.
pub(crate) async fn serve(port: u16, is_grpc: bool) -> anyhow::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let (json, messages) = (json(), [message(false), message(true)]);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let stream = TokioIo::new(stream);
        if is_grpc {
            let messages = messages.clone();
            let service = service_fn(move |request| answer_grpc(request, messages.clone()));
            let connection = http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service);
            tokio::spawn(connection);
        } else {
            let json = json.clone();
            let service = service_fn(move |request| answer_json(request, json.clone()));
            tokio::spawn(http1::Builder::new().serve_connection(stream, service));
        }
    }
}

async fn answer_json(request: Request<Incoming>, json: Bytes) -> hyper::Result<Response<Full<Bytes>>> {
    request.into_body().collect().await?;
    let mut response = Response::new(Full::new(json));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

async fn answer_grpc(
    request: Request<Incoming>,
    [task, response]: [Bytes; 2],
) -> hyper::Result<Response<WithTrailers<Full<Bytes>, Trailers>>> {
    let message = if request.uri().path().ends_with("/GetTask") { task } else { response };
    request.into_body().collect().await?;
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let body = Full::new(message).with_trailers(std::future::ready(Some(Ok(trailers))));
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    Ok(response)
}

fn json() -> Bytes {
    let task = task_json::completed(ID, ID, TEXT);
    format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"task":{task}}}}}"#).into()
}

/// The same task as a message with its prefix: a `Task`, or within a `SendMessageResponse`.
fn message(is_wrapped: bool) -> Bytes {
    let parts = |number| field(number, &field(1, TEXT.as_bytes()));
    let status = field(3, &[vec![1 << 3, 3], field(3, &[1 << 3, 0x80, 0xbc, 0xe3, 0xc9, 6])].concat());
    let artifact = [field(1, b"out"), field(2, b"echo"), parts(4)].concat();
    let history = [field(1, b"m"), vec![4 << 3, 1], parts(5)].concat();
    let (id, context) = (field(1, ID.as_bytes()), field(2, ID.as_bytes()));
    let mut task = [id, context, status, field(4, &artifact), field(5, &history)].concat();
    if is_wrapped {
        task = field(1, &task);
    }
    let length = u32::try_from(task.len()).unwrap_or(u32::MAX);
    [&[0], &length.to_be_bytes()[..], &task].concat().into()
}

fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let (mut out, mut length) = (vec![number << 3 | 2], bytes.len());
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(bytes);
    out
}
