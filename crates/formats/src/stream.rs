//! Writing the data of planned tensors as one stream, piece by piece.
//!
//! Invariant: the file appears under its name only when every planned byte was written.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// An output file whose header is written; takes the tensors' bytes in planned order.
#[derive(Debug)]
pub struct TensorStream {
    path: PathBuf,
    unfinished: PathBuf,
    file: BufWriter<File>,
    /// Name and bytes of every tensor.
    plan: Vec<(String, usize)>,
    alignment: usize,
    current: usize,
    written: usize,
}

impl TensorStream {
    pub(crate) fn create(
        path: &Path,
        header: &[u8],
        plan: Vec<(String, usize)>,
        alignment: usize,
    ) -> Result<Self> {
        let unfinished = path.with_added_extension("incomplete");
        let file = File::create(&unfinished).map_err(|e| Error::write(path, e))?;
        let mut stream = Self {
            path: path.to_owned(),
            unfinished,
            file: BufWriter::with_capacity(1 << 20, file),
            plan,
            alignment,
            current: 0,
            written: 0,
        };
        stream.put(header)?;
        stream.pad(header.len())?;
        stream.skip_complete()?;
        Ok(stream)
    }

    /// The tensor of the next byte and the number of bytes it lacks; `None` when all are written.
    pub fn next(&self) -> Option<(&str, usize)> {
        let (name, bytes) = self.plan.get(self.current)?;
        Some((name, bytes - self.written))
    }

    /// Appends bytes of the planned tensors, in pieces of any size.
    ///
    /// # Errors
    /// If more bytes than planned are written, or the system reports an error.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let Some((_, missing)) = self.next() else {
                let problem = format!("{} bytes too many for the planned tensors", bytes.len());
                return Err(Error::file(&self.path, problem));
            };
            let (now, later) = bytes.split_at(missing.min(bytes.len()));
            self.put(now)?;
            self.written += now.len();
            self.skip_complete()?;
            bytes = later;
        }
        Ok(())
    }

    /// An error if a tensor lacks bytes.
    pub(crate) fn check_complete(&self) -> Result<()> {
        let Some((name, missing)) = self.next() else { return Ok(()) };
        let problem = format!("{missing} bytes were never written");
        Err(Error::tensor(&self.path, name, problem))
    }

    /// Gives the file its name; an error if a tensor lacks bytes.
    ///
    /// # Errors
    /// If bytes are missing, or the system reports an error.
    pub fn finish(mut self) -> Result<()> {
        self.check_complete()?;
        self.file.flush().map_err(|e| Error::write(&self.path, e))?;
        std::fs::rename(&self.unfinished, &self.path).map_err(|e| Error::write(&self.path, e))
    }

    fn skip_complete(&mut self) -> Result<()> {
        while self.next().is_some_and(|(_, missing)| missing == 0) {
            self.pad(self.written)?;
            self.current += 1;
            self.written = 0;
        }
        Ok(())
    }

    fn pad(&mut self, written: usize) -> Result<()> {
        let missing = written.next_multiple_of(self.alignment) - written;
        self.put(&vec![0; missing])
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|e| Error::write(&self.path, e))
    }
}

impl Drop for TensorStream {
    fn drop(&mut self) {
        // Removes an incomplete file; after `finish` there is none under this name.
        let _ = std::fs::remove_file(&self.unfinished);
    }
}
