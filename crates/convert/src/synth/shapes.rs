//! Shapes of published models, and tiny ones of the same families for tests, as the config.json of
//! such models.

use super::shape::{Shape, blocks_and_ngrams, compressed, latent, recurrence};
use formats::ModelConfig;
use formats::layers::TensorForm;
use serde_json::{Value as Json, json};

const QWEN3: Shape = Shape {
    name: "qwen3",
    class: "Qwen3ForCausalLM",
    hidden: 0,
    layers: 0,
    heads: [0; 3],
    mlp: 0,
    vocab: 151_936,
    context: 40_960,
    tied: true,
    experts: [0; 3],
    expert_keys: ["num_experts", "moe_intermediate_size"],
    more: |_| json!({"rope_theta": 1e6}),
};
const QWEN2: Shape = Shape { class: "Qwen2ForCausalLM", context: 32_768, ..QWEN3 };
const LLAMA: Shape = Shape {
    class: "LlamaForCausalLM",
    vocab: 128_256,
    context: 131_072,
    more: |shape| {
        let factor = if shape.name.starts_with("llama-3.1") { 8.0 } else { 32.0 };
        json!({
            "rms_norm_eps": 1e-5,
            "rope_theta": 5e5,
            "rope_scaling": {"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
        })
    },
    ..QWEN3
};
const MISTRAL: Shape = Shape {
    class: "MistralForCausalLM",
    vocab: 32_000,
    context: 32_768,
    tied: false,
    more: |shape| {
        let window = if shape.is_tiny() { 64 } else { 4096 };
        json!({"rms_norm_eps": 1e-5, "rope_theta": 1e4, "sliding_window": window})
    },
    ..QWEN3
};
const QWEN3_MOE: Shape = Shape {
    class: "Qwen3MoeForCausalLM",
    vocab: 32_000,
    context: 32_768,
    tied: false,
    more: |_| json!({"rope_theta": 1e6, "norm_topk_prob": true}),
    ..QWEN3
};
const QWEN2_MOE: Shape = Shape {
    class: "Qwen2MoeForCausalLM",
    more: |shape| json!({"rope_theta": 1e6, "shared_expert_intermediate_size": 2 * shape.experts[2]}),
    ..QWEN3_MOE
};
const MIXTRAL: Shape = Shape {
    class: "MixtralForCausalLM",
    expert_keys: ["num_local_experts", "intermediate_size"],
    more: |_| json!({}),
    ..QWEN3_MOE
};
const GPT_OSS: Shape = Shape {
    class: "GptOssForCausalLM",
    context: 131_072,
    more: |shape| {
        let original = shape.context / 32;
        let window = if shape.is_tiny() { original } else { 128 };
        json!({
            "sliding_window": window,
            "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0,
                "beta_slow": 1.0, "truncate": false, "original_max_position_embeddings": original},
        })
    },
    ..MIXTRAL
};
const GLM4_MOE: Shape = Shape {
    class: "Glm4MoeForCausalLM",
    expert_keys: ["n_routed_experts", "moe_intermediate_size"],
    more: |_| json!({"attention_bias": true, "use_qk_norm": true, "first_k_dense_replace": 1}),
    ..QWEN3_MOE
};
/// As its release: no norms of heads, and an expert that all tokens share.
const GLM4_AIR: Shape = Shape {
    vocab: 151_552,
    context: 131_072,
    more: |_| {
        json!({
            "rms_norm_eps": 1e-5,
            "rope_theta": 1e6,
            "attention_bias": true,
            "use_qk_norm": false,
            "first_k_dense_replace": 1,
            "n_shared_experts": 1,
            "norm_topk_prob": true,
        })
    },
    ..GLM4_MOE
};
const QWEN3_5: Shape = Shape {
    class: "Qwen3_5ForCausalLM",
    vocab: 248_320,
    context: 262_144,
    more: recurrence,
    ..QWEN3
};
const QWEN3_5_MOE: Shape = Shape { class: "Qwen3_5MoeForCausalLM", ..QWEN3_5 };
const QWEN3_NEXT: Shape = Shape { class: "Qwen3NextForCausalLM", ..QWEN3_5 };
const QWEN4_EXP: Shape =
    Shape { class: "Qwen4ExpForCausalLM", more: |shape| blocks_and_ngrams(shape), ..QWEN3_5 };
