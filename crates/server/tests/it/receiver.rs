//! A receiver of webhooks on loopback that does what a test tells it: answer, hang, or break the connection.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::AbortHandle,
};

/// What came in.
#[derive(Debug, Clone)]
pub(crate) struct Got {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
    /// What the receiver did with it.
    pub(crate) reaction: Reaction,
}

impl Got {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn id(&self) -> String {
        self.header("webhook-id").to_owned()
    }

    /// The task, and the event's number in it.
    pub(crate) fn task_and_seq(&self) -> (String, u64) {
        let id = self.id();
        let (task, rest) = id.split_once('.').unwrap();
        let (_, seq) = rest.rsplit_once('.').unwrap();
        (task.to_owned(), seq.parse().unwrap())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reaction {
    Answer(u16),
    Hang,
    Reset,
}

type React = dyn Fn(&Got, usize) -> Reaction + Send + Sync;

pub(crate) struct Receiver {
    address: SocketAddr,
    got: Arc<Mutex<Vec<Got>>>,
    accepting: AbortHandle,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Receiver {
    /// Reacts to each request by itself and by how many requests with the same id came before it.
    pub(crate) async fn new(react: impl Fn(&Got, usize) -> Reaction + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let got: Arc<Mutex<Vec<Got>>> = Arc::default();
        let (log, react): (_, Arc<React>) = (Arc::clone(&got), Arc::new(react));
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&log), Arc::clone(&react)));
            }
        });
        Self { address, got, accepting: accepting.abort_handle() }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// All that came, in the order in which it came.
    pub(crate) fn got(&self) -> Vec<Got> {
        self.got.lock().unwrap().clone()
    }

    /// What was answered with a 2xx.
    pub(crate) fn taken(&self) -> Vec<Got> {
        let taken = |got: &Got| matches!(got.reaction, Reaction::Answer(200..300));
        self.got().into_iter().filter(taken).collect()
    }
}

async fn serve(mut stream: TcpStream, log: Arc<Mutex<Vec<Got>>>, react: Arc<React>) -> io::Result<()> {
    let mut buffer = Vec::new();
    while let Some(mut got) = read(&mut stream, &mut buffer).await? {
        let reaction = {
            let mut log = log.lock().unwrap();
            let repeats = log.iter().filter(|before| before.id() == got.id()).count();
            got.reaction = react(&got, repeats);
            log.push(got.clone());
            got.reaction
        };
        match reaction {
            Reaction::Answer(status) => {
                let answer = format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n");
                stream.write_all(answer.as_bytes()).await?;
            }
            Reaction::Hang => {
                // Until the other side gives up.
                while stream.read_buf(&mut buffer).await? > 0 {}
                return Ok(());
            }
            Reaction::Reset => return stream.set_zero_linger(),
        }
    }
    Ok(())
}

async fn read(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<Option<Got>> {
    loop {
        if let Some((got, length)) = parse(buffer) {
            buffer.drain(..length);
            return Ok(Some(got));
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

/// A request with its length, once all of it is there.
fn parse(buffer: &[u8]) -> Option<(Got, usize)> {
    let end = buffer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&buffer[..end]).unwrap();
    let mut lines = head.split("\r\n");
    let path = lines.next().unwrap().split(' ').nth(1).unwrap().to_owned();
    let mut headers = HeaderMap::new();
    for line in lines {
        let (name, value) = line.split_once(':').unwrap();
        let name: HeaderName = name.parse().unwrap();
        headers.append(name, HeaderValue::from_str(value.trim()).unwrap());
    }
    let length: usize = headers["content-length"].to_str().unwrap().parse().unwrap();
    let body = buffer.get(end + 4..end + 4 + length)?;
    let body = String::from_utf8(body.to_vec()).unwrap();
    Some((Got { path, headers, body, reaction: Reaction::Hang }, end + 4 + length))
}

/// Waits until something is so, and fails when it takes too long for any machine.
pub(crate) async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    let reached = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(30), reached).await;
    assert!(waited.is_ok(), "never came: {what}");
}
