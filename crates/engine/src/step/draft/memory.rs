//! The last prompts and answers, by part of the caches: requests of the same part continue from
//! each other's texts, and no others do, whom a draft would show what they hold
//! ([0014](../../../../../docs/decisions/0014-parts-of-the-caches.md)).

use super::suffix::{IndexedText, SuffixMatch};
use std::collections::{HashMap, VecDeque};

/// Texts of a part, so that a look-up stays quick. The oldest goes when the newest is full.
const TEXTS: usize = 8;
/// Bytes that an indexed token takes at most, about.
const TOKEN_BYTES: usize = 96;

/// Texts of all parts, within a number of bytes.
#[derive(Debug)]
pub(crate) struct DraftMemory {
    max_bytes: usize,
    /// Bytes of all texts.
    bytes: usize,
    parts: HashMap<[u8; 16], RememberedTexts>,
    /// Counts uses.
    clock: u64,
}

#[derive(Debug, Default)]
struct RememberedTexts {
    /// The newest first.
    texts: VecDeque<IndexedText>,
    /// Number of the newest.
    newest: usize,
    used: u64,
}

impl DraftMemory {
    pub fn new(max_bytes: usize) -> Self {
        Self { max_bytes, bytes: 0, parts: HashMap::new(), clock: 0 }
    }

    /// Adds the tokens of a request to its part.
    pub fn add(&mut self, space: [u8; 16], tokens: &[u32]) {
        let full = self.max_bytes / TEXTS / TOKEN_BYTES;
        if full == 0 {
            return;
        }
        self.clock += 1;
        let part = self.parts.entry(space).or_default();
        part.used = self.clock;
        let tokens = &tokens[tokens.len().saturating_sub(full)..];
        match part.texts.front_mut() {
            Some(text) if text.tokens.len() + tokens.len() <= full => {
                self.bytes -= text.bytes();
                text.tokens.extend_from_slice(tokens);
                self.bytes += text.bytes();
            }
            _ => {
                let text = IndexedText::new(tokens.to_vec());
                self.bytes += text.bytes();
                part.texts.push_front(text);
                part.newest += 1;
            }
        }
        if part.texts.len() > TEXTS {
            self.bytes -= part.texts.pop_back().as_ref().map_or(0, IndexedText::bytes);
        }
        self.evict();
    }

    /// Forgets texts of the parts that were not used for longest, the oldest first.
    fn evict(&mut self) {
        while self.bytes > self.max_bytes {
            let oldest = self.parts.iter().min_by_key(|(_, part)| part.used);
            let Some(space) = oldest.map(|(space, _)| *space) else { return };
            let Some(part) = self.parts.get_mut(&space) else { return };
            self.bytes -= part.texts.pop_back().as_ref().map_or(0, IndexedText::bytes);
            if part.texts.is_empty() {
                self.parts.remove(&space);
            }
        }
    }

    /// The best place of a part for `query`, and the number of its text.
    pub fn find(&mut self, space: [u8; 16], query: &[u32]) -> Option<(usize, SuffixMatch)> {
        let part = self.parts.get_mut(&space)?;
        self.clock += 1;
        part.used = self.clock;
        if let Some(newest) = part.texts.front_mut() {
            self.bytes -= newest.bytes();
            newest.extend_index();
            self.bytes += newest.bytes();
        }
        self.evict();
        let part = self.parts.get(&space)?;
        let found = |(text, it): (usize, &IndexedText)| {
            it.find(query).map(|found| (part.newest - text, found))
        };
        // The newest of equal ones.
        let all = part.texts.iter().enumerate().rev().filter_map(found);
        all.max_by_key(|(_, found)| found.len)
    }

    /// A text of a part; empty if it is gone.
    pub fn text(&self, space: [u8; 16], text: usize) -> &[u32] {
        let part = self.parts.get(&space);
        let text = part.and_then(|part| part.texts.get(part.newest.checked_sub(text)?));
        text.map_or(&[], |text| &text.tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: [u8; 16] = [1; 16];
    const OTHER: [u8; 16] = [2; 16];

    fn bytes(memory: &DraftMemory) -> usize {
        memory.parts.values().flat_map(|part| &part.texts).map(IndexedText::bytes).sum()
    }

    #[test]
    fn parts_do_not_share_texts() {
        let mut memory = DraftMemory::new(1 << 20);
        let text: Vec<u32> = (0..40).collect();
        memory.add(ONE, &text);
        assert!(memory.find(OTHER, &text[..10]).is_none());
        let (number, found) = memory.find(ONE, &text[..10]).unwrap();
        assert_eq!((found.end, found.len), (10, 10));
        assert_eq!(memory.text(ONE, number), text);
        assert!(memory.text(OTHER, number).is_empty());
        // A text keeps its number.
        memory.add(ONE, &[9; 100_000]);
        assert_eq!(memory.text(ONE, number), text);
        assert!(memory.text(ONE, number + 2).is_empty());
    }

    #[test]
    fn memory_is_bounded_and_the_latest_stays() {
        let mut memory = DraftMemory::new(1 << 18);
        let text = |number: u32| (0..100).map(|at| number * 1000 + at).collect::<Vec<u32>>();
        for number in 0..500 {
            let space = if number % 50 == 0 { OTHER } else { ONE };
            memory.add(space, &text(number));
            memory.find(space, &text(number)[..20]).unwrap();
            assert!(memory.bytes == bytes(&memory) && memory.bytes <= 1 << 18);
        }
        assert!(memory.find(ONE, &text(1)[..20]).is_none());
        assert!(memory.find(ONE, &text(498)[..20]).is_some());
        // One text alone may be longer than all may be.
        memory.add(OTHER, &(0..100_000).collect::<Vec<u32>>());
        memory.find(OTHER, &[1, 2, 3]);
        memory.add(OTHER, &[5; 30]);
        assert!(bytes(&memory) <= 1 << 18);
        let mut none = DraftMemory::new(0);
        none.add(ONE, &text(1));
        assert!(none.find(ONE, &text(1)[..20]).is_none() && bytes(&none) == 0);
    }
}
