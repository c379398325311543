//! `gannet bench --speculate`: decoding with drafts and without.

use crate::args::FileArgs;
use crate::draft_args::DraftArgs;
use crate::exit::WrongUsage;
use crate::progress;
use anyhow::{Result, bail};
use engine::{EngineOptions, LoadOptions, Speculate};
use gannet::{Builder, Engine};
use loadtest::{BenchPlan, SpeculationRates, bench_speculated};
use std::path::Path;

/// Arguments for measuring drafts.
#[derive(Debug, clap::Args)]
pub(super) struct SpeculatedArgs {
    /// Measure only decoding with the tokens that the engine drafts, as `gannet run` takes HOW, and
    /// without, in turns: greedy answers to prompts of --depth tokens, which must be the same
    #[arg(long, value_name = "HOW", conflicts_with_all = ["shape", "prompt", "guesses", "synthetic_acceptance", "adapter_rank", "scaling", "schema", "disk", "csv"])]
    speculate: Option<Speculate>,
    #[command(flatten)]
    draft: DraftArgs,
}

impl SpeculatedArgs {
    /// How tokens are drafted, if that is measured.
    ///
    /// # Errors
    /// If the arguments are wrong together.
    pub fn speculate(&self, plan: &BenchPlan) -> Result<Option<Speculate>> {
        let is_used = matches!(self.speculate, Some(Speculate::Auto(_) | Speculate::Model(_)));
        let found = self.speculate.map_or("none".to_owned(), |how| how.to_string());
        let problem = match self.speculate {
            Some(Speculate::Model(_)) if !self.draft.is_given() => {
                format!("--speculate {found}: expected --draft-model with it, found none")
            }
            _ if self.draft.is_given() && !is_used => {
                format!("--draft-model: expected --speculate auto or model with it, found {found}")
            }
            Some(_) if plan.generate < 2 => {
                "--gen: expected at least 2 tokens with --speculate, found 1".to_owned()
            }
            how => return Ok(how),
        };
        bail!(WrongUsage::new(problem))
    }

    /// Loads the model at `path` and measures it.
    pub fn measure(
        &self,
        speculate: Speculate,
        plan: &BenchPlan,
        (path, name, files): (&Path, Option<String>, &FileArgs),
        load: LoadOptions,
    ) -> Result<SpeculationRates> {
        let running = plan.batch.iter().copied().max().unwrap_or(1).max(1);
        let plain = EngineOptions::default();
        let queue = plain.queue.max(running);
        // Answers of other runs would be drafted from.
        let options = EngineOptions { running, queue, speculate, draft_memory: 0, ..plain };
        let builder = name.into_iter().fold(Engine::builder(), Builder::name);
        let builder = builder.load_options(load).engine_options(options);
        let builder =
            files.gguf_options().pre_fallback.into_iter().fold(builder, Builder::pre_fallback);
        let engine = self.draft.add_to(builder, files)?.load(path)?;
        engine.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
        let bar = progress::count((plan.depth.len() * plan.batch.len()) as u64);
        bar.set_message("measuring");
        let rates = bench_speculated(&engine.service().engine, plan, speculate, || bar.inc(1))?;
        bar.finish_and_clear();
        Ok(rates)
    }
}
