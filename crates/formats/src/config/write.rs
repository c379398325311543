//! Writes configurations: config.json, GGUF metadata, and the list of a model's tensors.

mod compressed;
mod encoder;
mod folded;
mod gguf;
mod tensors;

pub use folded::RowFactors;
pub(crate) use tensors::Tensors;

use base::math;
use serde_json::{Value as Json, json};

use super::family::Family;
use super::fields::{FULL, SLIDING};
use super::gguf::{LONG_FACTORS, ROPE_FACTORS, SHORT_FACTORS};
use super::rows::{self, HEAD_DIM, ROTATED};
use super::yarn;
use crate::config::model::ModelConfig;
use crate::config::schema::WindowedConfig;
use crate::error::{Error, Result};
use crate::json::extend;
use crate::layers::{RopeConfig, RopeLayout, RopeScaling};

/// Divisor of the frequencies of pairs that are not rotated, as llama.cpp writes it.
const UNROTATED: f32 = 1e30;

impl RopeScaling {
    /// Number of pairs of `dim` values that are rotated with a share.
    pub fn rotated_pairs(share: f32, dim: usize) -> usize {
        ((share * dim as f32) as usize / 2).min(dim / 2)
    }

    /// One divisor per pair of rotated values, as GGUF files store them; `None` for scalings that
    /// are not written so.
    pub fn factors(&self, theta: f32, dim: usize) -> Option<Vec<f32>> {
        match self {
            Self::None | Self::Linear { .. } | Self::Yarn { .. } | Self::LongRope { .. } => None,
            Self::Proportional { share, factor } => {
                let rotated = Self::rotated_pairs(*share, dim);
                let divisor = |pair: usize| if pair < rotated { *factor } else { UNROTATED };
                Some((0..dim / 2).map(divisor).collect())
            }
            Self::Factors { factors } => Some(factors.clone()),
            Self::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
                let (low, high) = (f64::from(*low_freq_factor), f64::from(*high_freq_factor));
                let (factor, context) = (f64::from(*factor), *original_context as f64);
                let divisor = |pair: usize| {
                    let exponent = 2.0 * pair as f64 / dim as f64;
                    let wavelength = std::f64::consts::TAU * math::pow(f64::from(theta), exponent);
                    // Position of a wavelength between the long ones (0) and the short ones (1).
                    let ramp = ((context / wavelength - low) / (high - low)).clamp(0.0, 1.0);
                    (1.0 / ((1.0 - ramp) / factor + ramp)) as f32
                };
                Some((0..dim / 2).map(divisor).collect())
            }
        }
    }
}

impl ModelConfig {
    /// Names and values of the tensors of GGUF files that hold divisors of the frequencies. Where
    /// half of the values are rotated, those of the others are 1.
    pub fn factor_tensors(&self) -> Vec<(&'static str, Vec<f32>)> {
        let RopeConfig { ref scaling, theta, dim, .. } = self.said.rope;
        if let RopeScaling::LongRope { short, long, .. } = scaling {
            return vec![(SHORT_FACTORS, short.clone()), (LONG_FACTORS, long.clone())];
        }
        let Some(mut factors) = scaling.factors(theta, dim) else { return Vec::new() };
        if self.family().gguf.half_rotated {
            factors.resize(dim, 1.0);
        }
        vec![(ROPE_FACTORS, factors)]
    }

    pub(crate) fn hf_json(&self, family: &Family) -> Result<Json> {
        let mut json = json!({
            "architectures": [family.hf.class],
            "model_type": self.architecture,
            "hidden_act": "silu",
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers.len(),
            "num_attention_heads": self.said.heads,
            "num_key_value_heads": self.said.kv_heads,
            "head_dim": self.said.head_dim,
            "intermediate_size": self.said.intermediate_size,
            "vocab_size": self.vocab,
            "max_position_embeddings": self.context,
            (family.hf.eps): self.said.rms_norm_eps,
            "rope_theta": self.said.rope.theta,
            "partial_rotary_factor": self.said.rope.dim as f64 / self.said.head_dim as f64,
            "rope_scaling": self.rope_scaling_json(family)?,
            "tie_word_embeddings": self.said.tied_embeddings,
            "bos_token_id": self.special.bos,
            "eos_token_id": self.special.eos,
            "pad_token_id": self.special.pad,
        });
        self.windows_json(&mut json);
        if let Some(windowed) = &self.said.windowed {
            let fields = json.as_object_mut().expect("made as an object");
            let of_all = ["rope_theta", "rope_scaling", "partial_rotary_factor"];
            fields.retain(|key, _| !of_all.contains(&key.as_str()));
            fields.insert("rope_parameters".to_owned(), self.rope_by_type(windowed)?);
        }
        extend(&mut json, rows::to_json(family.rows, &self.said));
        extend(&mut json, (family.hf.to_json)(&self.said));
        if self.said.latent.is_some() {
            let fields = json.as_object_mut().expect("made as an object");
            fields.retain(|key, _| key != HEAD_DIM.hf[0] && key != ROTATED.hf[0]);
            extend(&mut json, rows::to_json(rows::LATENT, &self.said));
            let interleaved = self.said.rope.layout == RopeLayout::Interleaved;
            extend(&mut json, json!({"rope_interleave": interleaved}));
        }
        if let Some(sizes) = &self.said.compressed {
            let of_others = [ROTATED.hf[0], "rope_scaling", "layer_types"];
            let fields = json.as_object_mut().expect("made as an object");
            fields.retain(|key, _| !of_others.contains(&key.as_str()));
            extend(&mut json, self.compressed_json(sizes)?);
        }
        // A single number cannot describe every choice of layers with experts.
        if self.said.experts.is_some() && family.gguf.experts.leading_dense {
            self.leading_dense()?;
        }
        Ok(json)
    }

