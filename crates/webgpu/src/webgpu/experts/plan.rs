//! The slots of a step and their tiles, which the device works out.

use crate::gpu::{Access, Gpu, Kernel, Words};
use crate::parts::workgroups;
use crate::webgpu::held::form::TILE_ROWS;
use crate::wgsl::params;

const PLAN: &str = include_str!("../../shaders/experts/plan.wgsl");
const CHOICES: &str = include_str!("../../shaders/experts/choices.wgsl");
const BINDINGS: &[Access] = &[Access::Write, Access::Write];

static COUNT: Kernel = Kernel {
    name: "slots of each expert",
    source: &[PlanParams::WGSL, PLAN, include_str!("../../shaders/experts/count.wgsl"), CHOICES],
    bindings: BINDINGS,
};
static TILES: Kernel = Kernel {
    name: "tiles of slots",
    source: &[PlanParams::WGSL, PLAN, include_str!("../../shaders/experts/tiles.wgsl")],
    bindings: BINDINGS,
};
static SLOTS: Kernel = Kernel {
    name: "slots of choices",
    source: &[PlanParams::WGSL, PLAN, include_str!("../../shaders/experts/slots.wgsl"), CHOICES],
    bindings: BINDINGS,
};

params! {
    struct PlanParams {
        /// Choices of all rows, and choices of a row.
        choices: u32,
        chosen: u32,
        /// First expert held, and how many are.
        first: u32,
        held: u32,
        /// Rows of a tile, and most tiles.
        tile_rows: u32,
        tiles: u32,
        /// Where parts of the plan begin: slots of each expert, the first slot of each, tiles
        /// (expert, first slot, slots), the row, the expert and the weight of each slot. Word 0 is
        /// the number of slots.
        counts_at: u32,
        starts_at: u32,
        tiles_at: u32,
        rows_at: u32,
        experts_at: u32,
        weights_at: u32,
    }
}

/// Sizes of a plan, and where its parts lie (`shaders/experts/plan.wgsl`).
pub(super) struct Plan {
    /// Rows of the batch.
    pub rows: usize,
    /// Most slots.
    pub slots: usize,
    /// The kernel of products, and most tiles of its size.
    pub kernel: usize,
    pub tiles: usize,
    pub tiles_at: u32,
    pub rows_at: u32,
    pub experts_at: u32,
    pub weights_at: u32,
    first: usize,
    held: usize,
    chosen: usize,
}

impl Plan {
    /// Words of a plan of at most `slots` slots of `held` experts.
    pub fn words(held: usize, slots: usize) -> usize {
        slots.saturating_mul(6).saturating_add(1 + 2 * held)
    }

    /// The plan of `rows` rows, each with `chosen` choices, for `held` experts from `first` on.
    pub fn new(first: usize, held: usize, chosen: usize, rows: usize) -> Self {
        let slots = rows * chosen;
        let kernel = match slots {
            _ if rows == 1 => 0,
            slots if slots <= TILE_ROWS[1] * held => 1,
            _ => 2,
        };
        let tiles = slots.min(slots / TILE_ROWS[kernel] + held);
        let tiles_at = 1 + 2 * held;
        let rows_at = tiles_at + 3 * slots;
        Self {
            rows,
            slots,
            kernel,
            tiles,
            tiles_at: tiles_at as u32,
            rows_at: rows_at as u32,
            experts_at: (rows_at + slots) as u32,
            weights_at: (rows_at + 2 * slots) as u32,
            first,
            held,
            chosen,
        }
    }

    /// Records the kernels that make slots of choices.
    pub fn make(&self, gpu: &mut Gpu, choices: &Words, plan: &Words) {
        let params = PlanParams {
            choices: self.slots as u32,
            chosen: self.chosen as u32,
            first: self.first as u32,
            held: self.held as u32,
            tile_rows: TILE_ROWS[self.kernel] as u32,
            tiles: self.tiles as u32,
            counts_at: 1,
            starts_at: 1 + self.held as u32,
            tiles_at: self.tiles_at,
            rows_at: self.rows_at,
            experts_at: self.experts_at,
            weights_at: self.weights_at,
        };
        let bound = [choices, plan];
        let each = workgroups(self.held);
        gpu.run(&COUNT, each, &bound, &params);
        gpu.run(&TILES, [1, 1, 1], &bound, &params);
        gpu.run(&SLOTS, each, &bound, &params);
    }
}
