//! NamePairs of families with routed experts: one tensor per expert, as published, or one for all
//! experts of a layer, as transformers 5 and gpt-oss store them.

use super::dense::{ATTENTION, GLOBALS, LAYER_PREFIX, MLP, NORMS};
use super::{NamePairs, NameTable};

/// Qwen's mixtures of experts, with Qwen2's one shared expert and its gate.
pub static QWEN_MOE: NameTable = NameTable {
    globals: GLOBALS,
    layer_prefix: LAYER_PREFIX,
    layer: &[NORMS, ATTENTION, MLP, ROUTER, EXPERTS, FUSED_EXPERTS, QWEN_SHARED],
    ignored: &["rotary_emb.inv_freq"],
};

/// GLM-4.5 and its like.
pub static GLM4_MOE: NameTable = NameTable {
    globals: GLOBALS,
    layer_prefix: LAYER_PREFIX,
    layer: &[NORMS, ATTENTION, MLP, ROUTER, EXPERTS, FUSED_EXPERTS, SHARED_EXPERTS],
    ignored: &["rotary_emb.inv_freq"],
};

/// DeepSeek V2 and V3, with latent attention.
pub static DEEPSEEK: NameTable = NameTable {
    globals: GLOBALS,
    layer_prefix: LAYER_PREFIX,
    layer: &[NORMS, LATENT_ATTENTION, MLP, ROUTER, EXPERTS, FUSED_EXPERTS, SHARED_EXPERTS],
    ignored: &["rotary_emb.inv_freq"],
};

/// Mixtral: `w1` is the gate, `w3` goes up, `w2` down.
pub static MIXTRAL: NameTable = NameTable {
    globals: GLOBALS,
    layer_prefix: LAYER_PREFIX,
    layer: &[
        NORMS,
        ATTENTION,
        &[
            ("block_sparse_moe.gate.weight", "ffn_gate_inp.weight"),
            ("block_sparse_moe.experts.{}.w1.weight", "ffn_gate.{}.weight"),
            ("block_sparse_moe.experts.{}.w3.weight", "ffn_up.{}.weight"),
            ("block_sparse_moe.experts.{}.w2.weight", "ffn_down.{}.weight"),
        ],
    ],
    ignored: &["rotary_emb.inv_freq"],
};

/// gpt-oss: experts in one tensor with biases, and sinks beside the attention scores.
pub static GPT_OSS: NameTable = NameTable {
    globals: GLOBALS,
    layer_prefix: LAYER_PREFIX,
    layer: &[
        NORMS,
        ATTENTION,
        FUSED_EXPERTS,
        &[
            ("self_attn.sinks", "attn_sinks.weight"),
            ("mlp.router.weight", "ffn_gate_inp.weight"),
            ("mlp.router.bias", "ffn_gate_inp.bias"),
            ("mlp.experts.gate_up_proj_bias", "ffn_gate_up_exps.bias"),
            ("mlp.experts.gate_up_proj_blocks", "ffn_gate_up_exps.weight_blocks"),
            ("mlp.experts.gate_up_proj_scales", "ffn_gate_up_exps.weight_scales"),
            ("mlp.experts.down_proj_bias", "ffn_down_exps.bias"),
            ("mlp.experts.down_proj_blocks", "ffn_down_exps.weight_blocks"),
            ("mlp.experts.down_proj_scales", "ffn_down_exps.weight_scales"),
        ],
    ],
    ignored: &["rotary_emb.inv_freq"],
};

const ROUTER: NamePairs = &[
    ("mlp.gate.weight", "ffn_gate_inp.weight"),
    ("mlp.gate.e_score_correction_bias", "exp_probs_b.bias"),
];

const EXPERTS: NamePairs = &[
    ("mlp.experts.{}.gate_proj.weight", "ffn_gate.{}.weight"),
    ("mlp.experts.{}.up_proj.weight", "ffn_up.{}.weight"),
    ("mlp.experts.{}.down_proj.weight", "ffn_down.{}.weight"),
];

const FUSED_EXPERTS: NamePairs = &[
    ("mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight"),
    ("mlp.experts.down_proj", "ffn_down_exps.weight"),
];

const SHARED_EXPERTS: NamePairs = &[
    ("mlp.shared_experts.gate_proj.weight", "ffn_gate_shexp.weight"),
    ("mlp.shared_experts.up_proj.weight", "ffn_up_shexp.weight"),
    ("mlp.shared_experts.down_proj.weight", "ffn_down_shexp.weight"),
];

const QWEN_SHARED: NamePairs = &[
    ("mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight"),
    ("mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight"),
    ("mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight"),
    ("mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight"),
];

const LATENT_ATTENTION: NamePairs = &[
    ("self_attn.q_proj.weight", "attn_q.weight"),
    ("self_attn.q_a_proj.weight", "attn_q_a.weight"),
    ("self_attn.q_a_layernorm.weight", "attn_q_a_norm.weight"),
    ("self_attn.q_b_proj.weight", "attn_q_b.weight"),
    ("self_attn.kv_a_proj_with_mqa.weight", "attn_kv_a_mqa.weight"),
    ("self_attn.kv_a_layernorm.weight", "attn_kv_a_norm.weight"),
    ("self_attn.kv_b_proj.weight", "attn_kv_b.weight"),
    ("self_attn.o_proj.weight", "attn_output.weight"),
];
