//! Quantisation: a checkpoint as a GGUF file of fewer bits.

mod convert;
mod importance;
mod mixture;
mod overrides;
mod plan;
mod pre;
mod sentence_piece;
mod source;
mod subwords;
mod summary;
#[cfg(test)]
mod tests;
mod vocabulary;

pub use mixture::Mixture;
pub(crate) use mixture::ModelTraits;
pub use overrides::Override;
pub(crate) use plan::{is_matrix, mixed_type};
pub use summary::Quantized;

use super::WorkProgress;
use anyhow::{Context, Result, bail};
use base::ThreadPool;
use formats::gguf::{GgufWriter, SplitStream, Value};
use formats::{ModelFiles, OpenOptions};
use importance::Importance;
use kernels::quant::{self, QuantType};
use plan::Target;
use source::QuantizeSource;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// How a checkpoint is quantised.
#[derive(Debug)]
pub struct QuantizeOptions<'a> {
    /// The types of the tensors.
    pub mixture: &'static Mixture,
    /// Types of single tensors; of several that match, the last counts.
    pub overrides: &'a [Override],
    /// File with the importance of columns, as [`imatrix`](super::imatrix) writes it.
    pub importance: Option<&'a Path>,
    /// Largest size of a part in bytes; `None` writes one file.
    pub split_size: Option<usize>,
    /// Whether tensors of fewer than eight bits are quantised again.
    pub requantize: bool,
    /// Name of the model in the metadata where that of its folder means nothing.
    pub name: Option<String>,
    /// Name of the pre-tokenizer where that of `tokenizer.json` is not known.
    pub pre: Option<&'a str>,
    /// Threads that compute; 0 for all cores.
    pub threads: usize,
    /// Whether existing files are replaced.
    pub force: bool,
}

impl QuantizeOptions<'_> {
    /// Options for `mixture`, with everything else left out.
    pub fn new(mixture: &'static Mixture) -> Self {
        Self {
            mixture,
            overrides: &[],
            importance: None,
            split_size: None,
            requantize: false,
            name: None,
            pre: None,
            threads: 0,
            force: false,
        }
    }
}

/// Writes the model at `source`, a folder or a file, as the GGUF file `out`.
///
/// # Errors
///
/// What is wrong with the model, the options or the file. Then nothing is left at `out`.
pub fn quantize(
    source: &Path,
    out: &Path,
    options: &QuantizeOptions<'_>,
    progress: &mut dyn WorkProgress,
) -> Result<Quantized> {
    let started = Instant::now();
    check_name(out)?;
    let importance = options.importance.map(Importance::open).transpose()?;
    let open = OpenOptions { name: options.name.clone() };
    let QuantizeSource { mut header, tensors, mut model, note } =
        QuantizeSource::open(ModelFiles::open(source)?, &open, options.pre)?;
    model.has_importance = importance.is_some();
    let targets = plan::decide(tensors, &model, options, importance.as_ref())?;
    describe(&mut header, options.mixture, importance.as_ref(), &targets)?;
    match importance {
        Some(_) => warn_of_unweighed(&targets, progress),
        None => warn_of_no_importance(&targets, progress),
    }
    let (output, paths) = create(out, options, header)?;
    let pool = ThreadPool::new(threads(options.threads)).context("cannot start threads")?;
    convert::write(&targets, importance.as_ref(), output, &pool, progress)?;
    note.iter().for_each(|note| progress.note(&format!("note: {note}")));
    Ok(Quantized { targets, paths, seconds: started.elapsed().as_secs_f64() })
}

/// Sets the metadata of the quantisation and plans the tensors.
fn describe(
    header: &mut GgufWriter,
    mixture: &Mixture,
    importance: Option<&Importance>,
    targets: &[Target],
) -> Result<()> {
    header.set("general.file_type", Value::U32(mixture.file_type));
    header.set("general.quantization_version", Value::U32(2));
    if let Some(importance) = importance {
        header.set("quantize.imatrix.file", Value::String(importance.file_name()));
        let count = Value::U32(importance.means.len().try_into().unwrap_or(u32::MAX));
        header.set("quantize.imatrix.entries_count", count);
        header.set("quantize.imatrix.dataset", Value::String(importance.datasets.join(", ")));
        let windows = Value::U32(importance.windows.try_into().unwrap_or(u32::MAX));
        header.set("quantize.imatrix.chunks_count", windows);
    }
    for Target { tensor, ty, .. } in targets {
        header.plan(&tensor.name, ty, &tensor.shape)?;
    }
    Ok(())
}

/// Warns of tensors that the importance file lacks. Calibration never covers the embedding.
fn warn_of_unweighed(targets: &[Target], progress: &mut dyn WorkProgress) {
    let unweighed = |target: &&Target| {
        target.ty.block_len > 1 && !target.weighed && target.tensor.name != "token_embd.weight"
    };
    let mut unweighed = targets.iter().filter(unweighed);
    if let Some(first) = unweighed.next() {
        let (name, more) = (&first.tensor.name, unweighed.count());
        progress.note(&format!("warning: no importance of {name} and {more} more tensors"));
    }
}

/// Warns of types with so few bits that they need the importance of columns.
fn warn_of_no_importance(targets: &[Target], progress: &mut dyn WorkProgress) {
    const NEEDY: [&QuantType; 5] =
        [&quant::IQ1_S, &quant::IQ1_M, &quant::IQ2_XXS, &quant::IQ2_XS, &quant::IQ2_S];
    let mut needy = targets.iter().filter(|target| NEEDY.contains(&target.ty));
    if let Some(first) = needy.next() {
        let (name, ty, more) = (&first.tensor.name, first.ty, needy.count());
        progress.note(&format!(
            "warning: {name} ({ty}) and {more} more tensors lose much quality without --imatrix; \
             `gannet imatrix` writes one"
        ));
    }
}

/// Opens the output, unless its files exist.
fn create(
    out: &Path,
    options: &QuantizeOptions<'_>,
    header: GgufWriter,
) -> Result<(SplitStream, Vec<PathBuf>)> {
    let paths = match options.split_size {
        Some(size) => header.part_paths(out, size)?,
        None => vec![out.to_owned()],
    };
    if let Some(taken) = paths.iter().find(|path| path.exists()).filter(|_| !options.force) {
        bail!("{} exists already; --force replaces it", taken.display());
    }
    let output = match options.split_size {
        Some(size) => header.create_split(out, size)?,
        None => header.create(out)?.into(),
    };
    Ok((output, paths))
}

fn check_name(out: &Path) -> Result<()> {
    if out.extension().is_none_or(|extension| extension != "gguf") {
        bail!("{}: expected a name that ends in .gguf", out.display());
    }
    let part = regex::Regex::new(r"-\d{5}-of-\d{5}$").context("a constant expression")?;
    let stem = out.file_stem().unwrap_or_default().to_string_lossy();
    if part.is_match(&stem) {
        bail!("{}: expected a name without the number of a part", out.display());
    }
    Ok(())
}

fn threads(wanted: usize) -> usize {
    match wanted {
        0 => std::thread::available_parallelism().map_or(1, |cores| cores.get()),
        wanted => wanted,
    }
}
