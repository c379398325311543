//! Configurations written back: config.json, GGUF metadata, and the tensors a dense model
//! has. For writing checkpoints of a given shape.

use serde_json::{Value as Json, json};

use super::{ModelConfig, RopeLayout, RopeScaling, family};
use crate::error::{Error, Result};
use crate::gguf::{GgufWriter, Value};

impl RopeScaling {
    /// One divisor per pair of rotated values, as GGUF files store them: `None` where the
    /// frequencies are not changed one by one.
    pub fn factors(&self, theta: f32, dim: usize) -> Option<Vec<f32>> {
        match self {
            Self::None | Self::Linear { .. } | Self::Yarn { .. } => None,
            Self::Factors(factors) => Some(factors.clone()),
            Self::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
                let (low, high) = (f64::from(*low_freq_factor), f64::from(*high_freq_factor));
                let (factor, context) = (f64::from(*factor), *original_context as f64);
                let divisor = |pair: usize| {
                    let exponent = 2.0 * pair as f64 / dim as f64;
                    let wavelength = std::f64::consts::TAU * f64::from(theta).powf(exponent);
                    // How far a wavelength lies between the long ones (0) and the short (1).
                    let ramp = ((context / wavelength - low) / (high - low)).clamp(0.0, 1.0);
                    (1.0 / ((1.0 - ramp) / factor + ramp)) as f32
                };
                Some((0..dim / 2).map(divisor).collect())
            }
        }
    }
}

impl ModelConfig {
    /// The configuration as config.json in the published style. `Factors` have no place there.
    pub fn to_hf_json(&self) -> Result<Json> {
        let class = family::hf_class(&self.architecture).ok_or_else(|| self.unknown())?;
        let mut json = json!({
            "architectures": [class],
            "model_type": self.architecture,
            "hidden_act": "silu",
            "hidden_size": self.hidden_size,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "intermediate_size": self.intermediate_size,
            "vocab_size": self.vocab_size,
            "max_position_embeddings": self.context_length,
            "rms_norm_eps": self.rms_norm_eps,
            "rope_theta": self.rope.theta,
            "partial_rotary_factor": self.rope.dim as f64 / self.head_dim as f64,
            "rope_scaling": self.rope_scaling_json()?,
            "tie_word_embeddings": self.tied_embeddings,
            "bos_token_id": self.special.bos,
            "eos_token_id": self.special.eos,
            "pad_token_id": self.special.pad,
        });
        self.windows_json(&mut json);
        Ok(json)
    }

    /// Sets the keys of GGUF metadata that describe the model. Divisors of the rotary
    /// frequencies, if there are any, go into the tensor `rope_freqs.weight`.
    pub fn to_gguf(&self, writer: &mut GgufWriter) -> Result<()> {
        let arch = family::gguf_name(&self.architecture).ok_or_else(|| self.unknown())?;
        let mut count = |key: &str, value: usize| {
            writer.set(&format!("{arch}.{key}"), Value::U32(value.min(u32::MAX as usize) as u32));
        };
        count("block_count", self.layers);
        count("context_length", self.context_length);
        count("embedding_length", self.hidden_size);
        count("feed_forward_length", self.intermediate_size);
        count("attention.head_count", self.heads);
        count("attention.head_count_kv", self.kv_heads);
        count("attention.key_length", self.head_dim);
        count("attention.value_length", self.head_dim);
        count("rope.dimension_count", self.rope.dim);
        count("vocab_size", self.vocab_size);
        if let Some(window) = self.uniform_window()? {
            count("attention.sliding_window", window);
        }
        let mut float = |key: &str, value| writer.set(&format!("{arch}.{key}"), Value::F32(value));
        float("attention.layer_norm_rms_epsilon", self.rms_norm_eps);
        float("rope.freq_base", self.rope.theta);
        if let RopeScaling::Linear { factor } = self.rope.scaling {
            float("rope.scaling.factor", factor);
            writer.set(&format!("{arch}.rope.scaling.type"), Value::String("linear".into()));
        }
        writer.set("general.architecture", Value::String(arch.to_owned()));
        writer.set("general.name", Value::String(self.name.clone()));
        Ok(())
    }

