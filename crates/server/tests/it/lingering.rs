//! Connections that are closed while their client still sends: the client reads the response, and no reset.

use std::time::{Duration, Instant};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    site::Site,
    socket::{post, within},
};

const MIB: usize = 1024 * 1024;

/// A request whose body is announced and does not come with it.
fn announced(headers: &[(&str, &str)], length: usize) -> Vec<u8> {
    let length = length.to_string();
    let headers: Vec<_> = headers.iter().copied().chain([("content-length", length.as_str())]).collect();
    post("/", &headers, "")
}

/// Sends as a client does that reads only once it has sent everything.
async fn send_then_read(site: &Site, head: Vec<u8>, body: usize) -> (Result<(), String>, String) {
    let mut stream = TcpStream::connect(site.address).await.unwrap();
    stream.write_all(&head).await.unwrap();
    let piece = vec![b' '; 64 * 1024];
    let mut sent = Ok(());
    for n in 0..body / piece.len() {
        if let Err(error) = within("room to send", stream.write_all(&piece)).await {
            sent = Err(format!("after {n} pieces: {error}"));
            break;
        }
        // The response and its reset, if there is one, have time to arrive in between.
        if n < 4 {
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }
    let mut answer = vec![];
    if let Err(error) = within("the response", stream.read_to_end(&mut answer)).await {
        sent = sent.and(Err(format!("after {} bytes of the response: {error}", answer.len())));
    }
    (sent, String::from_utf8(answer).unwrap())
}

#[tokio::test]
async fn a_client_that_still_sends_what_is_too_large_reads_the_413() {
    let site = Site::new().await;
    let (sent, answer) = send_then_read(&site, announced(&[], 12 * MIB), 12 * MIB).await;
    assert_eq!(sent, Ok(()));
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(answer.contains("max_body_bytes") && answer.ends_with('}'), "{answer}");
}

#[tokio::test]
async fn a_client_that_still_sends_what_is_refused_unread_reads_why() {
    let site = Site::new().await;
    let head = announced(&[("content-type", "text/plain")], 4 * MIB);
    let (sent, answer) = send_then_read(&site, head, 4 * MIB).await;
    assert_eq!(sent, Ok(()));
    assert!(answer.starts_with("HTTP/1.1 415 ") && answer.ends_with('}'), "{answer}");
}

/// Reading on is a courtesy: so many bytes, and so long.
#[tokio::test]
async fn what_is_read_of_a_refused_body_has_an_end_in_bytes_and_in_time() {
    let site = Site::with(|setup| setup.server.limits.max_refused_body_bytes = 8 * MIB).await;
    let (sent, _) = send_then_read(&site, announced(&[], 256 * MIB), 256 * MIB).await;
    assert!(sent.is_err(), "256 MiB were read");

    let site = Site::with(|setup| setup.server.limits.linger_timeout = Duration::from_millis(300)).await;
    let mut stream = TcpStream::connect(site.address).await.unwrap();
    stream.write_all(&announced(&[], 12 * MIB)).await.unwrap();
    let began = Instant::now();
    let dripping = async {
        // Never quiet for long, and never done.
        while stream.write_all(b" ").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within("the end of the connection", dripping).await;
    assert!(began.elapsed() >= Duration::from_millis(250), "{:?}", began.elapsed());
}

/// A connection is not held open when nothing is left unread.
#[tokio::test]
async fn a_connection_whose_request_was_read_closes_at_once() {
    let site = Site::with(|setup| setup.server.limits.linger_timeout = Duration::from_secs(600)).await;
    let mut stream = TcpStream::connect(site.address).await.unwrap();
    let request = post("/", &[("connection", "close"), ("A2A-Version", "1.0")], "{}");
    stream.write_all(&request).await.unwrap();
    let mut answer = vec![];
    within("the response and the end", stream.read_to_end(&mut answer)).await.unwrap();
    assert!(String::from_utf8(answer).unwrap().starts_with("HTTP/1.1 200 "));
    let open = async || site.get("/healthz", &[]).await.status;
    assert_eq!(open().await, 200);
}
