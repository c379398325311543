//! Compressed rows, their choice, and attention over plain rows, as they are defined.

use super::machine::Reference;
use super::rotation::rotate;
use super::rows::{add_scaled, dot};
use crate::batch::Batch;
use crate::handles::{Buffer, Compression, IndexSpec, RowAttention};
use kernels::Isa;
use kernels::kv::RowLayout;
use kernels::kv::{Rounding, round};

impl Reference {
    /// Computes and stores the compressed rows that the batch completes.
    pub(super) fn compress_rows(&mut self, layer: usize, spec: &Compression, batch: &Batch) {
        for sequence in batch.sequences() {
            let every = self.cache.layers[layer][spec.out].spec.every;
            let end = sequence.end();
            for number in sequence.position / every..end / every {
                let row =
                    self.compressed(layer, spec, number, |rows| batch.block_table(sequence, rows));
                let rows = &mut self.cache.layers[layer][spec.out];
                let slot = rows.slot(number, batch.block_table(sequence, rows.group));
                rows.keys.row_mut(slot).copy_from_slice(&row);
            }
        }
    }

    /// Compressed row `number`; `table` gives the block table of a group.
    fn compressed<'t>(
        &self,
        layer: usize,
        spec: &Compression,
        number: usize,
        table: impl Fn(usize) -> &'t [u32],
    ) -> Vec<f32> {
        let rows = &self.cache.layers[layer];
        let (dim, every) = (rows[spec.out].spec.dim, rows[spec.out].spec.every);
        let first = (number * every).saturating_sub(if spec.overlap { every } else { 0 });
        let mut pooled = vec![0.0; dim];
        for (channel, out) in pooled.iter_mut().enumerate() {
            let positions = first..(number + 1) * every;
            let column = |position: usize| match spec.overlap && position >= number * every {
                true => dim + channel,
                false => channel,
            };
            let stored = |which: usize, position: usize| {
                let rows = &rows[which];
                let slot = rows.slot(position, table(rows.group));
                rows.keys.row(slot)[column(position)]
            };
            let gate = |position: usize| {
                spec.gates.map_or(0.0, |(gates, bias)| {
                    let added = position % every * rows[gates].spec.dim + column(position);
                    stored(gates, position) + self.vectors[bias.0][added]
                })
            };
            let most = positions.clone().map(gate).fold(f32::NEG_INFINITY, f32::max);
            let weight = |position: usize| (gate(position) - most).exp();
            let sum: f32 = positions.clone().map(weight).sum();
            *out = positions.map(|p| weight(p) / sum * stored(spec.values, p)).sum();
        }
        if let Some((weights, eps)) = spec.norm {
            let scale = 1.0 / (dot(&pooled, &pooled) / dim as f32 + eps).sqrt();
            let weights = &self.vectors[weights.0];
            pooled.iter_mut().zip(weights).for_each(|(value, weight)| *value *= scale * weight);
        }
        if let Some((rope, first)) = spec.rope {
            let rope = &self.ropes[rope.0];
            let angles = rope.angles_at((number * every) as u32);
            rotate(&mut pooled[first..][..2 * angles.len()], rope.pairs, &angles, 1.0);
        }
        round(Isa::SCALAR, self.rounding(layer, spec.out), &mut pooled);
        pooled
    }

    /// How plain rows are rounded.
    fn rounding(&self, layer: usize, which: usize) -> Rounding {
        match self.cache.layers[layer][which].spec.layout {
            RowLayout::Plain(rounding) => rounding,
            RowLayout::Heads { .. } => Rounding::None,
        }
    }

    /// Chooses the rows that each row of the batch attends to.
    pub(super) fn select(
        &mut self,
        layer: usize,
        (q, weights): (Buffer, Buffer),
        spec: &IndexSpec,
        batch: &Batch,
    ) {
        let (top, mut chosen) = (self.selections[spec.selection.0].0, Vec::new());
        let rows = &self.cache.layers[layer][spec.rows];
        for sequence in batch.sequences() {
            let table = rows.table(batch, sequence);
            for (row, position) in sequence.rows.clone().zip(sequence.position..) {
                let (q, weights) = (self.row(q, row), self.row(weights, row));
                let score = |number: usize| -> f32 {
                    let key = rows.keys.row(rows.slot(number, table));
                    let heads = q.chunks_exact(rows.spec.dim).zip(weights);
                    heads.map(|(q, weight)| weight * dot(q, key).max(0.0)).sum()
                };
                let (runs, len) = (spec.runs, spec.runs.len);
                let present = rows.spec.present(position, spec.first);
                let candidates = runs.candidates(present.len());
                let of_run = |run: usize| match run + spec.last < candidates {
                    true => {
                        let rows = present.clone().skip(run * len).take(len);
                        rows.map(score).fold(f32::MIN, f32::max)
                    }
                    false => f32::INFINITY,
                };
                let scores: Vec<f32> = (0..candidates).map(of_run).collect();
                let mut numbers: Vec<usize> = (0..scores.len()).collect();
                numbers.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
                numbers.truncate(top);
                numbers.sort_unstable();
                chosen.push(numbers);
            }
        }
        self.selections[spec.selection.0].1 = chosen;
    }

    /// Attention of all heads of the batch's rows.
    pub(super) fn attend_plain(
        &mut self,
        layer: usize,
        (q, out): (Buffer, Buffer),
        spec: &RowAttention,
        batch: &Batch,
    ) {
        let rows = |which: usize| &self.cache.layers[layer][which];
        let (window, compressed) = (spec.window.map(rows), spec.compressed.map(rows));
        let dim = window.or(compressed).map_or(1, |rows| rows.spec.dim);
        let mut all = Vec::new();
        for sequence in batch.sequences() {
            for (row, position) in sequence.rows.clone().zip(sequence.position..) {
                let mut entries: Vec<&[f32]> = Vec::new();
                if let Some(rows) = compressed {
                    let present = rows.spec.present(position, spec.first);
                    let len = spec.runs.len;
                    let rest = spec.runs.candidates(present.len()) * len;
                    let numbers: Vec<usize> = match spec.selection {
                        Some(selection) => {
                            let runs = self.selections[selection.0].1[row].iter();
                            let chosen =
                                runs.flat_map(|run| present.clone().skip(run * len).take(len));
                            chosen.chain(present.clone().skip(rest)).collect()
                        }
                        None => present.collect(),
                    };
                    let table = rows.table(batch, sequence);
                    entries.extend(numbers.iter().map(|n| rows.keys.row(rows.slot(*n, table))));
                }
                if let Some(window) = window {
                    let table = window.table(batch, sequence);
                    let positions = spec.first_seen(position, window.spec.window)..position + 1;
                    entries.extend(positions.map(|p| window.keys.row(window.slot(p, table))));
                }
                for (head, q) in self.row(q, row).chunks_exact(dim).enumerate() {
                    let sink = spec.sinks.map(|sinks| self.vectors[sinks.0][head]);
                    all.extend(attend(q, &entries, spec.scale, sink));
                }
            }
        }
        self.buffers[out.0].values[..all.len()].copy_from_slice(&all);
    }
}

/// Attention of one query over rows that are keys and values.
fn attend(q: &[f32], rows: &[&[f32]], scale: f32, sink: Option<f32>) -> Vec<f32> {
    let scores: Vec<f32> = rows.iter().map(|row| dot(q, row) * scale).collect();
    let most = scores.iter().copied().chain(sink).fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f32> = scores.iter().map(|score| (score - most).exp()).collect();
    let sum = weights.iter().sum::<f32>() + sink.map_or(0.0, |sink| (sink - most).exp());
    let mut out = vec![0.0; q.len()];
    for (row, weight) in rows.iter().zip(weights) {
        add_scaled(&mut out, row, weight / sum);
    }
    out
}
