//! The rotations of an operation.

use crate::error::Error;
use crate::loader::Loader;
use backend::Rope;
use formats::layers::{Growth, RopeConfig};

/// The rotations of queries and of keys, where they are rotated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rotations {
    pub queries: Option<Rope>,
    pub keys: Option<Rope>,
}

impl Rotations {
    /// The rotations of an operation: `rope` of queries and keys, and `growth` of queries. `dim` is
    /// the number of values of a head.
    ///
    /// # Errors
    /// If the device has no memory for the rotations.
    pub fn load(
        loader: &mut Loader<'_>,
        rope: Option<&RopeConfig>,
        growth: Option<Growth>,
        dim: usize,
    ) -> Result<Self, Error> {
        let Some(rope) = rope else {
            let queries = growth.map(|growth| loader.growth(dim, growth)).transpose()?;
            return Ok(Self { queries, keys: None });
        };
        let keys = loader.rope(rope, None)?;
        let queries = if growth.is_some() { loader.rope(rope, growth)? } else { keys };
        Ok(Self { queries: Some(queries), keys: Some(keys) })
    }
}
