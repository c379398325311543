//! The KV cache of the CPU, and attention over it.

use crate::{AttentionSpec, Batch, Error, KvType, LayerCache};
use base::{AlignedVec, ThreadPool};
use kernels::Isa;
use kernels::attention::{self, KvElem, KvRef, KvShape, MAX_HEAD_DIM, Query};

/// Keys and values of all layers.
#[derive(Default)]
pub(super) struct KvCache {
    layers: Vec<LayerKv>,
}

struct LayerKv {
    shape: KvShape,
    data: KvData,
}

enum KvData {
    F32(AlignedVec<f32>, AlignedVec<f32>),
    Bf16(AlignedVec<u16>, AlignedVec<u16>),
}

impl KvCache {
    /// `blocks` blocks of `block` positions for each of `layers`, zeroed.
    pub fn new(
        layers: &[LayerCache],
        block: usize,
        blocks: usize,
        ty: KvType,
    ) -> Result<Self, Error> {
        let shapes = layers.iter().map(|l| KvShape { block, heads: l.heads, dim: l.dim });
        let per_block = |s: KvShape| (s.key_block_len() + s.value_block_len()) as u128;
        let bytes = shapes.clone().map(|s| per_block(s) * blocks as u128).sum::<u128>()
            * ty.bytes() as u128;
        if let Some(layer) = layers.iter().find(|l| l.dim == 0 || l.dim > MAX_HEAD_DIM) {
            return Err(Error::HeadSize(layer.dim));
        }
        if bytes > isize::MAX as u128 / 2 {
            return Err(Error::CacheTooLarge(bytes));
        }
        let layers =
            shapes.map(|shape| LayerKv::new(shape, blocks, ty)).collect::<Result<_, _>>()?;
        Ok(Self { layers })
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        let bytes = |layer: &LayerKv| match &layer.data {
            KvData::F32(k, v) => 4 * (k.len() + v.len()),
            KvData::Bf16(k, v) => 2 * (k.len() + v.len()),
        };
        self.layers.iter().map(bytes).sum()
    }

    /// Stores key and value rows (`[batch rows, heads * dim]` each) in `layer`'s blocks.
    pub fn store(&mut self, layer: usize, rows: (&[f32], &[f32]), batch: &Batch) {
        let LayerKv { shape, data } = &mut self.layers[layer];
        match data {
            KvData::F32(keys, values) => store_rows(*shape, (keys, values), rows, batch),
            KvData::Bf16(keys, values) => store_rows(*shape, (keys, values), rows, batch),
        }
    }

    /// Attention of the query rows `q` into `out`, `[batch rows, heads * dim]` each.
    pub fn attend(
        &self,
        (isa, pool): (Isa, &ThreadPool),
        layer: usize,
        (q, out): (&[f32], &mut [f32]),
        spec: &AttentionSpec,
        batch: &Batch,
    ) {
        let LayerKv { shape, data } = &self.layers[layer];
        let width = spec.heads * shape.dim;
        for sequence in batch.sequences() {
            let rows = sequence.rows.start * width..sequence.rows.end * width;
            let query = Query {
                q: &q[rows.clone()],
                heads: spec.heads,
                position: sequence.position,
                blocks: batch.block_table(sequence),
                scale: spec.scale,
                window: spec.window.unwrap_or(usize::MAX),
            };
            // Sixteen query vectors pass over the keys together: rows times heads of a group.
            let group = spec.heads / shape.heads;
            let tile = ((16 / group).max(1), group * shape.dim);
            let shape = *shape;
            pool.for_each_tile(&mut out[rows], width, tile, |mut tile| match data {
                KvData::F32(keys, values) => {
                    let kv = KvRef { shape, keys, values };
                    attention::attention(isa, &query, kv, &mut tile);
                }
                KvData::Bf16(keys, values) => {
                    let kv = KvRef { shape, keys, values };
                    attention::attention(isa, &query, kv, &mut tile);
                }
            });
        }
    }
}

impl LayerKv {
    fn new(shape: KvShape, blocks: usize, ty: KvType) -> Result<Self, Error> {
        let (keys, values) = (blocks * shape.key_block_len(), blocks * shape.value_block_len());
        let data = match ty {
            KvType::F32 => {
                KvData::F32(AlignedVec::try_zeroed(keys)?, AlignedVec::try_zeroed(values)?)
            }
            KvType::Bf16 => {
                KvData::Bf16(AlignedVec::try_zeroed(keys)?, AlignedVec::try_zeroed(values)?)
            }
        };
        Ok(Self { shape, data })
    }
}

fn store_rows<T: KvElem>(
    shape: KvShape,
    (keys, values): (&mut [T], &mut [T]),
    (k, v): (&[f32], &[f32]),
    batch: &Batch,
) {
    let width = shape.heads * shape.dim;
    for sequence in batch.sequences() {
        let table = batch.block_table(sequence);
        for (i, row) in sequence.rows.clone().enumerate() {
            let position = sequence.position + i;
            let at = (table[position / shape.block] as usize, position % shape.block);
            let new = (&k[row * width..][..width], &v[row * width..][..width]);
            attention::store(shape, (&mut *keys, &mut *values), at, new);
        }
    }
}
