//! Operations with one input, whose outputs are added: attention, and a state space (Falcon-H1) or
//! an MLP (Cohere 2).

use super::{ForwardPass, OpPlace, Operation};
use crate::Error;
use crate::loader::Loader;
use backend::{Buffer, LayerCache};
use dist::Split;
use formats::layers::OpSpec;

pub(crate) struct Parallel {
    ops: Vec<Box<dyn Operation>>,
    /// Outputs of the operations after the first: `[rows, hidden]`.
    out: Buffer,
    cache: LayerCache,
}

impl Parallel {
    /// Loads the operations, whose rows follow each other in the cache of the layer.
    ///
    /// # Errors
    /// If one of the operations cannot be loaded.
    pub fn load(loader: &mut Loader<'_>, place: OpPlace, specs: &[OpSpec]) -> Result<Self, Error> {
        let (mut ops, mut cache) = (Vec::new(), LayerCache::default());
        for spec in specs {
            let place = OpPlace { rows: place.rows + cache.rows.len(), ..place };
            let op = super::load(loader, place, spec)?;
            cache.extend(op.cache());
            ops.push(op);
        }
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
                pass.backend.add(out, given, rows);
            }
        }
        Ok(())
    }
}
