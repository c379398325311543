//! Random weights at the speed of memory: normal values are drawn once, and runs of them are copied
//! in random order.

use base::{Rng, math};
use kernels::quant::QuantType;
use std::collections::HashMap;

/// Standard deviation of matrices and biases, as models are commonly initialised.
const DEVIATION: f32 = 0.02;
/// Maximum number of drawn values.
const DRAWN: usize = 1 << 20;
/// Values in a run: whole blocks of every type.
const RUN: usize = 256;
/// Maximum number of runs of a piece, which never ends within a block.
const PIECE: usize = 1024;

/// A stream of weights decided by its seed.
#[derive(Debug)]
pub(super) struct RandomWeights {
    rng: Rng,
    drawn: Vec<f32>,
    /// The drawn values in each storage type.
    stored: HashMap<&'static str, Vec<u8>>,
    piece: Vec<u8>,
}

impl RandomWeights {
    /// Draws the values for tensors of up to `elements` values.
    pub fn new(seed: u64, elements: usize) -> Self {
        let mut rng = Rng::new(seed);
        let count = elements.clamp(2 * RUN, DRAWN).next_multiple_of(RUN);
        let drawn = (0..count).map(|_| rng.normal() * DEVIATION).collect();
        Self { rng, drawn, stored: HashMap::new(), piece: Vec::new() }
    }

    /// The next bytes, at most `missing`, of a tensor: all values are `constant`, or random.
    pub fn piece(
        &mut self,
        constant: Option<f32>,
        ty: &'static QuantType,
        missing: usize,
    ) -> &[u8] {
        self.piece.clear();
        let wanted = missing.min(PIECE * run_bytes(ty));
        match constant {
            Some(value) => self.fill_with(value, ty, wanted),
            None => self.fill_random(ty, wanted),
        }
        self.piece.truncate(wanted);
        &self.piece
    }

    /// The next bytes, at most `missing`, of a table of numbers from 0 to `end`, `end` excluded.
    /// Those of a row differ where there are enough.
    pub fn numbers(
        &mut self,
        end: usize,
        shape: &[usize],
        ty: &'static QuantType,
        missing: usize,
    ) -> &[u8] {
        let row = shape.last().copied().unwrap_or(1);
        let rows = (missing / (row * ty.block_bytes).max(1)).min(PIECE);
        self.piece.clear();
        for _ in 0..rows {
            let start = self.rng.below(end.max(1) as u64);
            for place in 0..row as u64 {
                let number = (start + place) % end.max(1) as u64;
                self.piece.extend_from_slice(&number.to_le_bytes()[..ty.block_bytes]);
            }
        }
        &self.piece
    }

    /// The next row of a router, with the deviation of all weights times `factor`.
    pub fn router_row(&mut self, factor: f32, cols: usize, ty: &'static QuantType) -> &[u8] {
        let mut values = Vec::with_capacity(cols + RUN);
        while values.len() < cols {
            let start = self.rng.below((self.drawn.len() - RUN) as u64 + 1) as usize;
            values.extend(self.drawn[start..start + RUN].iter().map(|value| value * factor));
        }
        self.piece = store(ty, &values[..cols]);
        &self.piece
    }

    /// Factors after Zipf, `1 / rank^skew`, of `count` experts in random order.
    pub fn zipf(&mut self, count: usize, skew: f64) -> Vec<f32> {
        let factor = |rank: usize| math::pow(rank as f64, -skew) as f32;
        let mut factors: Vec<f32> = (1..=count).map(factor).collect();
        for end in (1..count).rev() {
            factors.swap(end, self.rng.below(end as u64 + 1) as usize);
        }
        factors
    }

    fn fill_with(&mut self, value: f32, ty: &'static QuantType, wanted: usize) {
        let run = store(ty, &[value; RUN]);
        while self.piece.len() < wanted {
            self.piece.extend_from_slice(&run);
        }
    }

