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
pub(in crate::cpu) const PAGE: usize = 4096;
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
    reads: Vec<EntryRead>,
}

/// Matrices that one read brings: one that is packed, or some that products read as they are and
/// that follow one another in the file.
struct EntryRead {
    parts: Vec<EntryPart>,
    /// Place in a slot.
    place: Range<usize>,
}

impl EntryPart {
    fn len(&self) -> usize {
        (self.range.end - self.range.start) as usize
    }

    /// Whether `next` begins in the page in which this part ends, or in the one after it, and both
    /// are read into the slot as they are.
    fn is_followed_by(&self, next: &Self) -> bool {
        let near = self.range.end..self.range.end + PAGE as u64;
        let as_stored = self.packing.is_none() && next.packing.is_none();
        as_stored && Arc::ptr_eq(&self.file, &next.file) && near.contains(&next.range.start)
    }

    /// Compares the bytes of the part with its checksum.
    fn check(&self, bytes: &[u8]) -> io::Result<()> {
        match self.crc32c {
            Some(expected) if crc32c::crc32c(bytes) != expected => {
                let Range { start, end } = &self.range;
                let problem = format!("bytes {start} to {end} differ from their checksum");
                Err(io::Error::new(io::ErrorKind::InvalidData, problem))
            }
            _ => Ok(()),
        }
    }
}

impl EntryRead {
    /// Reads of all parts, in their order.
    fn all(parts: Vec<EntryPart>) -> Vec<Self> {
        let mut reads: Vec<Self> = Vec::new();
        for part in parts {
            match reads.last_mut() {
                Some(read) if read.last().is_followed_by(&part) => read.parts.push(part),
                _ => reads.push(Self { parts: vec![part], place: 0..0 }),
            }
        }
        reads
    }

    fn last(&self) -> &EntryPart {
        &self.parts[self.parts.len() - 1]
    }

    fn file(&self) -> &dyn PartFile {
        &*self.parts[0].file
    }

    /// The bytes of the file from the first part to the last.
    fn range(&self) -> Range<u64> {
        self.parts[0].range.start..self.last().range.end
    }

    /// Where a part is within that range.
    fn within(&self, part: &EntryPart) -> Range<usize> {
        let start = (part.range.start - self.range().start) as usize;
        start..start + part.len()
    }

    /// Bytes of a read, whole units of the file system.
    fn covering(&self) -> usize {
        self.file().covering(&self.range()).count()
    }

    /// Bytes of a unit of the file system.
    fn unit(&self) -> usize {
        self.file().covering(&(0..1)).count()
    }

    /// Bytes in a slot: of what is read, the same wherever it begins within a page.
    fn space(&self) -> usize {
        match &self.parts[0].packing {
            Some(packing) => self.parts[0].len().div_ceil(packing.rows) * packing.group,
            None => self.covering().max(self.range().count().next_multiple_of(PAGE) + PAGE),
        }
    }

    /// Reads the parts, compares their checksums, and gives the place of each in `buffer`.
    fn read(&self, buffer: &mut [u8], mut found: impl FnMut(Range<usize>)) -> io::Result<()> {
        let Range { start, .. } = self.file().read(&self.range(), buffer)?;
        for part in &self.parts {
            let within = self.within(part);
            let place = start + within.start..start + within.end;
            part.check(&buffer[place.clone()])?;
            found(place);
        }
        Ok(())
    }

    /// Reads the parts into a slot, and appends where in that each of them is.
    fn fill(
        &self,
        slot: &mut [u8],
        scratch: &mut AlignedVec<u8>,
        places: &mut Vec<Range<usize>>,
    ) -> io::Result<()> {
        let (start, to) = (self.place.start, &mut slot[self.place.clone()]);
        let Some(Packing { isa, layout, ty, cols, rows, group }) = self.parts[0].packing else {
            return self.read(to, |at| places.push(start + at.start..start + at.end));
        };
        let (groups, range) = (groups_at_once(rows), self.range());
        let mut from = range.start;
        for packed in to.chunks_mut(groups * group) {
            let piece = from..range.end.min(from + (groups * rows) as u64);
            let bytes = pages(scratch, self.file().covering(&piece).count());
            let within = self.file().read(&piece, bytes)?;
            for (rows, group) in bytes[within].chunks(rows).zip(packed.chunks_mut(group)) {
                layout.pack(isa, ty, cols, rows, group);
            }
            from = piece.end;
        }
        places.push(self.place.clone());
        Ok(())
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
        let (mut reads, mut end) = (EntryRead::all(parts), 0);
        for read in &mut reads {
            read.place = end..end + read.space();
            end = read.place.end.next_multiple_of(PAGE);
        }
        Self { reads }
    }

    /// Bytes of a slot for the expert: whole pages.
    pub fn space(&self) -> usize {
        self.reads.last().map_or(0, |read| read.place.end.next_multiple_of(PAGE))
    }

    /// Bytes that a thread needs in addition to the slot, to read what it packs.
    pub fn scratch(&self) -> usize {
        let packed = self.reads.iter().filter_map(|read| {
            let rows = read.parts[0].packing.as_ref()?.rows;
            Some((groups_at_once(rows) * rows).min(read.parts[0].len()) + 2 * read.unit())
        });
        packed.max().map_or(0, |bytes| (bytes + PAGE).next_power_of_two())
    }

    /// Where the matrices are in a slot that nothing was read into.
    pub fn places(&self) -> impl Iterator<Item = Range<usize>> {
        self.reads.iter().flat_map(|read| {
            let start = read.place.start;
            read.parts.iter().map(move |part| match (part.packing, read.within(part)) {
                (Some(_), _) => read.place.clone(),
                (None, within) => start + within.start..start + within.end,
            })
        })
    }

    /// Bytes that are read.
    pub fn file_bytes(&self) -> usize {
        self.reads.iter().map(EntryRead::covering).sum()
    }

    /// The file of the first matrix, and where it begins there.
    pub fn place(&self) -> Option<(&Path, u64)> {
        self.reads.first().map(|read| (read.file().path(), read.range().start))
    }

    /// A file of the expert that is not the one that was opened.
    pub fn changed_file(&self) -> Option<&Path> {
        let mut files = self.reads.iter().map(EntryRead::file);
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
        for read in &self.entry.reads {
            if let Err(error) = read.fill(&mut self.memory, scratch, &mut places) {
                let text = format!("{}: {error}", read.file().path().display());
                self.filled = Err(io::Error::new(error.kind(), text));
                return;
            }
        }
        self.filled = Ok(places);
    }
}
