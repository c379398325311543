//! Arguments that several commands share.

use crate::adapter_args::AdapterArgs;
use crate::device::{BitsArgs, DeviceArgs};
use crate::durations::seconds;
use crate::rank_args::RankArgs;
use crate::ranked_model::RankedModel;
use crate::size::{bytes, bytes_or_none, count, threads};
use crate::weights::WeightsArgs;
use anyhow::{Context, Result, bail};
use api::SamplingOptions;
use backend::Mode;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Command};
use engine::trace::TraceFiles;
use engine::{
    Bounds, CacheRounding, EngineOptions, KvMemory, LoadOptions, SamplingParams, Speculate,
};
use formats::Pooling;
use kernels::kv::KvType;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;
use text::GgufOptions;

/// The model argument.
#[derive(Clone, Debug, Args)]
pub(crate) struct ModelArgs {
    /// Folder, .gguf file, or owner/name on the hub [default: the built-in model]
    #[arg(short, long, value_name = "MODEL")]
    model: Option<OsString>,
    #[command(flatten)]
    pub files: FileArgs,
}

/// Arguments for finding and reading the files of a model.
#[derive(Clone, Debug, Args)]
pub(crate) struct FileArgs {
    /// Address of the hub, instead of HF_ENDPOINT
    #[cfg(feature = "hub")]
    #[arg(long, value_name = "URL", help_heading = "Loading")]
    hub_endpoint: Option<String>,
    /// Pre-tokenizer for GGUF vocabularies with an unknown `pre` type, such as default or llama-bpe
    #[arg(long, value_name = "TYPE", help_heading = "Loading")]
    pre_fallback: Option<String>,
}

/// Arguments for loading a model.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Loading")]
pub(crate) struct LoadArgs {
    #[command(flatten)]
    device: DeviceArgs,
    /// Compute threads; 0 for all cores
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = threads)]
    threads: usize,
    /// Pin each thread to a CPU of its own (Linux)
    #[arg(long)]
    pin: bool,
    /// Bind threads to NUMA nodes, each of which computes a fixed part of every product (Linux)
    #[arg(long)]
    numa: bool,
    /// Context length: tokens of prompt and answer together [default: the model's, as far as memory
    /// allows]
    #[arg(long, value_name = "N", value_parser = count)]
    ctx: Option<usize>,
    /// Compute mode: exact (f32 activations) or fast (activations rounded to the layout's type)
    #[arg(long, value_name = "MODE", default_value = "fast")]
    mode: Mode,
    #[command(flatten)]
    bits: BitsArgs,
    /// Type of the KV cache: f32, bf16, f16 or q8_0, of DeepSeek V4 also fp8 [default: f32 in exact
    /// mode, bf16 in fast mode]
    #[arg(long, value_name = "TYPE")]
    kv_type: Option<KvType>,
    /// Rounding of cached rows in models that were trained with it, DeepSeek V4: off or native
    /// [default: off in exact mode, native in fast mode]
    #[arg(long, value_name = "HOW")]
    cache_rounding: Option<CacheRounding>,
    /// Memory of the KV cache, such as 4GiB [default: enough for one sequence, or half of the free
    /// memory where many are served]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    kv_memory: Option<usize>,
    /// Positions per KV block: 16, 32, 64, 128, 256 or 512
    #[arg(long, value_name = "N", default_value_t = engine::BLOCK, value_parser = engine::parse_block)]
    kv_block: usize,
    /// Prefill chunk size: maximum prompt tokens per step [default: 512, or 4096 where weights are
    /// read from disk]
    #[arg(long, value_name = "N", value_parser = count)]
    chunk: Option<usize>,
    /// Check for NaN and infinite values after every layer, and name where they arise
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    adapters: AdapterArgs,
    #[command(flatten)]
    weights: WeightsArgs,
}