    /// Which values of a head form a pair in GGUF files of this family, whatever they do here.
    pub fn gguf_rope(&self) -> Result<RopeLayout> {
        family::gguf_rope(&self.architecture).ok_or_else(|| self.unknown())
    }

    /// Canonical names and shapes of all tensors of a dense model of this configuration.
    pub fn dense_tensors(&self) -> Vec<(String, Vec<usize>)> {
        let (hidden, mlp) = (self.hidden_size, self.intermediate_size);
        let mut tensors = vec![("token_embd.weight".to_owned(), vec![self.vocab_size, hidden])];
        for layer in 0..self.layers {
            let named = |(name, shape)| (format!("blk.{layer}.{name}"), shape);
            tensors.extend(self.attention_tensors().into_iter().map(named));
            tensors.extend(
                [
                    ("ffn_norm.weight", vec![hidden]),
                    ("ffn_gate.weight", vec![mlp, hidden]),
                    ("ffn_up.weight", vec![mlp, hidden]),
                    ("ffn_down.weight", vec![hidden, mlp]),
                ]
                .map(named),
            );
        }
        tensors.push(("output_norm.weight".to_owned(), vec![hidden]));
        if !self.tied_embeddings {
            tensors.push(("output.weight".to_owned(), vec![self.vocab_size, hidden]));
        }
        tensors
    }

    fn attention_tensors(&self) -> Vec<(&'static str, Vec<usize>)> {
        let (hidden, dim) = (self.hidden_size, self.head_dim);
        let (q, kv) = (self.heads * dim, self.kv_heads * dim);
        let mut tensors = vec![
            ("attn_norm.weight", vec![hidden]),
            ("attn_q.weight", vec![q, hidden]),
            ("attn_k.weight", vec![kv, hidden]),
            ("attn_v.weight", vec![kv, hidden]),
            ("attn_output.weight", vec![hidden, q]),
        ];
        if self.architecture == "qwen2" {
            let biases = [("attn_q.bias", q), ("attn_k.bias", kv), ("attn_v.bias", kv)];
            tensors.extend(biases.map(|(name, len)| (name, vec![len])));
        }
        if self.architecture == "qwen3" {
            tensors.extend(["attn_q_norm.weight", "attn_k_norm.weight"].map(|n| (n, vec![dim])));
        }
        tensors
    }

    fn rope_scaling_json(&self) -> Result<Json> {
        Ok(match &self.rope.scaling {
            RopeScaling::None => Json::Null,
            RopeScaling::Linear { factor } => json!({"rope_type": "linear", "factor": factor}),
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
                json!({
                    "rope_type": "llama3",
                    "factor": factor,
                    "low_freq_factor": low_freq_factor,
                    "high_freq_factor": high_freq_factor,
                    "original_max_position_embeddings": original_context,
                })
            }
            RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, truncate } => {
                json!({
                    "rope_type": "yarn",
                    "factor": factor,
                    "original_max_position_embeddings": original_context,
                    "beta_fast": beta_fast,
                    "beta_slow": beta_slow,
                    "truncate": truncate,
                    "attention_factor": self.rope.magnitude,
                })
            }
            RopeScaling::Factors(_) => {
                let problem = "factors of single frequencies cannot be written to config.json";
                return Err(self.error("rope_scaling", problem));
            }
        })
    }

    fn windows_json(&self, json: &mut Json) {
        let window = self.windows.iter().flatten().next();
        json["sliding_window"] = json!(window);
        if window.is_some() {
            let kind = |w: &Option<usize>| {
                ["full_attention", "sliding_attention"][usize::from(w.is_some())]
            };
            json["use_sliding_window"] = json!(true);
            json["layer_types"] = self.windows.iter().map(kind).collect();
        }
    }

    fn uniform_window(&self) -> Result<Option<usize>> {
        let first = self.windows.first().copied().flatten();
        match self.windows.iter().all(|window| *window == first) {
            true => Ok(first),
            false => Err(self.error("sliding_window", "GGUF files have one window for all layers")),
        }
    }

    fn error(&self, field: &str, problem: &str) -> Error {
        Error::field(std::path::Path::new(&self.name), field, problem)
    }

    fn unknown(&self) -> Error {
        self.error("architecture", &format!("{} is not supported", self.architecture))
    }
}
