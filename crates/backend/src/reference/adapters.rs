//! What adapters add to the outputs of projections.

use super::machine::Reference;
use super::rows::{add_scaled, dot};
use crate::adapters::{AdaptedRows, LowRank};
use crate::handles::Buffer;
use crate::seam::AdapterOperations;

impl AdapterOperations for Reference {
    fn add_low_rank(&mut self, x: Buffer, outputs: &[(usize, Buffer)], adapted: &[AdaptedRows]) {
        for (projection, out) in outputs {
            let rows = adapted.last().map_or(0, |last| last.rows.end);
            self.each_row(*out, rows, |this, row, out| {
                let adapters = adapted.iter().find(|adapted| adapted.rows.contains(&row));
                let adapters = adapters.iter().flat_map(|it| it.adapters.pairs(*projection));
                for (pair, scale) in adapters {
                    add_scaled(out, &product(pair, this.row(x, row)), scale);
                }
            });
        }
    }
}

/// `b (a x)`: `[outputs]` of inputs `[inputs]`.
fn product(pair: &LowRank, x: &[f32]) -> Vec<f32> {
    let (a, b) = pair.values();
    let inner: Vec<f32> = a.chunks_exact(x.len()).map(|row| dot(row, x)).collect();
    b.chunks_exact(pair.rank()).map(|row| dot(row, &inner)).collect()
}
