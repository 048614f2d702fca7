//! A TCP relay in front of a server: it records the requests of a client, and can cut every connection.

use std::{
    io::{self, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use serde_json::Value;

pub(crate) struct RecordingRelay {
    address: SocketAddr,
    state: Arc<RelayState>,
}

#[derive(Default)]
struct RelayState {
    /// The bytes that the client sent, by connection.
    sent: Mutex<Vec<Vec<u8>>>,
    /// The bytes that the server sent, by connection.
    received: Mutex<Vec<Vec<u8>>>,
    open: Mutex<Vec<TcpStream>>,
    is_closed: AtomicBool,
}

impl RecordingRelay {
    /// A relay to the server at this URL.
    pub(crate) fn start(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(RelayState::default());
        let (shared, server) = (Arc::clone(&state), server.strip_prefix("http://").unwrap().to_owned());
        thread::spawn(move || {
            for client in listener.incoming() {
                if shared.is_closed.load(Ordering::SeqCst) {
                    return;
                }
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(&server)) else { continue };
                relay(&shared, client, server);
            }
        });
        Self { address, state }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Cuts all connections. New ones are relayed.
    pub(crate) fn cut(&self) {
        for open in self.state.open.lock().unwrap().drain(..) {
            let _ = open.shutdown(Shutdown::Both);
        }
    }

    /// The JSON-RPC requests so far, those of one connection together.
    pub(crate) fn requests(&self) -> Vec<Value> {
        let sent = self.state.sent.lock().unwrap();
        sent.iter().flat_map(|bytes| requests_in(bytes)).collect()
    }

    /// How often this text was passed on to the client.
    pub(crate) fn passed_on(&self, text: &str) -> usize {
        let received = self.state.received.lock().unwrap();
        received.iter().map(|bytes| String::from_utf8_lossy(bytes).matches(text).count()).sum()
    }

    /// How many requests of that method there were.
    pub(crate) fn count(&self, method: &str) -> usize {
        self.requests().iter().filter(|request| request["method"] == method).count()
    }
}

impl Drop for RecordingRelay {
    fn drop(&mut self) {
        self.state.is_closed.store(true, Ordering::SeqCst);
        self.cut();
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

fn relay(state: &Arc<RelayState>, client: TcpStream, server: TcpStream) {
    let number = {
        let mut sent = state.sent.lock().unwrap();
        sent.push(vec![]);
        state.received.lock().unwrap().push(vec![]);
        sent.len() - 1
    };
    state.open.lock().unwrap().extend([client.try_clone().unwrap(), server.try_clone().unwrap()]);
    let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    let recorder = Arc::clone(state);
    // A request is recorded before its response can come, and a response after it was passed on.
    thread::spawn(move || {
        copy(&mut from, &mut to, |to, bytes| {
            recorder.sent.lock().unwrap()[number].extend_from_slice(bytes);
            to.write_all(bytes)
        });
    });
    let (mut from, mut to, recorder) = (server, client, Arc::clone(state));
    thread::spawn(move || {
        copy(&mut from, &mut to, |to, bytes| {
            to.write_all(bytes)?;
            recorder.received.lock().unwrap()[number].extend_from_slice(bytes);
            Ok(())
        });
    });
}

fn copy(
    from: &mut TcpStream,
    to: &mut TcpStream,
    mut pass_on: impl FnMut(&mut TcpStream, &[u8]) -> io::Result<()>,
) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if pass_on(to, &buffer[..count]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// The bodies of the requests that were sent completely.
fn requests_in(mut bytes: &[u8]) -> Vec<Value> {
    let mut found = vec![];
    while let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length = length.map_or(0, |length| length.parse().unwrap());
        let Some(body) = bytes.get(end + 4..end + 4 + length) else { break };
        found.extend(serde_json::from_slice::<Value>(body).ok());
        bytes = &bytes[end + 4 + length..];
    }
    found
}
