//! Mixtral: Mistral with routed experts in every layer.

use super::experts::{self, ExpertFieldNames};
use super::family::{BASE, Family, GgufExperts};
use super::hf::{MAX_TOKENS, MAX_WIDTH, opt_positive, positive};
use super::{ExpertsConfig, RopeLayout, RouterScores};
use crate::error::Result;
use crate::json::Object;
use crate::names;

pub(super) static MIXTRAL: Family = Family {
    name: "mixtral",
    hf_class: "MixtralForCausalLM",
    gguf_rope: RopeLayout::Interleaved,
    gguf_experts: GgufExperts { width: |mlp, _| mlp, ..BASE.gguf_experts },
    kv_heads: Some(8),
    theta: 1e6,
    declared: |_| Ok(Vec::new()),
    names: &names::MIXTRAL,
    windows: |config, layers| Ok(vec![opt_positive(config, "sliding_window", MAX_TOKENS)?; layers]),
    experts,
    to_json: experts::local_json,
    ..BASE
};

fn experts(config: Object, layers: usize) -> Result<Option<ExpertsConfig>> {
    let Some(count) = experts::count(config, 8)? else { return Ok(None) };
    Ok(Some(ExpertsConfig {
        count,
        chosen: experts::setting(config, ExpertFieldNames::HF.chosen, experts::MAX_EXPERTS, 2)?,
        width: positive(config, "intermediate_size", MAX_WIDTH)?,
        shared_width: 0,
        layers: vec![true; layers],
        scores: RouterScores::Softmax,
        normalise: true,
        scale: 1.0,
        groups: None,
    }))
}
