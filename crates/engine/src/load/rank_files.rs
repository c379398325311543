//! Files of weights that some of the ranks that share a model lack. A rank loads the layers of its
//! stage; to interpret the checkpoint it needs the headers of all files, which come from ranks that
//! have them, and to identify it a few bytes of each tensor.

use super::error::Error;
use super::identity::{Samples, sample};
use super::rank_exchange::{exchange, reported_by_first};
use dist::Comm;
use formats::families::layer_of;
use formats::{Checkpoint, FileHeader, FileHeaders, OpenOptions, read_header, split_files};
use models::{Ranks, is_of_stage};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Opens the checkpoint at `path` under the display name `name`, or its own. Of a checkpoint in
/// several files each of `ranks` may lack files. Every rank must call this.
///
/// # Errors
/// As [`Checkpoint::open`]; if no rank has a file, or a rank has ended.
pub fn open_checkpoint(
    path: &Path,
    name: Option<String>,
    ranks: &Ranks,
) -> Result<Checkpoint, Error> {
    let headers = match ranks.world() {
        Some(world) => headers(path, &**world)?,
        None => FileHeaders::default(),
    };
    let options = OpenOptions { name, headers };
    Ok(Checkpoint::open(path, &options).map_err(models::Error::from)?)
}

/// The headers of files that this rank lacks.
fn headers(path: &Path, world: &dyn Comm) -> Result<FileHeaders, Error> {
    let files: BTreeMap<String, PathBuf> =
        split_files(path).map_err(models::Error::from)?.into_iter().collect();
    let own: BTreeMap<String, bool> =
        files.iter().map(|(name, path)| (name.clone(), path.exists())).collect();
    let all = exchange(world, &own)?;
    let has = |rank: usize, name: &str| all[rank].get(name).copied();
    let names: BTreeSet<&str> = all.iter().flat_map(BTreeMap::keys).map(String::as_str).collect();
    let lacked = |name: &&str| (0..all.len()).any(|rank| has(rank, name) == Some(false));
    let lacked: Vec<&str> = names.into_iter().filter(lacked).collect();
    let source = |name: &str| (0..all.len()).find(|rank| has(*rank, name) == Some(true));
    if let Some(name) = lacked.iter().find(|name| source(name).is_none()) {
        let problem = format!("{}: no rank has the file {name}", path.display());
        return reported_by_first(world, Err(Error::Ranks(problem)));
    }
    let mut headers = Vec::new();
    let failed = |error| Error::from(models::Error::from(error));
    // In one order on all ranks, so that none waits for another that waits for it.
    for name in lacked {
        let from = source(name).expect("a rank has the file");
        let lacks = |rank: &usize| has(*rank, name) == Some(false);
        match files.get(name) {
            Some(path) if world.rank() == from => {
                let header = read_header(path).map_err(models::Error::from)?.to_bytes();
                let mut lacking = (0..all.len()).filter(lacks);
                lacking.try_for_each(|to| world.send_bytes(to, &header)).map_err(failed)?;
            }
            Some(path) if lacks(&world.rank()) => {
                let mut header = Vec::new();
                world.receive_bytes(from, &mut header).map_err(failed)?;
                let problem = || Error::Ranks(format!("rank {from} has another version"));
                headers.push((path.clone(), FileHeader::from_bytes(&header).ok_or_else(problem)?));
            }
            _ => {}
        }
    }
    Ok(headers.into_iter().collect())
}

/// The bytes that identify the tensors whose files this rank lacks. Every rank must call this.
///
/// # Errors
/// If no rank has all files of a tensor, or a rank has ended.
pub(super) fn samples(checkpoint: &Checkpoint, ranks: &Ranks) -> Result<Samples, Error> {
    let Some(world) = ranks.world() else { return Ok(Samples::default()) };
    let is_here = |it: &&formats::TensorView| it.bytes().are_here();
    let lacking = checkpoint.tensors().filter(|it| !is_here(it));
    let lacking: BTreeSet<String> = lacking.map(|it| it.name.clone()).collect();
    let lacked: BTreeSet<String> = exchange(&**world, &lacking)?.into_iter().flatten().collect();
    if lacked.is_empty() {
        return Ok(Samples::default());
    }
    let own = checkpoint.tensors().filter(|it| lacked.contains(&it.name)).filter(is_here);
    let own: Samples = own.map(|it| (it.name.clone(), sample(it))).collect();
    let mut all = Samples::default();
    for of_rank in exchange(&**world, &own)?.into_iter().rev() {
        all.extend(of_rank);
    }
    match lacked.iter().find(|name| !all.contains_key(*name)) {
        None => Ok(all),
        Some(name) => {
            let problem = format!("tensor {name}: no rank has all files that hold it");
            reported_by_first(&**world, Err(Error::Ranks(problem)))
        }
    }
}

/// What a rank cannot load for lack of files.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct Lacking {
    /// Layers, each with the error of one of its tensors.
    layers: BTreeMap<usize, String>,
    /// The error of a tensor that the first stage alone has.
    first: Option<String>,
    /// The error of a tensor that all stages have.
    all: Option<String>,
}

impl Lacking {
    /// What a rank with these files lacks.
    pub fn of(checkpoint: &Checkpoint) -> Self {
        let (mut lacking, config) = (Self::default(), checkpoint.config());
        let (count, later) = (config.layers.len(), usize::MAX..usize::MAX);
        for view in checkpoint.tensors() {
            let Err(error) = view.check_here() else { continue };
            let error = || error.to_string();
            match layer_of(&view.name).filter(|layer| *layer < count) {
                Some(layer) => _ = lacking.layers.entry(layer).or_insert_with(error),
                None if is_of_stage(config, &later, &view.name) => {
                    _ = lacking.all.get_or_insert_with(error);
                }
                None => _ = lacking.first.get_or_insert_with(error),
            }
        }
        lacking
    }

    /// The error of a tensor that a stage of `layers` needs.
    pub fn of_stage(&self, layers: &Range<usize>) -> Option<&str> {
        let of_first = self.first.as_ref().filter(|_| layers.start == 0);
        let of_layers = self.layers.range(layers.clone()).map(|(_, error)| error);
        of_layers.chain(&self.all).chain(of_first).map(String::as_str).next()
    }
}
