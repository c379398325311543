//! Placeholder.
#![allow(missing_docs)]
use crate::Isa;
use crate::attention::rows::RowList;
pub fn index_scores(_: Isa, q: &[f32], weights: &[f32], list: RowList<'_>, out: &mut [f32]) {
    let dim = list.rows.dim;
    for (offset, out) in list.offsets.iter().zip(out) {
        let mut row = vec![0.0; dim];
        list.rows.load(&list.data[*offset..][..list.rows.row_bytes()], &mut row);
        *out = q
            .chunks_exact(dim)
            .zip(weights)
            .map(|(q, w)| w * q.iter().zip(&row).map(|(a, b)| a * b).sum::<f32>().max(0.0))
            .sum();
    }
}
pub fn top_k(scores: &[f32], k: usize, _: &mut Vec<u32>, chosen: &mut Vec<u32>) {
    chosen.clear();
    chosen.extend(0..scores.len() as u32);
    chosen.sort_by(|a, b| scores[*b as usize].total_cmp(&scores[*a as usize]).then(a.cmp(b)));
    chosen.truncate(k);
    chosen.sort_unstable();
}
