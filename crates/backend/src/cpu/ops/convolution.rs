//! Depthwise convolutions over the last few positions of each sequence.

use crate::cpu::{Cpu, Workspace};
use crate::{Batch, Buffer, ShortConv};
use kernels::conv::{MAX_KERNEL, short_conv};
use kernels::kv::KvType;

impl Cpu {
    /// Stores the rows of `x` as rows of `layer`, and leaves in `x` what was stored.
    pub(in crate::cpu) fn store_and_round(&mut self, at: (usize, usize), x: Buffer, batch: &Batch) {
        let data = self.take(x);
        self.kv.store_plain(&self.pool, at, &data, batch);
        self.put(x, data);
        if self.kv.plain(at.0, at.1).plain.ty == KvType::F32 {
            return;
        }
        self.each_row("short_conv", (x, batch.rows()), |this, row, values| {
            let rows = this.kv.plain(at.0, at.1);
            let (index, position) = batch.place(row);
            let table = batch.block_table(&batch.sequences()[index], rows.group);
            let offset = rows.offset(position, table);
            rows.plain.load(&rows.data[offset..][..rows.plain.row_bytes()], values);
        });
    }

    /// The convolution of `x`, which holds the stored values of the batch's rows.
    pub(in crate::cpu) fn convolve(
        &mut self,
        at: (usize, usize),
        x: Buffer,
        spec: &ShortConv,
        batch: &Batch,
    ) {
        let Workspace { width, .. } = self.buffers[x.0];
        let kernel = self.vectors[spec.weight.0].len() / width;
        assert!((1..=MAX_KERNEL).contains(&kernel), "a kernel of {kernel} positions");
        // Rows before those of the batch, of all sequences.
        let mut before = std::mem::take(&mut self.convolved);
        before.clear();
        before.resize(batch.sequences().len() * (kernel - 1) * width, 0.0);
        let rows = self.kv.plain(at.0, at.1);
        for (index, sequence) in batch.sequences().iter().enumerate() {
            let table = batch.block_table(sequence, rows.group);
            for back in 1..kernel.min(sequence.position + 1) {
                let offset = rows.offset(sequence.position - back, table);
                let start = (index * (kernel - 1) + back - 1) * width;
                let bytes = &rows.data[offset..][..rows.plain.row_bytes()];
                rows.plain.load(bytes, &mut before[start..][..width]);
            }
        }
        self.each_row("short_conv", (spec.out, batch.rows()), |this, row, out| {
            let (index, position) = batch.place(row);
            let here = row - batch.sequences()[index].rows.start;
            let mut inputs = [None; MAX_KERNEL];
            for (back, input) in inputs[..kernel].iter_mut().rev().enumerate() {
                *input = if back <= here {
                    Some(this.row(x, row - back))
                } else if back <= position {
                    let at = index * (kernel - 1) + back - here - 1;
                    Some(&before[at * width..][..width])
                } else {
                    None
                };
            }
            let weight = &this.vectors[spec.weight.0];
            let bias = spec.bias.map(|bias| &this.vectors[bias.0][..]);
            short_conv(this.isa, &inputs[..kernel], weight, bias, spec.silu, out);
        });
        self.convolved = before;
    }
}