const DEEPSEEK_V3: Shape = Shape {
    class: "DeepseekV3ForCausalLM",
    more: |shape| {
        let mut json = latent(shape, Some(shape.hidden * 3 / 4));
        json["n_group"] = json!(4);
        json["topk_group"] = json!(2);
        json
    },
    ..GLM4_MOE
};
const DEEPSEEK_V2: Shape =
    Shape { class: "DeepseekV2ForCausalLM", more: |shape| latent(shape, None), ..GLM4_MOE };
const DEEPSEEK_V4: Shape =
    Shape { class: "DeepseekV4ForCausalLM", more: |shape| compressed(shape), ..GLM4_MOE };

const GEMMA3: Shape = Shape {
    class: "Gemma3ForCausalLM",
    vocab: 262_144,
    context: 32_768,
    more: |shape| json!({"sliding_window": if shape.is_tiny() { 64 } else { 512 }}),
    ..QWEN3
};
const GEMMA4: Shape = Shape {
    class: "Gemma4ForCausalLM",
    expert_keys: ["num_experts", "moe_intermediate_size"],
    more: |shape| {
        let [experts, chosen, _] = shape.experts;
        json!({
            "sliding_window": 64,
            "layer_types": ["sliding_attention", "full_attention", "full_attention"],
            "global_head_dim": 2 * shape.heads[2],
            "num_kv_shared_layers": 1,
            "use_double_wide_mlp": experts == 0,
            "hidden_size_per_layer_input": 32,
            "enable_moe_block": experts > 0,
            "top_k_experts": chosen,
            "final_logit_softcapping": 30.0,
        })
    },
    ..QWEN3
};
const GRANITE: Shape = Shape {
    class: "GraniteForCausalLM",
    more: |_| {
        json!({"embedding_multiplier": 12.0, "residual_multiplier": 0.22,
            "attention_multiplier": 0.125, "logits_scaling": 8.0})
    },
    ..MISTRAL
};
const COHERE2: Shape = Shape {
    class: "Cohere2ForCausalLM",
    tied: true,
    more: |_| json!({"layer_norm_eps": 1e-5, "sliding_window": 64, "logit_scale": 0.25}),
    ..MISTRAL
};
const STARCODER2: Shape = Shape {
    class: "Starcoder2ForCausalLM",
    more: |_| json!({"norm_epsilon": 1e-5, "hidden_act": "gelu_pytorch_tanh", "sliding_window": 64}),
    ..MISTRAL
};
const ERNIE4_5_MOE: Shape = Shape {
    class: "Ernie4_5_MoeForCausalLM",
    expert_keys: ["moe_num_experts", "moe_intermediate_size"],
    more: |shape| json!({"moe_k": shape.experts[1], "moe_num_shared_experts": 1}),
    ..QWEN3_MOE
};
const PHI3: Shape = Shape {
    class: "Phi3ForCausalLM",
    vocab: 200_064,
    context: 131_072,
    more: |shape| {
        let pairs = shape.heads[2] * 3 / 8;
        let factors = |slope: f32| (0..pairs).map(|at| 1.0 + slope * at as f32).collect::<Vec<_>>();
        json!({
            "rms_norm_eps": 1e-5,
            "partial_rotary_factor": 0.75,
            "original_max_position_embeddings": shape.context / 32,
            "rope_scaling": {"type": "longrope", "short_factor": factors(0.0), "long_factor": factors(1.0)},
        })
    },
    ..QWEN3
};

