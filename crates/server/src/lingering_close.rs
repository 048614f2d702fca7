//! A bounded wait for the rest of a request whose body was refused. Closing a connection with unread input resets it,
//! and the reset may reach the client before the response: a client that is still sending would never read the 413.

use std::{
    future::Future as _,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Sleep,
};

/// Bytes that are read at once, to be dropped.
const PIECE: usize = 16 * 1024;

/// How much is read of what a client still sends, and for how long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LingerLimits {
    pub(crate) bytes: usize,
    pub(crate) time: Duration,
}

/// A connection that, after a refusal, says that nothing more will come and reads on until the client has read that.
pub(crate) struct LingeringClose<S> {
    inner: S,
    limits: LingerLimits,
    /// Whether the last response refused a request that has a body. Set by the service.
    refused_unread: Arc<AtomicBool>,
    /// Whether the client has closed its side: nothing is left unread.
    at_end: bool,
    /// Since the own side was closed: how long to read on.
    closing: Option<Pin<Box<Sleep>>>,
}

impl<S> LingeringClose<S> {
    pub(crate) fn new(inner: S, limits: LingerLimits) -> Self {
        Self { inner, limits, refused_unread: Arc::default(), at_end: false, closing: None }
    }

    /// Whether the last response refused a request that has a body.
    pub(crate) fn refused_unread(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.refused_unread)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LingeringClose<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let room = buf.remaining() > 0;
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        self.at_end |= room && buf.filled().len() == before;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for LingeringClose<S> {
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
        if self.closing.is_none() {
            ready!(Pin::new(&mut self.inner).poll_shutdown(cx))?;
            if self.at_end || !self.refused_unread.load(Ordering::Relaxed) {
                return Poll::Ready(Ok(()));
            }
        }
        let Self { inner, limits, at_end, closing, .. } = &mut *self;
        let timer = closing.get_or_insert_with(|| Box::pin(tokio::time::sleep(limits.time)));
        let mut dropped = [0; PIECE];
        while !*at_end && limits.bytes > 0 && timer.as_mut().poll(cx).is_pending() {
            let mut piece = ReadBuf::new(&mut dropped);
            match ready!(Pin::new(&mut *inner).poll_read(cx, &mut piece)) {
                Ok(()) => {
                    *at_end = piece.filled().is_empty();
                    limits.bytes = limits.bytes.saturating_sub(piece.filled().len());
                }
                Err(_) => *at_end = true,
            }
        }
        Poll::Ready(Ok(()))
    }
}