    /// Number of layers before the first with experts; an error unless all later layers have
    /// experts.
    fn leading_dense(&self) -> Result<usize> {
        let layers = self.said.experts.as_ref().map_or(&[][..], |experts| &experts.layers);
        let dense = layers.iter().take_while(|sparse| !**sparse).count();
        match layers[dense..].contains(&false) {
            true => {
                Err(self.error("first_k_dense_replace", "expected experts in all later layers"))
            }
            false => Ok(dense),
        }
    }

    /// `mscale_all_dim`, if YaRN scales the scores of latent attention.
    fn mscale_all_dim(&self) -> Option<f64> {
        let RopeScaling::Yarn { factor, .. } = self.said.rope.scaling else { return None };
        self.said
            .latent
            .and_then(|_| yarn::multiplier(self.said.head_dim, self.said.attention_scale, factor))
    }

    fn rope_scaling_json(&self, family: &Family) -> Result<Json> {
        let scaling = &self.said.rope.scaling;
        if *scaling == RopeScaling::None && (family.hf.default_scaling)() == RopeScaling::None {
            return Ok(Json::Null);
        }
        if matches!(scaling, RopeScaling::Factors { .. }) {
            let problem = "factors of single frequencies cannot be written to config.json";
            return Err(self.error("rope_scaling", problem));
        }
        let mut json = json!(scaling);
        if matches!(scaling, RopeScaling::LongRope { .. }) {
            json["attention_factor"] = json!(self.said.rope.magnitude);
        }
        if matches!(scaling, RopeScaling::Yarn { .. }) {
            // Equal values leave cosines and sines unscaled.
            let all = self.mscale_all_dim();
            if let (Some(all), true) = (all, self.said.rope.magnitude == 1.0) {
                extend(&mut json, json!({"mscale": all, "mscale_all_dim": all}));
            } else {
                extend(&mut json, all.map_or(Json::Null, |all| json!({"mscale_all_dim": all})));
                json["attention_factor"] = json!(self.said.rope.magnitude);
            }
        }
        Ok(json)
    }

    /// Rotary parameters of layers without a window, and of layers with one.
    fn rope_by_type(&self, windowed: &WindowedConfig) -> Result<Json> {
        let parameters = |rope: &RopeConfig, head_dim: usize| {
            if matches!(rope.scaling, RopeScaling::Factors { .. }) {
                let problem = "factors of single frequencies cannot be written to config.json";
                return Err(self.error("rope_parameters", problem));
            }
            let mut json = json!(rope.scaling);
            json["rope_theta"] = json!(rope.theta);
            if rope.magnitude != 1.0 {
                json["attention_factor"] = json!(rope.magnitude);
            }
            if rope.dim != head_dim {
                json[ROTATED.hf[0]] = json!(rope.dim as f64 / head_dim as f64);
            }
            Ok(json)
        };
        Ok(json!({
            (FULL): parameters(&self.said.rope, self.said.head_dim)?,
            (SLIDING): parameters(&windowed.rope, windowed.head_dim)?,
        }))
    }

    fn windows_json(&self, json: &mut Json) {
        let window = self.said.windows.iter().flatten().next();
        json["sliding_window"] = json!(window);
        if window.is_some() {
            let kind = |w: &Option<usize>| [FULL, SLIDING][usize::from(w.is_some())];
            json["use_sliding_window"] = json!(true);
            json["layer_types"] = self.said.windows.iter().map(kind).collect();
        }
    }

    pub(crate) fn error(&self, field: &str, problem: &str) -> Error {
        Error::field(std::path::Path::new(&self.name), field, problem)
    }
}
