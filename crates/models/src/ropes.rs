//! Rotary embeddings, whose frequencies are computed as in `modeling_rope_utils` of transformers.

use crate::error::Error;
use backend::{Backend, Batch, LongRows, Magnitude, Pairs, Rope};
use base::math;
use formats::layers::Growth;
use formats::layers::{RopeConfig, RopeLayout, RopeScaling};
use std::f32::consts::TAU;

/// The rotary embeddings of a model, each of which the operations with its frequencies share.
#[derive(Debug, Default)]
pub(crate) struct Ropes {
    all: Vec<SharedRope>,
    /// Factors of the frequencies, one for each pair; none in most models.
    pub factors: Vec<f32>,
}

/// A rotary embedding.
#[derive(Debug)]
struct SharedRope {
    key: RopeKey,
    rope: Rope,
    /// With the frequencies of long sequences.
    long: Option<Rope>,
}

/// What rotary embeddings that are shared agree in.
#[derive(Debug, PartialEq)]
struct RopeKey {
    frequencies: Vec<f32>,
    /// Frequencies of long sequences, or none.
    long: Vec<f32>,
    layout: RopeLayout,
    magnitude: f32,
    growth: Option<Growth>,
}

impl Ropes {
    /// The embedding with the frequencies of `rope`.
    ///
    /// # Errors
    /// If the device has no memory for it.
    pub fn rope(
        &mut self,
        backend: &mut dyn Backend,
        rows: usize,
        rope: &RopeConfig,
        growth: Option<Growth>,
    ) -> Result<Rope, Error> {
        let long = match &rope.scaling {
            RopeScaling::LongRope { long, .. } => divided(rope, long),
            _ => Vec::new(),
        };
        let mut frequencies = frequencies(rope);
        frequencies.iter_mut().zip(&self.factors).for_each(|(own, factor)| *own *= factor);
        let (layout, magnitude) = (rope.layout, rope.magnitude);
        self.shared(backend, rows, RopeKey { frequencies, long, layout, magnitude, growth })
    }

    /// Growth of `dim` values without a rotation: pairs with a frequency of 0 are multiplied only.
    ///
    /// # Errors
    /// If the device has no memory for it.
    pub fn growth(
        &mut self,
        backend: &mut dyn Backend,
        rows: usize,
        dim: usize,
        growth: Growth,
    ) -> Result<Rope, Error> {
        let (frequencies, layout) = (vec![0.0; dim / 2], RopeLayout::Halves);
        let (long, growth) = (Vec::new(), Some(growth));
        self.shared(backend, rows, RopeKey { frequencies, long, layout, magnitude: 1.0, growth })
    }

    fn shared(
        &mut self,
        backend: &mut dyn Backend,
        rows: usize,
        key: RopeKey,
    ) -> Result<Rope, Error> {
        if let Some(shared) = self.all.iter().find(|shared| shared.key == key) {
            return Ok(shared.rope);
        }
        let pairs = match key.layout {
            RopeLayout::Halves => Pairs::Halves,
            RopeLayout::Interleaved => Pairs::Interleaved,
        };
        let growth = key.growth.map(|Growth { beta, every, offset }| {
            let [every, offset] = [every, offset].map(|count| count as u32);
            backend::Growth { beta, every, offset }
        });
        let magnitude = Magnitude { factor: key.magnitude, growth };
        let mut load =
            |frequencies: &[f32]| backend.rope(frequencies.to_vec(), magnitude, pairs, rows);
        let rope = load(&key.frequencies)?;
        let long = if key.long.is_empty() { None } else { Some(load(&key.long)?) };
        self.all.push(SharedRope { key, rope, long });
        Ok(rope)
    }

    /// Computes the angles of the positions of a batch.
    pub fn turn_to(&self, backend: &mut dyn Backend, batch: &Batch) {
        for SharedRope { rope, long, .. } in &self.all {
            let long = LongRows { rope: *long, rows: batch.long_rows() };
            backend.rope_angles(*rope, batch.positions(), long);
        }
    }
}

/// The inverse of the unscaled frequency of each pair.
fn powers(rope: &RopeConfig) -> impl Iterator<Item = f32> {
    let (dim, theta) = (rope.dim, rope.theta);
    (0..dim / 2).map(move |pair| power(theta, pair, dim))
}

/// `theta` to the share of `pair` in `dim`, which is f32 as the reference computes it.
fn power(theta: f32, pair: usize, dim: usize) -> f32 {
    math::pow(f64::from(theta), f64::from((2 * pair) as f32 / dim as f32)) as f32
}

/// Frequencies divided by a factor each, as the reference computes them.
fn divided(rope: &RopeConfig, factors: &[f32]) -> Vec<f32> {
    powers(rope).zip(factors).map(|(power, by)| 1.0 / (by * power)).collect()
}

