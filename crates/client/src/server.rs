//! A server with OpenAI's protocol.

use super::chat::ChatQuery;
use super::error::ClientError;
use super::key::BearerKey;
use super::models::{self, ListedModel, MAX_LIST};
use super::origin::AnswerOrigin;
use super::response::{MAX_ANSWER, OpenResponse, Outgoing};
use super::route::Route;
use super::score::{self, ScoreQuery, ScoredText};
use super::stream::ChatStream;
use super::url::BaseUrl;
use super::wait::Wait;
use hyper_util::client::proxy::matcher::Matcher;
use serde_json::Value;

/// The address of a server, the key that is sent to it, and how it is reached.
///
/// Its functions wait on the caller's thread, which must not be one that runs async code.
#[derive(Clone, Debug)]
pub struct RemoteServer {
    base: BaseUrl,
    key: Option<BearerKey>,
    route: Route,
}

impl RemoteServer {
    /// The server at `url`, such as `http://127.0.0.1:8080` or `https://api.example.com/v1`. An
    /// address without a path means `/v1`; other paths are taken as they are. `http://` may be left
    /// out. No connection is made yet.
    ///
    /// # Errors
    /// If the address is no address of a server or contains a user name or a query, a header cannot
    /// carry the key, or the proxy that the environment names is not one of plain HTTP.
    pub fn new(url: &str, key: Option<&str>) -> Result<Self, ClientError> {
        Self::with_proxies(url, key, &Matcher::from_env())
    }

    /// The server at `url`, with the proxies of `matcher`.
    fn with_proxies(url: &str, key: Option<&str>, matcher: &Matcher) -> Result<Self, ClientError> {
        let base = BaseUrl::parse(url)?;
        let unfit = || ClientError::Setting {
            subject: "the API key".to_owned(),
            problem: "expected one line of visible characters".to_owned(),
        };
        let key = key.filter(|key| !key.trim().is_empty());
        let key = key.map(|key| BearerKey::new(key).ok_or_else(unfit)).transpose()?;
        let route = Route::new(&base, matcher)?;
        Ok(Self { base, key, route })
    }

    /// The same server, whose certificate may also be signed by one of those in `pem`.
    ///
    /// # Errors
    /// If there is no certificate in `pem`, or one cannot be read.
    pub fn trusting(mut self, pem: &[u8]) -> Result<Self, ClientError> {
        self.route.trust(pem)?;
        Ok(self)
    }

    /// The address with its path and without a final slash.
    pub fn url(&self) -> String {
        self.base.url("")
    }

    /// Asks for an answer to a conversation (`POST /v1/chat/completions`), and waits until the
    /// stream begins.
    ///
    /// # Errors
    /// If the server cannot be reached, refuses the request, answers without a stream of events, is
    /// silent for too long, or the caller cancels.
    ///
    /// # Panics
    /// If the caller is async code.
    pub fn chat(&self, query: &ChatQuery, wait: Wait<'_>) -> Result<ChatStream, ClientError> {
        let response = self.post("/chat/completions", &query.body(), wait)?;
        ChatStream::new(response, wait)
    }

    /// Lists the models (`GET /v1/models`).
    ///
    /// # Errors
    /// If the server cannot be reached, refuses the request, sends no list of models, is silent for
    /// too long, or the caller cancels.
    ///
    /// # Panics
    /// If the caller is async code.
    pub fn models(&self, wait: Wait<'_>) -> Result<Vec<ListedModel>, ClientError> {
        let asked = Outgoing { route: "/models", body: None };
        let mut response = self.open(asked, wait)?;
        let body = response.whole(MAX_LIST, wait)?;
        models::read(&body, &response.origin)
    }

    /// Asks for the log probabilities of a text's tokens (`POST /v1/completions` with `echo`).
    ///
    /// # Errors
    /// If the server cannot be reached, refuses the request, sends no log probabilities of all
    /// tokens, is silent for too long, or the caller cancels.
    ///
    /// # Panics
    /// If the caller is async code.
    pub fn score(&self, query: &ScoreQuery, wait: Wait<'_>) -> Result<ScoredText, ClientError> {
        let mut response = self.post("/completions", &query.body(), wait)?;
        let body = response.whole(MAX_ANSWER, wait)?;
        score::read(&body, &response.origin)
    }

    fn post(&self, route: &str, body: &Value, wait: Wait<'_>) -> Result<OpenResponse, ClientError> {
        self.open(Outgoing { route, body: Some(body.to_string().into_bytes()) }, wait)
    }

    fn open(&self, asked: Outgoing<'_>, wait: Wait<'_>) -> Result<OpenResponse, ClientError> {
        let origin = AnswerOrigin { url: self.base.url(asked.route), key: self.key.clone() };
        OpenResponse::to(asked, &self.route, origin, wait)
    }
}

#[cfg(test)]
mod tests;
