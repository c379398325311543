use super::*;
use crate::kv::{KvType, PlainRows, Rounding, round};
use crate::lanes::Lanes;
use base::Rng;
use proptest::prelude::*;

/// A query, and rows of an index.
struct IndexCase {
    rows: PlainRows,
    q: Vec<f32>,
    weights: Vec<f32>,
    values: Vec<f32>,
}

impl IndexCase {
    fn new(rows: PlainRows, heads: usize, count: usize) -> Self {
        let mut rng = Rng::new((rows.dim + 3 * heads + 7 * count) as u64);
        let mut random = |len: usize| (0..len).map(|_| rng.normal()).collect::<Vec<f32>>();
        let (mut q, weights) = (random(heads * rows.dim), random(heads));
        let mut values = random(count * rows.dim);
        for row in q.chunks_exact_mut(rows.dim).chain(values.chunks_exact_mut(rows.dim)) {
            round(Isa::SCALAR, rows.rounding, row);
        }
        Self { rows, q, weights, values }
    }

    fn run(&self, isa: Isa) -> Vec<f32> {
        let bytes = self.rows.row_bytes();
        let count = self.values.len() / self.rows.dim;
        let mut data = vec![0xff; count * (bytes + 8)];
        let offsets: Vec<usize> = (0..count).rev().map(|at| at * (bytes + 8) + 4).collect();
        for (row, at) in self.values.chunks_exact(self.rows.dim).zip(&offsets) {
            self.rows.store(&mut data[*at..][..bytes], row);
        }
        let rows = RowList { rows: self.rows, data: &data, offsets: &offsets };
        let mut out = vec![f32::NAN; count];
        index_scores(isa, &self.q, &self.weights, rows, &mut out);
        out
    }

    /// Scores in f32, one operation after the other in the order that the head of the module
    /// states.
    fn in_order(&self) -> Vec<f32> {
        let dim = self.rows.dim;
        let score = |row: &[f32]| {
            let mut lanes = [0.0f32; LANES];
            for (head, (q, weight)) in self.q.chunks_exact(dim).zip(&self.weights).enumerate() {
                let blocks = q.chunks(BLOCK).zip(row.chunks(BLOCK));
                let product = blocks.fold(0.0, |sum, (q, row)| {
                    sum + q.iter().zip(row).fold(0.0f32, |sum, (q, row)| q.mul_add(*row, sum))
                });
                let lane = &mut lanes[head % LANES];
                *lane = weight.mul_add(product.max(0.0), *lane);
            }
            crate::lanes::scalar::Scalar::load(&lanes).sum()
        };
        self.values.chunks_exact(dim).map(score).collect()
    }

    fn exact(&self) -> Vec<f64> {
        let dim = self.rows.dim;
        let product = |q: &[f32], row: &[f32]| {
            q.iter().zip(row).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>()
        };
        let score = |row: &[f32]| {
            let heads = self.q.chunks_exact(dim).zip(&self.weights);
            heads.map(|(q, weight)| f64::from(*weight) * product(q, row).max(0.0)).sum()
        };
        self.values.chunks_exact(dim).map(score).collect()
    }
}

fn plain(ty: KvType, dim: usize) -> PlainRows {
    PlainRows { ty, dim, rounding: Rounding::None }
}

fn index(ty: KvType, dim: usize) -> PlainRows {
    PlainRows { ty, dim, rounding: Rounding::Fp4 }
}

fn cases() -> Vec<IndexCase> {
    vec![
        IndexCase::new(plain(KvType::F32, 16), 1, 1),
        IndexCase::new(plain(KvType::F32, 100), 20, 61),
        IndexCase::new(index(KvType::F32, 128), 64, 100),
        IndexCase::new(index(KvType::Bf16, 64), 33, 17),
        IndexCase::new(index(KvType::Fp8, 128), 64, 100),
        IndexCase::new(index(KvType::Fp8, 128), 128, 5),
        IndexCase::new(index(KvType::Fp8, 256), 9, 35),
        IndexCase::new(index(KvType::Fp8, 64), 40, 21),
        IndexCase::new(index(KvType::Fp8, 32), 16, 19),
        // Blocks of half the length, which have no integer products.
        IndexCase::new(index(KvType::Fp8, 16), 4, 7),
        IndexCase::new(
            PlainRows { ty: KvType::Fp8, dim: 48, rounding: Rounding::Fp8 { rotated: 8 } },
            4,
            9,
        ),
    ]
}

#[test]
fn scores_agree_with_the_definition() {
    for mut case in cases() {
        // What is stored has fewer digits where a rounding leaves some values as they are.
        case.values.iter_mut().for_each(|v| *v = half::bf16::from_f32(*v).to_f32());
        for isa in Isa::available() {
            for (got, want) in case.run(isa).iter().zip(case.exact()) {
                let off = (f64::from(*got) - want).abs();
                assert!(off < 1e-3, "{isa:?} {:?}: {got} is not {want}", case.rows);
            }
        }
    }
}

