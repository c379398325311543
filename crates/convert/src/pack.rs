//! Packed weights of a model as a file, which later starts use in place.

use crate::progress::WorkProgress;
use anyhow::{Context, Result, bail};
use backend::Bits;
use engine::{LoadOptions, PACK_EXTENSION, PackedPart, Runner, Settings, WeightsMemory};
use formats::{Checkpoint, OpenOptions, PackOrigin, PackWriter};
use models::placement::Placement;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How weights are packed.
#[derive(Clone, Debug, Default)]
pub struct PackOptions {
    /// Threads that compute; 0 for all cores.
    pub threads: usize,
    /// Whether an existing file is replaced.
    pub force: bool,
    /// Placement rules, which decide the types of matrices; `None` for the built-in rules alone.
    pub placement: Option<Placement>,
    /// The bits that products with the matrices have, which decide their layouts.
    pub bits: Bits,
    /// The file that remembers digests of weights.
    pub digests: Option<PathBuf>,
}

/// A file of packed weights that was written.
#[derive(Clone, Debug, Serialize)]
pub struct PackSummary {
    /// The file.
    #[serde(serialize_with = "formats::serialize_path")]
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
    /// Matrices in it.
    pub matrices: usize,
    /// What it was packed from and for.
    #[serde(flatten)]
    pub origin: PackOrigin,
}

/// Packs the weights of the model at `source` for `fast` mode on this machine into the file `out`,
/// or into a file of the folder `out`, whose name begins with the model's identity.
///
/// # Errors
///
/// What is wrong with the model or the file, or that nothing of the model is packed. Then nothing
/// is left at `out`.
pub fn pack(
    source: &Path,
    out: &Path,
    options: &PackOptions,
    progress: &mut dyn WorkProgress,
) -> Result<PackSummary> {
    base::check_output(out)?;
    let checkpoint = Checkpoint::open(source, &OpenOptions::default())?;
    // Nothing is computed, so that the smallest cache is enough.
    let load = LoadOptions {
        threads: options.threads,
        context: Some(engine::BLOCK),
        chunk: Some(1),
        logit_rows: 1,
        // Read one by one, so that they need not fit.
        weights_memory: WeightsMemory::All,
        placement: options.placement.clone().map(|rules| Arc::new(rules.in_memory())),
        bits: options.bits,
        ..LoadOptions::default()
    };
    let mut runner = Runner::load(&checkpoint, &load)
        .with_context(|| format!("cannot load {}", source.display()))?;
    runner.warnings().iter().for_each(|warning| progress.note(&format!("warning: {warning}")));
    let parts = runner.packed_parts();
    if parts.is_empty() {
        let isa = runner.isa();
        bail!(
            "{}: no matrix has a packed layout on {isa}: weights are used as the file stores \
               them",
            source.display()
        );
    }
    let path = target(out, runner.settings());
    if path.exists() && !options.force {
        bail!("{} exists already; --force replaces it", path.display());
    }
    let folder = path.parent().unwrap_or(Path::new(""));
    // A system that does not tell is not asked again: writing reports a full disk.
    check_space(&path, &parts, base::free_space(folder).unwrap_or(u64::MAX))?;
    let origin = origin(&checkpoint, &runner, &parts, options, progress)?;
    let bytes = write(&mut runner, &parts, &path, origin.clone(), progress)?;
    Ok(PackSummary { path, bytes, matrices: parts.len(), origin })
}

/// The file to write: `out`, or one in it if it is a folder.
fn target(out: &Path, settings: &Settings) -> PathBuf {
    let name = format!("{}.{}.{PACK_EXTENSION}", settings.checkpoint, settings.arithmetic);
    if out.is_dir() { out.join(name) } else { out.to_owned() }
}

/// Checks that a file of these matrices fits into `free` bytes.
fn check_space(path: &Path, parts: &[PackedPart], free: u64) -> Result<()> {
    let needed = PackWriter::bytes(parts.iter().map(|part| (&part.part, part.bytes)));
    if needed > free {
        let path = path.display();
        bail!("{path}: expected {needed} bytes of free space on its disk, found {free}");
    }
    Ok(())
}

