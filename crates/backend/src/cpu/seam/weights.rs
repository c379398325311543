//! Weights of the CPU.

use super::super::Cpu;
use super::super::ops::ropes::RopeTable;
use super::super::weights::packed_layout;
use crate::{
    Error, Experts, ExpertsSpec, Held, InputSums, Magnitude, Matrix, MatrixSpec, Mode,
    PackedMatrix, PackedWeights, Pairs, RecordedRoutes, Rope, Storage, StreamedWeights, Table,
    Vector, Weights,
};
use kernels::layout::STORED;
use kernels::quant::QuantType;
use std::borrow::Cow;

impl Weights for Cpu {
    fn held(&self, ty: &'static QuantType, rows: usize, cols: usize, mode: Mode) -> Held {
        let (layout, bytes) = packed_layout(ty, rows, cols, mode, self.isa).unzip();
        Held { layout: layout.unwrap_or(&STORED).name, bytes }
    }

    fn mode(&self) -> Mode {
        self.mode
    }

    fn table(&mut self, spec: MatrixSpec) -> Result<Table, Error> {
        let row_bytes = spec.row_bytes()?;
        assert_eq!(Some(spec.bytes.len()), spec.rows.checked_mul(row_bytes), "table bytes");
        if spec.order.is_some() {
            return Err(Error::Order);
        }
        let bytes = self.matrices.hold(spec.bytes, spec.memory)?;
        self.tables.push(MatrixSpec { bytes, ..spec });
        Ok(Table(self.tables.len() - 1))
    }

    fn matrix(&mut self, spec: MatrixSpec) -> Result<Matrix, Error> {
        let mode = spec.mode.unwrap_or(self.mode);
        Ok(Matrix(self.matrices.add(spec, mode, self.isa)?))
    }

    fn experts(&mut self, spec: ExpertsSpec) -> Result<Experts, Error> {
        let group = self.expert_group(spec)?;
        self.experts.push(group);
        Ok(Experts(self.experts.len() - 1))
    }

    fn vector(&mut self, values: Vec<f32>) -> Vector {
        self.vectors.push(values);
        Vector(self.vectors.len() - 1)
    }

    fn rope(
        &mut self,
        frequencies: Vec<f32>,
        magnitude: Magnitude,
        pairs: Pairs,
        rows: usize,
    ) -> Result<Rope, Error> {
        self.ropes.push(RopeTable::new(frequencies, magnitude, pairs, rows)?);
        Ok(Rope(self.ropes.len() - 1))
    }

    fn input_sums(&mut self) -> Option<Vec<InputSums>> {
        Some(self.take_input_sums())
    }

    fn packed(&mut self) -> Option<&mut dyn PackedWeights> {
        Some(self)
    }

    fn streamed(&self) -> Option<&dyn StreamedWeights> {
        Some(self)
    }

    fn streamed_mut(&mut self) -> Option<&mut dyn StreamedWeights> {
        Some(self)
    }

    fn routes(&mut self) -> Option<&mut dyn RecordedRoutes> {
        Some(self)
    }
}

impl PackedWeights for Cpu {
    fn use_packed(&mut self, matrices: Vec<(PackedMatrix, Storage)>) {
        self.matrices.use_packed(matrices);
    }

    fn packed_matrices(&self) -> Vec<(Matrix, PackedMatrix)> {
        let (mut all, places) = (self.matrices.packed(), self.places_of_experts());
        all.sort_by_key(|(matrix, _)| *places.get(&matrix.0).unwrap_or(&(matrix.0, 0)));
        all
    }

    fn read_packed(&mut self, matrix: Matrix) -> Cow<'_, [u8]> {
        // Not kept, so that reading all matrices takes the memory of one.
        if let Some(job) = self.matrices.unpacked(matrix.0) {
            return Cow::Owned(job.pack_apart(self.isa, &self.pool));
        }
        self.matrices.prepare(std::iter::once(matrix.0), self.isa, &self.pool);
        self.matrices.read(self.matrices.get(matrix.0))
    }

    fn prepare_weights(&mut self) -> bool {
        self.matrices.prepare_next(self.isa, &self.pool)
    }

    fn take_prepared(&mut self) -> bool {
        self.matrices.take_prepared()
    }
}
