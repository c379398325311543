//! Routed experts and how they are chosen.

use crate::layers::{ExpertGroups, RouterScores};

/// Routed experts: of many small MLPs each token passes through a few.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpertsConfig {
    /// Routed experts of a layer.
    pub count: usize,
    /// Experts that each token is sent to; at most `count`.
    pub chosen: usize,
    /// Width of a routed expert's MLP.
    pub width: usize,
    /// Values that routed experts read and give, where these are projected from the residual stream
    /// and back to it (Nemotron 3); `None` where experts read the stream itself.
    pub latent: Option<usize>,
    /// Width of the shared expert, an MLP that every token passes through; 0 for none.
    pub shared_width: usize,
    /// Whether the output of that MLP is scaled by a learned gate.
    pub shared_gate: bool,
    /// Per layer: whether it has routed experts rather than one MLP.
    pub layers: Vec<bool>,
    /// Bound of the router's logits, which become `cap * tanh(logit / cap)`.
    pub cap: Option<f32>,
    /// How the router's logits become scores.
    pub scores: RouterScores,
    /// Whether the weights of the chosen experts are divided by their sum.
    pub normalise: bool,
    /// Factor of the weights.
    pub scale: f32,
    /// Experts are chosen from the best groups only, if there is more than one.
    pub groups: Option<ExpertGroups>,
    /// Per layer: whether a table of token ids chooses the experts, and the scores give only their
    /// weights.
    pub by_token: Vec<bool>,
    /// Per layer: bound of the values in routed experts, of the gate from above, and of the other
    /// half from both sides.
    pub limits: Vec<Option<f32>>,
    /// The same for the shared expert.
    pub shared_limits: Vec<Option<f32>>,
}

impl ExpertsConfig {
    /// Experts in every layer without options: a softmax, and neither a shared expert nor groups.
    pub(crate) fn plain(count: usize, chosen: usize, width: usize, layers: usize) -> Self {
        Self {
            count,
            chosen,
            width,
            latent: None,
            shared_width: 0,
            shared_gate: false,
            layers: vec![true; layers],
            cap: None,
            scores: RouterScores::Softmax,
            normalise: true,
            scale: 1.0,
            groups: None,
            by_token: vec![false; layers],
            limits: vec![None; layers],
            shared_limits: vec![None; layers],
        }
    }
}
