//! Mixtures of experts: a router sends each row to a few of many MLPs; a shared expert, if there is
//! one, computes every row.

use serde::Serialize;

use crate::layers::files::{ExpertFiles, FileForms, TensorForm};
use crate::layers::mlp::{Activation, MlpSpec};
use crate::layers::tensor::{Presence, TensorKind, TensorSpec};
use crate::names::{EXPERT_SCALES, EXPERTS_BY_TOKEN, NamePairs};

/// Names in Hugging Face checkpoints of most families: the router.
pub(crate) const ROUTER: NamePairs = &[
    ("mlp.gate.weight", "ffn_gate_inp.weight"),
    ("mlp.gate.e_score_correction_bias", "exp_probs_b.bias"),
];

/// Routed experts, one tensor each, as published.
pub(crate) const EXPERTS: NamePairs = &[
    ("mlp.experts.{}.gate_proj.weight", "ffn_gate.{}.weight"),
    ("mlp.experts.{}.up_proj.weight", "ffn_up.{}.weight"),
    ("mlp.experts.{}.down_proj.weight", "ffn_down.{}.weight"),
];

/// Routed experts, one tensor for all of a layer, as transformers 5 stores them.
pub(crate) const FUSED_EXPERTS: NamePairs = &[
    ("mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight"),
    ("mlp.experts.down_proj", "ffn_down_exps.weight"),
];

/// Routed experts as Mixtral's checkpoints name them.
pub(crate) const BLOCK_SPARSE: NamePairs = &[
    ("block_sparse_moe.gate.weight", "ffn_gate_inp.weight"),
    ("block_sparse_moe.experts.{}.w1.weight", "ffn_gate.{}.weight"),
    ("block_sparse_moe.experts.{}.w3.weight", "ffn_up.{}.weight"),
    ("block_sparse_moe.experts.{}.w2.weight", "ffn_down.{}.weight"),
];

/// Shared experts of DeepSeek and others.
pub(crate) const SHARED_EXPERTS: NamePairs = &[
    ("mlp.shared_experts.gate_proj.weight", "ffn_gate_shexp.weight"),
    ("mlp.shared_experts.up_proj.weight", "ffn_up_shexp.weight"),
    ("mlp.shared_experts.down_proj.weight", "ffn_down_shexp.weight"),
];

/// The shared expert of Qwen, with its gate.
pub(crate) const QWEN_SHARED: NamePairs = &[
    ("mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight"),
    ("mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight"),
    ("mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight"),
    ("mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight"),
];

/// Routed experts, and how they are chosen.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExpertsSpec {
    /// Routed experts.
    pub count: usize,
    /// Experts that each token is sent to; at most `count`.
    pub chosen: usize,
    /// Inner values of a routed expert.
    pub width: usize,
    /// How gates are applied.
    pub activation: Activation,
    /// Bound of the inner values, as in [`MlpSpec::limit`].
    pub limit: Option<f32>,
    /// Whether experts have gates.
    pub gated: bool,
    /// Whether the router and the experts have biases in every checkpoint (gpt-oss).
    pub biased: bool,
    /// Values that routed experts read and give, where these are projected from the residual stream
    /// and back to it (Nemotron 3); `None` where experts read the stream itself.
    pub latent: Option<usize>,
    /// The shared expert, and whether its output is scaled by a learned gate.
    pub shared: Option<(MlpSpec, bool)>,
    /// Whether the weight of an expert is a factor of its inputs rather than of its outputs
    /// (Llama 4).
    pub weighs_inputs: bool,
    /// Bound of the router's logits, which become `cap * tanh(logit / cap)`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<f32>,
    /// How the router's logits become scores.
    pub scores: RouterScores,
    /// Whether a bias is added to the scores for the choice of experts.
    pub correction: Correction,
    /// Whether the weights of the chosen experts are divided by their sum.
    pub normalise: bool,
    /// Factor of the weights.
    pub scale: f32,
    /// Experts are chosen from the best groups only, if there is more than one.
    pub groups: Option<ExpertGroups>,
    /// Whether each expert has a factor of its own (Gemma 4).
    pub scaled: bool,
}

/// What is added to the scores for the choice of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Correction {
    /// A bias of each expert, where the checkpoint has it.
    Optional,
    /// The same; written checkpoints have it.
    Expected,
    /// A bias of each expert.
    Required,
    /// Nothing: a table chooses the experts of each token id, of which there are so many, and the
    /// scores give only their weights.
    ByToken(usize),
}

impl ExpertsSpec {
    /// The same with a bias for the choice, unless tables choose.
    pub(crate) fn corrected(mut self) -> Self {
        if !matches!(self.correction, Correction::ByToken(_)) {
            self.correction = Correction::Required;
        }
        self
    }

