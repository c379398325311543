//! The parts of an expert in files, and reading them into a slot.

use base::{AlignedVec, DirectFile, PageVec, ReadJob};
use kernels::Isa;
use kernels::layout::Layout;
use kernels::quant::QuantType;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Parts begin at multiples of this in a slot, where reads past the page cache can write them.
const PAGE: usize = 4096;
/// Bytes that are read before they are packed, about.
const READ: usize = 4 << 20;

/// A file that parts are read from, at any time and in any order.
pub(in crate::cpu) trait PartFile: Send + Sync {
    /// As [`DirectFile::covering`].
    fn covering(&self, range: &Range<u64>) -> Range<u64>;
    /// As [`DirectFile::read`].
    fn read(&self, range: &Range<u64>, buffer: &mut [u8]) -> io::Result<Range<usize>>;
    /// As [`DirectFile::has_changed`].
    fn has_changed(&self) -> bool;
    /// The path, for messages.
    fn path(&self) -> &Path;
}

impl PartFile for DirectFile {
    fn covering(&self, range: &Range<u64>) -> Range<u64> {
        self.covering(range)
    }

    fn read(&self, range: &Range<u64>, buffer: &mut [u8]) -> io::Result<Range<usize>> {
        self.read(range, buffer)
    }

    fn has_changed(&self) -> bool {
        self.has_changed()
    }

    fn path(&self) -> &Path {
        self.path()
    }
}

/// A matrix of an expert.
pub(in crate::cpu) struct EntryPart {
    pub file: Arc<dyn PartFile>,
    pub range: Range<u64>,
    /// CRC32C of the bytes, where it is known.
    pub crc32c: Option<u32>,
    /// How the bytes are packed; `None` if products read them as they are in the file.
    pub packing: Option<Packing>,
}

/// How rows of a file become packed groups.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Packing {
    pub isa: Isa,
    pub layout: &'static Layout,
    pub ty: &'static QuantType,
    /// Inputs.
    pub cols: usize,
    /// Bytes of the rows of a group in the file.
    pub rows: usize,
    /// Bytes of a packed group.
    pub group: usize,
}

/// The matrices of an expert that are read and evicted together, each at its place in a slot.
pub(in crate::cpu) struct Entry {
    parts: Vec<(EntryPart, Range<usize>)>,
}

impl EntryPart {
    fn len(&self) -> usize {
        (self.range.end - self.range.start) as usize
    }

    /// Bytes of a read, whole units of the file system.
    fn covering(&self) -> usize {
        let all = self.file.covering(&self.range);
        (all.end - all.start) as usize
    }

    /// Bytes of a unit of the file system.
    fn unit(&self) -> usize {
        self.file.covering(&(0..1)).count()
    }

    /// Bytes in a slot: of what is read, the same wherever it begins within a page.
    fn space(&self) -> usize {
        match &self.packing {
            Some(packing) => self.len().div_ceil(packing.rows) * packing.group,
            None => self.covering().max(self.len().next_multiple_of(PAGE) + PAGE),
        }
    }

    /// Reads the bytes of the file and compares their checksum.
    fn read(&self, buffer: &mut [u8]) -> io::Result<Range<usize>> {
        let within = self.file.read(&self.range, buffer)?;
        match self.crc32c {
            Some(expected) if crc32c::crc32c(&buffer[within.clone()]) != expected => {
                let Range { start, end } = &self.range;
                let problem = format!("bytes {start} to {end} differ from their checksum");
                Err(io::Error::new(io::ErrorKind::InvalidData, problem))
            }
            _ => Ok(within),
        }
    }

    /// Reads the part into its place in a slot, and returns where in that its bytes are.
    fn fill(&self, place: &mut [u8], scratch: &mut AlignedVec<u8>) -> io::Result<Range<usize>> {
        let Some(Packing { isa, layout, ty, cols, rows, group }) = self.packing else {
            return self.read(place);
        };
        let groups = groups_at_once(rows);
        let mut from = self.range.start;
        for packed in place.chunks_mut(groups * group) {
            let piece = from..self.range.end.min(from + (groups * rows) as u64);
            let bytes = pages(scratch, self.file.covering(&piece).count());
            let within = self.file.read(&piece, bytes)?;
            for (rows, group) in bytes[within].chunks(rows).zip(packed.chunks_mut(group)) {
                layout.pack(isa, ty, cols, rows, group);
            }
            from = piece.end;
        }
        Ok(0..place.len())
    }
}

