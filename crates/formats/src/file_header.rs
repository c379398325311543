//! Headers of weight files, with which a checkpoint is interpreted where files are missing: ranks
//! that share a model may have the files of their own layers only.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Bytes, Mmap, Storage};

use crate::bytes::map_file;
use crate::error::{Error, Result};
use crate::layout::TensorEntry;
use crate::storage::{Missing, Slice};

/// Bytes of the largest tensor of any kind that a header comes with.
const MAX_SMALL: usize = 256;

/// What a file of weights is interpreted with: the bytes before the data of its tensors, and the
/// data of small ones and of vectors of integers, such as the shape of another tensor or the group
/// of each input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileHeader {
    /// Bytes of the file.
    len: usize,
    beginning: Vec<u8>,
    /// The data of each small tensor, by its place in the file.
    small: HashMap<usize, Vec<u8>>,
}

/// The headers of files that are missing, by their paths.
#[derive(Clone, Debug, Default)]
pub struct FileHeaders(Arc<HashMap<PathBuf, Arc<FileHeader>>>);

impl FromIterator<(PathBuf, FileHeader)> for FileHeaders {
    fn from_iter<T: IntoIterator<Item = (PathBuf, FileHeader)>>(headers: T) -> Self {
        let shared = |(path, header)| (path, Arc::new(header));
        Self(Arc::new(headers.into_iter().map(shared).collect()))
    }
}

impl FileHeader {
    /// The header of a file with these bytes and tensors.
    pub(crate) fn new(bytes: &[u8], tensors: &[TensorEntry]) -> Self {
        let held = || tensors.iter().filter(|tensor| !tensor.range.is_empty());
        let end = held().map(|tensor| tensor.range.start).min().unwrap_or(bytes.len());
        let is_small = |it: &&TensorEntry| {
            let are_integers = it.shape.len() == 1 && ["i32", "i64"].contains(&it.ty.name);
            are_integers || it.range.len() <= MAX_SMALL
        };
        let small = held().filter(is_small);
        let small = small.map(|it| (it.range.start, bytes[it.range.clone()].to_vec())).collect();
        Self { len: bytes.len(), beginning: bytes[..end].to_vec(), small }
    }

    /// The header as bytes: little-endian numbers of 64 bits and what they count.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut small: Vec<_> = self.small.iter().collect();
        small.sort_unstable();
        let mut bytes = Vec::with_capacity(self.beginning.len() + (16 + MAX_SMALL) * small.len());
        let number = |bytes: &mut Vec<u8>, number: usize| {
            bytes.extend_from_slice(&(number as u64).to_le_bytes());
        };
        number(&mut bytes, self.len);
        for (place, data) in std::iter::once((&0, &self.beginning)).chain(small) {
            number(&mut bytes, *place);
            number(&mut bytes, data.len());
            bytes.extend_from_slice(data);
        }
        bytes
    }

    /// Reads what [`to_bytes`](Self::to_bytes) has written; `None` if the bytes are others.
    pub fn from_bytes(mut bytes: &[u8]) -> Option<Self> {
        let number = |bytes: &mut &[u8]| -> Option<usize> {
            let (number, rest) = bytes.split_first_chunk()?;
            *bytes = rest;
            usize::try_from(u64::from_le_bytes(*number)).ok()
        };
        let len = number(&mut bytes)?;
        let mut parts = Vec::new();
        while !bytes.is_empty() {
            let (place, count) = (number(&mut bytes)?, number(&mut bytes)?);
            let (data, rest) = bytes.split_at_checked(count)?;
            bytes = rest;
            parts.push((place, data.to_vec()));
        }
        let mut parts = parts.into_iter();
        let (_, beginning) = parts.next().filter(|(place, _)| *place == 0)?;
        Some(Self { len, beginning, small: parts.collect() })
    }
}

/// A file of weights: mapped, or missing with its header known.
#[derive(Clone, Debug)]
pub(crate) struct WeightFile {
    path: Arc<Path>,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    Mapped(Arc<Mmap>),
    Missing(Arc<FileHeader>),
}

impl WeightFile {
    /// Maps the file at `path`, unless it is missing and one of `headers` is its own.
    ///
    /// # Errors
    /// If the file is unreadable.
    pub fn open(path: &Path, headers: &FileHeaders) -> Result<Self> {
        let header = headers.0.get(path).filter(|_| !path.exists());
        let content = match header {
            Some(header) => Content::Missing(header.clone()),
            None => Content::Mapped(map_file(path)?),
        };
        Ok(Self { path: path.into(), content })
    }

    /// The path of the file.
    pub fn path(&self) -> &Arc<Path> {
        &self.path
    }

    /// The bytes that the file begins with, and the number of all.
    pub fn beginning(&self) -> (&[u8], usize) {
        match &self.content {
            Content::Mapped(map) => (map, map.len()),
            Content::Missing(header) => (&header.beginning, header.len),
        }
    }

    /// Everything before the tensors is copied. A hint only.
    pub fn is_read(&self, tensors: &[TensorEntry]) {
        if let Content::Mapped(map) = &self.content {
            let first = tensors.iter().map(|tensor| tensor.range.start).min();
            map.not_needed(0..first.unwrap_or(map.len()));
        }
    }

    /// The data of a tensor.
    pub fn data(&self, entry: &TensorEntry) -> Storage {
        let range = entry.range.clone();
        match &self.content {
            Content::Mapped(map) => Arc::new(Slice::new(map.clone(), range)),
            Content::Missing(header) => match header.small.get(&range.start) {
                Some(data) if data.len() == range.len() => Arc::new(data.clone()),
                _ => Arc::new(Missing(range.len())),
            },
        }
    }
}

/// The error of reading a tensor whose file is missing.
pub(crate) fn is_missing(path: &Path, tensor: &str) -> Error {
    Error::tensor(path, tensor, "the file is missing, and this rank computes with the tensor")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_survive_bytes_and_nothing_else_is_one() {
        let small = [(40, vec![1, 2]), (90, vec![3; 7])].into();
        let header = FileHeader { len: 1 << 40, beginning: vec![9; 33], small };
        let bytes = header.to_bytes();
        assert_eq!(FileHeader::from_bytes(&bytes), Some(header));
        // But for those that end with a part.
        for end in (0..bytes.len()).filter(|end| ![57, 75].contains(end)) {
            assert_eq!(FileHeader::from_bytes(&bytes[..end]), None, "{end}");
        }
        let huge = [0u64, 0, u64::MAX].map(u64::to_le_bytes).concat();
        assert_eq!(FileHeader::from_bytes(&huge), None);
    }
}
