//! What the ranks that share a model agree on before each loads its part.

use super::block_root::machine_name;
use super::error::Error;
use super::options::{CHUNK, LoadOptions};
use super::rank_agreement::agree;
use super::rank_card::{RankCard, RankSizes};
use super::rank_files::Lacking;
use super::settings::Settings;
use super::stream::free_memory;
use backend::{Backend, StoredBlocks};
use formats::Checkpoint;
use models::StageCuts;
use models::placement::Placed;

/// The options with what all ranks have agreed on, if there are several. Sets the arithmetic of the
/// whole model.
///
/// # Errors
/// If the ranks cannot share the model, or one has ended.
pub(super) fn agreed_options(
    checkpoint: &Checkpoint,
    (backend, placed): (&dyn Backend, &[Placed]),
    settings: &mut Settings,
    options: &LoadOptions,
) -> Result<LoadOptions, Error> {
    if !options.ranks.are_several() {
        return Ok(options.clone());
    }
    let machine = machine(backend);
    let card = RankCard {
        host: options.ranks.host().to_owned(),
        arithmetic: match machine.is_empty() {
            true => settings.arithmetic.clone(),
            false => format!("{} of machine {machine}", settings.arithmetic),
        },
        memory: free_memory(backend, options).map(|free| free.bytes as u64),
        lacking: Lacking::of(checkpoint),
        // A rank that streams weights would choose another chunk.
        sizes: RankSizes::of(options, CHUNK),
        ..RankCard::new(settings, options)
    };
    let weights = placed.iter().map(|placed| (placed.name.as_str(), placed.bytes));
    let cuts = StageCuts::new(checkpoint.config(), weights);
    let found = agree(&options.ranks, card, &cuts)?;
    settings.arithmetic = found.arithmetic.unwrap_or_else(|| settings.arithmetic.clone());
    let mut agreed = found.sizes.add_to(options.clone());
    agreed.ranks = agreed.ranks.with_stage_layers(Some(found.stage_layers));
    Ok(agreed)
}

/// What this machine, not the program, contributes to bits, as a name; empty where it is nothing,
/// and for GPUs, whose arithmetic is their own name.
pub(super) fn machine(backend: &dyn Backend) -> String {
    let values = backend.stored().map(StoredBlocks::fingerprint).unwrap_or_default();
    if values.is_empty() { String::new() } else { machine_name(&values).to_string() }
}
