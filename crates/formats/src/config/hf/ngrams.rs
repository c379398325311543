//! Embeddings of n-grams in config.json.
//!
//! Published files leave out the multipliers, which are a tensor, and the token that ends a text
//! for n-grams, which is the first that ends a text; files of Gannet's have both.

use serde_json::{Value as Json, json};

use super::super::fields::{MAX_LAYERS, MAX_TOKENS};
use super::super::rows::{self, FieldSource, NGRAM_LAYERS};
use crate::config::schema::{Hyperparameters, NgramConfig};
use crate::error::Result;
use crate::json::{Object, describe, extend};

const BASE: &str = "ngram_vocab_size_base";
const DIVISOR: &str = "make_ngram_vocab_size_divisible_by";
const MULTIPLIERS: &str = "ple_layer_multipliers";
const END: &str = "ple_eos_token_id";
/// Most rows of a head that are derived rather than read.
const MAX_ROWS: usize = MAX_TOKENS;

/// Reads the embeddings, if any layer has them.
pub(crate) fn read(config: Object, model: &mut Hyperparameters) -> Result<()> {
    let Some(layer) = layer(config)? else { return Ok(()) };
    model.ngrams = Some(NgramConfig { layer, ..NgramConfig::default() });
    rows::read(rows::NGRAMS, FieldSource::ConfigJson(config), model)?;
    let Some(ngrams) = &mut model.ngrams else { return Ok(()) };
    let hash = &mut ngrams.hash;
    let end = config.ids(END)?.first().copied();
    hash.end = end.or(config.ids("eos_token_id")?.first().copied()).unwrap_or(0);
    let count = hash.heads.saturating_mul(hash.size.saturating_sub(1));
    let mut end = 0u32;
    let mut next = config.positive(BASE, MAX_ROWS)? as u32;
    // Bounded, as `heads` and `size` are, by the rows that a table can have.
    for _ in 0..count {
        let prime = prime_from(next);
        next = prime + 1;
        hash.sizes.push(prime);
        hash.offsets.push(end);
        let Some(sum) =
            end.checked_add(prime).filter(|sum| (*sum as usize) < u32::MAX as usize / 2)
        else {
            return Err(config.error(BASE, format!("expected fewer rows of {count} heads")));
        };
        end = sum;
    }
    let divisor = config.setting(DIVISOR, MAX_TOKENS, 1)?;
    ngrams.rows = (end as usize).next_multiple_of(divisor);
    for value in config.array(MULTIPLIERS)?.unwrap_or_default() {
        let number = value.as_i64().ok_or_else(|| {
            config.error(MULTIPLIERS, format!("expected integers, found {}", describe(value)))
        })?;
        ngrams.hash.multipliers.push(number);
    }
    Ok(())
}

/// The layer with the embeddings, which files count from one.
fn layer(config: Object) -> Result<Option<usize>> {
    let key = NGRAM_LAYERS.hf[0];
    match config.array(key)?.unwrap_or_default() {
        [] => Ok(None),
        [one] => match one.as_u64() {
            Some(number) if (1..=MAX_LAYERS as u64).contains(&number) => {
                Ok(Some(number as usize - 1))
            }
            _ => {
                let problem = "expected the number of a layer, counted from one";
                Err(config.error(key, format!("{problem}, found {}", describe(one))))
            }
        },
        more => Err(config.error(key, format!("expected one layer, found {}", more.len()))),
    }
}

/// The least prime from `least` on.
fn prime_from(least: u32) -> u32 {
    let is_prime = |number: u32| {
        let divides = |by: &u32| number.is_multiple_of(*by);
        number >= 2 && (2..).take_while(|by| by * by <= number).all(|by| !divides(&by))
    };
    (least..).find(|number| is_prime(*number)).unwrap_or(u32::MAX)
}

/// The fields of config.json. Rows of heads are written as their first, from which the reader
/// derives the others; a checkpoint that has others has them as a tensor.
pub(crate) fn to_json(config: &Hyperparameters) -> Json {
    let Some(ngrams) = &config.ngrams else { return json!({(NGRAM_LAYERS.hf[0]): []}) };
    let mut json = json!({
        (NGRAM_LAYERS.hf[0]): [ngrams.layer + 1],
        (BASE): ngrams.hash.sizes.first(),
        (DIVISOR): ngrams.rows,
        "split_ngram_parts": 1,
        (MULTIPLIERS): ngrams.hash.multipliers,
        (END): ngrams.hash.end,
    });
    extend(&mut json, rows::to_json(rows::NGRAMS, config));
    json
}
