//! A device with what is loaded into it: memory behind handles.

use super::cache::KvCache;
use super::experts::{ExpertGroup, ExpertWork};
use super::matrices::Matrices;
use super::rotation::Rotation;
use super::selections::{Choice, Workplace};
use super::states::States;
use super::step::StepBatch;
use crate::gpu::{Gpu, Words};
use backend::{Buffer, Device, Error, MatrixSpec, Mode};

/// Rows of f32 values in the device's memory.
pub(crate) struct DeviceRows {
    /// Values of a row.
    pub width: usize,
    /// `[rows, width]`.
    pub words: Words,
    /// The first rows, as they were fetched last.
    pub(in crate::webgpu) host: Vec<f32>,
}

/// A device of wgpu with what is loaded into it.
pub(crate) struct WebGpu {
    pub gpu: Gpu,
    pub(in crate::webgpu) device: &'static Device,
    pub(in crate::webgpu) identity: String,
    /// Whether the device's memory is that of the host.
    pub(in crate::webgpu) shares_memory: bool,
    pub mode: Mode,
    pub step: StepBatch,
    pub buffers: Vec<DeviceRows>,
    pub vectors: Vec<Words>,
    /// Tables stay with the host, which sends the rows of a step.
    pub(in crate::webgpu) tables: Vec<MatrixSpec>,
    pub matrices: Matrices,
    /// Workspace of experts.
    pub expert_work: ExpertWork,
    pub experts: Vec<ExpertGroup>,
    pub ropes: Vec<Rotation>,
    pub kv: KvCache,
    pub states: States,
    pub selections: Vec<Choice>,
    pub sparse: Workplace,
    /// The first error of an operation that cannot report one.
    pub(in crate::webgpu) failed: Option<Error>,
    pub(in crate::webgpu) workspace_bytes: usize,
}

impl WebGpu {
    /// An empty backend on an open device; `identity` names its arithmetic, and
    /// `shares_memory` says whether its memory is that of the host.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn new(
        mut gpu: Gpu,
        device: &'static Device,
        (identity, shares_memory): (String, bool),
        mode: Mode,
    ) -> Result<Self, Error> {
        let step = StepBatch::new(&mut gpu)?;
        Ok(Self {
            gpu,
            device,
            identity,
            shares_memory,
            mode,
            step,
            buffers: Vec::new(),
            vectors: Vec::new(),
            tables: Vec::new(),
            matrices: Matrices::default(),
            expert_work: Default::default(),
            experts: Vec::new(),
            ropes: Vec::new(),
            kv: KvCache::default(),
            states: States::default(),
            selections: Vec::new(),
            sparse: Workplace::default(),
            failed: None,
            workspace_bytes: 0,
        })
    }

    pub fn buffer_of(&self, buffer: Buffer) -> &DeviceRows {
        &self.buffers[buffer.0]
    }

    /// Keeps the first error for the end of the step.
    pub fn note(&mut self, result: Result<(), Error>) {
        if let Err(error) = result {
            self.failed.get_or_insert(error);
        }
    }

    /// Allocates workspace of an operation.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn workspace(&mut self, words: usize) -> Result<Words, Error> {
        let made = self.gpu.zeroed(words)?;
        self.workspace_bytes += 4 * made.len();
        Ok(made)
    }
}
