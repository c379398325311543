//! `gannet quantize`: a checkpoint as a GGUF file of fewer bits.
//!
//! Invariant: the file appears under its name whole or not at all.

mod convert;
mod importance;
mod mixture;
mod overrides;
mod plan;
mod pre;
mod sentence_piece;
mod source;
mod summary;
mod vocabulary;

pub(crate) use plan::whole_blocks;

use crate::model::{self, BUILTIN};
use crate::output;
use anyhow::{Context, Result, bail};
use base::ThreadPool;
use convert::GgufOutput;
use formats::ModelFiles;
use formats::gguf::{GgufWriter, Value};
use importance::Importance;
use kernels::quant::{self, QuantType};
use mixture::Mixture;
use overrides::Override;
use plan::{Target, TypeRules};
use source::QuantizeSource;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;
use summary::QuantizeSummary;

/// Write a model as a GGUF file of fewer bits
///
/// Folders of safetensors become GGUF files with their configuration, tokenizer and chat
/// templates. Mixtures such as q4_k_m keep the tensors that matter most in more bits.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder, .gguf or .safetensors file, owner/name on the hub, or `builtin`
    #[arg(value_name = "SRC")]
    source: String,
    /// File to write, which ends in .gguf
    #[arg(value_name = "DST")]
    out: PathBuf,
    /// Mixture or type: q4_k_m, q8_0, bf16, ...
    #[arg(long = "type", value_name = "TYPE", value_parser = mixture::find)]
    mixture: &'static Mixture,
    /// Another type for the tensors with a name like PATTERN, a glob or regular expression; may
    /// be repeated, the last that fits wins
    #[arg(long, value_name = "PATTERN=TYPE", value_parser = overrides::parse)]
    tensor_type: Vec<Override>,
    /// Importance of the columns, as `gannet imatrix` or llama.cpp writes it (.gguf or .dat)
    #[arg(long, value_name = "FILE")]
    imatrix: Option<PathBuf>,
    /// Write parts of at most this size, such as 2G or 500M
    #[arg(long, value_name = "SIZE", value_parser = size)]
    split_size: Option<usize>,
    /// Quantise again what has less than eight bits already
    #[arg(long)]
    allow_requantize: bool,
    /// Name of the pre-tokenizer, where that of tokenizer.json is not known
    #[arg(long, value_name = "NAME")]
    pre: Option<String>,
    /// Threads that compute; 0 for all cores
    #[arg(long, value_name = "N", default_value_t = 0)]
    threads: usize,
    /// Replace what is there
    #[arg(long)]
    force: bool,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let started = Instant::now();
    check_name(&args.out)?;
    let importance = args.imatrix.as_deref().map(Importance::open).transpose()?;
    let files = ModelFiles::open(&model::locate(Some(&args.source))?)?;
    let QuantizeSource { mut header, tensors, mut model, note } =
        QuantizeSource::open(files, public_name(&args.source), args.pre.as_deref())?;
    model.has_importance = importance.is_some();
    let rules = TypeRules {
        mixture: args.mixture,
        overrides: &args.tensor_type,
        importance: importance.as_ref(),
        requantize: args.allow_requantize,
    };
    let targets = plan::decide(tensors, &model, &rules)?;
    describe(&mut header, args.mixture, importance.as_ref(), &targets)?;
    let (output, paths) = create(args, header)?;
    let pool = ThreadPool::new(threads(args.threads)).context("cannot start threads")?;
    convert::write(&targets, importance.as_ref(), output, &pool)?;
    note.iter().for_each(|note| output::note(format_args!("note: {note}")));
    let seconds = started.elapsed().as_secs_f64();
    report(args, &QuantizeSummary { targets: &targets, paths: &paths, seconds })?;
    Ok(ExitCode::SUCCESS)
}

