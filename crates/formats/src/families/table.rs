//! The table of families.

use crate::config::family::Family;

use super::{
    bert, cohere2, deepseek_v2, deepseek_v3, deepseek_v4, deepseek_v32, ernie4_5, ernie4_5_moe,
    exaone4, falcon_h1, gemma3, gemma4, glm_moe_dsa, glm4, glm4_moe, glm4_moe_lite, glm5_next,
    gpt_oss, gpt2, granite, granitemoehybrid, hunyuan_v1_dense, kimi_linear, lfm2, llama, llama4,
    minimax_m2, ministral3, mistral, mistral4, mixtral, modernbert, nemotron_h, nomic_bert, olmo3,
    phi3, qwen2, qwen2_moe, qwen3, qwen3_5, qwen3_5_moe, qwen3_moe, qwen3_next, seed_oss, smollm3,
    starcoder2, xlm_roberta,
};

/// The families. Of families with one name in GGUF files, those with a narrower `gguf.is` come
/// first.
pub(super) static FAMILIES: &[&Family] = &[
    &mixtral::MIXTRAL,
    &llama::LLAMA,
    &mistral::MISTRAL,
    &qwen2::QWEN2,
    &qwen3::QWEN3,
    &qwen2_moe::QWEN2_MOE,
    &qwen3_moe::QWEN3_MOE,
    &qwen3_next::QWEN3_NEXT,
    &qwen3_5::QWEN3_5,
    &qwen3_5_moe::QWEN3_5_MOE,
    &deepseek_v3::DEEPSEEK_V3,
    &deepseek_v2::DEEPSEEK_V2,
    &deepseek_v4::DEEPSEEK_V4,
    &glm4_moe::GLM4_MOE,
    &gpt_oss::GPT_OSS,
    &gemma3::GEMMA3,
    &gemma4::GEMMA4,
    &glm4_moe_lite::GLM4_MOE_LITE,
    &minimax_m2::MINIMAX_M2,
    &smollm3::SMOLLM3,
    &olmo3::OLMO3,
    &exaone4::EXAONE4,
    &seed_oss::SEED_OSS,
    &ernie4_5::ERNIE4_5,
    &granite::GRANITE,
    &phi3::PHI3,
    &glm4::GLM4,
    &ministral3::MINISTRAL3,
    &cohere2::COHERE2,
    &starcoder2::STARCODER2,
    &hunyuan_v1_dense::HUNYUAN_V1_DENSE,
    &ernie4_5_moe::ERNIE4_5_MOE,
    &mistral4::MISTRAL4,
    &deepseek_v32::DEEPSEEK_V32,
    &glm_moe_dsa::GLM_MOE_DSA,
    &llama4::LLAMA4,
    &gpt2::GPT2,
    &kimi_linear::KIMI_LINEAR,
    &glm5_next::GLM5_NEXT,
    &granitemoehybrid::GRANITEMOEHYBRID,
    &nemotron_h::NEMOTRON_H,
    &falcon_h1::FALCON_H1,
    &lfm2::LFM2,
];

/// The families of encoders. Of those with one name in GGUF files, the one with the narrower
/// `gguf.is` comes first.
pub(super) static ENCODERS: &[&Family] =
    &[&xlm_roberta::XLM_ROBERTA, &bert::BERT, &modernbert::MODERNBERT, &nomic_bert::NOMIC_BERT];

/// All families.
pub(super) fn all() -> impl Iterator<Item = &'static Family> {
    FAMILIES.iter().chain(ENCODERS).copied()
}
