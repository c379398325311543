//! Embeddings of n-grams in the metadata of GGUF files.

use super::super::fields::{GgufKeyWriter, GgufKeys, MAX_WIDTH};
use super::super::rows::{self, FieldSource, NGRAM_LAYERS};
use super::tensors::find;
use crate::config::schema::{Hyperparameters, NgramConfig};
use crate::error::Result;
use crate::gguf::{Array, GgufFile, Value};

/// The table, which llama.cpp has outside of all layers.
pub(crate) const TABLE: &str = "per_layer_token_embd.weight";
const MULTIPLIERS: &str = "ple.layer_multipliers";
const OFFSETS: &str = "ple.head_offsets";
const SIZES: &str = "ple.head_vocab_sizes";
const END: &str = "ple.eos_token_id";
/// Values of all rows of a token: a key of Gannet's, for files without the table.
const WIDTH: &str = "ple.embedding_length";

/// Reads the embeddings, if any layer has them.
pub(crate) fn read(keys: &GgufKeys, file: &GgufFile, model: &mut Hyperparameters) -> Result<()> {
    let key = keys.key(NGRAM_LAYERS.gguf[0]);
    let layer = match keys.metadata.opt_ints(&key)?.unwrap_or_default()[..] {
        [] => return Ok(()),
        [layer] => usize::try_from(layer).unwrap_or(usize::MAX),
        ref more => {
            let problem = format!("expected one layer, found {}", more.len());
            return Err(keys.metadata.error(&key, problem));
        }
    };
    model.ngrams = Some(NgramConfig { layer, ..NgramConfig::default() });
    rows::read(rows::NGRAMS, FieldSource::Gguf(keys), model)?;
    let Some(ngrams) = &mut model.ngrams else { return Ok(()) };
    let numbers = |suffix: &str| -> Result<Vec<u32>> {
        let below = |number: i64| u32::try_from(number).ok();
        wide(keys, suffix)?.into_iter().map(below).collect::<Option<_>>().ok_or_else(|| {
            keys.metadata.error(&keys.key(suffix), "expected numbers of rows of a table")
        })
    };
    let hash = &mut ngrams.hash;
    hash.multipliers = wide(keys, MULTIPLIERS)?;
    (hash.sizes, hash.offsets) = (numbers(SIZES)?, numbers(OFFSETS)?);
    hash.end = match keys.metadata.opt_id(&keys.key(END))? {
        Some(end) => end,
        None => keys.metadata.opt_id("tokenizer.ggml.eos_token_id")?.unwrap_or(0),
    };
    let last = hash.sizes.last().copied().unwrap_or(0) as usize;
    let (rows, columns) = match find(file, TABLE).map(|table| &table.shape[..]) {
        Some(&[rows, columns]) => (rows, Some(columns)),
        _ => (last + hash.offsets.last().copied().unwrap_or(0) as usize, None),
    };
    ngrams.rows = rows;
    let count = hash.heads.saturating_mul(hash.size.saturating_sub(1));
    ngrams.width = match (keys.opt_positive(WIDTH, MAX_WIDTH)?, columns) {
        (Some(width), _) => width,
        (None, Some(columns)) => columns.saturating_mul(count),
        (None, None) => keys.positive(WIDTH, MAX_WIDTH)?,
    };
    Ok(())
}

/// An array of integers of up to 64 bits.
fn wide(keys: &GgufKeys, suffix: &str) -> Result<Vec<i64>> {
    let key = keys.key(suffix);
    let found = match keys.metadata.get(&key) {
        Some(Value::Array(Array::I64(values))) => Some(values.clone()),
        // Factors of a product that wraps.
        Some(Value::Array(Array::U64(values))) => {
            Some(values.iter().map(|value| *value as i64).collect())
        }
        Some(Value::Array(Array::U32(values))) => {
            Some(values.iter().map(|value| (*value).into()).collect())
        }
        Some(Value::Array(Array::I32(values))) => {
            Some(values.iter().map(|value| (*value).into()).collect())
        }
        _ => None,
    };
    keys.metadata.required(&key, "an array of integers", found)
}

/// Sets the keys.
pub(crate) fn write(keys: &mut GgufKeyWriter, model: &Hyperparameters) {
    let Some(ngrams) = &model.ngrams else { return };
    let hash = &ngrams.hash;
    let numbers = |of: &[u32]| Value::Array(Array::I64(of.iter().map(|n| (*n).into()).collect()));
    keys.counts(NGRAM_LAYERS.gguf[0], std::iter::once(ngrams.layer));
    rows::write_gguf(rows::NGRAMS, model, keys);
    keys.set(MULTIPLIERS, Value::Array(Array::I64(hash.multipliers.clone())));
    keys.set(SIZES, numbers(&hash.sizes));
    keys.set(OFFSETS, numbers(&hash.offsets));
    keys.set(END, Value::U32(hash.end));
    keys.count(WIDTH, ngrams.width);
}
