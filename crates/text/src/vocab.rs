//! The token table: id to text and bytes, text to id.
//!
//! Ids may have gaps, within a limit in proportion to the number of tokens. All texts are in one
//! string and all bytes in one buffer, so that a vocabulary of 150,000 tokens is built in
//! milliseconds.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

/// The kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// A piece of text.
    Normal,
    /// A control token: its text is that token only if special tokens are parsed.
    Special,
    /// An added token that is always matched in text, such as `<think>` in most vocabularies.
    Added,
    /// A single byte.
    Byte,
    /// A placeholder that no text maps to.
    Unused,
}

/// One token.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TokenEntry<'a> {
    pub text: &'a str,
    pub bytes: &'a [u8],
    pub kind: TokenKind,
}

/// The reason why a token could not be added.
#[derive(Debug, PartialEq)]
pub(crate) enum Clash {
    Id(String),
    TooFar { limit: usize },
}

/// All tokens of a tokenizer.
#[derive(Debug, Default)]
pub(crate) struct Vocab {
    texts: String,
    bytes: Vec<u8>,
    places: Vec<Option<TokenSpan>>,
    /// Ids by the hash of their text.
    ids: HashTable<u32>,
    hasher: RandomState,
    limit: usize,
}

/// The ranges of the text and the bytes of a token: start and end of each.
#[derive(Debug, Clone, Copy)]
struct TokenSpan {
    text: [u32; 2],
    bytes: [u32; 2],
    kind: TokenKind,
}

fn range([first, end]: [u32; 2]) -> Range<usize> {
    first as usize..end as usize
}

impl Vocab {
    /// An empty table for about `count` tokens; ids far beyond that are refused.
    pub fn for_count(count: usize) -> Self {
        let limit = count.saturating_mul(2).saturating_add(1 << 16);
        Vocab { ids: HashTable::with_capacity(count), limit, ..Self::default() }
    }

    /// Adds a token and returns the id that its text had before.
    ///
    /// # Errors
    /// If the id has another text, or is beyond the limit.
    pub fn insert(&mut self, id: u32, entry: TokenEntry<'_>) -> Result<Option<u32>, Clash> {
        let index = id as usize;
        let text = append(self.texts.len(), entry.text.len());
        let bytes = append(self.bytes.len(), entry.bytes.len());
        let (Some(text), Some(bytes)) = (text, bytes) else {
            return Err(Clash::TooFar { limit: self.limit });
        };
        if index >= self.limit {
            return Err(Clash::TooFar { limit: self.limit });
        }
        if let Some(other) = self.get(id).filter(|other| other.text != entry.text) {
            return Err(Clash::Id(other.text.to_owned()));
        }
        if index >= self.places.len() {
            self.places.resize(index + 1, None);
        }
        self.texts.push_str(entry.text);
        self.bytes.extend(entry.bytes);
        self.places[index] = Some(TokenSpan { text, bytes, kind: entry.kind });
        let text_of = |id: &u32| text_of(&self.places, &self.texts, *id);
        let (hash, same) = (self.hasher.hash_one(entry.text), |id: &u32| text_of(id) == entry.text);
        match self.ids.entry(hash, same, |id| self.hasher.hash_one(text_of(id))) {
            Entry::Occupied(mut known) => Ok(Some(std::mem::replace(known.get_mut(), id))),
            Entry::Vacant(place) => {
                place.insert(id);
                Ok(None)
            }
        }
    }

    /// Returns one more than the largest id.
    pub fn size(&self) -> usize {
        self.places.len()
    }

    /// Returns the token of `id`.
    pub fn get(&self, id: u32) -> Option<TokenEntry<'_>> {
        let TokenSpan { text, bytes, kind } = (*self.places.get(id as usize)?)?;
        Some(TokenEntry { text: &self.texts[range(text)], bytes: &self.bytes[range(bytes)], kind })
    }

    /// Returns the id of the token with this text.
    pub fn id(&self, text: &str) -> Option<u32> {
        let same = |id: &u32| text_of(&self.places, &self.texts, *id) == text;
        self.ids.find(self.hasher.hash_one(text), same).copied()
    }

    /// Returns all tokens with their ids, in order of ids.
    pub fn iter(&self) -> impl Iterator<Item = (u32, TokenEntry<'_>)> {
        (0..self.size() as u32).filter_map(|id| Some((id, self.get(id)?)))
    }
}

/// Returns the range of `len` more from `first` on, if offsets can express it.
fn append(first: usize, len: usize) -> Option<[u32; 2]> {
    Some([u32::try_from(first).ok()?, u32::try_from(first.checked_add(len)?).ok()?])
}

/// Returns the text of an id that is in the table.
fn text_of<'a>(places: &[Option<TokenSpan>], texts: &'a str, id: u32) -> &'a str {
    places[id as usize].map_or("", |place| &texts[range(place.text)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(text: &str) -> TokenEntry<'_> {
        TokenEntry { text, bytes: text.as_bytes(), kind: TokenKind::Normal }
    }

    #[test]
    fn every_text_leads_to_the_last_id_it_was_given() {
        let mut vocab = Vocab::for_count(3);
        let texts: Vec<String> = (0..1000).map(|id| format!("token {}", id % 700)).collect();
        for (id, text) in (0..).zip(&texts) {
            vocab.insert(id, entry(text)).unwrap();
        }
        for (id, text) in texts.iter().enumerate() {
            let last = if id < 300 { id + 700 } else { id };
            assert_eq!(vocab.id(text), Some(last as u32));
            assert_eq!(vocab.get(id as u32).unwrap().bytes, text.as_bytes());
        }
        assert_eq!((vocab.id(""), Vocab::default().id("token 1")), (None, None));
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
