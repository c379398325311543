//! Routed experts and how they are chosen.

use serde::Serialize;

/// Routed experts: of many small MLPs each token passes through a few.
#[derive(Clone, Debug, PartialEq, Serialize)]
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
    /// Whether layers with experts have the MLP too, and norms of both (Gemma 4).
    pub beside_mlp: bool,
    /// Whether the weight of an expert is a factor of its inputs rather than of its outputs
    /// (Llama 4).
    pub weighs_inputs: bool,
    /// How the router's logits become scores.
    pub scores: RouterScores,
    /// Whether a bias is added to the scores for the choice of experts.
    pub biased: bool,
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
    /// Values that a routed expert reads and gives, where the residual stream has `hidden`.
    pub fn inputs(&self, hidden: usize) -> usize {
        self.latent.unwrap_or(hidden)
    }

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
            beside_mlp: false,
            weighs_inputs: false,
            scores: RouterScores::Softmax,
            biased: false,
            normalise: true,
            scale: 1.0,
            groups: None,
            by_token: vec![false; layers],
            limits: vec![None; layers],
            shared_limits: vec![None; layers],
        }
    }
}

/// How the logits of a router become scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum RouterScores {
    /// A softmax over all experts, before the choice.
    Softmax,
    /// A softmax over the chosen experts' logits.
    SoftmaxOfChosen,
    /// The sigmoid of each logit; a bias, where the checkpoint has one, counts in the choice only.
    Sigmoid,
    /// The sigmoid of each logit, without a bias.
    PlainSigmoid,
    /// The square root of the softplus of each logit; a bias counts in the choice only.
    SqrtSoftplus,
}

impl RouterScores {
    /// Whether a bias is added to the scores for the choice of experts.
    pub(crate) fn has_bias(self) -> bool {
        matches!(self, Self::Sigmoid | Self::SqrtSoftplus)
    }
}

/// Grouped choice of experts: first groups are chosen, then experts within them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ExpertGroups {
    /// Groups of equal size, consecutive experts each; divides the number of experts.
    pub count: usize,
    /// Groups that experts are chosen from.
    pub chosen: usize,
    /// The score of a group.
    pub rank: GroupRank,
}

/// The score of a group of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum GroupRank {
    /// The best score of the group (DeepSeek V2).
    Best,
    /// The sum of its two best scores (DeepSeek V3).
    BestTwo,
}
