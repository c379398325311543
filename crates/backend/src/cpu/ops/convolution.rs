//! Depthwise convolutions over the last few positions of each sequence.

use crate::batch::Batch;
use crate::cpu::core::CpuCore;
use crate::cpu::kv::KvCache;
use crate::handles::{Buffer, ShortConv};
use kernels::conv::{MAX_KERNEL, short_conv};
use kernels::kv::KvType;

/// Stored rows before those of a batch, of all its sequences; kept for the next call.
#[derive(Default)]
pub(in crate::cpu) struct ConvolvedRows(Vec<f32>);

impl ConvolvedRows {
    /// Stores the rows of `x` as rows of `layer`, and computes their convolution.
    pub fn short_conv(
        &mut self,
        core: &mut CpuCore,
        kv: &mut KvCache,
        at: (usize, usize),
        x: Buffer,
        spec: &ShortConv,
        batch: &Batch,
    ) {
        store_and_round(core, kv, at, x, batch);
        self.convolve(core, kv, at, x, spec, batch);
    }

    /// The convolution of `x`, which holds the stored values of the batch's rows.
    fn convolve(
        &mut self,
        core: &mut CpuCore,
        kv: &KvCache,
        at: (usize, usize),
        x: Buffer,
        spec: &ShortConv,
        batch: &Batch,
    ) {
        let width = core.width(x);
        let kernel = core.vectors[spec.weight.0].len() / width;
        assert!((1..=MAX_KERNEL).contains(&kernel), "a kernel of {kernel} positions");
        // Rows before those of the batch, of all sequences.
        let before = &mut self.0;
        before.clear();
        before.resize(batch.sequences().len() * (kernel - 1) * width, 0.0);
        let rows = kv.plain(at.0, at.1);
        for (index, sequence) in batch.sequences().iter().enumerate() {
            let table = batch.block_table(sequence, rows.group);
            for back in 1..kernel.min(sequence.position + 1) {
                let offset = rows.offset(sequence.position - back, table);
                let start = (index * (kernel - 1) + back - 1) * width;
                let bytes = &rows.data[offset..][..rows.plain.row_bytes()];
                rows.plain.load(bytes, &mut before[start..][..width]);
            }
        }
        core.each_row("short_conv", (spec.out, batch.rows()), |core, row, out| {
            let (index, position) = batch.place(row);
            let here = row - batch.sequences()[index].rows.start;
            let mut inputs = [None; MAX_KERNEL];
            for (back, input) in inputs[..kernel].iter_mut().rev().enumerate() {
                *input = if back <= here {
                    Some(core.row(x, row - back))
                } else if back <= position {
                    let at = index * (kernel - 1) + back - here - 1;
                    Some(&before[at * width..][..width])
                } else {
                    None
                };
            }
            let weight = &core.vectors[spec.weight.0];
            let bias = spec.bias.map(|bias| &core.vectors[bias.0][..]);
            short_conv(core.isa, &inputs[..kernel], weight, bias, spec.silu, out);
        });
    }
}

/// Stores the rows of `x` as rows of `layer`, and leaves in `x` what was stored.
fn store_and_round(
    core: &mut CpuCore,
    kv: &mut KvCache,
    at: (usize, usize),
    x: Buffer,
    batch: &Batch,
) {
    kv.store_plain(&core.pool, at, &core.buffers[x.0].data, batch);
    let rows = kv.plain(at.0, at.1);
    if rows.plain.ty == KvType::F32 {
        return;
    }
    core.each_row("short_conv", (x, batch.rows()), |_, row, values| {
        let (index, position) = batch.place(row);
        let table = batch.block_table(&batch.sequences()[index], rows.group);
        let offset = rows.offset(position, table);
        rows.plain.load(&rows.data[offset..][..rows.plain.row_bytes()], values);
    });
}
