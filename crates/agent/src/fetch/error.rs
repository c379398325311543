//! Why a page could not be fetched.

use std::net::IpAddr;

/// Most characters of an invalid URL that an error shows.
const MAX_SHOWN: usize = 200;

/// Why a page could not be fetched; the text is for the model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// The URL cannot be fetched, whatever the server is.
    #[error("{url}: {problem}")]
    Url {
        /// The URL, escaped and shortened.
        url: String,
        /// What was expected and found.
        problem: String,
    },
    /// The host has an address that is not public.
    #[error("{host}: expected public addresses, found {address}")]
    Private {
        /// The host and the port.
        host: String,
        /// The address.
        address: IpAddr,
    },
    /// A redirect leads to another host or port, or from https to http.
    #[error("{from} redirects to {to}, which is elsewhere: fetch that URL if it is of use")]
    Elsewhere {
        /// The URL that redirects.
        from: String,
        /// The URL that it redirects to.
        to: String,
    },
    /// There are too many redirects.
    #[error("{url}: more than {max} redirects")]
    Redirects {
        /// The URL that was asked for.
        url: String,
        /// How many are followed.
        max: usize,
    },
    /// The answer is not text.
    #[error("{url}: expected text, found {media_type} ({size}; HTTP status {status})")]
    NotText {
        /// The URL of the answer.
        url: String,
        /// HTTP status.
        status: u16,
        /// What the answer is.
        media_type: String,
        /// Its size, as the server says it.
        size: String,
    },
    /// The server could not be reached, or the connection failed.
    #[error("cannot fetch {url}: {problem}")]
    Network {
        /// The URL.
        url: String,
        /// What went wrong.
        problem: String,
    },
    /// The time limit has passed.
    #[error("cannot fetch {url}: no complete answer within {seconds} seconds")]
    TimedOut {
        /// The URL that was asked for.
        url: String,
        /// The limit.
        seconds: u64,
    },
    /// The caller has cancelled the call.
    #[error("cannot fetch {url}: cancelled")]
    Cancelled {
        /// The URL that was asked for.
        url: String,
    },
}

impl FetchError {
    /// An error of a URL that may be any text.
    pub(crate) fn url(url: &str, problem: impl Into<String>) -> Self {
        let mut shown: String = url.chars().take(MAX_SHOWN).flat_map(char::escape_debug).collect();
        if url.chars().nth(MAX_SHOWN).is_some() {
            shown.push('…');
        }
        Self::Url { url: shown, problem: problem.into() }
    }

    /// An error of the connection to a checked URL.
    pub(crate) fn network(url: &str, problem: impl ToString) -> Self {
        Self::Network { url: url.to_owned(), problem: problem.to_string() }
    }
}
