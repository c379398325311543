//! What adapters add to the outputs of projections: for all rows of a step, each with its own
//! adapters, the products with first factors are one job of the threads and those with second
//! factors another.
//!
//! Inputs are not rounded, and no sum depends on other rows: a product with a first factor is one
//! with stored weights, one with a second factor as [`kernels::low_rank`] says.

use crate::adapters::AdaptedRows;
use crate::cpu::core::CpuCore;
use crate::cpu::scratch::grown;
use crate::handles::Buffer;
use base::{AlignedVec, MAX_MATRICES, Tile};
use kernels::layout::{GROUP, Inputs, STORED};
use kernels::low_rank;
use std::ops::Range;

/// Rows of a piece of products with first factors.
const ROWS: usize = 24;
/// Outputs of a piece of products with second factors.
const OUTPUTS: Range<usize> = 64..512;

/// Products with first factors, and how they are divided; kept for the next call.
#[derive(Default)]
pub(in crate::cpu) struct LowRankScratch {
    /// For each row the products with the factors of all its pairs, those of each pair in whole
    /// groups of columns.
    inner: AlignedVec<f32>,
    /// Rows of each piece, and the index of the adapted rows that they belong to.
    cuts: Vec<Range<usize>>,
    of: Vec<usize>,
}

impl LowRankScratch {
    /// Bytes held.
    pub fn bytes(&self) -> usize {
        4 * self.inner.len()
    }

    fn cut(&mut self, adapted: &[AdaptedRows]) {
        self.cuts.clear();
        self.of.clear();
        for (at, AdaptedRows { rows, .. }) in adapted.iter().enumerate() {
            for start in rows.clone().step_by(ROWS) {
                self.cuts.push(start..(start + ROWS).min(rows.end));
                self.of.push(at);
            }
        }
    }
}

/// Columns of the products with the first factors of a pair.
fn columns(rank: usize) -> usize {
    rank.next_multiple_of(GROUP)
}

impl AdaptedRows {
    /// Columns of the products with all first factors of these rows.
    fn columns(&self, outputs: &[(usize, Buffer)]) -> usize {
        let of = |projection: usize| self.adapters.pairs(projection);
        outputs
            .iter()
            .flat_map(|(projection, _)| of(*projection))
            .map(|it| columns(it.0.rank()))
            .sum()
    }
}

impl LowRankScratch {
    /// Adds the products with the factors of adapters to the outputs of projections.
    pub fn add(
        &mut self,
        core: &mut CpuCore,
        x: Buffer,
        outputs: &[(usize, Buffer)],
        adapted: &[AdaptedRows],
    ) {
        outputs.chunks(MAX_MATRICES).for_each(|some| self.add_some(core, x, some, adapted));
    }

    /// The products of as many projections as a job has.
    fn add_some(
        &mut self,
        core: &mut CpuCore,
        x: Buffer,
        outputs: &[(usize, Buffer)],
        adapted: &[AdaptedRows],
    ) {
        let width = adapted.iter().map(|rows| rows.columns(outputs)).max().unwrap_or(0);
        let rows = adapted.last().map_or(0, |last| last.rows.end);
        if width == 0 {
            return;
        }
        self.cut(adapted);
        let Self { inner, cuts, of } = self;
        let inner = grown(inner, rows * width);
        core.pool.begin("adapter inner");
        core.pool.for_each_cut(inner, width, (cuts, GROUP), |cut, tile| {
            first_product(core, x, outputs, &adapted[of[cut]], tile);
        });
        core.pool.begin("adapter outer");
        second_products(core, (inner, width), outputs, adapted);
    }
}

/// The products of a piece of rows with a group of rows of a first factor.
fn first_product(
    core: &CpuCore,
    x: Buffer,
    outputs: &[(usize, Buffer)],
    adapted: &AdaptedRows,
    tile: Tile<'_, f32>,
) {
    let (rows, start) = (tile.rows(), tile.cols().start);
    let mut first = 0;
    for (pair, _) in outputs.iter().flat_map(|(at, _)| adapted.adapters.pairs(*at)) {
        let behind = first + columns(pair.rank());
        if start < behind {
            let within = start - first;
            let count = GROUP.min(pair.rank() - within);
            let inputs = Inputs::f32(core.read_rows(x, rows.clone()), core.width(x));
            let tile = tile.from(rows.start, start).columns(0..count);
            STORED.product(core.isa, inputs, pair.a(), &mut tile.behind(within));
            return;
        }
        first = behind;
    }
}

/// Adds the products of `inner`, rows of `width` values, with all second factors.
fn second_products(
    core: &mut CpuCore,
    (inner, width): (&[f32], usize),
    outputs: &[(usize, Buffer)],
    adapted: &[AdaptedRows],
) {
    assert!(outputs.len() <= MAX_MATRICES, "as many outputs as a job has");
    let mut data: [AlignedVec<f32>; MAX_MATRICES] = Default::default();
    for (data, (_, out)) in data.iter_mut().zip(outputs) {
        *data = core.take(*out);
    }
    let rows = adapted.last().map_or(0, |last| last.rows.end);
    let mut all = data.iter_mut();
    let mut parts: [(&mut [f32], usize, usize); MAX_MATRICES] =
        std::array::from_fn(|at| match (outputs.get(at), all.next()) {
            (Some((_, out)), Some(data)) => {
                let outputs = core.width(*out);
                let each = (outputs / (4 * core.pool.threads())).next_multiple_of(GROUP);
                (&mut data[..rows * outputs], outputs, each.clamp(OUTPUTS.start, OUTPUTS.end))
            }
            _ => (&mut [][..], 1, 1),
        });
    core.pool.for_each_tile_of(&mut parts[..outputs.len()], |at, mut tile| {
        for adapted in adapted {
            second_product(core, (inner, width), (outputs, at), adapted, &mut tile);
        }
    });
    for (data, (_, out)) in data.into_iter().zip(outputs) {
        core.put(*out, data);
    }
}

/// Adds to some outputs of projection `at` of `outputs` the products with the second factors
/// of its rows.
fn second_product(
    core: &CpuCore,
    (inner, width): (&[f32], usize),
    (outputs, at): (&[(usize, Buffer)], usize),
    AdaptedRows { rows, adapters }: &AdaptedRows,
    tile: &mut Tile<'_, f32>,
) {
    let before = outputs[..at].iter().flat_map(|(projection, _)| adapters.pairs(*projection));
    let mut first: usize = before.map(|(pair, _)| columns(pair.rank())).sum();
    for (pair, scale) in adapters.pairs(outputs[at].0) {
        let b = pair.b(tile.cols());
        for row in rows.clone() {
            let x = &inner[row * width + first..][..pair.rank()];
            low_rank::add_product(core.isa, b, x, scale, tile.row_mut(row));
        }
        first += columns(pair.rank());
    }
}
