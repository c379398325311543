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

    fn are_here(&self) -> bool {
        self.of.are_here()
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

/// So many bytes of a file that is missing.
pub(crate) struct Missing(pub usize);

impl Bytes for Missing {
    fn len(&self) -> usize {
        self.0
    }

    fn read(&self, range: Range<usize>) -> Cow<'_, [u8]> {
        assert!(range.start <= range.end && range.end <= self.0, "a range inside");
        Cow::Owned(vec![0; range.len()])
    }

    fn are_here(&self) -> bool {
        false
    }
}

/// Concatenation of parts.
pub(crate) struct Stack {
    /// Each with the number of bytes up to its end.
    parts: Vec<(Storage, usize)>,
}

impl Stack {
    pub fn new(parts: Vec<Storage>) -> Self {
        let mut end = 0;
        let ended = |part: Storage| {
            end += part.len();
            (part, end)
        };
        Self { parts: parts.into_iter().map(ended).collect() }
    }

    /// The parts that `range` is in, and the range of each.
    fn split(&self, range: Range<usize>) -> impl Iterator<Item = (&Storage, Range<usize>)> {
        let from = self.parts.partition_point(|(_, end)| *end <= range.start);
        let parts = self.parts[from..].iter().map(|(part, end)| (part, end - part.len(), *end));
        let end = range.end;
        parts.take_while(move |(_, first, _)| *first < end).map(move |(part, first, end)| {
            (part, range.start.max(first) - first..range.end.min(end) - first)
        })
    }
}

impl Bytes for Stack {
    fn len(&self) -> usize {
        self.parts.last().map_or(0, |(_, end)| *end)
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

    fn are_here(&self) -> bool {
        self.parts.iter().all(|(part, _)| part.are_here())
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
        for ends in [[20, 40], [11, 40], [20, 20], [7, 59]] {
            let parts = [&bytes[..ends[0]], &bytes[ends[0]..ends[1]], &bytes[ends[1]..]];
            let parts = parts.map(|part| Arc::new(part.to_vec()) as Storage);
            let slice = Slice::new(Arc::new(Stack::new(parts.into())), 5..58);
            for (start, end) in [(0, 53), (0, 15), (3, 3), (15, 35), (14, 16), (36, 53), (53, 53)] {
                assert_eq!(*slice.read(start..end), bytes[5 + start..5 + end], "{ends:?}");
            }
            let middle = ends[0].max(5) - 5..ends[1].min(58) - 5;
            assert!(matches!(slice.read(middle), Cow::Borrowed(_)));
        }
    }
}
