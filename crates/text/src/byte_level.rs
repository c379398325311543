//! The printable alphabet of byte-level BPE: every byte has one character.
//!
//! Printable bytes keep their own character; the others take U+0100 onwards in order, as in GPT-2.

use std::sync::LazyLock;

/// Characters U+0000..U+0144 to their byte; `None` where no byte has that character.
static BYTE_OF_CHAR: LazyLock<[Option<u8>; 324]> = LazyLock::new(|| {
    let mut table = [None; 324];
    let mut next = 256;
    for byte in 0..=255u8 {
        let printable = matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
        let slot = if printable { usize::from(byte) } else { next };
        next += usize::from(!printable);
        table[slot] = Some(byte);
    }
    table
});

/// Returns the bytes of a token written in the alphabet; `None` if a character is not in it.
pub(crate) fn decode(token: &str) -> Option<Vec<u8>> {
    token.chars().map(|c| BYTE_OF_CHAR.get(c as usize).copied().flatten()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alphabet_covers_every_byte_once() {
        let mut bytes: Vec<u8> = BYTE_OF_CHAR.iter().flatten().copied().collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
    }

    #[test]
    fn known_characters_decode() {
        assert_eq!(decode("Ġa").unwrap(), b" a");
        assert_eq!(decode("Ċ").unwrap(), b"\n");
        assert_eq!(decode("Ã©").unwrap(), "é".as_bytes());
        assert_eq!(decode("<｜User｜>"), None);
    }
}