const DEEPSEEK_V32: Shape = Shape {
    class: "DeepseekV32ForCausalLM",
    more: |shape| {
        let mut json = (DEEPSEEK_V3.more)(shape);
        json["index_n_heads"] = json!(4);
        json["index_head_dim"] = json!(64);
        json["index_topk"] = json!(64);
        json
    },
    ..DEEPSEEK_V3
};
const MISTRAL4: Shape = Shape {
    class: "Mistral4ForCausalLM",
    more: |shape| {
        let mut json = (DEEPSEEK_V2.more)(shape);
        json["first_k_dense_replace"] = json!(0);
        json["rope_scaling"]["llama_4_scaling_beta"] = json!(0.1);
        json
    },
    ..DEEPSEEK_V2
};
/// The second layer attends to the rows and positions of the first, the third to its rows alone.
const MISTRAL_LARGE4: Shape = Shape {
    class: "MistralLarge4ForCausalLM",
    more: |shape| {
        let mut json = latent(shape, None);
        json["rope_scaling"] = Json::Null;
        json["index_n_heads"] = json!(4);
        json["index_head_dim"] = json!(64);
        json["index_topk"] = json!(64);
        json["indexer_types"] = json!(["full", "shared", "full", "full"]);
        json["kv_source_layers"] = json!([0, 0, 0, 3]);
        json
    },
    ..DEEPSEEK_V2
};
const LLAMA4: Shape = Shape {
    class: "Llama4ForCausalLM",
    expert_keys: ["num_local_experts", "intermediate_size"],
    more: |shape| {
        json!({"intermediate_size_mlp": shape.mlp, "interleave_moe_layer_step": 2,
            "attention_chunk_size": 64, "floor_scale": 32})
    },
    ..QWEN3_MOE
};
const GPT2: Shape = Shape {
    class: "GPT2LMHeadModel",
    context: 1024,
    more: |_| json!({"layer_norm_epsilon": 1e-5}),
    ..QWEN3
};
const KIMI_LINEAR: Shape = Shape {
    class: "KimiLinearForCausalLM",
    more: |shape| {
        let mut json = latent(shape, None);
        json["rope_scaling"] = Json::Null;
        json["linear_attn_config"] = json!({"full_attn_layers": [2], "kda_layers": [1],
            "head_dim": 32, "num_heads": 4, "short_conv_kernel_size": 4});
        json
    },
    ..DEEPSEEK_V2
};
const GLM5_NEXT: Shape = Shape {
    class: "Glm5NextForCausalLM",
    more: |shape| {
        json!({"q_lora_rank": shape.hidden * 3 / 4, "kv_lora_rank": 256, "qk_nope_head_dim": 64,
            "v_head_dim": 64, "index_n_heads": 4, "index_head_dim": 64, "index_topk": 64,
            "index_kpool": 4, "linear_head_dim": 32, "linear_num_heads": 4,
            "layer_types": ["linear_attention", "full_attention"],
            "first_k_dense_replace": 1, "n_shared_experts": 1})
    },
    ..DEEPSEEK_V3
};
const HY4: Shape = Shape {
    class: "HYV4ForCausalLM",
    more: |shape| {
        let mut json = (DEEPSEEK_V32.more)(shape);
        json["rope_scaling"] = Json::Null;
        json
    },
    ..DEEPSEEK_V32
};
const BAILING: Shape = Shape {
    class: "BailingMoeV3ForCausalLM",
    expert_keys: ["num_experts", "moe_intermediate_size"],
    more: |shape| {
        json!({"kv_lora_rank": 256, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32,
            "v_head_dim": 64, "head_dim": 32, "layer_group_size": 2, "num_shared_experts": 1,
            "n_group": 4, "topk_group": 2, "first_k_dense_replace": shape.layers / 2})
    },
    ..QWEN3
};
/// Granite 4: attention in four of forty layers; in tiny shapes, in the second.
const GRANITE4: Shape = Shape {
    class: "GraniteMoeHybridForCausalLM",
    vocab: 100_352,
    context: 131_072,
    expert_keys: ["num_local_experts", "intermediate_size"],
    more: |shape| {
        let attends = |layer: usize| if shape.is_tiny() { layer == 1 } else { layer % 10 == 5 };
        let kind = |layer| if attends(layer) { "attention" } else { "mamba" };
        let (heads, state) = if shape.is_tiny() { (8, 32) } else { (48, 128) };
        let mut json = json!({
            "rms_norm_eps": 1e-5,
            "embedding_multiplier": 12.0, "residual_multiplier": 0.22,
            "attention_multiplier": 1.0 / shape.heads[2] as f64, "logits_scaling": 8.0,
            "layer_types": (0..shape.layers).map(kind).collect::<Vec<_>>(),
            "shared_intermediate_size": shape.mlp,
            "mamba_n_heads": heads, "mamba_d_state": state, "mamba_n_groups": 1,
        });
        if shape.experts[0] == 0 {
            json["num_local_experts"] = json!(0);
        }
        json
    },
    ..QWEN3
};
const NEMOTRON_H: Shape = Shape {
    class: "NemotronHForCausalLM",
    more: |_| {
        json!({"layer_norm_epsilon": 1e-5, "hybrid_override_pattern": "M-*-", "n_groups": 2,
            "mamba_num_heads": 8, "mamba_head_dim": 64, "ssm_state_size": 32})
    },
    ..MISTRAL
};
const NEMOTRON_3: Shape = Shape {
    expert_keys: ["n_routed_experts", "moe_intermediate_size"],
    more: |shape| {
        let mut json = (NEMOTRON_H.more)(shape);
        json["hybrid_override_pattern"] = json!("ME*E");
        json["moe_shared_expert_intermediate_size"] = json!(2 * shape.experts[2]);
        json["moe_latent_size"] = json!(shape.hidden / 2);
        json["routed_scaling_factor"] = json!(2.5);
        json
    },
    ..NEMOTRON_H
};
const FALCON_H1: Shape = Shape {
    class: "FalconH1ForCausalLM",
    more: |_| {
        json!({"rope_theta": 1e11, "mamba_d_ssm": 512, "mamba_n_heads": 8, "mamba_d_state": 32,
            "mamba_n_groups": 1, "mamba_rms_norm": true, "mamba_norm_before_gate": false,
            "key_multiplier": 0.5, "ssm_out_multiplier": 0.25, "mlp_multipliers": [0.5, 0.25],
            "lm_head_multiplier": 0.125, "embedding_multiplier": 4.0})
    },
    ..MISTRAL
};
const LFM2: Shape = Shape {
    class: "Lfm2ForCausalLM",
    more: |_| {
        json!({"norm_eps": 1e-5, "block_auto_adjust_ff_dim": false,
            "layer_types": ["conv", "full_attention", "conv"]})
    },
    ..QWEN3
};

