//! The cost of a grammar: answers to the same prompt with and without a constraint, alternating.

use super::measure::BenchPlan;
use super::spread::MedianRange;
use anyhow::{Context, Result, bail};
use api::{ModelCard, Prompt, SamplingOptions, Service, ServiceParts, TextEvent, TextRequest};
use engine::{EngineOptions, Runner};
use formats::{Checkpoint, GenerationDefaults};
use serde::Serialize;
use std::path::Path;
use std::time::Instant;
use text::GrammarSource;
use text::{GgufOptions, TextAssets};

/// Most bytes of a schema.
const MAX_SCHEMA_BYTES: u64 = 32 << 20;
/// Tokens of the prompt.
const PROMPT: u32 = 16;

/// Tokens per second with and without a grammar.
#[derive(Debug, Serialize)]
pub struct ConstraintRates {
    /// Tokens of the vocabulary.
    vocabulary: usize,
    /// Milliseconds to prepare the vocabulary, once, and to compile the schema, for each request.
    prepare_ms: f64,
    compile_ms: f64,
    /// Tokens of all constrained answers.
    constrained_tokens: usize,
    plain: MedianRange,
    constrained: MedianRange,
    /// The share that the grammar adds to the time per token, from the medians.
    overhead: f64,
}

/// Measures answers, as many of each kind as `plan` has runs, alternating.
///
/// # Errors
///
/// A schema that cannot be read or compiled, and errors of the engine.
pub fn bench_constrained(
    runner: Runner,
    checkpoint: &Checkpoint,
    schema: &Path,
    plan: &BenchPlan,
) -> Result<ConstraintRates> {
    let (generate, runs) = (plan.generate, plan.runs);
    let schema = formats::read_text(schema, MAX_SCHEMA_BYTES)?;
    let schema = serde_json::from_str(&schema).context("--schema: expected JSON")?;
    let grammar = GrammarSource::JsonSchema(schema);
    let (vocabulary, prepared) = (runner.info().vocab_size, Instant::now());
    let service = service(runner, checkpoint)?;
    service.prepare_text(&request(Some(&grammar), generate, 0))?;
    let prepare_ms = prepared.elapsed().as_secs_f64() * 1e3;
    let compiled = Instant::now();
    service.prepare_text(&request(Some(&grammar), generate, 0))?;
    let compile_ms = compiled.elapsed().as_secs_f64() * 1e3;
    answer(&service, &request(None, generate, 0))?; // warms up
    let (mut plain, mut constrained, mut constrained_tokens) = (Vec::new(), Vec::new(), 0);
    for run in 0..runs {
        let seed = run as u64;
        plain.push(answer(&service, &request(None, generate, seed))?.1);
        let (tokens, rate) = answer(&service, &request(Some(&grammar), generate, seed))?;
        constrained_tokens += tokens;
        constrained.push(rate);
    }
    let (plain, constrained) = (MedianRange::of(&plain), MedianRange::of(&constrained));
    let overhead = plain.median / constrained.median - 1.0;
    Ok(ConstraintRates {
        vocabulary,
        prepare_ms,
        compile_ms,
        constrained_tokens,
        plain,
        constrained,
        overhead,
    })
}

fn service(runner: Runner, checkpoint: &Checkpoint) -> Result<Service> {
    let card = ModelCard::of(checkpoint, &runner.settings().checkpoint);
    let (engine, _) = engine::start(runner, EngineOptions { running: 1, ..Default::default() });
    let assets = TextAssets::from_checkpoint(checkpoint, &GgufOptions::default())?;
    let defaults = GenerationDefaults::default();
    Ok(Service::new(ServiceParts {
        engine,
        assets,
        template: None,
        defaults,
        stop_ids: vec![],
        tool_format: None,
        card,
        parallel: 1,
    }))
}

fn request(grammar: Option<&GrammarSource>, generate: usize, seed: u64) -> TextRequest {
    TextRequest {
        prompt: Prompt::Ids((0..PROMPT).collect()),
        add_special: false,
        sampling: SamplingOptions {
            seed: Some(seed),
            max_tokens: Some(generate),
            min_tokens: Some(generate),
            ..SamplingOptions::default()
        },
        grammar: grammar.cloned(),
    }
}

/// The tokens of an answer, and its decode rate in tokens per second.
fn answer(service: &Service, request: &TextRequest) -> Result<(usize, f64)> {
    let mut stream = service.complete(request)?;
    while let Some(event) = stream.next_blocking() {
        match event {
            TextEvent::Done(done) => {
                let tokens = done.usage.completion_tokens;
                if tokens < 2 {
                    bail!("--schema: expected one with long answers, found {tokens} tokens");
                }
                return Ok((tokens, (tokens - 1) as f64 / done.timings.decode_s));
            }
            TextEvent::Failed(error) => return Err(error.into()),
            _ => {}
        }
    }
    bail!("the engine stopped without an answer")
}

impl ConstraintRates {
    /// The rates as a table.
    pub fn to_table(&self) -> String {
        let Self { vocabulary, prepare_ms, compile_ms, constrained_tokens, .. } = self;
        let line = |name: &str, rate: &MedianRange| {
            format!("{name:12}{:>10.2}{:>10.2}{:>10.2}\n", rate.median, rate.min, rate.max)
        };
        format!(
            "vocabulary of {vocabulary} tokens: {prepare_ms:.1} ms once, {compile_ms:.2} ms for the \
             schema, {constrained_tokens} constrained tokens\n\n\
             decode           tok/s       min       max\n{}{}overhead {:.1}%\n",
            line("plain", &self.plain),
            line("constrained", &self.constrained),
            100.0 * self.overhead
        )
    }
}
