//! Low-rank adapters as operations take them: factors in host memory, shared by all requests that
//! name them.

use crate::handles::Mode;
use base::{AlignedVec, OutOfMemory};
use bytemuck::Pod;
use kernels::layout::{GROUP, Weights};
use kernels::low_rank::{Factor, arrange};
use kernels::quant::{BF16, F32};
use std::ops::Range;
use std::sync::Arc;

/// The factors of one projection: the product `x a^T b^T`, times `scale`, is added to its outputs.
#[derive(Debug)]
pub struct LowRank {
    rank: usize,
    inputs: usize,
    outputs: usize,
    scale: f32,
    /// `[rank, inputs]`.
    a: Values,
    /// `[outputs, rank]`, arranged as [`Factor`] says.
    b: Values,
}

/// Values, in half of the memory where they are all BF16. The bits of products are the same.
#[derive(Debug)]
enum Values {
    F32(AlignedVec<f32>),
    Bf16(AlignedVec<u16>),
}

/// An adapter of a loaded model.
pub struct Adapter {
    digest: String,
    /// For each projection of the model, by its number.
    pairs: Vec<Option<LowRank>>,
}

/// An adapter and the factor of what it adds.
#[derive(Clone, Debug)]
pub struct ScaledAdapter {
    /// The adapter.
    pub adapter: Arc<Adapter>,
    /// The factor.
    pub scale: f32,
}

/// The adapters of a sequence, which add to the outputs of projections one after the other. Clones
/// share the memory. Sets of equal adapters, factors and order are equal.
#[derive(Clone, Debug, Default)]
pub struct AdapterSet(Option<Arc<[ScaledAdapter]>>);

/// Consecutive rows of a batch with the same adapters.
#[derive(Clone, Debug, PartialEq)]
pub struct AdaptedRows {
    /// The rows.
    pub rows: Range<usize>,
    /// Their adapters, at least one.
    pub adapters: AdapterSet,
}

impl LowRank {
    /// The factors `a` `[rank, inputs]` and `b` `[outputs, rank]`. For products in `fast` mode they
    /// are rounded to BF16.
    ///
    /// # Errors
    /// If there is not enough memory.
    ///
    /// # Panics
    /// If the lengths do not fit, or a dimension is 0.
    pub fn new(
        rank: usize,
        [a, b]: [&[f32]; 2],
        scale: f32,
        mode: Mode,
    ) -> Result<Self, OutOfMemory> {
        assert!(rank > 0 && a.len().is_multiple_of(rank) && b.len().is_multiple_of(rank));
        let (inputs, outputs) = (a.len() / rank, b.len() / rank);
        assert!(inputs > 0 && outputs > 0, "factors of a matrix");
        let (a, b) = (Values::of(a, mode)?, Values::arranged(b, rank, mode)?);
        Ok(Self { rank, inputs, outputs, scale, a, b })
    }

    /// Inner dimension of the two factors.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Factor of the product.
    pub fn scale(&self) -> f32 {
        self.scale
    }

    /// Outputs and inputs of the projection.
    pub fn shape(&self) -> [usize; 2] {
        [self.outputs, self.inputs]
    }

    /// The first factor, `[rank, inputs]`, as stored weights.
    pub(crate) fn a(&self) -> Weights<'_> {
        let (ty, bytes) = match &self.a {
            Values::F32(values) => (&F32, bytemuck::cast_slice(values)),
            Values::Bf16(values) => (&BF16, bytemuck::cast_slice(values)),
        };
        Weights { ty, rows: self.rank, cols: self.inputs, bytes }
    }

    /// The groups of the second factor for `outputs`, whose first is the first of a group.
    pub(crate) fn b(&self, outputs: Range<usize>) -> Factor<'_> {
        let groups = outputs.start * self.rank..outputs.end.next_multiple_of(GROUP) * self.rank;
        match &self.b {
            Values::F32(values) => Factor::F32(&values[groups]),
            Values::Bf16(values) => Factor::Bf16(&values[groups]),
        }
    }

    /// Both factors, `[rank, inputs]` and `[outputs, rank]`.
    pub(crate) fn values(&self) -> (Vec<f32>, Vec<f32>) {
        let arranged = self.b.to_f32();
        let place = |row: usize, at: usize| (row / GROUP * self.rank + at) * GROUP + row % GROUP;
        let rows = (0..self.outputs).flat_map(|row| (0..self.rank).map(move |at| (row, at)));
        (self.a.to_f32(), rows.map(|(row, at)| arranged[place(row, at)]).collect())
    }

    fn bytes(&self) -> usize {
        self.a.bytes() + self.b.bytes()
    }
}

