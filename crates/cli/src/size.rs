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

/// The numbers of positions that a KV block can have.
pub(crate) const BLOCKS: [&str; 6] = ["16", "32", "64", "128", "256", "512"];

/// Parses a number of positions of a KV block.
pub(crate) fn block(text: &str) -> Result<usize> {
    let known = BLOCKS.contains(&text).then(|| text.parse().ok()).flatten();
    known.with_context(|| format!("expected one of {}, found {text:?}", BLOCKS.join(", ")))
}

/// Parses a size such as 4GiB, 512M or 1000000.
pub(crate) fn bytes(text: &str) -> Result<usize> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
    let unit = text[digits.len()..].trim().to_ascii_lowercase();
    let factor = match unit.trim_end_matches('b').trim_end_matches('i') {
        "" => 1.0,
        "k" => 1024.0,
        "m" => f64::from(1 << 20),
        "g" => f64::from(1 << 30),
        "t" => 1024.0 * f64::from(1 << 30),
        _ => anyhow::bail!("expected a size such as 4GiB, found {text:?}"),
    };
    let number: f64 = digits.parse().with_context(|| format!("expected a size, found {text:?}"))?;
    let size = number * factor;
    if !(1.0..1e18).contains(&size) {
        anyhow::bail!("expected a size of at least one byte, found {text:?}");
    }
    Ok(size as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_of_1024() {
        let sizes = [("4GiB", 4 << 30), ("512M", 512 << 20), ("1.5 kb", 1536), ("77", 77)];
        for (text, expected) in sizes {
            assert_eq!(bytes(text).unwrap(), expected, "{text}");
        }
        for text in ["", "GiB", "-1G", "0", "4XB", "nan", "1e30", "4 Gigs"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
