//! Compressors (DeepSeek V4): every so many positions become one row of the cache.

use super::{ForwardPass, Linear};
use crate::Error;
use crate::loader::Loader;
use crate::ranks::Slice;
use backend::{Buffer, Compression, KvType, Rope, Rounding, RowLayout, Rows};

/// Sizes of a compressor.
#[derive(Clone, Copy, Debug)]
pub(super) struct CompressorSizes {
    /// Positions to a row.
    pub every: usize,
    /// Values of a row.
    pub dim: usize,
    /// Whether a row also pools the positions of the row before.
    pub overlap: bool,
}

/// Projects each position to values and gates, and pools those of the positions of a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compressor {
    values: (Linear, Buffer),
    gates: (Linear, Buffer),
    spec: Compression,
}

impl CompressorSizes {
    /// Values and gates of a position: for the row before and for its own.
    fn width(&self) -> usize {
        if self.overlap { 2 * self.dim } else { self.dim }
    }

    /// The rows of a layer: what is pooled, compressed rows last, which are rounded as said.
    pub fn rows(&self, rounding: Rounding) -> [Rows; 3] {
        let window = if self.overlap { 2 * self.every } else { self.every };
        let input = Rows { ty: Some(KvType::F32), ..Rows::plain(self.width(), Some(window)) };
        let layout = RowLayout::Plain(rounding);
        [input, input, Rows { every: self.every, layout, ..Rows::plain(self.dim, None) }]
    }
}

impl Compressor {
    /// Loads `name_kv`, `name_gate`, `name_ape` and `name_norm`. `first` is the number of the first
    /// of its rows in the layer.
    pub fn load(
        loader: &mut Loader<'_>,
        name: &str,
        sizes: CompressorSizes,
        (first, rope): (usize, Rope),
    ) -> Result<Self, Error> {
        let config = loader.checkpoint.config();
        let (hidden, eps) = (config.hidden_size, config.rms_norm_eps);
        let width = sizes.width();
        let mut linear = |part: &str, buffer: &'static str| {
            let name = format!("{name}_{part}");
            let linear = Linear::load_exact(loader, &name, width, hidden, Slice::Whole)?;
            Ok::<_, Error>((linear, loader.shared(buffer, width)?))
        };
        let (values, gates) = (linear("kv", "pool_values")?, linear("gate", "pool_gates")?);
        let bias = [sizes.every, width];
        let spec = Compression {
            values: first,
            gates: first + 1,
            out: first + 2,
            overlap: sizes.overlap,
            bias: loader.vector(&format!("{name}_ape.weight"), &bias, 0..sizes.every * width)?,
            norm: loader.vector(&format!("{name}_norm.weight"), &[sizes.dim], 0..sizes.dim)?,
            eps,
            rope,
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
        pass.backend.store_rows(layer, spec.gates, *gate, pass.batch);
        pass.backend.compress(layer, spec, pass.batch);
    }
}
