//! Names of parts of layers that several families share. Experts have one tensor each, as
//! published, or one for all experts of a layer, as transformers 5 and gpt-oss store them.

use super::{NamePairs, NameTable};

/// The names of Hugging Face's Llama, which other dense families share. Biases and head norms exist
/// in some families only.
pub(crate) const DENSE: NameTable = NameTable {
    globals: GLOBALS,
    layer_prefix: LAYER_PREFIX,
    layer: &[NORMS, ATTENTION, QK_NORMS, MLP],
    ignored: &["rotary_emb.inv_freq"],
    others: &[],
    wrapped: &[],
    modalities: &[],
};

pub(crate) const LAYER_PREFIX: &str = "model.layers.";

pub(crate) const GLOBALS: NamePairs = &[
    ("model.embed_tokens.weight", "token_embd.weight"),
    ("model.norm.weight", "output_norm.weight"),
    ("lm_head.weight", "output.weight"),
];

pub(crate) const NORMS: NamePairs = &[
    ("input_layernorm.weight", "attn_norm.weight"),
    ("post_attention_layernorm.weight", "ffn_norm.weight"),
];

/// Norms around both sublayers (Gemma).
pub(crate) const NORMS_AROUND: NamePairs = &[
    ("input_layernorm.weight", "attn_norm.weight"),
    ("post_attention_layernorm.weight", "post_attention_norm.weight"),
    ("pre_feedforward_layernorm.weight", "ffn_norm.weight"),
    ("post_feedforward_layernorm.weight", "post_ffw_norm.weight"),
];

/// Biases of norms.
pub(crate) const NORM_BIASES: NamePairs = &[
    ("input_layernorm.bias", "attn_norm.bias"),
    ("post_attention_layernorm.bias", "ffn_norm.bias"),
];

/// Norms of what sublayers give (OLMo 2).
pub(crate) const NORMS_AFTER: NamePairs = &[
    ("post_attention_layernorm.weight", "post_attention_norm.weight"),
    ("post_feedforward_layernorm.weight", "post_ffw_norm.weight"),
];

/// Routed experts as Mixtral's checkpoints name them.
pub(crate) const BLOCK_SPARSE: NamePairs = &[
    ("block_sparse_moe.gate.weight", "ffn_gate_inp.weight"),
    ("block_sparse_moe.experts.{}.w1.weight", "ffn_gate.{}.weight"),
    ("block_sparse_moe.experts.{}.w3.weight", "ffn_up.{}.weight"),
    ("block_sparse_moe.experts.{}.w2.weight", "ffn_down.{}.weight"),
];

pub(crate) const ATTENTION: NamePairs = &[
    ("self_attn.q_proj.weight", "attn_q.weight"),
    ("self_attn.q_proj.bias", "attn_q.bias"),
    ("self_attn.k_proj.weight", "attn_k.weight"),
    ("self_attn.k_proj.bias", "attn_k.bias"),
    ("self_attn.v_proj.weight", "attn_v.weight"),
    ("self_attn.v_proj.bias", "attn_v.bias"),
    ("self_attn.o_proj.weight", "attn_output.weight"),
    ("self_attn.o_proj.bias", "attn_output.bias"),
];

/// Norms of heads of queries and keys.
pub(crate) const QK_NORMS: NamePairs = &[
    ("self_attn.q_norm.weight", "attn_q_norm.weight"),
    ("self_attn.k_norm.weight", "attn_k_norm.weight"),
];

pub(crate) const MLP: NamePairs = &[
    ("mlp.gate_proj.weight", "ffn_gate.weight"),
    ("mlp.gate_proj.bias", "ffn_gate.bias"),
    ("mlp.up_proj.weight", "ffn_up.weight"),
    ("mlp.up_proj.bias", "ffn_up.bias"),
    ("mlp.down_proj.weight", "ffn_down.weight"),
    ("mlp.down_proj.bias", "ffn_down.bias"),
];

pub(crate) const ROUTER: NamePairs = &[
    ("mlp.gate.weight", "ffn_gate_inp.weight"),
    ("mlp.gate.e_score_correction_bias", "exp_probs_b.bias"),
];

pub(crate) const EXPERTS: NamePairs = &[
    ("mlp.experts.{}.gate_proj.weight", "ffn_gate.{}.weight"),
    ("mlp.experts.{}.up_proj.weight", "ffn_up.{}.weight"),
    ("mlp.experts.{}.down_proj.weight", "ffn_down.{}.weight"),
];

