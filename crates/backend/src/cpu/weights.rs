//! Weight matrices of the CPU: as the file stores them, or packed for products with rounded activations.

use crate::{Error, MatrixSpec, Mode, Storage};
use base::{ALIGN, AlignedVec, OutOfMemory, ThreadPool};
use kernels::int8::GROUP;
use kernels::quant::{BF16, QuantType};
use kernels::{Isa, bf16, int8};
use std::ops::Range;

/// Bytes of one allocation for packed weights. They are asked for lazily, and lie together so
/// that they lie in huge pages.
const CHUNK: usize = 256 << 20;

/// A weight matrix on its way to products.
pub(super) struct Weights {
    pub name: String,
    pub ty: &'static QuantType,
    pub rows: usize,
    pub cols: usize,
    pub place: Place,
}

/// Where weights lie, and how.
pub(super) enum Place {
    /// Row-major, in the file.
    Stored(Storage),
    /// Packed for products with BF16.
    Bf16(InChunk),
    /// Packed for products with bytes.
    Int8(int8::Form, InChunk),
}

/// Bytes of a chunk.
pub(super) struct InChunk {
    chunk: usize,
    range: Range<usize>,
}

/// All weight matrices, and the memory of those that are packed.
#[derive(Default)]
pub(super) struct Matrices {
    all: Vec<Weights>,
    chunks: Vec<AlignedVec<u8>>,
    /// Bytes in use of the last chunk.
    used: usize,
}

impl Matrices {
    pub fn get(&self, index: usize) -> &Weights {
        &self.all[index]
    }

    /// All of them, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = &Weights> {
        self.all.iter()
    }

    /// Packed weights.
    pub fn bytes_at(&self, place: &InChunk) -> &[u8] {
        &self.chunks[place.chunk][place.range.clone()]
    }

    /// Bytes held, in files too.
    pub fn bytes(&self) -> usize {
        let bytes = |weights: &Weights| match &weights.place {
            Place::Stored(bytes) => (**bytes).as_ref().len(),
            Place::Bf16(place) | Place::Int8(_, place) => place.range.len(),
        };
        self.all.iter().map(bytes).sum()
    }

    /// Whether a matrix uses these bytes as they are.
    pub fn uses(&self, table: &Storage) -> bool {
        self.all.iter().any(|weights| match &weights.place {
            Place::Stored(bytes) => (**bytes).as_ref().as_ptr() == (**table).as_ref().as_ptr(),
            Place::Bf16(_) | Place::Int8(..) => false,
        })
    }

    /// Takes a matrix for products in `mode`, packed if there is a packing for it, and gives its
    /// index. The file's pages are let go then.
    pub fn add(
        &mut self,
        spec: MatrixSpec,
        mode: Mode,
        isa: Isa,
        pool: &ThreadPool,
    ) -> Result<usize, Error> {
        let MatrixSpec { name, ty, rows, cols, bytes } = spec;
        let row_bytes = row_bytes(ty, cols)?;
        assert_eq!(Some((*bytes).as_ref().len()), rows.checked_mul(row_bytes), "matrix bytes");
        let packed = |all: usize| (all / rows.div_ceil(GROUP), row_bytes * GROUP);
        let place = match ty.packing {
            _ if mode == Mode::Exact || rows == 0 || cols == 0 => Place::Stored(bytes),
            Some(packing) if cols.is_multiple_of(int8::BLOCK) => {
                let sizes = packed(int8::Packed::bytes_for(packing.form, rows, cols));
                let pack = |from: &[u8], to: &mut [u8]| int8::pack(ty, cols, from, to);
                Place::Int8(packing.form, self.pack(&bytes, sizes, pack, pool)?)
            }
            None if *ty == BF16 && isa.has_bf16_dot() => {
                let sizes = packed(bf16::packed_bytes(rows, cols));
                let pack = |from: &[u8], to: &mut [u8]| bf16::pack(cols, from, to);
                Place::Bf16(self.pack(&bytes, sizes, pack, pool)?)
            }
            _ => Place::Stored(bytes),
        };
        self.all.push(Weights { name, ty, rows, cols, place });
        Ok(self.all.len() - 1)
    }

    /// Packs all groups of a matrix, each written by the thread that claims it: `group` bytes of
    /// each run of `rows` bytes.
    fn pack(
        &mut self,
        from: &Storage,
        (group, rows): (usize, usize),
        pack: impl Fn(&[u8], &mut [u8]) + Sync,
        pool: &ThreadPool,
    ) -> Result<InChunk, OutOfMemory> {
        let bytes = (**from).as_ref();
        let place = self.reserve(bytes.len().div_ceil(rows) * group)?;
        let to = &mut self.chunks[place.chunk][place.range.clone()];
        pool.for_each_tile(to, group, (4, group), |mut tile| {
            for index in tile.rows() {
                let from = &bytes[index * rows..];
                pack(&from[..from.len().min(rows)], tile.row_mut(index));
            }
        });
        from.not_needed();
        Ok(place)
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

/// Bytes of a row, or why this type cannot be computed with.
pub(super) fn row_bytes(ty: &QuantType, cols: usize) -> Result<usize, Error> {
    if !ty.is_supported() {
        return Err(Error::UnsupportedType(ty.name.to_owned()));
    }
    let block = ty.block_len;
    ty.bytes_for(cols).ok_or_else(|| Error::PartialBlock { cols, ty: ty.name.to_owned(), block })
}
