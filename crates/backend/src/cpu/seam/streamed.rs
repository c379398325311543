//! Weights of the CPU that are read when rows need them.

use super::super::machine::Cpu;
use super::super::ops::experts::ExpertGroup;
use super::super::stream::PAGE;
use super::super::weights::WeightBytes;
use crate::error::Error;
use crate::handles::{Buffer, Experts};
use crate::memory::{StreamPlan, StreamStats};
use crate::routes::ExpertBytes;
use crate::seam::StreamedWeights;

impl StreamedWeights for Cpu {
    fn layer_loaded(&mut self) {
        self.products.matrices.stream_layer();
    }

    fn stream_weights(&mut self, bytes: usize, threads: usize) -> Result<(), Error> {
        let least = self.experts.groups.iter().map(ExpertGroup::least).max().unwrap_or(0);
        self.products.matrices.stream.start(bytes, threads, least)
    }

    fn foresees(&self) -> bool {
        self.products.matrices.stream.foresees()
    }

    fn foresee(&mut self, logits: Buffer, experts: Experts, tokens: &[u32]) {
        self.experts.foresee(&self.core, &mut self.products, logits, experts, tokens);
    }

    fn request_experts(&mut self, logits: Buffer, experts: Experts, tokens: &[u32]) {
        self.experts.request(&self.core, &mut self.products, logits, experts, tokens);
    }

    fn stream_plan(&self) -> Option<StreamPlan> {
        let stream = &self.products.matrices.stream;
        stream.plan(self.experts.groups.iter().map(|group| group.token_bytes(stream)).sum())
    }

    fn stream_stats(&self) -> Option<StreamStats> {
        self.products.matrices.stream.stats()
    }

    fn preload_experts(&mut self, shares: &[Vec<f32>]) {
        let mut all = Vec::new();
        for (group, shares) in self.experts.groups.iter().zip(shares) {
            let Some(streamed) = group.streamed else { continue };
            let held = shares.iter().skip(group.spec.first).take(group.spec.held());
            all.extend((streamed..).zip(held.copied()));
        }
        self.products.matrices.stream.preload(&all);
    }

    fn expert_bytes(&self) -> Vec<ExpertBytes> {
        let size = |group: &ExpertGroup| {
            if let Some(first) = group.streamed {
                return self.products.matrices.stream.expert_bytes(first);
            }
            let matrices = group.spec.kinds().filter_map(|all| all.first());
            let bytes = matrices.map(|matrix| match &self.products.matrices.get(matrix.0).bytes {
                WeightBytes::File(bytes) => bytes.len(),
                WeightBytes::Streamed { .. } => 0,
                WeightBytes::Packed(at) => at.len(),
            });
            let read = bytes.sum::<usize>();
            ExpertBytes { slot: read.next_multiple_of(PAGE), read }
        };
        self.experts.groups.iter().map(size).collect()
    }
}
