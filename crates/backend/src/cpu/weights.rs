//! Weight matrices of the CPU: as the file stores them, or packed for products with rounded activations.

use super::packing::{PackJob, PackJobs};
use crate::{Error, MatrixSpec, MemoryPolicy, Mode, Storage, ThreadLimits};
use base::{ALIGN, AlignedVec, OutOfMemory, ThreadPool};
use kernels::Isa;
use kernels::layout::int8::GROUP;
use kernels::layout::{bf16, fp8, int8};
use kernels::quant::{BF16, QuantType};
use std::borrow::Cow;
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of one allocation for packed weights. They are asked for lazily, and lie together so
/// that they lie in huge pages.
const CHUNK: usize = 256 << 20;

/// A weight matrix on its way to products.
pub(super) struct WeightMatrix {
    pub name: String,
    pub ty: &'static QuantType,
    pub rows: usize,
    pub cols: usize,
    /// The input of each column, where not its own number.
    pub order: Option<Arc<[u32]>>,
    pub threads: ThreadLimits,
    pub place: Place,
}

/// Where weights lie, and how.
pub(super) enum Place {
    /// Row-major, in the file, or computed once from it.
    Stored(Storage),
    /// Row-major, in the file, and not in memory unless the system has room for it.
    OnDisk(Storage),
    /// Packed for products with BF16.
    Bf16(InChunk),
    /// FP8, as many under one scale, packed for products with BF16.
    Fp8(usize, InChunk),
    /// Packed for products with bytes.
    Int8(kernels::quant::CodeLayout, InChunk),
}

/// Bytes of a chunk.
pub(super) struct InChunk {
    chunk: usize,
    range: Range<usize>,
}

/// All weight matrices, and the memory of those that are packed.
#[derive(Default)]
pub(super) struct Matrices {
    all: Vec<WeightMatrix>,
    chunks: Vec<AlignedVec<u8>>,
    /// Bytes in use of the last chunk.
    used: usize,
    /// What is to be packed before the first product.
    jobs: PackJobs,
    /// Bytes that are locked in memory, those of tables too.
    locked: usize,
}

impl Matrices {
    pub fn get(&self, index: usize) -> &WeightMatrix {
        &self.all[index]
    }

    /// All of them, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = &WeightMatrix> {
        self.all.iter()
    }

    /// Packed weights.
    pub fn bytes_at(&self, place: &InChunk) -> &[u8] {
        &self.chunks[place.chunk][place.range.clone()]
    }

    /// Bytes held, in files too.
    pub fn bytes(&self) -> usize {
        let bytes = |weights: &WeightMatrix| match &weights.place {
            Place::Stored(bytes) => bytes.len(),
            Place::OnDisk(_) => 0,
            Place::Bf16(place) | Place::Fp8(_, place) | Place::Int8(_, place) => place.range.len(),
        };
        self.all.iter().map(bytes).sum()
    }

    /// Whether a matrix uses these bytes as they are.
    pub fn uses(&self, table: &Storage) -> bool {
        let first = |bytes: &Storage| bytes.read(0..bytes.len()).as_ptr();
        self.all.iter().any(|weights| match &weights.place {
            Place::Stored(bytes) => first(bytes) == first(table),
            Place::OnDisk(_) | Place::Bf16(_) | Place::Fp8(..) | Place::Int8(..) => false,
        })
    }

    /// Takes a matrix for products in `mode` and gives its index. If there is a packing for it,
    /// it is packed by the next [`Matrices::pack`], and there is room for it already.
    pub fn add(&mut self, spec: MatrixSpec, mode: Mode, isa: Isa) -> Result<usize, Error> {
        let MatrixSpec { name, ty, rows, cols, bytes, order, memory, threads, .. } = spec;
        let row_bytes = row_bytes(ty, cols)?;
        assert_eq!(Some(bytes.len()), rows.checked_mul(row_bytes), "matrix bytes");
        let permutes = |order: &Arc<[u32]>| {
            let mut all = order.to_vec();
            all.sort_unstable();
            all.into_iter().eq(0..cols as u32)
        };
        assert!(order.as_ref().is_none_or(permutes), "an order of the inputs");
        let place = match ty.packing {
            _ if mode == Mode::Exact || memory != MemoryPolicy::Auto => None,
            _ if rows == 0 || cols == 0 => None,
            Some(packing) if cols.is_multiple_of(kernels::quant::BLOCK) => {
                let chunk =
                    self.reserve(int8::Packed::bytes_for(packing.code_layout, rows, cols))?;
                Some(Place::Int8(packing.code_layout, chunk))
            }
            None if *ty == BF16 && isa.has_bf16_dot() => {
                Some(Place::Bf16(self.reserve(bf16::packed_bytes(rows, cols))?))
            }
            None if isa.has_bf16_dot() => match fp8::run_of(ty) {
                Some(run) => {
                    Some(Place::Fp8(run, self.reserve(fp8::packed_bytes(run, rows, cols))?))
                }
                None => None,
            },
            _ => None,
        };
        let place = match (place, memory) {
            (Some(place), _) => place,
            (None, MemoryPolicy::Disk) => Place::OnDisk(self.hold(bytes.clone(), memory)?),
            (None, _) => {
                // The disk reads on while other tensors are looked at.
                bytes.will_need(0..rows * row_bytes);
                Place::Stored(self.hold(bytes.clone(), memory)?)
            }
        };
        if let Place::Bf16(chunk) | Place::Fp8(_, chunk) | Place::Int8(_, chunk) = &place {
            let group = chunk.range.len() / rows.div_ceil(GROUP);
            let to = (chunk.chunk, chunk.range.start);
            self.jobs.push(PackJob { bytes, ty, cols, rows: row_bytes * GROUP, group, to });
        }
        self.all.push(WeightMatrix { name, ty, rows, cols, order, threads, place });
        Ok(self.all.len() - 1)
    }

    /// Bytes that are used as they are stored, held as `memory` says.
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
            MemoryPolicy::Disk => match bytes.read(0..len.min(1)) {
                Cow::Owned(_) => Err(Error::Computed("left on disk")),
                Cow::Borrowed(_) => {
                    bytes.random_access(0..len);
                    Ok(bytes.clone())
                }
            },
        }
    }

    /// Packs what was added since the last time.
    pub fn pack(&mut self, isa: Isa, pool: &ThreadPool) {
        if !self.jobs.is_empty() {
            std::mem::take(&mut self.jobs).run(&mut self.chunks, isa, pool);
        }
    }

    /// Room for `bytes` bytes.
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

/// Bytes that are computed when they are read, computed once for all; others as they are.
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

/// Bytes of a row, or why this type cannot be computed with.
pub(super) fn row_bytes(ty: &QuantType, cols: usize) -> Result<usize, Error> {
    if !ty.is_supported() {
        return Err(Error::UnsupportedType(ty.name.to_owned()));
    }
    let block = ty.block_len;
    ty.bytes_for(cols).ok_or_else(|| Error::PartialBlock { cols, ty: ty.name.to_owned(), block })
}
