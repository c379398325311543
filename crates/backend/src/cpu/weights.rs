//! Weight matrices of the CPU: as the file stores them, or packed for products with rounded
//! activations.

use super::packed_parts::PackedParts;
use super::packing::{PackJob, ReadAhead, pack_all};
use super::stream::{EntryPart, Packing, WeightStream};
use crate::error::Error;
use crate::handles::{Matrix, MatrixSpec, MemoryPolicy, Mode, PackedMatrix, Storage, ThreadLimits};
use base::{ALIGN, AlignedVec, FilePart, OutOfMemory, ThreadPool};
use kernels::Isa;
use kernels::layout::{self, GROUP, Layout, STORED};
use kernels::quant::QuantType;
use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of one allocation for packed weights, which share it so that they are in huge pages.
const CHUNK: usize = 256 << 20;
/// Bytes that are packed at once, at least.
const AT_ONCE: usize = 16 << 20;

/// A weight matrix and the layout of its bytes.
pub(super) struct WeightMatrix {
    pub name: String,
    pub ty: &'static QuantType,
    pub rows: usize,
    pub cols: usize,
    /// The input of each column, where the columns are in another order.
    pub order: Option<Arc<[u32]>>,
    pub threads: ThreadLimits,
    pub layout: &'static Layout,
    pub bytes: WeightBytes,
}

/// Where the bytes of a matrix are.
pub(super) enum WeightBytes {
    /// In a file, or computed once from it.
    File(Storage),
    /// On disk, and read into a slot when products need it.
    Streamed {
        /// Number of the expert, or of the matrix of a layer.
        expert: usize,
        /// Number of the matrix within it.
        part: usize,
    },
    /// Packed, from the first product on.
    Packed(InChunk),
}

/// Bytes of a chunk.
pub(super) struct InChunk {
    chunk: usize,
    range: Range<usize>,
}

impl InChunk {
    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.range.len()
    }
}

/// What is to be done with a packed matrix before its first product.
enum FirstUse {
    /// It is packed.
    Pack(PackJob),
    /// It is read from the file that holds it packed.
    Read {
        bytes: Storage,
        /// As [`PackJob::routed`].
        routed: bool,
    },
}

/// All weight matrices, and the memory of the packed ones.
#[derive(Default)]
pub(super) struct Matrices {
    all: Vec<WeightMatrix>,
    chunks: Vec<AlignedVec<u8>>,
    /// Bytes in use of the last chunk.
    used: usize,
    /// Packed matrices of a file.
    parts: PackedParts,
    /// What remains to be done with each packed matrix before it is used.
    unused: Vec<Option<FirstUse>>,
    /// How many of these there are.
    waiting: usize,
    /// Matrices before this one are ready.
    next: usize,
    /// Requests bytes of the matrices that are used next; made with the first of them.
    ahead: Option<ReadAhead>,
    /// Matrices that products have packed on the fly and that are to be kept packed.
    deferred: VecDeque<usize>,
    /// When the current step began.
    begun: Option<Instant>,
    /// How long the last step took, once one has ended.
    last_step: Option<Duration>,
    /// Whether steps took longer lately than they will.
    prepared: bool,
    /// Bytes that are locked in memory, tables included.
    locked: usize,
    /// Weights that are not all in memory.
    pub stream: WeightStream,
    /// Streamed matrices whose expert or layer is not known yet.
    parts_of_streamed: HashMap<usize, EntryPart>,
}

/// The layout that a matrix `[rows, cols]` is packed into for products in `mode`, and its bytes.
/// Without one the matrix is multiplied as stored.
pub(super) fn packed_layout(
    ty: &QuantType,
    rows: usize,
    cols: usize,
    mode: Mode,
    isa: Isa,
) -> Option<(&'static Layout, usize)> {
    let layout = layout::packed(ty, cols, isa).filter(|_| mode == Mode::Fast)?;
    Some((layout, layout.bytes(ty, rows, cols)?))
}

impl Matrices {
    pub fn get(&self, index: usize) -> &WeightMatrix {
        &self.all[index]
    }

