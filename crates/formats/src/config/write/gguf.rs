//! A configuration as GGUF metadata, with the keys of llama.cpp.

use super::super::family::Family;
use super::super::fields::{SIGMOID, SOFTMAX, SOFTMAX_OF_CHOSEN, SQRT_SOFTPLUS};
use super::super::gguf::experts::LATENT;
use super::super::gguf::mamba::{LEAST_STEP, MOST_STEP, NORM_FIRST, PROJECTION_SCALE};
use super::super::gguf::rope::LOG_MULTIPLIER;
use super::super::{
    CompressedConfig, DeltaConfig, ExpertsConfig, HyperConfig, INDEXED_RATIO, LatentConfig,
    MambaConfig, MambaNorm, ModelConfig, RopeScaling, RouterScores, WindowedConfig, yarn,
};
use crate::error::Result;
use crate::gguf::{Array, GgufWriter, Value};

/// Keys under the name of the architecture.
pub(super) struct GgufKeyWriter<'a> {
    pub writer: &'a mut GgufWriter,
    prefix: &'static str,
}

impl GgufKeyWriter<'_> {
    pub fn set(&mut self, key: &str, value: Value) {
        self.writer.set(&format!("{}.{key}", self.prefix), value);
    }

    pub fn count(&mut self, key: &str, value: usize) {
        self.set(key, Value::U32(value.min(u32::MAX as usize) as u32));
    }

    fn counts(&mut self, key: &str, values: impl Iterator<Item = usize>) {
        let values = values.map(|value| value.min(i32::MAX as usize) as i32).collect();
        self.set(key, Value::Array(Array::I32(values)));
    }

    fn float(&mut self, key: &str, value: f32) {
        self.set(key, Value::F32(value));
    }
}

