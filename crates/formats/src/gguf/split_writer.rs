//! Writing one model into several files, as [`super::split`] reads them.
//!
//! Invariant: tensors are never cut, and no part appears under its name before every byte of
//! all parts was written.

use std::path::{Path, PathBuf};

use super::split::{COUNT, NUMBER, TENSORS, part_name};
use super::value::Value;
use super::writer::GgufWriter;
use crate::error::{Error, Result};
use crate::stream::TensorStream;

/// Parts that the type of `split.count` can count.
const MAX_PARTS: usize = u16::MAX as usize;

/// The open parts of a split model: takes the tensors' bytes in planned order.
#[derive(Debug)]
pub struct SplitStream {
    parts: Vec<TensorStream>,
    current: usize,
}

impl GgufWriter {
    /// Paths of the files that [`create_split`](Self::create_split) writes:
    /// `NAME-00001-of-00003.gguf` and so on in one folder, for a `path` of `NAME.gguf`.
    ///
    /// # Errors
    /// If `path` has no file name, or there would be too many parts.
    pub fn part_paths(&self, path: &Path, max_bytes: usize) -> Result<Vec<PathBuf>> {
        let prefix = path.file_stem().ok_or_else(|| Error::file(path, "expected a file name"))?;
        let count = self.part_lengths(max_bytes).len();
        if count > MAX_PARTS {
            let problem = format!("expected at most {MAX_PARTS} parts, found {count}");
            return Err(Error::file(path, problem));
        }
        let path_of = |index| path.with_file_name(part_name(prefix, index, count));
        Ok((0..count).map(path_of).collect())
    }

    /// Writes the headers of the parts. Each part holds at most `max_bytes` of tensors, or one
    /// larger tensor; the first part has all metadata.
    ///
    /// # Errors
    /// If there are too many parts, or a file cannot be written.
    pub fn create_split(self, path: &Path, max_bytes: usize) -> Result<SplitStream> {
        let paths = self.part_paths(path, max_bytes)?;
        let writers = self.into_parts(max_bytes);
        let parts = writers.into_iter().zip(&paths).map(|(writer, path)| writer.create(path));
        let parts = parts.collect::<Result<_>>()?;
        Ok(SplitStream { parts, current: 0 })
    }

    fn into_parts(self, max_bytes: usize) -> Vec<Self> {
        let lengths = self.part_lengths(max_bytes);
        let (tensors, count) = (self.tensors.len(), lengths.len());
        let mut rest = self.tensors.into_iter();
        let mut metadata = self.metadata;
        let part = |(index, length): (usize, usize)| {
            let mut part = Self {
                metadata: std::mem::take(&mut metadata),
                tensors: rest.by_ref().take(length).collect(),
            };
            part.set(NUMBER, Value::U16(index as u16));
            part.set(COUNT, Value::U16(count as u16));
            part.set(TENSORS, Value::I32(tensors as i32));
            part
        };
        lengths.into_iter().enumerate().map(part).collect()
    }

    /// Tensors of each part.
    fn part_lengths(&self, max_bytes: usize) -> Vec<usize> {
        let mut lengths = vec![0];
        let mut held = 0;
        for tensor in self.tensors.values() {
            let last = lengths.len() - 1;
            if lengths[last] > 0 && tensor.bytes > max_bytes.saturating_sub(held) {
                lengths.push(1);
                held = tensor.bytes;
            } else {
                lengths[last] += 1;
                held = held.saturating_add(tensor.bytes);
            }
        }
        lengths
    }
}

/// A model in one part.
impl From<TensorStream> for SplitStream {
    fn from(whole: TensorStream) -> Self {
        Self { parts: vec![whole], current: 0 }
    }
}

impl SplitStream {
    /// Appends bytes of the planned tensors, in pieces of any size.
    ///
    /// # Errors
    /// If more bytes than planned are written, or the system reports an error.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            self.skip_complete();
            let part = &mut self.parts[self.current];
            // The last part reports bytes beyond the planned tensors as an error.
            let missing = part.next().map_or(bytes.len(), |(_, missing)| missing);
            let (now, later) = bytes.split_at(missing.min(bytes.len()));
            part.write(now)?;
            bytes = later;
        }
        Ok(())
    }

    /// Gives the files their names; an error if a tensor lacks bytes.
    ///
    /// # Errors
    /// If bytes are missing, or the system reports an error.
    pub fn finish(self) -> Result<()> {
        self.parts.iter().try_for_each(TensorStream::check_complete)?;
        self.parts.into_iter().try_for_each(TensorStream::finish)
    }

    fn skip_complete(&mut self) {
        while self.current + 1 < self.parts.len() && self.parts[self.current].next().is_none() {
            self.current += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::GgufFile;
    use kernels::quant;

    fn planned(lengths: &[usize]) -> GgufWriter {
        let mut writer = GgufWriter::new();
        writer.set("a.key", Value::Bool(true));
        for (index, &length) in lengths.iter().enumerate() {
            writer.plan(&format!("t{index}"), &quant::F32, &[length]).unwrap();
        }
        writer
    }

    fn check(lengths: &[usize], max_bytes: usize, expected: &[usize]) {
        assert_eq!(planned(lengths).part_lengths(max_bytes), expected, "{lengths:?} {max_bytes}");
    }

    #[test]
    fn parts_hold_what_fits_and_at_least_one_tensor() {
        check(&[1, 1, 1], 8, &[2, 1]);
        check(&[1, 1, 1], 12, &[3]);
        check(&[9, 1, 9], 8, &[1, 1, 1]);
        check(&[1, 1], 0, &[1, 1]);
        check(&[], 8, &[0]);
    }

    #[test]
    fn parts_open_as_one_model_and_appear_only_when_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.gguf");
        let paths = planned(&[3, 0, 5]).part_paths(&path, 12).unwrap();
        let mut stream = planned(&[3, 0, 5]).create_split(&path, 12).unwrap();
        let bytes: Vec<u8> = (0..32).collect();
        stream.write(&bytes[..7]).unwrap();
        assert!(paths.iter().all(|part| !part.exists()));
        stream.write(&bytes[7..]).unwrap();
        assert!(stream.write(&[0]).is_err());
        assert_eq!(paths.len(), 2);
        stream.finish().unwrap();
        let file = GgufFile::open(&paths[1]).unwrap();
        assert_eq!(file.metadata().opt_flag("a.key").unwrap(), Some(true));
        let data = file.tensors().iter().map(|tensor| tensor.bytes());
        let data = data.flat_map(|data| data.read(0..data.len()).into_owned());
        assert_eq!(data.collect::<Vec<u8>>(), bytes);
    }

    #[test]
    fn unfinished_parts_leave_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let stream = planned(&[3, 5]).create_split(&folder.path().join("m.gguf"), 12).unwrap();
        assert!(stream.finish().is_err());
        assert_eq!(folder.path().read_dir().unwrap().count(), 0);
    }
}
