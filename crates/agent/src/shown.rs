//! Which lines of which files the model has seen, by digests: only these can be edited by number.

use crate::difference::Region;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};

/// Digests of the shown lines of each file, by line numbers from 1.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown {
    files: HashMap<PathBuf, BTreeMap<u64, u64>>,
    /// Its keys are random, so that no file can be made whose lines have the digests of others.
    digest: RandomState,
}

/// What is known of a line with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineSeen {
    Never,
    Changed,
    Unchanged,
}

impl Shown {
    /// Remembers that the line `number` of `file`, without its line end, was shown.
    pub fn add(&mut self, file: &Path, number: u64, line: &[u8]) {
        let digest = self.digest.hash_one(line);
        if let Some(lines) = self.files.get_mut(file) {
            lines.insert(number, digest);
        } else {
            self.files.insert(file.to_owned(), BTreeMap::from([(number, digest)]));
        }
    }

    /// Whether `line` is what was shown with this number.
    pub fn seen(&self, file: &Path, number: u64, line: &[u8]) -> LineSeen {
        match self.files.get(file).and_then(|lines| lines.get(&number)) {
            None => LineSeen::Never,
            Some(digest) if *digest == self.digest.hash_one(line) => LineSeen::Unchanged,
            Some(_) => LineSeen::Changed,
        }
    }

    /// After a change of `region`: the model knows its new lines, and has seen the lines after it
    /// with their numbers of before, which are others now if lines were added or removed.
    pub fn replace(&mut self, file: &Path, region: &Region, lines: &[&[u8]]) {
        let known = self.files.entry(file.to_owned()).or_default();
        let first = region.before.start as u64 + 1;
        if region.before.len() == region.after.len() {
            known.retain(|number, _| *number < first || *number > region.before.end as u64);
        } else {
            known.retain(|number, _| *number < first);
        }
        for (number, line) in (first..).zip(lines) {
            known.insert(number, self.digest.hash_one(line));
        }
    }

    /// Forgets a file.
    pub fn forget(&mut self, file: &Path) {
        self.files.remove(file);
    }
}
