//! A client that keeps the bytes that it is sent: streams are compared by them.
//!
//! It does nothing by itself. A connection that breaks is [`Cut`], and whoever follows says where to go on.

use std::{future::Future, time::Duration};

use bytes::{Bytes, BytesMut};
use nuncio_wire::a2a::{A2aCall, Dialect};
use tokio::sync::watch;

use crate::{http, server_process::ServerProcess};

/// How long anything may take that the server owes us.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Waits for something, and not for ever.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .unwrap_or_else(|_| panic!("{what}: nothing came of it in {PATIENCE:?}"))
}

/// Why there is no complete answer. What was asked for may have been done.
#[derive(Debug)]
pub(crate) enum Cut {
    /// The connection broke.
    Broken,
    /// The server has asked to come again later.
    Away,
}

/// One agent of a server that comes and goes.
#[derive(Clone)]
pub(crate) struct Endpoint {
    http: reqwest::Client,
    url: String,
    /// The process that serves; 0 while there is none.
    serving: watch::Receiver<u32>,
    /// How long a request waits for it to serve before somebody else is asked; `None`: there is nobody else.
    wait: Option<Duration>,
}

impl Endpoint {
    pub(crate) fn new(server: &str, agent: &str, serving: watch::Receiver<u32>) -> Self {
        Self { http: http::client(), url: format!("{server}/agents/{agent}"), serving, wait: None }
    }

    /// The same, as one of several: whoever meets it dead turns to another. It may die between the choice and the
    /// request, and stay so until everybody has found another.
    pub(crate) fn of_many(self) -> Self {
        Self { wait: Some(Duration::from_millis(200)), ..self }
    }

    /// The process that serves; 0 while there is none.
    pub(crate) fn serving(&self) -> u32 {
        *self.serving.borrow()
    }

    /// Makes a request as soon as there is a server. A version is only named in 1.0: before it, the method and
    /// the task tell.
    pub(crate) async fn open(
        &self,
        dialect: Dialect,
        id: &str,
        call: &A2aCall,
        headers: &[(&str, &str)],
    ) -> Result<reqwest::Response, Cut> {
        let mut params = vec![];
        let method = dialect.write_call(&mut params, call).unwrap();
        let params = String::from_utf8(params).unwrap();
        let body = format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"{method}","params":{params}}}"#);
        let mut request = self.http.post(&self.url).header("Content-Type", "application/json").body(body);
        if dialect == Dialect::V1 {
            request = request.header("A2A-Version", dialect.version());
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut serving = self.serving.clone();
        let served = serving.wait_for(|process| *process != 0);
        match self.wait {
            None => drop(within("a server", served).await.unwrap()),
            Some(wait) => {
                if tokio::time::timeout(wait, served).await.is_err() {
                    return Err(Cut::Broken);
                }
            }
        }
        let response = within(method, request.send()).await.map_err(|_| Cut::Broken)?;
        if response.status() == reqwest::StatusCode::SERVICE_UNAVAILABLE {
            assert!(response.headers().contains_key("retry-after"), "{method}: come again, but when?");
            return Err(Cut::Away);
        }
        Ok(response)
    }

    /// Makes a request; its whole answer.
    pub(crate) async fn ask(
        &self,
        dialect: Dialect,
        id: &str,
        call: &A2aCall,
        headers: &[(&str, &str)],
    ) -> Result<Bytes, Cut> {
        let response = self.open(dialect, id, call, headers).await?;
        within("an answer", response.bytes()).await.map_err(|_| Cut::Broken)
    }

    /// The frames of a task after that of the given id. 0: all of them.
    pub(crate) async fn subscribe(&self, reader: &Reader, after: u64) -> Result<Frames, Cut> {
        let call = A2aCall::Subscribe { task: reader.task.clone() };
        let after = after.to_string();
        let headers = [("Last-Event-ID", after.as_str())];
        Frames::of(self.open(reader.dialect, &reader.id, &call, &headers).await?).await
    }
}

/// A server that comes and goes, and says so to whoever asks it something.
pub(crate) struct Node {
    pub(crate) server: ServerProcess,
    /// The process while it takes requests, else 0.
    pub(crate) serving: watch::Sender<u32>,
}

