//! The shape of a model as its config.json, and what several families add to it.

use formats::ModelConfig;
use serde_json::{Map, Value as Json, json};
use std::path::Path;

/// The shape of a model.
pub(super) struct Shape {
    pub name: &'static str,
    pub class: &'static str,
    pub hidden: usize,
    pub layers: usize,
    /// Query heads, key and value heads, values per head.
    pub heads: [usize; 3],
    pub mlp: usize,
    pub vocab: usize,
    pub context: usize,
    pub tied: bool,
    /// Routed experts, those chosen for a token, and the width of each.
    pub experts: [usize; 3],
    /// Keys of the number of routed experts and of their width in config.json.
    pub expert_keys: [&'static str; 2],
    /// What the family has besides the fields of all.
    pub more: fn(shape: &Shape) -> Json,
}

impl Shape {
    /// Whether it is one of tests.
    pub fn is_tiny(&self) -> bool {
        self.name.starts_with("tiny")
    }

    /// The configuration of such a model.
    pub fn config(&self) -> ModelConfig {
        let ([heads, kv_heads, head_dim], [experts, chosen, width]) = (self.heads, self.experts);
        let mut json = json!({
            "architectures": [self.class],
            "num_hidden_layers": self.layers,
            "hidden_size": self.hidden,
            "intermediate_size": self.mlp,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": head_dim,
            "vocab_size": self.vocab,
            "max_position_embeddings": self.context,
            "rms_norm_eps": 1e-6,
            "tie_word_embeddings": self.tied,
        });
        if experts > 0 {
            json["num_experts_per_tok"] = json!(chosen);
            json[self.expert_keys[0]] = json!(experts);
            json[self.expert_keys[1]] = json!(width);
        }
        let more: Map<String, Json> = serde_json::from_value((self.more)(self)).unwrap_or_default();
        for (key, value) in more {
            json[key] = value;
        }
        // Configurations are named after their folder.
        let path = Path::new(self.name).join("config.json");
        let config = ModelConfig::from_hf_json(&json.to_string(), &path);
        config.expect("the shapes of the table are valid")
    }
}

/// The same with gated streams, blocks, and n-grams: a table of 2 GiB in shapes that are not tiny.
pub(super) fn blocks_and_ngrams(shape: &Shape) -> Json {
    let is_tiny = shape.is_tiny();
    let (rank, heads, base, width) =
        if is_tiny { (32, 2, 61, 128) } else { (128, 8, 524_288, 2048) };
    let mut json = recurrence(shape);
    let own = json!({
        "hc_count": 4,
        "hc_lowrank": rank,
        "indexer_n_heads": 4,
        "indexer_head_dim": if is_tiny { 32 } else { 128 },
        "indexer_compress_ratio": 4,
        "indexer_budget": if is_tiny { 64 } else { 2048 },
        "ple_layer_ids": [1],
        "ngram_size": 3,
        "heads_per_ngram": heads,
        "ngram_vocab_size_base": base,
        "make_ngram_vocab_size_divisible_by": 128,
        "ple_embed_dim": width,
        "ple_conv_kernel_size": 4,
        "ple_layer_multipliers": [0x1234_5679_u32, 0x2b99_2dd1_u32, 0x7f4a_7c15_u32],
        "ple_eos_token_id": 0,
    });
    if let (Some(fields), Json::Object(own)) = (json.as_object_mut(), own) {
        fields.extend(own);
    }
    json
}

/// Gated DeltaNet in all layers but every fourth; in tiny shapes, but every second.
pub(super) fn recurrence(shape: &Shape) -> Json {
    let (interval, heads, dim) = if shape.is_tiny() { (2, (2, 4), 32) } else { (4, (16, 16), 128) };
    json!({
        "rope_theta": 1e7,
        "full_attention_interval": interval,
        "linear_num_key_heads": heads.0,
        "linear_num_value_heads": heads.1,
        "linear_key_head_dim": dim,
        "linear_value_head_dim": dim,
        "shared_expert_intermediate_size": shape.experts[2],
    })
}

/// DeepSeek's latent attention, its first layer without experts, and its long context.
pub(super) fn latent(shape: &Shape, q_rank: Option<usize>) -> Json {
    let (kv_rank, nope, rope) = if shape.is_tiny() { (256, 64, 32) } else { (512, 128, 64) };
    json!({
        "q_lora_rank": q_rank,
        "kv_lora_rank": kv_rank,
        "qk_nope_head_dim": nope,
        "qk_rope_head_dim": rope,
        "v_head_dim": nope,
        "first_k_dense_replace": 1,
        "n_shared_experts": 1,
        "rope_scaling": {"type": "yarn", "factor": 8, "mscale": 1.0, "mscale_all_dim": 1.0,
            "original_max_position_embeddings": shape.context / 8},
    })
}

/// DeepSeek's attention to compressed rows: the first layers have a window alone, and of the others
/// every second has an index. A table of token ids chooses the experts of the first layers.
pub(super) fn compressed(shape: &Shape) -> Json {
    let (first, rank) = if shape.is_tiny() { (1, 128) } else { (2, 512) };
    let ratio = |layer: usize| match layer.checked_sub(first) {
        None => 0,
        Some(after) => [4, 128][after % 2],
    };
    let [heads, _, head_dim] = shape.heads;
    json!({
        "compress_ratios": (0..shape.layers).map(ratio).collect::<Vec<_>>(),
        "sliding_window": 128,
        "qk_rope_head_dim": head_dim.min(128) / 2,
        "q_lora_rank": 2 * rank.min(256),
        "o_groups": heads / 2,
        "o_lora_rank": rank,
        "index_n_heads": heads,
        "index_head_dim": head_dim.min(128),
        "index_topk": shape.context / 64,
        "num_hash_layers": first,
        "n_shared_experts": 1,
        "rope_theta": 1e4,
        "compress_rope_theta": 16e4,
        "rope_scaling": {"type": "yarn", "factor": 16,
            "original_max_position_embeddings": shape.context / 16},
    })
}
