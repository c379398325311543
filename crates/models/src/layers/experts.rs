//! Mixtures of experts: a router sends each row to a few of many MLPs; a shared expert, if there is
//! one, computes every row.

use super::linear::Linear;
use super::mlp::{GatedMlp, limited};
use super::operation::{ForeseenExperts, Operation};
use crate::error::Error;
use crate::loader::Loader;
use crate::pass::ForwardPass;
use crate::ranks::{Slice, experts_of};
use backend::{Buffer, Experts, ExpertsSpec, GroupRank, Groups, MapOp, Matrix, Routing, Scores};
use dist::Split;
use formats::layers::RouterScores;
use formats::layers::{self, Correction};
use formats::names::EXPERT_SCALES;
use std::ops::Range;

#[derive(Debug)]
pub(crate) struct Moe {
    router: Linear,
    /// Logits of the router: `[rows, experts]`.
    logits: Buffer,
    /// Bound of the logits.
    cap: Option<f32>,
    latent: Option<Latent>,
    experts: Experts,
    shared: Option<SharedExpert>,
}

/// The projections around experts that are narrower than the residual stream (Nemotron 3).
#[derive(Debug)]
struct Latent {
    /// `[latent, hidden]` and `[hidden, latent]`.
    projections: [Linear; 2],
    /// Inputs and outputs of the experts: `[rows, latent]` each.
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
    /// `ffn_down_exps`, the biases of all these and `exp_probs_b` if there; for experts that read
    /// fewer values `ffn_latent_down` and `ffn_latent_up`; for a shared expert `ffn_gate_shexp`,
    /// `ffn_up_shexp` and `ffn_down_shexp`, for its gate `ffn_gate_inp_shexp`. This rank holds a
    /// range of the experts, and a range of the shared one's inner values.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, the experts cannot be divided among the ranks,
    /// or the device has no memory for it.
    pub fn load(loader: &mut Loader<'_>, spec: &layers::ExpertsSpec) -> Result<Self, Error> {
        let hidden = loader.hidden();
        let router = Linear::load_exact(loader, "ffn_gate_inp", Slice::Whole)?;
        let own = experts_of(loader.slice, spec.count)?;
        let mut all = |part: &str| matrices(loader, &format!("ffn_{part}_exps"), &own);
        let by_token = matches!(spec.correction, Correction::ByToken(_));
        let experts = ExpertsSpec {
            first: own.start,
            count: spec.count,
            gate: if spec.gated { all("gate")? } else { Vec::new() },
            up: all("up")?,
            down: all("down")?,
            biases: if spec.gated { biases(loader, &own)? } else { None },
            kind: limited(spec.activation, spec.limit),
            weighs_inputs: spec.weighs_inputs,
            routing: routing(spec),
            correction: if by_token { None } else { loader.optional("exp_probs_b.bias")? },
            scales: loader.optional(EXPERT_SCALES)?,
            table: if by_token { Some(loader.expert_table(spec.count)?) } else { None },
            rows: loader.limits.rows,
        };
        let experts = loader.backend.experts(experts)?;
        let shared = match &spec.shared {
            None => None,
            Some((mlp, gate)) => Some(SharedExpert {
                mlp: GatedMlp::load(loader, "_shexp", mlp)?,
                out: loader.shared("shared_expert", hidden)?,
                gate: match gate {
                    true => Some((
                        Linear::load_exact(loader, "ffn_gate_inp_shexp", Slice::Whole)?,
                        loader.shared("shared_gate", 1)?,
                    )),
                    false => None,
                },
            }),
        };
        let latent = spec.latent.map(|width| Latent::load(loader, width)).transpose()?;
        let logits = loader.shared("router", spec.count)?;
        Ok(Self { router, logits, cap: spec.cap, latent, experts, shared })
    }

