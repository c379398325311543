//! Packing of weights when a model is loaded: all matrices at once, cut into pieces that the
//! threads take in turns.
//!
//! Bytes of the file are requested some pieces before they are packed, so that a disk reads on
//! meanwhile, and released piece by piece, so that no weight is in memory twice for long. Bytes
//! that are computed when read are computed piece by piece.

use crate::Storage;
use base::{AlignedVec, ThreadPool};
use kernels::Isa;
use kernels::layout::Layout;
use kernels::quant::QuantType;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Approximate bytes of a piece: a huge page, which the first thread that writes it has to clear
/// while the others wait.
const PIECE: usize = 2 << 20;
/// Pieces that are requested ahead.
const AHEAD: usize = 128;

/// A matrix to be packed.
pub(super) struct PackJob {
    /// The bytes, row-major.
    pub bytes: Storage,
    /// The layout they are packed into.
    pub layout: &'static Layout,
    /// Storage type.
    pub ty: &'static QuantType,
    /// Inputs.
    pub cols: usize,
    /// Bytes of the rows of a group.
    pub rows: usize,
    /// Bytes of a packed group.
    pub group: usize,
    /// Chunk, and offset in it, of the first packed group.
    pub to: (usize, usize),
}

/// Some groups of a matrix.
struct PackPiece<'a> {
    job: &'a PackJob,
    from: Range<usize>,
    to: &'a mut [u8],
}

/// Packs matrices, in the order of the memory they are packed into, into `chunks`.
pub(super) fn pack_all(
    jobs: &[PackJob],
    chunks: &mut [AlignedVec<u8>],
    isa: Isa,
    pool: &ThreadPool,
) {
    let all = pieces(jobs, chunks);
    let sources: Vec<_> = all.iter().map(|piece| (piece.job, piece.from.clone())).collect();
    let ask = |index: usize| {
        if let Some((job, from)) = sources.get(index) {
            job.bytes.will_need(from.clone());
        }
    };
    (0..AHEAD).for_each(ask);
    let rest = Mutex::new(all.into_iter().enumerate());
    pool.for_each(sources.len(), |_| {
        let next = rest.lock().unwrap_or_else(PoisonError::into_inner).next();
        if let Some((index, piece)) = next {
            ask(index + AHEAD);
            piece.pack(isa);
        }
    });
}

/// The pieces of all matrices.
fn pieces<'a>(jobs: &'a [PackJob], chunks: &'a mut [AlignedVec<u8>]) -> Vec<PackPiece<'a>> {
    let mut pieces = Vec::new();
    let mut chunks = chunks.iter_mut().map(|chunk| &mut chunk[..]).enumerate();
    let (mut at, mut rest) = ((usize::MAX, 0), &mut [][..]);
    for job in jobs {
        while at.0 != job.to.0 {
            let (index, chunk) = chunks.next().expect("a chunk for every matrix");
            (at, rest) = ((index, 0), chunk);
        }
        let groups = job.bytes.len().div_ceil(job.rows);
        let packed;
        (packed, rest) = rest[job.to.1 - at.1..].split_at_mut(groups * job.group);
        at.1 = job.to.1 + packed.len();
        job.cut(packed, &mut pieces);
    }
    pieces
}

impl PackJob {
    /// Cuts the matrix into pieces of whole groups.
    fn cut<'a>(&'a self, packed: &'a mut [u8], pieces: &mut Vec<PackPiece<'a>>) {
        let groups = (PIECE / self.group).max(1);
        let len = self.bytes.len();
        for (index, to) in packed.chunks_mut(groups * self.group).enumerate() {
            let start = index * groups * self.rows;
            let from = start..(start + groups * self.rows).min(len);
            pieces.push(PackPiece { job: self, from, to });
        }
    }
}

impl PackPiece<'_> {
    fn pack(self, isa: Isa) {
        let PackJob { bytes, layout, ty, cols, rows, group, .. } = self.job;
        let read = bytes.read(self.from.clone());
        for (from, to) in read.chunks(*rows).zip(self.to.chunks_exact_mut(*group)) {
            layout.pack(isa, ty, *cols, from, to);
        }
        bytes.not_needed(self.from);
    }
}

#[cfg(test)]
mod tests {
    use crate::{Backend, Bytes, Cpu, MatrixSpec, Mode, Storage};
    use kernels::quant::{BF16, F32, INT4, INT8, Q8_0, QuantType, fp8::FP8_16};
    use std::borrow::Cow;
    use std::ops::Range;
    use std::sync::Arc;

    const ROWS: usize = 37;
    const COLS: usize = 320;

    /// Bytes that are computed when they are read, as if they were.
    struct Computed(Vec<u8>);

    impl Bytes for Computed {
        fn len(&self) -> usize {
            self.0.len()
        }

        fn read(&self, range: Range<usize>) -> Cow<'_, [u8]> {
            Cow::Owned(self.0[range].to_vec())
        }
    }

    /// The outputs for three rows of activations.
    fn outputs(ty: &'static QuantType, bytes: Storage, mode: Mode) -> Vec<u32> {
        let mut cpu = Cpu::new(2, mode).unwrap();
        let spec = MatrixSpec::new("weights".to_owned(), ty, [ROWS, COLS], bytes);
        let matrix = cpu.matrix(spec).unwrap();
        let (input, out) = (cpu.buffer(3, COLS).unwrap(), cpu.buffer(3, ROWS).unwrap());
        let mut rng = base::Rng::new(5);
        let mut data = cpu.take(input);
        data.iter_mut().for_each(|value| *value = rng.normal());
        cpu.put(input, data);
        cpu.linear(input, &[(matrix, out)], 3);
        cpu.read(out, 3).iter().map(|value| value.to_bits()).collect()
    }

    #[test]
    fn weights_that_are_computed_when_read_give_the_bits_of_stored_ones() {
        for ty in [&F32, &BF16, &Q8_0, &INT4, &INT8, &FP8_16] {
            let mut rng = base::Rng::new(6);
            let len = ty.bytes_for(ROWS * COLS).unwrap();
            // Bits that are no large or odd values in any type.
            let bytes: Vec<u8> = (0..len).map(|_| rng.below(64) as u8).collect();
            for mode in [Mode::Exact, Mode::Fast] {
                let stored = outputs(ty, Arc::new(bytes.clone()), mode);
                assert_eq!(outputs(ty, Arc::new(Computed(bytes.clone())), mode), stored, "{ty}");
            }
        }
    }
}
