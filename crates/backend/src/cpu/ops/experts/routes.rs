//! Records which experts rows choose.

use super::layer::ExpertScratch;
use crate::routes::ExpertUse;

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
    pub fn record(&mut self) {
        self.routes.get_or_insert_default();
    }

    /// Appends the choices of the step to `out`.
    pub fn take(&mut self, out: &mut Vec<ExpertUse>) {
        out.append(self.routes.get_or_insert_default());
    }
}
