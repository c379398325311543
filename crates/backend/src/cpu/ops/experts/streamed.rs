//! Weights that are read when rows need them: their memory, and hints on which experts follow, so
//! that missing ones are read meanwhile.

use super::ExpertGroup;
use crate::cpu::Cpu;
use crate::cpu::stream::PAGE;
use crate::cpu::weights::WeightBytes;
use crate::{Buffer, Error, ExpertBytes, Experts, StreamPlan, StreamStats, StreamedWeights};

impl StreamedWeights for Cpu {
    fn layer_loaded(&mut self) {
        self.matrices.stream_layer();
    }

    fn stream_weights(&mut self, bytes: usize, threads: usize) -> Result<(), Error> {
        let least = self.experts.iter().map(ExpertGroup::least).max().unwrap_or(0);
        self.matrices.stream.start(bytes, threads, least)
    }

    fn foresees(&self) -> bool {
        self.matrices.stream.foresees()
    }

    fn foresee(&mut self, logits: Buffer, experts: Experts, tokens: &[u32]) {
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

    fn request_experts(&mut self, logits: Buffer, experts: Experts, tokens: &[u32]) {
        let Some(first) = self.experts[experts.0].streamed else { return };
        let mut work = std::mem::take(&mut self.expert_scratch);
        self.choose_groups(&mut work, logits, experts, tokens);
        self.begin_streamed(&work, first);
        let stream = &mut self.matrices.stream;
        let _ = work.plan.experts.iter().all(|expert| stream.request(first + expert, false));
        self.expert_scratch = work;
    }

    fn stream_plan(&self) -> Option<StreamPlan> {
        let stream = &self.matrices.stream;
        stream.plan(self.experts.iter().map(|group| group.token_bytes(stream)).sum())
    }

    fn stream_stats(&self) -> Option<StreamStats> {
        self.matrices.stream.stats()
    }

    fn preload_experts(&mut self, shares: &[Vec<f32>]) {
        let mut all = Vec::new();
        for (group, shares) in self.experts.iter().zip(shares) {
            let Some(streamed) = group.streamed else { continue };
            let held = shares.iter().skip(group.spec.first).take(group.spec.held());
            all.extend((streamed..).zip(held.copied()));
        }
        self.matrices.stream.preload(&all);
    }

    fn expert_bytes(&self) -> Vec<ExpertBytes> {
        let size = |group: &ExpertGroup| {
            if let Some(first) = group.streamed {
                return self.matrices.stream.expert_bytes(first);
            }
            let matrices = group.spec.kinds().filter_map(|all| all.first());
            let bytes = matrices.map(|matrix| match &self.matrices.get(matrix.0).bytes {
                WeightBytes::File(bytes) => bytes.len(),
                WeightBytes::Streamed { .. } => 0,
                WeightBytes::Packed(at) => at.len(),
            });
            let read = bytes.sum::<usize>();
            ExpertBytes { slot: read.next_multiple_of(PAGE), read }
        };
        self.experts.iter().map(size).collect()
    }
}
