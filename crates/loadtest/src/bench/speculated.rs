//! Decoding with the tokens that the engine drafts, and without, in turns: answers to the same
//! prompts, which must be the same.

use super::ids::TokenIds;
use super::measure::BenchPlan;
use super::spread::MedianRange;
use anyhow::{Result, bail};
use engine::metrics::{Stats, steps_by_drafts};
use engine::{EngineHandle, Event, Generation, MEASURE_TIME, Outcome, Request, Speculate};
use serde::Serialize;
use std::fmt::Write;

/// Places of a list of ids at which prompts begin.
const PLACES: usize = 64;

/// Rates of decoding with drafts and without.
#[derive(Debug, Serialize)]
pub struct SpeculationRates {
    model: String,
    architecture: String,
    arithmetic: String,
    /// How tokens were drafted.
    speculate: String,
    results: Vec<SpeculationRate>,
}

/// The rates for prompts of one length.
#[derive(Debug, Serialize)]
struct SpeculationRate {
    /// Tokens of each prompt.
    tokens: usize,
    batch: usize,
    /// Tokens a second of all sequences, without drafts and with them.
    off: MedianRange,
    drafted: MedianRange,
    /// The second rate over the first, of the medians.
    speedup: f64,
    /// Steps of a sequence by the number of drafts, from 0 on.
    steps: Vec<u64>,
    /// The drafters with verified tokens.
    drafters: Vec<DrafterTokens>,
}

/// What became of the tokens of a drafter.
#[derive(Debug, Serialize)]
struct DrafterTokens {
    drafter: &'static str,
    drafted: u64,
    accepted: u64,
    /// Time of a batch that drafts one token over that of a step of one row, where it computes.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<f64>,
}

/// Measures decoding with drafts and without, in turns, at the depths and batch sizes of `plan`.
/// `measured` is called after each of them. The engine must have been started for this and
/// remember no earlier texts, which would be drafted from.
///
/// # Errors
///
/// A plan with an empty batch, errors of the engine, and answers that differ.
pub fn bench_speculated(
    engine: &EngineHandle,
    plan: &BenchPlan,
    speculate: Speculate,
    mut measured: impl FnMut(),
) -> Result<SpeculationRates> {
    let longest = plan.depth.iter().copied().max().unwrap_or(0).max(1);
    let places = if plan.ids.is_some() { 0 } else { PLACES };
    let count = longest.saturating_add(places);
    let ids = TokenIds::new(plan.ids.as_deref(), engine.info.vocab_size, count)?;
    let bench = SpeculatedBench { engine, plan, speculate, ids };
    // The engine measures its steps while there is no request.
    std::thread::sleep(MEASURE_TIME);
    let mut results = Vec::with_capacity(plan.depth.len() * plan.batch.len());
    for &depth in &plan.depth {
        for &batch in &plan.batch {
            results.push(bench.measure(depth.max(1), batch)?);
            measured();
        }
    }
    let info = &engine.info;
    Ok(SpeculationRates {
        model: info.name.clone(),
        architecture: info.architecture.clone(),
        arithmetic: info.arithmetic.clone(),
        speculate: speculate.to_string(),
        results,
    })
}

/// An engine, and what is measured of it.
struct SpeculatedBench<'a> {
    engine: &'a EngineHandle,
    plan: &'a BenchPlan,
    speculate: Speculate,
    ids: TokenIds,
}

/// The tokens of an answer, and its decode rate in tokens a second.
struct TimedAnswer {
    ids: Vec<u32>,
    rate: f64,
}

impl SpeculatedBench<'_> {
    /// Measures answers to `batch` prompts of `tokens` tokens at a time.
    fn measure(&self, tokens: usize, batch: usize) -> Result<SpeculationRate> {
        if batch == 0 {
            bail!("--batch: expected at least one sequence, found 0");
        }
        let generate = self.plan.generate;
        let (mut off, mut drafted) = (Vec::new(), Vec::new());
        let (mut steps, mut drafters) = (Vec::new(), Vec::new());
        // The first run warms up.
        for run in 0..=self.plan.runs {
            let place = run * batch;
            let prompt = |number| self.ids.next(tokens, place + number).to_vec();
            let prompts: Vec<Vec<u32>> = (0..batch).map(prompt).collect();
            // Prompts are computed once, so that both kinds of answers find them.
            self.answer(&prompts, Speculate::Off, 1)?;
            let plain = self.answer(&prompts, Speculate::Off, generate)?;
            let before = self.engine.metrics.snapshot();
            let answers = self.answer(&prompts, self.speculate, generate)?;
            check_same(&plain, &answers)?;
            if run > 0 {
                let rate = |answers: &[TimedAnswer]| answers.iter().map(|answer| answer.rate).sum();
                off.push(rate(&plain));
                drafted.push(rate(&answers));
                count(&before, &self.engine.metrics.snapshot(), &mut steps, &mut drafters);
            }
        }
        drafters.retain(|it| it.drafted > 0);
        let (off, drafted) = (MedianRange::of(&off), MedianRange::of(&drafted));
        let speedup = drafted.median / off.median;
        Ok(SpeculationRate { tokens, batch, off, drafted, speedup, steps, drafters })
    }

    /// Answers of `generate` tokens to all prompts together.
    fn answer(
        &self,
        prompts: &[Vec<u32>],
        speculate: Speculate,
        generate: usize,
    ) -> Result<Vec<TimedAnswer>> {
        let submit = |prompt: &Vec<u32>| {
            self.engine.submit(Request {
                prompt: prompt.clone(),
                max_tokens: Some(generate),
                speculate: Some(speculate),
                ..Request::default()
            })
        };
        let generations = prompts.iter().map(submit).collect::<Result<Vec<Generation>, _>>()?;
        // The engine waits for readers that take no tokens.
        std::thread::scope(|scope| {
            let read = |generation| scope.spawn(move || read(generation));
            let readers: Vec<_> = generations.into_iter().map(read).collect();
            let joined = readers.into_iter().map(std::thread::ScopedJoinHandle::join);
            let all = joined.map(|it| it.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            all.collect()
        })
    }
}

