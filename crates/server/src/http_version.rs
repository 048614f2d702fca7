//! The version of HTTP that a connection speaks. HTTP/2 without TLS announces itself with a preface that is no
//! request of HTTP/1, so the first bytes decide.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

/// What a client of HTTP/2 sends first.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HttpVersion {
    One,
    Two,
}

/// A stream whose first bytes were read and are read again.
pub(crate) struct RewoundStream<S> {
    head: [u8; PREFACE.len()],
    filled: usize,
    taken: usize,
    inner: S,
}

/// Reads as many bytes of a connection as decide its version. The caller sets the deadline.
pub(crate) async fn detect<S>(inner: S) -> io::Result<(HttpVersion, RewoundStream<S>)>
where
    S: AsyncRead + Unpin,
{
    let mut stream = RewoundStream { head: [0; PREFACE.len()], filled: 0, taken: 0, inner };
    while stream.filled < PREFACE.len() {
        let read = stream.inner.read(&mut stream.head[stream.filled..]).await?;
        stream.filled += read;
        let is_preface = PREFACE.starts_with(&stream.head[..stream.filled]);
        if read == 0 || !is_preface {
            return Ok((HttpVersion::One, stream));
        }
    }
    Ok((HttpVersion::Two, stream))
}

impl<S: AsyncRead + Unpin> AsyncRead for RewoundStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.taken < self.filled {
            let length = buf.remaining().min(self.filled - self.taken);
            buf.put_slice(&self.head[self.taken..self.taken + length]);
            self.taken += length;
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for RewoundStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test]
    async fn the_first_bytes_decide_and_are_not_lost() {
        for (sent, expected) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], HttpVersion::One),
            (b"PRI * HTTP/1.1\r\n\r\n", HttpVersion::One),
            (b"P", HttpVersion::One),
            (b"", HttpVersion::One),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nframes", HttpVersion::Two),
        ] {
            let (ours, mut theirs) = tokio::io::duplex(64);
            let client = async {
                // In pieces, as a network may deliver it.
                for piece in sent.chunks(5) {
                    theirs.write_all(piece).await.unwrap();
                    tokio::task::yield_now().await;
                }
                drop(theirs);
            };
            let server = async {
                let (version, mut stream) = detect(ours).await.unwrap();
                let mut whole = vec![];
                stream.read_to_end(&mut whole).await.unwrap();
                (version, whole)
            };
            let ((version, whole), ()) = tokio::join!(server, client);
            assert_eq!((version, &whole[..]), (expected, sent));
        }
    }
}