impl Values {
    /// The values in BF16: rounded in `fast` mode, else where they all are.
    fn halves(values: &[f32], mode: Mode) -> Option<Vec<u16>> {
        let exact = values.iter().all(|value| value.to_bits() & 0xffff == 0);
        (exact || mode == Mode::Fast).then(|| {
            let mut halves = vec![0; values.len()];
            let quantize = BF16.quantize.expect("a type of floats");
            quantize(values, None, bytemuck::cast_slice_mut(&mut halves));
            halves
        })
    }

    fn of(values: &[f32], mode: Mode) -> Result<Self, OutOfMemory> {
        Ok(match Self::halves(values, mode) {
            Some(halves) => Self::Bf16(aligned(&halves)?),
            None => Self::F32(aligned(values)?),
        })
    }

    fn arranged(b: &[f32], rank: usize, mode: Mode) -> Result<Self, OutOfMemory> {
        Ok(match Self::halves(b, mode) {
            Some(halves) => Self::Bf16(aligned(&arrange(&halves, rank))?),
            None => Self::F32(aligned(&arrange(b, rank))?),
        })
    }

    fn to_f32(&self) -> Vec<f32> {
        let widened = |half: &u16| f32::from_bits(u32::from(*half) << 16);
        match self {
            Self::F32(values) => values.to_vec(),
            Self::Bf16(values) => values.iter().map(widened).collect(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::F32(values) => 4 * values.len(),
            Self::Bf16(values) => 2 * values.len(),
        }
    }
}

fn aligned<T: Pod>(values: &[T]) -> Result<AlignedVec<T>, OutOfMemory> {
    let mut to = AlignedVec::try_zeroed(values.len())?;
    to.copy_from_slice(values);
    Ok(to)
}

impl Adapter {
    /// An adapter with the factors of each projection of the model, and a digest that stands for
    /// all of them.
    pub fn new(digest: String, pairs: Vec<Option<LowRank>>) -> Self {
        Self { digest, pairs }
    }

    /// Equal digests stand for equal factors.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The factors of the projection with this number.
    pub fn pair(&self, projection: usize) -> Option<&LowRank> {
        self.pairs.get(projection)?.as_ref()
    }

    /// Bytes of all factors.
    pub fn bytes(&self) -> usize {
        self.pairs.iter().flatten().map(LowRank::bytes).sum()
    }

    /// The largest rank of its pairs.
    pub fn rank(&self) -> usize {
        self.pairs.iter().flatten().map(LowRank::rank).max().unwrap_or(0)
    }
}

impl std::fmt::Debug for Adapter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Adapter({})", self.digest)
    }
}

impl PartialEq for ScaledAdapter {
    fn eq(&self, other: &Self) -> bool {
        let same = Arc::ptr_eq(&self.adapter, &other.adapter);
        let digests = || self.adapter.digest == other.adapter.digest;
        self.scale.to_bits() == other.scale.to_bits() && (same || digests())
    }
}

impl AdapterSet {
    /// These adapters in this order, without those of factor 0.
    pub fn new(adapters: impl IntoIterator<Item = ScaledAdapter>) -> Self {
        let used: Arc<[_]> = adapters.into_iter().filter(|it| it.scale != 0.0).collect();
        Self((!used.is_empty()).then_some(used))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The adapters.
    pub fn iter(&self) -> impl Iterator<Item = &ScaledAdapter> {
        self.0.iter().flat_map(|adapters| adapters.iter())
    }

    /// The factors of the projection with this number, each with the factor of its product.
    pub(crate) fn pairs(&self, projection: usize) -> impl Iterator<Item = (&LowRank, f32)> {
        self.iter().filter_map(move |ScaledAdapter { adapter, scale }| {
            let pair = adapter.pair(projection)?;
            Some((pair, pair.scale * scale))
        })
    }
}

impl PartialEq for AdapterSet {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other) || own == other,
            (own, other) => own.is_none() && other.is_none(),
        }
    }
}