const LAGUNA: Shape = Shape {
    class: "LagunaForCausalLM",
    more: |shape| {
        json!({"sliding_window": 64, "num_attention_heads_per_layer": [4, 6, 6, 4],
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
            "shared_expert_intermediate_size": shape.experts[2]})
    },
    ..QWEN3_MOE
};
const STEP3: Shape = Shape {
    class: "Step3p5ForCausalLM",
    expert_keys: ["moe_num_experts", "moe_intermediate_size"],
    more: |shape| {
        json!({"moe_top_k": shape.experts[1], "share_expert_dim": shape.experts[2],
            "moe_layers_enum": "2,3", "sliding_window": 64, "num_sliding_attention_heads": 6,
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
            "rope_theta": [5e6, 1e4, 1e4, 5e6], "partial_rotary_factors": [0.5, 1.0, 1.0, 0.5],
            "swiglu_limits": [0.0, 0.0, 0.0, 7.0], "swiglu_limits_shared": [0.0, 0.0, 0.0, 16.0]})
    },
    ..QWEN3_MOE
};
const MIMO_V2: Shape = Shape {
    class: "MiMoV2FlashForCausalLM",
    expert_keys: ["n_routed_experts", "moe_intermediate_size"],
    more: |shape| {
        json!({"v_head_dim": shape.heads[2] / 2, "sliding_window_size": 64, "partial_rotary_factor": 0.5,
            "hybrid_layer_pattern": [0, 1, 1, 0], "moe_layer_freq": [0, 1, 1, 1]})
    },
    ..QWEN3_MOE
};
const MINIMAX_M3: Shape = Shape {
    class: "MiniMaxM3SparseForCausalLM",
    expert_keys: ["num_local_experts", "intermediate_size"],
    more: |shape| {
        json!({"dense_intermediate_size": shape.mlp, "shared_intermediate_size": shape.experts[2],
            "rotary_dim": shape.heads[2] / 2, "index_n_heads": shape.heads[1],
            "index_head_dim": shape.heads[2], "index_block_size": 16, "index_topk_blocks": 4,
            "layer_types": ["full_attention", "minimax_m3_sparse", "minimax_m3_sparse", "minimax_m3_sparse"],
            "moe_layer_freq": [0, 1, 1, 1]})
    },
    ..QWEN3_MOE
};

