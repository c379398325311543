//! Views of other bytes without copying: a range, or a concatenation.

use std::borrow::Cow;
use std::io;
use std::ops::Range;

use base::{Bytes, FilePart, Storage};

/// A range of other bytes.
pub(crate) struct Slice {
    of: Storage,
    range: Range<usize>,
    /// CRC32C of all bytes, where it is known.
    crc32c: Option<u32>,
}

impl Slice {
    pub fn new(of: Storage, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= of.len(), "a range inside");
        Self { of, range, crc32c: None }
    }

    /// The same with the checksum of its bytes.
    pub fn with_crc32c(self, crc32c: u32) -> Self {
        Self { crc32c: Some(crc32c), ..self }
    }

    fn within(&self, part: &Range<usize>) -> Range<usize> {
        assert!(part.start <= part.end && part.end <= self.range.len(), "a range inside");
        self.range.start + part.start..self.range.start + part.end
    }
}

impl Bytes for Slice {
    fn len(&self) -> usize {
        self.range.len()
    }

    fn read(&self, range: Range<usize>) -> Cow<'_, [u8]> {
        self.of.read(self.within(&range))
    }

    fn place(&self, range: Range<usize>) -> Option<FilePart> {
        let part = self.of.place(self.within(&range))?;
        let crc32c = self.crc32c.filter(|_| range.len() == self.range.len()).or(part.crc32c);
        Some(FilePart { crc32c, ..part })
    }

    fn will_need(&self, range: Range<usize>) {
        self.of.will_need(self.within(&range));
    }

    fn not_needed(&self, range: Range<usize>) {
        self.of.not_needed(self.within(&range));
    }

    fn random_access(&self, range: Range<usize>) {
        self.of.random_access(self.within(&range));
    }

    fn lock(&self, range: Range<usize>) -> io::Result<()> {
        self.of.lock(self.within(&range))
    }
}

/// Concatenation of parts.
pub(crate) struct Stack {
    parts: Vec<Storage>,
    /// Where each part ends.
    ends: Vec<usize>,
}

impl Stack {
    pub fn new(parts: Vec<Storage>) -> Self {
        let lengths = parts.iter().scan(0, |end, part| {
            *end += part.len();
            Some(*end)
        });
        let ends = lengths.collect();
        Self { parts, ends }
    }

    /// The parts that `range` is in, and the range of each.
    fn split(&self, range: Range<usize>) -> impl Iterator<Item = (&Storage, Range<usize>)> {
        let first = self.ends.partition_point(|end| *end <= range.start);
        let parts = self.parts.iter().zip(&self.ends).skip(first);
        let split = parts.map(move |(part, end)| {
            let start = end - part.len();
            let within = |at: usize| at.saturating_sub(start).min(part.len());
            (part, within(range.start)..within(range.end), start < range.end)
        });
        split.take_while(|(.., inside)| *inside).map(|(part, within, _)| (part, within))
    }
}

impl Bytes for Stack {
    fn len(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    fn read(&self, range: Range<usize>) -> Cow<'_, [u8]> {
        assert!(range.start <= range.end && range.end <= self.len(), "a range inside");
        let mut split = self.split(range.clone());
        match (split.next(), split.next()) {
            (None, _) => Cow::Borrowed(&[]),
            (Some((part, within)), None) => part.read(within),
            _ => {
                let mut bytes = Vec::with_capacity(range.len());
                for (part, within) in self.split(range) {
                    bytes.extend_from_slice(&part.read(within));
                }
                Cow::Owned(bytes)
            }
        }
    }

    fn place(&self, range: Range<usize>) -> Option<FilePart> {
        let mut split = self.split(range);
        let (part, within) = split.next()?;
        if split.next().is_some() { None } else { part.place(within) }
    }

    fn will_need(&self, range: Range<usize>) {
        self.split(range).for_each(|(part, within)| part.will_need(within));
    }

    fn not_needed(&self, range: Range<usize>) {
        self.split(range).for_each(|(part, within)| part.not_needed(within));
    }

    fn random_access(&self, range: Range<usize>) {
        self.split(range).for_each(|(part, within)| part.random_access(within));
    }

    fn lock(&self, range: Range<usize>) -> io::Result<()> {
        self.split(range).try_for_each(|(part, within)| part.lock(within))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn slices_of_stacks_read_as_one_copy_would() {
        let bytes: Vec<u8> = (0..60).collect();
        let parts = [0..20, 20..45, 45..60].map(|part| Arc::new(bytes[part].to_vec()) as Storage);
        let stack: Storage = Arc::new(Stack::new(parts.to_vec()));
        let slice = Slice::new(stack, 5..58);
        for (start, end) in [(0, 53), (0, 15), (3, 3), (15, 35), (14, 16), (36, 53), (53, 53)] {
            assert_eq!(*slice.read(start..end), bytes[5 + start..5 + end]);
        }
        assert!(matches!(slice.read(15..35), Cow::Borrowed(_)));
    }
}
