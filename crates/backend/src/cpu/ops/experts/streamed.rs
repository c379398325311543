//! Routed experts that are read when rows need them.

use super::call::{ExpertsCall, downs};
use super::layer::{ExpertGroup, ExpertScratch, RoutedExperts};
use crate::cpu::core::CpuCore;
use crate::cpu::ops::products::Products;
use crate::cpu::scratch::grown;
use crate::cpu::stream::WeightStream;
use crate::handles::{Buffer, Experts};
use std::ops::Range;

impl RoutedExperts {
    /// Requests the experts that the rows are likely to choose.
    pub fn foresee(
        &mut self,
        core: &CpuCore,
        products: &mut Products,
        logits: Buffer,
        experts: Experts,
        tokens: &[u32],
    ) {
        let (group, work) = (&self.groups[experts.0], &mut self.scratch);
        let ExpertGroup { spec, streamed: Some(first), .. } = group else { return };
        let held = spec.first..spec.first + spec.held();
        core.pool.begin("foresee_experts");
        work.choose(core, group, logits, tokens);
        let chosen = work.choices.iter().map(|choice| choice.expert as usize);
        for expert in chosen.filter(|expert| held.contains(expert)) {
            products.matrices.stream.foresee(first + expert - held.start);
        }
    }

    /// Chooses the experts of the rows and requests them.
    pub fn request(
        &mut self,
        core: &CpuCore,
        products: &mut Products,
        logits: Buffer,
        experts: Experts,
        tokens: &[u32],
    ) {
        let (group, work) = (&self.groups[experts.0], &mut self.scratch);
        let Some(first) = group.streamed else { return };
        work.choose_groups(core, group, logits, tokens);
        let stream = &mut products.matrices.stream;
        work.begin_streamed(stream, first);
        let _ = work.plan.experts.iter().all(|expert| stream.request(first + expert, false));
    }
}

impl ExpertScratch {
    /// Counts the uses of the experts of the plan, and pins what is in memory, once for a layer.
    fn begin_streamed(&self, stream: &mut WeightStream, first: usize) {
        if stream.is_begun() {
            return;
        }
        for (group, expert) in self.plan.experts.iter().enumerate() {
            stream.heat(first + expert, self.uses(group));
        }
        stream.begin_layer(self.plan.experts.iter().map(|expert| first + expert));
    }

    /// Computes the groups as their experts arrive, of which no more are requested than fit into
    /// memory. The experts of an output are added in the same order as if all were in memory.
    pub(super) fn mix_streamed(
        &mut self,
        core: &CpuCore,
        products: &mut Products,
        layer: &ExpertGroup,
        first: usize,
        out: &mut [f32],
    ) {
        let held = layer.spec.held();
        self.begin_streamed(&mut products.matrices.stream, first);
        let number = |work: &Self, group: usize| first + work.plan.experts[group];
        let count = self.plan.experts.len();
        self.gated_groups.clear();
        self.gated_groups.resize(count, false);
        let width = products.matrices.get(layer.spec.up[0].0).rows;
        // Gates of experts that cannot be read are not computed.
        grown(&mut self.gated, self.plan.all.len() * width);
        // Groups that were requested, and that are computed.
        let (mut asked, mut done) = (0, 0);
        while done < count {
            let stream = &mut products.matrices.stream;
            while asked < count && stream.request(number(self, asked), asked == done) {
                asked += 1;
            }
            if asked == count && count * 4 >= held * 3 {
                stream.read_ahead(first);
            }
            self.gates_of_arrived(core, products, layer, first, done);
            let stream = &products.matrices.stream;
            let is_computed = |group: &usize| {
                let number = number(self, *group);
                self.gated_groups[*group] && stream.is_in(number) || stream.has_failed(number)
            };
            let ready = done + (done..asked).take_while(is_computed).count();
            if ready == done {
                core.pool.begin("wait_for_experts");
                products.matrices.stream.wait();
                continue;
            }
            self.note_failed(&mut products.matrices.stream, done..ready, first);
            downs(core, products, layer, self, out, done..ready);
            let stream = &mut products.matrices.stream;
            (done..ready).for_each(|group| stream.release(number(self, group)));
            done = ready;
        }
        products.matrices.stream.end_layer();
    }

    /// Computes the gates of groups from `done` on whose experts are in memory.
    fn gates_of_arrived(
        &mut self,
        core: &CpuCore,
        products: &Products,
        layer: &ExpertGroup,
        first: usize,
        done: usize,
    ) {
        let Self { plan, gated_groups, .. } = self;
        plan.groups.clear();
        for (group, gated) in gated_groups.iter_mut().enumerate().skip(done) {
            if !*gated && products.matrices.stream.is_in(first + plan.experts[group]) {
                *gated = true;
                plan.groups.push(group);
            }
        }
        ExpertsCall { core, products, group: layer }.gates(self);
    }

    /// Notes the rows of those of `groups` whose experts could not be read.
    fn note_failed(&self, stream: &mut WeightStream, groups: Range<usize>, first: usize) {
        for group in groups {
            if stream.has_failed(first + self.plan.experts[group]) {
                let rows = &self.plan.all[self.plan.cuts[group].clone()];
                stream.note_failed(rows.iter().map(|assigned| assigned.row));
            }
        }
    }
}
