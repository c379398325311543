//! The table of families.

use crate::config::family::Family;

/// The families. Of families with one name in GGUF files, those with a narrower `gguf.is` come
/// first.
pub(super) static FAMILIES: &[&Family] = &[
    &super::mixtral::MIXTRAL,
    &super::llama::LLAMA,
    &super::mistral::MISTRAL,
    &super::qwen2::QWEN2,
    &super::qwen3::QWEN3,
    &super::qwen2_moe::QWEN2_MOE,
    &super::qwen3_moe::QWEN3_MOE,
    &super::qwen3_next::QWEN3_NEXT,
    &super::qwen3_5::QWEN3_5,
    &super::qwen3_5_moe::QWEN3_5_MOE,
    &super::qwen4_exp::QWEN4_EXP,
    &super::deepseek_v3::DEEPSEEK_V3,
    &super::deepseek_v2::DEEPSEEK_V2,
    &super::deepseek_v4::DEEPSEEK_V4,
    &super::glm4_moe::GLM4_MOE,
    &super::gpt_oss::GPT_OSS,
    &super::gemma3::GEMMA3,
    &super::gemma4::GEMMA4,
    &super::glm4_moe_lite::GLM4_MOE_LITE,
    &super::minimax_m2::MINIMAX_M2,
    &super::smollm3::SMOLLM3,
    &super::olmo3::OLMO3,
    &super::exaone4::EXAONE4,
    &super::seed_oss::SEED_OSS,
    &super::ernie4_5::ERNIE4_5,
    &super::granite::GRANITE,
    &super::phi3::PHI3,
    &super::glm4::GLM4,
    &super::ministral3::MINISTRAL3,
    &super::cohere2::COHERE2,
    &super::starcoder2::STARCODER2,
    &super::hunyuan_v1_dense::HUNYUAN_V1_DENSE,
    &super::ernie4_5_moe::ERNIE4_5_MOE,
    &super::mistral4::MISTRAL4,
    &super::mistral_large4::MISTRAL_LARGE4,
    &super::deepseek_v32::DEEPSEEK_V32,
    &super::glm_moe_dsa::GLM_MOE_DSA,
    &super::llama4::LLAMA4,
    &super::gpt2::GPT2,
    &super::kimi_linear::KIMI_LINEAR,
    &super::glm5_next::GLM5_NEXT,
    &super::hy_v4::HY_V4,
    &super::bailing_hybrid::BAILING_HYBRID,
    &super::granitemoehybrid::GRANITEMOEHYBRID,
    &super::nemotron_h::NEMOTRON_H,
    &super::falcon_h1::FALCON_H1,
    &super::lfm2::LFM2,
    &super::lfm3::LFM3,
    &super::afmoe::AFMOE,
    &super::hy_v3::HY_V3,
    &super::muse_glimmer::MUSE_GLIMMER,
    &super::exaone_moe::EXAONE_MOE,
    &super::mellum::MELLUM,
    &super::granite_swa::GRANITE_SWA,
    &super::laguna::LAGUNA,
    &super::step3p7::STEP3P7,
    &super::mimo_v2::MIMO_V2,
    &super::minimax_m3::MINIMAX_M3,
];

/// The families of encoders. Of those with one name in GGUF files, the one with the narrower
/// `gguf.is` comes first.
pub(super) static ENCODERS: &[&Family] = &[
    &super::xlm_roberta::XLM_ROBERTA,
    &super::bert::BERT,
    &super::modernbert::MODERNBERT,
    &super::nomic_bert::NOMIC_BERT,
];

/// All families.
pub(super) fn all() -> impl Iterator<Item = &'static Family> {
    FAMILIES.iter().chain(ENCODERS).copied()
}
