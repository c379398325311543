//! Decoders with grouped-query attention and routed experts: Qwen2-MoE, Qwen3-MoE, Mixtral,
//! GLM-4.5 and gpt-oss.
//!
//! Reference: `modeling_qwen2_moe.py`, `modeling_qwen3_moe.py`, `modeling_mixtral.py`,
//! `modeling_glm4_moe.py` and `modeling_gpt_oss.py` of transformers. Routers, shared experts and
//! gates are in the configuration; what is left is where heads are normalised: always in Qwen3, in
//! GLM where there are norms. gpt-oss has sinks and biases, which are loaded where they are.

use super::Arch;
use super::dense::load;
use crate::loader::Loader;
use crate::{Error, Model};

pub(super) static ARCHS: &[Arch] = &[
    Arch { name: "qwen2_moe", load: load_qwen2 },
    Arch { name: "qwen3_moe", load: |loader| load(loader, true) },
    Arch { name: "mixtral", load: |loader| load(loader, false) },
    Arch { name: "glm4_moe", load: load_glm },
    Arch { name: "gpt_oss", load: load_gpt_oss },
];

/// The shared expert has a gate in every layer.
fn load_qwen2(loader: &mut Loader<'_>) -> Result<Box<dyn Model>, Error> {
    let config = loader.checkpoint.config();
    if let Some(experts) = config.experts.as_ref().filter(|experts| experts.shared_width > 0) {
        for layer in (0..config.layers).filter(|layer| experts.layers[*layer]) {
            let gate = format!("blk.{layer}.ffn_gate_inp_shexp.weight");
            if loader.checkpoint.tensor(&gate).is_none() {
                loader.checkpoint.require(&gate, &[1, config.hidden_size])?;
            }
        }
    }
    load(loader, false)
}

fn load_glm(loader: &mut Loader<'_>) -> Result<Box<dyn Model>, Error> {
    let norms = loader.checkpoint.tensor("blk.0.attn_q_norm.weight").is_some();
    load(loader, norms)
}

fn load_gpt_oss(loader: &mut Loader<'_>) -> Result<Box<dyn Model>, Error> {
    let heads = loader.checkpoint.config().heads;
    for layer in 0..loader.checkpoint.config().layers {
        loader.checkpoint.require(&format!("blk.{layer}.attn_sinks.weight"), &[heads])?;
    }
    load(loader, false)
}