    /// All of them, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = &WeightMatrix> {
        self.all.iter()
    }

    /// The bytes of a matrix in its layout.
    pub fn read<'a>(&'a self, weights: &'a WeightMatrix) -> Cow<'a, [u8]> {
        match &weights.bytes {
            // In memory, so that this lends it.
            WeightBytes::File(bytes) => bytes.read(0..bytes.len()),
            WeightBytes::Streamed { expert, part } => {
                Cow::Borrowed(self.stream.bytes(*expert, *part))
            }
            WeightBytes::Packed(at) => Cow::Borrowed(&self.chunks[at.chunk][at.range.clone()]),
        }
    }

    /// Bytes held, mapped files and slots included.
    pub fn bytes(&self) -> usize {
        let bytes = |weights: &WeightMatrix| match &weights.bytes {
            WeightBytes::File(bytes) => bytes.len(),
            WeightBytes::Streamed { .. } => 0,
            WeightBytes::Packed(at) => at.range.len(),
        };
        self.all.iter().map(bytes).sum::<usize>() + self.stream.slot_bytes()
    }

    /// Whether a matrix uses these bytes as they are.
    pub fn uses(&self, table: &Storage) -> bool {
        let first = |bytes: &Storage| bytes.read(0..bytes.len()).as_ptr();
        self.all.iter().any(|weights| match &weights.bytes {
            WeightBytes::File(bytes) => first(bytes) == first(table),
            WeightBytes::Streamed { .. } | WeightBytes::Packed(_) => false,
        })
    }

    /// Adds a matrix for products in `mode` and returns its index. Where it has a packed layout,
    /// its memory is reserved here, and [`Matrices::prepare`] packs it.
    ///
    /// # Errors
    /// If its type cannot be computed with, or memory or the system's limits do not suffice.
    pub fn add(&mut self, spec: MatrixSpec, mode: Mode, isa: Isa) -> Result<usize, Error> {
        let row_bytes = spec.row_bytes()?;
        let MatrixSpec { ty, rows, cols, memory, .. } = spec;
        assert_eq!(Some(spec.bytes.len()), rows.checked_mul(row_bytes), "matrix bytes");
        let permutes = |order: &Arc<[u32]>| {
            let mut all = order.to_vec();
            all.sort_unstable();
            all.into_iter().eq(0..cols as u32)
        };
        assert!(spec.order.as_ref().is_none_or(permutes), "an order of the inputs");
        let packs = matches!(memory, MemoryPolicy::Auto | MemoryPolicy::Disk) && rows > 0;
        let packed = packed_layout(ty, rows, cols, mode, isa).filter(|_| packs);
        let part = self.parts.take(&spec, packed);
        let MatrixSpec { name, ty, rows, cols, bytes, order, memory, threads, .. } = spec;
        let (layout, held, unused) = match (packed, part, memory) {
            (packed, part, MemoryPolicy::Disk) => {
                let packing = packed.filter(|_| part.is_none()).map(|(layout, len)| {
                    let (group, rows) = (len / rows.div_ceil(GROUP), row_bytes * GROUP);
                    Packing { isa, layout, ty, cols, rows, group }
                });
                let part = self.part_of_file(&part.unwrap_or(bytes), packing)?;
                self.parts_of_streamed.insert(self.all.len(), part);
                let layout = packed.map_or(&STORED, |(layout, _)| layout);
                (layout, WeightBytes::Streamed { expert: usize::MAX, part: 0 }, None)
            }
            (Some((layout, _)), Some(part), _) => {
                let unused = FirstUse::Read { bytes: part.clone(), routed: false };
                (layout, WeightBytes::File(part), Some(unused))
            }
            (Some((layout, len)), None, _) => {
                let at = self.reserve(len)?;
                let (group, to) = (len / rows.div_ceil(GROUP), (at.chunk, at.range.start));
                let rows = row_bytes * GROUP;
                let job = PackJob {
                    bytes,
                    layout,
                    ty,
                    cols,
                    rows,
                    group,
                    to,
                    routed: false,
                    deferred: false,
                };
                (layout, WeightBytes::Packed(at), Some(FirstUse::Pack(job)))
            }
            (None, ..) => {
                // The disk reads on while other tensors are looked at.
                bytes.will_need(0..rows * row_bytes);
                (&STORED, WeightBytes::File(self.hold(bytes, memory)?), None)
            }
        };
        self.waiting += usize::from(unused.is_some());
        self.unused.push(unused);
        let weights = WeightMatrix { name, ty, rows, cols, order, threads, layout, bytes: held };
        self.all.push(weights);
        Ok(self.all.len() - 1)
    }

    /// Holds bytes that are used as stored, as `memory` says.
    ///
    /// # Errors
    /// If the bytes are in no file although `memory` requires it, or the system refuses to lock
    /// them.
    pub fn hold(&mut self, bytes: Storage, memory: MemoryPolicy) -> Result<Storage, Error> {
        let (len, before) = (bytes.len(), self.locked);
        match memory {
            MemoryPolicy::Auto | MemoryPolicy::Mapped => Ok(in_memory(bytes)),
            MemoryPolicy::Locked => {
                bytes.lock(0..len).map_err(|source| match source.kind() {
                    ErrorKind::Unsupported => Error::Computed("locked in memory"),
                    _ => Error::Lock { bytes: len, before, source },
                })?;
                self.locked += len;
                Ok(bytes)
            }
            MemoryPolicy::Disk | MemoryPolicy::Rows => match bytes.read(0..len.min(1)) {
                Cow::Owned(_) => Err(Error::Computed("left on disk")),
                Cow::Borrowed(_) => {
                    bytes.random_access(0..len);
                    Ok(bytes.clone())
                }
            },
        }
    }

    /// Where a streamed matrix is read from.
    ///
    /// # Errors
    /// If its bytes are computed when read, or their file cannot be opened.
    fn part_of_file(
        &mut self,
        bytes: &Storage,
        packing: Option<Packing>,
    ) -> Result<EntryPart, Error> {
        let place = bytes.place(0..bytes.len()).ok_or(Error::NotInFile)?;
        let FilePart { path, range, crc32c } = place;
        let file = self.stream.open(&path).map_err(|source| Error::Open { path, source })?;
        Ok(EntryPart { file, range, crc32c, packing })
    }

    /// Makes each expert's matrices, of which the slices have one each, one that is read as a
    /// whole, where they are streamed. Returns the number of the first expert.
    pub fn stream_experts(&mut self, matrices: &[&[Matrix]]) -> Option<usize> {
        let is_streamed = |all: &&[Matrix]| self.parts_of_streamed.contains_key(&all[0].0);
        let streamed: Vec<bool> = matrices.iter().map(is_streamed).collect();
        if !streamed.contains(&true) {
            return None;
        }
        let all: Vec<Vec<usize>> = (0..matrices[0].len())
            .map(|at| {
                let own = matrices.iter().zip(&streamed).filter(|(_, streamed)| **streamed);
                own.map(|(all, _)| all[at].0).collect()
            })
            .collect();
        let Self { parts_of_streamed: parts, stream, .. } = self;
        let take = |own: &Vec<usize>| own.iter().filter_map(|it| parts.remove(it)).collect();
        let first = stream.add_experts(all.iter().map(take));
        for (expert, own) in (first..).zip(all) {
            for (part, index) in own.into_iter().enumerate() {
                self.all[index].bytes = WeightBytes::Streamed { expert, part };
            }
        }
        Some(first)
    }

    /// Makes the streamed matrices that are no experts, of those added since the last call, one
    /// layer that is read before it is used.
    pub fn stream_layer(&mut self) {
        let mut all: Vec<_> = self.parts_of_streamed.drain().collect();
        if all.is_empty() {
            return;
        }
        all.sort_unstable_by_key(|(index, _)| *index);
        let (indices, parts): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        let first = self.stream.add_layer(parts.into_iter());
        for (expert, index) in (first..).zip(indices) {
            self.all[index].bytes = WeightBytes::Streamed { expert, part: 0 };
        }
    }

    /// Brings the matrices of a product into memory, if they are streamed and no experts.
    pub fn need(&mut self, used: impl Iterator<Item = usize>) {
        let Self { all, stream, .. } = self;
        stream.need(used.filter_map(|index| match all[index].bytes {
            WeightBytes::Streamed { expert, .. } => Some(expert),
            WeightBytes::File(_) | WeightBytes::Packed(_) => None,
        }));
    }

    /// Uses packed matrices of a file for matrices that are added from now on.
    pub fn use_packed(&mut self, parts: Vec<(PackedMatrix, Storage)>) {
        self.parts = PackedParts::new(parts);
    }

    /// The packed matrices, in the order in which they were added.
    pub fn packed(&self) -> Vec<(Matrix, PackedMatrix)> {
        let (mut added, mut packed) = (HashMap::<&str, u32>::new(), Vec::new());
        for (at, weights) in self.all.iter().enumerate() {
            let WeightMatrix { name, ty, rows, cols, layout, .. } = weights;
            let added = added.entry(name).or_default();
            let index = std::mem::replace(added, *added + 1);
            if layout.name != STORED.name {
                let (name, layout) = (name.clone(), layout.name.to_owned());
                let (ty, rows, cols) = (*ty, *rows, *cols);
                packed.push((Matrix(at), PackedMatrix { name, index, ty, rows, cols, layout }));
            }
        }
        packed
    }

    /// Notes that products need a matrix only for the rows that choose it, so that its bytes are
    /// not requested before.
    pub fn note_routed(&mut self, index: usize) {
        match &mut self.unused[index] {
            Some(FirstUse::Pack(PackJob { routed, .. }) | FirstUse::Read { routed, .. }) => {
                *routed = true;
            }
            None => {}
        }
    }

    /// The job that packs a matrix, while it is not packed.
    pub fn unpacked(&self, index: usize) -> Option<&PackJob> {
        match &self.unused[index] {
            Some(FirstUse::Pack(job)) => Some(job),
            Some(FirstUse::Read { .. }) | None => None,
        }
    }

    /// Prepares those of the matrices of a product that no product has used yet.
    pub fn prepare(&mut self, used: impl Iterator<Item = usize>, isa: Isa, pool: &ThreadPool) {
        if self.waiting > 0 {
            let all = used.filter_map(|index| self.unused[index].take()).collect();
            self.prepare_all(all, isa, pool);
        }
    }

    /// As [`Matrices::prepare`], without matrices that the product can pack on the fly, piece by
    /// piece and without keeping them: the first step then takes no new memory for weights. They
    /// are kept from a later step on. Experts that later steps are the first to choose are kept at
    /// once.
    pub fn defer(&mut self, used: impl Iterator<Item = usize>, isa: Isa, pool: &ThreadPool) {
        if self.waiting == 0 {
            return;
        }
        let mut others = Vec::new();
        for index in used {
            let job = match &mut self.unused[index] {
                Some(FirstUse::Pack(job))
                    if job.deferred
                        || !(self.last_step.is_some() && job.routed || job.is_computed()) =>
                {
                    job
                }
                unused => {
                    others.extend(unused.take());
                    continue;
                }
            };
            self.prepared = true;
            if std::mem::replace(&mut job.deferred, true) {
                continue;
            }
            self.deferred.push_back(index);
            let (routed, bytes) = (job.routed, job.bytes.clone());
            if routed {
                bytes.will_need(0..bytes.len());
            } else {
                let ahead = self.ahead.get_or_insert_with(|| read_ahead(&[], &self.unused));
                ahead.advance(bytes.len());
            }
        }
        self.prepare_all(others, isa, pool);
    }

    /// Begins a step: packs matrices that were packed on the fly, and keeps them, for about as long
    /// as the last step took.
    pub fn begin_step(&mut self, isa: Isa, pool: &ThreadPool) {
        let begun = Instant::now();
        while let Some(last_step) = self.last_step
            && !self.deferred.is_empty()
        {
            self.prepare_some(|this| this.deferred.pop_front(), isa, pool);
            if begun.elapsed() >= last_step {
                break;
            }
        }
        self.begun = Some(Instant::now());
    }

    /// Continues a step, after others were begun.
    pub fn resume_step(&mut self) {
        self.begun = Some(Instant::now());
    }

    /// Ends a step.
    pub fn end_step(&mut self) {
        self.last_step = self.begun.take().map(|begun| begun.elapsed());
    }

    /// Prepares some more matrices, in the order in which they were added. Returns whether any are
    /// left.
    pub fn prepare_next(&mut self, isa: Isa, pool: &ThreadPool) -> bool {
        let next = |this: &mut Self| {
            let at = this.next;
            this.next = this.unused.len().min(at + 1);
            (at < this.next).then_some(at)
        };
        self.prepare_some(next, isa, pool);
        self.waiting > 0
    }

    /// Whether operations since the last call took time to prepare matrices.
    pub fn take_prepared(&mut self) -> bool {
        std::mem::take(&mut self.prepared)
    }

    /// Prepares matrices that `next` gives, until they are enough for all threads.
    fn prepare_some(
        &mut self,
        mut next: impl FnMut(&mut Self) -> Option<usize>,
        isa: Isa,
        pool: &ThreadPool,
    ) {
        let (mut all, mut bytes) = (Vec::new(), 0);
        while bytes < AT_ONCE
            && let Some(index) = next(self)
        {
            let unused = self.unused[index].take();
            bytes += unused.as_ref().map_or(0, |unused| unused.bytes().len());
            all.extend(unused);
        }
        self.prepare_all(all, isa, pool);
    }

    fn prepare_all(&mut self, all: Vec<FirstUse>, isa: Isa, pool: &ThreadPool) {
        if all.is_empty() {
            return;
        }
        self.waiting -= all.len();
        let ahead = self.ahead.get_or_insert_with(|| read_ahead(&all, &self.unused));
        let mut jobs = Vec::new();
        for unused in all {
            match unused {
                FirstUse::Pack(job) => jobs.push(job),
                FirstUse::Read { bytes, routed: true } => bytes.will_need(0..bytes.len()),
                FirstUse::Read { bytes, routed: false } => ahead.advance(bytes.len()),
            }
        }
        self.prepared |= !jobs.is_empty();
        jobs.sort_unstable_by_key(|job| job.to);
        pack_all(&jobs, &mut self.chunks, ahead, isa, pool);
        if self.waiting == 0 {
            self.ahead = None;
        }
    }

    /// Reserves `bytes` bytes.
    fn reserve(&mut self, bytes: usize) -> Result<InChunk, OutOfMemory> {
        let fits = self.chunks.last().is_some_and(|chunk| chunk.len() - self.used >= bytes);
        if !fits {
            self.chunks.push(AlignedVec::try_zeroed(bytes.max(CHUNK))?);
            self.used = 0;
        }
        let start = self.used;
        self.used =
            (start + bytes.next_multiple_of(ALIGN)).min(self.chunks[self.chunks.len() - 1].len());
        Ok(InChunk { chunk: self.chunks.len() - 1, range: start..start + bytes })
    }
}

/// Requests bytes of matrices that are not prepared: of `first`, then of the others.
fn read_ahead(first: &[FirstUse], others: &[Option<FirstUse>]) -> ReadAhead {
    let all = first.iter().chain(others.iter().flatten());
    ReadAhead::of(all.filter(|unused| !unused.routed()).map(FirstUse::bytes))
}

impl FirstUse {
    /// The bytes that it reads.
    fn bytes(&self) -> &Storage {
        match self {
            Self::Pack(PackJob { bytes, .. }) | Self::Read { bytes, .. } => bytes,
        }
    }

    /// As [`PackJob::routed`].
    fn routed(&self) -> bool {
        match self {
            Self::Pack(PackJob { routed, .. }) | Self::Read { routed, .. } => *routed,
        }
    }
}

/// Bytes that are computed when read, computed once for all; others unchanged.
fn in_memory(bytes: Storage) -> Storage {
    let computed = match bytes.read(0..bytes.len()) {
        Cow::Borrowed(_) => None,
        Cow::Owned(computed) => Some(computed),
    };
    if computed.is_some() {
        bytes.not_needed(0..bytes.len());
    }
    computed.map_or(bytes, |computed| Arc::new(computed))
}