#[rustfmt::skip]
static SHAPES: &[Shape] = &[
    Shape { name: "qwen3-0.6b", hidden: 1024, layers: 28, heads: [16, 8, 128], mlp: 3072, ..QWEN3 },
    Shape { name: "qwen3-1.7b", hidden: 2048, layers: 28, heads: [16, 8, 128], mlp: 6144, ..QWEN3 },
    Shape { name: "qwen3-4b", hidden: 2560, layers: 36, heads: [32, 8, 128], mlp: 9728, ..QWEN3 },
    Shape { name: "qwen3-8b", hidden: 4096, layers: 36, heads: [32, 8, 128], mlp: 12_288, tied: false, ..QWEN3 },
    Shape { name: "qwen2.5-0.5b", hidden: 896, layers: 24, heads: [14, 2, 64], mlp: 4864, ..QWEN2 },
    Shape { name: "qwen2.5-1.5b", hidden: 1536, layers: 28, heads: [12, 2, 128], mlp: 8960, ..QWEN2 },
    Shape { name: "qwen2.5-7b", hidden: 3584, layers: 28, heads: [28, 4, 128], mlp: 18_944, vocab: 152_064, tied: false, ..QWEN2 },
    Shape { name: "llama-3.2-1b", hidden: 2048, layers: 16, heads: [32, 8, 64], mlp: 8192, ..LLAMA },
    Shape { name: "llama-3.2-3b", hidden: 3072, layers: 28, heads: [24, 8, 128], mlp: 8192, ..LLAMA },
    Shape { name: "llama-3.1-8b", hidden: 4096, layers: 32, heads: [32, 8, 128], mlp: 14_336, tied: false, ..LLAMA },
    Shape { name: "mistral-7b", hidden: 4096, layers: 32, heads: [32, 8, 128], mlp: 14_336, ..MISTRAL },
    Shape { name: "gemma-3-1b", hidden: 1152, layers: 26, heads: [4, 1, 256], mlp: 6912, ..GEMMA3 },
    Shape { name: "gemma-3-4b", hidden: 2560, layers: 34, heads: [8, 4, 256], mlp: 10_240, context: 131_072, ..GEMMA3 },
    Shape { name: "phi-4-mini", hidden: 3072, layers: 32, heads: [24, 8, 128], mlp: 8192, ..PHI3 },
    Shape { name: "granite-4-h-1b", hidden: 1536, layers: 40, heads: [12, 4, 128], mlp: 4096, ..GRANITE4 },
    Shape { name: "tiny-qwen3", ..tiny(QWEN3) },
    Shape { name: "tiny-qwen2", ..tiny(QWEN2) },
    Shape { name: "tiny-llama", ..tiny(LLAMA) },
    Shape { name: "tiny-mistral", ..tiny(MISTRAL) },
    Shape { name: "qwen3-moe-1b", hidden: 1024, layers: 16, heads: [16, 4, 128], mlp: 3072, experts: [64, 8, 256], ..QWEN3_MOE },
    Shape { name: "qwen3-30b-a3b", hidden: 2048, layers: 48, heads: [32, 4, 128], mlp: 6144, vocab: 151_936, context: 40_960, experts: [128, 8, 768], ..QWEN3_MOE },
    Shape { name: "glm-4.5-air", hidden: 4096, layers: 46, heads: [96, 8, 128], mlp: 10_944, experts: [128, 8, 1408], ..GLM4_AIR },
    Shape { name: "gpt-oss-20b", hidden: 2880, layers: 24, heads: [64, 8, 64], mlp: 2880, vocab: 201_088, experts: [32, 4, 2880], ..GPT_OSS },
    Shape { name: "deepseek-v3-small", hidden: 1024, layers: 12, heads: [16, 16, 192], mlp: 4096, experts: [32, 4, 512], ..DEEPSEEK_V3 },
    Shape { name: "deepseek-v4-small", hidden: 1024, layers: 12, heads: [16, 1, 512], mlp: 768, experts: [32, 6, 768], ..DEEPSEEK_V4 },
    Shape { name: "gpt-oss-small", hidden: 1024, layers: 12, heads: [16, 4, 64], mlp: 768, experts: [32, 4, 768], ..GPT_OSS },
    Shape { name: "tiny-qwen2-moe", experts: [8, 2, 256], ..tiny(QWEN2_MOE) },
    Shape { name: "tiny-qwen3-moe", experts: [8, 2, 256], ..tiny(QWEN3_MOE) },
    Shape { name: "tiny-mixtral", experts: [8, 2, 256], ..tiny(MIXTRAL) },
    Shape { name: "tiny-deepseek-v2", experts: [8, 2, 256], ..tiny(DEEPSEEK_V2) },
    Shape { name: "tiny-deepseek-v3", experts: [16, 4, 256], ..tiny(DEEPSEEK_V3) },
    Shape { name: "qwen3.5-0.8b", hidden: 1024, layers: 24, heads: [8, 2, 256], mlp: 3584, ..QWEN3_5 },
    Shape { name: "qwen3.8-flash-small", hidden: 1024, mlp: 3072, layers: 8, heads: [8, 2, 128], vocab: 32_768, experts: [32, 4, 512], ..QWEN4_EXP },
    Shape { name: "tiny-qwen3.5", ..tiny(QWEN3_5) },
    Shape { name: "tiny-qwen3.5-moe", experts: [8, 2, 256], ..tiny(QWEN3_5_MOE) },
    Shape { name: "tiny-qwen3-next", experts: [8, 2, 256], ..tiny(QWEN3_NEXT) },
    Shape { name: "tiny-qwen3.8-flash", experts: [8, 2, 256], ..tiny(QWEN4_EXP) },
    Shape { name: "tiny-deepseek-v4", layers: 4, heads: [4, 1, 64], experts: [8, 2, 256], ..tiny(DEEPSEEK_V4) },
    Shape { name: "tiny-glm4-moe", experts: [8, 2, 256], ..tiny(GLM4_MOE) },
    Shape { name: "tiny-gemma3", ..tiny(GEMMA3) },
    Shape { name: "tiny-gemma4", layers: 3, ..tiny(GEMMA4) },
    Shape { name: "tiny-gemma4-moe", layers: 3, experts: [8, 2, 256], ..tiny(GEMMA4) },
    Shape { name: "tiny-phi3", ..tiny(PHI3) },
    Shape { name: "tiny-smollm3", layers: 4, ..tiny(Shape { class: "SmolLM3ForCausalLM", ..LLAMA }) },
    Shape { name: "tiny-olmo3", layers: 4, ..tiny(Shape { class: "Olmo3ForCausalLM", ..MISTRAL }) },
    Shape { name: "tiny-exaone4", layers: 4, ..tiny(Shape { class: "Exaone4ForCausalLM", ..MISTRAL }) },
    Shape { name: "tiny-seed-oss", ..tiny(Shape { class: "SeedOssForCausalLM", ..MISTRAL }) },
    Shape { name: "tiny-ernie4.5", ..tiny(Shape { class: "Ernie4_5ForCausalLM", ..MISTRAL }) },
    Shape { name: "tiny-granite", ..tiny(GRANITE) },
    Shape { name: "tiny-glm4", ..tiny(Shape { class: "Glm4ForCausalLM", ..MISTRAL }) },
    Shape { name: "tiny-ministral3", ..tiny(Shape { class: "Ministral3ForCausalLM", ..MISTRAL }) },
    Shape { name: "tiny-cohere2", layers: 4, ..tiny(COHERE2) },
    Shape { name: "tiny-starcoder2", ..tiny(STARCODER2) },
    Shape { name: "tiny-hunyuan", ..tiny(Shape { class: "HunYuanDenseV1ForCausalLM", more: |_| json!({"use_qk_norm": true}), ..QWEN3 }) },
    Shape { name: "tiny-ernie4.5-moe", experts: [8, 2, 256], ..tiny(ERNIE4_5_MOE) },
    Shape { name: "tiny-glm4-moe-lite", experts: [8, 2, 256], ..tiny(Shape { class: "Glm4MoeLiteForCausalLM", ..DEEPSEEK_V3 }) },
    Shape { name: "tiny-minimax-m2", experts: [8, 2, 256], ..tiny(Shape { class: "MiniMaxM2ForCausalLM", ..MIXTRAL }) },
    Shape { name: "tiny-gpt-oss", experts: [8, 2, 256], ..tiny(GPT_OSS) },
    Shape { name: "tiny-mistral4", experts: [8, 2, 256], ..tiny(MISTRAL4) },
    Shape { name: "tiny-mistral-large4", layers: 4, experts: [8, 2, 256], ..tiny(MISTRAL_LARGE4) },
    Shape { name: "tiny-deepseek-v3.2", experts: [16, 4, 256], ..tiny(DEEPSEEK_V32) },
    Shape { name: "tiny-glm-5", experts: [16, 4, 256], ..tiny(Shape { class: "GlmMoeDsaForCausalLM", ..DEEPSEEK_V32 }) },
    Shape { name: "tiny-llama4", layers: 4, experts: [8, 1, 256], ..tiny(LLAMA4) },
    Shape { name: "tiny-gpt2", heads: [4, 4, 64], ..tiny(GPT2) },
    Shape { name: "tiny-kimi-linear", experts: [8, 2, 256], ..tiny(KIMI_LINEAR) },
    Shape { name: "tiny-hy4", experts: [16, 4, 256], ..tiny(HY4) },
    Shape { name: "tiny-ling-3", experts: [8, 2, 256], ..tiny(BAILING) },
    Shape { name: "tiny-glm-5.3", experts: [16, 4, 256], ..tiny(GLM5_NEXT) },
    Shape { name: "tiny-granite4", experts: [8, 2, 256], ..tiny(GRANITE4) },
    Shape { name: "tiny-nemotron-h", layers: 4, ..tiny(NEMOTRON_H) },
    Shape { name: "tiny-nemotron-3", layers: 4, experts: [8, 2, 256], ..tiny(NEMOTRON_3) },
    Shape { name: "tiny-falcon-h1", ..tiny(FALCON_H1) },
    Shape { name: "tiny-k-exaone", layers: 4, experts: [8, 2, 256], ..tiny(Shape { class: "ExaoneMoEForCausalLM", more: |_| json!({"sliding_window": 64}), ..QWEN3_MOE }) },
    Shape { name: "tiny-mellum", layers: 4, experts: [8, 2, 256], ..tiny(Shape { class: "MellumForCausalLM", more: |_| json!({"layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"], "sliding_window": 64}), ..QWEN3_MOE }) },
    Shape { name: "tiny-granite-swa", layers: 4, ..tiny(Shape { class: "GraniteSWAForCausalLM", ..GRANITE }) },
    Shape { name: "tiny-trinity", layers: 4, experts: [8, 2, 256], ..tiny(Shape { class: "AfmoeForCausalLM", more: |_| json!({"sliding_window": 64, "num_dense_layers": 1, "num_shared_experts": 1}), ..QWEN3_MOE }) },
    Shape { name: "tiny-hy3", experts: [8, 2, 256], ..tiny(Shape { class: "HYV3ForCausalLM", more: |_| json!({"first_k_dense_replace": 1}), ..QWEN3_MOE }) },
    Shape { name: "tiny-muse-glimmer", layers: 4, ..tiny(Shape { class: "MuseGlimmerForCausalLM", more: |_| json!({"sliding_window": 64}), ..QWEN3 }) },
    Shape { name: "tiny-lfm3", layers: 4, ..tiny(Shape { class: "Lfm3ForCausalLM", more: |_| json!({"norm_eps": 1e-5, "block_auto_adjust_ff_dim": false, "sliding_window": 64, "layer_types": ["conv", "full_attention", "conv", "sliding_attention"]}), ..LFM2 }) },
    Shape { name: "tiny-lfm2", layers: 3, ..tiny(LFM2) },
    Shape { name: "tiny-laguna", layers: 4, experts: [8, 2, 256], ..tiny(LAGUNA) },
    Shape { name: "tiny-step-3.7", layers: 4, experts: [8, 2, 256], ..tiny(STEP3) },
    Shape { name: "tiny-mimo-v2", layers: 4, experts: [8, 2, 256], ..tiny(MIMO_V2) },
    Shape { name: "tiny-minimax-m3", layers: 4, experts: [8, 2, 256], ..tiny(MINIMAX_M3) },
];

