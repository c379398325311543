//! The files of a head that drafts tokens for a model.

use super::canonical::{canonical_name, gguf_name};
use super::tensors::canonical_tensors;
use crate::config::gguf::ROPE_FACTORS;
use crate::config::{DraftConfig, Eagle3Config, ModelConfig, WORD_IDS, WordIds};
use crate::error::{Error, Result};
use crate::families::{DraftHead, Eagle3Tensors, HeadKind, OwnSettings, look_back, read_head};
use crate::files::ModelFiles;
use crate::names;
use crate::native;
use crate::tensor::TensorView;

/// Reads a head into the configuration of its model. Returns its tensors, as those of layers after
/// the last one. `name` is its display name.
///
/// # Errors
/// If the files hold no head, or a head for another model.
pub(super) fn read(
    files: &ModelFiles,
    name: &str,
    model: &mut ModelConfig,
) -> Result<Vec<TensorView>> {
    let wrong = |problem: String| Error::file(files.path(), problem);
    let kind = HeadKind::of(files)?;
    let kind =
        kind.ok_or_else(|| wrong("expected a head that drafts tokens, found none".into()))?;
    if !model.generates() {
        return Err(wrong("expected a model that generates text for it".into()));
    }
    let head = read_head(kind, files, name)?;
    let mut views = tensors_of(&head, files)?;
    let is_gguf = files.gguf().is_some();
    let config = match &head.own {
        OwnSettings::Eagle3(own) => {
            let found = described(&views);
            let config = own.of_model(&head.model, &found, (model, is_gguf));
            config.map(DraftConfig::Eagle3)
        }
        OwnSettings::Assistant(own) => {
            let config = own.of_model(&head.model, model);
            look_back(model);
            config.map(DraftConfig::Assistant)
        }
    };
    model.drafter = Some(config.map_err(wrong)?);
    let first = model.layers.len();
    for view in &mut views {
        let (layer, part) = names::split_canonical(&view.name).unwrap_or(("0", &view.name));
        let number = layer.parse::<usize>().ok().and_then(|layer| layer.checked_add(first));
        let name = format!("blk.{}.{part}", number.unwrap_or(first));
        *view = view.named(name);
    }
    Ok(views)
}

/// The numbers of a head's words in a vocabulary of `vocab` words, from what its tensor holds.
///
/// # Errors
/// If the tensor has another shape, or a number that is no word.
pub(super) fn words(view: &TensorView, head: &Eagle3Config, vocab: usize) -> Result<Vec<u32>> {
    if view.shape != [head.words] {
        let problem = format!("expected shape {:?}, found {:?}", [head.words], view.shape);
        return Err(view.error(problem));
    }
    let numbers = view.integers()?.into_iter().enumerate().map(|(at, number)| {
        let first = if head.ids == WordIds::Offsets { at as i64 } else { 0 };
        let id = number.checked_add(first).and_then(|id| u32::try_from(id).ok());
        id.filter(|id| (*id as usize) < vocab).ok_or_else(|| {
            let problem = format!("expected words of a vocabulary of {vocab}, found {number}");
            view.error(format!("{problem} as value {at}"))
        })
    });
    numbers.collect()
}

/// The tensors of a head under canonical names, as those of a model.
fn tensors_of(head: &DraftHead, files: &ModelFiles) -> Result<Vec<TensorView>> {
    let DraftHead { model, family, .. } = head;
    let name = |source: &str| match files.gguf() {
        Some(_) => gguf_name(family, source),
        None => canonical_name(family, model, source),
    };
    let mut views = canonical_tensors(files, native::join(files)?, model, family, &name)?;
    // These factors are already part of the configuration.
    views.retain(|view| !view.name.ends_with(ROPE_FACTORS));
    Ok(views)
}

/// What tensors say of a head.
fn described(views: &[TensorView]) -> Eagle3Tensors {
    let find = |name: &str| views.iter().find(|view| view.name == name);
    Eagle3Tensors {
        fc: find("fc.weight").map_or_else(Vec::new, |view| view.shape.clone()),
        numbered: find(WORD_IDS).map(|view| view.shape.iter().product()),
        has_embeddings: find("token_embd.weight").is_some(),
        has_output: find("output.weight").is_some(),
        has_whole_norm: find("fc_norm.weight").is_some(),
        has_norms: find("fc_norm.0.weight").is_some(),
    }
}
