//! Mixtures of experts: a router sends each row to a few of many MLPs; a shared expert, if there is
//! one, computes every row.

use super::{ForwardPass, GatedMlp, Linear};
use crate::Error;
use crate::layers::mlp::gate_kind;
use crate::loader::Loader;
use crate::ranks::{Slice, part};
use backend::{Buffer, Experts, ExpertsSpec, Gate, GroupRank, Groups, Matrix, Routing, Scores};
use formats::config::{self, Activation, ExpertsConfig, RouterScores};
use std::ops::Range;

#[derive(Debug)]
pub(crate) struct Moe {
    router: Linear,
    /// Logits of the router: `[rows, experts]`.
    logits: Buffer,
    latent: Option<Latent>,
    experts: Experts,
    shared: Option<SharedExpert>,
}

/// The projections around experts that read and give fewer values than the residual stream has
/// (Nemotron 3).
#[derive(Debug)]
struct Latent {
    /// `[latent, hidden]` and `[hidden, latent]`.
    projections: [Linear; 2],
    /// What experts read and what they give: `[rows, latent]` each.
    work: [Buffer; 2],
}

/// The MLP that every row passes through.
#[derive(Debug)]
struct SharedExpert {
    mlp: GatedMlp,
    /// Output: `[rows, hidden]`.
    out: Buffer,
    /// The gate that scales the output, and its logits `[rows, 1]`.
    gate: Option<(Linear, Buffer)>,
}

impl Moe {
    /// Loads `ffn_gate_inp`, `ffn_gate_exps` where experts have gates, `ffn_up_exps` and
    /// `ffn_down_exps` of a layer, the biases of all these and `exp_probs_b` if there; for experts
    /// that read fewer values `ffn_latent_down` and `ffn_latent_up`; for a shared expert
    /// `ffn_gate_shexp`, `ffn_up_shexp` and `ffn_down_shexp`, for its gate `ffn_gate_inp_shexp`.
    /// This rank holds a range of the experts, and a range of the shared one's inner values.
    pub fn load(
        loader: &mut Loader<'_>,
        layer: usize,
        config: &ExpertsConfig,
    ) -> Result<Self, Error> {
        let hidden = loader.checkpoint.config().hidden_size;
        let activation = loader.checkpoint.config().activation;
        let name = |part: &str| format!("blk.{layer}.ffn_{part}");
        let router =
            Linear::load_exact(loader, &name("gate_inp"), config.count, hidden, Slice::Whole)?;
        let own = part(loader.slice, (config.count, "experts"), &[1])?;
        let is_plain = loader.checkpoint.config().plain_mlp;
        let inputs = config.inputs(hidden);
        let mut all = |part: &str, outputs: usize, inputs: usize| {
            matrices(loader, &name(part), &own, [config.count, outputs, inputs])
        };
        let spec = ExpertsSpec {
            first: own.start,
            count: config.count,
            gate: match is_plain {
                true => Vec::new(),
                false => all("gate_exps", config.width, inputs)?,
            },
            up: all("up_exps", config.width, inputs)?,
            down: all("down_exps", inputs, config.width)?,
            biases: biases(loader, layer, config, &own)?,
            kind: limited(activation, config.limits[layer]),
            weighs_inputs: config.weighs_inputs,
            routing: routing(config),
            correction: loader
                .optional(&format!("blk.{layer}.exp_probs_b.bias"), &[config.count])?,
            scales: loader
                .optional(&format!("blk.{layer}.ffn_down_exps.scale"), &[config.count])?,
            table: match config.by_token[layer] {
                true => Some(loader.expert_table(layer, config)?),
                false => None,
            },
            rows: loader.limits.rows,
        };
        let experts = loader.backend.experts(spec)?;
        let shared = match config.shared_width {
            0 => None,
            width => Some(SharedExpert {
                mlp: {
                    let kind = limited(activation, config.shared_limits[layer]);
                    GatedMlp::load(loader, layer, "_shexp", (width, kind))?
                },
                out: loader.shared("shared_expert", hidden)?,
                gate: match config.shared_gate {
                    true => Some((
                        Linear::load_exact(
                            loader,
                            &name("gate_inp_shexp"),
                            1,
                            hidden,
                            Slice::Whole,
                        )?,
                        loader.shared("shared_gate", 1)?,
                    )),
                    false => None,
                },
            }),
        };
        let latent = config.latent.map(|width| Latent::load(loader, layer, width)).transpose()?;
        let logits = loader.shared("router", config.count)?;
        Ok(Self { router, logits, latent, experts, shared })
    }

    /// Guesses the experts from `x`, `[rows, hidden]`, the input of an earlier layer's experts, so
    /// that those on disk can be read before they are chosen.
    pub fn foresee(&self, pass: &mut ForwardPass<'_>, x: Buffer) {
        let rows = pass.rows();
        self.router.forward(pass, x, self.logits, rows);
        pass.backend.foresee(self.logits, self.experts, pass.batch.tokens());
    }

