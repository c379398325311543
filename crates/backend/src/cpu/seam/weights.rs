//! Weights of the CPU.

use super::super::machine::Cpu;
use super::super::ops::products::Products;
use super::super::ops::ropes::RopeTable;
use super::super::weights::packed_layout;
use crate::error::Error;
use crate::handles::{
    Experts, ExpertsSpec, Magnitude, Matrix, MatrixSpec, Mode, PackedMatrix, Pairs, Rope, Storage,
    Table, Vector,
};
use crate::memory::TableStats;
use crate::routes::ExpertUse;
use crate::seam::Held;
use crate::seam::InputSums;
use crate::seam::{CachedTables, PackedWeights, RecordedRoutes, StreamedWeights, Weights};
use kernels::layout::STORED;
use kernels::quant::QuantType;
use std::borrow::Cow;

impl Weights for Cpu {
    fn held(&self, ty: &'static QuantType, rows: usize, cols: usize, mode: Mode) -> Held {
        let isa = self.core.isa;
        let (layout, bytes) = packed_layout(ty, rows, cols, mode, isa).unzip();
        let layout = layout.unwrap_or(&STORED);
        Held { layout: layout.name, bytes, arithmetic: Some(layout.arithmetic(isa)) }
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
        let bytes = self.products.matrices.hold(spec.bytes, spec.memory)?;
        self.tables.push(MatrixSpec { bytes, ..spec });
        Ok(Table(self.tables.len() - 1))
    }

    fn cached_tables(&mut self) -> Option<&mut dyn CachedTables> {
        Some(self)
    }

    fn table_stats(&self) -> Option<TableStats> {
        self.kept.stats()
    }

    fn matrix(&mut self, spec: MatrixSpec) -> Result<Matrix, Error> {
        let mode = spec.mode.unwrap_or(self.mode);
        Ok(Matrix(self.products.matrices.add(spec, mode, self.core.isa)?))
    }

    fn experts(&mut self, spec: ExpertsSpec) -> Result<Experts, Error> {
        self.experts.add(&self.core, &mut self.products.matrices, spec)
    }

    fn vector(&mut self, values: Vec<f32>) -> Vector {
        self.core.vectors.push(values);
        Vector(self.core.vectors.len() - 1)
    }

    fn rope(
        &mut self,
        frequencies: Vec<f32>,
        magnitude: Magnitude,
        pairs: Pairs,
        rows: usize,
    ) -> Result<Rope, Error> {
        Ok(self.ropes.add(RopeTable::new(frequencies, magnitude, pairs, rows)?))
    }

    fn input_sums(&mut self) -> Option<Vec<InputSums>> {
        let Products { matrices, sums, .. } = &mut self.products;
        Some(sums.take(matrices))
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
        self.products.matrices.use_packed(matrices);
    }

    fn packed_matrices(&self) -> Vec<(Matrix, PackedMatrix)> {
        let (mut all, places) = (self.products.matrices.packed(), self.experts.places());
        all.sort_by_key(|(matrix, _)| *places.get(&matrix.0).unwrap_or(&(matrix.0, 0)));
        all
    }

    fn read_packed(&mut self, matrix: Matrix) -> Cow<'_, [u8]> {
        // Not kept, so that reading all matrices takes the memory of one.
        if let Some(job) = self.products.matrices.unpacked(matrix.0) {
            return Cow::Owned(job.pack_apart(self.core.isa, &self.core.pool));
        }
        self.products.matrices.prepare(std::iter::once(matrix.0), self.core.isa, &self.core.pool);
        self.products.matrices.read(self.products.matrices.get(matrix.0))
    }

    fn prepare_weights(&mut self) -> bool {
        self.products.matrices.prepare_next(self.core.isa, &self.core.pool)
    }

    fn take_prepared(&mut self) -> bool {
        self.products.matrices.take_prepared()
    }
}

impl RecordedRoutes for Cpu {
    fn record_routes(&mut self) {
        self.experts.scratch.record();
    }

    fn take_routes(&mut self, out: &mut Vec<ExpertUse>) {
        self.experts.scratch.take(out);
    }
}

impl CachedTables for Cpu {
    fn table_memory(&mut self, bytes: usize) -> Result<(), Error> {
        self.kept.start(&self.tables, bytes)
    }

    fn foresee_rows(&mut self, table: Table, rows: &[u32]) {
        if let Some(kept) = self.kept.of(table.0) {
            kept.foresee(&self.core, &self.tables[table.0], rows);
        }
    }
}