/// Groups of rows, of so many bytes each, that are read before they are packed.
fn groups_at_once(rows: usize) -> usize {
    (READ / rows).max(1)
}

/// `len` bytes that begin with a page, of memory that grows.
fn pages(memory: &mut AlignedVec<u8>, len: usize) -> &mut [u8] {
    if memory.len() < len + PAGE {
        *memory = AlignedVec::zeroed((len + PAGE).next_power_of_two());
    }
    let skip = memory.as_ptr().align_offset(PAGE);
    &mut memory[skip..][..len]
}

impl Entry {
    pub fn new(parts: Vec<EntryPart>) -> Self {
        let mut end = 0;
        let place = |part: EntryPart| {
            let start = end;
            end = (start + part.space()).next_multiple_of(PAGE);
            let space = start..start + part.space();
            (part, space)
        };
        Self { parts: parts.into_iter().map(place).collect() }
    }

    /// Bytes of a slot for the expert: whole pages.
    pub fn space(&self) -> usize {
        self.parts.last().map_or(0, |(_, place)| place.end.next_multiple_of(PAGE))
    }

    /// Bytes that a thread needs beside the slot, to read what it packs.
    pub fn scratch(&self) -> usize {
        let packed = self.parts.iter().filter_map(|(part, _)| {
            let rows = part.packing.as_ref()?.rows;
            Some((groups_at_once(rows) * rows).min(part.len()) + 2 * part.unit())
        });
        packed.max().map_or(0, |bytes| (bytes + PAGE).next_power_of_two())
    }

    /// Where the matrices are in a slot that nothing was read into.
    pub fn places(&self) -> impl Iterator<Item = Range<usize>> {
        self.parts.iter().map(|(part, place)| match part.packing {
            Some(_) => place.clone(),
            None => place.start..place.start + part.len(),
        })
    }

    /// Bytes that are read.
    pub fn file_bytes(&self) -> usize {
        self.parts.iter().map(|(part, _)| part.covering()).sum()
    }

    /// The file of the first matrix, and where it begins there.
    pub fn place(&self) -> Option<(&Path, u64)> {
        self.parts.first().map(|(part, _)| (part.file.path(), part.range.start))
    }

    /// A file of the expert that is not the one that was opened.
    pub fn changed_file(&self) -> Option<&Path> {
        let mut files = self.parts.iter().map(|(part, _)| &part.file);
        files.find(|file| file.has_changed()).map(|file| file.path())
    }
}

/// Fills a slot with an expert.
pub(super) struct FillJob {
    /// Number of the expert.
    pub number: usize,
    pub entry: Arc<Entry>,
    /// Number of the slot, and its memory.
    pub slot: usize,
    pub memory: PageVec,
    /// Where the matrices are in the memory, once they are there.
    pub filled: io::Result<Vec<Range<usize>>>,
    /// Time of reading and packing.
    pub took: Duration,
}

impl ReadJob for FillJob {
    fn run(&mut self, scratch: &mut AlignedVec<u8>) {
        let start = Instant::now();
        self.fill(scratch);
        self.took = start.elapsed();
    }
}

impl FillJob {
    fn fill(&mut self, scratch: &mut AlignedVec<u8>) {
        // The vector of ranges is used again.
        let mut places = std::mem::replace(&mut self.filled, Ok(Vec::new())).unwrap_or_default();
        places.clear();
        for (part, place) in &self.entry.parts {
            match part.fill(&mut self.memory[place.clone()], scratch) {
                Ok(within) => places.push(place.start + within.start..place.start + within.end),
                Err(error) => {
                    let text = format!("{}: {error}", part.file.path().display());
                    self.filled = Err(io::Error::new(error.kind(), text));
                    return;
                }
            }
        }
        self.filled = Ok(places);
    }
}
