//! Measures of a run: percentiles, rates, errors, goodput.

use super::measured_answer::MeasuredAnswer;
use super::run::LoadRun;
use serde::Serialize;
use std::collections::BTreeMap;
use std::str::FromStr;

/// The measures of a request that limits apply to.
const MEASURES: [&str; 4] = ["ttft", "tpot", "itl", "e2el"];

/// Mean and percentiles, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Percentiles {
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p95: f64,
    pub p99: f64,
    pub max: f64,
}

impl Percentiles {
    /// Of values in seconds; `None` without values.
    pub fn of(seconds: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = seconds.into_iter().map(|seconds| 1e3 * seconds).collect();
        values.sort_by(f64::total_cmp);
        let &max = values.last()?;
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let at = |share| rounded(percentile(&values, share));
        Some(Self {
            mean: rounded(mean),
            p50: at(0.5),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            max: rounded(max),
        })
    }
}

/// The percentile `share` of the sorted `values`, by linear interpolation.
pub(super) fn percentile(values: &[f64], share: f64) -> f64 {
    let place = share * (values.len() - 1) as f64;
    let (below, above) = (values[place.floor() as usize], values[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

/// Rounds to three decimal places.
pub(super) fn rounded(value: f64) -> f64 {
    (1e3 * value).round() / 1e3
}

/// Limits of a good request, in milliseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct GoodputLimits(BTreeMap<&'static str, f64>);

impl FromStr for GoodputLimits {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let limit = |part: &str| {
            let (name, most) = part.split_once(':')?;
            let name = MEASURES.into_iter().find(|known| *known == name.trim())?;
            let most = most.trim().parse().ok().filter(|most: &f64| *most > 0.0)?;
            Some((name, most))
        };
        let limits = text.split(',').map(limit).collect::<Option<_>>().map(Self);
        limits.ok_or_else(|| format!("expected NAME:MS,... of {}", MEASURES.join(", ")))
    }
}

impl GoodputLimits {
    fn kept_by(&self, answer: &MeasuredAnswer) -> bool {
        self.0.iter().all(|(name, most)| {
            let seconds = match *name {
                "ttft" => answer.first,
                "tpot" => answer.per_token().unwrap_or_default(),
                "itl" => answer.longest_gap(),
                _ => answer.last,
            };
            1e3 * seconds <= *most
        })
    }
}

/// Failures of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Errors {
    /// How many there were.
    pub count: usize,
    /// The message of the first one.
    pub example: String,
}

/// A run in numbers.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LoadSummary {
    /// Requests that were answered to the end.
    pub completed: usize,
    pub(super) failed: usize,
    /// Failures by kind.
    pub errors: BTreeMap<String, Errors>,
    /// Answers that ended before the requested length.
    pub(super) short_answers: usize,
    /// Answers whose tokens the server did not count.
    pub(super) uncounted_answers: usize,
    pub(super) prompt_tokens: usize,
    /// `None` if the server does not report them.
    pub(super) cached_tokens: Option<usize>,
    pub(super) output_tokens: usize,
    /// Events with text, each of one token or of several.
    pub(super) output_events: usize,
    pub(super) ttft_ms: Option<Percentiles>,
    pub(super) itl_ms: Option<Percentiles>,
    pub(super) tpot_ms: Option<Percentiles>,
    pub(super) e2el_ms: Option<Percentiles>,
    /// Delays between arrival and sending.
    pub(super) late_ms: Option<Percentiles>,
    /// Requests within the limits.
    pub(super) good_requests: Option<usize>,
}

impl LoadSummary {
    pub(super) fn of(run: &LoadRun, limits: Option<&GoodputLimits>) -> Self {
        let answers = || run.outcomes.iter().filter_map(|outcome| outcome.result.as_ref().ok());
        let sum = |of: fn(&MeasuredAnswer) -> usize| answers().map(of).sum();
        Self {
            completed: answers().count(),
            failed: run.outcomes.len() - answers().count(),
            errors: errors(run),
            short_answers: answers().filter(|answer| answer.short).count(),
            uncounted_answers: answers().filter(|answer| !answer.counted).count(),
            prompt_tokens: sum(|answer| answer.prompt_tokens),
            cached_tokens: answers().filter_map(|answer| answer.cached_tokens).reduce(|a, b| a + b),
            output_tokens: sum(|answer| answer.output_tokens),
            output_events: sum(|answer| answer.events),
            ttft_ms: Percentiles::of(answers().map(|answer| answer.first)),
            itl_ms: Percentiles::of(answers().flat_map(|a| &a.gaps).copied().map(f64::from)),
            tpot_ms: Percentiles::of(answers().filter_map(MeasuredAnswer::per_token)),
            e2el_ms: Percentiles::of(answers().map(|answer| answer.last)),
            late_ms: Percentiles::of(run.outcomes.iter().map(|outcome| outcome.late)),
            good_requests: limits.map(|limits| answers().filter(|a| limits.kept_by(a)).count()),
        }
    }
}

