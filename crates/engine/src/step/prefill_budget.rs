//! Number of prompt tokens in a step with sequences that decode.
//!
//! All rows of a step finish together, so prompt tokens lengthen the inter-token latency of
//! decoding sequences. The time of a step is modelled as a linear function of its rows, fitted to
//! the steps so far, the latest with the highest weight.
//!
//! Where weights are streamed, a step with a prompt reads most of them, whatever its rows. Where
//! such a pass takes longer than the target, it takes as many rows as possible, and steps that
//! decode alone have at least half of the time.

use std::time::Duration;

/// Factor on the weight of a step with each step that follows.
const KEEP: f64 = 0.93;
/// Share of the target that is aimed at, as a reserve.
const AIM: f64 = 0.8;
/// Prompt tokens of a step before any measurement.
const FIRST_PROMPT: usize = 64;
/// Minimum of prompt tokens in a step: fewer do not pay for reading the weights from memory.
const MIN_PROMPT: usize = 16;

/// Chooses the prompt tokens of each step from the times of the steps so far.
#[derive(Clone, Debug)]
pub(crate) struct PrefillBudget {
    target: f64,
    max: usize,
    fit: StepFit,
    /// The time of passes, where weights are streamed.
    passes: Option<Passes>,
}

/// Steps with prompts, which read the weights that are streamed.
#[derive(Clone, Debug, Default)]
struct Passes {
    /// Seconds of the last one.
    last: f64,
    /// Seconds that steps without prompts take before the next.
    owed: f64,
}

/// Steps so far as weighted sums.
#[derive(Clone, Debug, Default)]
struct StepFit {
    weight: f64,
    rows: f64,
    seconds: f64,
    rows_squared: f64,
    rows_seconds: f64,
}

impl PrefillBudget {
    /// A budget of at most `max` prompt tokens, for steps of at most `target` while sequences
    /// decode.
    pub fn new(target: Duration, max: usize) -> Self {
        Self { target: target.as_secs_f64(), max, fit: StepFit::default(), passes: None }
    }

    /// The budget of a model whose weights are streamed.
    pub fn streamed(self) -> Self {
        Self { passes: Some(Passes::default()), ..self }
    }

    /// Prompt tokens for the next step, in which `decoding` sequences decode.
    pub fn prompt(&self, decoding: usize) -> usize {
        if decoding == 0 {
            return self.max;
        }
        match &self.passes {
            Some(passes) if passes.owed > 0.0 => return 0,
            Some(passes) if passes.last > self.target => return self.max,
            _ => {}
        }
        let Some((base, row)) = self.fit.line() else { return self.max.min(FIRST_PROMPT) };
        let decode = base + row * decoding as f64;
        // If decoding alone takes all the time, prompts get as much again, so that they advance.
        let room = (AIM * self.target - decode).max(decode);
        ((room / row) as usize).max(MIN_PROMPT).min(self.max)
    }

    /// Seconds for each row of a step, as measured lately; `None` before the first step.
    pub fn row(&self) -> Option<f64> {
        self.fit.line().map(|(_, row)| row)
    }

    /// Records the time of a step of `rows` rows, of which `prompt` are of prompts.
    pub fn observe(&mut self, rows: usize, prompt: usize, took: Duration) {
        let took = took.as_secs_f64();
        self.fit.add(rows as f64, took);
        let Some(passes) = &mut self.passes else { return };
        if prompt == 0 {
            passes.owed -= took;
        } else {
            passes.last = took;
            passes.owed = if took > self.target { took } else { 0.0 };
        }
    }
}

impl StepFit {
    fn add(&mut self, rows: f64, seconds: f64) {
        let new = [1.0, rows, seconds, rows * rows, rows * seconds];
        let Self { weight, rows, seconds, rows_squared, rows_seconds } = self;
        for (sum, new) in [weight, rows, seconds, rows_squared, rows_seconds].into_iter().zip(new) {
            *sum = KEEP * *sum + new;
        }
    }

    /// Seconds of a step without rows, and per row. Neither is negative, and rows take at least a
    /// quarter of the time.
    fn line(&self) -> Option<(f64, f64)> {
        if self.rows == 0.0 {
            return None;
        }
        let (rows, seconds) = (self.rows / self.weight, self.seconds / self.weight);
        let even = (seconds / rows).max(1e-9);
        let variance = self.rows_squared / self.weight - rows * rows;
        let slope = (self.rows_seconds / self.weight - rows * seconds) / variance;
        // Steps of nearly equal size do not determine a slope.
        let told = variance > 0.02 * 0.02 * rows * rows;
        let row = if told { slope.clamp(0.25 * even, even) } else { even };
        Some(((seconds - row * rows).max(0.0), row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds of steps of a machine that decodes in `base` and takes `token` for a prompt token.
    fn steady_state(target_ms: u64, base: f64, token: f64) -> (usize, f64) {
        let mut budget = PrefillBudget::new(Duration::from_millis(target_ms), 512);
        let (mut prompt, mut took) = (0, base);
        for _ in 0..50 {
            budget.observe(4 + prompt, prompt, Duration::from_secs_f64(took));
            prompt = budget.prompt(4);
            took = base + token * prompt as f64;
        }
        (prompt, took)
    }

    #[test]
    fn steps_stay_below_the_target_and_use_most_of_it() {
        for (base, token) in [(0.02, 0.001), (0.05, 0.0002), (0.04, 0.004)] {
            let (prompt, took) = steady_state(200, base, token);
            assert!((0.12..0.2).contains(&took) || prompt == 512, "{base} {token}: {took}");
        }
    }

    #[test]
    fn a_machine_too_slow_for_the_target_still_computes_prompts() {
        let (prompt, took) = steady_state(100, 0.4, 0.01);
        assert!((36..=44).contains(&prompt) && took < 0.85, "{prompt} {took}");
        assert_eq!(steady_state(100, 0.001, 1.0).0, MIN_PROMPT);
    }

    #[test]
    fn prompts_go_whole_while_no_sequence_decodes() {
        let mut budget = PrefillBudget::new(Duration::from_millis(1), 512);
        assert_eq!((budget.prompt(0), budget.prompt(1)), (512, FIRST_PROMPT));
        budget.observe(512, 512, Duration::from_secs(1));
        assert_eq!((budget.prompt(0), budget.prompt(1)), (512, MIN_PROMPT));
        assert_eq!(PrefillBudget::new(Duration::ZERO, 4).prompt(1), 4);
    }

    #[test]
    fn streamed_weights_are_read_for_many_rows_and_leave_half_of_the_time_to_decoding() {
        let mut budget = PrefillBudget::new(Duration::from_millis(100), 4096).streamed();
        let [pass, decode] = [2.0, 0.3];
        let (mut alone, mut passes, mut rows) = (0.0, 0.0, 0);
        for step in 0..200 {
            let prompt = budget.prompt(2);
            if prompt == 0 {
                alone += decode;
            } else {
                passes += pass;
                rows += prompt;
            }
            let took = if prompt == 0 { decode } else { pass };
            budget.observe(2 + prompt, prompt, Duration::from_secs_f64(took));
            assert!(step == 0 || [0, 4096].contains(&prompt), "{prompt}");
        }
        assert!(alone >= passes - pass && passes > 0.4 * (alone + passes), "{alone} {passes}");
        assert!(rows > 20 * 4096);
        // Passes below the target are steps like others.
        budget.observe(4098, 4096, Duration::from_millis(50));
        assert!(budget.prompt(2) > 0);
        assert_eq!(budget.prompt(0), 4096);
    }
}
