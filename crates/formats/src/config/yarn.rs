//! YaRN's factors of the cosines and of the attention scores, as transformers and llama.cpp
//! compute them.

use base::math;

/// Defaults: turns from which frequencies are kept, and turns up to which they are divided.
pub(super) const BETAS: (f32, f32) = (32.0, 1.0);
/// Default multiplier of the logarithm of the factor.
pub(super) const LOG_MULTIPLIER: f32 = 0.1;

/// YaRN's factor of the attention scores for a context `factor` times as long as the original.
pub(super) fn sharpening(factor: f32, log_multiplier: f32) -> f32 {
    match factor > 1.0 {
        true => (f64::from(log_multiplier) * math::ln(f64::from(factor)) + 1.0) as f32,
        false => 1.0,
    }
}

/// Factor of the attention scores of latent attention, for heads of `head_dim` values.
pub(super) fn attention_scale(head_dim: usize, sharpening: f32) -> f32 {
    sharpening * sharpening / (head_dim as f32).sqrt()
}

/// Inverse of [`attention_scale`]: the `mscale_all_dim` that gives `scale`, with as few decimals as
/// give it exactly.
pub(super) fn multiplier(head_dim: usize, scale: f32, factor: f32) -> Option<f64> {
    if factor <= 1.0 || scale == attention_scale(head_dim, 1.0) {
        return None;
    }
    let sharpened = (f64::from(scale) * (head_dim as f64).sqrt()).sqrt();
    let raw = (sharpened - 1.0) / (0.1 * math::ln(f64::from(factor)));
    let exact =
        |all: &f64| attention_scale(head_dim, sharpening(factor, tenth(*all as f32))) == scale;
    let rounded = (1..=8)
        .map(|digits| math::pow(10.0, f64::from(digits)))
        .map(|unit| (raw * unit).round() / unit);
    rounded.into_iter().find(exact).or(Some(raw))
}

/// The multiplier of the logarithm for a value of `mscale` in config.json.
pub(super) fn tenth(mscale: f32) -> f32 {
    (0.1 * f64::from(mscale)) as f32
}
