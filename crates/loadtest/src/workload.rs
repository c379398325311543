//! Requests and their arrival times: each is a function of the seed and of its number, so that the
//! load is reproducible in whatever order answers arrive.

use super::lengths::Lengths;
use base::Rng;
use std::time::Duration;

/// Numbers of the random streams besides those of measured requests.
const WARM_UP: u64 = 1 << 32;
const PREFIX: u64 = 1 << 33;
const ARRIVALS: u64 = 1 << 34;

/// Words of chats, most of which are one token in most vocabularies.
const WORDS: &[&str] = &[
    "the", "time", "people", "way", "water", "day", "man", "place", "year", "work", "name", "line",
    "great", "small", "world", "house", "light", "hand", "school", "story", "river", "night",
    "letter", "paper", "music", "color", "animal", "point", "mother", "answer", "ground", "plant",
];

/// Whether a request warms up or is measured; warm-up requests have different prompts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoadPhase {
    WarmUp,
    Measured,
}

/// The kind of load.
#[derive(Clone, Debug)]
pub(super) struct Workload {
    pub seed: u64,
    /// Prefix of all prompts.
    pub prefix: Vec<u32>,
    pub vocabulary: usize,
    pub prompt: Lengths,
    pub output: Lengths,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LoadRequest {
    pub prompt: Vec<u32>,
    pub output: usize,
    /// Sampling seed; all servers take 31 bits.
    pub seed: u32,
}

impl Workload {
    /// The request with this number.
    pub fn ask(&self, part: LoadPhase, number: usize) -> LoadRequest {
        let first = if part == LoadPhase::WarmUp { WARM_UP } else { 0 };
        let mut rng = stream(self.seed, first + number as u64);
        let (length, output) = (self.prompt.sample(&mut rng), self.output.sample(&mut rng));
        let seed = (rng.next_u64() >> 33) as u32;
        let mut prompt = self.prefix.clone();
        prompt.extend(ids(&mut rng, length, self.vocabulary));
        LoadRequest { prompt, output, seed }
    }
}

impl LoadRequest {
    /// The prompt as a text with one word per token.
    pub fn words(&self) -> String {
        let words = self.prompt.iter().map(|&id| WORDS[id as usize % WORDS.len()]);
        words.collect::<Vec<_>>().join(" ")
    }
}

/// Random ids of the shared prefix.
pub(super) fn prefix(seed: u64, length: usize, vocabulary: usize) -> Vec<u32> {
    ids(&mut stream(seed, PREFIX), length, vocabulary).collect()
}

fn ids(rng: &mut Rng, length: usize, vocabulary: usize) -> impl Iterator<Item = u32> {
    (0..length).map(move |_| rng.below(vocabulary as u64) as u32)
}

/// An independent generator for each number of a seed.
fn stream(seed: u64, number: u64) -> Rng {
    Rng::new(Rng::new(seed).next_u64() ^ Rng::new(number).next_u64())
}

/// Arrival times since the first request, of a Poisson process.
#[derive(Clone, Debug)]
pub(super) struct Arrivals {
    rng: Rng,
    rate: f64,
    at: f64,
}

impl Arrivals {
    /// Arrivals at `rate` per second on average.
    pub fn new(seed: u64, rate: f64) -> Self {
        Self { rng: stream(seed, ARRIVALS), rate, at: 0.0 }
    }

    /// The next arrival time.
    pub fn next(&mut self) -> Duration {
        let at = Duration::from_secs_f64(self.at);
        self.at += -(1.0 - self.rng.uniform()).ln() / self.rate;
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(seed: u64) -> Workload {
        Workload {
            seed,
            prefix: prefix(seed, 5, 1000),
            vocabulary: 1000,
            prompt: "10-20".parse().unwrap(),
            output: "normal:8,2".parse().unwrap(),
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_load_and_another_another() {
        let ask = |seed, number| workload(seed).ask(LoadPhase::Measured, number);
        assert_eq!(ask(1, 3), ask(1, 3));
        assert_ne!(ask(1, 3), ask(1, 4));
        assert_ne!(ask(1, 3), ask(2, 3));
        assert_ne!(ask(1, 3), workload(1).ask(LoadPhase::WarmUp, 3));
    }

    #[test]
    fn prompts_share_the_prefix_and_no_more() {
        let asks: Vec<LoadRequest> =
            (0..20).map(|at| workload(7).ask(LoadPhase::Measured, at)).collect();
        assert!(asks.iter().all(|ask| ask.prompt[..5] == workload(7).prefix));
        assert!(asks.iter().all(|ask| (15..=25).contains(&ask.prompt.len())));
        assert!(asks.iter().skip(1).any(|ask| ask.prompt[5] != asks[0].prompt[5]));
        assert!(asks.iter().flat_map(|ask| &ask.prompt).all(|&id| id < 1000));
    }

    #[test]
    fn a_word_stands_for_each_token() {
        let ask = workload(3).ask(LoadPhase::Measured, 0);
        assert_eq!(ask.words().split(' ').count(), ask.prompt.len());
    }

    #[test]
    fn arrivals_are_a_poisson_process_of_the_rate() {
        let mut arrivals = Arrivals::new(5, 50.0);
        assert_eq!(arrivals.next(), Duration::ZERO);
        let times: Vec<f64> = (0..20_000).map(|_| arrivals.next().as_secs_f64()).collect();
        let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        assert!((mean * 50.0 - 1.0).abs() < 0.03, "{mean}");
        // Gaps of such a process are exponential: as many as 1/e are longer than their mean.
        let longer = gaps.iter().filter(|gap| **gap > 1.0 / 50.0).count() as f64;
        assert!((longer / gaps.len() as f64 - (-1.0f64).exp()).abs() < 0.02, "{longer}");
    }
}
