//! HTTP by hand: whole requests as bytes, so that a test can send what no library would, and answers read as
//! they come. Everything that waits has a deadline.

use std::{collections::VecDeque, future::Future, net::SocketAddr, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};

/// Far more than anything here takes, on a machine that does other things too.
const DEADLINE: Duration = Duration::from_secs(30);

/// Waits, and fails when it takes too long for any machine.
pub(crate) async fn within<T>(what: &str, waited_for: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, waited_for).await {
        Ok(value) => value,
        Err(_) => panic!("never came: {what}"),
    }
}

/// A request with its head as it should be; `headers` are added, or take the place of those of their name.
pub(crate) fn post(path: &str, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let length = body.len().to_string();
    let usual = [("host", "localhost"), ("content-type", "application/json"), ("content-length", &length)];
    let mut request = head("POST", path, &usual, headers);
    request.extend_from_slice(body);
    request
}

/// A request without a body.
pub(crate) fn get(path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    head("GET", path, &[("host", "localhost")], headers)
}

/// A request without a body, of any method.
pub(crate) fn bare(method: &str, path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    head(method, path, &[("host", "localhost")], headers)
}

fn head(method: &str, path: &str, usual: &[(&str, &str)], headers: &[(&str, &str)]) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\n");
    let given = |name: &str| headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
    for (name, value) in usual.iter().filter(|(name, _)| !given(name)).chain(headers) {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    head.into_bytes()
}

/// An answer, all of it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.text()))
    }
}

/// What carries HTTP: a connection, encrypted or not.
pub(crate) trait Carrier: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Carrier for S {}

/// One connection.
pub(crate) struct Socket {
    stream: Box<dyn Carrier>,
    buffer: Vec<u8>,
}

impl Socket {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = within("a connection", TcpStream::connect(address)).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self::over(stream)
    }

    pub(crate) fn over(stream: impl Carrier + 'static) -> Self {
        Self { stream: Box::new(stream), buffer: vec![] }
    }

    /// Sends bytes as they are. That the server may have hung up already is left to whoever reads.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = within("room to send", self.stream.write_all(bytes.as_ref())).await;
    }

    /// Says that nothing more will be sent.
    pub(crate) async fn finish(&mut self) {
        let _ = self.stream.shutdown().await;
    }

    /// Whether the server ends the connection, with nothing more to read.
    pub(crate) async fn ended(&mut self) -> bool {
        self.buffer.is_empty() && self.read().await == 0
    }

    /// Reads some more; 0 at the end, also where that end is a broken connection.
    async fn read(&mut self) -> usize {
        within("something to read", self.stream.read_buf(&mut self.buffer)).await.unwrap_or(0)
    }

    /// The next answer.
    pub(crate) async fn answer(&mut self) -> Answer {
        self.try_answer().await.expect("the connection ended without an answer")
    }

    /// The next answer, unless the connection ends.
    pub(crate) async fn try_answer(&mut self) -> Option<Answer> {
        let (status, headers) = self.head().await?;
        let length = headers.get("content-length").map(|length| length.to_str().unwrap().parse().unwrap());
        let mut answer = Answer { status, headers, body: vec![] };
        if is_chunked(&answer.headers) {
            while let Some(chunk) = self.chunk().await {
                answer.body.extend(chunk);
            }
        } else if let Some(length) = length {
            answer.body = self.take(length).await?;
        }
        Some(answer)
    }

    /// The head of the next answer.
    pub(crate) async fn head(&mut self) -> Option<(u16, HeaderMap)> {
        let end = self.position(b"\r\n\r\n").await?;
        let head = self.take(end + 4).await?;
        let head = std::str::from_utf8(&head[..end]).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let mut headers = HeaderMap::new();
        for line in lines {
            let (name, value) = line.split_once(':').unwrap();
            headers.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value.trim()).unwrap());
        }
        Some((status, headers))
    }

    /// The next chunk of a chunked body; `None` after the last, and where the connection breaks.
    pub(crate) async fn chunk(&mut self) -> Option<Vec<u8>> {
        let end = self.position(b"\r\n").await?;
        let size = self.take(end + 2).await?;
        let size = usize::from_str_radix(std::str::from_utf8(&size[..end]).unwrap(), 16).unwrap();
        let mut chunk = self.take(size + 2).await?;
        chunk.truncate(size);
        (size > 0).then_some(chunk)
    }

    async fn position(&mut self, wanted: &[u8]) -> Option<usize> {
        loop {
            if let Some(at) = self.buffer.windows(wanted.len()).position(|window| window == wanted) {
                return Some(at);
            }
            if self.read().await == 0 {
                return None;
            }
        }
    }

    /// So many bytes, unless the connection ends before.
    pub(crate) async fn take(&mut self, length: usize) -> Option<Vec<u8>> {
        while self.buffer.len() < length {
            if self.read().await == 0 {
                return None;
            }
        }
        let rest = self.buffer.split_off(length);
        Some(std::mem::replace(&mut self.buffer, rest))
    }
}

