//! `gannet bench`: prefill and decode rates, compared with what the machine sustains.

mod speculated;

use crate::adapter_args::AdapterArgs;
use crate::args::FileArgs;
use crate::device::{BitsArgs, DeviceArgs};
use crate::exit::WrongUsage;
use crate::model::{self, BUILTIN};
use crate::output;
use crate::placement::PlacementArgs;
use crate::progress::{self, Task};
use crate::rank_args::{RankArgs, RankChoice};
use crate::ranked_model::{JoinedRanks, RankedModel};
use crate::size::{bytes, threads};
use crate::weights::WeightsArgs;
use anyhow::{Context, Result, bail};
use backend::Mode;
use convert::MatrixTypes;
use convert::synth::{self, SynthPlan};
use engine::{CacheRounding, LoadOptions, MAX_DRAFTED, Runner};
use formats::Checkpoint;
use kernels::kv::KvType;
use loadtest::{BenchPlan, DiskPlan, bench, bench_constrained, bench_disk, bench_scaling};
use speculated::SpeculatedArgs;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

/// Time of each measurement of a disk.
const DISK_TIME: Duration = Duration::from_secs(2);

/// Measure prefill and decode rates, memory bandwidth and arithmetic peaks
///
/// Every rate has its share of what the same machine sustained in the same run: of its read
/// bandwidth (decode reads every weight once per step) and of its arithmetic peak (prefill
/// multiplies). Rates are medians over --runs.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder, .gguf file or Hugging Face name [default: the built-in model]
    #[arg(conflicts_with = "shape")]
    path: Option<OsString>,
    /// The same as PATH, as a flag of all commands
    #[arg(short, long, conflicts_with_all = ["path", "shape"])]
    model: Option<OsString>,
    /// Random weights of this shape instead of a model, such as qwen3-0.6b
    #[arg(long, value_name = "NAME")]
    shape: Option<String>,
    /// Storage type of --shape, or a mixture such as q4_k_m
    #[arg(long = "type", value_name = "TYPE", default_value = "bf16",
          value_parser = MatrixTypes::named)]
    types: MatrixTypes,
    #[command(flatten)]
    files: FileArgs,
    #[command(flatten)]
    plan: BenchPlan,
    #[command(flatten)]
    speculated: SpeculatedArgs,
    #[command(flatten)]
    adapters: AdapterArgs,
    #[command(flatten)]
    device: DeviceArgs,
    /// Compute threads; 0 for all cores. Several numbers with --scaling
    #[arg(long, value_delimiter = ',', default_value = "0", value_parser = threads)]
    threads: Vec<usize>,
    /// Measure with each number of threads where the time of a step goes: in every operation, the
    /// shares in which threads compute, wait for each other, and wait for one of them
    #[arg(long, conflicts_with_all = ["guesses", "synthetic_acceptance", "schema", "csv"])]
    scaling: bool,
    /// Pin each thread to a CPU of its own (Linux)
    #[arg(long)]
    pin: bool,
    /// Bind threads to NUMA nodes, each of which computes a fixed part of every product (Linux)
    #[arg(long)]
    numa: bool,
    /// Compute mode: exact (f32 activations) or fast
    #[arg(long, default_value = "fast")]
    mode: Mode,
    #[command(flatten)]
    bits: BitsArgs,
    /// Type of the KV cache [default: f32 in exact mode, bf16 in fast mode]
    #[arg(long, value_name = "TYPE")]
    kv_type: Option<KvType>,
    /// Rounding of cached rows in models that were trained with it: off or native [default: off in
    /// exact mode, native in fast mode]
    #[arg(long, value_name = "HOW")]
    cache_rounding: Option<CacheRounding>,
    /// Measure only the cost of constraining answers to the JSON schema in this file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["prompt", "depth", "batch", "guesses", "synthetic_acceptance", "csv"])]
    schema: Option<PathBuf>,
    #[command(flatten)]
    placement: PlacementArgs,
    #[command(flatten)]
    weights: WeightsArgs,
    #[command(flatten)]
    ranks: RankArgs,
    /// Measure only reads of this file past the page cache, at random places and in order, with
    /// --weights-read-threads threads
    #[arg(long, value_name = "FILE", conflicts_with_all = ["path", "model", "shape", "schema", "scaling", "csv"])]
    disk: Option<PathBuf>,
    /// Bytes of each read of --disk
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = bytes)]
    disk_read: usize,
    /// Print one JSON object
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print comma-separated values
    #[arg(long)]
    csv: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(file) = &args.disk {
        let rates = bench_disk(file, &disk_plan(args, args.disk_read))?;
        return output::report(args.json, || &rates, || rates.to_text());
    }
    let plan = &args.plan;
    let speculate = args.speculated.speculate(plan)?;
    if args.shape.is_some() && args.ranks.choice()? == RankChoice::Mpi {
        bail!(WrongUsage::new("--shape writes a model that other ranks cannot read: name a file"));
    }
    // The temporary folder lives until the end of the run.
    let scratch = args.shape.as_ref().map(|shape| synthesise(shape, args.types)).transpose()?;
    let given = args.path.as_deref().or(args.model.as_deref());
    let model = given.unwrap_or(OsStr::new(BUILTIN));
    let ranked = match &scratch {
        Some((path, _)) => RankedModel { model: path.clone().into(), ..args.ranked()? },
        None => args.ranked()?,
    };
    let ranks = ranked.join()?;
    let path = match &scratch {
        Some((path, _)) => path.clone(),
        None => ranks.in_turn(|| args.files.locate(model))?,
    };
    let name = args.shape.clone().or_else(|| model::public_name(model));
    if let Some(how) = speculate {
        let options = ranks.add_to(options(args, args.one_number_of_threads()?)?);
        let rates = args.speculated.measure(how, plan, (&path, name, &args.files), options)?;
        return output::report(args.json, || &rates, || rates.to_table());
    }
    let checkpoint = ranks.open(&path, name)?;
    if args.scaling {
        if ranks.are_several() {
            bail!(WrongUsage::new("--scaling measures one rank"));
        }
        let bar = progress::count(args.threads.len() as u64);
        let load = |threads| load(&checkpoint, args, threads, &ranks);
        let report = bench_scaling(&args.threads, plan, load, || bar.inc(1))?;
        bar.finish_and_clear();
        return output::report(args.json, || &report, || report.to_table());
    }
    let mut runner = load(&checkpoint, args, args.one_number_of_threads()?, &ranks)?;
    if let Some(schema) = &args.schema {
        let rates = bench_constrained(runner, &checkpoint, schema, plan)?;
        return output::report(args.json, || &rates, || rates.to_table());
    }
    let bar = progress::count(plan.measurements() as u64);
    bar.set_message("measuring");
    let report = bench(&mut runner, &checkpoint, plan, || bar.inc(1))?;
    bar.finish_and_clear();
    let report = match (runner.stream_stats(), largest(&checkpoint.weight_files())) {
        (Some(_), Some(file)) => {
            // Layers are read in larger pieces than experts.
            let bytes = runner.streamed_read_bytes().unwrap_or(args.disk_read);
            let plan = disk_plan(args, bytes.min(args.disk_read));
            report.with_disk(bench_disk(&file, &plan)?)
        }
        _ => report,
    };
    let text = || if args.csv { report.to_csv() } else { report.to_table() };
    output::report(args.json, || &report, text)
}

