//! Notes which experts rows choose, reports sizes of experts, and reads the ones ahead that rows
//! are known to choose often.

use super::super::Cpu;
use super::super::stream::PAGE;
use super::super::weights::WeightBytes;
use super::{ExpertGroup, ExpertScratch};
use crate::{ExpertBytes, ExpertUse};

impl ExpertScratch {
    /// Notes the choices of a layer, if they are recorded. `first` is the number of the first
    /// expert that is held.
    pub(super) fn note_routes(&mut self, layer: usize, first: usize) {
        let Some(mut routes) = self.routes.take() else { return };
        routes.extend(self.plan.experts.iter().enumerate().map(|(group, expert)| {
            let (counted, rows) = (self.uses(group), self.plan.cuts[group].len());
            ExpertUse {
                layer: layer as u32,
                expert: (first + expert) as u32,
                counted: counted as u32,
                others: (rows - counted) as u32,
            }
        }));
        self.routes = Some(routes);
    }

    /// Records choices from now on.
    pub fn record_routes(&mut self) {
        self.routes.get_or_insert_default();
    }

    /// Moves the choices of the step to `out`.
    pub fn take_routes(&mut self, out: &mut Vec<ExpertUse>) {
        out.append(self.routes.get_or_insert_default());
    }
}

impl Cpu {
    /// As [`Backend::expert_bytes`](crate::Backend::expert_bytes).
    pub(in crate::cpu) fn expert_sizes(&self) -> Vec<ExpertBytes> {
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

    /// As [`Backend::preload_experts`](crate::Backend::preload_experts).
    pub(in crate::cpu) fn preload(&mut self, shares: &[Vec<f32>]) {
        let mut all = Vec::new();
        for (group, shares) in self.experts.iter().zip(shares) {
            let Some(streamed) = group.streamed else { continue };
            let held = shares.iter().skip(group.spec.first).take(group.spec.held());
            all.extend((streamed..).zip(held.copied()));
        }
        self.matrices.stream.preload(&all);
    }
}
