use super::*;
use crate::kv::{KvType, PlainRows, Rounding, round};
use crate::lanes::scalar::Scalar;
use base::Rng;

/// Queries and rows of two lists.
struct RowCase {
    rows: PlainRows,
    heads: usize,
    /// Rows of each list.
    lists: [usize; 2],
    sinks: Vec<f32>,
    q: Vec<f32>,
    values: Vec<f32>,
}

const SCALE: f32 = 0.2;

impl RowCase {
    fn new(rows: PlainRows, heads: usize, lists: [usize; 2]) -> Self {
        let mut rng = Rng::new((rows.dim + heads + lists[0] + 7 * lists[1]) as u64);
        let mut random = |len: usize| (0..len).map(|_| rng.normal()).collect::<Vec<f32>>();
        let q = random(heads * rows.dim);
        let mut values = random((lists[0] + lists[1]) * rows.dim);
        for row in values.chunks_exact_mut(rows.dim) {
            round(Isa::SCALAR, rows.rounding, row);
        }
        Self { rows, heads, lists, sinks: Vec::new(), q, values }
    }

    fn plain(ty: KvType, dim: usize, heads: usize, lists: [usize; 2]) -> Self {
        Self::new(PlainRows { ty, dim, rounding: Rounding::None }, heads, lists)
    }

    /// Sinks below, among and above the scores.
    fn sinks(self) -> Self {
        let sinks = (0..self.heads).map(|head| head as f32 * 2.0 - 1.0).collect();
        Self { sinks, ..self }
    }

    /// Bytes with the rows in reverse order and others between them, and their offsets.
    fn stored(&self) -> (Vec<u8>, Vec<usize>) {
        let (bytes, count) = (self.rows.row_bytes(), self.lists[0] + self.lists[1]);
        let apart = 2 * bytes + 4;
        let mut data = vec![0xff; count * apart];
        let offsets: Vec<usize> = (0..count).rev().map(|at| at * apart + 4).collect();
        for (row, at) in self.values.chunks_exact(self.rows.dim).zip(&offsets) {
            self.rows.store(&mut data[*at..][..bytes], row);
        }
        (data, offsets)
    }

    fn run(&self, isa: Isa, heads: Range<usize>) -> Vec<f32> {
        self.run_as(isa, heads, self.lists[0])
    }

    /// Outputs of `heads`, with the first `first` rows in the first list.
    fn run_as(&self, isa: Isa, heads: Range<usize>, first: usize) -> Vec<f32> {
        let (data, offsets) = self.stored();
        let (a, b) = offsets.split_at(first);
        let lists = [a, b].map(|offsets| RowList { rows: self.rows, data: &data, offsets });
        let mut out = vec![f32::NAN; heads.len() * self.rows.dim];
        let query = RowQuery { q: &self.q, heads, scale: SCALE, sinks: &self.sinks };
        attend_rows(isa, &query, lists, &mut out);
        out
    }

    /// The rows as they are read back.
    fn read(&self) -> Vec<Vec<f32>> {
        let (data, offsets) = self.stored();
        let row = |at: &usize| {
            let mut values = vec![0.0; self.rows.dim];
            self.rows.load(&data[*at..][..self.rows.row_bytes()], &mut values);
            values
        };
        offsets.iter().map(row).collect()
    }

    /// The output of a head by the definition, in f64.
    fn exact(&self, head: usize) -> Vec<f64> {
        let (rows, q) = (self.read(), &self.q[head * self.rows.dim..][..self.rows.dim]);
        let score = |row: &Vec<f32>| {
            let products = row.iter().zip(q).map(|(a, b)| f64::from(*a) * f64::from(*b));
            (products.sum::<f64>() * f64::from(SCALE)).exp()
        };
        let weights: Vec<f64> = rows.iter().map(score).collect();
        let sink = self.sinks.get(head).map_or(0.0, |sink| f64::from(*sink).exp());
        let total = weights.iter().sum::<f64>() + sink;
        let channel =
            |d: usize| rows.iter().zip(&weights).map(move |(row, w)| f64::from(row[d]) * w);
        (0..self.rows.dim).map(|d| channel(d).sum::<f64>() / total).collect()
    }

