//! Attention over a KV cache stored in blocks (see [`kv`](crate::kv) for their layout).
//!
//! Every output has one order of additions, independent of the rows that are computed together and
//! of the chunks of the prompt. Positions form spans of [`SPAN`], aligned to absolute positions.
//! Within a span: a score adds over the head in ascending order; weights are `exp(score -
//! largest)`; their sum adds, in lane `l` of sixteen, positions that leave `l` when divided by 16
//! in ascending order, and folds the lanes; a value adds over positions in ascending order. Spans
//! are added in ascending order with a running maximum (Milakov and Gimelshein, 2018). Different
//! threads may therefore compute the spans of one row ([`attention_span`], then [`combine_spans`])
//! or one thread all of them ([`attention`]), with equal bits. Block size does not enter.
//!
//! All arithmetic is f32 over the exact values of the cache, with one exception: where
//! [`Query::narrow`] allows it, the cache is BF16 and the CPU has fast BF16 dot products, queries
//! and weights are rounded to BF16 (the sum adds the rounded weights) and two neighbours of the
//! head, or two positions, are added at a time, as the hardware does.

mod latent;
mod mac;
mod query;
pub mod rows;
mod scores;
mod scratch;
mod softmax;
mod source;
mod span;
mod tile;
mod values;

use crate::isa::Isa;
#[cfg(target_arch = "x86_64")]
use crate::isa::call_compiled;
use crate::kv::{KvLayout, KvType, MAX_HEAD_DIM, SPAN};
use crate::lanes::{LANES, isa_dispatch};
use base::Tile;
use mac::Mac;
use scratch::{AttentionScratch, SCRATCH};
use softmax::{Softmax, combine};
use source::KvSource;
use span::QueryPass;

pub(crate) use mac::Tiles;
pub use query::{KvRef, Query, Window};
pub(crate) use tile::{QueryLanes, RowTile, TILE, UseProducts, each_tile, products};

/// Allocates the scratch of this thread, so that attention allocates nothing later.
pub fn warm_up() {
    SCRATCH.with_borrow_mut(|_| ());
}

/// Number of values that [`attention_span`] writes for one query vector: the largest score, the sum
/// of the weights, the weighted values.
pub fn partial_len(layout: &KvLayout) -> usize {
    2 + layout.value_stride()
}

/// Computes the outputs of `tile`: the query's rows by the columns of the query heads that share
/// one KV head (`heads / kv heads * value dim` columns).
pub fn attention(isa: Isa, query: &Query<'_>, kv: KvRef<'_>, tile: &mut Tile<'_, f32>) {
    query.check(kv);
    let columns = query.group(kv) * kv.layout.value_dim();
    assert!(tile.cols().len() == columns, "one KV head's columns");
    assert!(tile.rows().len() == query.rows, "the query's rows");
    let kv_head = tile.cols().start / columns;
    dispatch(isa, &HeadTask { query, kv, kv_head }, AttentionOutput::Rows(tile));
}

/// Computes what span `span` adds to the outputs of the query heads that share `kv_head`: for
/// each row and head of the group [`partial_len`] values of `out`, for [`combine_spans`].
pub fn attention_span(
    isa: Isa,
    query: &Query<'_>,
    kv: KvRef<'_>,
    (kv_head, span): (usize, usize),
    out: &mut [f32],
) {
    query.check(kv);
    assert!(kv_head < kv.layout.heads && query.spans().contains(&span), "a span of a KV head");
    assert!(out.len() >= query.rows * query.group(kv) * partial_len(&kv.layout), "partial results");
    dispatch(isa, &HeadTask { query, kv, kv_head }, AttentionOutput::Span(span, out));
}

/// A unit of work: the query's rows in one KV head.
struct HeadTask<'a> {
    query: &'a Query<'a>,
    kv: KvRef<'a>,
    kv_head: usize,
}

