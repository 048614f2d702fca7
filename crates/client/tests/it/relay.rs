//! The relay between a client on pipes and a server that misbehaves.

use std::time::Duration;

use async_trait::async_trait;
use nuncio_client::mcp::{EndpointFinder, Relay, RelayEndpoint};
use nuncio_outbound::TlsClientOptions;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::mpsc,
};

struct At(String);

#[async_trait]
impl EndpointFinder for At {
    async fn find(&self) -> Result<RelayEndpoint, String> {
        Ok(RelayEndpoint { url: self.0.clone(), bearer: None })
    }
}

/// A server that answers with an endless body could otherwise fill the memory of this process.
#[tokio::test]
async fn a_body_beyond_the_limit_of_a_message_is_an_error_and_is_not_read_to_its_end() {
    const LIMIT: usize = 64 * 1024 * 1024;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 4096];
        assert!(stream.read(&mut request).await.unwrap() > 0);
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            4 * LIMIT
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let spaces = vec![b' '; 1024 * 1024];
        // One message and a little more; then nothing, but the connection stays open.
        for _ in 0..=LIMIT / spaces.len() {
            if stream.write_all(&spaces).await.is_err() {
                return;
            }
        }
        std::future::pending::<()>().await;
    });
    let (out, mut received) = mpsc::channel(1);
    let mut relay = Relay::new(At(url), TlsClientOptions::default(), out).unwrap();
    relay.send(br#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#.to_vec()).await;
    let message = tokio::time::timeout(Duration::from_secs(60), received.recv()).await;
    let message = message.expect("the relay waits for the rest of the body").unwrap();
    let message: Value = serde_json::from_slice(&message).unwrap();
    let why = message["error"]["message"].as_str().unwrap();
    assert!(why.ends_with(&format!("is longer than {LIMIT} bytes")), "{why}");
}
