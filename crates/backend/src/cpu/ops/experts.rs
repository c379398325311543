//! Routed experts: rows are grouped by their experts, so that an expert's weights are read once for
//! all its rows, and experts without rows not at all.
//!
//! Experts may be held by other ranks; they contribute nothing here.
//!
//! Invariant: the output of a row is `0 + w1 * y1 + w2 * y2 ...` in ascending order of its experts'
//! numbers, and no product depends on the rows that are computed together.

mod routes;
mod streamed;

use super::products::{Rounded, grown, scratch};
use crate::cpu::Cpu;
use crate::cpu::stream::WeightStream;
use crate::{Batch, Buffer, Error, ExpertUse, Experts, ExpertsSpec, Matrix, Vector};
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
    spec: ExpertsSpec,
    /// Up projections take other activations, or another order of inputs, than gates.
    apart: bool,
    /// Number of the first expert among the streamed ones, if they are streamed.
    streamed: Option<usize>,
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
}

impl Cpu {
    /// Makes the group of a layer's experts.
    ///
    /// # Errors
    /// Unless the experts are alike and their router can choose among them.
    pub(in crate::cpu) fn expert_group(&mut self, spec: ExpertsSpec) -> Result<ExpertGroup, Error> {
        self.check_experts(&spec)?;
        for matrix in spec.kinds().flatten() {
            self.matrices.note_routed(matrix.0);
        }
        let differ = |(gate, up): (&Matrix, &Matrix)| {
            let (gate, up) = (self.matrices.get(gate.0), self.matrices.get(up.0));
            gate.layout.activations != up.layout.activations || gate.order != up.order
        };
        let apart = spec.gate.iter().zip(&spec.up).any(differ);
        let most = (2 * spec.rows * COLUMNS.1).max(spec.routing.scratch(spec.count));
        self.pool.run(&|_| scratch(most, |_| ()));
        self.expert_scratch.choices.reserve(spec.rows * spec.routing.chosen);
        let streamed = self.matrices.stream_experts(&spec.kinds().collect::<Vec<_>>());
        Ok(ExpertGroup { spec, apart, streamed })
    }

    /// For each matrix of an expert, the first matrix of its layer's experts, and its number among
    /// these in a file that holds the matrices of an expert one after the other.
    pub(in crate::cpu) fn places_of_experts(&self) -> HashMap<usize, (usize, usize)> {
        let layer = |group: &ExpertGroup| {
            let kinds: Vec<_> = group.spec.kinds().collect();
            let first = kinds[0][0].0;
            let of_expert = |expert: usize| kinds.iter().map(move |all| all[expert]);
            let all: Vec<_> = (0..group.spec.held()).flat_map(of_expert).collect();
            all.into_iter().enumerate().map(move |(at, matrix)| (matrix.0, (first, at)))
        };
        self.experts.iter().flat_map(layer).collect()
    }

    fn check_experts(&self, spec: &ExpertsSpec) -> Result<(), Error> {
        if let Some(problem) = spec.broken() {
            return Err(Error::Experts(problem));
        }
        let alike = |all: &[Matrix]| {
            let first = self.matrices.get(all[0].0);
            all.iter().map(|matrix| self.matrices.get(matrix.0)).all(|other| {
                let shape = (other.rows, other.cols) == (first.rows, first.cols);
                shape && other.layout.activations == first.layout.activations
            })
        };
        if !spec.kinds().all(alike) {
            let name = &self.matrices.get(spec.up[0].0).name;
            let problem = format!("the experts beginning with {name} are not stored alike");
            return Err(Error::Experts(problem));
        }
        Ok(())
    }

    /// The first matrix of a layer's experts, whose settings hold for all.
    pub(in crate::cpu) fn first_of(&self, experts: Experts) -> Matrix {
        self.experts[experts.0].spec.up[0]
    }

