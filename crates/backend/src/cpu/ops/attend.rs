//! Attention spread over threads.
//!
//! Rows are cut into pieces of as many query vectors as pass over the keys together, and pieces
//! are spread over threads by KV head. Where that leaves threads without work, each span of
//! positions is computed on its own and the spans of a row are added up afterwards, which gives
//! the same bits.

use crate::batch::Batch;
use crate::cpu::core::CpuCore;
use crate::cpu::kv::KvCache;
use crate::handles::{AttentionSpec, Buffer, Mode};
use base::{AlignedVec, ThreadPool};
use kernels::Isa;
use kernels::attention::{self, KvRef, Query};
use std::ops::Range;

/// Query vectors of a piece.
const VECTORS: usize = 24;
/// Tiles for each thread that even out the work.
const TILES: usize = 4;

/// Attention of one layer.
#[derive(Clone, Copy)]
struct AttentionCall<'a> {
    pub isa: Isa,
    pub pool: &'a ThreadPool,
    /// Whether BF16 keys and values may be multiplied in BF16.
    pub narrow: bool,
    /// A sink for each head, or none.
    pub sinks: &'a [f32],
    /// The group of its rows.
    pub group: usize,
    pub kv: KvRef<'a>,
    /// Query rows of the batch, `[rows, heads * dim]`.
    pub q: &'a [f32],
    pub spec: &'a AttentionSpec,
    pub batch: &'a Batch,
}

/// The pieces of a call; kept, so that the next one allocates nothing.
#[derive(Default)]
pub(in crate::cpu) struct AttentionPlan {
    pieces: Vec<RowPiece>,
    /// Rows of each piece in the batch.
    cuts: Vec<Range<usize>>,
    /// Piece and span of each row of `partials`.
    items: Vec<(usize, usize)>,
    /// `[items][KV heads][rows of a piece * heads of a group][partial_len]`.
    partials: AlignedVec<f32>,
}

/// Rows of one sequence that are computed together.
struct RowPiece {
    /// Index of the sequence in the batch.
    sequence: usize,
    position: usize,
    /// Range of the query's spans among the items.
    items: Range<usize>,
}

impl AttentionPlan {
    /// Attention of a layer over the queries `q`.
    pub fn attend(
        &mut self,
        core: &mut CpuCore,
        kv: &KvCache,
        mode: Mode,
        (layer, q, out): (usize, Buffer, Buffer),
        spec: &AttentionSpec,
        batch: &Batch,
    ) {
        let mut data = core.take(out);
        let (group, kv) = kv.heads(layer);
        let call = AttentionCall {
            isa: core.isa,
            pool: &core.pool,
            narrow: mode == Mode::Fast,
            sinks: spec.sinks.map_or(&[][..], |sinks| &core.vectors[sinks.0]),
            group,
            kv,
            q: &core.buffers[q.0].data,
            spec,
            batch,
        };
        call.run(self, &mut data);
        core.put(out, data);
    }

    /// Bytes of partial results.
    pub fn bytes(&self) -> usize {
        4 * self.partials.len()
    }

    /// Cuts the batch into pieces of up to `rows` rows.
    fn cut(&mut self, batch: &Batch, rows: usize) {
        self.pieces.clear();
        self.cuts.clear();
        for (index, sequence) in batch.sequences().iter().enumerate() {
            for first in sequence.rows.clone().step_by(rows) {
                let position = sequence.position + first - sequence.rows.start;
                self.pieces.push(RowPiece { sequence: index, position, items: 0..0 });
                self.cuts.push(first..(first + rows).min(sequence.rows.end));
            }
        }
    }

    /// Lists the spans of every piece.
    fn list_spans(&mut self, call: &AttentionCall<'_>) {
        self.items.clear();
        for index in 0..self.pieces.len() {
            let first = self.items.len();
            let spans = call.query(self, index).spans();
            self.items.extend(spans.map(|span| (index, span)));
            self.pieces[index].items = first..self.items.len();
        }
    }
}

impl AttentionCall<'_> {
    /// Outputs of all rows into `out`, `[rows, heads * value dim]`.
    fn run(&self, plan: &mut AttentionPlan, out: &mut [f32]) {
        self.pool.begin("attention");
        plan.cut(self.batch, (VECTORS / self.group()).max(1));
        let out = &mut out[..self.batch.rows() * self.spec.heads * self.kv.layout.value_dim()];
        let threads = self.pool.threads();
        if threads > 1 && plan.pieces.len() * self.kv.layout.heads < TILES * threads {
            plan.list_spans(self);
            if plan.items.len() > plan.pieces.len() {
                return self.by_spans(plan, out);
            }
        }
        self.by_pieces(plan, out);
    }

    /// Query heads that share a KV head.
    fn group(&self) -> usize {
        self.spec.heads / self.kv.layout.heads
    }

    fn query(&self, plan: &AttentionPlan, piece: usize) -> Query<'_> {
        let (rows, piece) = (plan.cuts[piece].clone(), &plan.pieces[piece]);
        let sequence = &self.batch.sequences()[piece.sequence];
        let width = self.spec.heads * self.kv.layout.dim;
        Query {
            q: &self.q[rows.start * width..rows.end * width],
            rows: rows.len(),
            heads: self.spec.heads,
            position: piece.position,
            blocks: self.batch.block_table(sequence, self.group),
            scale: self.spec.scale,
            window: self.spec.window,
            end: sequence.end(),
            narrow: self.narrow,
            sinks: self.sinks,
        }
    }

    fn by_pieces(&self, plan: &AttentionPlan, out: &mut [f32]) {
        let columns = self.group() * self.kv.layout.value_dim();
        let width = self.spec.heads * self.kv.layout.value_dim();
        self.pool.for_each_cut(out, width, (&plan.cuts, columns), |piece, mut tile| {
            attention::attention(self.isa, &self.query(plan, piece), self.kv, &mut tile);
        });
    }

    fn by_spans(&self, plan: &mut AttentionPlan, out: &mut [f32]) {
        let layout = &self.kv.layout;
        let rows = plan.cuts.iter().map(Range::len).max().unwrap_or(0);
        let len = rows * self.group() * attention::partial_len(layout);
        let apart = layout.heads * len;
        let needed = plan.items.len() * apart;
        if plan.partials.len() < needed {
            plan.partials = AlignedVec::zeroed(needed.next_power_of_two());
        }
        let mut partials = std::mem::take(&mut plan.partials);
        let (isa, pool) = (self.isa, self.pool);
        pool.for_each_tile(&mut partials[..needed], apart, (1, len), |mut tile| {
            let (item, kv_head) = (tile.rows().start, tile.cols().start / len);
            let (piece, span) = plan.items[item];
            let query = self.query(plan, piece);
            attention::attention_span(isa, &query, self.kv, (kv_head, span), tile.row_mut(item));
        });
        let columns = self.group() * layout.value_dim();
        let width = self.spec.heads * layout.value_dim();
        pool.for_each_cut(out, width, (&plan.cuts, columns), |piece, mut tile| {
            let items = plan.pieces[piece].items.clone();
            let first = tile.cols().start / columns * len;
            let spans = items.start * apart + first..(items.end - 1) * apart + first + len;
            let first = tile.cols().start / layout.value_dim();
            let sinks = self.sinks.get(first..first + self.group()).unwrap_or_default();
            attention::combine_spans(isa, layout, &partials[spans], apart, sinks, &mut tile);
        });
        plan.partials = partials;
    }
}