pub(crate) fn is_chunked(headers: &HeaderMap) -> bool {
    headers.get("transfer-encoding").is_some_and(|value| value == "chunked")
}

/// What stands between two empty lines of an event stream.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Piece {
    Comment(String),
    Event { id: Option<u64>, data: Value },
}

impl Piece {
    pub(crate) fn read(text: &str) -> Self {
        let (mut id, mut data, mut kind) = (None, None, None);
        for line in text.lines() {
            match line.split_once(':').unwrap() {
                ("", comment) => return Self::Comment(comment.trim().to_owned()),
                ("event", value) => kind = Some(value.trim().to_owned()),
                ("id", value) => id = Some(value.trim().parse().unwrap()),
                ("data", value) => data = Some(serde_json::from_str(value).unwrap()),
                _ => panic!("no event: {text}"),
            }
        }
        let data: Value = data.expect("data");
        // An event of a type of its own stands under the name of that type.
        let data = match kind {
            Some(kind) => serde_json::json!({ kind: data }),
            None => data,
        };
        Self::Event { id, data }
    }
}

/// An event stream that is being read.
pub(crate) struct Events {
    socket: Socket,
    pub(crate) headers: HeaderMap,
    text: String,
    pieces: VecDeque<Piece>,
}

impl Events {
    /// The stream that a request on this connection opens.
    pub(crate) async fn open(socket: Socket, request: &[u8]) -> Self {
        let opened = Self::try_open(socket, request).await;
        opened.unwrap_or_else(|answer| panic!("not a stream: {} {}", answer.status, answer.text()))
    }

    /// The same, or what was answered instead.
    pub(crate) async fn try_open(mut socket: Socket, request: &[u8]) -> Result<Self, Answer> {
        socket.send(request).await;
        let (status, headers) = socket.head().await.expect("a stream");
        let kind = headers.get("content-type").unwrap().to_str().unwrap().to_owned();
        if (status, &*kind) != (200, "text/event-stream") {
            let length: usize = headers["content-length"].to_str().unwrap().parse().unwrap();
            let body = socket.take(length).await.unwrap();
            return Err(Answer { status, headers, body });
        }
        assert!(is_chunked(&headers), "{headers:?}");
        Ok(Self { socket, headers, text: String::new(), pieces: VecDeque::new() })
    }

    /// The next comment or event; `None` at the end of the stream.
    pub(crate) async fn piece(&mut self) -> Option<Piece> {
        while self.pieces.is_empty() {
            let Some(chunk) = self.socket.chunk().await else {
                assert_eq!(self.text, "", "the stream broke off inside an event");
                return None;
            };
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
            let Some(end) = self.text.rfind("\n\n") else { continue };
            self.pieces.extend(self.text[..end].split("\n\n").map(Piece::read));
            self.text.drain(..end + 2);
        }
        self.pieces.pop_front()
    }

    /// The next event with its id; comments are passed over, and are no excuse.
    pub(crate) async fn next(&mut self) -> Option<(Option<u64>, Value)> {
        within("an event, or the end of the stream", async {
            loop {
                match self.piece().await? {
                    Piece::Comment(_) => {}
                    Piece::Event { id, data } => return Some((id, data)),
                }
            }
        })
        .await
    }

    /// The results of all events up to the end.
    pub(crate) async fn results(mut self) -> Vec<Value> {
        let mut results = vec![];
        while let Some((_, data)) = self.next().await {
            results.push(data.get("result").cloned().unwrap_or(data));
        }
        results
    }
}
