//! The token table: id to text and bytes, text to id.
//!
//! Ids may have holes, but never so many that memory outgrows the number of tokens.

use std::collections::HashMap;

/// What kind of token an id is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// A piece of text.
    Normal,
    /// A control token: its text is only a token where special tokens are parsed.
    Special,
    /// An added token that is always matched in text, such as `<think>` in most vocabularies.
    Added,
    /// A single byte.
    Byte,
    /// A placeholder that no text maps to.
    Unused,
}

/// One token.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub text: Box<str>,
    pub bytes: Box<[u8]>,
    pub kind: TokenKind,
}

/// Why an entry could not be added.
#[derive(Debug, PartialEq)]
pub(crate) enum Clash {
    Id(String),
    TooFar { limit: usize },
}

/// All tokens of a tokenizer.
#[derive(Debug, Default)]
pub(crate) struct Vocab {
    entries: Vec<Option<Entry>>,
    ids: HashMap<Box<str>, u32>,
    limit: usize,
}

impl Vocab {
    /// An empty table for about `count` tokens; ids far beyond that are refused.
    pub fn for_count(count: usize) -> Self {
        Vocab { limit: count.saturating_mul(2).saturating_add(1 << 16), ..Self::default() }
    }

    /// Adds a token; a second text for one id is a clash.
    pub fn insert(&mut self, id: u32, entry: Entry) -> Result<(), Clash> {
        let index = id as usize;
        if index >= self.limit {
            return Err(Clash::TooFar { limit: self.limit });
        }
        if index >= self.entries.len() {
            self.entries.resize(index + 1, None);
        }
        if let Some(other) = self.entries[index].as_ref().filter(|e| e.text != entry.text) {
            return Err(Clash::Id(other.text.to_string()));
        }
        self.ids.insert(entry.text.clone(), id);
        self.entries[index] = Some(entry);
        Ok(())
    }

    /// One more than the largest id.
    pub fn size(&self) -> usize {
        self.entries.len()
    }

    /// The token of `id`.
    pub fn get(&self, id: u32) -> Option<&Entry> {
        self.entries.get(id as usize)?.as_ref()
    }

    /// The id of the token whose text is `text`.
    pub fn id(&self, text: &str) -> Option<u32> {
        self.ids.get(text).copied()
    }

    /// All tokens with their ids, in order of ids.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Entry)> {
        (0u32..).zip(&self.entries).filter_map(|(id, e)| Some((id, e.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(text: &str) -> Entry {
        Entry { text: text.into(), bytes: text.as_bytes().into(), kind: TokenKind::Normal }
    }

    #[test]
    fn one_id_has_one_text() {
        let mut vocab = Vocab::for_count(2);
        vocab.insert(1, entry("a")).unwrap();
        vocab.insert(1, entry("a")).unwrap();
        assert_eq!(vocab.insert(1, entry("b")), Err(Clash::Id("a".into())));
        assert_eq!((vocab.size(), vocab.id("a"), vocab.iter().count()), (2, Some(1), 1));
        assert!(vocab.get(0).is_none() && vocab.get(7).is_none());
    }

    #[test]
    fn far_ids_allocate_nothing() {
        let mut vocab = Vocab::for_count(10);
        assert!(matches!(vocab.insert(4_000_000_000, entry("x")), Err(Clash::TooFar { .. })));
        assert_eq!(vocab.size(), 0);
    }
}
