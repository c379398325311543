//! Routed experts: rows are grouped by their experts, so that an expert's weights are read once for
//! all its rows, and experts without rows not at all.
//!
//! Experts may be held by other ranks; they contribute nothing here.
//!
//! Invariant: the output of a row is `0 + w1 * y1 + w2 * y2 ...` in ascending order of its experts'
//! numbers, and no product depends on the rows that are computed together.

mod routes;
mod streamed;

use super::products::{Products, Rounded};
use crate::batch::Batch;
use crate::cpu::core::CpuCore;
use crate::cpu::scratch::{grown, scratch};
use crate::cpu::stream::WeightStream;
use crate::cpu::weights::Matrices;
use crate::error::Error;
use crate::handles::{Buffer, Experts, ExpertsSpec, Matrix, Vector};
use crate::routes::ExpertUse;
use base::{AlignedVec, Tile};
use kernels::elementwise;
use kernels::layout::Inputs;
use kernels::routing::{ExpertChoice, scale_weights};
use std::collections::HashMap;
use std::ops::Range;

/// Fewest and most columns of a tile.
const COLUMNS: (usize, usize) = (64, 256);
/// Logits of routers that make a piece worth claiming.
const ROUTED_VALUES: usize = 128;

/// Assignments of the current step; kept, so that the next one allocates nothing.
#[derive(Default)]
pub(in crate::cpu) struct ExpertScratch {
    /// `[rows, chosen]`.
    choices: Vec<ExpertChoice>,
    plan: ExpertPlan,
    /// Outputs of the gates, `[assignments, width]`.
    gated: AlignedVec<f32>,
    inputs: Rounded,
    /// Inputs of up projections, where they differ from those of the gates.
    up_inputs: Rounded,
    between: Rounded,
    /// Whether each row of the step counts as a use of its experts: rows that are decoded, and the
    /// last ones of prompts.
    counted: Vec<bool>,
    /// Whether the gates of each group of streamed experts are computed.
    gated_groups: Vec<bool>,
    /// What rows of the step have chosen, if it is recorded.
    routes: Option<Vec<ExpertUse>>,
}

/// The experts of all layers.
#[derive(Default)]
pub(in crate::cpu) struct RoutedExperts {
    pub groups: Vec<ExpertGroup>,
    pub scratch: ExpertScratch,
}

/// The experts of a layer, and what they are computed with.
#[derive(Clone, Copy)]
struct Call<'a> {
    core: &'a CpuCore,
    products: &'a Products,
    group: &'a ExpertGroup,
}

/// Last rows of a prompt that count as uses.
const COUNTED: usize = 32;

/// Rows grouped by experts.
#[derive(Default)]
struct ExpertPlan {
    /// Experts that have rows, ascending, by their numbers among the held ones.
    experts: Vec<usize>,
    /// The assignments of each.
    cuts: Vec<Range<usize>>,
    /// Every assignment, by groups.
    all: Vec<Assignment>,
    /// Number of rows of each expert, then the index of its next assignment.
    next: Vec<usize>,
    /// The groups whose gates are computed next, ascending, and their assignments.
    groups: Vec<usize>,
    group_cuts: Vec<Range<usize>>,
}

/// A row and one of its experts.
#[derive(Clone, Copy, Default)]
struct Assignment {
    row: u32,
    /// Number among the held experts.
    expert: u32,
    weight: f32,
}

/// The experts of a layer.
pub(in crate::cpu) struct ExpertGroup {
    pub spec: ExpertsSpec,
    /// Up projections take other activations, or another order of inputs, than gates.
    apart: bool,
    /// Number of the first expert among the streamed ones, if they are streamed.
    pub streamed: Option<usize>,
}

impl ExpertGroup {
    /// Most experts that a row chooses here, where they are streamed.
    pub fn least(&self) -> usize {
        self.streamed.map_or(0, |_| self.spec.routing.chosen.min(self.spec.held()))
    }

    /// Bytes that are read for a row none of whose experts are in memory.
    pub fn token_bytes(&self, stream: &WeightStream) -> usize {
        let Some(first) = self.streamed else { return 0 };
        let held = self.spec.held();
        let all: usize = (first..first + held).map(|expert| stream.file_bytes(expert)).sum();
        // Experts of a layer are about alike.
        all / held * self.least()
    }
}

impl ExpertScratch {
    /// Bytes held.
    pub fn bytes(&self) -> usize {
        4 * self.gated.len() + self.inputs.bytes() + self.up_inputs.bytes() + self.between.bytes()
    }

    /// Begins the step that computes `batch`.
    pub fn note_batch(&mut self, batch: &Batch) {
        self.counted.clear();
        self.routes.iter_mut().for_each(Vec::clear);
        self.counted.resize(batch.rows(), false);
        for sequence in batch.sequences() {
            let rows = sequence.rows.clone();
            let last = batch.logit_rows().iter().any(|row| rows.contains(&(*row as usize)));
            if last {
                self.counted[rows.start.max(rows.end.saturating_sub(COUNTED))..rows.end].fill(true);
            }
        }
    }

