//! The tensors of embeddings of n-grams: parts of the table are joined, and integers of the hash
//! become part of the configuration.

use crate::config::ModelConfig;
use crate::config::gguf::NGRAM_TABLE as OUTSIDE;
use crate::error::{Error, Result};
use crate::layers::{NGRAM_MULTIPLIERS, NGRAM_OFFSETS, NGRAM_SIZES, NGRAM_TABLE};
use crate::names::split_number;
use crate::tensor::TensorView;

/// Joins the table and reads the integers of canonically named tensors, where the model has such
/// embeddings. Returns the configuration with them.
///
/// # Errors
/// If integers are missing or do not fit, or parts of the table are stored differently.
pub(crate) fn settle(views: &mut Vec<TensorView>, config: ModelConfig) -> Result<ModelConfig> {
    let Some(mut ngrams) = config.said.ngrams.clone() else { return Ok(config) };
    let prefix = format!("blk.{}.", ngrams.layer);
    let of_layer = |name: &'static str| format!("{prefix}{name}");
    join(views, &of_layer(NGRAM_TABLE))?;
    if let Some(table) = views.iter().find(|view| view.name == of_layer(NGRAM_TABLE)) {
        ngrams.rows = table.shape.first().copied().unwrap_or(0);
    }
    let mut take = |name| {
        let at = views.iter().position(|view| view.name == of_layer(name))?;
        Some(views.remove(at))
    };
    if let Some(view) = take(NGRAM_MULTIPLIERS) {
        ngrams.hash.multipliers = view.integers()?;
    }
    for (name, of) in
        [(NGRAM_SIZES, &mut ngrams.hash.sizes), (NGRAM_OFFSETS, &mut ngrams.hash.offsets)]
    {
        if let Some(view) = take(name) {
            let numbers = view.integers()?.into_iter().map(|number| u32::try_from(number).ok());
            let numbers = numbers.collect::<Option<_>>();
            *of = numbers.ok_or_else(|| view.error("expected numbers of rows of a table"))?;
        }
    }
    let hash = &ngrams.hash;
    let fits = |(size, offset): (&u32, &u32)| {
        *size > 0 && u64::from(*size) + u64::from(*offset) <= ngrams.rows as u64
    };
    let (heads, count) = ([hash.sizes.len(), hash.offsets.len()], hash.count());
    if heads != [count; 2] || !hash.sizes.iter().zip(&hash.offsets).all(fits) {
        let problem = format!("expected {count} heads within its {} rows", ngrams.rows);
        return Err(Error::tensor(
            std::path::Path::new(&config.name),
            &of_layer(NGRAM_TABLE),
            problem,
        ));
    }
    if hash.multipliers.len() != hash.size {
        let problem = format!("expected {} integers, found {}", hash.size, hash.multipliers.len());
        let name = of_layer(NGRAM_MULTIPLIERS);
        return Err(Error::tensor(std::path::Path::new(&config.name), &name, problem));
    }
    Ok(config.with(|said| said.ngrams = Some(ngrams)))
}

/// Makes one tensor `table` of its numbered parts, or of the one that GGUF files have outside of
/// all layers.
fn join(views: &mut Vec<TensorView>, table: &str) -> Result<()> {
    let stem = table.strip_suffix("weight").unwrap_or(table);
    let number = |view: &TensorView| -> Option<usize> {
        let (number, rest) = split_number(view.name.strip_prefix(stem)?)?;
        number.parse().ok().filter(|_| rest == "weight")
    };
    let outside = |view: &&mut TensorView| view.name == OUTSIDE;
    if let Some(view) = views.iter_mut().find(outside) {
        *view = view.named(table.to_owned());
    }
    let Some(at) = views.iter().position(|view| number(view).is_some()) else { return Ok(()) };
    let mut parts = Vec::new();
    views.retain(|view| match number(view) {
        Some(number) => {
            parts.push((number, view.clone()));
            false
        }
        None => true,
    });
    parts.sort_by_key(|(number, _)| *number);
    for (place, (number, view)) in parts.iter().enumerate() {
        if *number != place {
            let problem =
                format!("expected part {place} of the table before, found no such tensor");
            return Err(view.error(problem));
        }
        if view.shape.len() != 2 {
            return Err(view.error(format!("expected a matrix, found shape {:?}", view.shape)));
        }
    }
    let parts = parts.into_iter().map(|(_, view)| view).collect();
    views.insert(at, TensorView::joined(table.to_owned(), parts)?);
    Ok(())
}
