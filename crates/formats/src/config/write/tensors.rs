//! The tensors of a model: canonical names and shapes, in GGUF files and in Hugging Face
//! checkpoints.

use super::super::family::Family;
use crate::config::drafting::DraftConfig;
use crate::config::model::ModelConfig;
use crate::layers::{Presence, TensorForm, TensorSpec};

pub(crate) type Tensors = Vec<(String, Vec<usize>)>;

impl ModelConfig {
    /// Canonical names and shapes of all tensors of a checkpoint of this family in `form`.
    pub(crate) fn tensors_in(&self, family: &Family, form: TensorForm) -> Tensors {
        let (hidden, vocab, files) = (self.hidden, self.vocab, family.file_forms());
        let is_written = |tensor: &TensorSpec| {
            tensor.presence != Presence::Optional || family.hf.written.contains(&&*tensor.name)
        };
        let written = |tensors: Vec<TensorSpec>| {
            let tensors = tensors.into_iter().filter(is_written);
            tensors.map(|tensor| (tensor.name, tensor.shape))
        };
        let mut tensors: Tensors = written(self.embedding.tensors(vocab, hidden)).collect();
        for (number, layer) in self.layers.iter().enumerate() {
            let mut parts = written(layer.tensors(hidden, form, files)).collect();
            if form == TensorForm::Hf || form == TensorForm::Gguf && family.gguf.joins {
                join(&mut parts, family);
            }
            if form == TensorForm::Hf {
                let transposed = |name: &String| family.hf.transposed.contains(&name.as_str());
                parts
                    .iter_mut()
                    .filter(|(name, _)| transposed(name))
                    .for_each(|(_, s)| s.reverse());
            }
            let named = |(name, shape)| (format!("blk.{number}.{name}"), shape);
            tensors.extend(parts.into_iter().map(named));
        }
        let mtp = self.drafter.iter().filter_map(DraftConfig::mtp).flat_map(|mtp| &mtp.layers);
        for (number, spec) in (self.layers.len()..).zip(mtp) {
            let parts =
                [spec.own_tensors(hidden), spec.layer.tensors(hidden, form, files)].concat();
            let named = |(name, shape)| (format!("blk.{number}.{name}"), shape);
            tensors.extend(written(parts).map(named));
        }
        tensors.extend(written(self.head.tensors(vocab, hidden)));
        tensors
    }

    /// The value that the tensor with this canonical name is filled with in checkpoints of random
    /// weights of `form`, if it is not random: norms and other factors are one, and states decay.
    pub fn constant(&self, name: &str, form: TensorForm) -> Option<f32> {
        let hf = form == TensorForm::Hf;
        match name.rsplit_once('.') {
            Some((_, "ssm_a")) => Some(if hf { 0.0 } else { -1.0 }),
            _ if name.ends_with(".scale") || name.ends_with("layer_output_scale.weight") => {
                Some(1.0)
            }
            _ if !name.ends_with("norm.weight") => None,
            _ if hf && self.is_zero_centred(name) => Some(0.0),
            _ => Some(1.0),
        }
    }
}

/// Replaces matrices that the family's files store as the rows of one.
fn join(tensors: &mut Tensors, family: &Family) {
    for (whole, parts) in family.joined {
        let is_part = |name: &str| parts.contains(&name);
        let rows =
            tensors.iter().filter(|(name, _)| is_part(name)).map(|(_, shape)| shape[0]).sum();
        let Some(at) = tensors.iter().position(|(name, _)| is_part(name)) else { continue };
        let shape = [&[rows], &tensors[at].1[1..]].concat();
        tensors[at] = ((*whole).to_owned(), shape);
        tensors.retain(|(name, _)| !is_part(name));
    }
}