    /// The output of a head in f32, one operation after the other in the order that the head of
    /// the module states.
    fn in_order(&self, head: usize) -> Vec<f32> {
        let (rows, q) = (self.read(), &self.q[head * self.rows.dim..][..self.rows.dim]);
        let mut total = (f32::NEG_INFINITY, 0.0);
        let mut totals = vec![0.0; self.rows.dim];
        let add = |total: &mut (f32, f32), totals: &mut [f32], max: f32, sum: f32, sums: &[f32]| {
            let largest = total.0.max(max);
            let (before, here) = (exp(total.0 - largest), exp(max - largest));
            *total = (largest, sum.mul_add(here, total.1 * before));
            for (total, sum) in totals.iter_mut().zip(sums) {
                *total = sum.mul_add(here, *total * before);
            }
        };
        for span in rows.chunks(SPAN) {
            let score = |row: &Vec<f32>| {
                row.iter().zip(q).fold(0.0f32, |sum, (a, b)| a.mul_add(*b, sum)) * SCALE
            };
            let scores: Vec<f32> = span.iter().map(score).collect();
            let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let (mut sum, mut sums) = (0.0, vec![0.0; self.rows.dim]);
            for (score, row) in scores.iter().zip(span) {
                let weight = exp(score - max);
                sum += weight;
                for (sum, value) in sums.iter_mut().zip(row) {
                    *sum = weight.mul_add(*value, *sum);
                }
            }
            add(&mut total, &mut totals, max, sum, &sums);
        }
        if let Some(sink) = self.sinks.get(head) {
            add(&mut total, &mut totals, *sink, 1.0, &vec![0.0; self.rows.dim]);
        }
        totals.iter().map(|value| value / total.1).collect()
    }
}

fn exp(x: f32) -> f32 {
    let mut out = [0.0; LANES];
    exp_to_one(Scalar::splat(x)).store(&mut out);
    out[0]
}

fn cases() -> Vec<RowCase> {
    let fp8 = |dim, rotated| {
        let rounding = Rounding::Fp8 { rotated };
        PlainRows { ty: KvType::Fp8, dim, rounding }
    };
    vec![
        RowCase::plain(KvType::F32, 16, 4, [0, 1]),
        RowCase::plain(KvType::F32, 21, 3, [5, 2]).sinks(),
        RowCase::plain(KvType::Bf16, 64, 16, [0, 128]).sinks(),
        RowCase::plain(KvType::F16, 40, 20, [47, 1]),
        RowCase::plain(KvType::F32, 80, 70, [30, 70]).sinks(),
        RowCase::plain(KvType::Bf16, 512, 64, [60, 13]),
        // More than one span, and a list that ends with one.
        RowCase::plain(KvType::F32, 16, 2, [1100, 128]).sinks(),
        RowCase::plain(KvType::Bf16, 24, 18, [512, 3]),
        RowCase::new(fp8(512, 64), 32, [20, 30]).sinks(),
        RowCase::new(fp8(70, 6), 5, [500, 100]),
    ]
}

#[test]
fn attention_to_rows_agrees_with_the_definition() {
    for case in cases() {
        for isa in Isa::available() {
            let out = case.run(isa, 0..case.heads);
            for (head, got) in out.chunks_exact(case.rows.dim).enumerate() {
                for (got, want) in got.iter().zip(case.exact(head)) {
                    assert!((f64::from(*got) - want).abs() < 1e-4, "{isa:?}: {got} is not {want}");
                }
            }
        }
    }
}

#[test]
fn operations_have_the_order_that_is_stated() {
    for case in cases() {
        let want: Vec<f32> = (0..case.heads).flat_map(|head| case.in_order(head)).collect();
        for isa in Isa::available() {
            assert_eq!(case.run(isa, 0..case.heads), want, "{isa:?} {:?}", case.rows);
        }
    }
}

#[test]
fn a_head_has_the_same_bits_alone_as_among_others() {
    for case in cases() {
        let dim = case.rows.dim;
        for isa in Isa::available() {
            let want = case.run(isa, 0..case.heads);
            for heads in [0..1, case.heads / 2..case.heads, case.heads - 1..case.heads] {
                let got = case.run(isa, heads.clone());
                assert_eq!(got, want[heads.start * dim..heads.end * dim], "{isa:?} {heads:?}");
            }
        }
    }
}

#[test]
fn the_list_that_a_row_is_in_does_not_change_bits() {
    for case in cases() {
        let (count, isa) = (case.lists[0] + case.lists[1], Isa::available().pop().unwrap());
        let want = case.run(isa, 0..case.heads);
        for first in [0, count / 3, count] {
            assert_eq!(case.run_as(isa, 0..case.heads, first), want);
        }
    }
}

/// Rows of codes give the bits of rows of BF16 with the same values.
#[test]
fn packed_rows_give_the_bits_of_rounded_rows() {
    let rounding = Rounding::Fp8 { rotated: 20 };
    let [packed, rounded] = [KvType::Fp8, KvType::Bf16]
        .map(|ty| RowCase::new(PlainRows { ty, dim: 148, rounding }, 24, [50, 77]).sinks());
    for isa in Isa::available() {
        assert_eq!(packed.run(isa, 0..24), rounded.run(isa, 0..24), "{isa:?}");
    }
}

#[test]
fn what_is_not_finite_gives_nan_and_no_panic() {
    let mut case = RowCase::plain(KvType::F32, 16, 3, [3, 2]);
    for bad in [f32::NAN, f32::INFINITY] {
        case.values[20] = bad;
        for isa in Isa::available() {
            let out = case.run(isa, 0..3);
            assert!(out.iter().any(|value| value.is_nan()), "{isa:?} {bad}");
        }
    }
}
