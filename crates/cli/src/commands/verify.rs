//! `gannet verify`: compares a model with reference outputs.

mod numbers;
mod reference;
mod report;
mod text_cases;
mod texts;

use crate::adapter_args::{self, AdapterArgs};
use crate::device::{BitsArgs, DeviceArgs};
use crate::exit::SilentExit;
use crate::placement::PlacementArgs;
use crate::rank_args::RankArgs;
use crate::ranked_model::{JoinedRanks, RankedModel};
use crate::size::threads;
use crate::{load, output};
use anyhow::{Context, Result};
use backend::Mode;
use engine::{CacheRounding, LoadOptions, SingleSequence};
use formats::ModelFiles;
use kernels::kv::KvType;
use reference::Reference;
use report::VerifyReport;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Check a model against reference outputs
///
/// Computes every prompt of the reference file and compares last-position logits, the five best
/// tokens of every position, greedy continuations and mean NLL; of embedding models the vector of
/// every text, of rerankers the score of every pair; and the tokenizer and chat cases where the
/// file has them. Checks for which the file decides nothing are not comparable, and counted.
/// Exits with 0 only if anything was compared and all checks pass. `--make-script` prints a
/// Python program that writes such a file with transformers.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder, .gguf file or Hugging Face name
    #[arg(required_unless_present = "make_script")]
    model: Option<OsString>,
    /// Reference outputs, written by the program of --make-script [default: reference.json of the
    /// adapter, or of the model, where there is one]
    #[arg(long, value_name = "FILE")]
    reference: Option<PathBuf>,
    /// Compute mode: exact (f32 activations) or fast
    #[arg(long, default_value = "exact")]
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
    #[command(flatten)]
    adapters: AdapterArgs,
    /// Head that drafts tokens for the model (EAGLE-3, an assistant of Gemma 4): folder, file or
    /// Hugging Face name; what it drafts is compared with its reference.json
    #[arg(long, value_name = "HEAD")]
    draft_model: Option<OsString>,
    #[command(flatten)]
    device: DeviceArgs,
    /// Compute threads; 0 for all cores
    #[arg(long, default_value_t = 0, value_parser = threads)]
    threads: usize,
    /// Prefill chunk size: maximum prompt tokens per step
    #[arg(long, default_value_t = 512)]
    chunk: usize,
    #[command(flatten)]
    placement: PlacementArgs,
    /// Address of the hub, instead of HF_ENDPOINT
    #[arg(long, value_name = "URL")]
    hub_endpoint: Option<String>,
    #[command(flatten)]
    ranks: RankArgs,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Print the Python program that writes a reference file, and exit
    #[arg(long)]
    make_script: bool,
}

/// The program `--make-script` prints.
const SCRIPT: &str = include_str!("verify/make_reference.py");

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.make_script {
        return output::text(SCRIPT);
    }
    let model = args.model.as_ref().context("expected a model")?;
    let endpoint = args.hub_endpoint.as_deref();
    let head = args.draft_model.as_ref().map(|head| crate::model::locate(head, endpoint));
    let head = head.transpose()?;
    let of_head = || adapter_args::reference_of(head.as_deref()?);
    let given = args.reference.clone().or_else(|| args.adapters.reference()).or_else(of_head);
    // Read before a model is downloaded, so that an error shows at once.
    let given = given.as_deref().map(Reference::open).transpose()?;
    let ranks = args.ranked()?.join()?;
    let path = ranks.in_turn(|| crate::model::locate(model, endpoint))?;
    let reference = match given {
        Some(reference) => reference,
        None => Reference::open(&args.beside(&path).context("expected --reference")?)?,
    };
    let mut report = VerifyReport::default();
    check_numbers(args, (&path, head.as_deref(), &ranks), &reference, &mut report)?;
    if reference.has_text_cases() {
        text_cases::check(&path, &reference, &mut report)?;
    }
    output::report(args.json, || report.to_json(), || report.to_table())?;
    if report.holds() { Ok(()) } else { Err(SilentExit(1).into()) }
}

impl Args {
    /// The model as ranks load it.
    pub fn ranked(&self) -> Result<RankedModel> {
        let model = self.model.clone().context("expected a model")?;
        let (endpoint, ranks) = (self.hub_endpoint.clone(), self.ranks.clone());
        Ok(RankedModel { model, endpoint, options: self.options()?, ranks, kv_dir: None })
    }

    /// Options for loading the model.
    fn options(&self) -> Result<LoadOptions> {
        Ok(LoadOptions {
            threads: self.threads,
            mode: self.mode,
            bits: self.bits.bits,
            chunk: Some(self.chunk),
            logit_rows: 32,
            parallel: 1,
            check: true,
            kv_type: self.kv_type,
            rounding: self.cache_rounding,
            placement: self.placement.rules()?,
            adapters: self.adapters.sources(),
            ..self.device.options()
        })
    }

    /// The reference file of the model at `path`, which says nothing of adapters.
    fn beside(&self, path: &Path) -> Option<PathBuf> {
        adapter_args::reference_of(path).filter(|_| self.adapters.sources().is_empty())
    }
}

fn check_numbers(
    args: &Args,
    (path, head, ranks): (&Path, Option<&Path>, &JoinedRanks),
    reference: &Reference,
    report: &mut VerifyReport,
) -> Result<()> {
    let mut checkpoint = ranks.open(path, None)?;
    let has_drafts = reference.prompts.iter().any(|prompt| prompt.draft.is_some());
    if let Some(head) = head {
        checkpoint = checkpoint.with_head(&ModelFiles::open(head)?)?;
    } else if has_drafts && checkpoint.mtp_layers() > 0 {
        checkpoint = checkpoint.with_mtp()?;
    }
    let prompts = reference.prompts.iter().map(|p| p.input_ids.len() + p.greedy_ids.len());
    let texts = reference.texts.iter().map(|text| text.input_ids.len());
    let pairs = reference.pairs.iter().map(|pair| pair.input_ids.len());
    let longest = prompts.chain(texts).chain(pairs).max();
    let context = Some(longest.unwrap_or(1).max(1));
    let options = LoadOptions { context, ..ranks.add_to(args.options()?) };
    let mut runner = load::runner(&checkpoint, &options)?;
    let (vocab, bounds) = (runner.info().vocab_size, reference.bounds(args.mode));
    if !reference.prompts.is_empty() {
        let generates = runner.check_generates();
        generates.context("cannot check the prompts of the reference")?;
    }
    for (index, prompt) in reference.prompts.iter().enumerate() {
        prompt.check(index, vocab)?;
        let mut session = SingleSequence::new(&mut runner);
        session.expect(prompt.input_ids.len() + prompt.greedy_ids.len());
        numbers::check(&mut session, args.chunk, index, prompt, &bounds, report)?;
    }
    if !reference.texts.is_empty() || !reference.pairs.is_empty() {
        texts::check(runner, args.mode, reference, report)?;
    }
    Ok(())
}
