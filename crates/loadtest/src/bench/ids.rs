//! The token ids that measurements feed.

use anyhow::{Context, Result, bail};
use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;

/// Ids in an endless row: those of a file in their order, or a list that every step takes its ids
/// from at its own place.
#[derive(Clone, Debug)]
pub(super) struct TokenIds(Rc<List>);

#[derive(Debug)]
struct List {
    ids: Vec<u32>,
    /// Where the next ids begin, in a row.
    next: Option<Cell<usize>>,
}

impl TokenIds {
    /// The ids in `file`, or a list of as many as are needed at once: `count`, of a vocabulary of
    /// `vocab` words.
    ///
    /// # Errors
    /// If the file is none, has fewer ids, or one that is not in the vocabulary.
    pub fn new(file: Option<&Path>, vocab: usize, count: usize) -> Result<Self> {
        match file {
            Some(path) => Self::read(path, vocab, count),
            None => Ok(Self::listed(vocab, count)),
        }
    }

    /// Ids that all differ where the vocabulary is large enough, so that the rows of the embedding
    /// do.
    fn listed(vocab: usize, count: usize) -> Self {
        let ids = (0..count as u32).map(|i| i.wrapping_mul(7919) % vocab as u32);
        Self(Rc::new(List { ids: ids.collect(), next: None }))
    }

    fn read(path: &Path, vocab: usize, least: usize) -> Result<Self> {
        let text = std::fs::read(path).with_context(|| format!("{}", path.display()))?;
        let ids: Vec<u32> = serde_json::from_slice(&text)
            .with_context(|| format!("{}: expected a JSON array of token ids", path.display()))?;
        if ids.len() < least {
            let found = ids.len();
            bail!("{}: expected at least {least} token ids, found {found}", path.display());
        }
        if let Some(id) = ids.iter().find(|id| **id as usize >= vocab) {
            bail!("{}: expected token ids below {vocab}, found {id}", path.display());
        }
        Ok(Self(Rc::new(List { ids, next: Some(Cell::new(0)) })))
    }

    /// The next `count` ids; in a list, those at `place`, modulo the places that have as many.
    pub fn next(&self, count: usize, place: usize) -> &[u32] {
        let List { ids, next } = &*self.0;
        let first = match next {
            None => place % (ids.len() + 1 - count),
            Some(next) => {
                let first = if next.get() + count > ids.len() { 0 } else { next.get() };
                next.set(first + count);
                first
            }
        };
        &ids[first..][..count]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_a_file_follow_one_another_and_those_of_a_list_have_places() {
        let of = |next| TokenIds(Rc::new(List { ids: (0..7).collect(), next }));
        let file = of(Some(Cell::new(0)));
        let taken: Vec<_> = [3, 3, 3, 7].map(|count| file.next(count, 5)).into();
        let expected: [&[u32]; 4] = [&[0, 1, 2], &[3, 4, 5], &[0, 1, 2], &[0, 1, 2, 3, 4, 5, 6]];
        assert_eq!(taken, expected);
        assert_eq!([of(None).next(2, 5), of(None).next(2, 6)], [[5, 6], [0, 1]]);
    }
}
