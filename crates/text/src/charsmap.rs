//! Checks of a `precompiled_charsmap`, the table of replacements of a SentencePiece normalizer.
//!
//! The table is a trie of bytes, as an array of 32-bit units after its length, and the
//! replacements, each ended by a zero byte. The library that follows it trusts its numbers: here
//! every node that a text could lead to is visited once.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Most units of a trie: four times those of the largest table in use.
const MAX_UNITS: usize = 1 << 18;

/// Checks the base64 form of a table.
///
/// # Errors
/// The problem, if a text could lead outside the table.
pub(crate) fn check(encoded: &str) -> Result<(), String> {
    let bytes = STANDARD.decode(encoded).map_err(|error| format!("not base64: {error}"))?;
    let (length, rest) = bytes.split_first_chunk().ok_or("expected the length of a trie")?;
    let length = u32::from_le_bytes(*length) as usize;
    if length > rest.len() || length / 4 > MAX_UNITS {
        let most = rest.len().min(4 * MAX_UNITS);
        return Err(format!("expected a trie of at most {most} bytes, found {length}"));
    }
    let (units, replacements) = rest.split_at(length / 4 * 4);
    let units = units.as_chunks().0.iter().map(|unit| Unit(u32::from_le_bytes(*unit))).collect();
    let replacements = std::str::from_utf8(replacements)
        .map_err(|error| format!("expected replacements in UTF-8: {error}"))?;
    Trie { units, replacements }.check()
}

#[derive(Clone, Copy)]
struct Unit(u32);

impl Unit {
    fn has_leaf(self) -> bool {
        self.0 >> 8 & 1 == 1
    }

    fn value(self) -> usize {
        (self.0 & ((1 << 31) - 1)) as usize
    }

    fn label(self) -> u32 {
        self.0 & (1 << 31 | 0xff)
    }

    fn offset(self) -> usize {
        ((self.0 >> 10) as usize) << ((self.0 & 1 << 9) >> 6)
    }
}

struct Trie<'a> {
    units: Vec<Unit>,
    replacements: &'a str,
}

impl Trie<'_> {
    /// Visits all nodes from the root.
    fn check(&self) -> Result<(), String> {
        let root = self.units.first().ok_or("expected a trie, found no units")?;
        let mut seen = vec![false; self.units.len()];
        let mut open = vec![root.offset()];
        while let Some(node) = open.pop() {
            // Texts have bytes from 1 to 255, and each looks at its unit.
            let last = node | 0xff;
            if last >= self.units.len() {
                let count = self.units.len();
                return Err(format!("expected units below {count}, found a node at {node}"));
            }
            if std::mem::replace(&mut seen[node], true) {
                continue;
            }
            for byte in 1..=255 {
                let unit = self.units[node ^ byte];
                if unit.label() != byte as u32 {
                    continue;
                }
                let next = (node ^ byte) ^ unit.offset();
                if unit.has_leaf() {
                    self.check_leaf(next)?;
                }
                open.push(next);
            }
        }
        Ok(())
    }

    fn check_leaf(&self, at: usize) -> Result<(), String> {
        let value = self.units.get(at).map(|unit| unit.value());
        match value.filter(|&value| self.replacements.is_char_boundary(value)) {
            Some(_) => Ok(()),
            None => Err(format!("expected the place of a replacement in unit {at}")),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A table that replaces the byte `from` by `to`.
    pub(crate) fn table(from: u8, to: &str, value: u32) -> String {
        let mut units = vec![0u32; 1024];
        // The root's children are around unit 256, the leaf of `from` around unit 512.
        units[0] = 256 << 10;
        let child = 256 ^ usize::from(from);
        units[child] = ((child ^ 512) as u32) << 10 | 1 << 8 | u32::from(from);
        units[512] = 1 << 31 | value;
        let bytes = units.iter().flat_map(|unit| unit.to_le_bytes());
        let length = (4 * units.len() as u32).to_le_bytes();
        let all = length.into_iter().chain(bytes).chain(to.bytes()).chain([0]);
        STANDARD.encode(all.collect::<Vec<u8>>())
    }

    #[test]
    fn tables_that_lead_nowhere_are_refused() {
        assert_eq!(check(&table(b'a', "bc", 0)), Ok(()));
        let refused = |encoded: &str, word: &str| {
            let problem = check(encoded).unwrap_err();
            assert!(problem.contains(word), "{problem}");
        };
        refused("?", "base64");
        refused("AAA=", "length");
        refused(&STANDARD.encode(u32::MAX.to_le_bytes()), "at most 0 bytes");
        refused(&STANDARD.encode(0u32.to_le_bytes()), "no units");
        refused(&STANDARD.encode([4, 0, 0, 0, 0, 0, 0, 0]), "found a node");
        refused(&table(b'a', "bc", 9), "place of a replacement");
        refused(&table(b'a', "\u{e9}", 1), "place of a replacement");
        let mut broken = STANDARD.decode(table(b'a', "b", 0)).unwrap();
        broken.push(0xff);
        refused(&STANDARD.encode(broken), "UTF-8");
    }
}
