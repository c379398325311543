//! Packing of weights: the matrices of a call at once, cut into pieces that the threads take in
//! turns, or on the fly, a piece that a product needs and does not keep.
//!
//! Bytes of the file are requested ahead of their packing, across matrices, so that a disk reads on
//! while others are packed and multiplied. They are released piece by piece, so that no weight is
//! in memory twice for long. Bytes that are computed when read are computed piece by piece.

use crate::handles::Storage;
use base::{AlignedVec, ThreadPool};
use kernels::Isa;
use kernels::layout::Layout;
use kernels::quant::QuantType;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Most bytes of a piece: a huge page, which the first thread that writes it has to clear while the
/// others wait.
const PIECE: usize = 2 << 20;
/// Fewest bytes of a piece, where a call has fewer than the threads could share.
const MIN_PIECE: usize = 128 << 10;
/// Bytes of files that are requested ahead.
const AHEAD: usize = 256 << 20;

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
    /// Whether it is an expert's, which rows may never choose.
    pub routed: bool,
    /// Whether products pack it on the fly until a later step keeps it.
    pub deferred: bool,
}

/// Bytes that are requested in order, as far ahead of those in use as `AHEAD` allows.
pub(super) struct ReadAhead {
    /// Each with the number of bytes before it.
    pieces: Vec<(Storage, Range<usize>, usize)>,
    /// The first piece that was not requested.
    next: AtomicUsize,
    /// Bytes in use.
    used: AtomicUsize,
}

/// Some groups of a matrix.
struct PackPiece<'a> {
    job: &'a PackJob,
    from: Range<usize>,
    to: &'a mut [u8],
}

/// Packs matrices, in the order of the memory they are packed into, into `chunks`. The bytes of
/// experts are requested here, those of others by `ahead`.
pub(super) fn pack_all(
    jobs: &[PackJob],
    chunks: &mut [AlignedVec<u8>],
    ahead: &ReadAhead,
    isa: Isa,
    pool: &ThreadPool,
) {
    let all = pieces(jobs, chunks, pool.threads());
    let routed = jobs.iter().filter(|job| job.routed).map(|job| &job.bytes);
    let routed = ReadAhead::of(routed);
    // The threads that multiply a part of a matrix are those that write it first.
    let counts: Vec<_> = all.iter().map(Vec::len).collect();
    let slots: Vec<_> = all.into_iter().flatten().map(|piece| Mutex::new(Some(piece))).collect();
    pool.for_each_of(&counts, |at| {
        let piece = slots[at].lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(piece) = piece {
            let ahead = if piece.job.routed { &routed } else { ahead };
            ahead.advance(piece.from.len());
            piece.pack(isa);
        }
    });
}

/// The pieces of each matrix, enough for `threads` threads.
fn pieces<'a>(
    jobs: &'a [PackJob],
    chunks: &'a mut [AlignedVec<u8>],
    threads: usize,
) -> Vec<Vec<PackPiece<'a>>> {
    let total: usize = jobs.iter().map(PackJob::packed).sum();
    let piece = (total / (4 * threads)).clamp(MIN_PIECE, PIECE);
    let mut pieces = Vec::with_capacity(jobs.len());
    let mut chunks = chunks.iter_mut().map(|chunk| &mut chunk[..]).enumerate();
    let (mut at, mut rest) = ((usize::MAX, 0), &mut [][..]);
    for job in jobs {
        while at.0 != job.to.0 {
            let (index, chunk) = chunks.next().expect("a chunk for every matrix");
            (at, rest) = ((index, 0), chunk);
        }
        let packed;
        (packed, rest) = rest[job.to.1 - at.1..].split_at_mut(job.packed());
        at.1 = job.to.1 + packed.len();
        pieces.push(job.cut(packed, piece));
    }
    pieces
}

impl ReadAhead {
    /// The bytes of matrices, one after the other.
    pub fn of<'a>(all: impl Iterator<Item = &'a Storage>) -> Self {
        let (mut pieces, mut before) = (Vec::new(), 0);
        for bytes in all {
            let len = bytes.len();
            for start in (0..len).step_by(PIECE) {
                let range = start..(start + PIECE).min(len);
                pieces.push((bytes.clone(), range, before + start));
            }
            before += len;
        }
        Self { pieces, next: AtomicUsize::new(0), used: AtomicUsize::new(0) }
    }

    /// Counts `bytes` more bytes as used, and requests those ahead of them.
    pub fn advance(&self, bytes: usize) {
        let end = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes + AHEAD;
        loop {
            let at = self.next.load(Ordering::Relaxed);
            let Some((of, range, _)) = self.pieces.get(at).filter(|piece| piece.2 < end) else {
                return;
            };
            let (order, taken) = (Ordering::Relaxed, at + 1);
            if self.next.compare_exchange(at, taken, order, order).is_ok() {
                of.will_need(range.clone());
            }
        }
    }
}

