//! An MLP and routed experts of one sublayer, with norms of the output of each (Gemma 4).
//!
//! Both read the residual stream through norms of their own: the MLP through `ffn_norm`, the
//! experts through `pre_ffw_norm_2`, their router through a norm that is scaled by
//! `ffn_gate_inp.scale` divided by the root of the width. Their outputs are added:
//! `post_ffw_norm_1(mlp) + post_ffw_norm_2(experts)`.

use super::experts::Moe;
use super::mlp::GatedMlp;
use super::norm::Norm;
use super::operation::Operation;
use crate::error::Error;
use crate::loader::Loader;
use crate::pass::ForwardPass;
use backend::{Buffer, MapOp};
use dist::Split;
use formats::layers::JointSpec;
use formats::names::ROUTER_SCALES;

#[derive(Debug)]
pub(crate) struct MlpAndExperts {
    mlp: GatedMlp,
    experts: Moe,
    /// Norms of the inputs: of the MLP, the router and the experts.
    before: [Norm; 3],
    /// Norms of the outputs: of the MLP and the experts.
    after: [Norm; 2],
    /// Inputs and outputs, `[rows, hidden]`.
    work: [Buffer; 3],
}

impl MlpAndExperts {
    /// Loads the MLP, experts and norms of a layer.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, or the device has no memory for it.
    pub fn load(loader: &mut Loader<'_>, spec: &JointSpec) -> Result<Self, Error> {
        let (hidden, eps) = (loader.hidden(), spec.eps);
        let mlp = GatedMlp::load(loader, "", &spec.mlp)?;
        let experts = Moe::load(loader, &spec.experts)?;
        let mut norm = |name: &str| Norm::load(loader, name, eps);
        let (of_mlp, of_experts) = (norm("ffn_norm")?, norm("pre_ffw_norm_2")?);
        let after = [norm("post_ffw_norm_1")?, norm("post_ffw_norm_2")?];
        let of_router = Norm::scaled(loader, ROUTER_SCALES, eps, 1.0 / (hidden as f32).sqrt())?;
        let mut buffer = |name| loader.shared(name, hidden);
        let work = [buffer("joint_input")?, buffer("joint_mlp")?, buffer("joint_experts")?];
        Ok(Self { mlp, experts, before: [of_mlp, of_router, of_experts], after, work })
    }
}

impl Operation for MlpAndExperts {
    fn name(&self) -> &'static str {
        "MLP"
    }

    fn split(&self) -> Split {
        Split::Whole
    }

    fn forward(&self, pass: &mut ForwardPass<'_>, x: Buffer, out: Buffer) -> Result<(), Error> {
        let (rows, [input, of_mlp, of_experts]) = (pass.rows(), self.work);
        let ([mlp_norm, router_norm, experts_norm], [after_mlp, after_experts]) =
            (self.before, self.after);
        mlp_norm.forward(pass, x, input, rows);
        self.mlp.compute(pass, input, of_mlp);
        pass.sum_over_ranks(of_mlp, self.mlp.down.split)?;
        after_mlp.forward(pass, of_mlp, out, rows);
        router_norm.forward(pass, x, of_mlp, rows);
        experts_norm.forward(pass, x, input, rows);
        self.experts.forward_routed(pass, (of_mlp, input), of_experts);
        pass.sum_over_ranks(of_experts, Split::Experts)?;
        after_experts.forward(pass, of_experts, input, rows);
        pass.backend.map(MapOp::Add(input), out, rows);
        Ok(())
    }
}
