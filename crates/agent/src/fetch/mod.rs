//! Pages of the network as text: what the tool `fetch` does once a call is allowed.
//!
//! - [`PageUrl`] is a URL that can be fetched, in the form that questions and rules look at.
//! - [`Fetch`] gets a page, and [`Fetched`] is what came.
//!
//! Invariant: only public addresses are connected to, and memory and time of a call are limited
//! whatever the server sends. Proxies that the environment names are not used, since they would
//! resolve names themselves.

mod address;
mod error;
mod exchange;
mod html;
mod media;
mod page;
mod simplify;
mod tag;
#[cfg(test)]
mod tests;

pub use error::FetchError;
pub use page::PageUrl;

use exchange::{Network, Received, client, receive};
use html::PageText;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// The time for a call, with its redirects.
const MAX_TIME: Duration = Duration::from_secs(60);

/// The time between two looks at whether a call is cancelled.
const LOOK: Duration = Duration::from_millis(50);

/// Most threads of calls, with those of cancelled calls that still wait for a name.
const MAX_THREADS: usize = 8;

/// Bytes of the stack of such a thread: more than a page's depth needs.
const STACK_BYTES: usize = 4 << 20;

/// Gets pages. Requests carry no cookies, no referrer and no credentials.
#[derive(Debug)]
pub struct Fetch {
    network: Network,
    time: Duration,
    /// As many more references as there are threads.
    threads: Arc<()>,
}

/// A page, or what else a server answered as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The URL after redirects.
    pub url: String,
    /// HTTP status, which may be that of an error.
    pub status: u16,
    /// Type and subtype in lower case, from the server or guessed: `text/html`.
    pub media_type: String,
    /// The text: of HTML its content with headings, lists and links as in Markdown. It may hold
    /// any characters.
    pub text: String,
    /// Whether the body was longer than 2 MiB or had too many elements, so that the text is not
    /// the whole.
    pub is_cut: bool,
}

impl Default for Fetch {
    fn default() -> Self {
        Self { network: Network::default(), time: MAX_TIME, threads: Arc::default() }
    }
}

impl Fetch {
    /// Gets the page at `url`. A status of an error is a result as others are.
    ///
    /// `is_cancelled` is called at least every 100 ms. When it returns true or 60 seconds have
    /// passed, the connection is closed and the call ends.
    ///
    /// # Errors
    ///
    /// If the URL cannot be fetched, a host has an address that is not public, a redirect leads to
    /// another host, the server cannot be reached, the answer is not text, or the call is cancelled
    /// or takes too long.
    pub fn get(&self, url: &str, is_cancelled: impl Fn() -> bool) -> Result<Fetched, FetchError> {
        let page = PageUrl::parse(url)?;
        let end = Instant::now() + self.time;
        // The client's own limit of time is for a thread whose call has ended.
        let client = client(&self.network, self.time + LOOK);
        let (thread_client, start) = (client.clone(), page.clone());
        let answer = self
            .start(move || receive(&thread_client, &start).map(Fetched::from))
            .map_err(|problem| FetchError::network(page.as_str(), problem))?;
        let found = self.wait(&page, &answer, &is_cancelled, end);
        // Ends the requests of a thread that is still at work.
        client.shutdown();
        found
    }

    /// The result, when it comes before the call is cancelled and its time has passed.
    fn wait(
        &self,
        page: &PageUrl,
        answer: &Receiver<Result<Fetched, FetchError>>,
        is_cancelled: &impl Fn() -> bool,
        end: Instant,
    ) -> Result<Fetched, FetchError> {
        let url = page.to_string();
        loop {
            if is_cancelled() {
                return Err(FetchError::Cancelled { url });
            }
            if Instant::now() >= end {
                return Err(FetchError::TimedOut { url, seconds: self.time.as_secs() });
            }
            match answer.recv_timeout(LOOK) {
                Ok(found) => return found,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(FetchError::network(&url, "the answer could not be read"));
                }
            }
        }
    }

    /// Starts a thread and returns where its result comes.
    fn start<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Receiver<T>, String> {
        if Arc::strong_count(&self.threads) > MAX_THREADS {
            return Err(format!("{MAX_THREADS} earlier calls have not ended yet"));
        }
        let (sender, receiver) = channel();
        let running = Arc::clone(&self.threads);
        let work = move || {
            // The result of a call that is cancelled is not received.
            let _ = sender.send(work());
            drop(running);
        };
        let builder = Builder::new().name("fetch".to_owned()).stack_size(STACK_BYTES);
        builder.spawn(work).map_err(|error| format!("cannot start a thread: {error}"))?;
        Ok(receiver)
    }
}

impl From<Received> for Fetched {
    fn from(received: Received) -> Self {
        let Received { url, status, media, bytes, is_cut } = received;
        let text = media.decode(&bytes, is_cut);
        let page = match media.is_html() {
            true => PageText::of(&text),
            false => PageText { text, is_cut: false },
        };
        Self {
            url: url.to_string(),
            status,
            media_type: media.name,
            text: page.text,
            is_cut: is_cut || page.is_cut,
        }
    }
}

impl Fetched {
    /// Whether the status is that of success.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The answer as a text for the model: a line that says what it is, and the text.
    pub fn report(&self) -> String {
        let Self { url, status, media_type, text, is_cut } = self;
        let cut = if *is_cut { ", cut: the page is longer" } else { "" };
        format!("{url} (HTTP status {status}, {media_type}{cut})\n\n{text}")
    }
}