    fn fill_random(&mut self, ty: &'static QuantType, wanted: usize) {
        let stored = self.stored.entry(ty.name).or_insert_with(|| store(ty, &self.drawn));
        let run = run_bytes(ty);
        let starts = (stored.len() - run) / ty.block_bytes + 1;
        while self.piece.len() < wanted {
            let start = self.rng.below(starts as u64) as usize * ty.block_bytes;
            self.piece.extend_from_slice(&stored[start..start + run]);
        }
    }
}

fn run_bytes(ty: &QuantType) -> usize {
    RUN / ty.block_len * ty.block_bytes
}

/// `values` in the storage type `ty`, which the caller has checked can be written.
fn store(ty: &'static QuantType, values: &[f32]) -> Vec<u8> {
    let quantize = ty.quantize.expect("a type that can be written");
    let mut bytes = vec![0; values.len() / ty.block_len * ty.block_bytes];
    quantize(values, None, &mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernels::quant;

    #[test]
    fn constants_are_filled_in_and_matrices_have_the_deviation() {
        let mut weights = RandomWeights::new(3, 1 << 16);
        let floats = |bytes: &[u8]| -> Vec<f32> {
            bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
        };
        let norm = floats(weights.piece(Some(1.0), &quant::F32, 64 * 4));
        assert_eq!(norm, [1.0; 64]);
        let matrix = floats(weights.piece(None, &quant::F32, 1 << 18));
        let square = matrix.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>();
        let deviation = (square / matrix.len() as f64).sqrt();
        assert!((deviation - 0.02).abs() < 0.002, "{deviation}");
    }

    #[test]
    fn numbers_of_a_row_differ_and_are_below_the_end() {
        let mut weights = RandomWeights::new(3, 1 << 16);
        let ty = quant::by_name("i32").unwrap();
        let bytes = weights.numbers(5, &[100, 3], ty, 100 * 3 * 4).to_vec();
        assert_eq!(bytes.len(), 100 * 3 * 4);
        let numbers: Vec<i32> =
            bytes.as_chunks().0.iter().map(|bytes| i32::from_le_bytes(*bytes)).collect();
        for row in numbers.chunks_exact(3) {
            assert!(row[0] != row[1] && row[1] != row[2] && row[2] != row[0], "{row:?}");
            assert!(row.iter().all(|number| (0..5).contains(number)), "{row:?}");
        }
    }

    #[test]
    fn factors_after_zipf_are_in_random_order_and_scale_the_rows_of_routers() {
        let mut weights = RandomWeights::new(3, 1 << 16);
        let (factors, others) = (weights.zipf(64, 1.5), weights.zipf(64, 1.5));
        assert_ne!(factors, others);
        let mut sorted = factors.clone();
        sorted.sort_by(|a, b| b.total_cmp(a));
        for (rank, factor) in (1_u8..).zip(sorted) {
            assert_eq!(factor, f64::from(rank).powf(-1.5) as f32);
        }
        for factor in [1.0, 0.25] {
            let bytes = weights.router_row(factor, 5000, &quant::F32).as_chunks().0.to_vec();
            let square = bytes.iter().map(|it| f32::from_le_bytes(*it).powi(2)).sum::<f32>();
            let deviation = (square / 5000.0).sqrt();
            assert!((deviation / factor - DEVIATION).abs() < 0.002, "{deviation}");
        }
    }

    #[test]
    fn pieces_join_without_a_seam() {
        let mut weights = RandomWeights::new(3, 1 << 16);
        let mut bytes = weights.piece(None, &quant::Q8_0, usize::MAX).to_vec();
        bytes.extend_from_slice(weights.piece(None, &quant::Q8_0, 3400));
        let mut values = vec![0.0; bytes.len() / 34 * 32];
        (quant::Q8_0.dequantize.unwrap())(&bytes, &mut values);
        assert!(values.iter().all(|value| value.abs() < 1.0));
    }

    #[test]
    fn pieces_never_exceed_what_is_missing() {
        let mut weights = RandomWeights::new(3, 1 << 16);
        assert_eq!(weights.piece(None, &quant::Q6_K, 210).len(), 210);
        assert_eq!(weights.piece(None, &quant::F32, usize::MAX).len(), 4 * RUN * PIECE);
    }
}