const fn tiny(of: Shape) -> Shape {
    Shape { hidden: 256, layers: 2, heads: [4, 2, 64], mlp: 512, vocab: 512, context: 2048, ..of }
}

/// The configuration of the shape with this name, in any case.
pub(super) fn find(name: &str) -> Option<ModelConfig> {
    SHAPES.iter().find(|shape| shape.name.eq_ignore_ascii_case(name)).map(Shape::config)
}

/// All names.
pub fn names() -> impl Iterator<Item = &'static str> {
    SHAPES.iter().map(|shape| shape.name)
}

/// A line about each named shape: name, family and parameters.
pub fn describe_shapes() -> impl Iterator<Item = String> {
    SHAPES.iter().map(Shape::config).map(|config| {
        let values = config.tensors(TensorForm::Gguf).into_iter();
        let values: usize = values.map(|(_, shape)| shape.iter().product::<usize>()).sum();
        let (name, family) = (&config.name, &config.architecture);
        format!("{name:17} {family:11} {:>7.1} M parameters", values as f64 / 1e6)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, parameters: usize) {
        let tensors = find(name).unwrap().tensors(TensorForm::Gguf);
        let found: usize = tensors.iter().map(|(_, s)| s.iter().product::<usize>()).sum();
        assert_eq!(found, parameters, "{name}");
    }

    #[test]
    fn tiny_shapes_may_have_any_number_of_layers() {
        for shape in SHAPES.iter().filter(|shape| shape.is_tiny()) {
            for layers in [1, 3, 9] {
                let config = shape.config().with(|said| said.resize(layers));
                assert_eq!(config.layers.len(), layers, "{}", shape.name);
            }
        }
    }

    #[test]
    fn published_shapes_have_the_published_number_of_parameters() {
        check("qwen3-0.6b", 596_049_920);
        check("qwen2.5-0.5b", 494_032_768);
        check("llama-3.2-1b", 1_235_814_400);
        check("llama-3.1-8b", 8_030_261_248);
        check("mistral-7b", 7_241_732_096);
        check("gemma-3-1b", 999_885_952);
        check("phi-4-mini", 3_836_021_760);
        // Without its image encoder and its draft layer.
        check("qwen3.5-0.8b", 752_393_024);
        check("qwen3-30b-a3b", 30_532_122_624);
        check("gpt-oss-20b", 20_914_757_184);
        // Without its draft layer.
        check("glm-4.5-air", 106_852_251_264);
    }

    #[test]
    fn every_name_has_a_shape_and_those_with_experts_are_about_a_billion_parameters() {
        assert_eq!(describe_shapes().count(), names().count());
        for family in formats::families::names() {
            let has = |shape: &Shape| shape.is_tiny() && shape.config().architecture == family;
            assert!(SHAPES.iter().any(has), "{family} has no small shape");
        }
        check("qwen3-moe-1b", 955_814_912);
        check("deepseek-v3-small", 744_628_576);
    }
}