impl Node {
    /// A server that takes requests.
    pub(crate) fn of(server: ServerProcess) -> Self {
        let serving = watch::channel(server.pid()).0;
        Self { server, serving }
    }

    /// One agent of it.
    pub(crate) fn endpoint(&self, agent: &str) -> Endpoint {
        Endpoint::new(self.server.url(), agent, self.serving.subscribe())
    }

    pub(crate) fn kill(&mut self) {
        self.serving.send_replace(0);
        self.server.kill9();
    }

    /// Waits until it takes requests.
    pub(crate) fn ready(&mut self) {
        self.server.ready();
        self.serving.send_replace(self.server.pid());
    }

    pub(crate) fn restart(&mut self) {
        self.server.respawn();
        self.ready();
    }
}

/// Who reads a task: the same dialect and the same JSON-RPC id give the same bytes.
#[derive(Debug, Clone)]
pub(crate) struct Reader {
    pub(crate) dialect: Dialect,
    pub(crate) task: String,
    pub(crate) id: String,
}

/// One event of a stream, to the blank line that ends it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) id: u64,
    pub(crate) bytes: Bytes,
}

impl Frame {
    fn read(bytes: Bytes) -> Self {
        let text = std::str::from_utf8(&bytes).unwrap();
        let id = text.strip_prefix("id: ").and_then(|text| text.split_once("\ndata: "));
        let id = id.and_then(|(id, _)| id.parse().ok());
        Self { id: id.unwrap_or_else(|| panic!("an event without an id: {text}")), bytes }
    }

    /// The JSON-RPC response in it.
    pub(crate) fn data(&self) -> &[u8] {
        let start = self.bytes.windows(6).position(|window| window == b"data: ").unwrap();
        &self.bytes[start + 6..self.bytes.len() - 2]
    }
}

/// Checks that what was read is what it should be, to the byte.
#[track_caller]
pub(crate) fn same(read: &[Frame], expected: &[Frame], what: &str) {
    for (at, (read, expected)) in read.iter().zip(expected).enumerate() {
        assert_eq!(read, expected, "{what}: frame {at} differs");
    }
    assert_eq!(read.len(), expected.len(), "{what}: the number of frames differs");
}

impl std::fmt::Debug for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(String::from_utf8_lossy(&self.bytes).trim_end())
    }
}

/// A stream that is being read. Dropping it cuts it.
pub(crate) struct Frames {
    response: reqwest::Response,
    buffer: BytesMut,
}

impl Frames {
    /// Reads a response as a stream; anything else is a refusal, and nobody here expects one.
    pub(crate) async fn of(response: reqwest::Response) -> Result<Self, Cut> {
        let kind = response.headers().get("content-type").and_then(|kind| kind.to_str().ok());
        if kind != Some("text/event-stream") {
            let answer = response.text().await.map_err(|_| Cut::Broken)?;
            panic!("a stream was refused: {answer}");
        }
        Ok(Self { response, buffer: BytesMut::new() })
    }

    /// The next frame; `None` where the server ended the stream.
    pub(crate) async fn next(&mut self) -> Result<Option<Frame>, Cut> {
        within("the next event of a stream", self.read_next()).await
    }

    /// All that is left of it.
    pub(crate) async fn rest(mut self) -> Result<Vec<Frame>, Cut> {
        let mut frames = vec![];
        while let Some(frame) = self.next().await? {
            frames.push(frame);
        }
        Ok(frames)
    }

    async fn read_next(&mut self) -> Result<Option<Frame>, Cut> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|window| window == b"\n\n") {
                let bytes = self.buffer.split_to(end + 2).freeze();
                // A comment only says that the server is there.
                if bytes.starts_with(b":") {
                    continue;
                }
                // The only event without an id that anybody here expects.
                if bytes.starts_with(b"data: ") && String::from_utf8_lossy(&bytes).contains(": try again in ")
                {
                    return Err(Cut::Away);
                }
                return Ok(Some(Frame::read(bytes)));
            }
            match self.response.chunk().await.map_err(|_| Cut::Broken)? {
                Some(bytes) => self.buffer.extend_from_slice(&bytes),
                None if self.buffer.is_empty() => return Ok(None),
                None => panic!("the stream ended within an event: {:?}", self.buffer),
            }
        }
    }
}