/// Arguments for the states that are kept for later requests.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Loading")]
pub(crate) struct SnapshotArgs {
    /// Memory of the states of models that keep some, such as 2GiB: of running requests first, then
    /// of snapshots of prefixes [default: two states per running request, at most a quarter of the
    /// free memory]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    state_memory: Option<usize>,
    /// Prompt tokens between snapshots of states, besides those where messages end; 0 for none
    #[arg(long, value_name = "N", default_value_t = engine::STATE_EVERY)]
    state_every: usize,
}

/// The argument for the vectors of texts.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Loading")]
pub(crate) struct PoolingArgs {
    /// How the states of a text's tokens become one vector where a request does not say: mean, cls,
    /// last, max, mean_sqrt_len_tokens or weightedmean [default: as the checkpoint says, else
    /// the mean of encoders and the last token's of decoders]
    #[arg(long, value_name = "HOW")]
    pub pooling: Option<Pooling>,
}

/// The argument for drafting tokens.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct SpeculateArgs {
    /// Speculative decoding: auto or suffix, with :N for up to N tokens per step, to draft what
    /// followed a similar text wherever that is faster, auto also with the model's layers of
    /// multi-token prediction if all weights fit in memory; mtp[:N] with these alone, model[:N]
    /// with --draft-model; ngram:N to draft what followed the last tokens before, always; or off
    #[arg(long, value_name = "HOW", default_value_t, help_heading = "Scheduling")]
    pub speculate: Speculate,
}

/// Arguments for computing many requests together.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Scheduling")]
pub(crate) struct EngineArgs {
    /// Maximum number of running requests
    #[arg(long, value_name = "N", default_value_t = EngineOptions::default().running)]
    #[arg(value_parser = count)]
    parallel: usize,
    /// Maximum number of waiting requests; more are rejected
    #[arg(long, value_name = "N", default_value_t = EngineOptions::default().queue)]
    queue: usize,
    /// Target inter-token latency in milliseconds, which bounds the prefill of other requests per
    /// step
    #[arg(long, value_name = "MS", default_value_t = 100)]
    itl_target_ms: u64,
    #[command(flatten)]
    speculate: SpeculateArgs,
    /// Memory of earlier prompts and answers from which tokens are drafted, such as 64MiB; 0 for
    /// none
    #[arg(long, value_name = "SIZE", value_parser = bytes_or_none, default_value = "64MiB")]
    draft_memory: usize,
    /// Seconds after which an unfinished request is aborted [default: none]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    request_timeout: Option<Duration>,
    /// Write a trace of each request into this folder, for `gannet replay`
    #[arg(long, value_name = "FOLDER")]
    trace_dir: Option<PathBuf>,
}

impl EngineArgs {
    /// The trace writer, if `--trace-dir` is given.
    pub fn traces(&self) -> Result<Option<TraceFiles>> {
        let Some(folder) = &self.trace_dir else { return Ok(None) };
        let files = TraceFiles::create(folder).map(Some);
        files.with_context(|| format!("cannot write traces into {}", folder.display()))
    }

    /// These arguments as options of the engine.
    pub fn options(&self, traces: Option<&TraceFiles>) -> EngineOptions {
        EngineOptions {
            queue: self.queue,
            running: self.parallel,
            itl_target: Duration::from_millis(self.itl_target_ms),
            speculate: self.speculate.speculate,
            draft_memory: self.draft_memory,
            timeout: self.request_timeout,
            traces: traces.map(|files| files.sink.clone()),
            cache_ahead: 512 << 20,
            ..EngineOptions::default()
        }
    }
}