    /// `[rows, hidden]` to `[rows, hidden]`.
    pub fn forward(&self, pass: &mut ForwardPass<'_>, x: Buffer, out: Buffer) {
        self.forward_routed(pass, (x, x), out);
    }

    /// The same, where the router's inputs are others than the experts'.
    pub fn forward_routed(
        &self,
        pass: &mut ForwardPass<'_>,
        (routed, x): (Buffer, Buffer),
        out: Buffer,
    ) {
        let (logits, rows) = (self.logits, pass.rows());
        self.router.forward(pass, routed, logits, rows);
        if let Some(shared) = &self.shared {
            // Computed first, while missing experts are read.
            pass.backend.request_experts(logits, self.experts, pass.batch.tokens());
            shared.mlp.forward(pass, x, shared.out);
            if let Some((gate, logits)) = &shared.gate {
                gate.forward(pass, x, *logits, rows);
                pass.backend.scale_by_sigmoid(shared.out, *logits, rows);
            }
        }
        match &self.latent {
            None => pass.backend.mix_experts(x, logits, self.experts, out, pass.batch.tokens()),
            Some(Latent { projections: [down, up], work: [read, given] }) => {
                down.forward(pass, x, *read, rows);
                let tokens = pass.batch.tokens();
                pass.backend.mix_experts(*read, logits, self.experts, *given, tokens);
                up.forward(pass, *given, out, rows);
            }
        }
        if let Some(shared) = &self.shared {
            pass.backend.add(out, shared.out, rows);
        }
    }
}

impl Latent {
    /// Loads `ffn_latent_down` and `ffn_latent_up` of a layer; every rank has all of them.
    fn load(loader: &mut Loader<'_>, layer: usize, width: usize) -> Result<Self, Error> {
        let hidden = loader.checkpoint.config().hidden_size;
        let name = |part: &str| format!("blk.{layer}.ffn_latent_{part}");
        Ok(Self {
            projections: [
                Linear::load(loader, &name("down"), width, hidden, Slice::Whole)?,
                Linear::load(loader, &name("up"), hidden, width, Slice::Whole)?,
            ],
            work: [loader.shared("latent_read", width)?, loader.shared("latent_given", width)?],
        })
    }
}

/// The gate for an activation, with a limit of its inputs where a layer has one.
fn limited(activation: Activation, limit: Option<f32>) -> Gate {
    limit.map_or(gate_kind(activation), |limit| Gate::SiluClamped { limit })
}

/// The matrices of the experts `own`, of a stack `[experts, outputs, inputs]`.
fn matrices(
    loader: &mut Loader<'_>,
    name: &str,
    own: &Range<usize>,
    shape: [usize; 3],
) -> Result<Vec<Matrix>, Error> {
    let view = loader.checkpoint.require(&format!("{name}.weight"), &shape)?.clone();
    own.clone().map(|expert| loader.matrix_of(&view.part(expert))).collect()
}

/// Biases of the experts `own`.
fn biases(
    loader: &mut Loader<'_>,
    layer: usize,
    config: &ExpertsConfig,
    own: &Range<usize>,
) -> Result<Option<[backend::Vector; 3]>, Error> {
    let hidden = loader.checkpoint.config().hidden_size;
    let mut bias = |part: &str, outputs: usize| {
        let name = format!("blk.{layer}.ffn_{part}_exps.bias");
        let values = own.start * outputs..own.end * outputs;
        loader.optional_part(&name, &[config.count, outputs], values)
    };
    let all = [bias("gate", config.width)?, bias("up", config.width)?, bias("down", hidden)?];
    match all {
        [Some(gate), Some(up), Some(down)] => Ok(Some([gate, up, down])),
        [None, None, None] => Ok(None),
        _ => Err(Error::Config(format!(
            "layer {layer}: expected biases for gate, up and down projections of the experts, or \
             for none of them"
        ))),
    }
}

fn routing(config: &ExpertsConfig) -> Routing {
    Routing {
        chosen: config.chosen,
        scores: match config.scores {
            RouterScores::Softmax => Scores::Softmax,
            RouterScores::SoftmaxOfChosen => Scores::SoftmaxOfChosen,
            RouterScores::Sigmoid | RouterScores::PlainSigmoid => Scores::Sigmoid,
            RouterScores::SqrtSoftplus => Scores::SqrtSoftplus,
        },
        normalise: config.normalise,
        scale: config.scale,
        groups: config.groups.map(|groups| Groups {
            count: groups.count,
            chosen: groups.chosen,
            rank: match groups.rank {
                config::GroupRank::Best => GroupRank::Best,
                config::GroupRank::BestTwo => GroupRank::BestTwo,
            },
        }),
    }
}
