//! How many prompt tokens go into a step beside the sequences that decode.
//!
//! Everything in a step waits for all of it, so prompt tokens lengthen the time between tokens of
//! those who decode. The time of a step is taken as that of decoding alone plus so much for each
//! prompt token; both are measured as steps go by.

use std::time::Duration;

/// Weight of the newest measurement.
const NEW: f64 = 0.3;
/// Share of the target that is aimed at, so that what was not foreseen still fits.
const AIM: f64 = 0.8;
/// Prompt tokens of a step before anything was measured.
const FIRST: usize = 64;
/// Least prompt tokens of a step: fewer make the weights' way through memory too dear.
const LEAST: usize = 16;

/// The pace of prompts, from the steps so far.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    target: f64,
    most: usize,
    /// Seconds of a step without prompts.
    decode: Option<f64>,
    /// Seconds of a prompt token in a step.
    token: Option<f64>,
}

impl Pace {
    /// For steps of at most `most` prompt tokens, and of at most `target` where others wait.
    pub fn new(target: Duration, most: usize) -> Self {
        Self { target: target.as_secs_f64(), most, decode: None, token: None }
    }

    /// Prompt tokens for the next step, in which `decoding` sequences wait for their next token.
    pub fn prompt(&self, decoding: usize) -> usize {
        if decoding == 0 {
            return self.most;
        }
        let Some(token) = self.token else { return self.most.min(FIRST) };
        let decode = self.decode.unwrap_or(0.0);
        // Where decoding alone takes all the time there is, prompts get as much again: else they
        // would never come to their end.
        let room = (AIM * self.target - decode).max(decode);
        ((room / token) as usize).max(LEAST).min(self.most)
    }

    /// Takes note of a step.
    pub fn observe(&mut self, decoding: usize, prompt: usize, took: Duration) {
        let took = took.as_secs_f64();
        if prompt == 0 {
            blend(&mut self.decode, took);
        } else {
            let decode = if decoding > 0 { self.decode.unwrap_or(0.0) } else { 0.0 };
            // What decoding took is a guess; prompts took at least some of the time.
            blend(&mut self.token, (took - decode).max(0.25 * took) / prompt as f64);
        }
    }
}

fn blend(mean: &mut Option<f64>, new: f64) {
    *mean = Some(mean.map_or(new, |mean| mean + NEW * (new - mean)));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds of steps of a machine that decodes in `base` and takes `token` for a prompt token.
    fn settle(target_ms: u64, base: f64, token: f64) -> (usize, f64) {
        let mut pace = Pace::new(Duration::from_millis(target_ms), 512);
        let (mut prompt, mut took) = (0, base);
        for _ in 0..50 {
            pace.observe(4, prompt, Duration::from_secs_f64(took));
            prompt = pace.prompt(4);
            took = base + token * prompt as f64;
        }
        (prompt, took)
    }

    #[test]
    fn steps_stay_below_the_target_and_use_most_of_it() {
        for (base, token) in [(0.02, 0.001), (0.05, 0.0002), (0.001, 0.01)] {
            let (prompt, took) = settle(200, base, token);
            assert!((0.12..0.2).contains(&took) || prompt == 512, "{base} {token}: {took}");
        }
    }

    #[test]
    fn a_machine_too_slow_for_the_target_still_computes_prompts() {
        let (prompt, took) = settle(100, 0.4, 0.01);
        assert_eq!(prompt, 40);
        assert!(took < 0.81);
        assert_eq!(settle(100, 0.001, 1.0).0, LEAST);
    }

    #[test]
    fn nobody_waits_so_prompts_go_whole() {
        let mut pace = Pace::new(Duration::from_millis(1), 512);
        assert_eq!((pace.prompt(0), pace.prompt(1)), (512, FIRST));
        pace.observe(0, 512, Duration::from_secs(1));
        assert_eq!((pace.prompt(0), pace.prompt(1)), (512, LEAST));
        assert_eq!(Pace::new(Duration::ZERO, 4).prompt(1), 4);
    }
}