/// Sampling parameters. Where one is left out, the model's own default applies, from its
/// generation_config.json, and else the one that the help states.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingArgs {
    /// Maximum number of generated tokens; -1 for as many as the context holds [default: the
    /// model's, else -1]
    #[arg(short = 'n', long, value_name = "N", visible_aliases = ["predict", "n-predict"])]
    #[arg(value_parser = most_tokens)]
    max_tokens: Option<i64>,
    /// Minimum number of generated tokens [default: 0]
    #[arg(long, value_name = "N")]
    min_tokens: Option<usize>,
    /// Temperature; 0 is greedy [default: the model's, else 1]
    #[arg(long, value_name = "T", alias = "temperature", value_parser = within("temperature"))]
    temp: Option<f32>,
    /// Keep the K most likely tokens; 0 for all [default: the model's, else 0]
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,
    /// Keep the most likely tokens whose probabilities add up to P [default: the model's, else 1]
    #[arg(long, value_name = "P", value_parser = within("top_p"))]
    top_p: Option<f32>,
    /// Drop tokens less likely than P times the most likely one [default: the model's, else 0]
    #[arg(long, value_name = "P", value_parser = within("min_p"))]
    min_p: Option<f32>,
    /// Keep the locally typical tokens whose probabilities add up to P [default: the model's,
    /// else 1]
    #[arg(long, value_name = "P", alias = "typical", value_parser = within("typical_p"))]
    typical_p: Option<f32>,
    /// Repetition penalty of tokens seen before; 1 is off [default: the model's, else 1]
    #[arg(long, value_name = "R", value_parser = within("repeat_penalty"))]
    repeat_penalty: Option<f32>,
    /// Subtract R once from the logits of generated tokens [default: 0]
    #[arg(long, value_name = "R", value_parser = within("presence_penalty"))]
    presence_penalty: Option<f32>,
    /// Subtract R from the logits of generated tokens for each time they occur [default: 0]
    #[arg(long, value_name = "R", value_parser = within("frequency_penalty"))]
    frequency_penalty: Option<f32>,
    /// Tokens that the three penalties look back [default: all]
    #[arg(long, value_name = "N", alias = "repeat-last-n")]
    penalty_window: Option<usize>,
    /// Add BIAS to the logit of a token; may be repeated
    #[arg(long, value_name = "ID=BIAS", value_parser = logit_bias, allow_hyphen_values = true)]
    logit_bias: Vec<(u32, f32)>,
    /// Random seed: the same seed gives the same text; -1 draws one [default: -1]
    #[arg(long, value_name = "S", value_parser = seed)]
    seed: Option<i128>,
    /// Stop before this text; may be repeated
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    stop: Vec<String>,
    /// Stop at this token; may be repeated
    #[arg(long, value_name = "ID")]
    stop_id: Vec<u32>,
    /// Do not stop at the model's own end tokens
    #[arg(long)]
    ignore_eos: bool,
}

/// Sampling parameters of a command whose `--max-tokens` is that of several answers together.
#[cfg(feature = "agent")]
#[derive(Clone, Debug)]
pub(crate) struct AnswerSamplingArgs(SamplingArgs);

#[cfg(feature = "agent")]
impl std::ops::Deref for AnswerSamplingArgs {
    type Target = SamplingArgs;

    fn deref(&self) -> &SamplingArgs {
        &self.0
    }
}

