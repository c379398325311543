use super::*;
use crate::Isa;
use base::Rng;
use std::cell::Cell;

thread_local! {
    /// The instruction set that quantising and restoring use in this thread, if not the best.
    pub(super) static FORCED: Cell<Option<Isa>> = const { Cell::new(None) };
}

/// The types that values are rounded for; plain floats have nothing to choose.
fn rounding() -> impl Iterator<Item = &'static QuantType> {
    TYPES.iter().copied().filter(|ty| ty.quantize.is_some() && ty.block_len > 1)
}

/// Types whose scales follow from the magnitudes of a group alone, as in ggml.
const FIXED: [&QuantType; 4] = [&Q8_0, &NVFP4, &Q1_0, &Q2_0];

/// Types that search for their scales.
fn searching() -> impl Iterator<Item = &'static QuantType> {
    rounding().filter(|ty| !FIXED.contains(ty))
}

fn normal(seed: u64, len: usize) -> Vec<f32> {
    let mut rng = Rng::new(seed);
    (0..len).map(|_| rng.normal()).collect()
}

/// Importances of a wide spread.
fn uneven(seed: u64, len: usize) -> Vec<f32> {
    normal(seed, len).iter().map(|v| (1.5 * v).exp()).collect()
}

fn round_trip(ty: &QuantType, source: &[f32], importance: Option<&[f32]>) -> Vec<f32> {
    let mut bytes = vec![0; ty.bytes_for(source.len()).unwrap()];
    (ty.quantize.unwrap())(source, importance, &mut bytes);
    let mut back = vec![0.0; source.len()];
    (ty.dequantize.unwrap())(&bytes, &mut back);
    back
}

/// Root of the weighted squared error, relative to the source.
fn loss(source: &[f32], back: &[f32], weights: &[f32]) -> f64 {
    let sum = |f: &dyn Fn(usize) -> f32| -> f64 {
        (0..source.len()).map(|i| f64::from(weights[i]) * f64::from(f(i)).powi(2)).sum()
    };
    (sum(&|i| source[i] - back[i]) / sum(&|i| source[i])).sqrt()
}

#[test]
fn quantising_loses_no_more_than_its_bits_allow() {
    let source = normal(5, 4096);
    let even = vec![1.0; source.len()];
    // A uniform quantiser of b bits over +-3 sigma has an error of about 1.7 / 2^b. The bounds
    // are what the searches reach, and three in a hundred.
    let bounds = [
        ("f32", 0.0),
        ("f16", 0.00021),
        ("bf16", 0.0017),
        ("q4_0", 0.0836),
        ("q4_1", 0.0714),
        ("q5_0", 0.0411),
        ("q5_1", 0.0347),
        ("q8_0", 0.0055),
        ("q2_k", 0.267),
        ("q3_k", 0.148),
        ("q4_k", 0.0718),
        ("q5_k", 0.0357),
        ("q6_k", 0.0171),
        ("iq1_s", 0.457),
        ("iq1_m", 0.424),
        ("iq2_xxs", 0.337),
        ("iq2_xs", 0.294),
        ("iq2_s", 0.246),
        ("iq3_xxs", 0.182),
        ("iq3_s", 0.1335),
        ("iq4_nl", 0.0758),
        ("iq4_xs", 0.0764),
        ("mxfp4", 0.1148),
        ("tq1_0", 0.448),
        ("tq2_0", 0.448),
        ("nvfp4", 0.0975),
        ("q1_0", 0.619),
        ("q2_0", 0.739),
    ];
    for ty in TYPES.iter().filter(|ty| ty.quantize.is_some()) {
        let bound = bounds.iter().find(|b| b.0 == ty.name).expect("every type has a bound").1;
        let error = loss(&source, &round_trip(ty, &source, None), &even);
        assert!(error <= bound, "{ty}: {error} of {bound}");
    }
}

#[test]
fn importance_lowers_the_loss_of_what_matters() {
    let (source, weights) = (normal(6, 4096), uneven(7, 4096));
    for ty in searching() {
        let without = loss(&source, &round_trip(ty, &source, None), &weights);
        let with = loss(&source, &round_trip(ty, &source, Some(&weights)), &weights);
        assert!(with < 0.999 * without, "{ty}: {with} with importance, {without} without");
    }
}

#[test]
fn even_importance_of_any_size_is_none() {
    let source = normal(8, 1024);
    for ty in rounding() {
        let expected = round_trip(ty, &source, None);
        for weight in [0.0, 1e-30, 0.5, 1.0, 1e30, f32::INFINITY] {
            let back = round_trip(ty, &source, Some(&vec![weight; source.len()]));
            assert_eq!(back, expected, "{ty}, {weight}");
        }
    }
}

#[test]
fn values_of_no_importance_are_stored_all_the_same() {
    let source = normal(9, 1024);
    let weights: Vec<f32> = (0..1024).map(|i| if i / 16 % 2 == 0 { 1.0 } else { 0.0 }).collect();
    for ty in searching() {
        let back = round_trip(ty, &source, Some(&weights));
        let error = loss(&source, &back, &vec![1.0; source.len()]);
        assert!(error < 0.7, "{ty}: {error}");
    }
}

#[test]
fn zeros_stay_zeros() {
    for ty in rounding() {
        assert_eq!(round_trip(ty, &[0.0; 512], None), [0.0; 512], "{ty}");
        // A group of zeros among others.
        let mut source = normal(10, 512);
        source[32..64].fill(0.0);
        if *ty == Q1_0 {
            continue; // It has no level between its two.
        }
        let back = round_trip(ty, &source, None);
        assert!(back[32..64].iter().all(|v| v.abs() < 0.11), "{ty}: {:?}", &back[32..64]);
    }
}

