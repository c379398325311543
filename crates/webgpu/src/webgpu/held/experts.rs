//! The experts of layers, and the workspace of their products.

use crate::gpu::Words;
use backend::{ExpertsSpec, Matrix};

/// The experts of a layer.
pub(crate) struct ExpertGroup {
    pub(in crate::webgpu) spec: ExpertsSpec,
    /// Made when their weights are on the device.
    pub(in crate::webgpu) projections: Option<Projections>,
}

/// The projections of a layer's experts.
#[derive(Clone)]
pub(in crate::webgpu) struct Projections {
    /// Of their inputs: gates, where there are any, and ups.
    pub(in crate::webgpu) inward: Vec<Projection>,
    pub(in crate::webgpu) down: Projection,
}

/// A matrix of each expert.
#[derive(Clone)]
pub(in crate::webgpu) struct Projection {
    pub(in crate::webgpu) matrix: Matrix,
    /// The chunks with weights.
    pub(in crate::webgpu) chunks: Vec<u32>,
    /// Chunk and word of the weights of each expert, then the order of their columns.
    pub(in crate::webgpu) table: Words,
    /// The order of columns of each expert; one if it is that of all.
    pub(in crate::webgpu) orders: Vec<u32>,
}

/// Workspace of the products of experts, which all layers share.
#[derive(Default)]
pub(crate) struct ExpertWork {
    /// Expert, weight and slot of each choice.
    pub(in crate::webgpu) choices: Option<Words>,
    pub(in crate::webgpu) plan: Option<Words>,
    /// Outputs of slots: gates, or ups where there are none.
    pub(in crate::webgpu) gate: Option<Words>,
    /// Ups after gates.
    pub(in crate::webgpu) up: Option<Words>,
    pub(in crate::webgpu) down: Option<Words>,
}

impl ExpertWork {
    /// Bytes held.
    pub fn bytes(&self) -> usize {
        let Self { choices, plan, gate, up, down } = self;
        let all = [choices, plan, gate, up, down];
        4 * all.into_iter().flatten().map(Words::len).sum::<usize>()
    }
}

impl Projection {
    /// Where the orders begin in the table.
    pub(in crate::webgpu) fn orders_at(&self) -> u32 {
        (self.table.len() / 3 * 2) as u32
    }
}
