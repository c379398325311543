//! Placeholder.
#![allow(missing_docs)]
use crate::Isa;
use crate::kv::PlainRows;
pub use crate::kv::RowList;
use std::ops::Range;
#[derive(Clone, Debug)]
pub struct RowQuery<'a> {
    pub q: &'a [f32],
    pub heads: Range<usize>,
    pub scale: f32,
    pub sinks: &'a [f32],
}
pub fn attend_rows(_: Isa, query: &RowQuery<'_>, lists: [RowList<'_>; 2], out: &mut [f32]) {
    let dim = lists[1].rows.dim;
    let mut rows = Vec::new();
    for list in lists {
        for offset in list.offsets {
            let mut row = vec![0.0; dim];
            list.rows.load(&list.data[*offset..][..list.rows.row_bytes()], &mut row);
            rows.push(row);
        }
    }
    for (head, out) in query.heads.clone().zip(out.chunks_exact_mut(dim)) {
        let q = &query.q[head * dim..][..dim];
        let scores: Vec<f32> = rows
            .iter()
            .map(|r| q.iter().zip(r).map(|(a, b)| a * b).sum::<f32>() * query.scale)
            .collect();
        let sink = query.sinks.get(head).copied();
        let most = scores.iter().copied().chain(sink).fold(f32::NEG_INFINITY, f32::max);
        let weights: Vec<f32> = scores.iter().map(|s| (s - most).exp()).collect();
        let sum = weights.iter().sum::<f32>() + sink.map_or(0.0, |s| (s - most).exp());
        out.fill(0.0);
        for (row, weight) in rows.iter().zip(weights) {
            for (o, r) in out.iter_mut().zip(row) {
                *o += weight / sum * r;
            }
        }
    }
}