#[cfg(feature = "agent")]
impl clap::FromArgMatches for AnswerSamplingArgs {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
        SamplingArgs::from_arg_matches(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

#[cfg(feature = "agent")]
impl Args for AnswerSamplingArgs {
    fn augment_args(command: Command) -> Command {
        SamplingArgs::augment_args(command).mut_arg("max_tokens", |arg| {
            arg.long("answer-tokens").short(None).visible_alias(None).help(
                "Maximum number of generated tokens of one answer; -1 for as many as the context \
                 holds (setting: max-tokens) [default: the model's, else -1]",
            )
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl ModelArgs {
    /// The model as it was given.
    pub fn name(&self) -> &OsStr {
        self.model.as_deref().unwrap_or(OsStr::new(crate::model::BUILTIN))
    }

    /// Whether a model was given.
    pub fn is_named(&self) -> bool {
        self.model.is_some()
    }

    /// Takes this model.
    pub fn set(&mut self, model: impl Into<OsString>) {
        self.model = Some(model.into());
    }

    /// The folder of a model on the hub whose name a setting gives: see
    /// [`crate::model::hub_folder`].
    ///
    /// # Errors
    ///
    /// If there is no such model.
    #[cfg(feature = "agent")]
    pub fn hub_folder(&self) -> Result<Option<PathBuf>> {
        self.files.hub_folder(self.name())
    }

    /// Finds the folder or file of the model, downloading it first where needed.
    pub fn locate(&self) -> Result<PathBuf> {
        self.files.locate(self.name())
    }

    /// The model as ranks load it.
    pub fn ranked(&self, options: LoadOptions, ranks: &RankArgs) -> RankedModel {
        self.files.ranked(self.name(), options, ranks)
    }
}

impl FileArgs {
    /// Finds the folder or file of `model`, downloading it first where needed.
    pub fn locate(&self, model: impl AsRef<OsStr>) -> Result<PathBuf> {
        crate::model::locate(model, self.endpoint())
    }

    /// The folder of a model on the hub that a setting names: see [`crate::model::hub_folder`].
    ///
    /// # Errors
    ///
    /// If there is no such model.
    #[cfg(feature = "agent")]
    pub fn hub_folder(&self, model: &OsStr) -> Result<Option<PathBuf>> {
        crate::model::hub_folder(model, self.endpoint())
    }

    /// The address of the hub, if it was given.
    fn endpoint(&self) -> Option<&str> {
        #[cfg(feature = "hub")]
        let endpoint = self.hub_endpoint.as_deref();
        #[cfg(not(feature = "hub"))]
        let endpoint = None;
        endpoint
    }

    /// A model as ranks load it.
    pub fn ranked(&self, model: &OsStr, options: LoadOptions, ranks: &RankArgs) -> RankedModel {
        let endpoint = self.endpoint().map(str::to_owned);
        let (model, ranks) = (model.to_owned(), ranks.clone());
        RankedModel { model, endpoint, options, ranks, kv_dir: None }
    }

    /// How GGUF vocabularies are read.
    pub fn gguf_options(&self) -> GgufOptions {
        GgufOptions { pre_fallback: self.pre_fallback.clone() }
    }
}

impl LoadArgs {
    /// Takes this context length in tokens.
    pub fn set_context(&mut self, tokens: usize) {
        self.ctx = Some(tokens);
    }

    /// The compute mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether the memory of the cache was given.
    pub fn has_kv_memory(&self) -> bool {
        self.kv_memory.is_some()
    }

    /// The paths of the adapters.
    pub fn adapters(&self) -> impl Iterator<Item = PathBuf> {
        self.adapters.sources().into_iter().map(|source| source.path)
    }

    /// The type of the cache, if it was given.
    pub fn kv_type(&self) -> Option<KvType> {
        self.kv_type
    }

    /// These arguments as options of the engine; `kv_memory` applies where none is given.
    pub fn options(&self, kv_memory: KvMemory) -> LoadOptions {
        self.weights.add_to(LoadOptions {
            threads: self.threads,
            pin: self.pin,
            numa: self.numa,
            mode: self.mode,
            bits: self.bits.bits,
            kv_type: self.kv_type,
            rounding: self.cache_rounding,
            context: self.ctx,
            kv_memory: self.kv_memory.map_or(kv_memory, KvMemory::Bytes),
            block: self.kv_block,
            chunk: self.chunk,
            check: self.check,
            adapters: self.adapters.sources(),
            ..self.device.options()
        })
    }
}

impl SnapshotArgs {
    /// `options` with these arguments.
    pub fn add_to(self, options: LoadOptions) -> LoadOptions {
        let Self { state_memory, state_every } = self;
        LoadOptions { state_memory, state_every, ..options }
    }
}

impl SamplingArgs {
    /// An error if a token to stop at is not one of the vocabulary of `size` tokens.
    pub fn check(&self, size: usize) -> Result<()> {
        match self.stop_id.iter().find(|&&id| id as usize >= size) {
            Some(id) => bail!("--stop-id: expected a token below {size}, found {id}"),
            None => Ok(()),
        }
    }

    /// These arguments as options of the service.
    pub fn options(&self) -> SamplingOptions {
        SamplingOptions {
            temperature: self.temp,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            typical_p: self.typical_p,
            repeat_penalty: self.repeat_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            penalty_window: self.penalty_window,
            logit_bias: self.logit_bias.clone(),
            seed: self.seed.and_then(|seed| seed.try_into().ok()),
            random_seed: self.seed == Some(-1),
            max_tokens: self.max_tokens.and_then(|most| most.try_into().ok()),
            min_tokens: self.min_tokens,
            stop: self.stop.clone(),
            include_stop: false,
            stop_ids: self.stop_id.clone(),
            ignore_eos: self.ignore_eos,
            logprobs: None,
            sampled_logprobs: false,
            prompt_logprobs: None,
            prompt_logprobs_from: None,
        }
    }
}

/// A parser of a sampling parameter, in the range that it has.
fn within(name: &str) -> impl Fn(&str) -> Result<f32> + Clone + Send + Sync + 'static {
    let bounds = SamplingParams::bounds(name);
    move |text| {
        let number: f32 = text.parse().context("expected a number")?;
        match bounds {
            Some(Bounds { low, high, .. }) if !(low as f32..=high as f32).contains(&number) => {
                bail!("expected a number from {low} to {high}")
            }
            _ => Ok(number),
        }
    }
}

/// A number of tokens of which there is at least one, or -1.
pub(crate) fn most_tokens(text: &str) -> Result<i64> {
    let most = text.parse().ok().filter(|most| *most == -1 || *most > 0);
    most.context("expected a number from 1 on, or -1")
}

/// The command whose options take negative numbers, so that the parser of each says what it takes
/// instead.
pub(crate) fn with_negative_numbers(command: Command) -> Command {
    let names: Vec<String> =
        command.get_subcommands().map(|inner| inner.get_name().to_owned()).collect();
    let command = command.mut_args(|arg| match arg.get_action().takes_values() {
        true => arg.allow_negative_numbers(true),
        false => arg,
    });
    names
        .into_iter()
        .fold(command, |command, name| command.mut_subcommand(name, with_negative_numbers))
}

/// A seed of 64 bits, or -1.
fn seed(text: &str) -> Result<i128> {
    let seed = text.parse().ok().filter(|seed| (-1..=i128::from(u64::MAX)).contains(seed));
    seed.with_context(|| format!("expected an integer from 0 to {}, or -1", u64::MAX))
}

/// `ID=BIAS`.
fn logit_bias(text: &str) -> Result<(u32, f32)> {
    let (id, bias) = text.split_once('=').context("expected ID=BIAS")?;
    let id = id.trim().parse().context("expected a token id before the =")?;
    Ok((id, bias.trim().parse().context("expected a number after the =")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_have_the_ranges_of_requests() {
        let temperature = within("temperature");
        assert_eq!(temperature("0").unwrap(), 0.0);
        assert_eq!(within("presence_penalty")("-2").unwrap(), -2.0);
        for wrong in ["inf", "nan", "-1", "100.5", "x"] {
            assert!(temperature(wrong).is_err(), "{wrong}");
        }
        assert!(within("top_p")("2").is_err() && within("repeat_penalty")("0").is_err());
        assert_eq!([most_tokens("-1").unwrap(), most_tokens("7").unwrap()], [-1, 7]);
        assert!(most_tokens("0").is_err() && most_tokens("-2").is_err());
    }

    #[test]
    fn seeds_have_64_bits_or_are_drawn() {
        assert_eq!(seed("-1").unwrap(), -1);
        assert_eq!(seed("18446744073709551615").unwrap(), i128::from(u64::MAX));
        for text in ["-2", "18446744073709551616", "x", "1.5", ""] {
            assert!(seed(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_logit_bias_is_an_id_and_a_number() {
        assert_eq!(logit_bias("12=-3.5").unwrap(), (12, -3.5));
        assert!(logit_bias("12").is_err());
        assert!(logit_bias("-1=2").is_err());
        assert!(logit_bias("1=x").is_err());
    }
}
