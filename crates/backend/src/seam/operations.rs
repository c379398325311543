//! Operations on rows: what every device computes.

use crate::adapters::AdaptedRows;
use crate::batch::Batch;
use crate::error::Error;
use crate::handles::{
    AttentionSpec, Buffer, Compression, Experts, HeadColumns, HyperSpec, IndexSpec, LongRows,
    Matrix, RecurrenceSpec, RmsNorm, Rope, RowAttention, Selection, ShortConv, Table,
};
use crate::map_op::MapOp;
use kernels::kv::Rounding;

/// What a device computes. Buffers are `[rows, width]` in f32; `rows` is the number of rows in use,
/// at most that of the buffers.
pub trait Operations {
    /// Allocates a workspace `[rows, width]` of zeros.
    ///
    /// # Errors
    /// If there is not enough memory.
    fn buffer(&mut self, rows: usize, width: usize) -> Result<Buffer, Error>;
    /// `out[i] = table[tokens[i]]`; `out` is `[tokens, width]`. Where rows of `out` are wider than
    /// those of the table, each is as many of these as fit, one after another.
    fn embed(&mut self, table: Table, tokens: &[u32], out: Buffer);
    /// `out = rms_norm(x) * weight` for each unit of values, with the weights of each unit in turn;
    /// `x` and `out` are `[rows, units * norm.unit]`.
    fn rms_norm(&mut self, x: Buffer, norm: RmsNorm, out: Buffer, rows: usize);
    /// `out = x - mean(x)` for each row; `x` and `out` are `[rows, width]`.
    fn center(&mut self, x: Buffer, out: Buffer, rows: usize);
    /// Computes `op` in place for each value of `x`, `[rows, width]`.
    fn map(&mut self, op: MapOp, x: Buffer, rows: usize);
    /// `out = x * weight^T` for each weight `[outputs, inputs]` and `out` `[rows, outputs]`; `x` is
    /// `[rows, inputs]` and is rounded once for all.
    fn linear(&mut self, x: Buffer, outputs: &[(Matrix, Buffer)], rows: usize);
    /// What low-rank adapters add to products; `None` where the device computes none.
    fn adapters(&mut self) -> Option<&mut dyn AdapterOperations> {
        None
    }
    /// `out[h] = x[h] * weights[h]^T` for the columns of each head `h`: `x[h]` is `[rows, inputs]`,
    /// `weights[h]` `[outputs, inputs]`, `out[h]` `[rows, outputs]`.
    fn linear_heads(&mut self, x: HeadColumns, weights: &[Matrix], out: HeadColumns, rows: usize);
    /// Copies the first `width` columns of each head of `x` to those of `out`, `[rows, width]`
    /// each.
    fn copy_heads(&mut self, x: HeadColumns, width: usize, out: HeadColumns, rows: usize);
    /// Computes the angles of `positions`, one row each, `[positions, pairs]`; of rows in `long`
    /// with the frequencies of `long_rope`, which has as many.
    fn rope_angles(&mut self, rope: Rope, positions: &[u32], long: LongRows<'_>);
    /// Rotates the first `2 * pairs` columns of each head in each row by the angles of the row.
    fn rotate(&mut self, x: HeadColumns, rope: Rope, rows: usize);
    /// As [`rotate`](Operations::rotate), by the negated angles.
    fn rotate_back(&mut self, x: HeadColumns, rope: Rope, rows: usize);
    /// Stores the batch's `keys` and `values`, `[rows, KV heads * head]` each, in the cache of
    /// `layer`; only keys where values are part of them.
    fn store_kv(&mut self, layer: usize, keys: Buffer, values: Option<Buffer>, batch: &Batch);
    /// Attention of the batch's queries `q` `[rows, heads * key]` over the positions of each row's
    /// own sequence up to the row's; `out` is `[rows, heads * value]`.
    fn attention(
        &mut self,
        layer: usize,
        q: Buffer,
        out: Buffer,
        spec: &AttentionSpec,
        batch: &Batch,
    );
    /// Attention to later positions; `None` where the device computes none.
    fn bidirectional(&mut self) -> Option<&mut dyn BidirectionalAttention> {
        None
    }
    /// Rounds each head of `x`, `width` columns, as plain rows of the cache are.
    fn round(&mut self, x: HeadColumns, width: usize, rounding: Rounding, rows: usize);
    /// Stores `x`, `[rows, dim]`, as rows `which` of `layer`: plain rows, one for each position.
    fn store_rows(&mut self, layer: usize, which: usize, x: Buffer, batch: &Batch);
    /// Computes and stores the compressed rows of `layer` that the positions of the batch complete
    /// (DeepSeek V4): per channel a softmax over the gates of the positions, then a norm, a
    /// rotation by the row's first position, and rounding. Without gates the mean takes the place
    /// of the softmax.
    fn compress(&mut self, layer: usize, spec: &Compression, batch: &Batch);
    /// Makes space for the choice of up to `top` rows for each of `rows` rows.
    ///
    /// # Errors
    ///
    /// If the memory is not available.
    fn selection(&mut self, rows: usize, top: usize) -> Result<Selection, Error>;
    /// Chooses the compressed rows that each row of the batch attends to: the best of those
    /// completed up to its position by `sum of weights[h] * max(0, q[h] * row)`, ties to the
    /// earlier row. `q` is `[rows, heads * dim]`, `weights` `[rows, heads]`.
    fn select_rows(
        &mut self,
        layer: usize,
        q: Buffer,
        weights: Buffer,
        spec: &IndexSpec,
        batch: &Batch,
    );
    /// Attention of the batch's queries `q`, `[rows, heads * dim]`, over plain rows that are keys
    /// and values of all heads: rows without a window, all or the selected runs of them and those
    /// after the last whole run, and rows of the window; `out` is `[rows, heads * dim]`.
    fn attend_rows(
        &mut self,
        layer: usize,
        q: Buffer,
        out: Buffer,
        spec: &RowAttention,
        batch: &Batch,
    );
    /// Copies each row of `x`, `[rows, hidden]`, into every stream of `out`, `[rows, streams *
    /// hidden]`.
    fn spread_streams(&mut self, x: Buffer, out: Buffer, rows: usize);
    /// Turns products `z`, `[rows, (2 + n) * n]` for `n` streams, into factors: of the streams that
    /// are read, of what is written, and of the streams that remain (hyper-connections with
    /// Sinkhorn's normalisation). [`HyperSpec::kind`] says which: of streams that are not mixed
    /// products are `[rows, 2 * n]` and factors `[rows, (2 + n) * n]`, of the head both are
    /// `[rows, n]`.
    fn stream_factors(&mut self, z: Buffer, spec: &HyperSpec, out: Buffer, rows: usize);
    /// `out = sum of factors[s] * x[s]` over the streams of `x`.
    fn read_streams(&mut self, x: Buffer, factors: Buffer, out: Buffer, rows: usize);
    /// `x[d] = post[d] * y + sum of C[s][d] * x[s]`, with the factors of
    /// [`stream_factors`](Operations::stream_factors).
    fn write_streams(&mut self, x: Buffer, factors: Buffer, y: Buffer, rows: usize);
    /// `out[s] = sigmoid(root(keys[s] . queries[s] / sqrt(hidden))) * values` for each stream `s`
    /// of `keys`, `queries` and `out`, `[rows, streams * hidden]`, where `values` are `[rows,
    /// hidden]` and `root(g) = sign(g) sqrt(max(|g|, 1e-6))`.
    fn gate_streams(
        &mut self,
        keys: Buffer,
        queries: Buffer,
        values: Buffer,
        out: Buffer,
        rows: usize,
    );
    /// Stores the rows of `x`, `[rows, channels]`, as rows `which` of `layer`, and computes
    /// `out[t] = sum of weight[j] * x[t - kernel + 1 + j]` for each channel, or the silu of that.
    /// Changes `x`.
    fn short_conv(
        &mut self,
        layer: usize,
        which: usize,
        x: Buffer,
        spec: &ShortConv,
        batch: &Batch,
    );
    /// Takes the rows of the batch through the recurrence of `layer`, saves states behind the rows
    /// that the batch names, and computes guessed rows without changing the state. Changes the
    /// inputs.
    fn recur(&mut self, layer: usize, spec: &RecurrenceSpec, batch: &Batch);
    /// `out[i] = 0 + w1 * e1(x[i]) + w2 * e2(x[i]) ...` for the experts that the router's `logits`
    /// `[rows, experts]` choose, in ascending order of their numbers; `x` and `out` are
    /// `[rows, hidden]`. Chosen experts that are held elsewhere contribute nothing here. `tokens`
    /// are the ids of the rows, by which experts may be chosen instead.
    fn mix_experts(
        &mut self,
        x: Buffer,
        logits: Buffer,
        experts: Experts,
        out: Buffer,
        tokens: &[u32],
    );
    /// `out[i] = x[rows[i]]`; `out` is `[rows.len(), width]`.
    fn gather(&mut self, x: Buffer, rows: &[u32], out: Buffer);
    /// Brings the first rows of a buffer to host memory, where [`Operations::read`] finds them.
    fn fetch(&mut self, _x: Buffer, _rows: usize) {}
    /// The first rows of a buffer, `[rows, width]`, as the last [`Operations::fetch`] left them.
    fn read(&self, x: Buffer, rows: usize) -> &[f32];
    /// Changes the first rows of a buffer, `[rows, width]`, in host memory, as by sums over ranks.
    fn update(&mut self, x: Buffer, rows: usize, change: &mut dyn FnMut(&mut [f32]));
    /// The first of the first `rows` rows that holds NaN or infinities.
    fn first_not_finite(&mut self, x: Buffer, rows: usize) -> Option<usize> {
        self.fetch(x, rows);
        let values = self.read(x, rows);
        let at = values.iter().position(|value| !value.is_finite())?;
        Some(at / (values.len() / rows))
    }
}

/// Products with the factors of low-rank adapters.
pub trait AdapterOperations {
    /// `out += scale * (x a^T) b^T` for each projection, named by its number, with its `out`
    /// `[rows, outputs]`, for the rows in `adapted`, ascending: with the factors that each of
    /// their adapters has for it, one adapter after the other. `x` is `[rows, inputs]` and is not
    /// rounded.
    fn add_low_rank(&mut self, x: Buffer, outputs: &[(usize, Buffer)], adapted: &[AdaptedRows]);
}

/// Attention of encoders.
pub trait BidirectionalAttention {
    /// As [`Operations::attention`], also over later positions of the sequence, as far as the
    /// window reaches ([`Window::ahead`](crate::Window::ahead)).
    fn attend_both_ways(
        &mut self,
        layer: usize,
        q: Buffer,
        out: Buffer,
        spec: &AttentionSpec,
        batch: &Batch,
    );
}
