//! The specification of the device seam: every operation as plain loops over f32, for tests and
//! for `gannet verify --device reference`.
//!
//! Weights are dequantised when they are loaded, the KV cache holds f32 rows, and the calling
//! thread computes everything in ascending order. Instruction sets, memory policies and limits of
//! threads change nothing here.

mod adapters;
mod cache;
mod gates;
mod machine;
mod operations;
mod recurrent;
mod rotation;
mod rows;
mod sparse;
mod streams;

use crate::batch::BlockCopy;
use crate::cache_spec::CacheSpec;
use crate::error::Error;
use crate::handles::{
    Experts, ExpertsSpec, Magnitude, Matrix, MatrixSpec, Mode, Pairs, Rope, Table, Vector,
};
use crate::memory::Memory;
use crate::seam::{Cache, Device, Executor, Held, Weights};
use cache::ReferenceCache;
use kernels::quant::QuantType;
use machine::{Reference, Rotation};
use rows::Rows;

/// The specification of the operations, on one thread.
pub static REFERENCE: Device = Device {
    name: "reference",
    is_gpu: false,
    list: Vec::new,
    open: |options| Ok(Box::new(Reference::new(options.mode)?)),
};

impl Executor for Reference {
    fn device(&self) -> &'static Device {
        &REFERENCE
    }

    fn identity(&self) -> String {
        "reference".to_owned()
    }

    fn threads(&self) -> usize {
        1
    }

    fn memory(&self) -> Memory {
        let bytes = |rows: &[Rows]| rows.iter().map(|rows| 4 * rows.values.len()).sum::<usize>();
        let vectors = self.vectors.iter().map(|vector| 4 * vector.len()).sum::<usize>();
        let (cache, states) = self.cache.bytes();
        let weights = bytes(&self.matrices) + vectors;
        Memory { weights, workspace: bytes(&self.buffers), cache, states }
    }
}

impl Weights for Reference {
    fn mode(&self) -> Mode {
        Mode::Exact
    }

    fn held(&self, _: &'static QuantType, rows: usize, cols: usize, _: Mode) -> Held {
        Held {
            layout: "f32",
            bytes: Some(rows.saturating_mul(cols).saturating_mul(4)),
            arithmetic: None,
        }
    }

    fn table(&mut self, spec: MatrixSpec) -> Result<Table, Error> {
        self.matrix(spec).map(|matrix| Table(matrix.0))
    }

    fn matrix(&mut self, spec: MatrixSpec) -> Result<Matrix, Error> {
        self.matrices.push(Self::dequantised(&spec)?);
        Ok(Matrix(self.matrices.len() - 1))
    }

    fn vector(&mut self, values: Vec<f32>) -> Vector {
        self.vectors.push(values);
        Vector(self.vectors.len() - 1)
    }

    fn experts(&mut self, spec: ExpertsSpec) -> Result<Experts, Error> {
        if let Some(problem) = spec.broken() {
            return Err(Error::Experts(problem));
        }
        self.experts.push(spec);
        Ok(Experts(self.experts.len() - 1))
    }

    fn rope(
        &mut self,
        frequencies: Vec<f32>,
        magnitude: Magnitude,
        pairs: Pairs,
        _rows: usize,
    ) -> Result<Rope, Error> {
        self.ropes.push(Rotation { frequencies, magnitude, pairs, angles: Vec::new() });
        Ok(Rope(self.ropes.len() - 1))
    }
}

impl Cache for Reference {
    fn cache(&mut self, spec: &CacheSpec<'_>) -> Result<(), Error> {
        self.cache = ReferenceCache::new(spec)?;
        Ok(())
    }

    fn copy_blocks(&mut self, copies: &[BlockCopy]) {
        for &BlockCopy { group, from, to } in copies {
            let rows = self.cache.layers.iter_mut().flatten().filter(|rows| rows.group == group);
            rows.for_each(|rows| rows.copy(from, to));
        }
    }

    fn copy_states(&mut self, copies: &[(u32, u32)]) {
        for state in self.cache.states.iter_mut().flatten() {
            for &(from, to) in copies {
                state.slots[to as usize] = state.slots[from as usize].clone();
            }
        }
    }
}
