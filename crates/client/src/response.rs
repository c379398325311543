//! One request and the response to it, on the caller's thread.
//!
//! Invariant: a response that is dropped has closed its connection, and nothing runs on.

use super::error::ClientError;
use super::origin::{AnswerOrigin, cause};
use super::route::Route;
use super::wait::{Interrupted, Wait, within};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, LOCATION, PROXY_AUTHORIZATION, USER_AGENT};
use hyper::{Method, Request, Response};
use tokio::runtime::{Builder, Runtime};

/// Maximum size of an answer in bytes.
pub(super) const MAX_ANSWER: usize = 64 << 20;
/// Maximum size of the body of an error in bytes.
pub(super) const MAX_ERROR: usize = 64 << 10;
const AGENT: &str = concat!("gannet/", env!("CARGO_PKG_VERSION"));

/// A request: a route below the address of the server, and a body to send.
#[derive(Debug)]
pub(super) struct Outgoing<'a> {
    pub route: &'a str,
    /// JSON; with it the method is `POST`, without it `GET`.
    pub body: Option<Vec<u8>>,
}

/// The successful response to one request.
#[derive(Debug)]
pub(super) struct OpenResponse {
    response: Response<Incoming>,
    runtime: OwnRuntime,
    pub origin: AnswerOrigin,
    /// Bytes of the body received.
    received: usize,
}

/// A runtime for one request. It is dropped without waiting for a look-up of a host's addresses.
#[derive(Debug)]
struct OwnRuntime(Option<Runtime>);

impl OpenResponse {
    /// Sends a request and waits for the head of a successful response.
    ///
    /// # Errors
    /// If the server cannot be reached, refuses the request, or is silent for too long, or the
    /// caller cancels.
    pub fn to(
        asked: Outgoing<'_>,
        route: &Route,
        origin: AnswerOrigin,
        wait: Wait<'_>,
    ) -> Result<Self, ClientError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| origin.connection(&error.to_string()))?;
        let runtime = OwnRuntime(Some(runtime));
        let request = request(asked, route, &origin)?;
        let sent = runtime.wait(wait, &origin, send(route, request))?;
        let response = sent.map_err(|problem| origin.connection(&problem))?;
        let mut open = Self { response, runtime, origin, received: 0 };
        match open.response.status().is_success() {
            true => Ok(open),
            false => Err(open.refusal(wait)),
        }
    }

    /// The value of `Content-Type` without parameters, if there is one.
    pub fn content_type(&self) -> Option<&str> {
        let value = self.response.headers().get(CONTENT_TYPE)?.to_str().ok()?;
        Some(value.split(';').next().unwrap_or_default().trim())
    }

    /// The next bytes of the body; `None` at its end.
    ///
    /// # Errors
    /// If the connection fails, the answer is too large, nothing comes for too long, or the caller
    /// cancels.
    pub fn chunk(&mut self, wait: Wait<'_>) -> Result<Option<Bytes>, ClientError> {
        let (runtime, body) = (&self.runtime, self.response.body_mut());
        let bytes = runtime.wait(wait, &self.origin, data(body))?;
        let bytes = bytes.map_err(|error| self.origin.connection(&cause(&error)))?;
        self.received += bytes.as_ref().map_or(0, Bytes::len);
        match self.received > MAX_ANSWER {
            true => Err(self.origin.too_large("an answer", MAX_ANSWER)),
            false => Ok(bytes),
        }
    }

    /// The whole body.
    ///
    /// # Errors
    /// As [`OpenResponse::chunk`], and if it has more than `limit` bytes.
    pub fn whole(&mut self, limit: usize, wait: Wait<'_>) -> Result<Vec<u8>, ClientError> {
        let mut body = Vec::new();
        while let Some(bytes) = self.chunk(wait)? {
            if body.len() + bytes.len() > limit {
                return Err(self.origin.too_large("an answer", limit));
            }
            body.extend_from_slice(&bytes);
        }
        Ok(body)
    }

    /// The error of a response that is not successful.
    fn refusal(&mut self, wait: Wait<'_>) -> ClientError {
        let status = self.response.status();
        if status.is_redirection() {
            let location = self.response.headers().get(LOCATION);
            let location = location.and_then(|value| value.to_str().ok()).unwrap_or("elsewhere");
            let message = format!("redirects are not followed: {location}");
            return self.origin.refused(Some(status.as_u16()), message.as_bytes());
        }
        let body = match self.beginning(MAX_ERROR, wait) {
            Ok(body) if body.trim_ascii().is_empty() => {
                status.canonical_reason().unwrap_or_default().as_bytes().to_vec()
            }
            Ok(body) => body,
            Err(error) => return error,
        };
        self.origin.refused(Some(status.as_u16()), &body)
    }

    /// The first bytes of the body, up to its end, to a failure of the connection or to the limit.
    ///
    /// # Errors
    /// If the caller cancels.
    pub fn beginning(&mut self, limit: usize, wait: Wait<'_>) -> Result<Vec<u8>, ClientError> {
        let mut body = Vec::new();
        while body.len() < limit {
            match self.chunk(wait) {
                Ok(Some(bytes)) => body.extend_from_slice(&bytes),
                Err(ClientError::Cancelled) => return Err(ClientError::Cancelled),
                Ok(None) | Err(_) => break,
            }
        }
        body.truncate(limit);
        Ok(body)
    }
}

impl OwnRuntime {
    fn wait<T>(
        &self,
        wait: Wait<'_>,
        origin: &AnswerOrigin,
        future: impl Future<Output = T>,
    ) -> Result<T, ClientError> {
        let Some(runtime) = &self.0 else {
            return Err(origin.connection("the connection is closed"));
        };
        let interrupted = |interrupted| match interrupted {
            Interrupted::Cancelled => ClientError::Cancelled,
            Interrupted::Idle => ClientError::Idle { url: origin.url.clone(), idle: wait.idle },
        };
        runtime.block_on(within(wait, future)).map_err(interrupted)
    }
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

async fn send(route: &Route, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, String> {
    let mut connection = route.open().await?;
    connection.send_request(request).await.map_err(|error| cause(&error))
}

/// The next bytes of a body.
async fn data(body: &mut Incoming) -> Result<Option<Bytes>, hyper::Error> {
    while let Some(frame) = body.frame().await {
        // Other frames are trailers.
        if let Ok(bytes) = frame?.into_data() {
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}

fn request(
    asked: Outgoing<'_>,
    route: &Route,
    origin: &AnswerOrigin,
) -> Result<Request<Full<Bytes>>, ClientError> {
    let (target, proxy) = route.target(asked.route);
    let method = if asked.body.is_some() { Method::POST } else { Method::GET };
    let request = Request::builder().method(method).uri(target);
    let mut request = request.header(HOST, route.host()).header(USER_AGENT, AGENT);
    if asked.body.is_some() {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    if let Some(key) = &origin.key {
        request = request.header(AUTHORIZATION, key.header());
    }
    if let Some(proxy) = proxy {
        request = request.header(PROXY_AUTHORIZATION, proxy);
    }
    let request = request.body(Full::from(asked.body.unwrap_or_default()));
    request.map_err(|error| origin.connection(&error.to_string()))
}
