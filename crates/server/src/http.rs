//! Connections: accepted up to a cap, bounded in what their requests may be and how slowly they may come,
//! and ended gracefully.

use std::{
    collections::HashMap,
    convert::Infallible,
    future::Future,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
    time::Duration,
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
#[cfg(target_os = "linux")]
use socket2::SockRef;
use tokio::{
    io::{self, AsyncRead, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
};

use crate::{
    app::Site,
    auth::ConnectionPeer,
    options::HttpLimits,
    proxies::{self, TrustedProxy},
    stall_guard::StallGuard,
    streams::CONNECTION,
};

/// The smallest read buffer that hyper allows.
const MIN_BUFFER: usize = 8 * 1024;
/// Bytes that the kernel takes before it can send them.
#[cfg(target_os = "linux")]
const UNSENT: u32 = 64 * 1024;
/// Connections beyond the cap that are told why, at once. Those beyond these are only closed.
const REFUSALS: usize = 64;

/// Where connections are accepted.
pub(crate) struct Listeners {
    pub(crate) tcp: TcpListener,
    pub(crate) unix: Option<UnixListener>,
}

/// A connection that was accepted.
enum AcceptedStream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Listeners {
    async fn accept(&self, own_uid: u32) -> io::Result<(AcceptedStream, ConnectionPeer)> {
        let unix = async {
            match &self.unix {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            accepted = self.tcp.accept() => {
                let (stream, address) = accepted?;
                tune(&stream);
                Ok((AcceptedStream::Tcp(stream), ConnectionPeer::new(address)))
            }
            accepted = unix => {
                let (stream, _) = accepted?;
                let uid = stream.peer_cred()?.uid();
                Ok((AcceptedStream::Unix(stream), ConnectionPeer::of_user(uid, own_uid)))
            }
        }
    }
}

/// What connections are bounded by.
pub(crate) struct ConnectionLimits<'a> {
    pub(crate) limits: &'a HttpLimits,
    pub(crate) trusted: Vec<TrustedProxy>,
}

/// Serves until `shutdown`, then lets open requests end; what has not ended within `drain` is cut.
pub(crate) async fn serve(
    listeners: Listeners,
    site: Arc<Site>,
    bounds: ConnectionLimits<'_>,
    shutdown: impl Future<Output = ()>,
    drain: Duration,
) {
    let limits = bounds.limits;
    let places = Arc::new(Semaphore::new(limits.max_connections));
    let addresses = Arc::new(AddressConnections::new(&bounds));
    let refusals = Arc::new(Semaphore::new(REFUSALS));
    let (stop, stopping) = watch::channel(());
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_headers(limits.max_headers)
        .max_buf_size(limits.max_header_bytes.max(MIN_BUFFER));
    // Never `pipeline_flush`: with it hyper takes as much of a body as there is, whether it is read or not.
    let own_uid = rustix::process::geteuid().as_raw();
    let mut shutdown = std::pin::pin!(shutdown);
    let mut accepted_so_far = 0_u64;
    loop {
        let (stream, peer) = tokio::select! {
            accepted = listeners.accept(own_uid) => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file descriptors, mostly: those in use will be given back.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
            () = &mut shutdown => break,
        };
        let admitted = match AddressConnections::admit(&addresses, &peer) {
            None => Err(TOO_MANY_OF_ADDRESS),
            Some(counted) => Arc::clone(&places)
                .try_acquire_owned()
                .map(|permit| ConnectionPermits { _permit: permit, _counted: counted })
                .map_err(|_| TOO_MANY),
        };
        let admitted = match admitted {
            Ok(admitted) => admitted,
            Err(why) => {
                if let Ok(permit) = Arc::clone(&refusals).try_acquire_owned() {
                    tokio::spawn(async move {
                        match stream {
                            AcceptedStream::Tcp(stream) => refuse(stream, why).await,
                            AcceptedStream::Unix(stream) => refuse(stream, why).await,
                        }
                        drop(permit);
                    });
                }
                continue;
            }
        };
        accepted_so_far += 1;
        let connection = HttpConnection {
            number: accepted_so_far,
            site: Arc::clone(&site),
            peer,
            stopping: stopping.clone(),
            drain,
            write_timeout: limits.write_timeout,
            admitted,
        };
        match stream {
            AcceptedStream::Tcp(stream) => connection.spawn(&builder, stream),
            AcceptedStream::Unix(stream) => connection.spawn(&builder, stream),
        }
    }
    drop(listeners);
    drop(stop);
    // Each of them ends within `drain`.
    let all = u32::try_from(limits.max_connections).unwrap_or(u32::MAX);
    let _ = places.acquire_many(all).await;
}

/// What a connection holds for as long as it lasts.
struct ConnectionPermits {
    _permit: OwnedSemaphorePermit,
    _counted: AddressPermit,
}

/// A connection that is about to be served.
struct HttpConnection {
    number: u64,
    site: Arc<Site>,
    peer: ConnectionPeer,
    stopping: watch::Receiver<()>,
    drain: Duration,
    write_timeout: Duration,
    admitted: ConnectionPermits,
}

impl HttpConnection {
    fn spawn<S>(self, builder: &http1::Builder, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { number, site, peer, mut stopping, drain, write_timeout, admitted } = self;
        let service = service_fn(move |request| {
            let (site, peer) = (Arc::clone(&site), peer.clone());
            // Boxed: hyper has a place for this future in every connection, and most of them only stream.
            Box::pin(async move { Ok::<_, Infallible>(site.answer(request, &peer).await) })
        });
        let stream = StallGuard::new(stream, write_timeout);
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        tokio::spawn(CONNECTION.scope(number, async move {
            let mut connection = std::pin::pin!(connection);
            let ended = tokio::select! {
                ended = connection.as_mut() => ended,
                _ = stopping.changed() => {
                    connection.as_mut().graceful_shutdown();
                    match tokio::time::timeout(drain, connection).await {
                        Ok(ended) => ended,
                        Err(_) => {
                            tracing::warn!("a connection did not end in time and was cut");
                            Ok(())
                        }
                    }
                }
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection ended badly");
            }
            drop(admitted);
        }));
    }
}

/// How many connections each address has, so that one of them cannot take all.
struct AddressConnections {
    /// For this machine, which has its own bound, or none.
    local_limit: usize,
    limit: usize,
    trusted: Vec<TrustedProxy>,
    open: Mutex<HashMap<IpAddr, usize>>,
}

/// One connection of an address; counted until it is dropped.
struct AddressPermit(Option<(Arc<AddressConnections>, IpAddr)>);

impl AddressConnections {
    fn new(bounds: &ConnectionLimits<'_>) -> Self {
        let given = bounds.limits.max_connections_per_address;
        Self {
            local_limit: given.unwrap_or(usize::MAX),
            limit: given.unwrap_or(bounds.limits.max_connections / 4).max(1),
            trusted: bounds.trusted.clone(),
            open: Mutex::default(),
        }
    }

    /// Counts a connection, or says that its address has as many as it may have.
    fn admit(addresses: &Arc<Self>, peer: &ConnectionPeer) -> Option<AddressPermit> {
        let Some(address) = peer.ip().filter(|_| !proxies::is_trusted(&addresses.trusted, peer)) else {
            return Some(AddressPermit(None));
        };
        let limit = if address.is_loopback() { addresses.local_limit } else { addresses.limit };
        let address = group_of(address);
        let mut open = addresses.open.lock();
        let count = open.entry(address).or_default();
        if *count >= limit {
            return None;
        }
        *count += 1;
        Some(AddressPermit(Some((Arc::clone(addresses), address))))
    }
}

impl Drop for AddressPermit {
    fn drop(&mut self) {
        let Some((addresses, address)) = &self.0 else { return };
        let mut open = addresses.open.lock();
        if let Some(count) = open.get_mut(address) {
            *count -= 1;
            if *count == 0 {
                open.remove(address);
            }
        }
    }
}

/// What counts as one address: a subscriber of IPv6 has a whole network of 64 bits, and this machine all of 127/8.
fn group_of(address: IpAddr) -> IpAddr {
    match address {
        address if address.is_loopback() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    }
}

fn tune(stream: &TcpStream) {
    // Without it the first event of a stream waits 40 ms for the client's delayed acknowledgement.
    let _ = stream.set_nodelay(true);
    // What is not under way to the client stays here: the kernel would keep megabytes for one that does not
    // read.
    #[cfg(target_os = "linux")]
    let _ = SockRef::from(stream).set_tcp_notsent_lowat(UNSENT);
}

const TOO_MANY: &str = "The server has as many connections as it may have (max_connections).\n";
const TOO_MANY_OF_ADDRESS: &str =
    "This address has as many connections as one may have (max_connections_per_address).\n";

/// Says no in a way that any client understands.
async fn refuse(mut stream: impl AsyncRead + AsyncWrite + Unpin, why: &str) {
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\
         content-type: text/plain\r\ncontent-length: {}\r\n\r\n{why}",
        why.len()
    );
    let _ = tokio::time::timeout(Duration::from_secs(1), async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        // A connection that is closed with something unread is reset, which may take the answer with it.
        io::copy(&mut stream, &mut io::sink()).await
    })
    .await;
}
