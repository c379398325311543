//! The cache: memory of rows in blocks, storing rows, and attention over rows of heads.
//!
//! Each kind of rows of each layer has memory of its own, keys separate from values, so that few
//! exceed what a kernel can see of one run. Block `b` of the group is block `b` of every memory of
//! the group. A row is a whole number of words:
//! - rows of heads: `[blocks, KV heads, positions of a block, words of a row]`,
//! - plain rows: `[blocks, places of a block, words of a row]`.
//!
//! Words hold values as [`Form`] says. Plain rows of [`KvType::Fp8`] are BF16, which holds values
//! that were rounded to codes under powers of two exactly.

mod attention;
mod round;
mod store;

use crate::gpu::{Access, Kernel};
use crate::parts::{EACH, dealt};
use crate::webgpu::held::cache::block_words;
use crate::webgpu::held::device::WebGpu;
use crate::wgsl::params;
use backend::BlockCopy;

pub(crate) use round::{ROUNDING, codes};
pub(crate) use store::{PLAIN_ROWS, STORED};

static COPY: Kernel = Kernel {
    name: "copy_block",
    source: &[CopyParams::WGSL, include_str!("../../shaders/copy_block.wgsl"), EACH],
    bindings: &[Access::Write],
};

params! {
    struct CopyParams {
        count: u32,
        from_at: u32,
        to_at: u32,
    }
}

impl WebGpu {
    /// Copies blocks in all layers, one copy after the other.
    pub(crate) fn copy_kv_blocks(&mut self, copies: &[BlockCopy]) {
        for &BlockCopy { group, from, to } in copies {
            for rows in self.kv.layers.iter().flatten().filter(|rows| rows.group == group) {
                let count = block_words(&rows.rows, rows.block, rows.form) as u32;
                for words in [Some(&rows.words), rows.values.as_ref()].into_iter().flatten() {
                    let params = CopyParams { count, from_at: from * count, to_at: to * count };
                    self.gpu.run(&COPY, dealt(count as usize), &[words], &params);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
