//! The inputs of an encoder: embeddings of tokens, positions and types, summed up and normalised.

use super::{ForwardPass, Norm};
use crate::Error;
use crate::loader::Loader;
use backend::{Buffer, Table};

pub(crate) struct EncoderInputs {
    positions: Option<Table>,
    types: Option<Table>,
    norm: Norm,
    /// What is added to the embeddings of tokens: `[rows, hidden]`.
    added: Buffer,
}

impl EncoderInputs {
    /// Loads `position_embd`, `token_types` and `token_embd_norm`; `None` for models that are no
    /// encoders.
    pub fn load(loader: &mut Loader<'_>) -> Result<Option<Self>, Error> {
        let config = loader.checkpoint.config();
        let (Some(encoder), hidden) = (&config.encoder, config.hidden_size) else {
            return Ok(None);
        };
        let positions = match encoder.positions {
            Some(table) => {
                let rows = table.first..table.rows;
                Some(loader.table_rows("position_embd.weight", [table.rows, hidden], rows)?)
            }
            None => None,
        };
        let types = match encoder.token_types {
            0 => None,
            types => Some(loader.table("token_types.weight", types, hidden)?),
        };
        let norm = Norm::of_stream(loader, "token_embd_norm")?;
        Ok(Some(Self { positions, types, norm, added: loader.shared("added", hidden)? }))
    }

    /// Completes the embeddings `x`, `[rows, hidden]`, in place.
    pub fn complete(&self, pass: &mut ForwardPass<'_>, x: Buffer) {
        let (rows, batch) = (pass.rows(), pass.batch);
        let types = self.types.map(|types| (types, batch.token_types()));
        let positions = self.positions.map(|positions| (positions, batch.positions()));
        for (table, ids) in [types, positions].into_iter().flatten() {
            pass.backend.embed(table, ids, self.added);
            pass.backend.add(x, self.added, rows);
        }
        self.norm.forward(pass, x, x, rows);
    }
}