impl PackJob {
    /// Whether its bytes are computed when they are read, which should be once.
    pub fn is_computed(&self) -> bool {
        matches!(self.bytes.read(0..self.bytes.len().min(1)), Cow::Owned(_))
    }

    /// Packs whole groups, from the group `first` on, into `to`, and leaves the bytes of the file
    /// to later readers.
    pub fn pack_on_the_fly(&self, isa: Isa, first: usize, to: &mut [u8]) {
        let groups = to.len() / self.group;
        let start = first * self.rows;
        self.pack(isa, start..(start + groups * self.rows).min(self.bytes.len()), to);
    }

    /// The packed matrix in memory of its own, which all threads write. The bytes of the file are
    /// released.
    pub fn pack_apart(&self, isa: Isa, pool: &ThreadPool) -> Vec<u8> {
        let mut packed = vec![0; self.packed()];
        let tile = ((MIN_PIECE / self.group).max(1), self.group);
        pool.for_each_tile(&mut packed, self.group, tile, |mut tile| {
            self.pack_on_the_fly(isa, tile.rows().start, tile.whole());
        });
        self.bytes.not_needed(0..self.bytes.len());
        packed
    }

    fn pack(&self, isa: Isa, from: Range<usize>, to: &mut [u8]) {
        let read = self.bytes.read(from);
        for (from, to) in read.chunks(self.rows).zip(to.chunks_exact_mut(self.group)) {
            self.layout.pack(isa, self.ty, self.cols, from, to);
        }
    }

    /// Bytes of the packed matrix.
    pub fn packed(&self) -> usize {
        self.bytes.len().div_ceil(self.rows) * self.group
    }

    /// The matrix in pieces of whole groups, about `piece` bytes each.
    fn cut<'a>(&'a self, packed: &'a mut [u8], piece: usize) -> Vec<PackPiece<'a>> {
        let groups = (piece / self.group).max(1);
        let len = self.bytes.len();
        let cut = |(index, to): (usize, &'a mut [u8])| {
            let start = index * groups * self.rows;
            PackPiece { job: self, from: start..(start + groups * self.rows).min(len), to }
        };
        packed.chunks_mut(groups * self.group).enumerate().map(cut).collect()
    }
}

