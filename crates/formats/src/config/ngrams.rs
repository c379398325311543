//! Embeddings of n-grams in both kinds of files.

use kernels::conv::MAX_KERNEL;

use super::rows::{FieldSource, NGRAM_KERNEL, NGRAM_LAYERS, NGRAM_SIZE, NGRAM_WIDTH};
use super::schema::Hyperparameters;
use crate::error::Result;

/// Checks that sizes are consistent, where the model has such embeddings.
pub(super) fn check(model: &Hyperparameters, source: FieldSource) -> Result<()> {
    let Some(ngrams) = &model.ngrams else { return Ok(()) };
    let (hash, layers) = (&ngrams.hash, model.layers);
    source.expect(hash.size >= 2, &NGRAM_SIZE, || {
        format!("expected at least 2, found {}", hash.size)
    })?;
    source.expect(ngrams.layer < layers, &NGRAM_LAYERS, || {
        format!("expected one of {layers} layers, found another")
    })?;
    source.expect(ngrams.width.is_multiple_of(hash.count()), &NGRAM_WIDTH, || {
        format!("expected a multiple of {} rows of a token, found {}", hash.count(), ngrams.width)
    })?;
    let reach = (ngrams.kernel - 1) * hash.size + 1;
    source.expect(reach <= MAX_KERNEL, &NGRAM_KERNEL, || {
        let size = source.name(&NGRAM_SIZE);
        format!(
            "expected at most {MAX_KERNEL} positions with {size} ({}), found {reach}",
            hash.size
        )
    })?;
    let heads = [hash.sizes.len(), hash.offsets.len()];
    let fits = |(size, offset): (&u32, &u32)| {
        *size > 0 && u64::from(*size) + u64::from(*offset) <= ngrams.rows as u64
    };
    let in_table = hash.sizes.iter().zip(&hash.offsets).all(fits);
    source.expect(heads == [hash.count(); 2] && in_table, &NGRAM_LAYERS, || {
        let (count, rows) = (hash.count(), ngrams.rows);
        format!("expected {count} heads within the {rows} rows of the table, found others")
    })?;
    let found = hash.multipliers.len();
    source.expect(found == 0 || found == hash.size, &NGRAM_SIZE, || {
        format!("expected as many multipliers of token ids ({}), found {found}", hash.size)
    })
}