/// One frequency, in radians per position, for each pair of values.
fn frequencies(rope: &RopeConfig) -> Vec<f32> {
    let base = powers(rope).map(|power| 1.0 / power);
    match &rope.scaling {
        RopeScaling::None => base.collect(),
        RopeScaling::Linear { factor } => base.map(|f| f / factor).collect(),
        RopeScaling::LongRope { short, .. } => divided(rope, short),
        RopeScaling::Factors { factors } => base.zip(factors).map(|(f, by)| f / by).collect(),
        RopeScaling::Yarn { .. } => yarn(rope),
        RopeScaling::Proportional { share, factor } => {
            let rotated = RopeScaling::rotated_pairs(*share, rope.dim);
            let rest = std::iter::repeat_n(0.0, rope.dim / 2 - rotated);
            base.take(rotated).map(|f| f / factor).chain(rest).collect()
        }
        RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
            let context = *original_context as f32;
            base.map(|f| llama3(f, *factor, *low_freq_factor, *high_freq_factor, context)).collect()
        }
    }
}

/// YaRN: frequencies with many turns over the original context are kept, frequencies with few turns
/// are divided.
fn yarn(rope: &RopeConfig) -> Vec<f32> {
    let RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, truncate } =
        rope.scaling
    else {
        unreachable!("asked for with YaRN only")
    };
    let dim = rope.dim as f32;
    // The pair with this many turns over the original context.
    let pair = |turns: f32| {
        let context = original_context as f64 / (f64::from(turns) * std::f64::consts::TAU);
        f64::from(dim) * math::ln(context) / (2.0 * math::ln(f64::from(rope.theta)))
    };
    let (mut low, mut high) = (pair(beta_fast), pair(beta_slow));
    if truncate {
        (low, high) = (low.floor(), high.ceil());
    }
    (low, high) = (low.max(0.0), high.min(f64::from(dim) - 1.0));
    if low == high {
        high += 0.001;
    }
    let (low, length) = (low as f32, (high - low) as f32);
    let divided = |at: usize| ((at as f32 - low) / length).clamp(0.0, 1.0);
    let frequencies = (0..rope.dim / 2).map(|at| {
        let plain = power(rope.theta, at, rope.dim);
        let kept = 1.0 - divided(at);
        1.0 / (factor * plain) * (1.0 - kept) + 1.0 / plain * kept
    });
    frequencies.collect()
}

/// Llama 3.1: long wavelengths are divided by `factor`, short ones kept, with a ramp between.
fn llama3(frequency: f32, factor: f32, low: f32, high: f32, context: f32) -> f32 {
    let wavelength = TAU / frequency;
    if wavelength > context / low {
        frequency / factor
    } else if wavelength < context / high {
        frequency
    } else {
        let kept = (context / wavelength - low) / (high - low);
        (1.0 - kept) * frequency / factor + kept * frequency
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use formats::layers::RopeLayout;

    fn check(scaling: RopeScaling, want: [f32; 4]) {
        let rope = RopeConfig {
            theta: 10_000.0,
            dim: 8,
            layout: RopeLayout::Halves,
            scaling,
            magnitude: 1.0,
        };
        for (got, want) in frequencies(&rope).into_iter().zip(want) {
            assert!((got - want).abs() < 1e-7, "{got} is not {want}");
        }
    }

    #[test]
    fn plain_linear_and_stored_factors() {
        check(RopeScaling::None, [1.0, 0.1, 0.01, 0.001]);
        check(RopeScaling::Linear { factor: 4.0 }, [0.25, 0.025, 0.0025, 0.00025]);
        let part = RopeScaling::Proportional { share: 0.5, factor: 2.0 };
        check(part, [0.5, 0.05, 0.0, 0.0]);
        check(
            RopeScaling::Factors { factors: vec![1.0, 2.0, 4.0, 8.0] },
            [1.0, 0.05, 0.0025, 0.000_125],
        );
    }

    /// The frequencies of DeepSeek V4's compressed layers, at both ends of the ramp and on it.
    #[test]
    fn yarn_divides_long_waves() {
        let rope = RopeConfig {
            theta: 160_000.0,
            dim: 64,
            layout: RopeLayout::Interleaved,
            scaling: RopeScaling::Yarn {
                factor: 16.0,
                original_context: 65_536,
                beta_fast: 32.0,
                beta_slow: 1.0,
                truncate: true,
            },
            magnitude: 1.0,
        };
        let frequencies = frequencies(&rope);
        for (pair, want) in [
            (0, 1.0),
            (15, 3.635_538_6e-3),
            (16, 2.265_625e-3),
            (20, 2.969_778e-4),
            (24, 1.953_125e-5),
            (25, 5.372_31e-6),
            (31, 5.680_53e-7),
        ] {
            let got = frequencies[pair];
            assert!((got / want - 1.0).abs() < 1e-5, "{pair}: {got} is not {want}");
        }
    }

    #[test]
    fn llama3_keeps_short_waves_and_divides_long_ones() {
        // Wavelengths 6.3, 63, 628 and 6283 against bounds 64 and 16: the second is on the ramp.
        let scaling = RopeScaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_context: 64,
        };
        let kept = (64.0 * 0.1 / TAU - 1.0) / 3.0;
        check(scaling, [1.0, (1.0 - kept) * 0.1 / 8.0 + kept * 0.1, 0.00125, 0.000_125]);
    }
}
