//! Shapes with routed experts, as the config.json of such models.

use formats::ModelConfig;
use serde_json::{Map, Value as Json, json};
use std::path::Path;

/// The name of a shape with its config.json.
type Named = (&'static str, fn() -> Json);

/// All shapes with routed experts.
pub(super) static MIXTURES: &[Named] = &[
    ("qwen3-moe-1b", || QWEN3.json(&MoeSize::new(16, 1024, [16, 4, 128], 3072, 256), 64, 8)),
    ("deepseek-v3-small", || DEEPSEEK_V3.json(&DEEPSEEK_SMALL, 32, 4)),
    ("tiny-qwen2-moe", || QWEN2.json(&TINY, 8, 2)),
    ("tiny-qwen3-moe", || QWEN3.json(&TINY, 8, 2)),
    ("tiny-mixtral", || MIXTRAL.json(&TINY, 8, 2)),
    ("tiny-deepseek-v2", || DEEPSEEK_V2.json(&TINY, 8, 2)),
    ("tiny-deepseek-v3", || DEEPSEEK_V3.json(&TINY, 16, 4)),
    ("tiny-glm4-moe", || GLM4.json(&TINY, 8, 2)),
    ("tiny-gpt-oss", || GPT_OSS.json(&TINY, 8, 2)),
];

/// The configuration of the shape with this name, in any case.
pub(super) fn find(name: &str) -> Option<ModelConfig> {
    let (name, json) = MIXTURES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name))?;
    // Configurations are named after their folder.
    let path = Path::new(name).join("config.json");
    let config = ModelConfig::from_hf_json(&json().to_string(), &path);
    Some(config.expect("the shapes of the table are valid"))
}

struct MoeSize {
    layers: usize,
    hidden: usize,
    /// Query heads, key and value heads, values per head.
    heads: [usize; 3],
    mlp: usize,
    expert: usize,
    vocab: usize,
    context: usize,
}

impl MoeSize {
    const fn new(
        layers: usize,
        hidden: usize,
        heads: [usize; 3],
        mlp: usize,
        expert: usize,
    ) -> Self {
        Self { layers, hidden, heads, mlp, expert, vocab: 32_000, context: 32_768 }
    }
}

const TINY: MoeSize =
    MoeSize { vocab: 512, context: 2048, ..MoeSize::new(2, 256, [4, 2, 64], 512, 256) };
const DEEPSEEK_SMALL: MoeSize = MoeSize::new(12, 1024, [16, 16, 192], 4096, 512);

/// The common fields of the shapes of a family.
struct MoeFamily {
    class: &'static str,
    /// Key of the number of experts in config.json.
    experts: &'static str,
    /// Key of their width.
    width: &'static str,
    more: fn(size: &MoeSize) -> Json,
}

const QWEN3: MoeFamily = MoeFamily {
    class: "Qwen3MoeForCausalLM",
    experts: "num_experts",
    width: "moe_intermediate_size",
    more: |_| json!({"rope_theta": 1e6, "norm_topk_prob": true}),
};
const QWEN2: MoeFamily = MoeFamily {
    class: "Qwen2MoeForCausalLM",
    more: |size| json!({"rope_theta": 1e6, "shared_expert_intermediate_size": 2 * size.expert}),
    ..QWEN3
};
const MIXTRAL: MoeFamily = MoeFamily {
    class: "MixtralForCausalLM",
    experts: "num_local_experts",
    width: "intermediate_size",
    more: |_| json!({}),
};
const GPT_OSS: MoeFamily = MoeFamily {
    class: "GptOssForCausalLM",
    more: |size| {
        let (window, original) = (size.context / 32, size.context / 32);
        json!({
            "sliding_window": window,
            "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0,
                "beta_slow": 1.0, "truncate": false, "original_max_position_embeddings": original},
        })
    },
    ..MIXTRAL
};
const GLM4: MoeFamily = MoeFamily {
    class: "Glm4MoeForCausalLM",
    experts: "n_routed_experts",
    width: "moe_intermediate_size",
    more: |_| json!({"attention_bias": true, "use_qk_norm": true, "first_k_dense_replace": 1}),
};
const DEEPSEEK_V3: MoeFamily = MoeFamily {
    class: "DeepseekV3ForCausalLM",
    more: |size| {
        let mut json = latent(size, Some(size.hidden * 3 / 4));
        json["n_group"] = json!(4);
        json["topk_group"] = json!(2);
        json
    },
    ..GLM4
};
const DEEPSEEK_V2: MoeFamily =
    MoeFamily { class: "DeepseekV2ForCausalLM", more: |size| latent(size, None), ..GLM4 };

/// DeepSeek's latent attention, its first layer without experts, and its long context.
fn latent(size: &MoeSize, q_rank: Option<usize>) -> Json {
    let tiny = size.hidden < 512;
    let (kv_rank, nope, rope) = if tiny { (256, 64, 32) } else { (512, 128, 64) };
    json!({
        "q_lora_rank": q_rank,
        "kv_lora_rank": kv_rank,
        "qk_nope_head_dim": nope,
        "qk_rope_head_dim": rope,
        "v_head_dim": nope,
        "first_k_dense_replace": 1,
        "n_shared_experts": 1,
        "rope_scaling": {"type": "yarn", "factor": 8, "mscale": 1.0, "mscale_all_dim": 1.0,
            "original_max_position_embeddings": size.context / 8},
    })
}

impl MoeFamily {
    fn json(&self, size: &MoeSize, experts: usize, chosen: usize) -> Json {
        let [heads, kv_heads, head_dim] = size.heads;
        let mut json = json!({
            "architectures": [self.class],
            "num_hidden_layers": size.layers,
            "hidden_size": size.hidden,
            "intermediate_size": size.mlp,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": head_dim,
            "vocab_size": size.vocab,
            "max_position_embeddings": size.context,
            "rms_norm_eps": 1e-6,
            "tie_word_embeddings": false,
            "num_experts_per_tok": chosen,
        });
        json[self.experts] = json!(experts);
        json[self.width] = json!(size.expert);
        let more: Map<String, Json> = serde_json::from_value((self.more)(size)).unwrap_or_default();
        for (key, value) in more {
            json[key] = value;
        }
        json
    }
}
