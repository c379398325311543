//! A configuration as GGUF metadata, with the keys of llama.cpp.

use super::super::family::Family;
use super::super::fields::{GgufKeyWriter, SIGMOID, SOFTMAX, SOFTMAX_OF_CHOSEN, SQRT_SOFTPLUS};
use super::super::gguf::delta::{CHANNELS, VALUES};
use super::super::gguf::experts::{ROUTED_LIMITS, SHARED_LIMITS};
use super::super::gguf::index::{INDEX_TYPES, SELECT_TAIL};
use super::super::gguf::mamba::{INNER, MAX_STEP, MIN_STEP, NORM_FIRST, PROJECTION_SCALE};
use super::super::gguf::ngrams;
use super::super::gguf::rope::LOG_MULTIPLIER;
use super::super::gguf::{COMPRESS_RATIOS, MTP_LAYERS};
use super::super::rows::{
    self, CHOSEN_GROUPS, DENSE_LAYERS, EXPERT_COUNT, EXPERT_GROUPS, SHARED_EXPERTS, SHARED_WIDTH,
};
use super::super::yarn;
use crate::config::model::ModelConfig;
use crate::config::schema::{CompressedConfig, INDEXED_RATIO, WindowedConfig};
use crate::config::schema::{ExpertsConfig, OfLayers};
use crate::error::Result;
use crate::gguf::{Array, GgufWriter, Value};
use crate::layers::{DeltaSpec, StateSpaceSpec};
use crate::layers::{LatentConfig, MambaNorm, RopeScaling, RouterScores};
use std::iter::repeat_n;

impl ModelConfig {
    /// Number of the layers that draft tokens.
    fn drafting_layers(&self) -> usize {
        self.drafter.as_ref().map_or(0, |drafter| drafter.layers().count())
    }

    /// Numbers of layers.
    fn layer_counts(&self, keys: &mut GgufKeyWriter<'_>) {
        let more = self.drafting_layers();
        keys.count("block_count", self.layers.len() + more);
        if more > 0 {
            keys.count(MTP_LAYERS, more);
        }
    }

    /// Writes the `usual` count of all layers, or where they differ, one for each: that of
    /// `of_layer`, and after the last layer of the model the usual one.
    fn of_layers(
        &self,
        keys: &mut GgufKeyWriter<'_>,
        key: &str,
        usual: usize,
        of_layer: impl Fn(usize) -> usize,
    ) {
        let counts = (0..self.layers.len()).map(of_layer);
        let counts: Vec<_> = counts.chain(repeat_n(usual, self.drafting_layers())).collect();
        match counts.iter().all(|count| *count == usual) {
            true => keys.count(key, usual),
            false => keys.counts(key, counts.into_iter()),
        }
    }

