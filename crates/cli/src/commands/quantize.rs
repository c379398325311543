//! `gannet quantize`: a checkpoint as a GGUF file of fewer bits, or what would be written.

use crate::model;
use crate::output;
use crate::progress::{self, Task};
use crate::size::threads;
use anyhow::{Context, Result, bail};
use convert::quantize::{compare, plan};
use convert::{Comparison, Mixture, Override, QuantizeOptions};
use std::ffi::OsString;
use std::path::PathBuf;

/// Write a model as a GGUF file of fewer bits
///
/// Folders of safetensors become GGUF files with their configuration, tokenizer and chat
/// templates. Mixtures such as q4_k_m keep the tensors that matter most in more bits.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder, .gguf or .safetensors file, owner/name on the hub, or `builtin`
    #[arg(value_name = "SRC")]
    source: OsString,
    /// File to write; its name ends in .gguf
    #[arg(value_name = "DST", required_unless_present_any = ["dry_run", "compare_tensor"])]
    out: Option<PathBuf>,
    /// Mixture or type: q4_k_m, q8_0, bf16, ...
    #[arg(long = "type", value_name = "TYPE", value_parser = Mixture::named)]
    mixture: &'static Mixture,
    /// Type of the tensors whose names match PATTERN, a glob or regular expression; may be
    /// repeated, the last match wins
    #[arg(long, value_name = "PATTERN=TYPE", value_parser = Override::parse)]
    tensor_type: Vec<Override>,
    /// Importance of the columns, from `gannet imatrix` or llama.cpp (.gguf or .dat)
    #[arg(long, value_name = "FILE")]
    imatrix: Option<PathBuf>,
    /// Maximum size of a part, such as 2G or 500M [default: one file]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    split_size: Option<usize>,
    /// Allow tensors of fewer than eight bits to be quantised again
    #[arg(long)]
    allow_requantize: bool,
    /// Pre-tokenizer, where tokenizer.json has an unknown one
    #[arg(long, value_name = "TYPE", alias = "pre")]
    pre_fallback: Option<String>,
    /// Leave out layers of multi-token prediction
    #[arg(long)]
    no_mtp: bool,
    /// Print the tensors that would be written, with their types and sizes, and write nothing
    #[arg(long, conflicts_with = "compare_tensor")]
    dry_run: bool,
    /// Print how much the tensors whose names match PATTERN lose in the planned type, or in other
    /// ones, and write nothing; may be repeated
    ///
    /// With --imatrix, the errors without and with the importance of columns are printed. Weighted
    /// errors count each column by its importance.
    #[arg(long, value_name = "PATTERN[=TYPE,...]", value_parser = Comparison::parse)]
    compare_tensor: Vec<Comparison>,
    /// Address of the hub, instead of HF_ENDPOINT
    #[arg(long, value_name = "URL")]
    hub_endpoint: Option<String>,
    /// Compute threads; 0 for all cores
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = threads)]
    threads: usize,
    /// Replace existing files
    #[arg(long)]
    force: bool,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let options = QuantizeOptions {
        mixture: args.mixture,
        overrides: &args.tensor_type,
        importance: args.imatrix.as_deref(),
        split_size: args.split_size,
        requantize: args.allow_requantize,
        name: model::public_name(&args.source),
        pre: args.pre_fallback.as_deref(),
        mtp: !args.no_mtp,
        threads: args.threads,
        force: args.force,
    };
    let source = model::locate(&args.source, args.hub_endpoint.as_deref())?;
    let mut task = Task::new(progress::bytes(0));
    if !args.compare_tensor.is_empty() {
        let errors = compare(&source, &args.compare_tensor, &options, &mut task)?;
        drop(task);
        return output::report(args.json, || errors.to_json(), || errors.to_table());
    }
    if args.dry_run {
        let plan = plan(&source, args.out.as_deref(), &options, &mut task)?;
        let tables = || plan.tensors_table() + "\n" + &plan.to_table();
        return output::report(args.json, || plan.to_json(), tables);
    }
    let out = args.out.as_deref().context("DST is missing")?;
    let quantized = convert::quantize(&source, out, &options, &mut task)?;
    drop(task);
    output::report(args.json, || quantized.to_json(), || quantized.plan.to_table())?;
    if !args.json {
        let wrote = |path: &PathBuf| output::note(format_args!("wrote {}", path.display()));
        quantized.paths.iter().for_each(wrote);
    }
    Ok(())
}

/// Parses a number of bytes with units of 1000.
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
