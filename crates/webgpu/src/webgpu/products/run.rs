//! Dispatches of products.

use crate::gpu::{Access, Kernel, Words};
use crate::parts::{EACH, MAX_GROUPS, dealt};
use crate::webgpu::held::device::WebGpu;
use crate::webgpu::held::form::{Form, InputForm, ProductParams, TILE_ROWS};
use crate::webgpu::held::matrices::NONE;
use crate::wgsl::params;
use backend::Error;
use kernels::quant::{BLOCK, SPAN};

/// Invocations of a workgroup for few rows.
const LANES: usize = 128;
/// Outputs of a workgroup for many rows.
const OUTPUTS: usize = 64;

const BINDINGS: &[Access] =
    &[Access::Write, Access::Write, Access::Read, Access::Read, Access::Write];
static TAKE_BYTES: Kernel = Kernel {
    name: "take bytes",
    source: &[
        TakeParams::WGSL,
        include_str!("../../shaders/products/take.wgsl"),
        include_str!("../../shaders/products/take_bytes.wgsl"),
        EACH,
    ],
    bindings: BINDINGS,
};
static TAKE_FLOATS: Kernel = Kernel {
    name: "take floats",
    source: &[
        TakeParams::WGSL,
        include_str!("../../shaders/products/take.wgsl"),
        include_str!("../../shaders/products/take_floats.wgsl"),
        EACH,
    ],
    bindings: BINDINGS,
};

params! {
    struct TakeParams {
        count: u32,
        /// Inputs of a row, and blocks of 32 of them.
        cols: u32,
        blocks: u32,
        /// Groups of a row, whose inputs lie `x_group` columns apart from `x_first` on.
        groups: u32,
        x_row: u32,
        x_first: u32,
        x_group: u32,
        /// Where the table of groups begins: first word of the order of each in `orders`, or NONE.
        table_at: u32,
        /// Where the rows and groups of planned rows begin, or NONE: number of rows, then where the
        /// row of `x` of each is found, or NONE if it is the same, then where its group is.
        total_at: u32,
        rows_at: u32,
        groups_at: u32,
    }
}

/// Rows that are taken as inputs.
pub(crate) struct Source {
    pub x: Words,
    /// Values of a row, first value of the first group, values from a group to the next.
    pub row: usize,
    pub first: usize,
    pub group: usize,
    /// Groups of a row.
    pub groups: usize,
    /// Rows times groups, or the most rows that may be planned.
    pub count: usize,
    pub planned: Option<PlannedSource>,
}

/// Where a plan on the device says which rows are taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlannedSource {
    /// The number of rows.
    pub total_at: u32,
    /// The row of the source of each, or [`NONE`].
    pub rows_at: u32,
    /// Its group.
    pub groups_at: u32,
}

/// Where outputs lie: values of a row, first value, values from a group to the next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub row: usize,
    pub first: usize,
    pub group: usize,
}

/// Where a plan on the device says what is multiplied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlannedTiles {
    /// Which kernel, by the rows of its tiles.
    pub kernel: usize,
    /// Most tiles, and where they begin.
    pub tiles: usize,
    pub tiles_at: u32,
    /// The input row of each row, or [`NONE`].
    pub rows_at: u32,
}

