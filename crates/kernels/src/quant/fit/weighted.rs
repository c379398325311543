//! Blocks of weighted values, and sums over them in a fixed order.

/// Larger magnitudes cannot be stored by any type with f16 factors; cutting them there keeps
/// all sums of squares finite.
const MAX_VALUE: f32 = 1e9;

/// Smallest weight of a value, relative to the mean of its block: values of no importance are still
/// stored as well as the others allow.
const MIN_WEIGHT: f32 = 1e-4;

/// The values of one quant block, each with the weight of its error.
pub(in crate::quant) struct WeightedBlock<const LEN: usize> {
    pub values: [f32; LEN],
    pub weights: [f32; LEN],
}

/// The part of a block that shares one scale.
#[derive(Clone, Copy)]
pub(in crate::quant) struct WeightedGroup<'a, const N: usize> {
    pub values: &'a [f32; N],
    pub weights: &'a [f32; N],
}

/// `value` clamped to what can be stored.
#[inline(always)]
pub(in crate::quant) fn bounded(value: f32) -> f32 {
    if value.is_nan() { 0.0 } else { value.clamp(-MAX_VALUE, MAX_VALUE) }
}

/// Weights of mean one from importances of any size.
#[inline(always)]
pub(in crate::quant) fn relative<const LEN: usize>(importance: &[f32]) -> [f32; LEN] {
    let usable = |v: f32| if v.is_finite() { v.max(0.0) } else { 0.0 };
    let most = importance.iter().fold(0.0f32, |m, &v| m.max(usable(v)));
    if most == 0.0 {
        return [1.0; LEN];
    }
    let mut weights: [f32; LEN] = std::array::from_fn(|i| usable(importance[i]) / most);
    let mean = weights.iter().sum::<f32>() / LEN as f32;
    weights.iter_mut().for_each(|w| *w = (*w / mean).max(MIN_WEIGHT));
    weights
}

impl<const LEN: usize> WeightedBlock<LEN> {
    /// The groups of `N` values, in order.
    #[inline(always)]
    pub fn groups<const N: usize>(
        &self,
    ) -> impl ExactSizeIterator<Item = WeightedGroup<'_, N>> + Clone {
        let (values, weights) = (self.values.as_chunks::<N>().0, self.weights.as_chunks::<N>().0);
        values.iter().zip(weights).map(|(values, weights)| WeightedGroup { values, weights })
    }

    /// The block as one group.
    #[inline(always)]
    pub fn whole(&self) -> WeightedGroup<'_, LEN> {
        WeightedGroup { values: &self.values, weights: &self.weights }
    }
}

impl<'a, const N: usize> WeightedGroup<'a, N> {
    /// The runs of eight values of the group.
    #[inline(always)]
    pub fn eights(self) -> impl Iterator<Item = WeightedGroup<'a, 8>> {
        let (values, weights) = (self.values.as_chunks::<8>().0, self.weights.as_chunks::<8>().0);
        values.iter().zip(weights).map(|(values, weights)| WeightedGroup { values, weights })
    }

    /// Error of restoring value `i` as `restored(i)`.
    #[inline(always)]
    pub fn error(&self, restored: impl Fn(usize) -> f32) -> f32 {
        sum::<N>(|i| {
            let miss = self.values[i] - restored(i);
            self.weights[i] * miss * miss
        })
    }

    /// The value of largest magnitude.
    #[inline(always)]
    pub(super) fn extreme(&self) -> f32 {
        self.values.iter().fold(0.0f32, |m, &v| if v.abs() > m.abs() { v } else { m })
    }
}

/// Sum of `N` terms, which are a multiple of sixteen, in a fixed order that allows vector
/// instructions.
#[inline(always)]
pub(super) fn sum<const N: usize>(term: impl Fn(usize) -> f32) -> f32 {
    const { assert!(N.is_multiple_of(LANES)) };
    let terms: [f32; N] = each(term);
    let mut lanes = [0.0f32; LANES];
    for terms in terms.as_chunks::<LANES>().0 {
        for (sum, term) in lanes.iter_mut().zip(terms) {
            *sum += term;
        }
    }
    fold(&lanes)
}

/// The sum of sixteen lanes, by halves. Not inlined, because the compiler generates slower code for
/// the sum together with its callers.
#[inline(never)]
fn fold(lanes: &[f32; LANES]) -> f32 {
    let (mut eight, mut four) = ([0.0; 8], [0.0; 4]);
    for i in 0..8 {
        eight[i] = lanes[i] + lanes[i + 8];
    }
    for i in 0..4 {
        four[i] = eight[i] + eight[i + 4];
    }
    (four[0] + four[2]) + (four[1] + four[3])
}

const LANES: usize = 16;

/// The `N` results of `f`, by a plain loop that the compiler vectorises.
#[inline(always)]
pub(super) fn each<const N: usize>(f: impl Fn(usize) -> f32) -> [f32; N] {
    let mut out = [0.0; N];
    for (i, out) in out.iter_mut().enumerate() {
        *out = f(i);
    }
    out
}

/// The fit with the smaller error; the first if equal.
#[inline(always)]
pub(super) fn lesser<T>(a: (T, f32), b: (T, f32)) -> (T, f32) {
    if b.1 < a.1 { b } else { a }
}
