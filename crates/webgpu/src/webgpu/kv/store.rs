//! Storing rows in the cache.

use crate::gpu::{Access, Kernel, Words};
use crate::parts::{EACH, dealt};
use crate::webgpu::held::cache::{Form, PlainPlaces};
use crate::webgpu::held::device::WebGpu;
use crate::webgpu::held::step::{Places, STEP};
use crate::wgsl::params;
use backend::Buffer;

/// Source that addresses plain rows, to be included after [`STORED`].
pub(crate) const PLAIN_ROWS: &str = include_str!("../../shaders/plain_rows.wgsl");

/// Source of storage types.
pub(crate) const STORED: &str = include_str!("../../shaders/stored.wgsl");

/// Source of the places of rows of heads.
const HEAD_ROWS: &str = include_str!("../../shaders/head_rows.wgsl");

static STORE_PLAIN: Kernel = Kernel {
    name: "store_plain",
    source: &[
        PlainParams::WGSL,
        include_str!("../../shaders/store_plain.wgsl"),
        Places::WGSL,
        STEP,
        STORED,
        PlainPlaces::WGSL,
        PLAIN_ROWS,
        EACH,
    ],
    bindings: &[Access::Read, Access::Write, Access::Write],
};

static STORE_HEADS: Kernel = Kernel {
    name: "store_heads",
    source: &[
        include_str!("../../shaders/store_heads.wgsl"),
        HeadsParams::WGSL,
        HEAD_ROWS,
        Places::WGSL,
        STEP,
        STORED,
        EACH,
    ],
    bindings: &[Access::Read, Access::Write, Access::Write],
};
static STORE_CODES: Kernel = Kernel {
    name: "store_codes",
    source: &[
        include_str!("../../shaders/store_codes.wgsl"),
        HeadsParams::WGSL,
        HEAD_ROWS,
        Places::WGSL,
        STEP,
        EACH,
    ],
    bindings: &[Access::Read, Access::Write, Access::Write],
};

params! {
    struct HeadsParams {
        places: Places,
        count: u32,
        group: u32,
        block: u32,
        heads: u32,
        dim: u32,
        row_words: u32,
        form: u32,
    }
}

params! {
    struct PlainParams {
        places: Places,
        cached: PlainPlaces,
        count: u32,
    }
}

impl WebGpu {
    /// Stores `keys` and `values`, `[rows, KV heads * dim]` each, as the first rows of `layer`;
    /// only keys where values are part of them.
    pub(crate) fn store_heads(&mut self, layer: usize, keys: Buffer, values: Option<Buffer>) {
        let cached = self.kv.rows(layer, 0);
        let (rows, row_words) = (cached.rows, cached.row_words());
        let places = self.step.places();
        let (kernel, of_head) = match cached.form {
            Form::Q8_0 => (&STORE_CODES, rows.dim.div_ceil(64)),
            _ => (&STORE_HEADS, row_words),
        };
        let count = places.rows as usize * rows.heads * of_head;
        let params = HeadsParams {
            places,
            count: count as u32,
            group: cached.group as u32,
            block: cached.block as u32,
            heads: rows.heads as u32,
            dim: rows.dim as u32,
            row_words: row_words as u32,
            form: cached.form as u32,
        };
        let mut store = |x: Buffer, to: &Words| {
            let bound = [self.step.words(), &self.buffers[x.0].words, to];
            self.gpu.run(kernel, dealt(count), &bound, &params);
        };
        store(keys, &cached.words);
        if let (Some(values), Some(to)) = (values, &cached.values) {
            store(values, to);
        }
    }

    /// Stores `x`, `[rows, dim]`, as rows `which` of `layer`, one for each position of the batch.
    pub(crate) fn store_plain(&mut self, layer: usize, which: usize, x: Buffer) {
        let (places, rows) = (self.step.places(), self.kv.rows(layer, which));
        let count = places.rows as usize * rows.row_words();
        let params = PlainParams { places, cached: rows.plain(), count: count as u32 };
        let bound = [self.step.words(), &self.buffers[x.0].words, &rows.words];
        self.gpu.run(&STORE_PLAIN, dealt(count), &bound, &params);
    }
}
