//! What a rank says of itself before it loads its part of a model.

use super::cache_size::KvMemory;
use super::options::LoadOptions;
use super::rank_files::Lacking;
use super::settings::Settings;
use serde::{Deserialize, Serialize};

/// A rank, as the others see it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RankCard {
    /// Name of its machine.
    pub host: String,
    /// Names and values of what all ranks must have alike.
    pub shared: Vec<(String, String)>,
    /// Name of its arithmetic, and what its machine contributes to it.
    pub arithmetic: String,
    /// Bytes of memory that its weights may take, where they are known.
    pub memory: Option<u64>,
    /// What it cannot load for lack of files.
    pub lacking: Lacking,
    /// Sizes, of which all ranks take those of rank 0.
    pub sizes: RankSizes,
}

/// Sizes that all ranks have alike, as options of loading have them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RankSizes {
    chunk: usize,
    logit_rows: usize,
    parallel: usize,
    context: Option<usize>,
    kv_memory: KvMemory,
    state_memory: Option<usize>,
}

impl RankSizes {
    /// The sizes of `options`, with this chunk unless they have one.
    pub fn of(options: &LoadOptions, chunk: usize) -> Self {
        let LoadOptions { logit_rows, parallel, context, kv_memory, state_memory, .. } = *options;
        let chunk = options.chunk.unwrap_or(chunk);
        Self { chunk, logit_rows, parallel, context, kv_memory, state_memory }
    }

    /// `options` with these sizes.
    pub fn add_to(self, options: LoadOptions) -> LoadOptions {
        let Self { chunk, logit_rows, parallel, context, kv_memory, state_memory } = self;
        let chunk = Some(chunk);
        LoadOptions { chunk, logit_rows, parallel, context, kv_memory, state_memory, ..options }
    }
}

impl RankCard {
    /// The card of a rank with these options.
    pub fn new(settings: &Settings, options: &LoadOptions) -> Self {
        let LoadOptions { block, state_every, check, .. } = *options;
        let shared = [
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ("checkpoint", settings.checkpoint.clone()),
            ("mode", settings.mode.name().to_owned()),
            ("KV type", settings.kv_type.name().to_owned()),
            ("cache rounding", settings.rounding.map_or("", |it| it.name()).to_owned()),
            ("placement", settings.placement.clone()),
            ("block", block.to_string()),
            ("tokens between snapshots", state_every.to_string()),
            ("checking", check.to_string()),
        ];
        Self {
            shared: shared.map(|(name, value)| (name.to_owned(), value)).to_vec(),
            ..Self::default()
        }
    }
}

/// The first difference between `card`, of rank `rank`, and that of rank 0.
pub(super) fn difference(first: &RankCard, (rank, card): (usize, &RankCard)) -> Option<String> {
    let of_rank = || format!("rank {rank} ({})", card.host);
    for ((name, expected), (own, found)) in first.shared.iter().zip(&card.shared) {
        if name != own {
            return Some(format!("{} is of another version than rank 0", of_rank()));
        }
        if expected != found {
            return Some(format!("{} has {name} {found}, rank 0 {expected}", of_rank()));
        }
    }
    let same = first.shared.len() == card.shared.len();
    (!same).then(|| format!("{} is of another version than rank 0", of_rank()))
}
