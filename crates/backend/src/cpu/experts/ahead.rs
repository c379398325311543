//! Hints on which experts follow, so that missing ones are read meanwhile.

use super::ExpertGroup;
use crate::Experts;
use crate::cpu::{Buffer, Cpu};

impl Cpu {
    /// Starts to read experts that the router of a later layer would choose by these logits.
    pub(in crate::cpu) fn foresee_experts(
        &mut self,
        logits: Buffer,
        experts: Experts,
        tokens: &[u32],
    ) {
        let ExpertGroup { spec, streamed: Some(first), .. } = &self.experts[experts.0] else {
            return;
        };
        let (first, held) = (*first, spec.first..spec.first + spec.held());
        let mut work = std::mem::take(&mut self.expert_scratch);
        self.pool.begin("foresee_experts");
        self.choose(&mut work, logits, experts, tokens);
        let chosen = work.choices.iter().map(|choice| choice.expert as usize);
        for expert in chosen.filter(|expert| held.contains(expert)) {
            self.matrices.stream.foresee(first + expert - held.start);
        }
        self.expert_scratch = work;
    }

    /// Starts to read the experts that rows choose, as far as there is space for them.
    pub(in crate::cpu) fn request_chosen(
        &mut self,
        logits: Buffer,
        experts: Experts,
        tokens: &[u32],
    ) {
        let Some(first) = self.experts[experts.0].streamed else { return };
        let mut work = std::mem::take(&mut self.expert_scratch);
        self.choose_groups(&mut work, logits, experts, tokens);
        self.begin_streamed(&work, first);
        let stream = &mut self.matrices.stream;
        let _ = work.plan.experts.iter().all(|expert| stream.request(first + expert, false));
        self.expert_scratch = work;
    }
}
