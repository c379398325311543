//! Mixtures of experts: a router sends each row to a few of many MLPs, beside which one may be that
//! every row passes through.

use super::{ForwardPass, GatedMlp, Linear, MlpBuffers};
use crate::Error;
use crate::layers::mlp::gate_kind;
use crate::loader::Loader;
use crate::ranks::part;
use backend::{Backend, Buffer, Experts, ExpertsSpec, GroupRank, Groups, Matrix, Routing, Scores};
use dist::Split;
use formats::config::{self, ExpertsConfig, RouterScores};
use std::ops::Range;

/// Workspace shared by the mixtures of all layers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MoeBuffers {
    /// `[rows, experts]`.
    logits: Buffer,
    /// `[rows, 1]`.
    gate: Buffer,
    /// What all rows pass through gives: `[rows, hidden]`.
    shared: Buffer,
}

impl MoeBuffers {
    pub fn new(
        backend: &mut dyn Backend,
        rows: usize,
        hidden: usize,
        config: &ExpertsConfig,
    ) -> Result<Self, Error> {
        let mut buffer = |width| backend.buffer(rows, width);
        Ok(Self { logits: buffer(config.count)?, gate: buffer(1)?, shared: buffer(hidden)? })
    }
}

#[derive(Debug)]
pub(crate) struct Moe {
    router: Linear,
    experts: Experts,
    shared: Option<GatedMlp>,
    /// How much of the shared part counts.
    shared_gate: Option<Linear>,
}

impl Moe {
    /// Loads `ffn_gate_inp`, `ffn_gate_exps`, `ffn_up_exps` and `ffn_down_exps` of a layer, the
    /// biases of all these and `exp_probs_b` if there; where there is a shared part,
    /// `ffn_gate_shexp`, `ffn_up_shexp`, `ffn_down_shexp`, and `ffn_gate_inp_shexp` if there. Of
    /// the experts this rank has its own, of the shared part some of the inner values.
    pub fn load(
        loader: &mut Loader<'_>,
        layer: usize,
        config: &ExpertsConfig,
    ) -> Result<Self, Error> {
        let hidden = loader.checkpoint.config().hidden_size;
        let name = |part: &str| format!("blk.{layer}.ffn_{part}");
        let router = loader.exact_linear(&name("gate_inp"), config.count, hidden)?;
        let own = part(loader.slice, (config.count, "experts"), &[1])?;
        let mut all = |part: &str, outputs: usize, inputs: usize| {
            matrices(loader, &name(part), &own, [config.count, outputs, inputs])
        };
        let spec = ExpertsSpec {
            first: own.start,
            count: config.count,
            gate: all("gate_exps", config.width, hidden)?,
            up: all("up_exps", config.width, hidden)?,
            down: all("down_exps", hidden, config.width)?,
            biases: biases(loader, layer, config, &own)?,
            kind: gate_kind(loader.checkpoint.config().activation),
            routing: routing(config),
            correction: loader
                .optional(&format!("blk.{layer}.exp_probs_b.bias"), &[config.count])?,
            rows: loader.limits.rows,
        };
        let experts = loader.backend.experts(spec)?;
        let (mut shared, mut shared_gate) = (None, None);
        if config.shared_width > 0 {
            shared = Some(GatedMlp::load(loader, layer, "_shexp", config.shared_width)?);
            let gate = name("gate_inp_shexp");
            if loader.checkpoint.tensor(&format!("{gate}.weight")).is_some() {
                shared_gate = Some(loader.exact_linear(&gate, 1, hidden)?);
            }
        }
        Ok(Self { router, experts, shared, shared_gate })
    }

    /// What each rank has of the outputs: a share, of the shared part too.
    pub fn split(&self) -> Split {
        Split::Experts
    }

    /// Inner values of the shared part that this rank has.
    pub fn shared_width(&self) -> usize {
        self.shared.as_ref().map_or(0, GatedMlp::width)
    }

    /// `[rows, hidden]` to `[rows, hidden]`.
    pub fn forward(
        &self,
        pass: &mut ForwardPass<'_>,
        x: Buffer,
        out: Buffer,
        (work, mlp): (&MoeBuffers, &MlpBuffers),
    ) {
        let rows = pass.rows();
        self.router.forward(pass, x, work.logits, rows);
        pass.backend.mix_experts(x, work.logits, self.experts, out, rows);
        if let Some(shared) = &self.shared {
            shared.forward(pass, x, work.shared, mlp);
            if let Some(gate) = &self.shared_gate {
                gate.forward(pass, x, work.gate, rows);
                pass.backend.scale_by_sigmoid(work.shared, work.gate, rows);
            }
            pass.backend.add(out, work.shared, rows);
        }
    }
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
            RouterScores::Sigmoid => Scores::Sigmoid,
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
