use super::*;
use base::{Rng, ThreadPool};

/// `[m, n]` outputs of the whole product, in tiles of `tile`.
fn run(isa: Isa, x: &[f32], weights: Weights<'_>, m: usize, tile: (usize, usize)) -> Vec<f32> {
    let mut out = vec![f32::NAN; m * weights.rows];
    ThreadPool::new(2).unwrap().for_each_tile(&mut out, weights.rows, tile, |mut tile| {
        matmul(isa, x, weights, &mut tile);
    });
    out
}

fn naive(x: &[f32], w: &[f32], m: usize, n: usize, k: usize) -> Vec<f64> {
    let dot = |i: usize, j: usize| {
        (0..k).map(|e| f64::from(x[i * k + e]) * f64::from(w[j * k + e])).sum::<f64>()
    };
    (0..m * n).map(|at| dot(at / n, at % n)).collect()
}

fn random(len: usize, seed: u64) -> Vec<f32> {
    let mut rng = Rng::new(seed);
    (0..len).map(|_| rng.normal()).collect()
}

fn assert_close(got: &[f32], want: &[f64], k: usize, step: f64) {
    let tolerance = step * (k as f64).sqrt() * 4.0;
    for (got, want) in got.iter().zip(want) {
        assert!((f64::from(*got) - want).abs() <= tolerance, "{got} is not {want}");
    }
}

fn stored(ty: &'static QuantType, values: &[f32]) -> (Vec<u8>, Vec<f32>) {
    let mut bytes = vec![0; ty.bytes_for(values.len()).unwrap()];
    (ty.quantize.unwrap())(values, None, &mut bytes);
    let mut back = vec![0.0; values.len()];
    (ty.dequantize.unwrap())(&bytes, &mut back);
    (bytes, back)
}

const SHAPES: [(usize, usize, usize); 6] =
    [(1, 5, 1), (3, 7, 33), (7, 17, 96), (13, 35, 1100), (2, 64, 2049), (6, 4, 4096)];

#[test]
fn f32_products_agree_with_the_naive_sum_and_with_scalar_to_the_bit() {
    for ty in [&F32, &BF16, &crate::quant::F16] {
        for (m, n, k) in SHAPES {
            let x = random(m * k, 1);
            let (bytes, values) = stored(ty, &random(n * k, 2));
            let weights = Weights { ty, rows: n, cols: k, bytes: &bytes };
            let want = run(Isa::SCALAR, &x, weights, m, (m, n));
            assert_close(&want, &naive(&x, &values, m, n, k), k, 1e-6);
            for isa in Isa::available() {
                let got = run(isa, &x, weights, m, (4, 16));
                assert_eq!(got, want, "{isa:?} {ty} {m}x{n}x{k}");
            }
        }
    }
}

#[test]
fn one_row_alone_has_the_bits_it_has_among_many() {
    let (m, n, k) = (13, 35, 2100);
    let x = random(m * k, 5);
    let (bytes, _) = stored(&BF16, &random(n * k, 6));
    let weights = Weights { ty: &BF16, rows: n, cols: k, bytes: &bytes };
    for isa in Isa::available() {
        let whole = run(isa, &x, weights, m, (m, n));
        for row in 0..m {
            let alone = run(isa, &x[row * k..][..k], weights, 1, (1, 5));
            assert_eq!(alone, whole[row * n..][..n], "{isa:?} row {row}");
        }
    }
}
