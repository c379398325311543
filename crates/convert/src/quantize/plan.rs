//! Decides the type of every tensor, before a byte is written.

use super::importance::Importance;
use super::mixture::{Mixture, ModelTraits};
use super::options::QuantizeOptions;
use super::source::Tensor;
use crate::types::{whole_blocks, writable_names};
use anyhow::{Result, bail};
use kernels::quant::{self, QuantType};

/// A tensor and the type it is written in.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub tensor: Tensor,
    /// The type it is written in.
    pub ty: &'static QuantType,
    /// The type that was asked for, where its rows are not whole blocks of it.
    pub instead_of: Option<&'static QuantType>,
    /// Whether the importance of its columns is known.
    pub weighed: bool,
}

impl Target {
    /// Bytes it takes in the new type.
    pub fn bytes(&self) -> usize {
        // The writer has refused sizes that overflow.
        self.ty.bytes_for(self.tensor.shape.iter().product()).unwrap_or(0)
    }
}

/// Decides the types of all tensors.
pub(super) fn decide(
    tensors: Vec<Tensor>,
    model: &ModelTraits,
    options: &QuantizeOptions,
    importance: Option<&Importance>,
) -> Result<Vec<Target>> {
    let wanted = wanted(&tensors, model, options)?;
    let decide = |(tensor, wanted): (Tensor, Option<&'static QuantType>)| match wanted {
        Some(ty) => quantized(tensor, ty, options.requantize, importance),
        None => Ok(kept(tensor)),
    };
    tensors.into_iter().zip(wanted).map(decide).collect()
}

/// The type asked for each tensor; `None` for tensors that are not quantised.
fn wanted(
    tensors: &[Tensor],
    model: &ModelTraits,
    options: &QuantizeOptions,
) -> Result<Vec<Option<&'static QuantType>>> {
    let matrix = |&at: &usize| is_matrix(&tensors[at].name, &tensors[at].shape);
    let matrices: Vec<usize> = (0..tensors.len()).filter(matrix).collect();
    let names: Vec<&str> = matrices.iter().map(|&i| tensors[i].name.as_str()).collect();
    let mut wanted = vec![None; tensors.len()];
    for (&index, name) in matrices.iter().zip(&names) {
        wanted[index] = Some(options.mixture.choose(name, model));
    }
    for rule in options.overrides {
        for found in rule.matching(&names)? {
            wanted[matrices[found]] = Some(rule.ty);
        }
    }
    Ok(wanted)
}

/// Whether a tensor is a matrix of weights that inputs are multiplied with. Norms, routers,
/// hyper-connections, weights of the heads of an index, heads that score texts and short
/// convolutions are small and sensitive; tables of experts hold integers.
pub(crate) fn is_matrix(name: &str, shape: &[usize]) -> bool {
    const KEPT: [&str; 11] = [
        "_norm.weight",
        "ffn_gate_inp",
        "ffn_gate_tid2eid",
        "hc_",
        "_compressor_ape",
        "indexer.proj",
        "ssm_conv1d",
        "shortconv.conv",
        "position_embd",
        "token_types",
        "cls.",
    ];
    let kept = KEPT.iter().any(|part| name.contains(part));
    shape.len() >= 2 && name.ends_with(".weight") && !kept
}

/// The type in which a mixture writes the tensor with this canonical name and shape, of a model
/// without coarser types and without an importance of columns.
pub(crate) fn mixed_type(
    mixture: &Mixture,
    model: &ModelTraits,
    name: &str,
    shape: &[usize],
) -> &'static QuantType {
    match shape.last() {
        Some(columns) if is_matrix(name, shape) => {
            whole_blocks(mixture.choose(name, model), *columns)
        }
        _ => &quant::F32,
    }
}

fn kept(tensor: Tensor) -> Target {
    let ty = if tensor.ty.is_supported() { &quant::F32 } else { tensor.ty };
    Target { tensor, ty, instead_of: None, weighed: false }
}

