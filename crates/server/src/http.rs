//! Connections: accepted up to a cap, bounded in what their requests may be and how slowly they may come,
//! and ended gracefully.

use std::{convert::Infallible, future::Future, sync::Arc, time::Duration};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
#[cfg(target_os = "linux")]
use socket2::SockRef;
use tokio::{
    io::{self, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
};

use crate::{app::Site, auth::Peer, options::HttpLimits, stall::StallGuard, streams::CONNECTION};

/// The smallest read buffer that hyper allows.
const MIN_BUFFER: usize = 8 * 1024;
/// Bytes that the kernel takes before it can send them.
#[cfg(target_os = "linux")]
const UNSENT: u32 = 64 * 1024;
/// Connections beyond the cap that are told why, at once. Those beyond these are only closed.
const REFUSALS: usize = 64;

/// Serves until `shutdown`, then lets open requests end; what has not ended within `drain` is cut.
pub(crate) async fn serve(
    listener: TcpListener,
    site: Arc<Site>,
    limits: &HttpLimits,
    shutdown: impl Future<Output = ()>,
    drain: Duration,
) {
    let places = Arc::new(Semaphore::new(limits.max_connections));
    let refusals = Arc::new(Semaphore::new(REFUSALS));
    let (stop, stopping) = watch::channel(());
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_headers(limits.max_headers)
        .max_buf_size(limits.max_header_bytes.max(MIN_BUFFER));
    // Never `pipeline_flush`: with it hyper takes as much of a body as there is, whether it is read or not.
    let mut shutdown = std::pin::pin!(shutdown);
    let mut accepted_so_far = 0_u64;
    loop {
        let (stream, peer) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, address)) => (stream, address),
                Err(error) => {
                    // Out of file descriptors, mostly: those in use will be given back.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
            () = &mut shutdown => break,
        };
        tune(&stream);
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            if let Ok(place) = Arc::clone(&refusals).try_acquire_owned() {
                tokio::spawn(async move {
                    refuse(stream).await;
                    drop(place);
                });
            }
            continue;
        };
        let (site, peer) = (Arc::clone(&site), Peer::new(peer));
        let service = service_fn(move |request| {
            let (site, peer) = (Arc::clone(&site), peer.clone());
            // Boxed: hyper has a place for this future in every connection, and most of them only stream.
            Box::pin(async move { Ok::<_, Infallible>(site.answer(request, &peer).await) })
        });
        let connection =
            builder.serve_connection(TokioIo::new(StallGuard::new(stream, limits.write_timeout)), service);
        let mut stopping = stopping.clone();
        accepted_so_far += 1;
        tokio::spawn(CONNECTION.scope(accepted_so_far, async move {
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
            drop(place);
        }));
    }
    drop(listener);
    drop(stop);
    // Each of them ends within `drain`.
    let all = u32::try_from(limits.max_connections).unwrap_or(u32::MAX);
    let _ = places.acquire_many(all).await;
}

fn tune(stream: &TcpStream) {
    // Without it the first event of a stream waits 40 ms for the client's delayed acknowledgement.
    let _ = stream.set_nodelay(true);
    // What is not under way to the client stays here: the kernel would keep megabytes for one that does not
    // read.
    #[cfg(target_os = "linux")]
    let _ = SockRef::from(stream).set_tcp_notsent_lowat(UNSENT);
}

/// Says no in a way that any client understands.
async fn refuse(mut stream: TcpStream) {
    const WHY: &str = "The server has as many connections as it may have (max_connections).\n";
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\
         content-type: text/plain\r\ncontent-length: {}\r\n\r\n{WHY}",
        WHY.len()
    );
    let _ = tokio::time::timeout(Duration::from_secs(1), async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        // A connection that is closed with something unread is reset, which may take the answer with it.
        io::copy(&mut stream, &mut io::sink()).await
    })
    .await;
}
