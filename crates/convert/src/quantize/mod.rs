//! Quantisation: a checkpoint as a GGUF file of fewer bits.

mod compare;
mod convert;
mod importance;
mod mixture;
mod options;
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

pub use compare::{Comparison, TensorErrors};
pub use mixture::Mixture;
pub(crate) use mixture::{ModelTraits, split_layer};
pub use options::QuantizeOptions;
pub use overrides::Override;
pub(crate) use overrides::glob;
pub(crate) use plan::{is_matrix, mixed_type};
pub use summary::{QuantizePlan, Quantized};

use super::output;
use crate::progress::WorkProgress;
use anyhow::{Context, Result};
use base::ThreadPool;
use formats::gguf::{GgufWriter, Value};
use formats::{ModelFiles, OpenOptions};
use importance::Importance;
use kernels::quant::{self, QuantType};
use plan::Target;
use source::QuantizeSource;
use std::path::Path;
use std::time::Instant;

/// A model with the types of its tensors, before a byte is written.
struct Prepared {
    /// The metadata and the planned tensors.
    header: GgufWriter,
    targets: Vec<Target>,
    importance: Option<Importance>,
    /// What the conversion loses.
    note: Option<&'static str>,
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
    output::check_name(out)?;
    let Prepared { header, targets, importance, note } = prepare(source, options, progress)?;
    let (output, paths) = output::create(out, options.split_size, options.force, header)?;
    let pool = pool(options)?;
    convert::write(&targets, importance.as_ref(), output, &pool, progress)?;
    note.iter().for_each(|note| progress.note(&format!("note: {note}")));
    let seconds = started.elapsed().as_secs_f64();
    Ok(Quantized { plan: QuantizePlan { targets }, paths, seconds })
}

/// Plans what [`quantize`] would write of the model at `source` to `out`, which may be unknown or
/// exist, and writes nothing.
///
/// # Errors
///
/// What is wrong with the model, the options or the name of the file.
pub fn plan(
    source: &Path,
    out: Option<&Path>,
    options: &QuantizeOptions<'_>,
    progress: &mut dyn WorkProgress,
) -> Result<QuantizePlan> {
    out.map_or(Ok(()), output::check_name)?;
    let Prepared { targets, note, .. } = prepare(source, options, progress)?;
    note.iter().for_each(|note| progress.note(&format!("note: {note}")));
    Ok(QuantizePlan { targets })
}

/// Measures how much the tensors that `comparisons` name lose in other types: each is quantised,
/// with the importance of its columns too where that is known, and compared with the source,
/// whatever its type. Writes nothing.
///
/// # Errors
///
/// What is wrong with the model or the options, and a tensor that cannot have a type.
pub fn compare(
    source: &Path,
    comparisons: &[Comparison],
    options: &QuantizeOptions<'_>,
    progress: &mut dyn WorkProgress,
) -> Result<TensorErrors> {
    let options = &QuantizeOptions { requantize: true, name: options.name.clone(), ..*options };
    let Prepared { targets, importance, .. } = prepare(source, options, progress)?;
    let trials = compare::trials(targets, comparisons, importance.as_ref())?;
    compare::measure(&trials, importance.as_ref(), &pool(options)?, progress)
}

/// Opens the model and decides the types of its tensors.
fn prepare(
    source: &Path,
    options: &QuantizeOptions<'_>,
    progress: &mut dyn WorkProgress,
) -> Result<Prepared> {
    let importance = options.importance.map(Importance::open).transpose()?;
    let open = OpenOptions { name: options.name.clone(), ..OpenOptions::default() };
    let QuantizeSource { mut header, tensors, mut model, note } =
        QuantizeSource::open(ModelFiles::open(source)?, &open, options.pre, options.mtp)?;
    model.has_importance = importance.is_some();
    let targets = plan::decide(tensors, &model, options, importance.as_ref())?;
    describe(&mut header, options.mixture, importance.as_ref(), &targets)?;
    match importance {
        Some(_) => warn_of_unweighed(&targets, progress),
        None => warn_of_no_importance(&targets, progress),
    }
    Ok(Prepared { header, targets, importance, note })
}

fn pool(options: &QuantizeOptions<'_>) -> Result<ThreadPool> {
    ThreadPool::new(threads(options.threads)).context("cannot start threads")
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

fn threads(wanted: usize) -> usize {
    match wanted {
        0 => std::thread::available_parallelism().map_or(1, |cores| cores.get()),
        wanted => wanted,
    }
}
