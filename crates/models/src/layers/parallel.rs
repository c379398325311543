//! Operations with one input, whose outputs are added: attention, and a state space (Falcon-H1) or
//! an MLP (Cohere 2).

use super::operation::Operation;
use crate::error::Error;
use crate::loader::Loader;
use crate::pass::ForwardPass;
use backend::{Buffer, LayerCache, MapOp};
use dist::Split;

pub(crate) struct Parallel {
    ops: Vec<Box<dyn Operation>>,
    /// Outputs of the operations after the first: `[rows, hidden]`.
    out: Buffer,
    cache: LayerCache,
}

impl Parallel {
    /// Of operations that are loaded, which keep `cache` together.
    ///
    /// # Errors
    /// If memory for rows cannot be taken.
    pub fn new(
        loader: &mut Loader<'_>,
        (ops, cache): (Vec<Box<dyn Operation>>, LayerCache),
    ) -> Result<Self, Error> {
        let hidden = loader.hidden();
        Ok(Self { ops, out: loader.shared("parallel", hidden)?, cache })
    }
}

impl Operation for Parallel {
    fn name(&self) -> &'static str {
        "parallel operations"
    }

    fn split(&self) -> Split {
        Split::Whole
    }

    fn cache(&self) -> LayerCache {
        self.cache.clone()
    }

    fn forward(&self, pass: &mut ForwardPass<'_>, x: Buffer, out: Buffer) -> Result<(), Error> {
        let rows = pass.rows();
        for (number, op) in self.ops.iter().enumerate() {
            let given = if number == 0 { out } else { self.out };
            op.forward(pass, x, given)?;
            pass.sum_over_ranks(given, op.split())?;
            if number > 0 {
                pass.backend.map(MapOp::Add(given), out, rows);
            }
        }
        Ok(())
    }
}