/// Reads an answer to its end.
fn read(mut generation: Generation) -> Result<TimedAnswer> {
    let mut ids = Vec::new();
    while let Some(event) = generation.next_blocking() {
        match event {
            Event::Token { id, .. } => ids.push(id),
            Event::Finished(end) => match end.outcome {
                Outcome::Failed(problem) => bail!(problem),
                _ => {
                    let rate = ids.len().saturating_sub(1) as f64 / end.timings.decode_s;
                    return Ok(TimedAnswer { ids, rate });
                }
            },
            _ => {}
        }
    }
    bail!("the engine stopped without an answer")
}

/// An error if answers differ.
fn check_same(plain: &[TimedAnswer], drafted: &[TimedAnswer]) -> Result<()> {
    for (number, (plain, drafted)) in plain.iter().zip(drafted).enumerate() {
        if plain.ids != drafted.ids {
            let pairs = plain.ids.iter().zip(&drafted.ids);
            let same = pairs.take_while(|(plain, drafted)| plain == drafted).count();
            bail!("answer {number} is another with drafts than without, from token {same} on");
        }
    }
    Ok(())
}

/// Adds what was drafted between two readings.
fn count(before: &Stats, now: &Stats, steps: &mut Vec<u64>, drafters: &mut Vec<DrafterTokens>) {
    steps.resize(now.draft_lengths.len(), 0);
    let lengths = before.draft_lengths.iter().zip(&now.draft_lengths);
    steps.iter_mut().zip(lengths).for_each(|(steps, (before, now))| *steps += now - before);
    if drafters.is_empty() {
        let none = |drafter| DrafterTokens { drafter, drafted: 0, accepted: 0, cost: None };
        drafters.extend(now.drafts.iter().map(|it| none(it.drafter.name())));
    }
    for (tokens, (before, now)) in drafters.iter_mut().zip(before.drafts.iter().zip(&now.drafts)) {
        tokens.drafted += now.drafted - before.drafted;
        tokens.accepted += now.accepted - before.accepted;
        tokens.cost = now.cost;
    }
}

impl SpeculationRates {
    /// The rates as a table, with what was drafted.
    pub fn to_table(&self) -> String {
        let Self { model, architecture, arithmetic, speculate, results } = self;
        let mut text = format!("{model} ({architecture}), arithmetic {arithmetic}\n\n");
        let _ = writeln!(text, "speculate  tokens batch     tok/s       min       max  speedup");
        for it in results {
            for (how, rate, speedup) in
                [("off", &it.off, 1.0), (speculate, &it.drafted, it.speedup)]
            {
                let _ = write!(text, "{how:<10}{:>7}{:>6}", it.tokens, it.batch);
                let _ = write!(text, "{:>10.2}{:>10.2}{:>10.2}", rate.median, rate.min, rate.max);
                let _ = writeln!(text, "{speedup:>9.2}");
            }
        }
        for it in results {
            let steps = steps_by_drafts(&it.steps);
            let _ = writeln!(text, "\n{} x{}: steps by drafts: {steps}", it.tokens, it.batch);
            for DrafterTokens { drafter, drafted, accepted, cost } in &it.drafters {
                let share = 100.0 * *accepted as f64 / *drafted as f64;
                let _ = write!(text, "{drafter}: {accepted} of {drafted} drafts ({share:.0}%)");
                let cost = cost.map(|cost| format!(", each for {cost:.2} of a step"));
                let _ = writeln!(text, "{}", cost.unwrap_or_default());
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_differ_are_an_error() {
        let check = |plain: &[u32], drafted: &[u32], expected: Option<&str>| {
            let [plain, drafted] = [plain, drafted].map(|ids| {
                [&[1, 2], ids].map(|ids| TimedAnswer { ids: ids.to_vec(), rate: ids.len() as f64 })
            });
            let found = check_same(&plain, &drafted).err().map(|error| error.to_string());
            assert_eq!(found.as_deref(), expected);
        };
        check(&[1, 2, 3], &[1, 2, 3], None);
        let differs = "answer 1 is another with drafts than without, from token 2 on";
        check(&[1, 2, 3], &[1, 2, 4], Some(differs));
        check(&[1, 2, 3], &[1, 2], Some(differs));
    }
}