fn report(args: &Args, summary: &QuantizeSummary) -> Result<()> {
    if args.json {
        return Ok(output::json(&summary.to_json())?);
    }
    output::text(&summary.to_table())?;
    for path in summary.paths {
        output::note(format_args!("wrote {}", path.display()));
    }
    Ok(())
}

/// The metadata of what is done here, and the tensors to come.
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
        let count = Value::U32(importance.len().try_into().unwrap_or(u32::MAX));
        header.set("quantize.imatrix.entries_count", count);
        header.set("quantize.imatrix.dataset", Value::String(importance.datasets.join(", ")));
        let windows = Value::U32(importance.windows.try_into().unwrap_or(u32::MAX));
        header.set("quantize.imatrix.chunks_count", windows);
        warn_of_unweighed(targets);
    } else {
        warn_of_no_importance(targets);
    }
    for Target { tensor, ty, .. } in targets {
        header.plan(&tensor.name, ty, &tensor.shape)?;
    }
    Ok(())
}

/// Calibration sees no embeddings; other tensors that it did not see are worth a word.
fn warn_of_unweighed(targets: &[Target]) {
    let unweighed = |target: &&Target| {
        target.ty.block_len > 1 && !target.weighed && target.tensor.name != "token_embd.weight"
    };
    let mut unweighed = targets.iter().filter(unweighed);
    if let Some(first) = unweighed.next() {
        let more = unweighed.count();
        let name = &first.tensor.name;
        output::note(format_args!("warning: no importance of {name} and {more} more tensors"));
    }
}

/// Types of so few bits that what matters less must pay for what matters more.
fn warn_of_no_importance(targets: &[Target]) {
    const NEEDY: [&QuantType; 5] =
        [&quant::IQ1_S, &quant::IQ1_M, &quant::IQ2_XXS, &quant::IQ2_XS, &quant::IQ2_S];
    let mut needy = targets.iter().filter(|target| NEEDY.contains(&target.ty));
    if let Some(first) = needy.next() {
        let (name, ty, more) = (&first.tensor.name, first.ty, needy.count());
        output::note(format_args!(
            "warning: {name} ({ty}) and {more} more tensors lose much of what matters without \
             --imatrix; `gannet imatrix` makes one"
        ));
    }
}

/// Opens the output, unless something is there.
fn create(args: &Args, header: GgufWriter) -> Result<(GgufOutput, Vec<PathBuf>)> {
    let paths = match args.split_size {
        Some(size) => header.part_paths(&args.out, size)?,
        None => vec![args.out.clone()],
    };
    if let Some(taken) = paths.iter().find(|path| path.exists()).filter(|_| !args.force) {
        bail!("{} exists already; --force replaces it", taken.display());
    }
    let output = match args.split_size {
        Some(size) => GgufOutput::Split(header.create_split(&args.out, size)?),
        None => GgufOutput::Whole(header.create(&args.out)?),
    };
    Ok((output, paths))
}

/// The name for people where that of the folder would say nothing: models unpacked or fetched.
fn public_name(source: &str) -> Option<String> {
    match Path::new(source).exists() {
        true => None,
        false if source == BUILTIN => Some("gannet-tiny".to_owned()),
        false => Some(source.to_owned()),
    }
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

/// A number of bytes, in units of 1000 as files are sold.
fn size(text: &str) -> Result<usize> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 1,
        "K" | "KB" => 1000,
        "M" | "MB" => 1_000_000,
        "G" | "GB" => 1_000_000_000,
        _ => bail!("expected a size such as 2G or 500M"),
    };
    let number: usize = digits.parse().context("expected a size such as 2G or 500M")?;
    let bytes = number.checked_mul(unit).filter(|bytes| *bytes > 0);
    bytes.context("expected a size above 0 that a file can have")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("2G").unwrap(), 2_000_000_000);
        assert_eq!(size("500mb").unwrap(), 500_000_000);
        assert_eq!(size("12").unwrap(), 12);
        for bad in ["", "G", "0", "-1", "1.5G", "2T", "99999999999999G"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }
}
