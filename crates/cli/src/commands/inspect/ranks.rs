//! `--pipeline` and `--tensor`: what each rank of a model would hold, send and take, before there
//! are any.

use super::report::size;
use anyhow::Result;
use engine::{BLOCK, CacheBytes};
use formats::layers::{Layer, OpSpec, TensorKind, TensorSpec};
use formats::{Checkpoint, ModelConfig, ModelFiles, OpenOptions};
use kernels::kv::KvType;
use models::placement::TensorInfo;
use models::{StageCuts, ranges};
use serde::Serialize;
use serde_json::{Value as Json, json};
use std::fmt::Write;
use std::ops::Range;
use std::path::Path;
use std::str::FromStr;

/// Arguments for ranks that a model might be divided among.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct RankPlanArgs {
    /// Show what each rank would hold and send instead, with the layers divided among N stages
    #[arg(long, id = "shown_pipeline", value_name = "N", value_parser = crate::size::count)]
    #[arg(conflicts_with_all = ["shown_placement", "values"])]
    pub pipeline: Option<usize>,
    /// The same, with the tensors of each layer divided among N ranks
    #[arg(long, id = "shown_tensor", value_name = "N", value_parser = crate::size::count)]
    #[arg(conflicts_with_all = ["shown_placement", "values"])]
    pub tensor: Option<usize>,
    /// Rate and latency between ranks
    #[arg(long, value_name = "RATE,TIME", default_value = "10Gbit,50us")]
    link: Link,
    /// Bytes that a rank reads from memory in a second
    #[arg(long, value_name = "RATE", default_value = "80GB/s")]
    memory_rate: MemoryRate,
}

/// A connection between two ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Link {
    /// Bytes in a second.
    rate: f64,
    /// Seconds until a message arrives, without its bytes.
    latency: f64,
}

impl FromStr for Link {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("expected a rate and a time such as 10Gbit,50us, found {text:?}");
        let (rate, time) = text.split_once(',').ok_or_else(wrong)?;
        let bits = [("Gbit", 1e9), ("Mbit", 1e6)];
        let rate = bits.into_iter().find_map(|(unit, factor)| scaled(rate, unit, factor));
        let units = [("us", 1e-6), ("ms", 1e-3)];
        let latency = units.into_iter().find_map(|(unit, factor)| scaled(time, unit, factor));
        let (rate, latency) = rate.zip(latency).ok_or_else(wrong)?;
        Ok(Self { rate: rate / 8.0, latency })
    }
}

/// Bytes in a second.
#[derive(Clone, Copy, Debug, PartialEq)]
struct MemoryRate(f64);

impl FromStr for MemoryRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rate = scaled(text, "GB/s", 1e9);
        rate.map(Self).ok_or_else(|| format!("expected a rate such as 80GB/s, found {text:?}"))
    }
}

/// A positive number of a unit.
fn scaled(text: &str, unit: &str, factor: f64) -> Option<f64> {
    let number: f64 = text.trim().strip_suffix(unit)?.trim().parse().ok()?;
    (number.is_finite() && number > 0.0).then_some(number * factor)
}

impl RankPlanArgs {
    /// Whether ranks are asked for.
    pub fn is_asked(&self) -> bool {
        self.pipeline.is_some() || self.tensor.is_some()
    }

    /// The plan for the model at `path`, with a KV cache of `context` tokens, or of its own
    /// context.
    ///
    /// # Errors
    /// If the model cannot be read, or its layers cannot be divided so.
    pub fn plan(
        &self,
        path: &Path,
        config: &ModelConfig,
        context: Option<usize>,
    ) -> Result<RankPlan> {
        let weights = weights(path, config)?;
        let (stages, slices) = (self.pipeline.unwrap_or(1), self.tensor.unwrap_or(1));
        let cuts = StageCuts::new(config, weights.iter().map(|it| (it.name.as_str(), it.bytes)));
        let read = StageCuts::new(config, weights.iter().map(|it| (it.name.as_str(), it.read)));
        let layers = cuts.divide(stages, None)?;
        let context = context.unwrap_or(config.context);
        let model = RankedShape { config, cuts: &cuts, read: &read, context, slices };
        let stages = ranges(&layers)
            .map(|range| model.stage(range, layers.len(), (self.link, self.memory_rate)));
        let stages: Vec<StagePlan> = stages.collect();
        let seconds = stages.iter().map(|stage| stage.seconds).sum::<f64>();
        Ok(RankPlan { slices, context, stages, tokens_per_second: 1.0 / seconds })
    }
}

