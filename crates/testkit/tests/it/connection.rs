//! A connection over which requests are sent one after another, without an allocation.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// Longer than any response here.
const ROOM: usize = 4 << 20;

pub(crate) struct Connection {
    pub(crate) address: SocketAddr,
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self { address, stream, buffer: vec![0; ROOM] }
    }

    /// Sends a request, and reads its response to the end: the head and the body.
    pub(crate) fn exchange(&mut self, request: &[u8]) -> (&str, &str) {
        self.stream.write_all(request).unwrap();
        let (mut filled, mut head, mut length) = (0, None, None);
        loop {
            let read = self.stream.read(&mut self.buffer[filled..]).unwrap();
            assert!(read > 0, "the server has closed the connection, or the response has no end");
            filled += read;
            if head.is_none() {
                head = find(&self.buffer[..filled], b"\r\n\r\n").map(|at| at + 4);
                length = head.and_then(|head| content_length(&self.buffer[..head]));
            }
            let Some(head) = head else { continue };
            let is_whole = match length {
                Some(length) => filled >= head + length,
                None => self.buffer[head..filled].ends_with(b"0\r\n\r\n"),
            };
            if is_whole {
                let (head, body) = self.buffer[..filled].split_at(head);
                return (str::from_utf8(head).unwrap(), str::from_utf8(body).unwrap());
            }
        }
    }

    /// Sends a request that succeeds.
    pub(crate) fn expect(&mut self, request: &[u8]) {
        let (head, body) = self.exchange(request);
        let is_good =
            head.starts_with("HTTP/1.1 2") && !body.contains("\"error\"") && !body.contains("\"isError\"");
        assert!(is_good, "{head}{body}");
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

fn content_length(head: &[u8]) -> Option<usize> {
    let head = str::from_utf8(head).unwrap();
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    let (_, length) = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-length"))?;
    Some(length.trim().parse().unwrap())
}
