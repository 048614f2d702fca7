//! The HTTP connections: accepted up to a limit, encrypted where there is a certificate, bounded in the size and slowness
//! of their requests, and closed gracefully.

use std::{
    collections::HashMap,
    convert::Infallible,
    future::Future,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use hyper::{
    Request,
    body::{Body as _, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use nuncio_engine::{count_refusal, metric};
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
    http_version::{self, HttpVersion},
    http2,
    lingering_close::{LingerLimits, LingeringClose},
    open_streams::CONNECTION,
    options::HttpLimits,
    proxies::{self, TrustedProxy},
    stall_guard::StallGuard,
    tls::{ServerTls, TlsStart},
};

/// The smallest read buffer that hyper allows.
const MIN_BUFFER: usize = 8 * 1024;
/// Bytes that the kernel accepts before it can send them (`TCP_NOTSENT_LOWAT`).
#[cfg(target_os = "linux")]
const UNSENT: u32 = 64 * 1024;
/// Concurrent connections beyond the limit that get a refusal. Further ones are closed without a response.
const REFUSALS: usize = 64;

/// The sockets on which connections are accepted.
pub(crate) struct Listeners {
    pub(crate) tcp: TcpListener,
    pub(crate) unix: Option<UnixListener>,
    /// Of the TCP connections. Those of the Unix socket never leave the machine.
    pub(crate) tls: Option<Arc<ServerTls>>,
}

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

/// The limits of connections.
pub(crate) struct ConnectionLimits<'a> {
    pub(crate) limits: &'a HttpLimits,
    pub(crate) trusted: Vec<TrustedProxy>,
}

/// Serves until `shutdown`, then lets open requests finish; those still open after `drain` are aborted.
pub(crate) async fn serve(
    listeners: Listeners,
    site: Arc<Site>,
    bounds: ConnectionLimits<'_>,
    shutdown: impl Future<Output = ()>,
    drain: Duration,
) {
    let limits = Arc::new(bounds.limits.clone());
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
    // Never `pipeline_flush`: with it hyper buffers as much of a body as has arrived, whether it is read or
    // not.
    let own_uid = rustix::process::geteuid().as_raw();
    let mut shutdown = std::pin::pin!(shutdown);
    let mut accepted_so_far = 0_u64;
    loop {
        let (stream, peer) = tokio::select! {
            accepted = listeners.accept(own_uid) => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Mostly exhausted file descriptors: open connections will release theirs.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
            () = &mut shutdown => break,
        };
        let admitted = match AddressConnections::admit(&addresses, &peer) {
            None => {
                count_refusal("http.max-connections-per-address");
                Err(TOO_MANY_OF_ADDRESS)
            }
            Some(counted) => Arc::clone(&places)
                .try_acquire_owned()
                .map(|permit| ConnectionPermits { _permit: permit, _counted: counted })
                .map_err(|_| {
                    count_refusal("http.max-connections");
                    TOO_MANY
                }),
        };
        let admitted = match admitted {
            Ok(admitted) => admitted,
            Err(why) => {
                if let Ok(permit) = Arc::clone(&refusals).try_acquire_owned() {
                    let encrypts = listeners.tls.is_some();
                    tokio::spawn(async move {
                        match stream {
                            // A handshake for it would cost more than a connection does.
                            AcceptedStream::Tcp(_) if encrypts => {}
                            AcceptedStream::Tcp(stream) => refuse(stream, UNAVAILABLE, why).await,
                            AcceptedStream::Unix(stream) => refuse(stream, UNAVAILABLE, why).await,
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
            limits: Arc::clone(&limits),
            admitted,
        };
        connection.start(&builder, listeners.tls.as_ref(), stream);
    }
    drop(listeners);
    drop(stop);
    // Each connection closes within `drain`.
    let all = u32::try_from(limits.max_connections).unwrap_or(u32::MAX);
    let _ = places.acquire_many(all).await;
}

/// The permits that a connection holds while it is open.
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
    limits: Arc<HttpLimits>,
    admitted: ConnectionPermits,
}

impl HttpConnection {
    /// Neither generic nor a future, so that connections are compiled in this crate and optimised as it is. [`serve`]
    /// is compiled in the crate that awaits it, and so would be all that it polls.
    #[inline(never)]
    fn start(self, builder: &http1::Builder, tls: Option<&Arc<ServerTls>>, stream: AcceptedStream) {
        match stream {
            AcceptedStream::Tcp(stream) => match tls {
                Some(tls) => self.spawn_encrypted(builder, Arc::clone(tls), stream),
                None => self.spawn(builder, stream),
            },
            AcceptedStream::Unix(stream) => self.spawn(builder, stream),
        }
    }

    fn spawn<S>(self, builder: &http1::Builder, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let builder = builder.clone();
        tokio::spawn(CONNECTION.scope(self.number, async move {
            let stream = StallGuard::new(stream, self.limits.write_timeout);
            self.serve(&builder, stream).await;
        }));
    }

    /// The same after a handshake, which is part of the connection's task: a slow one delays no other.
    fn spawn_encrypted(mut self, builder: &http1::Builder, tls: Arc<ServerTls>, stream: TcpStream) {
        let builder = builder.clone();
        tokio::spawn(CONNECTION.scope(self.number, async move {
            let begun = start_tls(&tls, stream, self.limits.write_timeout);
            // Boxed: a handshake is large and short, and the connection after it is neither.
            let begun = Box::pin(tokio::time::timeout(self.limits.handshake_timeout, begun));
            let mut stopping = self.stopping.clone();
            let begun = tokio::select! {
                begun = begun => begun,
                _ = stopping.changed() => return,
            };
            match begun {
                Ok(Ok(TlsStart::Encrypted(stream, certificate))) => {
                    self.peer = self.peer.over_tls(certificate);
                    self.serve(&builder, *stream).await;
                }
                Ok(Ok(TlsStart::Plain(stream))) => refuse(stream, BAD_REQUEST, SPEAKS_HTTPS).await,
                Ok(Err(error)) => {
                    metric::TLS_HANDSHAKE_FAILURES.counter(&[]).increment(1);
                    tracing::debug!(%error, "a TLS handshake failed");
                }
                Err(_) => {
                    metric::TLS_HANDSHAKE_FAILURES.counter(&[]).increment(1);
                    tracing::debug!("a TLS handshake took too long (http.handshake-timeout)");
                }
            }
        }));
    }

    async fn serve<S>(self, builder: &http1::Builder, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        // A connection that does not begin is closed as one is whose head does not come.
        let detected = tokio::time::timeout(self.limits.header_timeout, http_version::detect(stream));
        let mut stopping = self.stopping.clone();
        let detected = tokio::select! {
            detected = detected => detected,
            // Nothing was asked on it.
            _ = stopping.changed() => return,
        };
        let ended = match detected {
            Ok(Ok((HttpVersion::One, stream))) => self.serve_http1(builder, stream).await,
            // Boxed: it is larger than a connection of HTTP/1, and those are the most.
            Ok(Ok((HttpVersion::Two, stream))) => Box::pin(self.serve_http2(stream)).await,
            Ok(Err(error)) => {
                tracing::debug!(%error, "a connection failed");
                return;
            }
            Err(_) => return,
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection failed");
        }
    }

    async fn serve_http1<S>(self, builder: &http1::Builder, stream: S) -> hyper::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { site, peer, mut stopping, drain, limits, admitted: _admitted, .. } = self;
        let lingering = LingerLimits { bytes: limits.max_refused_body_bytes, time: limits.linger_timeout };
        let stream = LingeringClose::new(stream, lingering);
        let refused_unread = stream.refused_unread();
        let service = service_fn(move |request: Request<Incoming>| {
            let (site, peer) = (Arc::clone(&site), peer.clone());
            let (has_body, refused_unread) = (!request.body().is_end_stream(), Arc::clone(&refused_unread));
            // Boxed: hyper reserves space for this future in every connection, and most connections only
            // stream.
            Box::pin(async move {
                let response = site.answer(request, &peer).await;
                let is_error = response.status().is_client_error() || response.status().is_server_error();
                refused_unread.store(has_body && is_error, Ordering::Relaxed);
                Ok::<_, Infallible>(response)
            })
        });
        let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
        tokio::select! {
            ended = connection.as_mut() => ended,
            _ = stopping.changed() => {
                connection.as_mut().graceful_shutdown();
                match tokio::time::timeout(drain, connection).await {
                    Ok(ended) => ended,
                    Err(_) => {
                        tracing::warn!("a connection did not close in time and was aborted");
                        Ok(())
                    }
                }
            }
        }
    }

    async fn serve_http2<S>(self, stream: S) -> hyper::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { number, site, peer, mut stopping, drain, limits, admitted: _admitted } = self;
        let stop = async move { drop(stopping.changed().await) };
        http2::serve(stream, number, site, peer, &limits, stop, drain).await
    }
}

/// The number of connections per address, so that one address cannot take them all.
struct AddressConnections {
    /// For this machine, which has its own limit, or none.
    local_limit: usize,
    limit: usize,
    trusted: Vec<TrustedProxy>,
    open: Mutex<HashMap<IpAddr, usize>>,
}

/// The permit of one connection of an address; released on drop.
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

    /// Reserves a permit for a connection; `None` when its address is at its limit.
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

/// The address that a connection counts under: an IPv6 subscriber has a whole /64 network, this machine all of
/// 127/8.
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
    // Bounds the kernel's send buffer: it would hold megabytes for a client that does not read.
    #[cfg(target_os = "linux")]
    let _ = SockRef::from(stream).set_tcp_notsent_lowat(UNSENT);
}

const TOO_MANY: &str = "The server has as many connections as it may have (max_connections).\n";
const TOO_MANY_OF_ADDRESS: &str =
    "This address has as many connections as one may have (max_connections_per_address).\n";

const SPEAKS_HTTPS: &str =
    "This port speaks HTTPS, and the request came without TLS: use https:// in its address.\n";

/// The first lines of refusals.
const UNAVAILABLE: &str = "503 Service Unavailable\r\nretry-after: 1";
const BAD_REQUEST: &str = "400 Bad Request";

/// Does the handshake, or leaves it where the first byte begins none.
async fn start_tls(
    tls: &Arc<ServerTls>,
    stream: TcpStream,
    write_timeout: Duration,
) -> io::Result<TlsStart<StallGuard<TcpStream>>> {
    let mut first = [0];
    let first = (stream.peek(&mut first).await? > 0).then_some(first[0]);
    tls.accept(first, StallGuard::new(stream, write_timeout)).await
}

/// Sends a refusal that any HTTP client understands.
async fn refuse(mut stream: impl AsyncRead + AsyncWrite + Unpin, status: &str, why: &str) {
    let answer = format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n{why}",
        why.len()
    );
    let _ = tokio::time::timeout(Duration::from_secs(1), async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        // Closing a connection with unread input resets it, and the reset may discard the response.
        io::copy(&mut stream, &mut io::sink()).await
    })
    .await;
}
