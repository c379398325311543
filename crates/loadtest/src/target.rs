//! The server under load: its address, its model, and requests to it.
//!
//! Invariant: connections go to this machine only, unless other machines are allowed.

use super::endpoint::Endpoint;
use super::measured_answer::{MeasuredAnswer, RequestFailure, Watcher, error_message};
use super::spec::{LoadSpec, ServerOptions};
use super::workload::LoadRequest;
use anyhow::{Context, Result, anyhow, bail};
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, Response, Url};
use serde_json::{Value, json};
use std::error::Error;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Timeout of a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Timeout of the list of models.
const LISTING: Duration = Duration::from_secs(30);
/// Maximum size of a response that is not a stream.
const MAX_BYTES: usize = 1 << 20;

/// One server and one of its models.
#[derive(Debug)]
pub(super) struct Target {
    /// Address with `/v1` and without a final slash.
    pub base: String,
    pub model: String,
    /// Vocabulary size. In a chat only the number of distinct words.
    pub vocabulary: usize,
    pub endpoint: Endpoint,
    temperature: f64,
    /// Maximum time of one request.
    timeout: Duration,
    key: Option<String>,
    client: Client,
}

impl Target {
    /// Finds the server at `url`, and asks it for what `options` leave out.
    ///
    /// # Errors
    /// If `url` is not an address, or is remote and that is not allowed, or the server cannot be
    /// reached, or does not say what is left out.
    pub async fn find(url: &str, options: &ServerOptions, load: &LoadSpec) -> Result<Self> {
        let url = parse(url)?;
        let mut target = Self {
            base: format!("{}/v1", url.as_str().trim_end_matches('/').trim_end_matches("/v1")),
            model: options.model.clone().unwrap_or_default(),
            vocabulary: options.vocab.unwrap_or_default(),
            endpoint: options.endpoint,
            temperature: load.temp,
            timeout: load.timeout,
            key: options.api_key.clone(),
            client: client(&url, options.allow_remote)?,
        };
        // Asked even if nothing is missing, so that a missing server shows before the load.
        let listed = target.list().await?;
        target.complete(&listed)?;
        Ok(target)
    }

    async fn list(&self) -> Result<Value> {
        let request = self.with_key(self.client.get(format!("{}/models", self.base)));
        let response = request.timeout(LISTING).send().await;
        let response = response
            .map_err(|error| anyhow!("cannot connect to {}: {}", self.base, cause(&error)))?;
        let status = response.status();
        let body = read(response)
            .await
            .with_context(|| format!("{}/models: the response broke off", self.base))?;
        if !status.is_success() {
            bail!("{}/models: {status}: {}", self.base, error_message(&body));
        }
        let listed = serde_json::from_slice(&body);
        listed.with_context(|| format!("{}/models is not JSON", self.base))
    }

    /// Fills in what the options left out.
    fn complete(&mut self, listed: &Value) -> Result<()> {
        let models = listed["data"].as_array().map_or(&[][..], Vec::as_slice);
        let named = models.iter().find(|model| model["id"] == self.model.as_str());
        let model = named.or(models.first()).unwrap_or(&Value::Null);
        if self.model.is_empty() {
            let name = model["id"].as_str().filter(|name| !name.is_empty());
            self.model = name
                .ok_or_else(|| anyhow!("{}/models names no model; give --model", self.base))?
                .to_owned();
        }
        if self.vocabulary == 0 {
            let said =
                model["meta"]["n_vocab"].as_u64().filter(|&size| (1..1 << 24).contains(&size));
            self.vocabulary = match (said, self.endpoint) {
                (Some(size), _) => size as usize,
                (None, Endpoint::Chat) => 1 << 16,
                (None, Endpoint::Completions) => bail!(
                    "{}/models does not report the vocabulary size of {} (meta.n_vocab); give --vocab",
                    self.base,
                    self.model
                ),
            };
        }
        Ok(())
    }

    /// Sends one request and reads its answer to the end, as far as the time allows.
    ///
    /// # Errors
    /// If the server cannot be reached, refuses the request, breaks off the answer, or takes too
    /// long.
    pub async fn send(&self, ask: &LoadRequest) -> Result<MeasuredAnswer, RequestFailure> {
        let late =
            |_| RequestFailure::new("timeout", format!("after {} s", self.timeout.as_secs()));
        timeout(self.timeout, self.answer(ask)).await.map_err(late)?
    }