    /// Rows of a group that count as uses of its expert.
    fn uses(&self, group: usize) -> usize {
        let rows = &self.plan.all[self.plan.cuts[group].clone()];
        rows.iter().filter(|row| self.counted.get(row.row as usize) == Some(&true)).count()
    }

    /// Whether any row of the step counts.
    pub fn is_counted(&self) -> bool {
        self.counted.contains(&true)
    }
}

impl ExpertPlan {
    /// Groups rows by expert, `chosen` choices each, for the experts `held`.
    fn group(&mut self, choices: &[ExpertChoice], chosen: usize, held: Range<usize>) {
        self.next.clear();
        self.next.resize(held.len(), 0);
        let ours = choices.iter().enumerate().filter_map(|(at, choice)| {
            let expert = choice.expert as usize;
            held.contains(&expert).then(|| (expert - held.start, at, choice.weight))
        });
        ours.clone().for_each(|(expert, ..)| self.next[expert] += 1);
        self.experts.clear();
        self.cuts.clear();
        let mut end = 0;
        for (expert, next) in self.next.iter_mut().enumerate() {
            let count = std::mem::replace(next, end);
            if count > 0 {
                self.experts.push(expert);
                self.cuts.push(end..end + count);
                end += count;
            }
        }
        self.all.clear();
        self.all.resize(end, Assignment::default());
        for (expert, at, weight) in ours {
            let next = &mut self.next[expert];
            let (row, expert) = ((at / chosen) as u32, expert as u32);
            self.all[*next] = Assignment { row, expert, weight };
            *next += 1;
        }
    }

    /// Sums up the inputs of the products of groups, if they are collected: `matrices` appends the
    /// matrices of an expert, `fill` the inputs of an assignment.
    fn note_inputs(
        &self,
        core: &CpuCore,
        products: &mut Products,
        groups: Range<usize>,
        matrices: impl Fn(usize, &mut Vec<Matrix>),
        fill: impl Fn(usize, &mut Vec<f32>),
    ) {
        if !products.sums.are_collected() {
            return;
        }
        for (expert, cut) in self.experts[groups.clone()].iter().zip(&self.cuts[groups]) {
            let mut values = Vec::new();
            cut.clone().for_each(|at| fill(at, &mut values));
            let mut of_expert = Vec::new();
            matrices(*expert, &mut of_expert);
            of_expert
                .into_iter()
                .for_each(|matrix| products.sums.note(&core.pool, &values, matrix));
        }
    }
}

impl RoutedExperts {
    /// Adds the experts of a layer.
    ///
    /// # Errors
    /// Unless the experts are alike and their router can choose among them.
    pub fn add(
        &mut self,
        core: &CpuCore,
        matrices: &mut Matrices,
        spec: ExpertsSpec,
    ) -> Result<Experts, Error> {
        check(matrices, &spec)?;
        for matrix in spec.kinds().flatten() {
            matrices.note_routed(matrix.0);
        }
        let differ = |(gate, up): (&Matrix, &Matrix)| {
            let (gate, up) = (matrices.get(gate.0), matrices.get(up.0));
            gate.layout.activations != up.layout.activations || gate.order != up.order
        };
        let apart = spec.gate.iter().zip(&spec.up).any(differ);
        let most = (2 * spec.rows * COLUMNS.1).max(spec.routing.scratch(spec.count));
        core.pool.run(&|_| scratch(most, |_| ()));
        self.scratch.choices.reserve(spec.rows * spec.routing.chosen);
        let streamed = matrices.stream_experts(&spec.kinds().collect::<Vec<_>>());
        self.groups.push(ExpertGroup { spec, apart, streamed });
        Ok(Experts(self.groups.len() - 1))
    }

    /// For each matrix of an expert, the first matrix of its layer's experts, and its number among
    /// these in a file that holds the matrices of an expert one after the other.
    pub fn places(&self) -> HashMap<usize, (usize, usize)> {
        let layer = |group: &ExpertGroup| {
            let kinds: Vec<_> = group.spec.kinds().collect();
            let first = kinds[0][0].0;
            let of_expert = |expert: usize| kinds.iter().map(move |all| all[expert]);
            let all: Vec<_> = (0..group.spec.held()).flat_map(of_expert).collect();
            all.into_iter().enumerate().map(move |(at, matrix)| (matrix.0, (first, at)))
        };
        self.groups.iter().flat_map(layer).collect()
    }

    /// The first matrix of a layer's experts, whose settings hold for all.
    pub fn first_of(&self, experts: Experts) -> Matrix {
        self.groups[experts.0].spec.up[0]
    }

