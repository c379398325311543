//! Inputs that each layer has of its own for each token (per-layer embeddings; Gemma 3n and 4).
//!
//! They are rows of a table, and a projection of the token's embedding: of each layer `width`
//! values, `(norm(projection) + row) / sqrt(2)`. A layer multiplies them with the gate of its
//! residual stream, and adds a projection of the product.

use super::linear::Linear;
use super::mlp::gate_kind;
use super::norm::Norm;
use super::operation::Operation;
use crate::error::Error;
use crate::loader::Loader;
use crate::pass::ForwardPass;
use crate::ranks::Slice;
use backend::{Buffer, Gate, HeadColumns, MapOp, Table};
use dist::Split;
use formats::layers::{EmbeddingSpec, LayerInputSpec, LayerInputsSpec};

/// The inputs of all layers.
#[derive(Debug)]
pub(crate) struct LayerInputs {
    /// On stages after the first, which have no embeddings in the residual stream.
    own: Option<OwnEmbeddings>,
    table: Table,
    projection: Linear,
    norm: Norm,
    width: usize,
    hidden: usize,
    /// `[rows, layers * width]` each: what is projected, its norm, and the inputs.
    projected: Buffer,
    normed: Buffer,
    inputs: Buffer,
}

/// Embeddings for these inputs alone.
#[derive(Debug)]
struct OwnEmbeddings {
    table: Table,
    scale: f32,
    /// `[rows, hidden]`.
    out: Buffer,
}

impl LayerInputs {
    /// Loads `per_layer_token_embd`, `per_layer_model_proj` and `per_layer_proj_norm`, if layers
    /// have inputs.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, or the device has no memory for it.
    pub fn load(loader: &mut Loader<'_>, spec: &EmbeddingSpec) -> Result<Option<Self>, Error> {
        let hidden = loader.hidden();
        let Some(LayerInputsSpec { width, all, eps }) = spec.layer_inputs else { return Ok(None) };
        let own = match loader.stage.rank() {
            0 => None,
            _ => Some(OwnEmbeddings {
                table: loader.table("token_embd.weight")?,
                scale: spec.scale,
                out: loader.shared("layer_input_embeddings", hidden)?,
            }),
        };
        Ok(Some(Self {
            own,
            table: loader.table("per_layer_token_embd.weight")?,
            projection: Linear::load(loader, "per_layer_model_proj", Slice::Whole)?,
            norm: Norm::load(loader, "per_layer_proj_norm", eps)?,
            width,
            hidden,
            projected: loader.shared("layer_inputs_projected", all)?,
            normed: loader.shared("layer_inputs_normed", all)?,
            inputs: loader.shared("layer_inputs", all)?,
        }))
    }

    /// Computes the inputs of all layers for the tokens of the batch; on the first stage,
    /// `embeddings`, `[rows, hidden]`, are those of these tokens.
    pub fn compute(&self, pass: &mut ForwardPass<'_>, embeddings: Buffer) {
        let Self { projected, normed, inputs, .. } = *self;
        let (rows, root) = (pass.rows(), |count: usize| (count as f32).sqrt());
        let embedded = self.own.as_ref().map_or(embeddings, |own| {
            pass.backend.embed(own.table, pass.batch.tokens(), own.out);
            pass.backend.map(MapOp::Scale(own.scale), own.out, rows);
            own.out
        });
        self.projection.forward(pass, embedded, projected, rows);
        pass.backend.map(MapOp::Scale(1.0 / root(self.hidden)), projected, rows);
        self.norm.forward(pass, projected, normed, rows);
        pass.backend.embed(self.table, pass.batch.tokens(), inputs);
        pass.backend.map(MapOp::Scale(root(self.width)), inputs, rows);
        pass.backend.map(MapOp::Add(normed), inputs, rows);
        pass.backend.map(MapOp::Scale(std::f32::consts::FRAC_1_SQRT_2), inputs, rows);
    }
}

/// The projection of the input of a layer, with its gate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayerInput {
    gate: Linear,
    projection: Linear,
    kind: Gate,
    width: usize,
    /// The layer's columns of the inputs of all layers.
    inputs: HeadColumns,
    /// `[rows, width]` each: the gate, and the input.
    work: [Buffer; 2],
}

impl LayerInput {
    /// Loads `inp_gate` and `proj` of a layer.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, or the device has no memory for it.
    pub fn load(loader: &mut Loader<'_>, spec: &LayerInputSpec) -> Result<Self, Error> {
        let LayerInputSpec { width, first, all, activation } = *spec;
        Ok(Self {
            gate: Linear::load(loader, "inp_gate", Slice::Whole)?,
            projection: Linear::load(loader, "proj", Slice::Whole)?,
            kind: gate_kind(activation),
            width,
            inputs: HeadColumns { buffer: loader.shared("layer_inputs", all)?, first, stride: all },
            work: [loader.shared("layer_input_gate", width)?, loader.shared("layer_input", width)?],
        })
    }
}

impl Operation for LayerInput {
    fn name(&self) -> &'static str {
        "layer input"
    }

    fn split(&self) -> Split {
        Split::Whole
    }

    fn forward(&self, pass: &mut ForwardPass<'_>, x: Buffer, out: Buffer) -> Result<(), Error> {
        let (rows, [gate, input]) = (pass.rows(), self.work);
        self.gate.forward(pass, x, gate, rows);
        let own = HeadColumns { buffer: input, first: 0, stride: self.width };
        pass.backend.copy_heads(self.inputs, self.width, own, rows);
        pass.backend.map(MapOp::Gate(self.kind, input), gate, rows);
        self.projection.forward(pass, gate, out, rows);
        Ok(())
    }
}
