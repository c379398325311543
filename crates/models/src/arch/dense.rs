//! Dense decoders: Llama, Mistral, Qwen2 and Qwen3.
//!
//! Reference: `modeling_llama.py`, `modeling_mistral.py`, `modeling_qwen2.py` and
//! `modeling_qwen3.py` of transformers. They differ in data: Qwen2 has biases on queries, keys and
//! values (`formats` knows that it must), Qwen3 norms on queries and keys, Mistral a sliding
//! window.

use super::Arch;
use crate::layers::{Attention, AttentionKind, Decoder};
use crate::loader::Loader;
use crate::{Error, Model};

pub(super) static ARCHS: &[Arch] = &[
    Arch { name: "llama", load: |loader| load(loader, false) },
    Arch { name: "mistral", load: |loader| load(loader, false) },
    Arch { name: "qwen2", load: |loader| load(loader, false) },
    Arch { name: "qwen3", load: |loader| load(loader, true) },
];

/// A decoder whose layers have grouped-query attention. With `norms`, each head of queries and keys
/// is normalised before its rotation.
pub(super) fn load(loader: &mut Loader<'_>, norms: bool) -> Result<Box<dyn Model>, Error> {
    Decoder::load(loader, |loader, layer, rope| {
        Ok(AttentionKind::Heads(Attention::load(loader, layer, rope, norms)?))
    })
}