    /// Computes the logits of `x`, `[rows, hidden]`.
    fn route(&self, pass: &mut ForwardPass<'_>, x: Buffer) {
        let (logits, rows) = (self.logits, pass.rows());
        self.router.forward(pass, x, logits, rows);
        if let Some(cap) = self.cap {
            pass.backend.map(MapOp::SoftCap(cap), logits, rows);
        }
    }

    /// `[rows, hidden]` to `[rows, hidden]`, where the router's inputs may be others than the
    /// experts'.
    pub fn forward_routed(
        &self,
        pass: &mut ForwardPass<'_>,
        (routed, x): (Buffer, Buffer),
        out: Buffer,
    ) {
        let (logits, rows) = (self.logits, pass.rows());
        self.route(pass, routed);
        if let Some(shared) = &self.shared {
            // Computed first, while missing experts are read.
            if let Some(streamed) = pass.backend.streamed_mut() {
                streamed.request_experts(logits, self.experts, pass.batch.tokens());
            }
            shared.mlp.compute(pass, x, shared.out);
            if let Some((gate, logits)) = &shared.gate {
                gate.forward(pass, x, *logits, rows);
                pass.backend.map(MapOp::ScaleBySigmoid(*logits), shared.out, rows);
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
            pass.backend.map(MapOp::Add(shared.out), out, rows);
        }
    }
}

impl Operation for Moe {
    fn name(&self) -> &'static str {
        "MLP"
    }

    fn split(&self) -> Split {
        // Each rank has a summand.
        Split::Experts
    }

    fn experts(&self) -> Option<&dyn ForeseenExperts> {
        Some(self)
    }

    fn forward(&self, pass: &mut ForwardPass<'_>, x: Buffer, out: Buffer) -> Result<(), Error> {
        self.forward_routed(pass, (x, x), out);
        Ok(())
    }
}

impl ForeseenExperts for Moe {
    fn foresee(&self, pass: &mut ForwardPass<'_>, x: Buffer) {
        self.route(pass, x);
        if let Some(streamed) = pass.backend.streamed_mut() {
            streamed.foresee(self.logits, self.experts, pass.batch.tokens());
        }
    }
}

impl Latent {
    /// Loads `ffn_latent_down` and `ffn_latent_up`; every rank has all of them.
    fn load(loader: &mut Loader<'_>, width: usize) -> Result<Self, Error> {
        Ok(Self {
            projections: [
                Linear::load(loader, "ffn_latent_down", Slice::Whole)?,
                Linear::load(loader, "ffn_latent_up", Slice::Whole)?,
            ],
            work: [loader.shared("latent_read", width)?, loader.shared("latent_given", width)?],
        })
    }
}

/// The matrices of the experts `own`, of a stack `[experts, outputs, inputs]`.
fn matrices(loader: &mut Loader<'_>, name: &str, own: &Range<usize>) -> Result<Vec<Matrix>, Error> {
    let view = loader.require(&format!("{name}.weight"))?.clone();
    own.clone().map(|expert| loader.matrix_of(&view.part(expert))).collect()
}

/// Biases of the experts `own`.
fn biases(
    loader: &mut Loader<'_>,
    own: &Range<usize>,
) -> Result<Option<[backend::Vector; 3]>, Error> {
    let mut bias = |part: &str| {
        let name = format!("ffn_{part}_exps.bias");
        let outputs = loader.shape(&name)[1];
        loader.optional_part(&name, own.start * outputs..own.end * outputs)
    };
    match [bias("gate")?, bias("up")?, bias("down")?] {
        [Some(gate), Some(up), Some(down)] => Ok(Some([gate, up, down])),
        [None, None, None] => Ok(None),
        _ => Err(Error::Config(format!(
            "{}expected biases for gate, up and down projections of the experts, or for none of \
             them",
            loader.full_name("ffn_*_exps.bias: ")
        ))),
    }
}

fn routing(config: &layers::ExpertsSpec) -> Routing {
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
                layers::GroupRank::Best => GroupRank::Best,
                layers::GroupRank::BestTwo => GroupRank::BestTwo,
            },
        }),
    }
}