    async fn answer(&self, ask: &LoadRequest) -> Result<MeasuredAnswer, RequestFailure> {
        let request = self.client.post(format!("{}/{}", self.base, self.endpoint.path()));
        let request = self.with_key(request).json(&self.body(ask));
        let mut watcher = Watcher::new(self.endpoint);
        let mut response = request.send().await.map_err(|error| failure(&error))?;
        let status = response.status();
        if !status.is_success() {
            let body = read(response).await.unwrap_or_default();
            let kind = format!("http {}", status.as_u16());
            return Err(RequestFailure::new(kind, error_message(&body)));
        }
        while let Some(bytes) = response.chunk().await.map_err(|error| failure(&error))? {
            watcher.push(&bytes, Instant::now())?;
        }
        watcher.finish(ask)
    }

    fn body(&self, ask: &LoadRequest) -> Value {
        let mut body = json!({
            "model": self.model,
            "max_tokens": ask.output,
            "ignore_eos": true,
            "temperature": self.temperature,
            "seed": ask.seed,
            "stream": true,
            "stream_options": { "include_usage": true },
        });
        match self.endpoint {
            Endpoint::Completions => body["prompt"] = json!(ask.prompt),
            Endpoint::Chat => {
                body["messages"] = json!([{ "role": "user", "content": ask.words() }]);
            }
        }
        body
    }

    fn with_key(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }
}

/// Parses an address; `http://` may be left out.
fn parse(text: &str) -> Result<Url> {
    let whole = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let url = Url::parse(&whole).with_context(|| format!("{text}: not an address"))?;
    if url.scheme() != "http" {
        bail!("{text}: expected an http:// address, found {}://", url.scheme());
    }
    if url.query().is_some() || url.fragment().is_some() {
        bail!("{text}: expected the server's address without a query");
    }
    Ok(url)
}

/// A client that connects only to the current addresses of the host: it follows no redirects and
/// uses no proxy.
fn client(url: &Url, allow_remote: bool) -> Result<Client> {
    let host = url.host_str().unwrap_or_default();
    let addresses = url.socket_addrs(|| None).with_context(|| format!("cannot find {host}"))?;
    if !allow_remote && !addresses.iter().all(|address| address.ip().is_loopback()) {
        bail!("{host} is not this machine; --allow-remote allows it");
    }
    let builder = Client::builder().no_proxy().redirect(Policy::none()).connect_timeout(CONNECT);
    // One connection per request: a server may close an idle connection just when it is reused.
    let builder = builder.pool_max_idle_per_host(0);
    let client = builder.resolve_to_addrs(host, &addresses).build();
    client.context("cannot make a client")
}

/// Reads a body of bounded size.
async fn read(mut response: Response) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    while let Some(bytes) = response.chunk().await? {
        body.extend_from_slice(&bytes);
        if body.len() > MAX_BYTES {
            bail!("more than {MAX_BYTES} bytes");
        }
    }
    Ok(body)
}

fn failure(error: &reqwest::Error) -> RequestFailure {
    let kind = match error {
        error if error.is_connect() => "no connection",
        error if error.is_timeout() => "timeout",
        _ => "broken off",
    };
    RequestFailure::new(kind, cause(error))
}

/// The innermost cause, usually an error of the system.
fn cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_may_be_written_in_short() {
        for text in ["127.0.0.1:8080", "localhost:8080", "http://[::1]:8080/v1/"] {
            assert_eq!(parse(text).unwrap().port(), Some(8080), "{text}");
        }
        for text in ["https://127.0.0.1", "ftp://a", "http://", "http://a/?b"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn other_machines_are_refused_unless_allowed() {
        let client = |text: &str, allowed| client(&parse(text).unwrap(), allowed);
        assert!(client("127.0.0.1:1", false).is_ok() && client("[::1]:1", false).is_ok());
        assert!(client("192.0.2.1:1", true).is_ok());
        let refused = client("192.0.2.1:1", false).unwrap_err().to_string();
        assert!(refused.contains("192.0.2.1") && refused.contains("--allow-remote"), "{refused}");
    }
}
