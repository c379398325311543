//! Sizes in bytes as people write them: 4GiB, 512M or 1000000.
//!
//! Invariant: units are powers of 1024, whatever their spelling, and a size is at least one byte.

/// Parses a size such as 4GiB, 512M or 1000000.
///
/// # Errors
/// A text that is none, as a message that says what was expected and what was found.
pub fn parse_size(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
    let unit = text[digits.len()..].trim().to_ascii_lowercase();
    let factor = match unit.trim_end_matches('b').trim_end_matches('i') {
        "" => 1.0,
        "k" => 1024.0,
        "m" => f64::from(1 << 20),
        "g" => f64::from(1 << 30),
        "t" => 1024.0 * f64::from(1 << 30),
        _ => return Err(format!("expected a size such as 4GiB, found {text:?}")),
    };
    let number: f64 =
        digits.parse().map_err(|_| format!("expected a size such as 4GiB, found {text:?}"))?;
    let size = number * factor;
    if !(1.0..1e18).contains(&size) {
        return Err(format!("expected a size of at least one byte, found {text:?}"));
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
            assert_eq!(parse_size(text).unwrap(), expected, "{text}");
        }
        for text in ["", "GiB", "-1G", "0", "4XB", "nan", "1e30", "4 Gigs"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
