//! The choice of experts.

use crate::gpu::{Access, Kernel, Words};
use crate::parts::{EXP_TO_ONE, LANES, SIGMOID, workgroups};
use crate::webgpu::held::device::WebGpu;
use crate::webgpu::held::matrices::NONE;
use crate::wgsl::{numbers, params};
use backend::{Buffer, Error, Experts, ExpertsSpec, GroupRank, Routing, Scores};

/// Experts that the kernel has memory for.
const MAX_EXPERTS: usize = 1024;
/// Experts of one row that the kernel has memory for.
const MAX_CHOSEN: usize = 64;

static ROUTE: Kernel = Kernel {
    name: "choice of experts",
    source: &[
        RouteParams::WGSL,
        score::WGSL,
        include_str!("../../shaders/experts/route.wgsl"),
        SIGMOID,
        EXP_TO_ONE,
        LANES,
    ],
    bindings: &[Access::Write, Access::Read, Access::Read, Access::Write, Access::Read],
};

params! {
    struct RouteParams {
        rows: u32,
        count: u32,
        chosen: u32,
        scores: u32,
        normalise: u32,
        scale: f32,
        /// Groups; 0 without.
        groups: u32,
        groups_chosen: u32,
        /// Whether the best two of a group count.
        best_two: u32,
        /// Whether there are corrections.
        corrected: u32,
        /// Where the experts of the rows begin in the inbox, or `NONE`.
        given_at: u32,
        /// Whether the weights of experts have factors.
        scaled: u32,
    }
}

numbers! {
    /// Numbers of scores.
    mod score, "SCORES_": SOFTMAX = 0, SOFTMAX_OF_CHOSEN = 1, SIGMOID = 2, SQRT_SOFTPLUS = 3
}

fn score_kind(scores: Scores) -> u32 {
    match scores {
        Scores::Softmax => score::SOFTMAX,
        Scores::SoftmaxOfChosen => score::SOFTMAX_OF_CHOSEN,
        Scores::Sigmoid => score::SIGMOID,
        Scores::SqrtSoftplus => score::SQRT_SOFTPLUS,
    }
}

/// Whether the kernel can choose so among `count` experts.
///
/// # Errors
/// If there are too many.
pub(super) fn check(routing: &Routing, count: usize) -> Result<(), Error> {
    if count > MAX_EXPERTS || routing.chosen > MAX_CHOSEN {
        return Err(Error::Experts(format!(
            "expected at most {MAX_EXPERTS} experts, {MAX_CHOSEN} of them for a row, found {count} and \
             {}",
            routing.chosen
        )));
    }
    Ok(())
}

impl WebGpu {
    /// Chooses the experts of each row, by its logits or by its token.
    pub(super) fn route(
        &mut self,
        logits: Buffer,
        experts: Experts,
        choices: &Words,
        tokens: &[u32],
    ) {
        let ExpertsSpec { routing, correction, scales, table, count, .. } =
            &self.experts[experts.0].spec;
        let chosen = routing.chosen;
        let given = table.as_ref().map(|table| -> Vec<u32> {
            let of = |token: &u32| &table[*token as usize * chosen..][..chosen];
            tokens.iter().flat_map(of).copied().collect()
        });
        let given_at = given.map_or(NONE, |given| self.gpu.send(&given));
        let groups = routing.groups;
        let params = RouteParams {
            rows: tokens.len() as u32,
            count: *count as u32,
            chosen: chosen as u32,
            scores: score_kind(routing.scores),
            normalise: u32::from(routing.normalise),
            scale: routing.scale,
            groups: groups.map_or(0, |groups| groups.count as u32),
            groups_chosen: groups.map_or(0, |groups| groups.chosen as u32),
            best_two: u32::from(groups.is_some_and(|groups| groups.rank == GroupRank::BestTwo)),
            corrected: u32::from(correction.is_some()),
            given_at,
            scaled: u32::from(scales.is_some()),
        };
        let inbox = self.gpu.inbox();
        let correction = correction.map_or(&inbox, |correction| &self.vectors[correction.0]);
        let factors = scales.map_or(&inbox, |scales| &self.vectors[scales.0]);
        let bound = [&self.buffers[logits.0].words, correction, &inbox, choices, factors];
        self.gpu.run(&ROUTE, workgroups(tokens.len()), &bound, &params);
    }
}
