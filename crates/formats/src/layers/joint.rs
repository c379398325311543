//! An MLP and routed experts of one sublayer, with norms of the inputs and outputs of each (Gemma
//! 4).

use serde::Serialize;

use crate::layers::experts::ExpertsSpec;
use crate::layers::files::{FileForms, TensorForm};
use crate::layers::mlp::MlpSpec;
use crate::layers::tensor::{TensorKind, TensorSpec};
use crate::names::ROUTER_SCALES;

/// `post_ffw_norm_1(mlp(ffn_norm(x))) + post_ffw_norm_2(experts(pre_ffw_norm_2(x)))`, whose router
/// reads a norm of `x` that is scaled by `ffn_gate_inp.scale` divided by the root of the width.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JointSpec {
    /// The MLP.
    pub mlp: MlpSpec,
    /// The experts.
    pub experts: ExpertsSpec,
    /// Epsilon of the norms.
    pub eps: f32,
}

impl JointSpec {
    /// The tensors of the operation, whose inputs have `hidden` values, in files of `form`.
    pub fn tensors(&self, hidden: usize, form: TensorForm, files: FileForms) -> Vec<TensorSpec> {
        let mut tensors = self.experts.tensors(hidden, form, files);
        tensors.extend(self.mlp.tensors(hidden));
        tensors.push(TensorKind::Router.tensor(ROUTER_SCALES, &[hidden]));
        let norms = ["ffn_norm", "pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"];
        let norm = |name| TensorKind::Norm.tensor(format!("{name}.weight"), &[hidden]);
        tensors.extend(norms.map(norm));
        tensors
    }
}