impl ModelConfig {
    pub(crate) fn gguf_keys(&self, family: &Family, writer: &mut GgufWriter) -> Result<()> {
        let prefix = family.gguf_name_of(&self.said);
        let mut keys = GgufKeyWriter { writer, prefix };
        keys.count("block_count", self.layers.len());
        keys.count("context_length", self.context);
        keys.count("embedding_length", self.hidden);
        let width =
            |layer| if self.said.has_feed_forward(layer) { self.said.mlp_width(layer) } else { 0 };
        match (0..self.layers.len()).all(|layer| width(layer) == self.said.intermediate_size) {
            false => keys.counts("feed_forward_length", (0..self.layers.len()).map(width)),
            true => keys.count("feed_forward_length", self.said.intermediate_size),
        }
        keys.count("rope.dimension_count", self.said.rope.dim);
        if family.gguf_sections {
            // Text has equal positions in all sections; llama.cpp needs the key.
            let pairs = (self.said.rope.dim / 2) as i32;
            let sections = vec![(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0];
            keys.set("rope.dimension_sections", Value::Array(Array::I32(sections)));
        }
        keys.count("vocab_size", self.vocab);
        keys.count("attention.head_count", self.said.heads);
        match self.said.latent() {
            Some(latent) => {
                latent_keys(&mut keys, latent);
                if family.gguf_zero_heads {
                    let attends =
                        (0..self.layers.len()).map(|layer| usize::from(self.said.attends(layer)));
                    keys.counts("attention.head_count_kv", attends);
                }
            }
            None => {
                let heads = |layer| match family.gguf_zero_heads && !self.said.attends(layer) {
                    true => 0,
                    false => self.said.kv_heads_of(layer),
                };
                let kv_heads = (0..self.layers.len()).map(heads);
                match kv_heads.clone().all(|heads| heads == self.said.kv_heads) {
                    true => keys.count("attention.head_count_kv", self.said.kv_heads),
                    false => keys.counts("attention.head_count_kv", kv_heads),
                }
                keys.count("attention.key_length", self.said.head_dim);
                keys.count("attention.value_length", self.said.head_dim);
            }
        }
        self.window_keys(&mut keys, family)?;
        self.kind_keys(&mut keys, family)?;
        self.mixer_keys(&mut keys, family);
        self.encoder_keys(&mut keys)?;
        if let Some(experts) = &self.said.experts {
            self.expert_keys(&mut keys, family, experts)?;
        }
        family.gguf_eps.iter().for_each(|key| keys.float(key, self.said.rms_norm_eps));
        keys.float("rope.freq_base", self.said.rope.theta);
        if let Some(HyperConfig { streams, iterations, eps }) = self.said.hyper {
            keys.count("hyper_connection.count", streams);
            keys.count("hyper_connection.sinkhorn_iterations", iterations);
            keys.float("hyper_connection.epsilon", eps);
        }
        match self.said.compressed() {
            Some(sizes) => self.compressed_keys(&mut keys, sizes)?,
            None => self.scaling_keys(&mut keys),
        }
        writer.set("general.architecture", Value::String(prefix.to_owned()));
        writer.set("general.name", Value::String(self.name.clone()));
        Ok(())
    }

    /// Keys of what layers have in place of attention, or beside it.
    fn mixer_keys(&self, keys: &mut GgufKeyWriter, family: &Family) {
        if let Some(delta) = &self.said.delta {
            delta_keys(keys, delta, self.decays_per_channel());
        } else if family.delta.is_some() {
            let none = Value::Array(Array::Bool(vec![false; self.layers.len()]));
            keys.set("attention.recurrent_layers", none);
        }
        if let Some(mamba) = &self.said.mamba {
            mamba_keys(keys, mamba);
        }
        if let Some(convs) = &self.said.convs {
            keys.count("shortconv.l_cache", convs.kernel);
        }
        if let Some(index) = &self.said.index {
            keys.count("attention.indexer.head_count", index.heads);
            keys.count("attention.indexer.key_length", index.dim);
            keys.count("attention.indexer.top_k", index.top);
        }
    }

    /// Window keys: one window for all layers, or a window and one flag per layer.
    fn window_keys(&self, keys: &mut GgufKeyWriter, family: &Family) -> Result<()> {
        const FIELD: &str = "sliding_window";
        let Some(window) = self.said.windows.iter().flatten().next().copied() else {
            return Ok(());
        };
        let uniform = self.said.windows.iter().all(|found| *found == Some(window));
        if self.said.windows.iter().flatten().any(|found| *found != window) {
            return Err(self.error(FIELD, "GGUF files have one window for all layers"));
        }
        // Windows of encoders count the positions on both sides.
        let encoder = self.said.encoder.is_some();
        let positions = if encoder { (2 * (window - 1)).max(1) } else { window };
        keys.count("attention.sliding_window", positions);
        if !uniform || family.gguf_window_period.is_some() || encoder {
            let slides = self.said.windows.iter().map(Option::is_some).collect();
            keys.set("attention.sliding_window_pattern", Value::Array(Array::Bool(slides)));
        }
        Ok(())
    }

    /// Keys of what layers with a window have of their own, and of what few families have.
    fn kind_keys(&self, keys: &mut GgufKeyWriter, family: &Family) -> Result<()> {
        if let Some(WindowedConfig { head_dim, rope, .. }) = &self.said.windowed {
            if rope.scaling != RopeScaling::None {
                let problem = "expected no scaling in layers with a window";
                return Err(self.error("rope.scaling.type", problem));
            }
            keys.count("attention.key_length_swa", *head_dim);
            keys.count("attention.value_length_swa", *head_dim);
            keys.count("rope.dimension_count_swa", rope.dim);
            keys.float("rope.freq_base_swa", rope.theta);
        }
        if self.said.shared_kv_layers > 0 {
            keys.count("attention.shared_kv_layers", self.said.shared_kv_layers);
        }
        if self.said.layer_inputs > 0 {
            keys.count("embedding_length_per_layer_input", self.said.layer_inputs);
        }
        if let Some(growth) = self.said.query_growth {
            keys.float("attention.temperature_scale", growth.beta);
            keys.count("attention.temperature_length", growth.every);
        }
        if let Some(cap) = self.said.logit_cap {
            keys.float("final_logit_softcapping", cap);
        }
        if family.gguf_zero_heads
            && self.said.grouped_config().is_some()
            && self.said.unrotated.contains(&true)
        {
            // llama.cpp takes this key for a switch of the rotation in Granite.
            keys.set("rope.scaling.finetuned", Value::Bool(self.said.unrotated.contains(&false)));
        }
        let of_heads = yarn::attention_scale(self.said.head_dim, 1.0);
        if self.said.latent().is_none() && self.said.attention_scale != of_heads {
            keys.float("attention.scale", self.said.attention_scale);
        }
        // Families whose embeddings are scaled by the root of the width do not say so.
        let by_width = (self.hidden as f32).sqrt();
        let embedding_scale =
            if self.said.embedding_scale == by_width { 1.0 } else { self.said.embedding_scale };
        let divides = !family.gguf_logit_factor;
        let logits = if divides { 1.0 / self.said.logit_scale } else { self.said.logit_scale };
        let factors = [
            ("embedding_scale", embedding_scale),
            ("residual_scale", self.said.residual_scale),
            ("logit_scale", logits),
        ];
        for (key, factor) in factors.into_iter().filter(|(_, factor)| *factor != 1.0) {
            keys.float(key, factor);
        }
        for (name, factor) in &self.said.factors {
            keys.float(&format!("{PROJECTION_SCALE}.{name}"), *factor);
        }
        Ok(())
    }

    fn expert_keys(
        &self,
        keys: &mut GgufKeyWriter,
        family: &Family,
        experts: &ExpertsConfig,
    ) -> Result<()> {
        keys.count("expert_count", experts.count);
        keys.count("expert_used_count", experts.chosen);
        keys.count("expert_feed_forward_length", experts.width);
        if let Some(latent) = experts.latent {
            keys.count(LATENT, latent);
        }
        keys.float("expert_weights_scale", experts.scale);
        keys.set("expert_weights_norm", Value::Bool(experts.normalise));
        let scores = match experts.scores {
            RouterScores::Softmax => SOFTMAX,
            RouterScores::Sigmoid | RouterScores::PlainSigmoid => SIGMOID,
            RouterScores::SoftmaxOfChosen => SOFTMAX_OF_CHOSEN,
            RouterScores::SqrtSoftplus => SQRT_SOFTPLUS,
        };
        keys.count("expert_gating_func", scores);
        if family.gguf_experts.shared {
            keys.count("expert_shared_feed_forward_length", experts.shared_width);
        } else {
            keys.count("expert_shared_count", experts.shared_width / experts.width);
        }
        if let Some(groups) = experts.groups {
            keys.count("expert_group_count", groups.count);
            keys.count("expert_group_used_count", groups.chosen);
        }
        if family.gguf_experts.leading_dense {
            keys.count("leading_dense_block_count", self.leading_dense()?);
        }
        let by_token = experts.by_token.iter().take_while(|by_token| **by_token).count();
        if experts.by_token[by_token..].contains(&true) {
            let problem = "expected tables of experts in the first layers only";
            return Err(self.error("hash_layer_count", problem));
        }
        if by_token > 0 {
            keys.count("hash_layer_count", by_token);
        }
        if family.compressed {
            let array = |limits: &[Option<f32>]| {
                Value::Array(Array::F32(limits.iter().map(|limit| limit.unwrap_or(0.0)).collect()))
            };
            keys.set("swiglu_clamp_exp", array(&experts.limits));
            keys.set("swiglu_clamp_shexp", array(&experts.shared_limits));
        }
        Ok(())
    }

    /// Keys of attention to compressed rows, whose layers have the scaled frequencies.
    fn compressed_keys(&self, keys: &mut GgufKeyWriter, sizes: &CompressedConfig) -> Result<()> {
        let layers = sizes.ratios.iter().zip(&sizes.indexed);
        if layers.clone().any(|(ratio, indexed)| *indexed != (*ratio == INDEXED_RATIO)) {
            let problem = "expected an index in the layers of ratio 4, and in no others";
            return Err(self.error("attention.compress_ratios", problem));
        }
        if self.said.rope.scaling != RopeScaling::None {
            let problem = "expected no scaling in layers without compressed rows";
            return Err(self.error("rope.scaling.type", problem));
        }
        let ratios = sizes.ratios.iter().map(|&ratio| ratio.min(u32::MAX as usize) as u32);
        keys.set("attention.compress_ratios", Value::Array(Array::U32(ratios.collect())));
        keys.count("attention.q_lora_rank", sizes.q_rank);
        keys.count("attention.output_group_count", sizes.groups);
        keys.count("attention.output_lora_rank", sizes.out_rank);
        if sizes.indexed.contains(&true) {
            keys.count("attention.indexer.head_count", sizes.index_heads);
            keys.count("attention.indexer.key_length", sizes.index_dim);
            keys.count("attention.indexer.top_k", sizes.index_top);
        }
        keys.float("attention.compress_rope_freq_base", sizes.rope.theta);
        self.scaling_keys(keys);
        Ok(())
    }

    fn scaling_keys(&self, keys: &mut GgufKeyWriter) {
        let kind = |kind: &str| Value::String(kind.to_owned());
        let rope = self.said.compressed().map_or(&self.said.rope, |sizes| &sizes.rope);
        match rope.scaling {
            RopeScaling::Linear { factor } => {
                keys.float("rope.scaling.factor", factor);
                keys.set("rope.scaling.type", kind("linear"));
            }
            RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, .. } => {
                keys.set("rope.scaling.type", kind("yarn"));
                keys.float("rope.scaling.factor", factor);
                keys.count("rope.scaling.original_context_length", original_context);
                keys.float("rope.scaling.yarn_beta_fast", beta_fast);
                keys.float("rope.scaling.yarn_beta_slow", beta_slow);
                if self.said.compressed().is_some() {
                    return;
                }
                let all = self.mscale_all_dim();
                let default = match all {
                    Some(_) => 1.0,
                    None => yarn::sharpening(factor, yarn::LOG_MULTIPLIER),
                };
                if let Some(all) = all {
                    keys.float(LOG_MULTIPLIER, yarn::tenth(all as f32));
                }
                if self.said.rope.magnitude == 1.0 && default != 1.0 && self.said.latent().is_none()
                {
                    // llama.cpp knows no factor, but what divides it.
                    keys.float(LOG_MULTIPLIER, 1.0);
                } else if self.said.rope.magnitude != default {
                    keys.float("rope.scaling.yarn_attn_factor", self.said.rope.magnitude);
                }
            }
            RopeScaling::LongRope { original_context, .. } => {
                keys.count("rope.scaling.original_context_length", original_context);
                keys.float("rope.scaling.attn_factor", rope.magnitude);
            }
            RopeScaling::None
            | RopeScaling::Llama3 { .. }
            | RopeScaling::Proportional { .. }
            | RopeScaling::Factors { .. } => {}
        }
    }
}

