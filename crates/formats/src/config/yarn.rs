//! YaRN's factors of the cosines and of the attention scores, as transformers and llama.cpp
//! compute them.

/// Turns from which frequencies are kept, and up to which they are divided, where no file says.
pub(super) const BETAS: (f32, f32) = (32.0, 1.0);
/// What the logarithm of the factor is multiplied by where no file says.
pub(super) const LOG_MULTIPLIER: f32 = 0.1;

/// How much longer contexts, `factor` times the original, sharpen attention.
pub(super) fn sharpening(factor: f32, log_multiplier: f32) -> f32 {
    match factor > 1.0 {
        true => (f64::from(log_multiplier) * f64::from(factor).ln() + 1.0) as f32,
        false => 1.0,
    }
}

/// Factor of the attention scores over heads of `head_dim` values, where latent attention is
/// sharpened.
pub(super) fn attention_scale(head_dim: usize, sharpening: f32) -> f32 {
    sharpening * sharpening / (head_dim as f32).sqrt()
}