/// What the weights are packed from and for; reads the files, unless their digest is known.
fn origin(
    checkpoint: &Checkpoint,
    runner: &Runner,
    parts: &[PackedPart],
    options: &PackOptions,
    progress: &mut dyn WorkProgress,
) -> Result<PackOrigin> {
    let files = checkpoint.weight_files();
    let sizes = files.iter().filter_map(|file| file.metadata().ok()).map(|file| file.len());
    progress.start(sizes.sum::<u64>() + parts.iter().map(|part| part.bytes as u64).sum::<u64>());
    progress.part("digest");
    let mut stopped = Ok(());
    let digest = formats::digest_files(&files, options.digests.as_deref(), |bytes| {
        progress.advance(bytes);
        stopped = progress.check();
        stopped.is_ok()
    });
    stopped?;
    let path = checkpoint.path().display();
    let digest = digest.with_context(|| format!("cannot read {path}"))?;
    let settings = runner.settings();
    Ok(PackOrigin {
        digest: digest.with_context(|| format!("{path}: the digest was not computed"))?,
        identity: settings.checkpoint.clone(),
        mode: settings.mode.name().to_owned(),
        arithmetic: settings.arithmetic.clone(),
    })
}

/// Writes the matrices, and returns the size of the file.
fn write(
    runner: &mut Runner,
    parts: &[PackedPart],
    path: &Path,
    origin: PackOrigin,
    progress: &mut dyn WorkProgress,
) -> Result<u64> {
    let mut writer = PackWriter::create(path, origin)?;
    for part in parts {
        progress.check()?;
        progress.part(&part.part.name);
        writer.add(&part.part, &runner.read_packed(part))?;
        progress.advance(part.bytes as u64);
    }
    progress.check()?;
    Ok(writer.finish()?)
}

impl PackSummary {
    /// The summary as a line.
    pub fn to_line(&self) -> String {
        let Self { path, bytes, matrices, origin } = self;
        let (path, mib) = (path.display(), *bytes as f64 / f64::from(1 << 20));
        format!("wrote {path}: {matrices} matrices, {mib:.1} MiB, for {}", origin.arithmetic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Interrupted;
    use formats::PackFile;
    use std::cell::Cell;

    const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model/tiny-q8_0.gguf");
    /// The same model in BF16.
    const IN_BF16: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tiny/model");

    /// Interrupts the work at a number of checks.
    struct Stop(Cell<usize>);

    impl WorkProgress for Stop {
        fn check(&self) -> Result<(), Interrupted> {
            let left = self.0.get();
            self.0.set(left.saturating_sub(1));
            if left == 0 { Err(Interrupted) } else { Ok(()) }
        }
    }

    #[test]
    fn a_file_that_does_not_fit_on_the_disk_is_not_begun() {
        let checkpoint = Checkpoint::open(Path::new(MODEL), &OpenOptions::default()).unwrap();
        let mut runner = Runner::load(&checkpoint, &LoadOptions::default()).unwrap();
        let parts = runner.packed_parts();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weights.gpack");
        let options = PackOptions { threads: 1, ..PackOptions::default() };
        let written = pack(Path::new(MODEL), &path, &options, &mut ()).unwrap().bytes;
        check_space(&path, &parts, written + written / 8).unwrap();
        let error = check_space(&path, &parts, written - 1).unwrap_err().to_string();
        let found = format!("bytes of free space on its disk, found {}", written - 1);
        assert!(error.contains("weights.gpack") && error.ends_with(&found), "{error}");
    }

    #[test]
    fn layouts_are_those_of_the_chosen_bits() {
        let folder = tempfile::tempdir().unwrap();
        let options = PackOptions { threads: 1, bits: Bits::Portable, ..PackOptions::default() };
        let written = pack(Path::new(IN_BF16), folder.path(), &options, &mut ()).unwrap();
        assert_eq!(written.origin.arithmetic, "f32");
        assert!(written.path.ends_with(format!("{}.f32.gpack", written.origin.identity)));
    }

    #[test]
    fn an_interrupted_pack_leaves_nothing_and_another_replaces_no_file_unasked() {
        let folder = tempfile::tempdir().unwrap();
        let options = PackOptions { threads: 1, ..PackOptions::default() };
        let write = |progress: &mut dyn WorkProgress| {
            pack(Path::new(MODEL), folder.path(), &options, progress)
        };
        for checks in [0, 2, 9] {
            let error = write(&mut Stop(Cell::new(checks))).unwrap_err();
            assert!(error.is::<Interrupted>(), "{error}");
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        }
        let written = write(&mut ()).unwrap();
        let pack = PackFile::open(&written.path).unwrap();
        assert_eq!((pack.origin(), pack.parts().len()), (&written.origin, written.matrices));
        let name = written.path.file_name().unwrap().to_str().unwrap();
        assert!(name.starts_with(&written.origin.identity) && name.ends_with(".gpack"), "{name}");
        let error = write(&mut ()).unwrap_err().to_string();
        assert!(error.ends_with("exists already; --force replaces it"), "{error}");
    }
}
