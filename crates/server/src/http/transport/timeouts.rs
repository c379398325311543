//! Write timeouts of connections.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// A stream whose writes fail when the client reads nothing for a while.
#[derive(Debug)]
pub(super) struct WriteTimeout<S> {
    inner: S,
    limit: Duration,
    timer: Pin<Box<Sleep>>,
    waiting: bool,
}

impl<S> WriteTimeout<S> {
    /// Waits for at most `limit`.
    pub fn new(inner: S, limit: Duration) -> Self {
        Self { inner, limit, timer: Box::pin(sleep(limit)), waiting: false }
    }

    /// What a write came to, or that it took too long.
    fn watch<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waiting = false;
            return written;
        }
        if !self.waiting {
            self.waiting = true;
            self.timer.as_mut().reset(Instant::now() + self.limit);
        }
        ready!(self.timer.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.watch(written, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(context);
        self.watch(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.inner).poll_shutdown(context);
        self.watch(shut, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(context, parts);
        self.watch(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    const LIMIT: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn who_does_not_read_in_time_is_given_up() {
        let (near, _far) = duplex(4);
        let mut near = WriteTimeout::new(near, LIMIT);
        let error = near.write_all(b"hello").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn who_reads_slowly_is_waited_for() {
        let (near, mut far) = duplex(4);
        let mut near = WriteTimeout::new(near, LIMIT * 4);
        let reading = tokio::spawn(async move {
            let mut read = [0; 2];
            for _ in 0..6 {
                tokio::time::sleep(LIMIT).await;
                far.read_exact(&mut read).await.unwrap();
            }
        });
        near.write_all(&[0; 12]).await.unwrap();
        reading.await.unwrap();
    }
}