    /// Outputs of the chosen experts of each row.
    pub(in crate::cpu) fn mix(
        &mut self,
        x: Buffer,
        logits: Buffer,
        experts: Experts,
        out: Buffer,
        tokens: &[u32],
    ) {
        let rows = tokens.len();
        let mut work = std::mem::take(&mut self.expert_scratch);
        // The choice is there where the experts were requested before.
        if !self.matrices.stream.is_begun() {
            self.choose_groups(&mut work, logits, experts, tokens);
        }
        let spec = &self.experts[experts.0].spec;
        work.note_routes(experts.0, spec.first);
        let used = spec.kinds().flat_map(|all| work.plan.experts.iter().map(|at| all[*at].0));
        self.matrices.defer(used, self.isa, &self.pool);
        self.note_inputs_of(
            &work.plan,
            (experts, 0..work.plan.experts.len()),
            |spec, expert, to| to.extend(spec.inward().map(|all| all[expert])),
            |this, at, values| {
                values.extend_from_slice(this.row(x, work.plan.all[at].row as usize));
            },
        );
        self.gather_gates(&mut work, x, experts);
        let mut data = self.take(out);
        let outputs = &mut data[..rows * self.width(out)];
        outputs.fill(0.0);
        match self.experts[experts.0].streamed {
            None => {
                let all = 0..work.plan.experts.len();
                work.plan.groups.clear();
                work.plan.groups.extend(all.clone());
                self.gates(&mut work, experts);
                self.downs(&mut work, experts, outputs, all);
            }
            Some(first) => self.mix_streamed(&mut work, experts, first, outputs),
        }
        self.put(out, data);
        self.expert_scratch = work;
    }

    /// Chooses the experts of each row, and groups rows by them.
    fn choose_groups(
        &self,
        work: &mut ExpertScratch,
        logits: Buffer,
        experts: Experts,
        tokens: &[u32],
    ) {
        self.pool.begin("choose_experts");
        self.choose(work, logits, experts, tokens);
        self.pool.begin("group_experts");
        let spec = &self.experts[experts.0].spec;
        let held = spec.first..spec.first + spec.held();
        work.plan.group(&work.choices, spec.routing.chosen, held);
    }

    /// Counts the uses of the experts of the plan, and pins what is in memory, once for a layer.
    fn begin_streamed(&mut self, work: &ExpertScratch, first: usize) {
        let stream = &mut self.matrices.stream;
        if stream.is_begun() {
            return;
        }
        for (group, expert) in work.plan.experts.iter().enumerate() {
            stream.heat(first + expert, work.uses(group));
        }
        stream.begin_layer(work.plan.experts.iter().map(|expert| first + expert));
    }

    /// Computes the groups as their experts arrive, of which no more are requested than fit into
    /// memory. The experts of an output are added in the same order as if all were in memory.
    fn mix_streamed(
        &mut self,
        work: &mut ExpertScratch,
        experts: Experts,
        first: usize,
        out: &mut [f32],
    ) {
        let held = self.experts[experts.0].spec.held();
        self.begin_streamed(work, first);
        let number = |work: &ExpertScratch, group: usize| first + work.plan.experts[group];
        let count = work.plan.experts.len();
        work.gated_groups.clear();
        work.gated_groups.resize(count, false);
        let width = self.matrices.get(self.first_of(experts).0).rows;
        // Gates of experts that cannot be read are not computed.
        grown(&mut work.gated, work.plan.all.len() * width);
        // Groups that were requested, and that are computed.
        let (mut asked, mut done) = (0, 0);
        while done < count {
            let stream = &mut self.matrices.stream;
            while asked < count && stream.request(number(work, asked), asked == done) {
                asked += 1;
            }
            if asked == count && count * 4 >= held * 3 {
                stream.read_ahead(first);
            }
            self.gates_of_arrived(work, experts, first, done);
            let stream = &self.matrices.stream;
            let is_computed = |group: &usize| {
                let number = number(work, *group);
                work.gated_groups[*group] && stream.is_in(number) || stream.has_failed(number)
            };
            let ready = done + (done..asked).take_while(is_computed).count();
            if ready == done {
                self.pool.begin("wait_for_experts");
                self.matrices.stream.wait();
                continue;
            }
            self.note_failed(work, done..ready, first);
            self.downs(work, experts, out, done..ready);
            (done..ready).for_each(|group| self.matrices.stream.release(number(work, group)));
            done = ready;
        }
        self.matrices.stream.end_layer();
    }

