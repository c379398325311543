//! Weight matrices of the CPU: as the file stores them, or packed for products with rounded
//! activations.

use super::packing::{PackJob, pack_all};
use crate::{Error, MatrixSpec, MemoryPolicy, Mode, Storage, ThreadLimits};
use base::{ALIGN, AlignedVec, OutOfMemory, ThreadPool};
use kernels::Isa;
use kernels::layout::{self, GROUP, Layout, STORED};
use kernels::quant::QuantType;
use std::borrow::Cow;
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of one allocation for packed weights, which share it so that they are in huge pages.
const CHUNK: usize = 256 << 20;

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
    /// In the file, or computed once from it.
    File(Storage),
    /// In the file, and in memory only while the system has space for them.
    Disk(Storage),
    /// Packed.
    Packed(InChunk),
}

/// Bytes of a chunk.
pub(super) struct InChunk {
    chunk: usize,
    range: Range<usize>,
}

/// All weight matrices, and the memory of the packed ones.
#[derive(Default)]
pub(super) struct Matrices {
    all: Vec<WeightMatrix>,
    chunks: Vec<AlignedVec<u8>>,
    /// Bytes in use of the last chunk.
    used: usize,
    /// Matrices to be packed before the first product.
    jobs: Vec<PackJob>,
    /// Bytes that are locked in memory, tables included.
    locked: usize,
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
            WeightBytes::File(bytes) | WeightBytes::Disk(bytes) => bytes.read(0..bytes.len()),
            WeightBytes::Packed(at) => Cow::Borrowed(&self.chunks[at.chunk][at.range.clone()]),
        }
    }

    /// Bytes held, mapped files included.
    pub fn bytes(&self) -> usize {
        let bytes = |weights: &WeightMatrix| match &weights.bytes {
            WeightBytes::File(bytes) => bytes.len(),
            WeightBytes::Disk(_) => 0,
            WeightBytes::Packed(at) => at.range.len(),
        };
        self.all.iter().map(bytes).sum()
    }

    /// Whether a matrix uses these bytes as they are.
    pub fn uses(&self, table: &Storage) -> bool {
        let first = |bytes: &Storage| bytes.read(0..bytes.len()).as_ptr();
        self.all.iter().any(|weights| match &weights.bytes {
            WeightBytes::File(bytes) => first(bytes) == first(table),
            WeightBytes::Disk(_) | WeightBytes::Packed(_) => false,
        })
    }

    /// Adds a matrix for products in `mode` and returns its index. Where it has a packed layout,
    /// its memory is reserved here and the next [`Matrices::pack`] packs it.
    ///
    /// # Errors
    /// If its type cannot be computed with, or memory or the system's limits do not suffice.
    pub fn add(&mut self, spec: MatrixSpec, mode: Mode, isa: Isa) -> Result<usize, Error> {
        let row_bytes = spec.row_bytes()?;
        let MatrixSpec { name, ty, rows, cols, bytes, order, memory, threads, .. } = spec;
        assert_eq!(Some(bytes.len()), rows.checked_mul(row_bytes), "matrix bytes");
        let permutes = |order: &Arc<[u32]>| {
            let mut all = order.to_vec();
            all.sort_unstable();
            all.into_iter().eq(0..cols as u32)
        };
        assert!(order.as_ref().is_none_or(permutes), "an order of the inputs");
        let packs = memory == MemoryPolicy::Auto && rows > 0;
        let packed = packed_layout(ty, rows, cols, mode, isa).filter(|_| packs);
        let (layout, held) = match (packed, memory) {
            (Some((layout, len)), _) => (layout, WeightBytes::Packed(self.reserve(len)?)),
            (None, MemoryPolicy::Disk) => {
                (&STORED, WeightBytes::Disk(self.hold(bytes.clone(), memory)?))
            }
            (None, _) => {
                // The disk reads on while other tensors are looked at.
                bytes.will_need(0..rows * row_bytes);
                (&STORED, WeightBytes::File(self.hold(bytes.clone(), memory)?))
            }
        };
        if let WeightBytes::Packed(at) = &held {
            let group = at.range.len() / rows.div_ceil(GROUP);
            let to = (at.chunk, at.range.start);
            let rows = row_bytes * GROUP;
            self.jobs.push(PackJob { bytes, layout, ty, cols, rows, group, to });
        }
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
            MemoryPolicy::Disk => match bytes.read(0..len.min(1)) {
                Cow::Owned(_) => Err(Error::Computed("left on disk")),
                Cow::Borrowed(_) => {
                    bytes.random_access(0..len);
                    Ok(bytes.clone())
                }
            },
        }
    }

    /// Packs the matrices added since the last call.
    pub fn pack(&mut self, isa: Isa, pool: &ThreadPool) {
        if !self.jobs.is_empty() {
            pack_all(&std::mem::take(&mut self.jobs), &mut self.chunks, isa, pool);
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