/// Keys of Gated DeltaNet. Programs that know no list of layers read a period.
fn delta_keys(keys: &mut GgufKeyWriter, delta: &DeltaConfig, per_channel: bool) {
    if per_channel {
        keys.count("kda.head_dim", delta.key_dim);
        keys.count("ssm.time_step_rank", delta.value_heads);
        return keys.count("ssm.conv_kernel", delta.kernel);
    }
    let period = delta.layers.iter().take_while(|linear| **linear).count() + 1;
    keys.set("attention.recurrent_layers", Value::Array(Array::Bool(delta.layers.clone())));
    keys.count("full_attention_interval", period);
    keys.count("ssm.conv_kernel", delta.kernel);
    keys.count("ssm.state_size", delta.key_dim);
    keys.count("ssm.group_count", delta.key_heads);
    keys.count("ssm.time_step_rank", delta.value_heads);
    keys.count("ssm.inner_size", delta.values());
}

fn mamba_keys(keys: &mut GgufKeyWriter, mamba: &MambaConfig) {
    keys.count("ssm.conv_kernel", mamba.kernel);
    keys.count("ssm.state_size", mamba.state);
    keys.count("ssm.group_count", mamba.groups);
    keys.count("ssm.time_step_rank", mamba.heads);
    keys.count("ssm.inner_size", mamba.values());
    if mamba.norm == MambaNorm::BeforeGate {
        keys.set(NORM_FIRST, Value::Bool(true));
    }
    for (key, limit) in [LEAST_STEP, MOST_STEP].into_iter().zip(mamba.limits) {
        if limit > 0.0 && limit.is_finite() {
            keys.float(key, limit);
        }
    }
}

/// Keys of latent attention. llama.cpp counts the cached row of all heads as one KV head.
fn latent_keys(keys: &mut GgufKeyWriter, latent: LatentConfig) {
    keys.count("attention.head_count_kv", 1);
    keys.count("attention.key_length", latent.kv_rank + latent.rope_dim);
    keys.count("attention.value_length", latent.kv_rank);
    keys.count("attention.key_length_mla", latent.nope_dim + latent.rope_dim);
    keys.count("attention.value_length_mla", latent.value_dim);
    keys.count("attention.kv_lora_rank", latent.kv_rank);
    if let Some(rank) = latent.q_rank {
        keys.count("attention.q_lora_rank", rank);
    }
}
