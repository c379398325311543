//! Rotary position embedding (Su et al., 2021).

use std::ops::Deref;
use std::sync::Arc;

use serde::{Serialize, Serializer};

/// Rotary position embedding.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RopeConfig {
    /// Base of the frequencies.
    pub theta: f32,
    /// Values of a head that are rotated; even, at most `head_dim`. They lead, except in attention
    /// to compressed rows, where they trail.
    pub dim: usize,
    /// Which values form a pair.
    pub layout: RopeLayout,
    /// Change of the frequencies for longer contexts.
    pub scaling: RopeScaling,
    /// Factor of the cosines and sines; 1 except for YaRN.
    pub magnitude: f32,
}

/// Which two values of a head are rotated together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum RopeLayout {
    /// `(i, i + dim/2)`: Hugging Face checkpoints, and GGUF files of most architectures.
    #[default]
    Halves,
    /// `(2i, 2i + 1)`: GGUF files of `llama`, whose Q and K rows are permuted to match.
    Interleaved,
}

/// Change of the rotary frequencies. Serialises as `rope_scaling` of config.json, except `Factors`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "rope_type", rename_all = "lowercase")]
pub enum RopeScaling {
    /// As trained.
    #[serde(rename = "default")]
    None,
    /// All positions divided by `factor`.
    Linear {
        /// How much longer the context becomes.
        factor: f32,
    },
    /// Llama 3.1's: long wavelengths divided, short ones kept, a ramp between.
    Llama3 {
        /// Divisor of the long wavelengths.
        factor: f32,
        /// Wavelengths above `original_context / low_freq_factor` are divided.
        low_freq_factor: f32,
        /// Wavelengths below `original_context / high_freq_factor` are kept.
        high_freq_factor: f32,
        /// Context before scaling, in tokens.
        #[serde(rename = "original_max_position_embeddings")]
        original_context: usize,
    },
    /// YaRN (Peng et al., 2023): short wavelengths kept, long ones divided, a ramp between.
    Yarn {
        /// How much longer the context becomes.
        factor: f32,
        /// Context before scaling, in tokens.
        #[serde(rename = "original_max_position_embeddings")]
        original_context: usize,
        /// Turns over the original context from which frequencies are kept.
        beta_fast: f32,
        /// Turns over the original context up to which they are divided.
        beta_slow: f32,
        /// Whether the ends of the ramp are rounded to whole pairs.
        truncate: bool,
    },
    /// The first pairs of a head are rotated, the others stay: frequencies are those of the whole
    /// head (Gemma 4).
    Proportional {
        /// Share of the pairs that are rotated.
        #[serde(rename = "partial_rotary_factor")]
        share: f32,
        /// Divisor of the frequencies.
        factor: f32,
    },
    /// One divisor per pair (`dim / 2` values), of which there are two lists: for sequences that
    /// cannot become longer than the original context, and for the others (Phi-3).
    LongRope {
        /// For sequences up to the original context.
        #[serde(rename = "short_factor")]
        short: Vec<f32>,
        /// For longer ones.
        #[serde(rename = "long_factor")]
        long: Vec<f32>,
        /// Context before scaling, in tokens.
        #[serde(rename = "original_max_position_embeddings")]
        original_context: usize,
    },
    /// One divisor per pair (`dim / 2` values), as GGUF files store in `rope_freqs.weight`;
    /// config.json has no form for these.
    Factors {
        /// The divisors.
        factors: Vec<f32>,
    },
}

/// The rotary embedding of an operation, which layers share.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeSpec(Arc<RopeConfig>);

impl RopeSpec {
    /// The same memory as the equal one of `known`, among which it is after that.
    pub(crate) fn share(&mut self, known: &mut Vec<Self>) {
        match known.iter().find(|other| *other == self) {
            Some(other) => self.clone_from(other),
            None => known.push(self.clone()),
        }
    }
}

impl From<RopeConfig> for RopeSpec {
    fn from(rope: RopeConfig) -> Self {
        Self(Arc::new(rope))
    }
}

impl Deref for RopeSpec {
    type Target = RopeConfig;

    fn deref(&self) -> &RopeConfig {
        &self.0
    }
}

impl Serialize for RopeSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}