/// Where the weights of each group begin: chunk and word.
#[derive(Clone, Copy)]
pub(crate) enum GroupTable<'a> {
    /// On the host.
    Sent(&'a [[u32; 2]]),
    /// On the device, at the start of a run.
    Kept(&'a Words),
}

/// A product of inputs that were taken with weights `[outputs, cols]` of each group.
pub(crate) struct Product {
    pub form: &'static Form,
    pub cols: usize,
    pub outputs: usize,
    /// The plan, where there is one.
    pub plan: Option<Words>,
    /// Input rows from a row to the next, and from a group to the next.
    pub steps: [usize; 2],
    pub out: Words,
    pub spread: Spread,
    pub groups: usize,
    /// Rows of each group.
    pub rows: usize,
    pub planned: Option<PlannedTiles>,
}

impl WebGpu {
    /// The workspace for inputs of a form, of at least `words` words.
    pub(super) fn input_words(&mut self, form: InputForm, words: usize) -> Result<Words, Error> {
        let kept = &mut self.matrices.inputs[form as usize];
        if let Some(kept) = kept.as_ref().filter(|kept| kept.len() >= words) {
            return Ok(kept.clone());
        }
        if let Some(old) = kept.take() {
            self.gpu.free(old);
        }
        let made = self.gpu.zeroed(words)?;
        self.matrices.inputs[form as usize] = Some(made.clone());
        Ok(made)
    }

    /// Allocates the workspace for `rows` rows of `cols` inputs of a form.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub(crate) fn reserve_inputs(
        &mut self,
        form: InputForm,
        rows: usize,
        cols: usize,
    ) -> Result<(), Error> {
        self.input_words(form, rows.saturating_mul(form.words(cols))).map(drop)
    }

    /// Takes rows of `cols` inputs for the next products, with the order of columns of each group.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub(crate) fn take(
        &mut self,
        form: InputForm,
        cols: usize,
        source: &Source,
        orders: &[u32],
    ) -> Result<(), Error> {
        let table_at = self.gpu.send(orders);
        let table = self.gpu.inbox();
        self.take_planned(form, cols, source, (&table, table_at), None)
    }

    /// As [`take`](Self::take), with the orders in a table and rows of a plan.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub(crate) fn take_planned(
        &mut self,
        form: InputForm,
        cols: usize,
        source: &Source,
        (table, table_at): (&Words, u32),
        plan: Option<&Words>,
    ) -> Result<(), Error> {
        let out = self.input_words(form, source.count * form.words(cols))?;
        let blocks = cols.div_ceil(BLOCK);
        let (kernel, each) = match form {
            InputForm::Bytes => (&TAKE_BYTES, blocks),
            InputForm::Floats => (&TAKE_FLOATS, blocks * BLOCK),
        };
        let count = source.count * each;
        let params = TakeParams {
            count: count as u32,
            cols: cols as u32,
            blocks: blocks as u32,
            groups: source.groups as u32,
            x_row: source.row as u32,
            x_first: source.first as u32,
            x_group: source.group as u32,
            table_at,
            total_at: source.planned.map_or(NONE, |planned| planned.total_at),
            rows_at: source.planned.map_or(NONE, |planned| planned.rows_at),
            groups_at: source.planned.map_or(NONE, |planned| planned.groups_at),
        };
        let orders = self.matrices.order_words.clone().unwrap_or_else(|| table.clone());
        let bound = [&source.x, &out, &orders, table, plan.unwrap_or(&out)];
        self.gpu.run(kernel, dealt(count), &bound, &params);
        Ok(())
    }

    /// Multiplies the inputs that were taken last with the weights that a table names, of which
    /// those in `chunks` are computed with.
    pub(crate) fn multiply(&mut self, product: &Product, table: GroupTable<'_>, chunks: &[u32]) {
        let Product { form, cols, outputs, rows, groups, planned, .. } = *product;
        let kernel = planned.map_or_else(|| tiles_for(rows), |planned| planned.kernel);
        let tiles = groups * rows.div_ceil(TILE_ROWS[kernel]);
        let tiles = planned.map_or(tiles, |planned| planned.tiles);
        let lanes = span_lanes(cols, TILE_ROWS[kernel]);
        let each = if kernel + 1 == TILE_ROWS.len() { OUTPUTS } else { LANES / lanes };
        let inputs = self.matrices.inputs[form.inputs as usize].clone();
        let inputs = inputs.expect("inputs were taken");
        let inbox = self.gpu.inbox();
        let plan = product.plan.as_ref().unwrap_or(&inputs);
        for &chunk in chunks {
            // Sent for each dispatch, which may be the last that what was sent before waits for.
            let (table, table_at) = match table {
                GroupTable::Sent(table) => (&inbox, self.gpu.send(table.as_flattened())),
                GroupTable::Kept(table) => (table, 0),
            };
            let params = ProductParams {
                tiles: tiles as u32,
                rows: rows as u32,
                blocks: cols.div_ceil(BLOCK) as u32,
                outputs: outputs as u32,
                weights_row: form.row_words(cols) as u32,
                inputs_row: form.inputs.words(cols) as u32,
                row_step: product.steps[0] as u32,
                group_step: product.steps[1] as u32,
                out_row: product.spread.row as u32,
                out_first: product.spread.first as u32,
                out_group: product.spread.group as u32,
                table_at,
                chunk,
                tiles_at: planned.map_or(NONE, |planned| planned.tiles_at),
                rows_at: planned.map_or(NONE, |planned| planned.rows_at),
                span_lanes: lanes as u32,
            };
            let weights = &self.matrices.chunks[chunk as usize];
            let bound = [&inputs, weights, &product.out, table, plan];
            let dispatch =
                [tiles.clamp(1, MAX_GROUPS), outputs.div_ceil(each).clamp(1, MAX_GROUPS), 1];
            self.gpu.run(&form.kernels[kernel], dispatch, &bound, &params);
        }
    }
}

/// The kernel for groups of `rows` rows.
fn tiles_for(rows: usize) -> usize {
    match rows {
        0..=1 => 0,
        2..=8 => 1,
        _ => 2,
    }
}

/// Invocations that share an output: a lane for each span, up to 16, but at least one for each of
/// the tile's rows, which are added up by as many.
fn span_lanes(cols: usize, rows: usize) -> usize {
    cols.div_ceil(SPAN * BLOCK).next_power_of_two().clamp(rows.min(16), 16)
}
