//! Token ids in files.

use anyhow::{Context, Result};
use std::path::Path;

/// Most bytes of a file of ids.
const MAX_BYTES: u64 = 1 << 28;

/// Reads ids: a JSON array of them, or numbers with white space or commas between them.
pub(super) fn read(path: &Path) -> Result<Vec<u32>> {
    let text = formats::read_text(path, MAX_BYTES)?;
    let context = || format!("{}: expected token ids", path.display());
    parse(&text).with_context(context)
}

fn parse(text: &str) -> Result<Vec<u32>> {
    if text.trim_start().starts_with('[') {
        return Ok(serde_json::from_str(text)?);
    }
    let numbers = text.split(|c: char| c.is_whitespace() || c == ',').filter(|it| !it.is_empty());
    numbers.map(|it| it.parse().with_context(|| format!("found {it:?}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_an_array_or_numbers() {
        for text in ["[1, 2,\n 30]", "1 2 30", "1,2, 30\n"] {
            assert_eq!(parse(text).unwrap(), [1, 2, 30], "{text:?}");
        }
        for text in ["[1, -2]", "1 x", "[1", "4294967296"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}
