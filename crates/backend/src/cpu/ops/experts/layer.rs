//! The experts of layers, and the choice among them.

use super::plan::ExpertPlan;
use crate::batch::Batch;
use crate::cpu::core::CpuCore;
use crate::cpu::ops::products::Rounded;
use crate::cpu::scratch::scratch;
use crate::cpu::stream::WeightStream;
use crate::handles::{Buffer, ExpertsSpec};
use crate::routes::ExpertUse;
use base::AlignedVec;
use kernels::routing::{ExpertChoice, scale_weights};

/// Logits of routers that make a piece worth claiming.
const ROUTED_VALUES: usize = 128;

/// Assignments of the current step; kept, so that the next one allocates nothing.
#[derive(Default)]
pub(in crate::cpu) struct ExpertScratch {
    /// `[rows, chosen]`.
    pub(super) choices: Vec<ExpertChoice>,
    pub(super) plan: ExpertPlan,
    /// Outputs of the gates, `[assignments, width]`.
    pub(super) gated: AlignedVec<f32>,
    pub(super) inputs: Rounded,
    /// Inputs of up projections, where they differ from those of the gates.
    pub(super) up_inputs: Rounded,
    pub(super) between: Rounded,
    /// Whether each row of the step counts as a use of its experts: rows that are decoded, and the
    /// last ones of prompts.
    pub(super) counted: Vec<bool>,
    /// Whether the gates of each group of streamed experts are computed.
    pub(super) gated_groups: Vec<bool>,
    /// What rows of the step have chosen, if it is recorded.
    pub(super) routes: Option<Vec<ExpertUse>>,
}

/// The experts of all layers.
#[derive(Default)]
pub(in crate::cpu) struct RoutedExperts {
    pub groups: Vec<ExpertGroup>,
    pub scratch: ExpertScratch,
}

/// Last rows of a prompt that count as uses.
const COUNTED: usize = 32;

/// The experts of a layer.
pub(in crate::cpu) struct ExpertGroup {
    pub spec: ExpertsSpec,
    /// Up projections take other activations, or another order of inputs, than gates.
    pub(super) apart: bool,
    /// Number of the first expert among the streamed ones, if they are streamed.
    pub streamed: Option<usize>,
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
    pub(super) fn uses(&self, group: usize) -> usize {
        let rows = &self.plan.all[self.plan.cuts[group].clone()];
        rows.iter().filter(|row| self.counted.get(row.row as usize) == Some(&true)).count()
    }

    /// Whether any row of the step counts.
    pub fn is_counted(&self) -> bool {
        self.counted.contains(&true)
    }
}

impl ExpertScratch {
    /// Chooses the experts of each row, and groups rows by them.
    pub(super) fn choose_groups(
        &mut self,
        core: &CpuCore,
        group: &ExpertGroup,
        logits: Buffer,
        tokens: &[u32],
    ) {
        core.pool.begin("choose_experts");
        self.choose(core, group, logits, tokens);
        core.pool.begin("group_experts");
        let spec = &group.spec;
        let held = spec.first..spec.first + spec.held();
        self.plan.group(&self.choices, spec.routing.chosen, held);
    }

    /// Chooses the experts of each row, by its logits or by its token.
    pub(super) fn choose(
        &mut self,
        core: &CpuCore,
        group: &ExpertGroup,
        logits: Buffer,
        tokens: &[u32],
    ) {
        let ExpertsSpec { routing, correction, scales, table, .. } = &group.spec;
        let (bias, chosen) = (correction.map_or(&[][..], |b| &core.vectors[b.0]), routing.chosen);
        self.choices.clear();
        self.choices.resize(tokens.len() * chosen, ExpertChoice::default());
        let rows = ROUTED_VALUES.div_ceil(core.width(logits));
        core.pool.for_each_tile(&mut self.choices, chosen, (rows, chosen), |mut tile| {
            for row in tile.rows() {
                let (logits, choices) = (core.row(logits, row), tile.row_mut(row));
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
                    scale_weights(choices, &core.vectors[scales.0]);
                }
            }
        });
    }
}
