//! Clients that send nothing more while their request is answered.
//!
//! The end of what a client sends has two reasons: it waits for the answer with its sending side
//! closed, as HTTP allows, or it has left. Only writing tells them apart, because the system of a
//! client that has left refuses what comes. At growing intervals one byte is therefore sent that
//! comes next in any case: until the answer begins, of the bytes with which every answer begins;
//! between the chunks of a stream, a zero before the size of the next.
//!
//! Invariant: a client receives exactly the heads and bodies of its answers.

use hyper::body::{Body, Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// What every answer begins with.
const BEGINNING: &[u8] = b"HTTP/1.";
/// How long after the byte before each byte is sent.
const INTERVALS_MS: [u64; BEGINNING.len()] = [50, 100, 300, 1000, 3000, 10_000, 30_000];

/// The request of a connection that is answered.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    /// There is one.
    open: AtomicBool,
    /// Its body is complete.
    received: AtomicBool,
    /// Something was written since.
    answered: AtomicBool,
    /// The body of the answer is sent in chunks.
    chunked: AtomicBool,
}

impl Exchange {
    /// A request begins, whose body has yet to be received.
    pub fn begin(self: &Arc<Self>, complete: bool) -> OpenExchange {
        self.open.store(true, Ordering::Relaxed);
        self.receive(complete);
        OpenExchange(Arc::clone(self))
    }

    fn receive(&self, complete: bool) {
        self.received.store(complete, Ordering::Relaxed);
        // What was written before asked the client for its body.
        self.answered.store(false, Ordering::Relaxed);
        self.chunked.store(false, Ordering::Relaxed);
    }
}

/// An exchange that is open until it is dropped.
#[derive(Debug)]
pub(super) struct OpenExchange(Arc<Exchange>);

impl Drop for OpenExchange {
    fn drop(&mut self) {
        self.0.open.store(false, Ordering::Relaxed);
    }
}

/// The body of a request, whose end is noted.
#[derive(Debug)]
pub(super) struct RequestBody<B> {
    inner: B,
    exchange: Arc<Exchange>,
}

impl<B> RequestBody<B> {
    /// The body `inner` of the request of `exchange`.
    pub fn new(inner: B, exchange: Arc<Exchange>) -> Self {
        Self { inner, exchange }
    }
}

impl<B: Body + Unpin> Body for RequestBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(context));
        if frame.is_none() || self.inner.is_end_stream() {
            self.exchange.receive(true);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// The body of an answer, with whose end the exchange ends.
#[derive(Debug)]
pub(super) struct AnswerBody<B> {
    inner: B,
    _exchange: OpenExchange,
}

impl<B: Body> AnswerBody<B> {
    /// The body `inner` of the answer that ends `exchange`, to a client that reads chunks or not.
    pub fn new(inner: B, exchange: OpenExchange, reads_chunks: bool) -> Self {
        let chunked = reads_chunks && inner.size_hint().exact().is_none();
        exchange.0.chunked.store(chunked, Ordering::Relaxed);
        Self { inner, _exchange: exchange }
    }
}

impl<B: Body + Unpin> Body for AnswerBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.inner).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// A stream that ends only when nothing has to be answered.
#[derive(Debug)]
pub(super) struct HalfClose<S> {
    inner: S,
    exchange: Arc<Exchange>,
    /// When the next byte is sent to a client that sends nothing more.
    ended: Option<Pin<Box<Sleep>>>,
    /// Bytes that were sent to find out whether the client has left, since it was last written to.
    probes: usize,
    /// Bytes of the beginning among them.
    begun: usize,
    /// The last bytes of what was written.
    tail: [u8; 2],
}

impl<S: AsyncRead + AsyncWrite + Unpin> HalfClose<S> {
    /// The stream `inner` with the requests of `exchange`.
    pub fn new(inner: S, exchange: Arc<Exchange>) -> Self {
        Self { inner, exchange, ended: None, probes: 0, begun: 0, tail: [0; 2] }
    }

    fn is(&self, state: impl Fn(&Exchange) -> &AtomicBool) -> bool {
        state(&self.exchange).load(Ordering::Relaxed)
    }

