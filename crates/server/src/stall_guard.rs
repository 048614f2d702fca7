//! A write timeout for connections whose client does not read. Without it a response stays in memory for as
//! long as such a client is connected.

use std::{
    future::Future as _,
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep},
};

/// Fails a write that makes no progress for that long.
pub(crate) struct StallGuard<S> {
    inner: S,
    within: Duration,
    /// Runs while a write is pending. Created on first use and then reset, because most connections never need
    /// it.
    timer: Option<Pin<Box<Sleep>>>,
    waits: bool,
}

impl<S> StallGuard<S> {
    pub(crate) fn new(inner: S, within: Duration) -> Self {
        Self { inner, within, timer: None, waits: false }
    }

    /// Checks the result of a write: any byte written is progress; a write that is pending too long is an
    /// error.
    fn check<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waits = false;
            return written;
        }
        let within = self.within;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(within)));
        if !std::mem::replace(&mut self.waits, true) {
            timer.as_mut().reset(Instant::now() + within);
        }
        match timer.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => {
                let why = format!("the client has taken nothing for {within:?} (http.write-timeout)");
                tracing::debug!("a connection is closed: {why}");
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, why)))
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallGuard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallGuard<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.check(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.check(cx, written)
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
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn a_write_fails_when_nothing_is_taken_and_a_slow_reader_is_no_stall() {
        let (ours, mut theirs) = tokio::io::duplex(16);
        let mut ours = StallGuard::new(ours, Duration::from_millis(500));
        let reader = tokio::spawn(async move {
            let mut piece = [0; 8];
            for _ in 0..20 {
                tokio::time::sleep(Duration::from_millis(40)).await;
                theirs.read_exact(&mut piece).await.unwrap();
            }
            theirs
        });
        ours.write_all(&[0; 160]).await.unwrap();
        let _theirs = reader.await.unwrap();
        let stalled = tokio::time::timeout(Duration::from_secs(30), ours.write_all(&[0; 160])).await;
        let error = stalled.expect("it does not wait for ever").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains("write-timeout"), "{error}");
    }
}
