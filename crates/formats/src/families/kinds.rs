//! The kinds of tensors, from their canonical names.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::config::ModelConfig;
use crate::layers::{ClassifierConfig, HeadActivation, TensorForm};
use crate::layers::{HeadSpec, TensorKind, TensorSpec};
use crate::names::split_canonical;
use crate::pooling::Pooling;

/// Layers of a small model that has every kind of layer of its family.
const LAYERS: usize = 4;

/// A head that scores texts, with all that such heads may have.
const CLASSIFIER: ClassifierConfig = ClassifierConfig {
    labels: 1,
    pooling: Pooling::Cls,
    dense: Some(HeadActivation::Tanh),
    norm: true,
};

/// A tensor of each name that any family has, by this name, within a layer or outside of all.
static KNOWN: LazyLock<HashMap<String, TensorSpec>> =
    LazyLock::new(|| all_tensors().map(|tensor| (tensor.name.clone(), tensor)).collect());

/// The kind of the tensor with this canonical name, and its layer if it is in one. Files of unknown
/// families use these names, too.
pub fn tensor_kind(canonical: &str) -> (TensorKind, Option<usize>) {
    let kind = known_tensor(canonical).map_or(TensorKind::Other, |tensor| tensor.kind);
    (kind, layer_of(canonical))
}

/// The tensor of a family that has this canonical name, which all families read alike. Its shape is
/// that of a small model.
pub fn known_tensor(canonical: &str) -> Option<&'static TensorSpec> {
    let in_layer = split_canonical(canonical).filter(|_| layer_of(canonical).is_some());
    let name = in_layer.map_or(canonical, |(_, rest)| rest);
    KNOWN.get(&of_first_expert(name))
}

/// The layer of the tensor with this canonical name, if it is in one.
pub fn layer_of(canonical: &str) -> Option<usize> {
    split_canonical(canonical)?.0.parse().ok()
}

impl ModelConfig {
    /// All tensors that the model reads, by their canonical names.
    pub fn tensor_specs(&self) -> HashMap<String, TensorSpec> {
        let (vocab, hidden) = (self.vocab, self.hidden);
        let mut specs = HashMap::new();
        for tensor in
            [self.embedding.tensors(vocab, hidden), self.head.tensors(vocab, hidden)].concat()
        {
            specs.insert(tensor.name.clone(), tensor);
        }
        for (number, layer) in self.layers.iter().enumerate() {
            for tensor in layer.loaded(hidden) {
                specs.insert(format!("blk.{number}.{}", tensor.name), tensor);
            }
        }
        specs
    }
}

/// The name of a matrix of one expert, `ffn_gate.7.weight`, as that of the first; other names as
/// they are.
fn of_first_expert(name: &str) -> String {
    match name.split('.').collect::<Vec<_>>()[..] {
        [part, number, suffix] if number.parse::<usize>().is_ok() => format!("{part}.0.{suffix}"),
        _ => name.to_owned(),
    }
}

