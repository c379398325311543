//! Records which experts rows choose.

use super::ExpertScratch;
use crate::cpu::Cpu;
use crate::{ExpertUse, RecordedRoutes};

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
}

impl RecordedRoutes for Cpu {
    fn record_routes(&mut self) {
        self.expert_scratch.routes.get_or_insert_default();
    }

    fn take_routes(&mut self, out: &mut Vec<ExpertUse>) {
        out.append(self.expert_scratch.routes.get_or_insert_default());
    }
}