impl Args {
    /// The model as ranks load it.
    pub fn ranked(&self) -> Result<RankedModel> {
        let given = self.path.as_deref().or(self.model.as_deref());
        let options = options(self, self.threads.first().copied().unwrap_or(0))?;
        Ok(self.files.ranked(given.unwrap_or(OsStr::new(BUILTIN)), options, &self.ranks))
    }

    /// The number of threads, of which there must be one.
    fn one_number_of_threads(&self) -> Result<usize> {
        let [threads] = self.threads[..] else {
            let found = self.threads.len();
            let problem =
                format!("--threads: expected one number without --scaling, found {found}");
            bail!(WrongUsage::new(problem));
        };
        Ok(threads)
    }
}

/// How disks are measured.
fn disk_plan(args: &Args, read_bytes: usize) -> DiskPlan {
    DiskPlan { threads: args.weights.read_threads(), read_bytes, time: DISK_TIME }
}

/// The largest of some files.
fn largest(files: &[PathBuf]) -> Option<PathBuf> {
    let bytes = |file: &&PathBuf| file.metadata().map_or(0, |metadata| metadata.len());
    files.iter().max_by_key(bytes).cloned()
}

/// Writes random weights into a temporary folder, which is deleted with the returned guard.
fn synthesise(shape: &str, types: MatrixTypes) -> Result<(PathBuf, tempfile::TempDir)> {
    let config = synth::named_shape(shape)?;
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    // Only GGUF files hold block-quantised types.
    let path = match types {
        MatrixTypes::One(ty) if ty.block_len == 1 => folder.path().to_owned(),
        _ => folder.path().join("model.gguf"),
    };
    let plan = SynthPlan { config, types, seed: 0, routing_skew: 0.0 };
    synth::write(&plan, &path, &mut Task::new(progress::bytes(0)))?;
    Ok((path, folder))
}

fn load(
    checkpoint: &Checkpoint,
    args: &Args,
    threads: usize,
    ranks: &JoinedRanks,
) -> Result<Runner> {
    let options = ranks.add_to(options(args, threads)?);
    let mut runner = crate::load::generating_runner(checkpoint, &options)?;
    // Rates are those of later steps.
    while runner.prepare_weights() {}
    Ok(runner)
}

/// Options for loading a model that is measured.
fn options(args: &Args, threads: usize) -> Result<LoadOptions> {
    let longest = |values: &[usize]| values.iter().copied().max().unwrap_or(0);
    let plan = &args.plan;
    let rows = plan.most_drafts().saturating_add(1);
    // A step of an engine that drafts takes room for the most drafts.
    let generated =
        plan.generate.saturating_add(1).saturating_mul(rows).saturating_add(MAX_DRAFTED);
    let decode = longest(&plan.depth).saturating_add(generated).div_ceil(engine::BLOCK);
    // Scaling is measured with a sampled token behind the prompt.
    let prompt = longest(&plan.prompt).saturating_add(usize::from(args.scaling));
    let batch = longest(&plan.batch).max(1);
    let decode = decode.saturating_mul(engine::BLOCK).saturating_mul(batch);
    let logit_rows = batch.saturating_mul(rows);
    let options = LoadOptions {
        threads,
        pin: args.pin,
        numa: args.numa,
        mode: args.mode,
        bits: args.bits.bits,
        kv_type: args.kv_type,
        context: Some(prompt.max(decode)),
        chunk: Some(plan.chunk.max(logit_rows)),
        logit_rows,
        parallel: batch,
        rounding: args.cache_rounding,
        placement: args.placement.rules()?,
        adapters: args.adapters.sources(),
        ..args.device.options()
    };
    let mut options = args.weights.add_to(options);
    // The tokens of a measurement are not the tokens of users.
    options.expert_profiles.iter_mut().for_each(|profiles| profiles.record = false);
    Ok(options)
}