/// Destination of the results.
enum AttentionOutput<'a, 't> {
    Rows(&'a mut Tile<'t, f32>),
    /// Results of one span.
    Span(usize, &'a mut [f32]),
}

#[allow(unsafe_code)]
fn dispatch(isa: Isa, task: &HeadTask<'_>, output: AttentionOutput<'_, '_>) {
    SCRATCH.with_borrow_mut(|scratch| match task.kv.layout.ty {
        KvType::F32 => attend_f32(isa, task, output, scratch),
        #[cfg(target_arch = "x86_64")]
        KvType::Bf16 if task.query.narrow && isa.has_bf16_dot() && !isa.has_tiles() => {
            call_compiled!(
                Avx512Bf16,
                attend::<source::Bf16Dot>,
                task: &HeadTask<'_>,
                output: AttentionOutput<'_, '_>,
                scratch: &mut AttentionScratch,
            )
        }
        KvType::Bf16 => attend_bf16(isa, task, output, scratch),
        KvType::F16 => attend_f16(isa, task, output, scratch),
        KvType::Q8_0 => attend_q8_0(isa, task, output, scratch),
        KvType::Fp8 => unreachable!("layouts are checked"),
    });
}

/// One function for a storage type, with a shell for each instruction set.
macro_rules! attend_as {
    ($name:ident, $body:ident, $source:ident) => {
        isa_dispatch! {
            fn $name(
                task: &HeadTask<'_>,
                output: AttentionOutput<'_, '_>,
                scratch: &mut AttentionScratch,
            ) = $body
        }

        #[inline(always)]
        fn $body<L: Tiles>(
            task: &HeadTask<'_>,
            output: AttentionOutput<'_, '_>,
            scratch: &mut AttentionScratch,
        ) {
            attend::<source::$source<L>>(task, output, scratch);
        }
    };
}

attend_as!(attend_f32, attend_f32_body, F32);
attend_as!(attend_bf16, attend_bf16_body, Bf16);
attend_as!(attend_f16, attend_f16_body, F16);
attend_as!(attend_q8_0, attend_q8_0_body, Q8_0);

#[inline(always)]
fn attend<S: KvSource>(
    task: &HeadTask<'_>,
    mut output: AttentionOutput<'_, '_>,
    scratch: &mut AttentionScratch,
) {
    for pass in QueryPass::all(task.query, task.kv, task.kv_head) {
        span::prepare::<S>(&pass, scratch);
        let (oldest, last) = pass.reach();
        scratch.total = [Softmax::NONE; scratch::QUERIES];
        let spans = match output {
            AttentionOutput::Span(span, _) => span..span + 1,
            AttentionOutput::Rows(_) => {
                scratch.totals[..pass.count * task.kv.layout.value_stride()].fill(0.0);
                oldest / SPAN..last / SPAN + 1
            }
        };
        for span in spans {
            if span < oldest / SPAN || span > last / SPAN {
                scratch.softmax = [Softmax::NONE; scratch::QUERIES];
                continue;
            }
            span::attend::<S>(&pass, span, scratch);
            if let AttentionOutput::Rows(_) = output {
                add_up::<S>(&pass, scratch);
            }
        }
        match &mut output {
            AttentionOutput::Rows(tile) => put_rows::<S::Mac>(&pass, tile, scratch),
            AttentionOutput::Span(_, out) => put_partial(&pass, out, scratch),
        }
    }
}

/// Adds the span in `scratch` to the total.
#[inline(always)]
fn add_up<S: KvSource>(pass: &QueryPass<'_>, scratch: &mut AttentionScratch) {
    let stride = pass.kv.layout.value_stride();
    for i in 0..pass.count {
        let values = &scratch.sums[i * stride..][..stride];
        let sums = &mut scratch.totals[i * stride..][..stride];
        let span = scratch.softmax[i];
        combine::<<S::Mac as Mac>::Lanes>(&mut scratch.total[i], sums, span, values);
    }
}

#[inline(always)]
fn put_rows<S: Mac>(
    pass: &QueryPass<'_>,
    tile: &mut Tile<'_, f32>,
    scratch: &mut AttentionScratch,
) {
    let (dim, stride) = (pass.kv.layout.value_dim(), pass.kv.layout.value_stride());
    for i in 0..pass.count {
        let sums = &mut scratch.totals[i * stride..][..stride];
        let (row, head) = pass.row_and_head(i);
        let row = tile.rows().start + row;
        add_sink::<S::Lanes>(pass.sink(head), &mut scratch.total[i], sums);
        divide(sums, scratch.total[i].sum, &mut tile.row_mut(row)[head * dim..][..dim]);
    }
}

/// Adds the weight of a sink, if there is one.
#[inline(always)]
fn add_sink<L: Tiles>(sink: Option<f32>, total: &mut Softmax, sums: &mut [f32]) {
    if let Some(score) = sink {
        const NOTHING: [f32; MAX_HEAD_DIM] = [0.0; MAX_HEAD_DIM];
        let place = Softmax { max: score, sum: 1.0 };
        combine::<L>(total, sums, place, &NOTHING[..sums.len()]);
    }
}

#[inline(always)]
fn divide(sums: &[f32], sum: f32, out: &mut [f32]) {
    for (out, value) in out.iter_mut().zip(sums) {
        *out = value / sum;
    }
}

#[inline(always)]
fn put_partial(pass: &QueryPass<'_>, out: &mut [f32], scratch: &AttentionScratch) {
    let stride = pass.kv.layout.value_stride();
    let partials = out.chunks_exact_mut(partial_len(&pass.kv.layout)).skip(pass.first);
    for (i, partial) in partials.take(pass.count).enumerate() {
        let Softmax { max, sum } = scratch.softmax[i];
        partial[..2].copy_from_slice(&[max, sum]);
        partial[2..].copy_from_slice(&scratch.sums[i * stride..][..stride]);
    }
}

isa_dispatch! {
    /// Combines the results of [`attention_span`] for the spans of a query in one KV head, in
    /// ascending order, to the outputs of `tile` (as in [`attention`]). The results of span `i`
    /// begin at `partials[i * apart]`. `sinks` has one score per head of the tile, or is empty.
    pub fn combine_spans(
        layout: &KvLayout,
        partials: &[f32],
        apart: usize,
        sinks: &[f32],
        tile: &mut Tile<'_, f32>,
    ) = combine_spans_body
}

#[inline(always)]
fn combine_spans_body<L: Tiles>(
    layout: &KvLayout,
    partials: &[f32],
    apart: usize,
    sinks: &[f32],
    tile: &mut Tile<'_, f32>,
) {
    let (len, stride) = (partial_len(layout), layout.value_stride());
    let mut at = 0;
    for row in tile.rows() {
        let heads = tile.row_mut(row).chunks_exact_mut(layout.value_dim());
        for (head, out) in heads.enumerate() {
            let (mut total, mut sums) = (Softmax::NONE, [0.0; MAX_HEAD_DIM]);
            for span in partials.chunks(apart) {
                let partial = &span[at..][..len];
                let softmax = Softmax { max: partial[0], sum: partial[1] };
                combine::<L>(&mut total, &mut sums[..stride], softmax, &partial[2..]);
            }
            add_sink::<L>(sinks.get(head).copied(), &mut total, &mut sums[..stride]);
            divide(&sums, total.sum, out);
            at += len;
        }
    }
}

const _: () = assert!(SPAN.is_multiple_of(LANES));

#[cfg(test)]
mod tests;
