//! Rows grouped by their experts.

use crate::cpu::core::CpuCore;
use crate::cpu::ops::products::Products;
use crate::handles::Matrix;
use kernels::routing::ExpertChoice;
use std::ops::Range;

/// Rows grouped by experts.
#[derive(Default)]
pub(super) struct ExpertPlan {
    /// Experts that have rows, ascending, by their numbers among the held ones.
    pub(super) experts: Vec<usize>,
    /// The assignments of each.
    pub(super) cuts: Vec<Range<usize>>,
    /// Every assignment, by groups.
    pub(super) all: Vec<Assignment>,
    /// Number of rows of each expert, then the index of its next assignment.
    pub(super) next: Vec<usize>,
    /// The groups whose gates are computed next, ascending, and their assignments.
    pub(super) groups: Vec<usize>,
    pub(super) group_cuts: Vec<Range<usize>>,
}

/// A row and one of its experts.
#[derive(Clone, Copy, Default)]
pub(super) struct Assignment {
    pub(super) row: u32,
    /// Number among the held experts.
    pub(super) expert: u32,
    pub(super) weight: f32,
}

impl ExpertPlan {
    /// Groups rows by expert, `chosen` choices each, for the experts `held`.
    pub(super) fn group(&mut self, choices: &[ExpertChoice], chosen: usize, held: Range<usize>) {
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
    pub(super) fn note_inputs(
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