    /// Outputs of the chosen experts of each row.
    pub fn mix(
        &mut self,
        core: &mut CpuCore,
        products: &mut Products,
        (x, logits): (Buffer, Buffer),
        experts: Experts,
        out: Buffer,
        tokens: &[u32],
    ) {
        let (group, work) = (&self.groups[experts.0], &mut self.scratch);
        // The choice is there where the experts were requested before.
        if !products.matrices.stream.is_begun() {
            work.choose_groups(core, group, logits, tokens);
        }
        let spec = &group.spec;
        work.note_routes(experts.0, spec.first);
        let used = spec.kinds().flat_map(|all| work.plan.experts.iter().map(|at| all[*at].0));
        products.matrices.defer(used, core.isa, &core.pool);
        let all = 0..work.plan.experts.len();
        work.plan.note_inputs(
            core,
            products,
            all.clone(),
            |expert, to| to.extend(spec.inward().map(|all| all[expert])),
            |at, values| {
                values.extend_from_slice(core.row(x, work.plan.all[at].row as usize));
            },
        );
        Call { core, products, group }.gather_gates(work, x);
        let mut data = core.take(out);
        let outputs = &mut data[..tokens.len() * core.width(out)];
        outputs.fill(0.0);
        match group.streamed {
            None => {
                work.plan.groups.clear();
                work.plan.groups.extend(all.clone());
                Call { core, products, group }.gates(work);
                downs(core, products, group, work, outputs, all);
            }
            Some(first) => work.mix_streamed(core, products, group, first, outputs),
        }
        core.put(out, data);
    }
}

/// Checks that the experts of a layer are alike and that their router can choose among them.
fn check(matrices: &Matrices, spec: &ExpertsSpec) -> Result<(), Error> {
    if let Some(problem) = spec.broken() {
        return Err(Error::Experts(problem));
    }
    let alike = |all: &[Matrix]| {
        let first = matrices.get(all[0].0);
        all.iter().map(|matrix| matrices.get(matrix.0)).all(|other| {
            let shape = (other.rows, other.cols) == (first.rows, first.cols);
            shape && other.layout.activations == first.layout.activations
        })
    };
    if !spec.kinds().all(alike) {
        let name = &matrices.get(spec.up[0].0).name;
        let problem = format!("the experts beginning with {name} are not stored alike");
        return Err(Error::Experts(problem));
    }
    Ok(())
}

impl ExpertScratch {
    /// Chooses the experts of each row, and groups rows by them.
    fn choose_groups(
        &mut self,
        core: &CpuCore,
        group: &ExpertGroup,
        logits: Buffer,
        tokens: &[u32],
    ) {
        core.pool.begin("choose_experts");
        self.choose(core, group, logits, tokens);
        core.pool.begin("group_experts");
        let spec = &group.spec;
        let held = spec.first..spec.first + spec.held();
        self.plan.group(&self.choices, spec.routing.chosen, held);
    }

    /// Chooses the experts of each row, by its logits or by its token.
    fn choose(&mut self, core: &CpuCore, group: &ExpertGroup, logits: Buffer, tokens: &[u32]) {
        let ExpertsSpec { routing, correction, scales, table, .. } = &group.spec;
        let (bias, chosen) = (correction.map_or(&[][..], |b| &core.vectors[b.0]), routing.chosen);
        self.choices.clear();
        self.choices.resize(tokens.len() * chosen, ExpertChoice::default());
        let rows = ROUTED_VALUES.div_ceil(core.width(logits));
        core.pool.for_each_tile(&mut self.choices, chosen, (rows, chosen), |mut tile| {
            for row in tile.rows() {
                let (logits, choices) = (core.row(logits, row), tile.row_mut(row));
                match table {
                    Some(table) => {
                        let experts = &table[tokens[row] as usize * chosen..][..chosen];
                        routing.choose_from(logits, experts, choices);
                    }
                    None => scratch(routing.scratch(logits.len()), |scratch| {
                        routing.choose(logits, bias, scratch, choices);
                    }),
                }
                if let Some(scales) = scales {
                    scale_weights(choices, &core.vectors[scales.0]);
                }
            }
        });
    }
}

impl Call<'_> {
    /// Rounds the inputs of the gate and up products of all groups.
    fn gather_gates(self, work: &mut ExpertScratch, x: Buffer) {
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
    fn gates(self, work: &mut ExpertScratch) {
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
    fn inward(
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
    fn downs(self, work: &mut ExpertScratch, out: &mut [f32], groups: Range<usize>) {
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
    fn part(self, inputs: Inputs<'_>, matrix: Matrix, out: &mut [f32], cols: Range<usize>) {
        let mut tile = Tile::of(out, cols.len()).behind(cols.start);
        self.products.product(self.core.isa, inputs, matrix, &mut tile);
    }

    fn add_to_each(self, rows: &mut [f32], values: &[f32]) {
        rows.chunks_exact_mut(values.len())
            .for_each(|row| elementwise::add(self.core.isa, row, values));
    }

    /// Columns of a tile where there are `width`, in each of `groups`: pieces for all threads, and
    /// whole groups of packed weights.
    fn columns(self, width: usize, groups: usize) -> usize {
        let pieces = (self.core.pool.threads() * 8).div_ceil(groups);
        (width / pieces).next_multiple_of(COLUMNS.0).clamp(COLUMNS.0, COLUMNS.1)
    }
}

/// The down products of `groups`, whose inputs are summed up if they are collected.
fn downs(
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
    Call { core, products, group }.downs(work, out, groups);
}

#[cfg(test)]
#[path = "experts_tests.rs"]
mod tests;
