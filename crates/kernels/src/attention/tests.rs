use super::*;
use crate::Isa;
use base::{Rng, ThreadPool};

struct Case {
    shape: KvShape,
    heads: usize,
    window: usize,
    keys: Vec<f32>,
    values: Vec<f32>,
    queries: Vec<f32>,
    positions: usize,
}

impl Case {
    fn new(shape: KvShape, heads: usize, window: usize, positions: usize, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut random = |len: usize| (0..len).map(|_| rng.normal()).collect::<Vec<f32>>();
        let width = shape.heads * shape.dim;
        Self {
            shape,
            heads,
            window,
            keys: random(positions * width),
            values: random(positions * width),
            queries: random(positions * heads * shape.dim),
            positions,
        }
    }

    /// Outputs of positions `range`, everything before them being in the cache.
    fn run<T: KvElem>(
        &self,
        isa: Isa,
        range: std::ops::Range<usize>,
        tile_rows: usize,
    ) -> Vec<f32> {
        let blocks = self.positions.div_ceil(self.shape.block);
        let mut keys = vec![T::zeroed(); blocks * self.shape.key_block_len()];
        let mut values = vec![T::zeroed(); blocks * self.shape.value_block_len()];
        // Blocks lie in reverse, so that a wrong table shows.
        let table: Vec<u32> = (0..blocks as u32).rev().collect();
        let width = self.shape.heads * self.shape.dim;
        for position in 0..range.end {
            let block = table[position / self.shape.block] as usize;
            let (key, value) = (
                &self.keys[position * width..][..width],
                &self.values[position * width..][..width],
            );
            let at = (block, position % self.shape.block);
            store(self.shape, (&mut keys, &mut values), at, (key, value));
        }
        let columns = self.heads * self.shape.dim;
        let query = Query {
            q: &self.queries[range.start * columns..range.end * columns],
            heads: self.heads,
            position: range.start,
            blocks: &table,
            scale: 0.3,
            window: self.window,
        };
        let kv = KvRef { shape: self.shape, keys: &keys, values: &values };
        let mut out = vec![f32::NAN; range.len() * columns];
        let tile = (tile_rows, columns / self.shape.heads);
        ThreadPool::new(2).unwrap().for_each_tile(&mut out, columns, tile, |mut tile| {
            attention(isa, &query, kv, &mut tile);
        });
        out
    }

    fn naive(&self) -> Vec<f64> {
        let KvShape { heads: kv_heads, dim, .. } = self.shape;
        let mut out = Vec::new();
        for position in 0..self.positions {
            for head in 0..self.heads {
                let kv_head = head / (self.heads / kv_heads);
                let q = &self.queries[(position * self.heads + head) * dim..][..dim];
                let from = (position + 1).saturating_sub(self.window);
                let row =
                    |data: &[f32], p: usize| data[(p * kv_heads + kv_head) * dim..][..dim].to_vec();
                let weights: Vec<f64> = (from..=position)
                    .map(|p| {
                        let k = row(&self.keys, p);
                        let dot: f64 = q.iter().zip(&k).map(|(a, b)| f64::from(a * b)).sum();
                        (dot * 0.3).exp()
                    })
                    .collect();
                let total: f64 = weights.iter().sum();
                for d in 0..dim {
                    let sum: f64 = (from..=position)
                        .zip(&weights)
                        .map(|(p, w)| w * f64::from(row(&self.values, p)[d]))
                        .sum();
                    out.push(sum / total);
                }
            }
        }
        out
    }
}

fn cases() -> Vec<Case> {
    let shape = |block, heads, dim| KvShape { block, heads, dim };
    vec![
        Case::new(shape(16, 2, 16), 4, usize::MAX, 150, 1),
        Case::new(shape(32, 1, 20), 3, usize::MAX, 70, 2),
        Case::new(shape(64, 2, 128), 4, 24, 140, 3),
        Case::new(shape(16, 1, 80), 1, 1, 20, 4),
    ]
}

#[test]
fn attention_agrees_with_the_naive_sum() {
    for case in cases() {
        let want = case.naive();
        for isa in Isa::available() {
            let got = case.run::<f32>(isa, 0..case.positions, 5);
            for (got, want) in got.iter().zip(&want) {
                assert!((f64::from(*got) - want).abs() < 2e-5, "{isa:?}: {got} is not {want}");
            }
            let got = case.run::<u16>(isa, 0..case.positions, 5);
            for (got, want) in got.iter().zip(&want) {
                assert!((f64::from(*got) - want).abs() < 0.1, "{isa:?}: {got} is not {want}");
            }
        }
    }
}

#[test]
fn every_isa_gives_the_bits_of_scalar() {
    for case in cases() {
        let want = case.run::<f32>(Isa::SCALAR, 0..case.positions, 7);
        for isa in Isa::available() {
            assert_eq!(case.run::<f32>(isa, 0..case.positions, 1), want, "{isa:?}");
        }
    }
}

#[test]
fn a_row_has_the_same_bits_alone_as_among_later_rows() {
    for case in cases() {
        let columns = case.heads * case.shape.dim;
        for isa in Isa::available() {
            let whole = case.run::<u16>(isa, 0..case.positions, 33);
            for position in [0, 1, 15, 16, 63, 64, 65, 139].map(|p| p % case.positions) {
                let alone = case.run::<u16>(isa, position..position + 1, 1);
                assert_eq!(alone, whole[position * columns..][..columns], "{isa:?} {position}");
            }
        }
    }
}

#[test]
fn block_size_does_not_change_bits() {
    let run = |block| {
        let shape = KvShape { block, heads: 2, dim: 32 };
        Case::new(shape, 2, usize::MAX, 130, 9).run::<f32>(Isa::available()[0], 0..130, 4)
    };
    assert_eq!(run(16), run(64));
    assert_eq!(run(16), run(32));
}