    /// Values that a routed expert reads and gives, where the residual stream has `hidden`.
    pub fn inputs(&self, hidden: usize) -> usize {
        self.latent.unwrap_or(hidden)
    }

    /// The tensors of the operation, whose inputs have `hidden` values, in files of `form`.
    pub fn tensors(&self, hidden: usize, form: TensorForm, files: FileForms) -> Vec<TensorSpec> {
        let (count, kind) = (self.count, TensorKind::Router);
        let bias = if self.biased { Presence::Required } else { Presence::Optional };
        let mut tensors = kind.biased("ffn_gate_inp", [count, hidden], bias).to_vec();
        let scales = kind.tensor(EXPERT_SCALES, &[count]);
        tensors.push(scales.required_if(self.scaled, Presence::Optional));
        let correction = kind.tensor("exp_probs_b.bias", &[count]);
        tensors.push(match self.correction {
            Correction::Optional => correction.that_is(Presence::Optional),
            Correction::Expected => correction.that_is(Presence::Expected),
            Correction::Required => correction,
            Correction::ByToken(ids) => {
                kind.tensor(EXPERTS_BY_TOKEN, &[ids, self.chosen]).of_values()
            }
        });
        tensors.extend(match form {
            TensorForm::Hf => self.routed_in_hf(hidden, files.experts),
            _ => self.routed(hidden),
        });
        if let Some(latent) = self.latent {
            let kind = TensorKind::Other;
            tensors.extend(kind.linear("ffn_latent_down", latent, hidden));
            tensors.extend(kind.linear("ffn_latent_up", hidden, latent));
        }
        if let Some((mlp, gate)) = &self.shared {
            let (kind, row) = (TensorKind::SharedExpert, [1, hidden]);
            tensors.extend(mlp.named(kind, "_shexp", hidden));
            let row = if form.is_gguf() { &row[1..] } else { &row[..] };
            let bias = kind.tensor("ffn_gate_inp_shexp.bias", &[1]);
            let scale = kind.tensor("ffn_gate_inp_shexp.weight", row);
            tensors.extend(
                gate.then(|| [scale, bias.that_is(Presence::Optional)]).into_iter().flatten(),
            );
        }
        tensors
    }

    /// The matrices of all experts, a stack for each part.
    fn routed(&self, hidden: usize) -> Vec<TensorSpec> {
        let (count, kind) = (self.count, TensorKind::RoutedExpert);
        let bias = if self.biased { Presence::Required } else { Presence::Optional };
        let stack = |(part, [outputs, inputs]): (&str, [usize; 2])| {
            let name = |suffix: &str| format!("ffn_{part}_exps.{suffix}");
            let weight = kind.tensor(name("weight"), &[count, outputs, inputs]);
            let bias = kind.tensor(name("bias"), &[count, outputs]).that_is(bias);
            [Some(weight), self.gated.then_some(bias)].into_iter().flatten()
        };
        self.parts(hidden).flat_map(stack).collect()
    }

    /// The projections of one expert, and their outputs and inputs.
    fn parts(&self, hidden: usize) -> impl Iterator<Item = (&'static str, [usize; 2])> {
        let (inputs, width) = (self.inputs(hidden), self.width);
        let parts = [("gate", [width, inputs]), ("up", [width, inputs]), ("down", [inputs, width])];
        parts.into_iter().skip(usize::from(!self.gated))
    }

    /// The matrices of experts as Hugging Face checkpoints store them.
    fn routed_in_hf(&self, hidden: usize, files: ExpertFiles) -> Vec<TensorSpec> {
        let (count, width, kind) = (self.count, self.width, TensorKind::RoutedExpert);
        let inputs = self.inputs(hidden);
        let (up, down) = match files {
            ExpertFiles::Single => {
                let one = |number: usize| {
                    let named = move |(part, shape): (&str, [usize; 2])| {
                        kind.tensor(format!("ffn_{part}.{number}.weight"), &shape)
                    };
                    self.parts(hidden).map(named)
                };
                return (0..count).flat_map(one).collect();
            }
            ExpertFiles::Stacked => return self.routed(hidden),
            ExpertFiles::Fused => ([2 * width, inputs], [inputs, width]),
            ExpertFiles::Transposed | ExpertFiles::ByTurns => {
                ([inputs, 2 * width], [width, inputs])
            }
        };
        let mut tensors = Vec::new();
        for (part, [rows, cols], outputs) in [("gate_up", up, 2 * width), ("down", down, inputs)] {
            tensors.push(kind.tensor(format!("ffn_{part}_exps.weight"), &[count, rows, cols]));
            if files == ExpertFiles::ByTurns {
                tensors.push(kind.tensor(format!("ffn_{part}_exps.bias"), &[count, outputs]));
            }
        }
        tensors
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
