//! A port of the loopback for a server that is killed and started again at the same address.
//!
//! A port that the system chooses is one of those that it also gives to every outgoing connection. Between a kill and the
//! next start another test can get it, and the server does not start ("address already in use"). So these are chosen below
//! that range, and a lock on a file keeps each from the servers of all other tests, in whatever process, until it is dropped.

use std::{
    fs::{self, File},
    net::{Ipv4Addr, TcpListener},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

/// Below what Linux gives to outgoing connections (32768 and above, unless it is configured otherwise).
const PORTS: std::ops::Range<u16> = 20_000..32_000;

pub(crate) struct ReservedPort {
    pub(crate) port: u16,
    /// Locked while this lives, and unlocked by the system should the process die.
    _lock: File,
}

impl ReservedPort {
    pub(crate) fn take() -> Self {
        static TAKEN: AtomicU32 = AtomicU32::new(0);
        let folder = std::env::temp_dir().join("nuncio-test-ports");
        fs::create_dir_all(&folder).unwrap();
        let count = u32::from(PORTS.end - PORTS.start);
        // Processes begin at different places, so that they hardly ever meet.
        let first = process::id().wrapping_mul(7_919).wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed));
        for n in 0..count {
            let port = PORTS.start + (first.wrapping_add(n) % count) as u16;
            let lock = File::create(folder.join(port.to_string())).unwrap();
            if lock.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
                return Self { port, _lock: lock };
            }
        }
        panic!("all ports of {PORTS:?} are taken");
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

#[test]
fn two_reserved_ports_differ_and_are_no_ports_of_connections() {
    let (one, other) = (ReservedPort::take(), ReservedPort::take());
    assert_ne!(one.port, other.port);
    assert!(PORTS.contains(&one.port) && PORTS.contains(&other.port));
    // Neither is taken again while a server that had it is dead.
    for _ in 0..50 {
        let next = ReservedPort::take();
        assert!(next.port != one.port && next.port != other.port);
    }
}