pub(crate) const FUSED_EXPERTS: NamePairs = &[
    ("mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight"),
    ("mlp.experts.down_proj", "ffn_down_exps.weight"),
];

pub(crate) const SHARED_EXPERTS: NamePairs = &[
    ("mlp.shared_experts.gate_proj.weight", "ffn_gate_shexp.weight"),
    ("mlp.shared_experts.up_proj.weight", "ffn_up_shexp.weight"),
    ("mlp.shared_experts.down_proj.weight", "ffn_down_shexp.weight"),
];

pub(crate) const QWEN_SHARED: NamePairs = &[
    ("mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight"),
    ("mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight"),
    ("mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight"),
    ("mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight"),
];

pub(crate) const LATENT_ATTENTION: NamePairs = &[
    ("self_attn.q_proj.weight", "attn_q.weight"),
    ("self_attn.q_a_proj.weight", "attn_q_a.weight"),
    ("self_attn.q_a_layernorm.weight", "attn_q_a_norm.weight"),
    ("self_attn.q_b_proj.weight", "attn_q_b.weight"),
    ("self_attn.kv_a_proj_with_mqa.weight", "attn_kv_a_mqa.weight"),
    ("self_attn.kv_a_layernorm.weight", "attn_kv_a_norm.weight"),
    ("self_attn.kv_b_proj.weight", "attn_kv_b.weight"),
    ("self_attn.o_proj.weight", "attn_output.weight"),
];

/// The index over the positions of latent attention (DeepSeek V3.2).
pub(crate) const INDEX: NamePairs = &[
    ("self_attn.indexer.wq_b.weight", "indexer.attn_q_b.weight"),
    ("self_attn.indexer.wk.weight", "indexer.attn_k.weight"),
    ("self_attn.indexer.k_norm.weight", "indexer.k_norm.weight"),
    ("self_attn.indexer.k_norm.bias", "indexer.k_norm.bias"),
    ("self_attn.indexer.weights_proj.weight", "indexer.proj.weight"),
];

/// Gated DeltaNet, with projections side by side, key head by key head (`ssm_in`, `ssm_ba`), or
/// apart.
pub(crate) const DELTA: NamePairs = &[
    ("linear_attn.in_proj_qkvz.weight", "ssm_in.weight"),
    ("linear_attn.in_proj_ba.weight", "ssm_ba.weight"),
    ("linear_attn.in_proj_qkv.weight", "attn_qkv.weight"),
    ("linear_attn.in_proj_z.weight", "attn_gate.weight"),
    ("linear_attn.in_proj_b.weight", "ssm_beta.weight"),
    ("linear_attn.in_proj_a.weight", "ssm_alpha.weight"),
    ("linear_attn.conv1d.weight", "ssm_conv1d.weight"),
    ("linear_attn.dt_bias", "ssm_dt.bias"),
    ("linear_attn.A_log", "ssm_a"),
    ("linear_attn.norm.weight", "ssm_norm.weight"),
    ("linear_attn.out_proj.weight", "ssm_out.weight"),
];

/// State spaces (Mamba-2).
pub(crate) const MAMBA: NamePairs = &[
    ("mamba.in_proj.weight", "ssm_in.weight"),
    ("mamba.conv1d.weight", "ssm_conv1d.weight"),
    ("mamba.conv1d.bias", "ssm_conv1d.bias"),
    ("mamba.dt_bias", "ssm_dt.bias"),
    ("mamba.A_log", "ssm_a"),
    ("mamba.D", "ssm_d"),
    ("mamba.norm.weight", "ssm_norm.weight"),
    ("mamba.out_proj.weight", "ssm_out.weight"),
];

/// Prefixes of language models in checkpoints of several modalities.
pub(crate) const WRAPPED: NamePairs = &[
    ("model.language_model.", "model."),
    ("language_model.model.", "model."),
    ("language_model.lm_head.", "lm_head."),
];

/// Prefixes of what Mistral's and others' checkpoints have for images.
pub(crate) const MISTRAL_VISION: &[&str] = &[
    "vision_tower.",
    "model.vision_tower.",
    "multi_modal_projector.",
    "model.multi_modal_projector.",
];

/// Prefixes of what such checkpoints have for images and video.
pub(crate) const VISUAL: &[&str] = &["model.visual.", "visual."];