    pub(crate) fn gguf_keys(&self, family: &Family, writer: &mut GgufWriter) -> Result<()> {
        let prefix = family.gguf_name_of(&self.said);
        let mut keys = GgufKeyWriter { writer, prefix };
        self.layer_counts(&mut keys);
        rows::CONTEXT.write_gguf(&self.said, &mut keys);
        rows::HIDDEN.write_gguf(&self.said, &mut keys);
        let width =
            |layer| if self.said.has_feed_forward(layer) { self.said.mlp_width(layer) } else { 0 };
        self.of_layers(&mut keys, "feed_forward_length", self.said.intermediate_size, width);
        let parts = if family.gguf.half_rotated { 2 } else { 1 };
        keys.count("rope.dimension_count", parts * self.said.rope.dim);
        if family.gguf.sections {
            // Text has equal positions in all sections; llama.cpp needs the key.
            let pairs = (self.said.rope.dim / 2) as i32;
            let sections = vec![(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0];
            keys.set("rope.dimension_sections", Value::Array(Array::I32(sections)));
        }
        keys.count("vocab_size", self.vocab);
        match &self.said.layer_heads {
            Some(heads) => keys.counts(rows::HEADS.gguf[0], heads.iter().copied()),
            None => rows::HEADS.write_gguf(&self.said, &mut keys),
        }
        match self.said.latent {
            Some(latent) => {
                latent_keys(&mut keys, latent);
                rows::write_gguf(&[rows::KV_RANK, rows::Q_RANK], &self.said, &mut keys);
                if family.gguf.zero_heads {
                    let attends =
                        (0..self.layers.len()).map(|layer| usize::from(self.said.attends(layer)));
                    keys.counts("attention.head_count_kv", attends);
                }
            }
            None => {
                let heads = |layer| match family.gguf.zero_heads && !self.said.attends(layer) {
                    true => 0,
                    false => self.said.kv_heads_of(layer),
                };
                self.of_layers(&mut keys, "attention.head_count_kv", self.said.kv_heads, heads);
                keys.count("attention.key_length", self.said.head_dim);
                let values = self.said.grouped.value_dim.unwrap_or(self.said.head_dim);
                keys.count("attention.value_length", values);
            }
        }
        self.window_keys(&mut keys, family)?;
        self.kind_keys(&mut keys, family)?;
        self.mixer_keys(&mut keys, family);
        self.encoder_keys(&mut keys)?;
        if let Some(experts) = &self.said.experts {
            self.expert_keys(&mut keys, family, experts)?;
        }
        self.limit_keys(&mut keys, family);
        family.gguf.eps.iter().for_each(|key| keys.float(key, self.said.rms_norm_eps));
        keys.float("rope.freq_base", self.said.rope.theta);
        rows::write_gguf(rows::HYPER, &self.said, &mut keys);
        rows::STREAM_MAGNITUDE.write_gguf(&self.said, &mut keys);
        match &self.said.compressed {
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
            self.delta_keys(keys, delta);
        } else if family.delta.is_some() {
            let none = Value::Array(Array::Bool(vec![false; self.layers.len()]));
            keys.set("attention.recurrent_layers", none);
        }
        if let Some(OfLayers { spec, .. }) = &self.said.mamba {
            rows::SPACE.iter().rev().for_each(|row| row.write_gguf(&self.said, keys));
            state_space_keys(keys, spec);
        }
        rows::CONV_KERNEL.write_gguf(&self.said, keys);
        rows::write_gguf(rows::INDEX, &self.said, keys);
        if let Some(index) = &self.said.index {
            if index.pool.is_some() {
                keys.set(SELECT_TAIL, Value::Bool(true));
            }
            if index.layers.contains(&false) {
                keys.set(INDEX_TYPES, Value::Array(Array::Bool(index.layers.clone())));
            }
        }
        rows::write_gguf(rows::GATED, &self.said, keys);
        self.block_keys(keys);
        ngrams::write(keys, &self.said);
    }

    /// Keys of the index over blocks: the positions of a block for each layer, 0 where there is
    /// none.
    fn block_keys(&self, keys: &mut GgufKeyWriter) {
        let Some(index) = &self.said.block_index else { return };
        if index.local.is_some() {
            return rows::write_gguf(rows::BLOCK_MAXIMA, &self.said, keys);
        }
        let ratio = |layer| if self.said.attends(layer) { index.every as u32 } else { 0 };
        let ratios = (0..self.layers.len()).map(ratio).collect();
        keys.set(COMPRESS_RATIOS, Value::Array(Array::U32(ratios)));
        rows::write_gguf(rows::BLOCK_INDEX, &self.said, keys);
    }

    /// Keys of Gated DeltaNet. Programs that know no list of layers read a period.
    fn delta_keys(&self, keys: &mut GgufKeyWriter, delta: &OfLayers<DeltaSpec>) {
        let OfLayers { layers, spec } = delta;
        if self.decays_per_channel() {
            keys.count(CHANNELS, spec.key_dim);
            if let Some(least) = spec.least {
                keys.float(rows::DELTA_LEAST.gguf[0], least);
            }
            rows::DELTA_VALUE_HEADS.write_gguf(&self.said, keys);
            return rows::DELTA_KERNEL.write_gguf(&self.said, keys);
        }
        let period = layers.iter().take_while(|linear| **linear).count() + 1;
        keys.set("attention.recurrent_layers", Value::Array(Array::Bool(layers.clone())));
        keys.count("full_attention_interval", period);
        let heads = [rows::DELTA_KEY_HEADS, rows::DELTA_VALUE_HEADS];
        rows::write_gguf(&[rows::DELTA_KERNEL, rows::DELTA_KEY_DIM], &self.said, keys);
        rows::write_gguf(&heads, &self.said, keys);
        keys.count(VALUES, spec.values());
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
        let own = usize::from(family.gguf.windows_before);
        let positions = if encoder { (2 * (window - 1)).max(1) } else { window - own };
        keys.count("attention.sliding_window", positions);
        if !uniform || family.gguf.window_period.is_some() || encoder {
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
            keys.count(
                "attention.value_length_swa",
                self.said.grouped.value_dim.unwrap_or(*head_dim),
            );
            keys.count("rope.dimension_count_swa", rope.dim);
            keys.float("rope.freq_base_swa", rope.theta);
        }
        if self.said.shared_kv_layers > 0 {
            keys.count("attention.shared_kv_layers", self.said.shared_kv_layers);
        }
        if let Some(sources) = &self.said.kv_sources {
            keys.counts(rows::KV_SOURCES.gguf[0], sources.iter().copied());
        }
        if self.said.layer_inputs > 0 {
            rows::LAYER_INPUTS.write_gguf(&self.said, keys);
        }
        if let Some(growth) = self.said.query_growth {
            keys.float("attention.temperature_scale", growth.beta);
            keys.count("attention.temperature_length", growth.every);
        }
        rows::LOGIT_CAP.write_gguf(&self.said, keys);
        if family.gguf.zero_heads
            && self.said.latent.is_none()
            && self.said.compressed.is_none()
            && self.said.unrotated.contains(&true)
        {
            // llama.cpp takes this key for a switch of the rotation in Granite.
            keys.set("rope.scaling.finetuned", Value::Bool(self.said.unrotated.contains(&false)));
        }
        if let Some(key) = family.gguf.rotated {
            let rotated = self.said.unrotated.iter().map(|unrotated| !unrotated).collect();
            keys.set(key, Value::Array(Array::Bool(rotated)));
        }
        rows::write_gguf(family.rows, &self.said, keys);
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
        keys.count(EXPERT_COUNT.gguf[0], experts.count);
        rows::write_gguf(rows::EXPERTS, &self.said, keys);
        let scores = match experts.scores {
            RouterScores::Softmax => SOFTMAX,
            RouterScores::Sigmoid | RouterScores::PlainSigmoid => SIGMOID,
            RouterScores::SoftmaxOfChosen => SOFTMAX_OF_CHOSEN,
            RouterScores::SqrtSoftplus => SQRT_SOFTPLUS,
        };
        keys.count("expert_gating_func", scores);
        if family.gguf.experts.shared {
            keys.count(SHARED_WIDTH.gguf[0], experts.shared_width);
        } else {
            keys.count(SHARED_EXPERTS.gguf[0], experts.shared_width / experts.width);
        }
        if let Some(groups) = experts.groups {
            keys.count(EXPERT_GROUPS.gguf[0], groups.count);
            keys.count(CHOSEN_GROUPS.gguf[0], groups.chosen);
        }
        if family.gguf.experts.leading_dense {
            keys.count(DENSE_LAYERS.gguf[0], self.leading_dense()?);
        }
        let by_token = experts.by_token.iter().take_while(|by_token| **by_token).count();
        if experts.by_token[by_token..].contains(&true) {
            let problem = "expected tables of experts in the first layers only";
            return Err(self.error("hash_layer_count", problem));
        }
        if by_token > 0 {
            keys.count("hash_layer_count", by_token);
        }
        Ok(())
    }

    /// Bounds of the inner values of experts, and of MLPs with those of shared experts, where any
    /// layer has one.
    fn limit_keys(&self, keys: &mut GgufKeyWriter, family: &Family) {
        let none = vec![None; self.layers.len()];
        let experts = self.said.experts.as_ref();
        let routed = experts.map_or(&none, |experts| &experts.limits);
        let of_shared = experts.map_or(&none, |experts| &experts.shared_limits);
        let both = of_shared.iter().zip(&self.said.mlp_limits);
        let shared: Vec<_> = both.map(|(shared, mlp)| shared.or(*mlp)).collect();
        if !family.compressed && routed.iter().chain(&shared).all(Option::is_none) {
            return;
        }
        let array = |limits: &[Option<f32>]| {
            Value::Array(Array::F32(limits.iter().map(|limit| limit.unwrap_or(0.0)).collect()))
        };
        keys.set(ROUTED_LIMITS, array(routed));
        keys.set(SHARED_LIMITS, array(&shared));
    }

    /// Keys of attention to compressed rows, whose layers have the scaled frequencies.
    fn compressed_keys(&self, keys: &mut GgufKeyWriter, sizes: &CompressedConfig) -> Result<()> {
        let layers = sizes.ratios.iter().zip(&sizes.indexed);
        if layers.clone().any(|(ratio, indexed)| *indexed != (*ratio == INDEXED_RATIO)) {
            let problem = "expected an index in the layers of ratio 4, and in no others";
            return Err(self.error(COMPRESS_RATIOS, problem));
        }
        if self.said.rope.scaling != RopeScaling::None {
            let problem = "expected no scaling in layers without compressed rows";
            return Err(self.error("rope.scaling.type", problem));
        }
        let ratios = sizes.ratios.iter().map(|&ratio| ratio.min(u32::MAX as usize) as u32);
        keys.set(COMPRESS_RATIOS, Value::Array(Array::U32(ratios.collect())));
        rows::write_gguf(rows::COMPRESSED, &self.said, keys);
        if sizes.indexed.contains(&true) {
            rows::write_gguf(rows::ROW_INDEX, &self.said, keys);
        }
        keys.float("attention.compress_rope_freq_base", sizes.rope.theta);
        self.scaling_keys(keys);
        Ok(())
    }

    fn scaling_keys(&self, keys: &mut GgufKeyWriter) {
        let kind = |kind: &str| Value::String(kind.to_owned());
        let rope = self.said.compressed.as_ref().map_or(&self.said.rope, |sizes| &sizes.rope);
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
                if self.said.compressed.is_some() {
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
                if self.said.rope.magnitude == 1.0 && default != 1.0 && self.said.latent.is_none() {
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

fn state_space_keys(keys: &mut GgufKeyWriter, mamba: &StateSpaceSpec) {
    keys.count(INNER, mamba.values());
    if mamba.norm == MambaNorm::BeforeGate {
        keys.set(NORM_FIRST, Value::Bool(true));
    }
    for (key, limit) in [MIN_STEP, MAX_STEP].into_iter().zip(mamba.limits) {
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
}
