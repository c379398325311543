//! Serving connections: HTTP/1 within limits of time, bytes and number, until each has ended.
//!
//! Invariant: nothing that a client does or leaves undone holds up another connection, or its own
//! for longer than the limits say.

use super::half_close::{AnswerBody, Exchange, HalfClose, RequestBody};
use super::listener::{Listener, Socket};
use super::timeouts::WriteTimeout;
use crate::http::caller::Peer;
use crate::http::error::HttpError;
use crate::http::hold::ConnectionHold;
use crate::http::options::ServerOptions;
use crate::http::shutdown::{Life, Phase};
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, StatusCode, Version};
use axum::response::{IntoResponse, Response};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tower::ServiceExt;

/// Longest time of a TLS handshake, unless heads have less.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Most refused connections at one time that are sent an error. Further ones are closed.
const MAX_REFUSALS: usize = 64;
/// Longest time to send it.
const REFUSAL: Duration = Duration::from_secs(1);

/// How connections are served.
#[derive(Clone, Debug)]
pub(crate) struct Connections {
    router: Router,
    http: http1::Builder,
    header_limit: usize,
    handshake: Duration,
    stall_timeout: Duration,
    slots: Arc<Semaphore>,
    refusals: Arc<Semaphore>,
    life: Life,
}

impl Connections {
    /// Serves `router` as `options` say, as long as `life` lasts.
    pub fn new(router: Router, options: &ServerOptions, life: Life) -> Self {
        let header_limit = options.header_limit.max(ServerOptions::MIN_HEADER_LIMIT);
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(options.header_timeout)
            .max_buf_size(header_limit);
        let slots = options.connections.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            router,
            http,
            header_limit,
            handshake: HANDSHAKE.min(options.header_timeout),
            stall_timeout: options.stall_timeout,
            slots: Arc::new(Semaphore::new(slots)),
            refusals: Arc::new(Semaphore::new(MAX_REFUSALS)),
            life,
        }
    }

    /// Accepts connections until the server drains, and waits until all have ended. Connections
    /// that are open when the future is dropped end with it.
    pub async fn serve(self, listener: Listener) {
        let life = self.life.clone();
        let mut draining = pin!(life.reached(Phase::Draining));
        let mut running = JoinSet::new();
        loop {
            tokio::select! {
                () = &mut draining => break,
                Some(_) = running.join_next() => {}
                (socket, peer) = listener.accept() => self.take(socket, peer, &mut running),
            }
        }
        drop(listener);
        while running.join_next().await.is_some() {}
    }

    fn take(&self, socket: Socket, peer: Peer, running: &mut JoinSet<()>) {
        if let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() {
            running.spawn(self.clone().greet(socket, peer, slot));
            return;
        }
        let refusal = Arc::clone(&self.refusals).try_acquire_owned();
        match (socket, refusal) {
            (Socket::Tcp(socket, None), Ok(place)) => _ = running.spawn(refuse(socket, place)),
            (Socket::Unix(socket), Ok(place)) => _ = running.spawn(refuse(socket, place)),
            // A handshake would be too much for what it has to say.
            _ => {}
        }
    }

    async fn greet(self, socket: Socket, peer: Peer, _slot: OwnedSemaphorePermit) {
        match socket {
            Socket::Tcp(socket, None) => self.answer(socket, peer).await,
            Socket::Unix(socket) => self.answer(socket, peer).await,
            Socket::Tcp(socket, Some(tls)) => {
                let shaken = tokio::select! {
                    shaken = tls.handshake(socket, self.handshake) => shaken,
                    () = self.life.reached(Phase::Draining) => return,
                };
                match shaken {
                    Ok(socket) => self.answer(socket, peer).await,
                    Err(error) => tracing::debug!(?peer, "no TLS handshake: {error}"),
                }
            }
        }
    }

    /// Answers the requests of a connection, and waits for the end of what the connection has
    /// become.
    async fn answer<S>(&self, socket: S, peer: Peer)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (hold, connection) = ConnectionHold::new();
        self.requests(socket, peer, hold).await;
        connection.released().await;
    }

    /// Answers the requests of a connection, one after the other; during a shutdown only the one
    /// that has begun.
    async fn requests<S>(&self, socket: S, peer: Peer, hold: ConnectionHold)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let exchange = Arc::new(Exchange::default());
        let service = hyper::service::service_fn(|request: hyper::Request<Incoming>| {
            let open = exchange.begin(request.body().is_end_stream());
            let chunks = request.version() >= Version::HTTP_11;
            let body = |body| Body::new(RequestBody::new(body, Arc::clone(&exchange)));
            let mut request = request.map(body);
            request.extensions_mut().insert(peer);
            request.extensions_mut().insert(hold.clone());
            let answer = self.respond(request);
            async move {
                Ok::<_, Infallible>(answer.await.map(|body| AnswerBody::new(body, open, chunks)))
            }
        });
        let socket = WriteTimeout::new(socket, self.stall_timeout);
        let io = TokioIo::new(HalfClose::new(socket, Arc::clone(&exchange)));
        let mut connection = pin!(self.http.serve_connection(io, service).with_upgrades());
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.life.reached(Phase::Draining) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(?peer, "a connection broke off: {error}");
        }
    }

    /// The answer to a request, unless its head is larger than allowed: what HTTP is read with
    /// takes up to twice as much.
    fn respond(&self, request: Request) -> impl Future<Output = Response> + use<> {
        let (limit, bytes) = (self.header_limit, head_bytes(&request));
        let router = self.router.clone();
        async move {
            if bytes <= limit {
                return router.oneshot(request).await.into_response();
            }
            let message =
                format!("the head is {bytes} bytes large; {limit} is allowed (header-limit)");
            let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
            HttpError::request(status, message).with_code("head_too_large").into_response()
        }
    }
}

/// The bytes of a request's head as it is commonly written.
fn head_bytes(request: &Request) -> usize {
    let line = request.method().as_str().len() + request.uri().to_string().len();
    let header = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len();
    // Between and after the parts of the request line stand 12 bytes, of a header 4.
    let headers = request.headers().iter().map(header).map(|bytes| bytes + 4);
    line + 12 + headers.sum::<usize>() + 2
}

/// Sends a client the error that there are too many connections.
async fn refuse<S: AsyncRead + AsyncWrite + Unpin>(socket: S, _place: OwnedSemaphorePermit) {
    // A client that does not listen is none that could be told.
    let _ = tokio::time::timeout(REFUSAL, tell_too_many(socket)).await;
}

async fn tell_too_many<S: AsyncRead + AsyncWrite + Unpin>(mut socket: S) -> io::Result<()> {
    let error = HttpError::server(StatusCode::SERVICE_UNAVAILABLE, "too many connections");
    let body = error.with_code("too_many_connections").body().to_string();
    let head = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n\
         connection: close\r\nretry-after: 1\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all((head + &body).as_bytes()).await?;
    socket.shutdown().await?;
    // What was sent and not read would cut the answer off.
    let mut rest = [0; 4096];
    while socket.read(&mut rest).await? > 0 {}
    Ok(())
}
