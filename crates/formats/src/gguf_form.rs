//! The tensors of a checkpoint in Hugging Face's layout as GGUF files hold them: matrices that
//! files of the family store as the rows of one are joined, the expansion of the latent rows of
//! attention is one matrix for keys, transposed, and one for values, for each head, and tables of
//! positions begin with position 0.
//!
//! Values are only reordered, when they are read.

use std::sync::Arc;

use indexmap::IndexMap;
use kernels::quant;

use crate::checkpoint::Checkpoint;
use crate::config::ModelConfig;
use crate::config::family::Family;
use crate::error::Result;
use crate::experts::transposed_matrix;
use crate::layers::{DeltaSpec, LatentConfig, OpSpec, RopeLayout, TensorForm};
use crate::names::{holds_ids, split_canonical};
use crate::tensor::TensorView;

/// Tensors by their canonical names.
type Views = IndexMap<String, TensorView>;

/// Learned embeddings of positions.
const POSITIONS: &str = "position_embd.weight";
/// The matrix that expands latent rows, and the two of GGUF files.
const EXPANSION: &str = "attn_kv_b.weight";
const KEYS: &str = "attn_k_b.weight";
const VALUES: &str = "attn_v_b.weight";
/// Projections of beta and of decay, and both in one.
const BETA: &str = "ssm_beta.weight";
const DECAY: &str = "ssm_alpha.weight";
const BOTH: &str = "ssm_ba.weight";

impl Checkpoint {
    /// All tensors in the form of GGUF files, after a check that none is missing.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape than the configuration says, if tensors to be
    /// joined are stored in different ways, or if columns of experts are out of order.
    pub fn gguf_tensors(&self) -> Result<Vec<TensorView>> {
        let config = self.config();
        let family = config.family();
        let mut views: Views =
            self.tensors().map(|view| (view.name.clone(), view.clone())).collect();
        for (name, shape) in config.tensors(TensorForm::Read) {
            // Flags of config.json may leave out biases; those that it declares were checked.
            let part = split_canonical(&name).map_or("", |(_, part)| part);
            if family.hf.written.contains(&part) && !views.contains_key(&name) {
                continue;
            }
            if holds_ids(&name) {
                let bytes = self.ids_in_32_bits(&name, &shape)?;
                let ty = quant::by_name("i32").expect("a listed type");
                views.entry(name).and_modify(|view| *view = view.with(ty, shape, Arc::new(bytes)));
            } else {
                self.require(&name, &shape)?;
            }
        }
        if let Some(table) = config.said.positions {
            let positions = views.get_mut(POSITIONS).expect("a tensor of the list");
            *positions = positions.rows(table.first..table.rows);
        }
        if config.said.latent.is_some() {
            check_rotation(config, family)?;
            expand(&mut views, config)?;
        }
        let delta = config.said.delta.as_ref().filter(|_| !config.decays_per_channel());
        if let Some(delta) = delta.filter(|_| family.delta.is_some_and(|files| files.fused)) {
            side_by_side(&mut views, config, &delta.spec)?;
        }
        if family.gguf.joins {
            join(&mut views, config, family)?;
        }
        match views.values().find(|view| view.order.is_none() && view.is_out_of_order()) {
            Some(view) => {
                Err(view
                    .error("experts whose columns are stored in another order cannot be written"))
            }
            None => Ok(views.into_values().collect()),
        }
    }
}

impl Checkpoint {
    /// A table of the numbers of experts as integers of 32 bits.
    fn ids_in_32_bits(&self, name: &str, shape: &[usize]) -> Result<Vec<u8>> {
        let end = self.config().said.experts.as_ref().map_or(0, |experts| experts.count as u32);
        let ids = self.ids(name, shape, end)?;
        Ok(ids.iter().flat_map(|id| id.to_le_bytes()).collect())
    }
}

/// Refuses latent attention whose rotated values GGUF files have in another order.
fn check_rotation(config: &ModelConfig, family: &Family) -> Result<()> {
    match config.said.rope.layout == RopeLayout::Halves
        && family.gguf.rope == RopeLayout::Interleaved
    {
        false => Ok(()),
        true => Err(config.error("rope_interleave", "expected true, found false")),
    }
}

/// Replaces expansions of latent rows by those of keys and of values.
fn expand(views: &mut Views, config: &ModelConfig) -> Result<()> {
    let sizes_of = |op: &OpSpec| match op {
        OpSpec::Latent(spec) => Some(spec.sizes),
        _ => None,
    };
    for (layer, ops) in config.layers.iter().enumerate() {
        let name = |part: &str| format!("blk.{layer}.{part}");
        let Some(LatentConfig { nope_dim, value_dim, .. }) = ops.ops().find_map(sizes_of) else {
            continue;
        };
        let each = nope_dim + value_dim;
        let Some(both) = views.shift_remove(&name(EXPANSION)) else { continue };
        if both.ty.block_len != 1 || both.order.is_some() {
            let problem = "expected plain values, which can be transposed, found type";
            return Err(both.error(format!("{problem} {}", both.ty)));
        }
        let rows = |head: usize, first: usize, count: usize| {
            let first = head * each + first;
            both.rows(first..first + count)
        };
        let heads = 0..config.said.heads;
        let keys = heads.clone().map(|head| transposed_matrix(&rows(head, 0, nope_dim)));
        let values = heads.map(|head| rows(head, nope_dim, value_dim));
        let (keys, values) = (keys.collect(), values.collect());
        for (part, parts) in [(KEYS, keys), (VALUES, values)] {
            views.insert(name(part), TensorView::stack(name(part), parts));
        }
    }
    Ok(())
}

/// Puts the rows of beta and of decay side by side, key head by key head.
fn side_by_side(views: &mut Views, config: &ModelConfig, delta: &DeltaSpec) -> Result<()> {
    for layer in 0..config.all_layers().count() {
        let name = |part: &str| format!("blk.{layer}.{part}");
        let parts = [BETA, DECAY].map(|part| views.shift_remove(&name(part)));
        let [Some(beta), Some(decay)] = parts else { continue };
        let of_head = |head: usize| {
            let rows = head * delta.ratio()..(head + 1) * delta.ratio();
            [beta.rows(rows.clone()), decay.rows(rows)]
        };
        let parts = (0..delta.key_heads).flat_map(of_head).collect();
        views.insert(name(BOTH), TensorView::joined(name(BOTH), parts)?);
    }
    Ok(())
}

/// Joins what files of the family store as the rows of one tensor.
fn join(views: &mut Views, config: &ModelConfig, family: &Family) -> Result<()> {
    for (whole, parts) in family.joined {
        for layer in 0..config.all_layers().count() {
            let parts = parts.iter().map(|part| views.shift_remove(&format!("blk.{layer}.{part}")));
            let parts: Vec<_> = parts.flatten().collect();
            if !parts.is_empty() {
                let name = format!("blk.{layer}.{whole}");
                views.insert(name.clone(), TensorView::joined(name, parts)?);
            }
        }
    }
    Ok(())
}
