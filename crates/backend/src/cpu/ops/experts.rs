//! Routed experts: rows are grouped by their experts, so that an expert's weights are read once for
//! all its rows, and experts without rows not at all.
//!
//! Experts may be held by other ranks; they contribute nothing here.
//!
//! Invariant: the output of a row is `0 + w1 * y1 + w2 * y2 ...` in ascending order of its experts'
//! numbers, and no product depends on the rows that are computed together.

mod call;
mod layer;
mod plan;
mod routes;
mod streamed;

use super::products::Products;
use crate::cpu::core::CpuCore;
use crate::cpu::scratch::scratch;
use crate::cpu::weights::Matrices;
use crate::error::Error;
use crate::handles::{Buffer, Experts, ExpertsSpec, Matrix};
use call::{COLUMNS, ExpertsCall, downs};
use std::collections::HashMap;

pub(in crate::cpu) use layer::{ExpertGroup, RoutedExperts};

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
        ExpertsCall { core, products, group }.gather_gates(work, x);
        let mut data = core.take(out);
        let outputs = &mut data[..tokens.len() * core.width(out)];
        outputs.fill(0.0);
        match group.streamed {
            None => {
                work.plan.groups.clear();
                work.plan.groups.extend(all.clone());
                ExpertsCall { core, products, group }.gates(work);
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

#[cfg(test)]
mod tests;