fn quantized(
    tensor: Tensor,
    wanted: &'static QuantType,
    requantize: bool,
    importance: Option<&Importance>,
) -> Result<Target> {
    let (name, from) = (tensor.name.escape_debug().to_string(), tensor.ty);
    let columns = tensor.shape.last().copied().unwrap_or(0);
    let ty = whole_blocks(wanted, columns);
    let instead_of = (ty != wanted).then_some(wanted);
    if ty != from || !tensor.factors.is_empty() {
        let coarse = from.block_len > 1 && from.bits_per_value() < 8.0;
        if coarse && !requantize {
            bail!(
                "tensor {name} is {from} already: quantising it again loses quality; \
                 --allow-requantize allows it"
            );
        }
        if !from.is_supported() {
            bail!("tensor {name}: values of type {from} cannot be read");
        }
        if ty.quantize.is_none() {
            bail!(
                "tensor {name}: type {ty} cannot be written; --type and --tensor-type can be: {}",
                writable_names()
            );
        }
    }
    let weighed = match importance {
        Some(importance) if ty.block_len > 1 => importance.covers(&tensor.name, &tensor.shape)?,
        _ => false,
    };
    Ok(Target { tensor, ty, instead_of, weighed })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Override;

    fn tensor(name: &str, shape: &[usize], ty: &'static QuantType) -> Tensor {
        let (name, shape) = (name.to_owned(), shape.to_vec());
        let bytes = std::sync::Arc::new(Vec::new());
        Tensor { name, shape, ty, bytes, order: None, heads: None, factors: Vec::new() }
    }

    fn decided(
        tensor: Tensor,
        mixture: &str,
        choices: &[&str],
        requantize: bool,
    ) -> Result<Target> {
        let overrides: Vec<_> = choices.iter().map(|c| Override::parse(c).unwrap()).collect();
        let mixture = Mixture::named(mixture).unwrap();
        let options =
            QuantizeOptions { overrides: &overrides, requantize, ..QuantizeOptions::new(mixture) };
        Ok(decide(vec![tensor], &ModelTraits::default(), &options, None)?.remove(0))
    }

    fn check(name: &str, shape: &[usize], mixture: &str, expected: &str) {
        let target = decided(tensor(name, shape, &quant::BF16), mixture, &[], false).unwrap();
        assert_eq!(target.ty.name, expected, "{name} {shape:?}");
    }

    #[test]
    fn vectors_and_norms_stay_exact() {
        check("blk.0.attn_norm.weight", &[256], "q8_0", "f32");
        check("blk.0.attn_q.bias", &[256], "q8_0", "f32");
        check("blk.0.attn_q_norm.weight", &[2, 256], "q8_0", "f32");
        check("blk.0.ffn_gate_inp.weight", &[8, 256], "q8_0", "f32");
        check("blk.0.hc_attn_fn.weight", &[24, 256], "q8_0", "f32");
        check("blk.0.indexer_compressor_ape.weight", &[4, 256], "q8_0", "f32");
        check("blk.0.attn_compressor_kv.weight", &[64, 256], "q8_0", "q8_0");
        let table =
            tensor("blk.0.ffn_gate_tid2eid.weight", &[8, 3], quant::by_name("i32").unwrap());
        assert_eq!(decided(table, "q8_0", &[], false).unwrap().ty.name, "i32");
        check("blk.0.attn_q.weight", &[8, 256], "q8_0", "q8_0");
        check("blk.0.ffn_up_exps.weight", &[4, 8, 256], "q6_k", "q6_k");
    }

    #[test]
    fn rows_that_are_not_whole_blocks_fall_back() {
        check("blk.0.attn_q.weight", &[8, 96], "q6_k", "q8_0");
        check("blk.0.attn_q.weight", &[8, 96], "q4_k_s", "q5_0");
        check("blk.0.attn_q.weight", &[8, 24], "q4_k_s", "f16");
        check("blk.0.attn_q.weight", &[8, 24], "q8_0", "f16");
        check("blk.0.attn_q.weight", &[8, 24], "f32", "f32");
    }

    #[test]
    fn the_last_choice_of_a_person_wins() {
        let choices = ["*=q8_0", "attn_q=f16"];
        let matrix = |name| tensor(name, &[8, 256], &quant::F32);
        let ty = |name| decided(matrix(name), "q4_0", &choices, false).map(|t| t.ty.name);
        assert_eq!(ty("blk.0.attn_q.weight").unwrap(), "f16");
        let error = ty("blk.0.attn_k.weight").unwrap_err().to_string();
        assert!(error.contains("--tensor-type attn_q"), "{error}");
    }

    #[test]
    fn coarse_weights_are_quantised_again_only_where_allowed() {
        let coarse = || tensor("blk.0.attn_q.weight", &[8, 256], &quant::Q4_0);
        let error = decided(coarse(), "q8_0", &[], false).unwrap_err().to_string();
        assert!(error.contains("--allow-requantize"), "{error}");
        assert_eq!(decided(coarse(), "q8_0", &[], true).unwrap().ty.name, "q8_0");
        assert_eq!(decided(coarse(), "q4_0", &[], false).unwrap().ty.name, "q4_0");
    }
}
