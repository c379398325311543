//! Writing files of packed weights, part by part.
//!
//! Invariant: the file appears under its name when it is complete and on disk, or not at all.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use kernels::layout::LAYOUT_VERSION;

use crate::error::{Error, Result};
use crate::pack::table::{
    CHECKED, MAGIC, MAX_TABLE, PAGE, PackOrigin, PackPart, PackRow, PackTable, VERSION,
};

/// Most bytes of a part in the table without its name, whose characters take six at most.
const TABLE_ROW: usize = 256;

/// A file of packed weights that is being written.
#[derive(Debug)]
pub struct PackWriter {
    path: PathBuf,
    unfinished: PathBuf,
    file: BufWriter<File>,
    table: PackTable,
    /// Bytes written.
    end: usize,
}

impl PackWriter {
    /// Begins a file that appears at `path` when it is finished.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn create(path: &Path, origin: PackOrigin) -> Result<Self> {
        let unfinished = path.with_added_extension("incomplete");
        let file = File::create(&unfinished).map_err(|error| Error::write(path, error))?;
        let file = BufWriter::with_capacity(1 << 20, file);
        let table = PackTable { origin, parts: Vec::new() };
        let mut writer = Self { path: path.to_owned(), unfinished, file, table, end: 0 };
        writer.put(&[0; PAGE])?;
        Ok(writer)
    }

    /// Bytes of a file of these matrices, of so many bytes each: at most some more than it takes.
    pub fn bytes<'a>(parts: impl Iterator<Item = (&'a PackPart, usize)>) -> u64 {
        let row = |part: &PackPart| TABLE_ROW + 6 * part.name.len();
        let each = |(part, bytes): (&PackPart, usize)| bytes.next_multiple_of(PAGE) + row(part);
        (2 * PAGE + parts.map(each).sum::<usize>()) as u64
    }

    /// Appends a matrix with these bytes. Range and checksum of `part` do not matter.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn add(&mut self, part: &PackPart, bytes: &[u8]) -> Result<()> {
        let number = |value: usize| {
            let problem = || format!("part {part}: {value} rows or columns are too many");
            u32::try_from(value).map_err(|_| Error::file(&self.path, problem()))
        };
        let row = PackRow {
            name: part.name.clone(),
            index: part.index,
            ty: part.ty.name.to_owned(),
            layout: part.layout.clone(),
            rows: number(part.rows)?,
            cols: number(part.cols)?,
            offset: self.end as u64,
            bytes: bytes.len() as u64,
            crc32c: crc32c::crc32c(bytes),
        };
        self.table.parts.push(row);
        self.put(bytes)?;
        self.put(&[0; PAGE][..self.end.next_multiple_of(PAGE) - self.end])
    }

    /// Completes the file, gives it its name, and returns its size in bytes.
    ///
    /// # Errors
    /// If the file cannot be written, or has too many parts.
    pub fn finish(mut self) -> Result<u64> {
        let wrong = |problem: &str| Error::file(&self.path, problem);
        let table = serde_json::to_vec(&self.table).map_err(|error| wrong(&error.to_string()))?;
        if table.len() > MAX_TABLE {
            return Err(wrong("more parts than a file may have"));
        }
        let header = header(self.end, &table);
        self.put(&table)?;
        let bytes = self.end as u64;
        let complete = |writer: &mut Self| -> io::Result<()> {
            writer.file.seek(SeekFrom::Start(0))?;
            writer.file.write_all(&header)?;
            writer.file.flush()?;
            writer.file.get_ref().sync_all()?;
            std::fs::rename(&writer.unfinished, &writer.path)?;
            let folder = writer.path.parent().filter(|folder| !folder.as_os_str().is_empty());
            File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
        };
        complete(&mut self).map_err(|error| Error::write(&self.path, error))?;
        Ok(bytes)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.end += bytes.len();
        self.file.write_all(bytes).map_err(|error| Error::write(&self.path, error))
    }
}

impl Drop for PackWriter {
    fn drop(&mut self) {
        // Removes an incomplete file; after `finish` there is none under this name.
        let _ = std::fs::remove_file(&self.unfinished);
    }
}

/// The header of a file whose table is at `end`.
fn header(end: usize, table: &[u8]) -> Vec<u8> {
    let mut header = MAGIC.to_vec();
    header.extend(VERSION.to_le_bytes());
    header.extend(LAYOUT_VERSION.to_le_bytes());
    header.extend((end as u64).to_le_bytes());
    header.extend((table.len() as u64).to_le_bytes());
    header.extend(crc32c::crc32c(table).to_le_bytes());
    debug_assert_eq!(header.len(), CHECKED, "the fields that the checksum covers");
    header.extend(crc32c::crc32c(&header).to_le_bytes());
    header
}