#[test]
fn operations_have_the_order_that_is_stated() {
    for mut case in cases() {
        case.values.iter_mut().for_each(|v| *v = half::bf16::from_f32(*v).to_f32());
        for isa in Isa::available() {
            assert_eq!(case.run(isa), case.in_order(), "{isa:?} {:?}", case.rows);
        }
    }
}

#[test]
fn codes_give_the_bits_of_the_values_that_they_stand_for() {
    for (dim, heads, count) in [(128, 64, 50), (128, 3, 1), (32, 17, 40), (512, 70, 6)] {
        let [codes, values] =
            [KvType::Fp8, KvType::Bf16].map(|ty| IndexCase::new(index(ty, dim), heads, count));
        for isa in Isa::available() {
            let mut scratch = CodeScratch::default();
            assert!(codes::pack(isa, &codes.q, codes.rows, &mut scratch), "integer products");
            assert_eq!(codes.run(isa), values.run(isa), "{isa:?} {dim}");
        }
    }
}

#[test]
fn queries_that_are_not_rounded_are_multiplied_as_they_are() {
    let mut case = IndexCase::new(index(KvType::Fp8, 128), 20, 30);
    case.q[1000] += 0.01;
    for isa in Isa::available() {
        assert!(!codes::pack(isa, &case.q, case.rows, &mut CodeScratch::default()), "{isa:?}");
        assert_eq!(case.run(isa), case.in_order(), "{isa:?}");
    }
}

#[test]
fn zeros_and_what_is_not_finite_have_a_score() {
    for (ty, bad) in [(KvType::Bf16, f32::NAN), (KvType::Fp8, f32::NAN), (KvType::Fp8, 0.0)] {
        let mut case = IndexCase::new(index(ty, 128), 20, 3);
        case.values[128..256].fill(bad);
        for isa in Isa::available() {
            let got = case.run(isa);
            assert!(got[0].is_finite() && got[2].is_finite(), "{isa:?}");
            assert!(got[1] == bad || got[1].is_nan() && bad.is_nan(), "{isa:?}: {}", got[1]);
            let mut query = IndexCase::new(index(ty, 128), 20, 3);
            query.q[200] = bad;
            query.run(isa);
        }
    }
}

fn chosen(scores: &[f32], k: usize) -> Vec<u32> {
    let (mut scratch, mut chosen) = (vec![9; 3], vec![7]);
    top_k(scores, k, &mut scratch, &mut chosen);
    chosen
}

#[test]
fn of_equal_scores_the_lower_number_is_chosen_and_nan_last() {
    let scores = [1.0, f32::NAN, 2.0, 1.0, -0.0, 0.0, f32::NEG_INFINITY, 1.0];
    assert_eq!(chosen(&scores, 0), []);
    assert_eq!(chosen(&scores, 1), [2]);
    assert_eq!(chosen(&scores, 2), [0, 2]);
    assert_eq!(chosen(&scores, 3), [0, 2, 3]);
    assert_eq!(chosen(&scores, 5), [0, 2, 3, 4, 7]);
    assert_eq!(chosen(&scores, 7), [0, 2, 3, 4, 5, 6, 7]);
    assert_eq!(chosen(&scores, 8), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(chosen(&scores, 99).len(), 8);
    assert_eq!(chosen(&[f32::NAN; 4], 2), [0, 1]);
    assert_eq!(chosen(&[], 3), []);
}

proptest! {
    #[test]
    fn the_highest_scores_are_chosen(
        picks in prop::collection::vec((0usize..12, any::<u32>()), 1..300),
        k in 0usize..310,
    ) {
        let some = [0.0, -0.0, 1.0, -1.0, 1e-40, f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
        let score = |&(pick, bits): &(usize, u32)| {
            some.get(pick).copied().unwrap_or(f32::from_bits(bits))
        };
        let scores: Vec<f32> = picks.iter().map(score).collect();
        let mut order: Vec<u32> = (0..scores.len() as u32).collect();
        let of = |number: &u32| scores[*number as usize];
        // Stable, so of equals the lower number stays first.
        order.sort_by(|a, b| match (of(a), of(b)) {
            (a, b) if a.is_nan() || b.is_nan() => a.is_nan().cmp(&b.is_nan()),
            (a, b) => b.partial_cmp(&a).expect("numbers"),
        });
        let mut want = order[..k.min(order.len())].to_vec();
        want.sort_unstable();
        prop_assert_eq!(chosen(&scores, k), want);
    }
}
