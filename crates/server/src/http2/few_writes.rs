//! A stream that takes what is written to it together until it is flushed.
//!
//! It says of itself that it writes no several pieces at once. h2 then copies messages of up to a KiB beside their frames
//! instead of 256 bytes, so that a short answer with its head and its trailers is one write, not two. Of a longer one h2
//! writes the frame's beginning and then the rest, and both leave together.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that are copied rather than written at once: more than the head, a short message and the trailers of an answer.
const CAPACITY: usize = 4096;

pub(super) struct FewWrites<S> {
    stream: S,
    /// Empty for most of the time, and allocated for as long.
    buffer: Vec<u8>,
    /// The bytes of it that were written already.
    written: usize,
}

impl<S: AsyncWrite + Unpin> FewWrites<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, buffer: vec![], written: 0 }
    }

    fn poll_write_buffer(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.buffer.len() {
            let rest = &self.buffer[self.written..];
            self.written += progress(ready!(Pin::new(&mut self.stream).poll_write(cx, rest))?)?;
        }
        self.buffer.clear();
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    /// Writes the buffer and these bytes behind it; how many of the latter.
    fn poll_write_both(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        while self.stream.is_write_vectored() && self.written < self.buffer.len() {
            let rest = &self.buffer[self.written..];
            let both = [io::IoSlice::new(rest), io::IoSlice::new(bytes)];
            let taken = progress(ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, &both))?)?;
            if let Some(more) = taken.checked_sub(rest.len()).filter(|more| *more > 0) {
                self.buffer.clear();
                self.written = 0;
                return Poll::Ready(Ok(more));
            }
            self.written += taken;
        }
        ready!(self.poll_write_buffer(cx))?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }
}

fn progress(written: usize) -> io::Result<usize> {
    match written {
        0 => Err(io::ErrorKind::WriteZero.into()),
        written => Ok(written),
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FewWrites<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FewWrites<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.buffer.len() + bytes.len() > CAPACITY {
            return self.poll_write_both(cx, bytes);
        }
        if self.buffer.capacity() == 0 {
            self.buffer.reserve_exact(CAPACITY);
        }
        self.buffer.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_write_buffer(cx))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_write_buffer(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use tokio::io::AsyncWriteExt as _;

    use super::*;

    /// Takes at most `most` bytes at once, and counts how often it is asked.
    struct Sink {
        taken: Vec<u8>,
        most: usize,
        writes: usize,
        is_vectored: bool,
    }

    impl AsyncWrite for Sink {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let length = bytes.len().min(self.most);
            self.taken.extend_from_slice(&bytes[..length]);
            self.writes += 1;
            Poll::Ready(Ok(length))
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            pieces: &[io::IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let whole: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
            self.poll_write(cx, &whole)
        }

        fn is_write_vectored(&self) -> bool {
            self.is_vectored
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    async fn write(lengths: &[usize], most: usize, is_vectored: bool) -> usize {
        let sink = Sink { taken: vec![], most, writes: 0, is_vectored };
        let (mut stream, mut expected) = (FewWrites::new(sink), vec![]);
        for (index, length) in lengths.iter().enumerate() {
            let piece = vec![index as u8; *length];
            stream.write_all(&piece).await.unwrap();
            expected.extend(piece);
        }
        stream.flush().await.unwrap();
        assert!(stream.stream.taken == expected, "{lengths:?} {most} {is_vectored}");
        stream.stream.writes
    }

    #[tokio::test]
    async fn short_pieces_are_one_write_and_a_long_one_leaves_with_those_before_it() {
        assert_eq!(write(&[40, 900, 12], usize::MAX, true).await, 1);
        assert_eq!(write(&[1033, 15_000], usize::MAX, true).await, 1);
        assert_eq!(write(&[1033, 15_000], usize::MAX, false).await, 2);
        assert_eq!(write(&[15_000], usize::MAX, true).await, 1);
    }

    #[tokio::test]
    async fn nothing_is_lost_where_little_is_taken_at_once() {
        for most in [1, 7, 1033, 1034, 4096, 5000] {
            for is_vectored in [true, false] {
                write(&[40, 1033, 9000, 3, 4093, 1, 4096, 4097], most, is_vectored).await;
            }
        }
    }

    #[test]
    fn a_stream_that_takes_nothing_is_an_error() {
        let mut cx = Context::from_waker(Waker::noop());
        let mut stream = FewWrites::new(Sink { taken: vec![], most: 0, writes: 0, is_vectored: true });
        assert!(Pin::new(&mut stream).poll_write(&mut cx, b"answer").is_ready());
        let Poll::Ready(Err(error)) = Pin::new(&mut stream).poll_flush(&mut cx) else {
            panic!("it is taken")
        };
        assert_eq!(error.kind(), io::ErrorKind::WriteZero);
    }
}
