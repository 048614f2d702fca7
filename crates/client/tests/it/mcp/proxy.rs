//! A network between a client and a server that cuts the stream of a call wherever it is told to.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// The network.
pub(super) struct Proxy {
    pub(super) url: url::Url,
    left: Arc<AtomicI64>,
}

impl Proxy {
    /// Cuts the first stream that answers a POST, right after so many events of it.
    pub(super) async fn cutting_after(events: i64, server: &url::Url) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut url = server.clone();
        url.set_port(Some(listener.local_addr().unwrap().port())).unwrap();
        let server = format!("127.0.0.1:{}", server.port().unwrap());
        let left = Arc::new(AtomicI64::new(events));
        let counted = Arc::clone(&left);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (server, left) = (server.clone(), Arc::clone(&counted));
                tokio::spawn(async move { carry(client, &server, &left).await });
            }
        });
        Self { url, left }
    }

    /// Whether it has cut anything.
    pub(super) fn has_cut(&self) -> bool {
        self.left.load(Ordering::SeqCst) <= 0
    }
}

async fn carry(mut client: TcpStream, server: &str, left: &AtomicI64) {
    let Ok(mut server) = TcpStream::connect(server).await else { return };
    let (mut up, mut down) = (vec![0; 16 * 1024], vec![0; 16 * 1024]);
    // What the connection carries now: the answer to a POST, and a stream.
    let (mut is_post, mut is_stream) = (false, false);
    loop {
        tokio::select! {
            Ok(read) = client.read(&mut up) => {
                if read == 0 || server.write_all(&up[..read]).await.is_err() {
                    return;
                }
                if [&b"POST "[..], b"GET "].iter().any(|method| up[..read].starts_with(method)) {
                    (is_post, is_stream) = (up.starts_with(b"POST "), false);
                }
            }
            Ok(read) = server.read(&mut down) => {
                let seen = &down[..read];
                is_stream |= contains(seen, b"text/event-stream");
                if is_post && is_stream {
                    let ends = ends_of_events(seen);
                    let before = left.fetch_sub(ends.len() as i64, Ordering::SeqCst);
                    if before > 0 && before <= ends.len() as i64 {
                        let end = ends[before as usize - 1];
                        let _ = client.write_all(&seen[..end]).await;
                        return;
                    }
                }
                if read == 0 || client.write_all(seen).await.is_err() {
                    return;
                }
            }
            else => return,
        }
    }
}

fn contains(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window == word)
}

fn ends_of_events(bytes: &[u8]) -> Vec<usize> {
    bytes.windows(2).enumerate().filter(|(_, window)| *window == b"\n\n").map(|(at, _)| at + 2).collect()
}