    /// Computes the gates of groups from `done` on whose experts are in memory.
    fn gates_of_arrived(
        &mut self,
        work: &mut ExpertScratch,
        experts: Experts,
        first: usize,
        done: usize,
    ) {
        let ExpertScratch { plan, gated_groups, .. } = &mut *work;
        plan.groups.clear();
        for (group, gated) in gated_groups.iter_mut().enumerate().skip(done) {
            if !*gated && self.matrices.stream.is_in(first + plan.experts[group]) {
                *gated = true;
                plan.groups.push(group);
            }
        }
        self.gates(work, experts);
    }

    /// Notes the rows of those of `groups` whose experts could not be read.
    fn note_failed(&mut self, work: &ExpertScratch, groups: Range<usize>, first: usize) {
        for group in groups {
            if self.matrices.stream.has_failed(first + work.plan.experts[group]) {
                let rows = &work.plan.all[work.plan.cuts[group].clone()];
                self.matrices.stream.note_failed(rows.iter().map(|assigned| assigned.row));
            }
        }
    }

    /// Chooses the experts of each row, by its logits or by its token.
    fn choose(&self, work: &mut ExpertScratch, logits: Buffer, experts: Experts, tokens: &[u32]) {
        let ExpertsSpec { routing, correction, scales, table, .. } = &self.experts[experts.0].spec;
        let (bias, chosen) = (correction.map_or(&[][..], |b| &self.vectors[b.0]), routing.chosen);
        work.choices.clear();
        work.choices.resize(tokens.len() * chosen, ExpertChoice::default());
        let rows = ROUTED_VALUES.div_ceil(self.width(logits));
        self.pool.for_each_tile(&mut work.choices, chosen, (rows, chosen), |mut tile| {
            for row in tile.rows() {
                let (logits, choices) = (self.row(logits, row), tile.row_mut(row));
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
                    scale_weights(choices, &self.vectors[scales.0]);
                }
            }
        });
    }

    /// Rounds the inputs of the gate and up products of all groups.
    fn gather_gates(&self, work: &mut ExpertScratch, x: Buffer, experts: Experts) {
        let ExpertGroup { spec, apart, .. } = &self.experts[experts.0];
        let ExpertScratch { plan, inputs, up_inputs, .. } = work;
        // Ups take the inputs of gates, unless theirs are others.
        let kinds = spec.inward().take(if *apart { 2 } else { 1 });
        for (matrices, inputs) in kinds.zip([inputs, up_inputs]) {
            let first = self.matrices.get(matrices[0].0);
            let (to, hidden) = (first.layout.activations, first.cols);
            self.gather(inputs, to, hidden, &plan.cuts, |at, values| {
                let Assignment { row, expert, .. } = plan.all[at];
                let weights = self.matrices.get(matrices[expert as usize].0);
                weights.take_inputs(self.row(x, row as usize), values);
            });
        }
    }

    /// Gate and up products of the groups that are next, and their gate function.
    fn gates(&self, work: &mut ExpertScratch, experts: Experts) {
        self.pool.begin("expert_gates");
        let ExpertGroup { spec, apart, .. } = &self.experts[experts.0];
        let ExpertScratch { plan, gated, inputs, up_inputs, .. } = work;
        if plan.groups.is_empty() {
            return;
        }
        plan.group_cuts.clear();
        plan.group_cuts.extend(plan.groups.iter().map(|group| plan.cuts[*group].clone()));
        let first = self.matrices.get(spec.up[0].0);
        let (width, hidden) = (first.rows, first.cols);
        let (to, rows) = (first.layout.activations, plan.all.len());
        let up_inputs = if *apart { up_inputs } else { &*inputs }.inputs(to, rows, hidden);
        let gate_inputs = spec.gate.first().map(|gate| {
            let to = self.matrices.get(gate.0).layout.activations;
            inputs.inputs(to, rows, hidden)
        });
        let biases = spec.biases.map_or([None; 2], |[gate, up, _]| [Some(gate), Some(up)]);
        let columns = self.columns(width, plan.groups.len());
        let gated = grown(gated, plan.all.len() * width);
        self.pool.for_each_cut(gated, width, (&plan.group_cuts, columns), |at, mut tile| {
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
                        elementwise::apply_gate(self.isa, spec.kind, gates, ups);
                        gates
                    }
                    None => {
                        elementwise::activate(self.isa, spec.kind, ups);
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
        &self,
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
                elementwise::scale(self.isa, out, row.weight);
            }
        }
        if let Some(bias) = bias {
            let first = expert * self.matrices.get(matrices[*expert].0).rows;
            let at = first + cols.start..first + cols.end;
            self.add_to_each(out, &self.vectors[bias.0][at]);
        }
    }

    /// Down products of `groups`, added to `out` row by row, without those of experts that could
    /// not be read.
    fn downs(
        &mut self,
        work: &mut ExpertScratch,
        experts: Experts,
        out: &mut [f32],
        groups: Range<usize>,
    ) {
        self.pool.begin("expert_downs");
        let down = self.matrices.get(self.experts[experts.0].spec.down[0].0);
        let (hidden, width, to) = (down.rows, down.cols, down.layout.activations);
        let gated = &work.gated;
        self.note_inputs_of(
            &work.plan,
            (experts, groups.clone()),
            |spec, expert, to| to.push(spec.down[expert]),
            |_, at, values| values.extend_from_slice(&gated[at * width..][..width]),
        );
        let ExpertGroup { spec, streamed, .. } = &self.experts[experts.0];
        let ExpertScratch { plan, gated, between, .. } = work;
        let cuts = &plan.cuts[groups.clone()];
        self.gather(between, to, width, cuts, |at, values| {
            let weights = self.matrices.get(spec.down[plan.all[at].expert as usize].0);
            weights.take_inputs(&gated[at * width..][..width], values);
        });
        let rows = cuts.last().map_or(0, |last| last.end);
        let inputs = between.inputs(to, rows, width);
        let failed = |expert: usize| {
            streamed.is_some_and(|first| self.matrices.stream.has_failed(first + expert))
        };
        let tile = (out.len() / hidden, self.columns(hidden, 1));
        self.pool.for_each_tile(out, hidden, tile, |mut tile| {
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
                        self.add_to_each(values, &self.vectors[bias.0][at]);
                    }
                    for (assigned, values) in rows.iter().zip(values.chunks_exact(cols.len())) {
                        let out = tile.row_mut(assigned.row as usize);
                        let weight = if spec.weighs_inputs { 1.0 } else { assigned.weight };
                        elementwise::add_scaled(self.isa, out, values, weight);
                    }
                });
            }
        });
    }

    /// Columns `cols` of a product, rows of `out` one after the other.
    fn part(&self, inputs: Inputs<'_>, matrix: Matrix, out: &mut [f32], cols: Range<usize>) {
        let mut tile = Tile::of(out, cols.len()).behind(cols.start);
        self.product(inputs, matrix, &mut tile);
    }

    fn add_to_each(&self, rows: &mut [f32], values: &[f32]) {
        rows.chunks_exact_mut(values.len()).for_each(|row| elementwise::add(self.isa, row, values));
    }

    /// Columns of a tile where there are `width`, in each of `groups`: pieces for all threads, and
    /// whole groups of packed weights.
    fn columns(&self, width: usize, groups: usize) -> usize {
        let pieces = (self.pool.threads() * 8).div_ceil(groups);
        (width / pieces).next_multiple_of(COLUMNS.0).clamp(COLUMNS.0, COLUMNS.1)
    }

    /// Sums up the inputs of the experts' products, if they are collected: `fill` appends the
    /// inputs of an assignment.
    fn note_inputs_of(
        &mut self,
        plan: &ExpertPlan,
        (experts, groups): (Experts, Range<usize>),
        matrices: impl Fn(&ExpertsSpec, usize, &mut Vec<Matrix>),
        fill: impl Fn(&Self, usize, &mut Vec<f32>),
    ) {
        if self.inputs.is_none() {
            return;
        }
        for (expert, cut) in plan.experts[groups.clone()].iter().zip(&plan.cuts[groups]) {
            let mut values = Vec::new();
            cut.clone().for_each(|at| fill(self, at, &mut values));
            let mut of_expert = Vec::new();
            matrices(&self.experts[experts.0].spec, *expert, &mut of_expert);
            of_expert.into_iter().for_each(|matrix| self.note_rows(&values, matrix));
        }
    }
}

#[cfg(test)]
#[path = "experts_tests.rs"]
mod tests;
