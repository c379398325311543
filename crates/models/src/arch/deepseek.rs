//! DeepSeek V2, V3 and R1, and Kimi-K2: latent attention and routed experts.
//!
//! Reference: `modeling_deepseek_v2.py` and `modeling_deepseek_v3.py` of transformers. The routers
//! differ in the configuration; V3 corrects the choice by a bias that every router must have.

use super::Arch;
use crate::layers::{AttentionKind, Decoder, LatentAttention};
use crate::loader::Loader;
use crate::{Error, Model};

pub(super) static ARCHS: &[Arch] =
    &[Arch { name: "deepseek_v2", load }, Arch { name: "deepseek_v3", load: load_v3 }];

fn load(loader: &mut Loader<'_>) -> Result<Box<dyn Model>, Error> {
    let sizes = loader.checkpoint.config().latent;
    let sizes =
        sizes.ok_or_else(|| Error::Config("expected the sizes of latent attention".into()))?;
    Decoder::load(loader, |loader, layer, rope| {
        Ok(AttentionKind::Latent(LatentAttention::load(loader, layer, rope, sizes)?))
    })
}

fn load_v3(loader: &mut Loader<'_>) -> Result<Box<dyn Model>, Error> {
    if let Some(experts) = &loader.checkpoint.config().experts {
        let routed = experts.layers.iter().enumerate().filter(|(_, routed)| **routed);
        for (layer, _) in routed {
            let name = format!("blk.{layer}.exp_probs_b.bias");
            loader.checkpoint.require(&name, &[experts.count])?;
        }
    }
    load(loader)
}