/// A tensor, by its canonical name.
struct WeightBytes {
    name: String,
    bytes: usize,
    /// Bytes that a step of one token reads.
    read: usize,
}

/// The weights in the files of the model, or in BF16 where there are none.
fn weights(path: &Path, config: &ModelConfig) -> Result<Vec<WeightBytes>> {
    let tied = config.hyperparameters().tied_embeddings;
    let experts = config.hyperparameters().experts.as_ref();
    let of = |name: String, kind: TensorKind, bytes: usize| {
        let read = match (kind, experts) {
            (TensorKind::Embed, _) if !tied => 0,
            (TensorKind::RoutedExpert, Some(experts)) => bytes / experts.count * experts.chosen,
            _ => bytes,
        };
        WeightBytes { name, bytes, read }
    };
    if ModelFiles::without_weights(path).is_some() {
        let described = described(config).into_iter();
        let bytes = |shape: &[usize]| 2 * shape.iter().product::<usize>();
        let described = described.map(|it| of(it.name, it.kind, bytes(&it.shape)));
        return Ok(described.collect());
    }
    let all = TensorInfo::all(&Checkpoint::open(path, &OpenOptions::default())?);
    Ok(all.into_iter().map(|it| of(it.name, it.kind, it.bytes)).collect())
}

/// The tensors that a model with this configuration has, under their canonical names.
fn described(config: &ModelConfig) -> Vec<TensorSpec> {
    let (vocab, hidden) = (config.vocab, config.hidden);
    let mut all = config.embedding.tensors(vocab, hidden);
    all.extend(config.head.tensors(vocab, hidden));
    for (number, layer) in config.layers.iter().enumerate() {
        let named = |tensor: TensorSpec| {
            let name = format!("blk.{number}.{}", tensor.name);
            TensorSpec { name, ..tensor }
        };
        all.extend(layer.loaded(hidden).into_iter().map(named));
    }
    all
}

/// A model that is divided.
struct RankedShape<'a> {
    config: &'a ModelConfig,
    cuts: &'a StageCuts,
    /// The same, of bytes that a step of one token reads.
    read: &'a StageCuts,
    context: usize,
    slices: usize,
}

/// What a rank of a stage has; its slices are about equal.
#[derive(Clone, Debug, Serialize)]
struct StagePlan {
    first_layer: usize,
    layers: usize,
    weights_bytes: usize,
    kv_bytes: usize,
    state_bytes: usize,
    /// Bytes that it sends for each token of a sequence.
    sent_bytes_per_token: usize,
    /// Seconds of a step of one token.
    seconds: f64,
}

/// What all ranks have.
#[derive(Clone, Debug)]
pub(super) struct RankPlan {
    slices: usize,
    context: usize,
    stages: Vec<StagePlan>,
    /// Of one sequence.
    tokens_per_second: f64,
}