#[test]
fn no_value_is_turned_into_one_that_is_not_finite() {
    let shape = normal(11, 256);
    for ty in rounding() {
        for scale in [f32::MIN_POSITIVE, 1e-40, 1e-12, 1e-8, 1e-6, 1.0, 1e3, 1e4, 1.6e4] {
            let source: Vec<f32> = shape.iter().map(|v| v * scale).collect();
            let back = round_trip(ty, &source, None);
            let within = back.iter().all(|v| v.abs() <= 2e5_f32.min(scale * 8.0).max(1e-6));
            assert!(within, "{ty} at {scale}: {back:?}");
        }
    }
    for ty in searching() {
        let source: Vec<f32> = (0..256).map(|i| [1e30, -f32::MAX, f32::NAN, 1.0][i % 4]).collect();
        assert!(round_trip(ty, &source, None).iter().all(|v| v.is_finite()), "{ty}");
    }
}

#[test]
fn small_values_lose_little_more_than_their_factors_do() {
    // Factors of these are below the normal numbers of f16.
    let source: Vec<f32> = normal(12, 1024).iter().map(|v| v * 1e-5).collect();
    let even = vec![1.0; source.len()];
    for ty in searching().filter(|ty| ty.block_len == 256) {
        let error = loss(&source, &round_trip(ty, &source, None), &even);
        assert!(error < 0.6, "{ty}: {error}");
    }
}

#[test]
fn quantising_again_changes_little() {
    let source = normal(13, 2048);
    let even = vec![1.0; source.len()];
    for ty in rounding() {
        let once = round_trip(ty, &source, None);
        let twice = round_trip(ty, &once, None);
        let (first, second) = (loss(&source, &once, &even), loss(&once, &twice, &even));
        assert!(second < 0.5 * first, "{ty}: {first}, then {second}");
    }
}

/// Least squared error of 32 values over many scales and, where there are such, offsets.
fn exhaustive(values: &[f32], ends: [f32; 2], offsets: &[f32]) -> f64 {
    let most = values.iter().fold(0.0f32, |m, v| m.max(v.abs()));
    let mut least = f64::INFINITY;
    for step in 1..=1500 {
        let scale = most * step as f32 / 500.0 / ends[1];
        for (sign, offset) in
            [1.0, -1.0].into_iter().flat_map(|s| offsets.iter().map(move |o| (s, o)))
        {
            let (scale, offset) = (sign * scale, offset * most);
            let error = values.iter().map(|v| {
                let code = ((v - offset) / scale).round().clamp(ends[0], ends[1]);
                f64::from(v - scale * code - offset).powi(2)
            });
            least = least.min(error.sum());
        }
    }
    least
}

#[test]
fn searches_come_near_to_the_least_loss() {
    let source = normal(14, 32 * 24);
    let offsets: Vec<f32> = (60..=110).map(|i| -0.01 * i as f32).collect();
    let check = |ty: &QuantType, ends: [f32; 2], offsets: &[f32], factor: f64| {
        let back = round_trip(ty, &source, None);
        let ours: f64 = source.iter().zip(&back).map(|(a, b)| f64::from(a - b).powi(2)).sum();
        let least: f64 = source.chunks(32).map(|v| exhaustive(v, ends, offsets)).sum();
        assert!(ours <= factor * least, "{ty}: {ours} of {least}");
    };
    check(&Q4_0, [-8.0, 7.0], &[0.0], 1.03);
    check(&Q5_0, [-16.0, 15.0], &[0.0], 1.06);
    check(&Q4_1, [0.0, 15.0], &offsets, 1.05);
}

#[test]
fn every_isa_gives_the_same_blocks() {
    let (source, weights) = (normal(15, 1024), uneven(16, 1024));
    for ty in rounding() {
        let mut blocks = Vec::new();
        for isa in Isa::available() {
            FORCED.set(Some(isa));
            for importance in [None, Some(&weights[..])] {
                let mut bytes = vec![0; ty.bytes_for(source.len()).unwrap()];
                (ty.quantize.unwrap())(&source, importance, &mut bytes);
                blocks.push(bytes);
            }
        }
        for (index, bytes) in blocks.iter().enumerate() {
            assert_eq!(bytes, &blocks[index % 2], "{ty}");
        }
    }
    FORCED.set(None);
}

#[test]
fn every_isa_restores_the_same_values() {
    let mut rng = Rng::new(17);
    for ty in TYPES.iter().filter(|ty| ty.is_supported()) {
        // Whole vectors and a rest.
        let bytes: Vec<u8> =
            (0..ty.bytes_for(39 * ty.block_len).unwrap()).map(|_| rng.next_u64() as u8).collect();
        let values = Isa::available().into_iter().map(|isa| {
            FORCED.set(Some(isa));
            let mut values = vec![0.0f32; 39 * ty.block_len];
            (ty.dequantize.unwrap())(&bytes, &mut values);
            // Any NaN is as good as another.
            let quiet = |v: f32| if v.is_nan() { f32::NAN } else { v };
            values.into_iter().map(|v| quiet(v).to_bits()).collect::<Vec<_>>()
        });
        let values: Vec<_> = values.collect();
        assert!(values.iter().all(|v| *v == values[0]), "{ty}");
    }
    FORCED.set(None);
}
