//! Sizes in bytes and counts, as users write them.

use anyhow::{Context, Result};
use engine::MAX_THREADS;

/// Parses a number of things of which there is at least one.
pub(crate) fn count(text: &str) -> Result<usize> {
    let count = text.parse().ok().filter(|count| *count > 0);
    count.with_context(|| format!("expected a number from 1 on, found {text:?}"))
}

/// Parses a number of threads; 0 for all cores.
pub(crate) fn threads(text: &str) -> Result<usize> {
    let threads = text.parse().ok().filter(|threads| *threads <= MAX_THREADS);
    threads.with_context(|| format!("expected a number from 0 to {MAX_THREADS}, found {text:?}"))
}

/// Parses a size of memory that may be none: 0, or a size such as 64MiB.
pub(crate) fn bytes_or_none(text: &str) -> Result<usize> {
    if text == "0" { Ok(0) } else { bytes(text) }
}

/// Parses a size such as 4GiB, 512M or 1000000.
pub(crate) fn bytes(text: &str) -> Result<usize> {
    base::parse_size(text).map_err(anyhow::Error::msg)
}