impl RankedShape<'_> {
    /// Whether each slice has the cached rows of its own heads, which rows for all heads are not.
    fn divides_rows(&self) -> bool {
        let is_whole = |op: &OpSpec| matches!(op, OpSpec::Latent(_) | OpSpec::Compressed(_));
        !self.config.ops().any(is_whole)
    }

    /// What a rank of the stage with these layers has.
    fn stage(
        &self,
        layers: Range<usize>,
        stages: usize,
        (link, memory): (Link, MemoryRate),
    ) -> StagePlan {
        let (config, others) = (self.config, self.slices - 1);
        let native = models::layer_caches(config, true);
        let cache = CacheBytes::of(&native[layers.clone()], BLOCK, KvType::Bf16);
        let whole = cache.of_tokens(self.context).unwrap_or(usize::MAX);
        let row = 4 * config.hidden;
        let sums: usize = config.layers[layers.clone()].iter().map(sums).sum();
        // The last stage sends to the first.
        let handed = if stages > 1 { row * config.head.streams() } else { 0 };
        let summed = sums * row * others;
        let read = self.read.bytes(layers.clone()) / self.slices;
        let messages = if others > 0 { sums } else { 0 } + usize::from(stages > 1);
        StagePlan {
            first_layer: layers.start,
            layers: layers.len(),
            weights_bytes: self.cuts.bytes(layers) / self.slices,
            kv_bytes: whole / if self.divides_rows() { self.slices } else { 1 },
            state_bytes: cache.slot / self.slices,
            sent_bytes_per_token: handed + summed,
            seconds: read as f64 / memory.0
                + messages as f64 * link.latency
                + (handed + summed) as f64 / link.rate,
        }
    }
}

/// Sums over slices of a layer: one after each operation that all of them share.
fn sums(layer: &Layer) -> usize {
    let of = |op: &OpSpec| match op {
        OpSpec::Parallel(ops) => ops.len(),
        OpSpec::Joint(_) => 2,
        OpSpec::LayerInput(_) | OpSpec::Ngrams(_) => 0,
        _ => 1,
    };
    layer.sublayers.iter().map(|sublayer| of(&sublayer.op)).sum()
}

impl RankPlan {
    /// The plan as JSON.
    pub fn to_json(&self) -> Json {
        json!({
            "tensor": self.slices,
            "pipeline": self.stages.len(),
            "context": self.context,
            "ranks": self.ranks().map(|(rank, stage)| {
                let mut json = json!(stage);
                json["rank"] = json!(rank);
                json
            }).collect::<Json>(),
            "tokens_per_second": self.tokens_per_second,
        })
    }

    /// The plan as a table.
    pub fn to_text(&self) -> String {
        let mut out = format!(
            "{} stages of {} slices; KV cache of {} tokens in BF16\n\n\
             rank  layers      weights    KV cache      states  sent per token     ms a step\n",
            self.stages.len(),
            self.slices,
            self.context
        );
        for (rank, stage) in self.ranks() {
            let layers = format!("{}-{}", stage.first_layer, stage.first_layer + stage.layers - 1);
            let _ = writeln!(
                out,
                "{rank:<4}  {layers:<8} {:>10}  {:>10}  {:>10}  {:>14}  {:>12.2}",
                size(stage.weights_bytes),
                size(stage.kv_bytes),
                size(stage.state_bytes),
                size(stage.sent_bytes_per_token),
                1000.0 * stage.seconds,
            );
        }
        let _ = writeln!(
            out,
            "\none sequence: {:.1} tokens/s, by the rates of memory and link alone",
            self.tokens_per_second
        );
        out
    }

    /// The ranks, each with its stage.
    fn ranks(&self) -> impl Iterator<Item = (usize, &StagePlan)> {
        let slices = self.slices;
        self.stages.iter().flat_map(move |stage| std::iter::repeat_n(stage, slices)).enumerate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_units() {
        let link = "10Gbit,50us".parse::<Link>().unwrap();
        assert!(link.rate == 1.25e9 && (link.latency - 50e-6).abs() < 1e-12, "{link:?}");
        assert_eq!("100 Mbit, 1ms".parse::<Link>().unwrap().rate, 1.25e7);
        assert_eq!("80GB/s".parse::<MemoryRate>().unwrap(), MemoryRate(80e9));
        for wrong in ["", "10Gbit", "10,50us", "-1Gbit,50us", "1Gbit,0us", "nanGbit,1us"] {
            assert!(wrong.parse::<Link>().unwrap_err().contains("10Gbit,50us"), "{wrong}");
        }
        assert!("80".parse::<MemoryRate>().unwrap_err().contains("80GB/s"));
    }
}
