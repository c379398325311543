//! Embeddings of types and positions, which are added to the embeddings of tokens, and the norm of
//! the sum.

use super::norm::Norm;
use crate::error::Error;
use crate::loader::Loader;
use crate::pass::ForwardPass;
use backend::{Buffer, HeadColumns, MapOp, Table};
use formats::layers::EmbeddingSpec;

pub(crate) struct AddedEmbeddings {
    positions: Option<Table>,
    types: Option<Table>,
    /// Norm of the sum, which encoders have (and Muse Glimmer).
    norm: Option<Norm>,
    /// What is added to the embeddings of tokens, or the sum before its norm: `[rows, hidden]`.
    added: Buffer,
    hidden: usize,
}

impl AddedEmbeddings {
    /// Loads `position_embd`, `token_types` and the norm, as far as the model has them; `None` for
    /// models with none of these.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, or the device has no memory for it.
    pub fn load(loader: &mut Loader<'_>, spec: &EmbeddingSpec) -> Result<Option<Self>, Error> {
        let hidden = loader.hidden();
        let positions = match spec.positions {
            Some(table) => {
                Some(loader.table_rows("position_embd.weight", table.first..table.rows)?)
            }
            None => None,
        };
        let types = match spec.token_types {
            0 => None,
            _ => Some(loader.table("token_types.weight")?),
        };
        let norm = spec.norm.as_ref().map(|norm| Norm::of_stream(loader, norm)).transpose()?;
        if positions.is_none() && types.is_none() && norm.is_none() {
            return Ok(None);
        }
        Ok(Some(Self { positions, types, norm, added: loader.shared("added", hidden)?, hidden }))
    }

    /// Completes the embeddings `x`, `[rows, hidden]`, in place.
    pub fn complete(&self, pass: &mut ForwardPass<'_>, x: Buffer) {
        let (rows, batch) = (pass.rows(), pass.batch);
        let types = self.types.map(|types| (types, batch.token_types()));
        let positions = self.positions.map(|positions| (positions, batch.positions()));
        for (table, ids) in [types, positions].into_iter().flatten() {
            pass.backend.embed(table, ids, self.added);
            pass.backend.map(MapOp::Add(self.added), x, rows);
        }
        if let Some(norm) = &self.norm {
            let row = |buffer| HeadColumns { buffer, first: 0, stride: self.hidden };
            pass.backend.copy_heads(row(x), self.hidden, row(self.added), rows);
            norm.forward(pass, self.added, x, rows);
        }
    }
}
