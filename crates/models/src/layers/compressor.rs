//! Compressors (DeepSeek V4): every so many positions become one row of the cache.

use super::linear::Linear;
use crate::error::Error;
use crate::loader::Loader;
use crate::pass::ForwardPass;
use crate::ranks::Slice;
use backend::{Buffer, Compression, Rope};
use formats::layers::CompressorSpec;

/// Projects each position to values and gates, and pools those of the positions of a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compressor {
    values: (Linear, Buffer),
    gates: (Linear, Buffer),
    spec: Compression,
}

impl Compressor {
    /// Loads `name_kv`, `name_gate`, `name_ape` and `name_norm`. `first` is the number of the first
    /// of its rows in the layer, `rotated` the first of the values that are rotated.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, or the device has no memory for it.
    pub fn load(
        loader: &mut Loader<'_>,
        name: &str,
        spec: &CompressorSpec,
        (first, (rope, rotated), eps): (usize, (Rope, usize), f32),
    ) -> Result<Self, Error> {
        let mut linear = |part: &str, buffer: &'static str| {
            let linear = Linear::load_exact(loader, &format!("{name}_{part}"), Slice::Whole)?;
            Ok::<_, Error>((linear, loader.shared(buffer, spec.width())?))
        };
        let (values, gates) = (linear("kv", "pool_values")?, linear("gate", "pool_gates")?);
        let spec = Compression {
            values: first,
            gates: Some((first + 1, loader.vector(&format!("{name}_ape.weight"))?)),
            out: first + 2,
            overlap: spec.overlap,
            norm: Some((loader.vector(&format!("{name}_norm.weight"))?, eps)),
            rope: Some((rope, rotated)),
        };
        Ok(Self { values, gates, spec })
    }

    /// Which rows of the layer are the compressed ones.
    pub fn rows(&self) -> usize {
        self.spec.out
    }

    /// Stores what is pooled of `x`, `[rows, hidden]`, and the rows that become complete.
    pub fn forward(&self, pass: &mut ForwardPass<'_>, layer: usize, x: Buffer) {
        let Self { values: (values, value), gates: (gates, gate), spec } = self;
        let rows = pass.rows();
        Linear::forward_each(pass, x, [(values, *value), (gates, *gate)], rows);
        pass.backend.store_rows(layer, spec.values, *value, pass.batch);
        pass.backend.store_rows(layer, spec.values + 1, *gate, pass.batch);
        pass.backend.compress(layer, spec, pass.batch);
    }
}