fn errors(run: &LoadRun) -> BTreeMap<String, Errors> {
    let mut errors: BTreeMap<String, Errors> = BTreeMap::new();
    for failure in run.outcomes.iter().filter_map(|outcome| outcome.result.as_ref().err()) {
        let first = || Errors { count: 0, example: failure.message.clone() };
        errors.entry(failure.kind.clone()).or_insert_with(first).count += 1;
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::super::measured_answer::RequestFailure;
    use super::super::run::{Outcome, RunEnd};
    use super::*;

    #[test]
    fn percentiles_lie_between_neighbours() {
        let spread = Percentiles::of([0.004, 0.001, 0.002, 0.003]).unwrap();
        assert_eq!((spread.p50, spread.max, spread.mean), (2.5, 4.0, 2.5));
        assert_eq!(spread.p90, 3.7);
        let hundred = Percentiles::of((0..=100).map(f64::from)).unwrap();
        assert_eq!((hundred.p95, hundred.p99), (95e3, 99e3));
        let one = Percentiles::of([0.5]).unwrap();
        assert_eq!((one.mean, one.p50, one.p99, one.max), (500.0, 500.0, 500.0, 500.0));
        assert_eq!(Percentiles::of([]), None);
    }

    #[test]
    fn limits_are_a_list_of_known_names() {
        let limits: GoodputLimits = "ttft:500, tpot:50".parse().unwrap();
        assert_eq!(limits.0, BTreeMap::from([("ttft", 500.0), ("tpot", 50.0)]));
        for text in ["", "ttft", "ttft:", "ttft:-1", "speed:5", "ttft:5,,"] {
            assert!(text.parse::<GoodputLimits>().is_err(), "{text}");
        }
    }

    fn answered(first: f64, last: f64, gap: f32) -> Outcome {
        let answer = MeasuredAnswer {
            first,
            last,
            gaps: vec![gap],
            prompt_tokens: 10,
            output_tokens: 5,
            counted: true,
            ..MeasuredAnswer::default()
        };
        Outcome { at: 0.0, late: 0.0, result: Ok(answer) }
    }

    fn run() -> LoadRun {
        let failed = |message: &str| Outcome {
            at: 0.0,
            late: 0.0,
            result: Err(RequestFailure::new("http 503", message)),
        };
        let outcomes =
            vec![answered(0.1, 0.5, 0.1), failed("first"), answered(0.3, 0.7, 0.2), failed("next")];
        LoadRun { outcomes, unfinished: 1, seconds: 2.0, ended: RunEnd::Done }
    }

    #[test]
    fn requests_are_counted_by_how_they_ended() {
        let summary = LoadSummary::of(&run(), None);
        assert_eq!((summary.completed, summary.failed), (2, 2));
        assert_eq!((summary.prompt_tokens, summary.output_tokens), (20, 10));
        assert_eq!(summary.cached_tokens, None);
        assert_eq!(summary.ttft_ms.unwrap().mean, 200.0);
        assert_eq!(summary.tpot_ms.unwrap().p50, 100.0);
        assert_eq!(summary.errors["http 503"], Errors { count: 2, example: "first".into() });
    }

    fn check_good(limits: &str, expected: usize) {
        let summary = LoadSummary::of(&run(), Some(&limits.parse().unwrap()));
        assert_eq!(summary.good_requests, Some(expected), "{limits}");
    }

    #[test]
    fn good_requests_keep_every_limit() {
        check_good("ttft:200", 1);
        check_good("e2el:800", 2);
        check_good("itl:150", 1);
        check_good("ttft:1000,tpot:90", 0);
    }
}
