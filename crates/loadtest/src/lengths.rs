//! Lengths of prompts and answers in tokens: a number or a distribution.

use base::Rng;
use std::fmt;
use std::str::FromStr;

/// Maximum length in tokens.
const MAX_LENGTH: u32 = 1 << 20;

/// A distribution of lengths from 1 to 2^20.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lengths {
    /// Always the same.
    Fixed(u32),
    /// Uniform between two lengths, both included.
    Uniform(u32, u32),
    /// Normal, rounded.
    Normal {
        /// Mean length.
        mean: f64,
        /// Standard deviation.
        deviation: f64,
    },
}

impl Lengths {
    /// Draws a length.
    pub(super) fn sample(&self, rng: &mut Rng) -> usize {
        let length = match *self {
            Self::Fixed(length) => length,
            Self::Uniform(least, most) => least + rng.below(u64::from(most - least) + 1) as u32,
            // The conversion saturates at the bounds.
            Self::Normal { mean, deviation } => {
                (mean + deviation * f64::from(rng.normal())).round() as u32
            }
        };
        length.clamp(1, MAX_LENGTH) as usize
    }
}

impl FromStr for Lengths {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = "expected a number, LEAST-MAX_LENGTH or normal:MEAN,DEVIATION";
        if let Some(numbers) = text.strip_prefix("normal:") {
            let (mean, deviation) = numbers.split_once(',').ok_or(expected)?;
            return normal(mean, deviation).ok_or_else(|| expected.into());
        }
        let (least, most) = text.split_once('-').unwrap_or((text, text));
        let [least, most] = [least, most].map(|number| number.trim().parse::<u32>());
        let (least, most) = (least.map_err(|_| expected)?, most.map_err(|_| expected)?);
        if least < 1 || most > MAX_LENGTH || least > most {
            return Err(format!("expected lengths from 1 to {MAX_LENGTH}, the lesser first"));
        }
        Ok(if least == most { Self::Fixed(least) } else { Self::Uniform(least, most) })
    }
}

fn normal(mean: &str, deviation: &str) -> Option<Lengths> {
    let (mean, deviation) = (mean.trim().parse().ok()?, deviation.trim().parse().ok()?);
    let sound = (1.0..=f64::from(MAX_LENGTH)).contains(&mean) && (0.0..=mean).contains(&deviation);
    sound.then_some(Lengths::Normal { mean, deviation })
}

impl fmt::Display for Lengths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(length) => write!(f, "{length}"),
            Self::Uniform(least, most) => write!(f, "{least}-{most}"),
            Self::Normal { mean, deviation } => write!(f, "normal:{mean},{deviation}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(lengths: &str) -> Vec<usize> {
        let lengths: Lengths = lengths.parse().unwrap();
        let mut rng = Rng::new(1);
        (0..10_000).map(|_| lengths.sample(&mut rng)).collect()
    }

    fn check_mean(lengths: &str, expected: f64) {
        let samples = samples(lengths);
        let mean = samples.iter().sum::<usize>() as f64 / samples.len() as f64;
        assert!((mean / expected - 1.0).abs() < 0.02, "{lengths}: {mean}");
    }

    #[test]
    fn lengths_have_the_mean_asked_for() {
        check_mean("512", 512.0);
        check_mean("100-256", 178.0);
        check_mean("normal:512,128", 512.0);
    }

    #[test]
    fn uniform_lengths_reach_both_ends_and_no_further() {
        let samples = samples("3-6");
        assert_eq!((samples.iter().min(), samples.iter().max()), (Some(&3), Some(&6)));
    }

    #[test]
    fn normal_lengths_spread_as_asked_and_are_never_empty() {
        let within = |range: std::ops::RangeInclusive<usize>| {
            samples("normal:512,128").iter().filter(|&length| range.contains(length)).count()
        };
        assert!((6_600..7_050).contains(&within(384..=640)), "{}", within(384..=640));
        assert!(samples("normal:2,2").iter().all(|&length| length >= 1));
    }

    #[test]
    fn what_is_no_distribution_is_refused() {
        for text in ["", "0", "a", "5-", "6-5", "1-9999999", "-3", "normal:5", "normal:5,6"] {
            assert!(text.parse::<Lengths>().is_err(), "{text}");
        }
        assert!("normal:NaN,1".parse::<Lengths>().is_err());
    }

    #[test]
    fn they_are_shown_as_they_are_read() {
        for text in ["512", "100-256", "normal:512,128", "normal:51.5,0"] {
            assert_eq!(text.parse::<Lengths>().unwrap().to_string(), text);
        }
    }
}
