//! Writes attention to compressed rows and hyper-connections: fields of config.json, and the
//! tensors of a layer.

use serde_json::{Map, Value as Json, json};

use super::super::hf::compressed::{INDEXED, POOLED, ROPE_DIM, WINDOW_ONLY};
use super::super::{
    CompressedConfig, HyperConfig, INDEXED_RATIO, ModelConfig, RopeConfig, RopeScaling,
};
use super::tensors::{Tensors, named};
use crate::error::Result;

impl ModelConfig {
    /// The fields of config.json beyond the common ones.
    pub(super) fn compressed_json(&self, sizes: &CompressedConfig) -> Result<Json> {
        let mut json = json!({
            ROPE_DIM: sizes.rope_dim,
            "q_lora_rank": sizes.q_rank,
            "o_groups": sizes.groups,
            "o_lora_rank": sizes.out_rank,
            "compress_rope_theta": sizes.rope.theta,
            "rope_parameters": {
                "main": self.rope_json(&self.rope)?,
                "compress": self.rope_json(&sizes.rope)?,
            },
        });
        let fields = json.as_object_mut().expect("made as an object");
        if sizes.indexed.contains(&true) {
            fields.insert("index_n_heads".into(), json!(sizes.index_heads));
            fields.insert("index_head_dim".into(), json!(sizes.index_dim));
            fields.insert("index_topk".into(), json!(sizes.index_top));
        }
        if let Some(HyperConfig { streams, iterations, eps }) = self.hyper {
            fields.insert("hc_mult".into(), json!(streams));
            fields.insert("hc_sinkhorn_iters".into(), json!(iterations));
            fields.insert("hc_eps".into(), json!(eps));
        }
        self.schedule_json(sizes, fields)?;
        if let Some(experts) = &self.experts {
            let mut limits = experts.limits.iter().chain(&experts.shared_limits);
            if limits.any(|limit| Some(limit) != experts.limits.first()) {
                let problem = "expected one limit for all layers and the shared expert";
                return Err(self.error("swiglu_limit", problem));
            }
        }
        Ok(json)
    }

    /// The compression of each layer, by ratio where the ratios tell which layers have an index,
    /// and by type where layers of a type have one ratio.
    fn schedule_json(
        &self,
        sizes: &CompressedConfig,
        fields: &mut Map<String, Json>,
    ) -> Result<()> {
        let layers = || sizes.ratios.iter().copied().zip(sizes.indexed.iter().copied());
        let by_ratio = layers().all(|(ratio, indexed)| indexed == (ratio == INDEXED_RATIO));
        if by_ratio {
            fields.insert("compress_ratios".into(), json!(sizes.ratios));
        }
        let of_type = |kind: bool| layers().filter(move |&(ratio, it)| ratio > 0 && it == kind);
        let one = |kind| of_type(kind).all(|layer| Some(layer) == of_type(kind).next());
        if one(false) && one(true) {
            let kind = |layer| match layer {
                (0, _) => WINDOW_ONLY,
                (_, true) => INDEXED,
                (_, false) => POOLED,
            };
            fields.insert("layer_types".into(), layers().map(kind).collect());
            let rate = |(kind, name)| Some((name, of_type(kind).next()?.0));
            let rates = [(true, INDEXED), (false, POOLED)].into_iter().filter_map(rate);
            let rates: Map<_, _> =
                rates.map(|(name, ratio): (&str, _)| (name.to_owned(), json!(ratio))).collect();
            fields.insert("compress_rates".into(), Json::Object(rates));
        } else if !by_ratio {
            let problem = "expected an index in the layers of ratio 4 and in no others, or one \
                           ratio for all layers with an index and one for the others";
            return Err(self.error("compress_ratios", problem));
        }
        Ok(())
    }

    fn rope_json(&self, rope: &RopeConfig) -> Result<Json> {
        if matches!(rope.scaling, RopeScaling::Factors { .. }) {
            let problem = "factors of single frequencies cannot be written to config.json";
            return Err(self.error("rope_parameters", problem));
        }
        let mut json = json!(rope.scaling);
        json["rope_theta"] = json!(rope.theta);
        if matches!(rope.scaling, RopeScaling::Yarn { .. }) {
            json["attention_factor"] = json!(rope.magnitude);
        }
        Ok(json)
    }

    /// Tensors of the attention of a layer.
    pub(super) fn compressed_attention(&self, sizes: &CompressedConfig, layer: usize) -> Tensors {
        let CompressedConfig { q_rank, groups, out_rank, index_heads, index_dim, .. } = *sizes;
        let (hidden, heads, dim) = (self.hidden_size, self.heads, self.head_dim);
        let (ratio, indexed) = (sizes.ratios[layer], sizes.indexed[layer]);
        let low = groups * out_rank;
        let mut tensors = vec![
            named("attn_norm.weight", &[hidden]),
            named("attn_q_a.weight", &[q_rank, hidden]),
            named("attn_q_a_norm.weight", &[q_rank]),
            named("attn_q_b.weight", &[heads * dim, q_rank]),
            named("attn_kv.weight", &[dim, hidden]),
            named("attn_kv_a_norm.weight", &[dim]),
            named("attn_sinks.weight", &[heads]),
            named("attn_output_a.weight", &[low, heads * dim / groups]),
            named("attn_output_b.weight", &[hidden, low]),
        ];
        if ratio > 0 {
            tensors.extend(compressor("attn_compressor", ratio, indexed, [dim, hidden]));
        }
        if indexed {
            tensors.push(named("indexer.attn_q_b.weight", &[index_heads * index_dim, q_rank]));
            tensors.push(named("indexer.proj.weight", &[index_heads, hidden]));
            tensors.extend(compressor("indexer_compressor", ratio, true, [index_dim, hidden]));
        }
        tensors
    }

    /// Tensors of the hyper-connections of a layer.
    pub(super) fn hyper_connections(&self) -> Tensors {
        let Some(HyperConfig { streams, .. }) = self.hyper else { return Vec::new() };
        let (mixed, all) = ((2 + streams) * streams, streams * self.hidden_size);
        let part = |part: &str, shape: &[usize]| {
            ["hc_attn", "hc_ffn"].map(|of| named(&format!("{of}_{part}.weight"), shape))
        };
        [part("fn", &[mixed, all]), part("base", &[mixed]), part("scale", &[3])].concat()
    }

    /// Tensors of the head that joins the streams.
    pub(super) fn hyper_head(&self) -> Tensors {
        let Some(HyperConfig { streams, .. }) = self.hyper else { return Vec::new() };
        vec![
            named("output_hc_fn.weight", &[streams, streams * self.hidden_size]),
            named("output_hc_base.weight", &[streams]),
            named("output_hc_scale.weight", &[1]),
        ]
    }
}

/// Tensors that pool `ratio` positions to a row of `dim` values. Windows that overlap have two
/// series of values.
fn compressor(name: &str, ratio: usize, overlaps: bool, [dim, hidden]: [usize; 2]) -> Tensors {
    let values = if overlaps { 2 * dim } else { dim };
    vec![
        named(&format!("{name}_kv.weight"), &[values, hidden]),
        named(&format!("{name}_gate.weight"), &[values, hidden]),
        named(&format!("{name}_ape.weight"), &[ratio, values]),
        named(&format!("{name}_norm.weight"), &[dim]),
    ]
}
