//! Attention to compressed rows in both kinds of files.

use super::rows::{self, FieldSource};
use super::schema::{CompressedConfig, Hyperparameters};
use crate::error::Result;
use crate::layers::HyperConfig;

/// Sets this attention, whose remaining sizes and hyper-connections are read from the file.
pub(super) fn read(
    source: FieldSource,
    sizes: CompressedConfig,
    model: &mut Hyperparameters,
) -> Result<()> {
    let has_index = sizes.indexed.contains(&true);
    model.compressed = Some(Box::new(sizes));
    model.hyper = Some(HyperConfig::default());
    rows::read(rows::COMPRESSED, source, model)?;
    if has_index {
        rows::read(rows::ROW_INDEX, source, model)?;
    }
    rows::read(rows::HYPER, source, model)
}
