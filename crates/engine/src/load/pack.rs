//! Packed weights in files: which file a model is loaded with.

use super::error::Error;
use super::options::{LoadOptions, PackChoice};
use backend::{Backend, CPU, Held, Mode, PackedMatrix};
use formats::{Checkpoint, PackFile, PackPart};
use std::path::{Path, PathBuf};

/// Extension of the files.
pub const PACK_EXTENSION: &str = "gpack";
/// Most files that are looked at for one that fits.
const MAX_CANDIDATES: usize = 64;

/// Gives `backend` the packed weights that `options` choose for the model of `identity`.
///
/// # Errors
///
/// If the file that was named cannot be read or does not fit the model, the mode or the device.
pub(super) fn use_pack(
    checkpoint: &Checkpoint,
    identity: &str,
    backend: &mut dyn Backend,
    options: &LoadOptions,
) -> Result<(), Error> {
    let open = |path: &Path, backend: &dyn Backend| {
        let pack = PackFile::open(path)?;
        check(&pack, checkpoint, identity, backend, options)
            .map(|()| pack)
            .map_err(|problem| formats::Error::File { path: path.to_owned(), problem })
    };
    let found = match &options.pack {
        PackChoice::Off => None,
        PackChoice::File(path) => Some(open(path, backend).map_err(models::Error::from)?),
        PackChoice::Auto(folder) => {
            let paths = candidates(checkpoint.path(), identity, folder.as_deref());
            paths.into_iter().find_map(|path| {
                let opened = open(&path, backend);
                opened
                    .inspect_err(|error| tracing::info!("packed weights are not used: {error}"))
                    .ok()
            })
        }
    };
    let Some(pack) = found else { return Ok(()) };
    tracing::info!("using the packed weights of {}", pack.path().display());
    let matrix = |part: &PackPart| {
        let PackPart { name, index, ty, layout, rows, cols, .. } = part.clone();
        (PackedMatrix { name, index, ty, rows, cols, layout }, pack.bytes(part))
    };
    if let Some(packed) = backend.packed() {
        packed.use_packed(pack.parts().iter().map(matrix).collect());
    }
    Ok(())
}

/// Checks that packed weights are of this checkpoint and as `backend` holds them, or returns what
/// was expected and found.
fn check(
    pack: &PackFile,
    checkpoint: &Checkpoint,
    identity: &str,
    backend: &dyn Backend,
    options: &LoadOptions,
) -> Result<(), String> {
    let LoadOptions { mode, ranks, digests, .. } = options;
    let origin = pack.origin();
    if ranks.are_several() {
        return Err("expected one rank, found a model that is divided among several".to_owned());
    }
    let equal = |what: &str, expected: &str, found: &str| match expected == found {
        true => Ok(()),
        false => Err(format!("expected packed weights {what} {expected}, found {found}")),
    };
    equal("for device", backend.device().name, CPU.name)?;
    equal("for mode", mode.name(), &origin.mode)?;
    equal("of a model with identity", identity, &origin.identity)?;
    let known = |memory: &PathBuf| formats::known_digest(&checkpoint.weight_files(), memory);
    if let Some(digest) = digests.as_ref().and_then(known) {
        equal("of files with digest", &digest, &origin.digest)?;
    }
    let differs = |part: &&PackPart| {
        let held = backend.held(part.ty, part.rows, part.cols, Mode::Fast);
        (held.layout, held.bytes) != (part.layout.as_str(), Some(part.range.len()))
    };
    match pack.parts().iter().find(differs) {
        None => Ok(()),
        Some(part) => {
            let Held { layout, .. } = backend.held(part.ty, part.rows, part.cols, Mode::Fast);
            let (device, found) = (backend.identity(), &part.layout);
            let bytes = part.range.len();
            Err(format!(
                "part {part}: expected weights of type {} in layout {layout}, as {device} reads \
                 them, found layout {found} of {bytes} bytes, packed for {}",
                part.ty, origin.arithmetic
            ))
        }
    }
}

/// The files that may hold packed weights of the model at `path`.
fn candidates(path: &Path, identity: &str, folder: Option<&Path>) -> Vec<PathBuf> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut all = match path.is_dir() {
        true => files(path, ""),
        false => files(path.parent().unwrap_or(Path::new("")), &name),
    };
    all.extend(folder.map(|folder| files(folder, identity)).unwrap_or_default());
    all.truncate(MAX_CANDIDATES);
    all
}

/// The files of packed weights in a folder whose names begin with `start`, in order.
fn files(folder: &Path, start: &str) -> Vec<PathBuf> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    // A folder that cannot be read has none.
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_pack = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(start) && path.extension().is_some_and(|it| it == PACK_EXTENSION)
    };
    let mut all: Vec<_> = entries.map(|entry| entry.path()).filter(is_pack).collect();
    all.sort_unstable();
    all
}