impl PackPiece<'_> {
    fn pack(self, isa: Isa) {
        self.job.pack(isa, self.from.clone(), self.to);
        self.job.bytes.not_needed(self.from);
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        Batch, Bytes, Cpu, Executor, ExpertsSpec, Gate, Matrix, MatrixSpec, Mode, Operations,
        PackedWeights, Routing, Scores, Storage, Weights,
    };
    use kernels::quant::{BF16, F32, INT4, INT8, Q8_0, QuantType, fp8::FP8_16};
    use std::borrow::Cow;
    use std::ops::Range;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

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

    /// The outputs for three rows of activations, of weights that are packed on the fly unless they
    /// are prepared or computed.
    fn outputs(
        (ty, [rows, cols]): (&'static QuantType, [usize; 2]),
        bytes: Storage,
        mode: Mode,
        prepared: bool,
    ) -> Vec<u32> {
        let mut cpu = Cpu::new(2, mode).unwrap();
        let spec = MatrixSpec::new("weights".to_owned(), ty, [rows, cols], bytes);
        let matrix = cpu.matrix(spec).unwrap();
        while prepared && cpu.prepare_weights() {}
        let (input, out) = (cpu.buffer(3, cols).unwrap(), cpu.buffer(3, rows).unwrap());
        let mut rng = base::Rng::new(5);
        let mut data = cpu.core.take(input);
        data.iter_mut().for_each(|value| *value = rng.normal());
        cpu.core.put(input, data);
        cpu.linear(input, &[(matrix, out)], 3);
        cpu.read(out, 3).iter().map(|value| value.to_bits()).collect()
    }

    #[test]
    fn weights_give_the_same_bits_whenever_they_are_packed() {
        // The second has more weights in a tile than are packed on the fly at a time.
        for shape in [[ROWS, COLS], [1100, 1024]] {
            for ty in [&F32, &BF16, &Q8_0, &INT4, &INT8, &FP8_16] {
                let mut rng = base::Rng::new(6);
                let len = ty.bytes_for(shape[0] * shape[1]).unwrap();
                // Bits that are no large or odd values in any type.
                let bytes: Vec<u8> = (0..len).map(|_| rng.below(64) as u8).collect();
                for mode in [Mode::Exact, Mode::Fast] {
                    let outputs = |bytes, prepared| outputs((ty, shape), bytes, mode, prepared);
                    let prepared = outputs(Arc::new(bytes.clone()), true);
                    assert_eq!(outputs(Arc::new(bytes.clone()), false), prepared, "{ty}");
                    assert_eq!(outputs(Arc::new(Computed(bytes.clone())), false), prepared, "{ty}");
                }
            }
        }
    }

    /// Bytes that count how many of them are read.
    struct Counted(Vec<u8>, AtomicUsize);

    impl Counted {
        fn matrix(cpu: &mut Cpu, rows: usize, cols: usize) -> (Arc<Self>, Matrix) {
            let bytes = vec![0; Q8_0.bytes_for(rows * cols).unwrap()];
            let counted = Arc::new(Self(bytes, AtomicUsize::new(0)));
            let spec = MatrixSpec::new(String::new(), &Q8_0, [rows, cols], counted.clone());
            (counted, cpu.matrix(spec).unwrap())
        }

        /// How often all bytes were read.
        fn times(&self) -> usize {
            let read = self.1.load(Ordering::Relaxed);
            assert_eq!(read % self.0.len(), 0, "all or none");
            read / self.0.len()
        }
    }

    impl Bytes for Counted {
        fn len(&self) -> usize {
            self.0.len()
        }

        fn read(&self, range: Range<usize>) -> Cow<'_, [u8]> {
            // A single byte shows whether bytes are computed.
            if range.len() > 1 {
                self.1.fetch_add(range.len(), Ordering::Relaxed);
            }
            Cow::Borrowed(&self.0[range])
        }
    }

    #[test]
    fn products_pack_on_the_fly_what_is_not_prepared() {
        let mut cpu = Cpu::new(2, Mode::Fast).unwrap();
        let all: Vec<_> = (0..3).map(|_| Counted::matrix(&mut cpu, ROWS, COLS)).collect();
        let times = || [0, 1, 2].map(|at: usize| all[at].0.times());
        let (input, out) = (cpu.buffer(1, COLS).unwrap(), cpu.buffer(1, ROWS).unwrap());
        assert_eq!((times(), cpu.take_prepared()), ([0, 0, 0], false));
        for read in 1..3 {
            cpu.linear(input, &[(all[1].1, out)], 1);
            assert_eq!((times(), cpu.take_prepared()), ([0, read, 0], true));
        }
        assert!(!cpu.prepare_weights());
        assert_eq!(times(), [1, 3, 1]);
        all.iter().for_each(|(_, matrix)| cpu.linear(input, &[(*matrix, out)], 1));
        assert_eq!(times(), [1, 3, 1]);
    }

    #[test]
    fn the_step_after_the_first_keeps_what_was_packed_on_the_fly() {
        let mut cpu = Cpu::new(2, Mode::Fast).unwrap();
        let all: Vec<_> = (0..3).map(|_| Counted::matrix(&mut cpu, ROWS, COLS)).collect();
        let times = || [0, 1, 2].map(|at: usize| all[at].0.times());
        let (input, out) = (cpu.buffer(1, COLS).unwrap(), cpu.buffer(1, ROWS).unwrap());
        let batch = Batch::with_capacity(1, 1, 1);
        for expected in [[1, 1, 0], [2, 2, 0], [2, 2, 0]] {
            cpu.begin(&batch);
            all[..2].iter().for_each(|(_, matrix)| cpu.linear(input, &[(*matrix, out)], 1));
            cpu.end().unwrap();
            assert_eq!(times(), expected);
        }
    }

    #[test]
    fn experts_that_no_row_chooses_are_not_read() {
        let mut cpu = Cpu::new(2, Mode::Fast).unwrap();
        let mut matrices = |rows: usize, cols: usize| -> (Vec<Arc<Counted>>, Vec<Matrix>) {
            (0..3).map(|_| Counted::matrix(&mut cpu, rows, cols)).unzip()
        };
        let [gate, up, down] = [matrices(64, 32), matrices(64, 32), matrices(32, 64)];
        let [x, logits, out] = [32, 3, 32].map(|width| cpu.buffer(1, width).unwrap());
        let scores = Scores::SoftmaxOfChosen;
        let routing = Routing { chosen: 1, scores, normalise: false, scale: 1.0, groups: None };
        let spec = ExpertsSpec {
            first: 0,
            count: 3,
            gate: gate.1,
            up: up.1,
            down: down.1,
            biases: None,
            kind: Gate::Silu,
            weighs_inputs: false,
            routing,
            correction: None,
            scales: None,
            table: None,
            rows: 1,
        };
        let experts = cpu.experts(spec).unwrap();
        cpu.update(logits, 1, &mut |logits| logits.copy_from_slice(&[0.0, 9.0, 1.0]));
        cpu.mix_experts(x, logits, experts, out, &[0]);
        for all in [&gate.0, &up.0, &down.0] {
            assert_eq!([0, 1, 2].map(|expert: usize| all[expert].times()), [0, 1, 0]);
        }
    }
}
