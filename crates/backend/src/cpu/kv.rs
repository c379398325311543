//! The KV cache of the CPU: memory for keys and values of all layers, and storing them.

use crate::{Batch, Error, KvType, LayerCache};
use base::{AlignedVec, ThreadPool};
use kernels::attention::{self, KvRef};
use kernels::kv::{KvLayout, MAX_HEAD_DIM};
use std::ops::Range;

/// Rows from which storing them is worth handing to other threads.
const PARALLEL_ROWS: usize = 8;

/// Bytes that the system gives at once, or a part of them.
const PAGE: usize = 4096;

/// Keys and values of all layers.
#[derive(Default)]
pub(super) struct KvCache {
    layers: Vec<LayerKv>,
    /// `[blocks][layers][heads][head bytes]`: blocks in use are contiguous, so that huge pages hold
    /// little else.
    data: AlignedVec<u8>,
    /// Bytes of a block of all layers.
    stride: usize,
}

#[derive(Clone, Copy)]
struct LayerKv {
    layout: KvLayout,
    /// Offset of its part of a block.
    start: usize,
}

impl KvCache {
    /// `blocks` zeroed blocks of `block` positions for each of `layers`; attention runs on the
    /// threads of `pool`.
    pub fn new(
        pool: &ThreadPool,
        layers: &[LayerCache],
        (block, blocks): (usize, usize),
        ty: KvType,
    ) -> Result<Self, Error> {
        if let Some(layer) = layers.iter().find(|l| l.dim == 0 || l.dim > MAX_HEAD_DIM) {
            return Err(Error::HeadSize(layer.dim));
        }
        let per_block = |layer: &LayerCache| layer.block_bytes(block, ty) as u128;
        let bytes = layers.iter().map(per_block).sum::<u128>() * blocks as u128;
        if bytes > isize::MAX as u128 / 2 {
            return Err(Error::CacheTooLarge(bytes));
        }
        let mut stride = 0;
        let place = |layer: &LayerCache| {
            let (layout, start) = (layer.layout(block, ty), stride);
            stride += layout.block_bytes();
            LayerKv { layout, start }
        };
        let layers = layers.iter().map(place).collect();
        let data = AlignedVec::try_zeroed(blocks * stride)?;
        pool.run(&|_| attention::warm_up());
        Ok(Self { layers, data, stride })
    }

    /// Bytes of keys and values.
    pub fn bytes(&self) -> usize {
        self.data.len()
    }

    /// Makes the system provide the memory of `blocks` now instead of at the first write.
    pub fn touch(&mut self, pool: &ThreadPool, blocks: Range<usize>) {
        let stride = self.stride;
        let data = &mut self.data[blocks.start * stride..blocks.end * stride];
        pool.for_each_tile(data, stride, (1, stride), |mut tile| {
            for row in tile.rows() {
                for byte in tile.row_mut(row).iter_mut().step_by(PAGE) {
                    // The bytes stay as they are; the compiler must not know that.
                    *byte = std::hint::black_box(*byte);
                }
            }
        });
    }

    /// Copies block `from` to block `to` in all layers.
    pub fn copy(&mut self, from: u32, to: u32) {
        let at = |block: u32| block as usize * self.stride;
        let (from, to) = (at(from), at(to));
        self.data.copy_within(from..from + self.stride, to);
    }

    /// Stores key and value rows (`[batch rows, heads * dim]` each, the latter none where values
    /// are part of the keys) in `layer`'s blocks.
    pub fn store(
        &mut self,
        pool: &ThreadPool,
        layer: usize,
        (k, v): (&[f32], &[f32]),
        batch: &Batch,
    ) {
        let LayerKv { layout, start } = self.layers[layer];
        let (block, head, stride) = (layout.block_bytes(), layout.head_bytes(), self.stride);
        let put = |row: usize, h: usize, bytes: &mut [u8], slot: usize| {
            let at = (row * layout.heads + h) * layout.dim;
            let value = if layout.latent.is_some() { &[] } else { &v[at..][..layout.dim] };
            layout.store(bytes, slot, &k[at..][..layout.dim], value);
        };
        if batch.rows() < PARALLEL_ROWS {
            each_slot(batch, layout.block, |row, at, slot| {
                let heads = &mut self.data[at * stride + start..][..block];
                for (h, bytes) in heads.chunks_exact_mut(head).enumerate() {
                    put(row, h, bytes, slot);
                }
            });
            return;
        }
        let strips = (start..start + block, head);
        pool.for_each_strip(&mut self.data, stride, strips, |mut tile| {
            let h = (tile.cols().start - start) / head;
            each_slot(batch, layout.block, |row, at, slot| put(row, h, tile.row_mut(at), slot));
        });
    }

    /// Keys and values of a layer.
    pub fn layer(&self, layer: usize) -> KvRef<'_> {
        let LayerKv { layout, start } = self.layers[layer];
        KvRef { layout, data: &self.data[start..], stride: self.stride }
    }
}

/// Calls `f(row, block number, slot)` for each row of the batch.
fn each_slot(batch: &Batch, block: usize, mut f: impl FnMut(usize, usize, usize)) {
    for sequence in batch.sequences() {
        let table = batch.block_table(sequence);
        for (i, row) in sequence.rows.clone().enumerate() {
            let position = sequence.position + i;
            f(row, table[position / block] as usize, position % block);
        }
    }
}