/// The tensors of all families, in each form.
fn all_tensors() -> impl Iterator<Item = TensorSpec> {
    let models = crate::families::table::all()
        .filter_map(|family| ModelConfig::tiny(family.name, LAYERS).map(|model| (family, model)));
    models.flat_map(|(family, model)| {
        let (vocab, hidden, files) = (model.vocab, model.hidden, family.file_forms());
        let mut tensors = model.embedding.tensors(vocab, hidden);
        tensors.extend(model.head.tensors(vocab, hidden));
        let head = HeadSpec { classifier: Some(CLASSIFIER), ..model.head.clone() };
        tensors.extend(head.tensors(vocab, hidden));
        for form in [TensorForm::Read, TensorForm::Hf] {
            let layers = model.layers.iter();
            tensors.extend(layers.flat_map(|layer| layer.tensors(hidden, form, files)));
        }
        tensors
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, kind: TensorKind, layer: impl Into<Option<usize>>) {
        assert_eq!(tensor_kind(name), (kind, layer.into()), "{name}");
    }

    #[test]
    fn names_tell_kinds_and_layers() {
        check("token_embd.weight", TensorKind::Embed, None);
        check("output.weight", TensorKind::Head, None);
        check("position_embd.weight", TensorKind::Embed, None);
        check("cls.output.weight", TensorKind::Head, None);
        check("output_norm.weight", TensorKind::Norm, None);
        check("rope_freqs.weight", TensorKind::Other, None);
        check("blk.0.attn_q.weight", TensorKind::Attention, 0);
        check("blk.12.attn_output.bias", TensorKind::Attention, 12);
        check("blk.1.attn_kv_a_mqa.weight", TensorKind::Attention, 1);
        check("blk.1.attn_q_norm.weight", TensorKind::Norm, 1);
        check("blk.1.attn_norm.weight", TensorKind::Norm, 1);
        check("blk.1.post_attention_norm.weight", TensorKind::Norm, 1);
        check("blk.3.ffn_gate.weight", TensorKind::Dense, 3);
        check("blk.3.ffn_down.bias", TensorKind::Dense, 3);
        check("blk.3.ffn_gate_inp.weight", TensorKind::Router, 3);
        check("per_layer_token_embd.weight", TensorKind::Embed, None);
        check("blk.3.inp_gate.weight", TensorKind::Dense, 3);
        check("blk.3.ffn_down_exps.scale", TensorKind::Router, 3);
        check("blk.3.exp_probs_b.bias", TensorKind::Router, 3);
        check("blk.3.ffn_up_shexp.weight", TensorKind::SharedExpert, 3);
        check("blk.3.ffn_gate_inp_shexp.weight", TensorKind::SharedExpert, 3);
        check("blk.3.ffn_gate_exps.weight", TensorKind::RoutedExpert, 3);
        check("blk.3.ffn_up_exps.bias", TensorKind::RoutedExpert, 3);
        check("blk.3.ffn_gate.17.weight", TensorKind::RoutedExpert, 3);
        check("blk.3.shortconv.in_proj.weight", TensorKind::Attention, 3);
        check("blk.3.ssm_out.weight", TensorKind::Attention, 3);
        check("blk.3.ssm_norm.weight", TensorKind::Norm, 3);
        check("blk.3.indexer.attn_q_b.weight", TensorKind::Attention, 3);
        check("blk.3.attn_compressor_kv.weight", TensorKind::Compressor, 3);
        check("blk.3.attn_compressor_norm.weight", TensorKind::Norm, 3);
        check("blk.3.indexer_compressor_gate.weight", TensorKind::Compressor, 3);
        check("blk.3.hc_attn_fn.weight", TensorKind::HyperConnection, 3);
        check("output_hc_fn.weight", TensorKind::HyperConnection, None);
        check("blk.3.ffn_gate_tid2eid.weight", TensorKind::Router, 3);
        check("blk.3.time_mix.weight", TensorKind::Other, 3);
        check("blk.x.attn_q.weight", TensorKind::Other, None);
        check("", TensorKind::Other, None);
    }

    #[test]
    fn a_name_has_one_kind_and_one_use_in_all_families() {
        let mut known = HashMap::new();
        for TensorSpec { name, kind, is_values, .. } in all_tensors() {
            let found = (kind, is_values);
            assert_eq!(*known.entry(name.clone()).or_insert(found), found, "{name}");
        }
    }

    #[test]
    fn convolutions_and_the_like_are_no_matrices() {
        let is_values = |name: &str| known_tensor(name).expect(name).is_values;
        for name in [
            "blk.1.ssm_conv1d.weight",
            "blk.1.ssm_conv1d_q.weight",
            "blk.1.shortconv.conv.weight",
            "blk.1.ple_conv1d.weight",
            "blk.1.attn_compressor_ape.weight",
            "blk.1.ffn_gate_tid2eid.weight",
            "cls.output.weight",
        ] {
            assert!(is_values(name), "{name}");
        }
        for name in ["shortconv.in_proj", "ssm_out", "ffn_latent_up", "ffn_gate.17"] {
            assert!(!is_values(&format!("blk.1.{name}.weight")), "{name}");
        }
        assert_eq!(known_tensor("blk.1.time_mix.weight"), None);
    }
}