    /// Waits until the end may be told, or the client is found to have left.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.is(|it| &it.open) {
            let Some(&wait) = INTERVALS_MS.get(self.probes) else { return Poll::Pending };
            let wait = Duration::from_millis(wait);
            let timer = self.ended.get_or_insert_with(|| Box::pin(sleep(wait)));
            ready!(timer.as_mut().poll(context));
            if !self.is(|it| &it.received) {
                return Poll::Ready(Ok(()));
            }
            let answered = self.is(|it| &it.answered);
            let next = match answered {
                false => &BEGINNING[self.begun..=self.begun],
                true if self.is(|it| &it.chunked) && self.tail == *b"\r\n" => b"0",
                true => return Poll::Pending,
            };
            let sent = ready!(Pin::new(&mut self.inner).poll_write(context, next))?;
            self.begun += if answered { 0 } else { sent };
            self.probes += 1;
            self.ended = None;
            let _ = Pin::new(&mut self.inner).poll_flush(context)?;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for HalfClose<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ended.is_none() && self.probes == 0 {
            let room = buffer.remaining();
            ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
            if room == 0 || buffer.remaining() < room {
                return Poll::Ready(Ok(()));
            }
        }
        self.poll_end(context)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for HalfClose<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.exchange.answered.store(true, Ordering::Relaxed);
        let begun = self.begun;
        let rest = bytes.strip_prefix(&BEGINNING[..begun]);
        let rest = rest.ok_or_else(|| io::Error::other("the answer begins with other bytes"))?;
        let written = ready!(Pin::new(&mut self.inner).poll_write(context, rest))?;
        for &byte in &rest[written.saturating_sub(2)..written] {
            self.tail = [self.tail[1], byte];
        }
        (self.probes, self.begun) = (0, 0);
        if let Some(timer) = &mut self.ended {
            timer.as_mut().reset(Instant::now() + Duration::from_millis(INTERVALS_MS[0]));
            // Nothing else might wake the connection before the next chunk.
            let _ = timer.as_mut().poll(context);
        }
        Poll::Ready(Ok(begun + written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::timeout;

    const SOON: Duration = Duration::from_millis(200);

    /// A stream whose client sends nothing more, and the client.
    async fn ended() -> (HalfClose<DuplexStream>, DuplexStream, Arc<Exchange>) {
        let (near, mut far) = duplex(64);
        far.shutdown().await.unwrap();
        let exchange = Arc::new(Exchange::default());
        (HalfClose::new(near, Arc::clone(&exchange)), far, exchange)
    }

    #[tokio::test]
    async fn the_end_is_told_when_nothing_is_to_be_answered() {
        let (mut near, _far, exchange) = ended().await;
        let open = exchange.begin(true);
        assert!(timeout(SOON, near.read_u8()).await.is_err());
        drop(open);
        assert!(timeout(SOON, near.read_u8()).await.unwrap().is_err());
        // A request that is cut off has its end at once.
        let (mut near, _far, exchange) = ended().await;
        let _open = exchange.begin(false);
        assert!(timeout(SOON, near.read_u8()).await.unwrap().is_err());
    }

    #[tokio::test]
    async fn a_client_that_waits_receives_the_bytes_of_its_answer() {
        let (mut near, mut far, exchange) = ended().await;
        let open = exchange.begin(true);
        assert!(timeout(SOON, near.read_u8()).await.is_err());
        assert!(near.begun > 0);
        near.write_all(b"HTTP/1.1 200 OK").await.unwrap();
        drop((near, open));
        let mut answer = String::new();
        far.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "HTTP/1.1 200 OK");
    }

    #[tokio::test]
    async fn chunks_may_have_zeros_before_their_size() {
        let (mut near, mut far, exchange) = ended().await;
        let open = exchange.begin(true);
        near.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        let stream = futures_util::stream::pending::<Result<&'static str, io::Error>>();
        let body = AnswerBody::new(axum::body::Body::from_stream(stream), open, true);
        assert!(timeout(SOON, near.read_u8()).await.is_err());
        near.write_all(b"1\r\nx\r\n").await.unwrap();
        drop((near, body));
        let mut answer = String::new();
        far.read_to_string(&mut answer).await.unwrap();
        let size = answer.strip_prefix("HTTP/1.1 200 OK\r\n\r\n").unwrap();
        let chunk = size.trim_start_matches('0');
        assert!(chunk == "1\r\nx\r\n" && size.len() > chunk.len(), "{answer:?}");
    }

    #[tokio::test]
    async fn a_client_that_has_left_is_noticed_before_the_answer() {
        let (mut near, far, exchange) = ended().await;
        let _open = exchange.begin(true);
        drop(far);
        let error = timeout(SOON, near.read_u8()).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
