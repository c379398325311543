//! Short causal convolutions along positions, each channel on its own.

use crate::elementwise::Sigmoid;
use crate::lanes::{LANES, Lanes, isa_dispatch, load_partial};

/// Most positions that a convolution covers.
pub const MAX_KERNEL: usize = 16;

isa_dispatch! {
    /// One row of a convolution: `out[c] = bias[c] + sum of weight[j][c] * inputs[j][c]`, the terms
    /// in ascending `j`, and the silu of that if `silu`.
    ///
    /// `inputs` are the rows that the kernel covers, oldest first; positions before the first one
    /// are `None` and count as zeros. `weight` is `[inputs, channels]`.
    ///
    /// # Panics
    /// If an input, the bias, or a row of `weight` has not as many channels as `out`.
    pub fn short_conv(
        inputs: &[Option<&[f32]>],
        weight: &[f32],
        bias: Option<&[f32]>,
        silu: bool,
        out: &mut [f32],
    ) = short_conv_body
}

#[inline(always)]
fn short_conv_body<L: Lanes>(
    inputs: &[Option<&[f32]>],
    weight: &[f32],
    bias: Option<&[f32]>,
    silu: bool,
    out: &mut [f32],
) {
    let channels = out.len();
    assert_eq!(weight.len(), inputs.len() * channels, "a weight for each input and channel");
    for row in inputs.iter().flatten().copied().chain(bias) {
        assert_eq!(row.len(), channels, "rows of one length");
    }
    match bias {
        Some(bias) => out.copy_from_slice(bias),
        None => out.fill(0.0),
    }
    for (input, weight) in inputs.iter().zip(weight.chunks_exact(channels.max(1))) {
        if let Some(input) = input {
            add_products::<L>(out, weight, input);
        }
    }
    if silu {
        apply_silu::<L>(out);
    }
}

/// `sums[c] += a[c] * b[c]`, rounded once.
#[inline(always)]
fn add_products<L: Lanes>(sums: &mut [f32], a: &[f32], b: &[f32]) {
    let (sums, rest) = sums.as_chunks_mut::<LANES>();
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks(), b.as_chunks());
    for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
        L::load(a).mul_add(L::load(b), L::load(sum)).store(sum);
    }
    for ((sum, a), b) in rest.iter_mut().zip(a_rest).zip(b_rest) {
        *sum = a.mul_add(*b, *sum);
    }
}

#[inline(always)]
fn apply_silu<L: Lanes>(values: &mut [f32]) {
    let (whole, rest) = values.as_chunks_mut::<LANES>();
    for values in whole {
        let x = L::load(values);
        x.mul_sigmoid(x).store(values);
    }
    let x = load_partial::<L>(rest, 0.0);
    let mut last = [0.0; LANES];
    x.mul_sigmoid(x).store(&mut last);
    rest.copy_from_slice(&last[..rest.len()]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;
    use proptest::prelude::*;

    /// `[kernel, channels]` weights, as many inputs, of which the first are missing, and a bias.
    fn cases() -> impl Strategy<Value = (usize, usize, usize, Vec<f32>, bool)> {
        (1..6usize, 1..70usize).prop_flat_map(|(kernel, channels)| {
            let values = prop::collection::vec(-3.0f32..3.0, (2 * kernel + 1) * channels);
            (Just(kernel), Just(channels), 0..=kernel, values, any::<bool>())
        })
    }

    proptest! {
        #[test]
        fn short_conv_follows_its_definition(
            (kernel, channels, missing, values, biased) in cases(),
            silu in any::<bool>(),
        ) {
            let (weight, values) = values.split_at(kernel * channels);
            let (rows, bias) = values.split_at(kernel * channels);
            let bias = biased.then_some(bias);
            let rows: Vec<_> = rows.chunks(channels).enumerate().collect();
            let inputs: Vec<_> = rows.iter().map(|(j, row)| (*j >= missing).then_some(*row)).collect();
            let mut scalar = vec![0.0; channels];
            short_conv(Isa::SCALAR, &inputs, weight, bias, silu, &mut scalar);
            for c in 0..channels {
                let mut sum = bias.map_or(0.0, |bias| f64::from(bias[c]));
                for (j, row) in &rows[missing..] {
                    sum += f64::from(weight[j * channels + c]) * f64::from(row[c]);
                }
                let want = if silu { sum / (1.0 + (-sum).exp()) } else { sum };
                prop_assert!((f64::from(scalar[c]) - want).abs() < 2e-5, "{} {want}", scalar[c]);
            }
            for isa in Isa::available() {
                let mut got = vec![0.0; channels];
                short_conv(isa, &inputs, weight, bias, silu, &mut got);
                prop_assert_eq!(&got, &scalar);
            }
        }
    }

    #[test]
    fn missing_inputs_are_zeros() {
        let (weight, row, zeros) = ([0.5; 3 * 19], [1.25; 19], [0.0; 19]);
        for isa in Isa::available() {
            let (mut missing, mut given) = ([0.0; 19], [1.0; 19]);
            short_conv(isa, &[None, None, Some(&row)], &weight, None, true, &mut missing);
            let inputs = [Some(&zeros[..]), Some(&zeros), Some(&row)];
            short_conv(isa, &inputs, &weight, None, true, &mut given);
            assert_eq!(missing, given, "{isa:?}");
        }
    }
}
