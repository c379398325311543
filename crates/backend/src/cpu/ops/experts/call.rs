//! The products of the experts of a layer.

use super::layer::{ExpertGroup, ExpertScratch};
use super::plan::Assignment;
use crate::cpu::core::CpuCore;
use crate::cpu::ops::products::Products;
use crate::cpu::scratch::{grown, scratch};
use crate::handles::{Buffer, ExpertsSpec, Matrix, Vector};
use base::Tile;
use kernels::elementwise;
use kernels::layout::Inputs;
use std::ops::Range;

/// Fewest and most columns of a tile.
pub(super) const COLUMNS: (usize, usize) = (64, 256);

/// The experts of a layer, and what they are computed with.
#[derive(Clone, Copy)]
pub(super) struct ExpertsCall<'a> {
    pub(super) core: &'a CpuCore,
    pub(super) products: &'a Products,
    pub(super) group: &'a ExpertGroup,
}

impl ExpertsCall<'_> {
    /// Rounds the inputs of the gate and up products of all groups.
    pub(super) fn gather_gates(self, work: &mut ExpertScratch, x: Buffer) {
        let Self { core, group: ExpertGroup { spec, apart, .. }, .. } = self;
        let ExpertScratch { plan, inputs, up_inputs, .. } = work;
        // Ups take the inputs of gates, unless theirs are others.
        let kinds = spec.inward().take(if *apart { 2 } else { 1 });
        for (matrices, inputs) in kinds.zip([inputs, up_inputs]) {
            let first = self.products.matrices.get(matrices[0].0);
            let (to, hidden) = (first.layout.activations, first.cols);
            inputs.gather(core, to, hidden, &plan.cuts, |at, values| {
                let Assignment { row, expert, .. } = plan.all[at];
                let weights = self.products.matrices.get(matrices[expert as usize].0);
                weights.take_inputs(core.row(x, row as usize), values);
            });
        }
    }

    /// Gate and up products of the groups that are next, and their gate function.
    pub(super) fn gates(self, work: &mut ExpertScratch) {
        let Self { core, group: ExpertGroup { spec, apart, .. }, .. } = self;
        core.pool.begin("expert_gates");
        let ExpertScratch { plan, gated, inputs, up_inputs, .. } = work;
        if plan.groups.is_empty() {
            return;
        }
        plan.group_cuts.clear();
        plan.group_cuts.extend(plan.groups.iter().map(|group| plan.cuts[*group].clone()));
        let first = self.products.matrices.get(spec.up[0].0);
        let (width, hidden) = (first.rows, first.cols);
        let (to, rows) = (first.layout.activations, plan.all.len());
        let up_inputs = if *apart { up_inputs } else { &*inputs }.inputs(to, rows, hidden);
        let gate_inputs = spec.gate.first().map(|gate| {
            let to = self.products.matrices.get(gate.0).layout.activations;
            inputs.inputs(to, rows, hidden)
        });
        let biases = spec.biases.map_or([None; 2], |[gate, up, _]| [Some(gate), Some(up)]);
        let columns = self.columns(width, plan.groups.len());
        let gated = grown(gated, plan.all.len() * width);
        core.pool.for_each_cut(gated, width, (&plan.group_cuts, columns), |at, mut tile| {
            let (expert, cols) = (plan.experts[plan.groups[at]], tile.cols());
            let values = tile.rows().len() * cols.len();
            scratch(2 * values, |both| {
                let (gates, ups) = both.split_at_mut(values);
                let part = (spec, expert, cols.clone());
                let of = &plan.all[tile.rows()];
                self.inward(&part, of, (&spec.up, biases[1]), up_inputs.slice(tile.rows()), ups);
                let inner = match gate_inputs {
                    Some(inputs) => {
                        let gate = (&spec.gate[..], biases[0]);
                        self.inward(&part, of, gate, inputs.slice(tile.rows()), gates);
                        elementwise::apply_gate(core.isa, spec.kind, gates, ups);
                        gates
                    }
                    None => {
                        elementwise::activate(core.isa, spec.kind, ups);
                        ups
                    }
                };
                for (row, inner) in tile.rows().zip(inner.chunks_exact(cols.len())) {
                    tile.row_mut(row).copy_from_slice(inner);
                }
            });
        });
    }

    /// Columns of what the gate or the up projection of an expert gives for rows.
    pub(super) fn inward(
        self,
        (spec, expert, cols): &(&ExpertsSpec, usize, Range<usize>),
        rows: &[Assignment],
        (matrices, bias): (&[Matrix], Option<Vector>),
        inputs: Inputs<'_>,
        out: &mut [f32],
    ) {
        self.part(inputs, matrices[*expert], out, cols.clone());
        if spec.weighs_inputs {
            // Products with inputs times a factor are those with the inputs, times it.
            for (row, out) in rows.iter().zip(out.chunks_exact_mut(cols.len())) {
                elementwise::scale(self.core.isa, out, row.weight);
            }
        }
        if let Some(bias) = bias {
            let first = expert * self.products.matrices.get(matrices[*expert].0).rows;
            let at = first + cols.start..first + cols.end;
            self.add_to_each(out, &self.core.vectors[bias.0][at]);
        }
    }

    /// Down products of `groups`, added to `out` row by row, without those of experts that could
    /// not be read.
    pub(super) fn downs(self, work: &mut ExpertScratch, out: &mut [f32], groups: Range<usize>) {
        let Self { core, products, group: ExpertGroup { spec, streamed, .. } } = self;
        let down = products.matrices.get(spec.down[0].0);
        let (hidden, width, to) = (down.rows, down.cols, down.layout.activations);
        let ExpertScratch { plan, gated, between, .. } = work;
        let cuts = &plan.cuts[groups.clone()];
        between.gather(core, to, width, cuts, |at, values| {
            let weights = products.matrices.get(spec.down[plan.all[at].expert as usize].0);
            weights.take_inputs(&gated[at * width..][..width], values);
        });
        let rows = cuts.last().map_or(0, |last| last.end);
        let inputs = between.inputs(to, rows, width);
        let failed = |expert: usize| {
            streamed.is_some_and(|first| products.matrices.stream.has_failed(first + expert))
        };
        let tile = (out.len() / hidden, self.columns(hidden, 1));
        core.pool.for_each_tile(out, hidden, tile, |mut tile| {
            let cols = tile.cols();
            for group in groups.clone() {
                let expert = plan.experts[group];
                if failed(expert) {
                    continue;
                }
                let rows = &plan.all[plan.cuts[group].clone()];
                scratch(rows.len() * cols.len(), |values| {
                    let inputs = inputs.slice(plan.cuts[group].clone());
                    self.part(inputs, spec.down[expert], values, cols.clone());
                    if let Some([.., bias]) = spec.biases {
                        let at = expert * hidden + cols.start..expert * hidden + cols.end;
                        self.add_to_each(values, &core.vectors[bias.0][at]);
                    }
                    for (assigned, values) in rows.iter().zip(values.chunks_exact(cols.len())) {
                        let out = tile.row_mut(assigned.row as usize);
                        let weight = if spec.weighs_inputs { 1.0 } else { assigned.weight };
                        elementwise::add_scaled(core.isa, out, values, weight);
                    }
                });
            }
        });
    }

    /// Columns `cols` of a product, rows of `out` one after the other.
    pub(super) fn part(
        self,
        inputs: Inputs<'_>,
        matrix: Matrix,
        out: &mut [f32],
        cols: Range<usize>,
    ) {
        let mut tile = Tile::of(out, cols.len()).behind(cols.start);
        self.products.product(self.core.isa, inputs, matrix, &mut tile);
    }

    pub(super) fn add_to_each(self, rows: &mut [f32], values: &[f32]) {
        rows.chunks_exact_mut(values.len())
            .for_each(|row| elementwise::add(self.core.isa, row, values));
    }

    /// Columns of a tile where there are `width`, in each of `groups`: pieces for all threads, and
    /// whole groups of packed weights.
    pub(super) fn columns(self, width: usize, groups: usize) -> usize {
        let pieces = (self.core.pool.threads() * 8).div_ceil(groups);
        (width / pieces).next_multiple_of(COLUMNS.0).clamp(COLUMNS.0, COLUMNS.1)
    }
}

/// The down products of `groups`, whose inputs are summed up if they are collected.
pub(super) fn downs(
    core: &CpuCore,
    products: &mut Products,
    group: &ExpertGroup,
    work: &mut ExpertScratch,
    out: &mut [f32],
    groups: Range<usize>,
) {
    core.pool.begin("expert_downs");
    let (down, gated) = (&group.spec.down, &work.gated);
    let width = products.matrices.get(down[0].0).cols;
    work.plan.note_inputs(
        core,
        products,
        groups.clone(),
        |expert, to| to.push(down[expert]),
        |at, values| values.extend_from_slice(&gated[at * width..][..width]),
    );
    ExpertsCall { core, products, group }.downs(work, out, groups);
}
