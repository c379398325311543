//! Embeddings: the hidden states of a prompt, pooled into one vector.
//!
//! Invariant: states are added in ascending order of positions, in f64, so that chunks and other
//! sequences change no bit.

use crate::load::error::Error;
use crate::load::texts::EmbeddingDefaults;
use crate::request::embed::Embed;
use formats::Pooling;
use models::Classifier;
use std::sync::Arc;

/// Accumulates hidden states.
#[derive(Debug)]
pub(crate) struct EmbeddingPooler {
    embed: Embed,
    pooling: Pooling,
    head: Option<Arc<Classifier>>,
    /// Sums, the largest values or the state of a token, as the pooling says.
    values: Vec<f64>,
    rows: usize,
}

impl EmbeddingPooler {
    /// Uses the pooling of the model unless the request names one.
    pub fn new(embed: Embed, defaults: &EmbeddingDefaults) -> Self {
        let own = embed.pooling.unwrap_or(defaults.pooling);
        let (pooling, head) = match defaults.head.as_ref().filter(|_| embed.scores) {
            Some((head, pooling)) => (*pooling, Some(Arc::clone(head))),
            None => (own, None),
        };
        Self { embed, pooling, head, values: Vec::new(), rows: 0 }
    }

    /// Whether the states of all tokens are needed, not only the last one.
    pub fn wants_all(&self) -> bool {
        self.pooling != Pooling::Last
    }

    /// Adds the states of the next tokens, each `[hidden_size]`.
    pub fn add<'a>(&mut self, states: impl Iterator<Item = &'a [f32]>) {
        for state in states {
            self.rows += 1;
            let state = state.iter().map(|value| f64::from(*value));
            if self.rows == 1 {
                self.values = state.collect();
                continue;
            }
            let pairs = self.values.iter_mut().zip(state);
            match self.pooling {
                Pooling::Cls => {}
                Pooling::Last => pairs.for_each(|(last, value)| *last = value),
                // Unlike the larger of two, the sum of NaN and a number is NaN.
                Pooling::Max => pairs.for_each(|(most, value)| {
                    *most = if *most >= value { *most } else { value + 0.0 * *most };
                }),
                Pooling::Mean | Pooling::MeanSqrt => {
                    pairs.for_each(|(sum, value)| *sum += value);
                }
                Pooling::WeightedMean => {
                    let weight = self.rows as f64;
                    pairs.for_each(|(sum, value)| *sum += weight * value);
                }
            }
        }
    }

    /// Returns the vector of all states: `[hidden_size]`, the leading values of it, or the score of
    /// each label.
    ///
    /// # Errors
    ///
    /// [`Error::StateNotFinite`] if a value is NaN or infinite.
    pub fn finish(&mut self) -> Result<Vec<f32>, Error> {
        let rows = self.rows as f64;
        let divisor = match self.pooling {
            Pooling::Cls | Pooling::Last | Pooling::Max => 1.0,
            Pooling::Mean => rows,
            Pooling::MeanSqrt => rows.sqrt(),
            Pooling::WeightedMean => rows * (rows + 1.0) / 2.0,
        };
        let vector = match &self.head {
            Some(head) => {
                let state: Vec<f32> = self.divided(divisor);
                head.scores(&state)
            }
            None => {
                self.values.truncate(self.embed.dimensions.unwrap_or(usize::MAX));
                let squares = self.values.iter().map(|value| value * value);
                // The mean has the direction of the sum.
                let length = squares.sum::<f64>().sqrt();
                self.divided(if self.embed.normalize { length } else { divisor })
            }
        };
        match vector.iter().all(|value| value.is_finite()) {
            true => Ok(vector),
            false => Err(Error::StateNotFinite),
        }
    }

    /// The values divided by a number. A zero vector is not normalised.
    fn divided(&self, by: f64) -> Vec<f32> {
        let by = if by > 0.0 { by } else { 1.0 };
        self.values.iter().map(|value| (value / by) as f32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pooled(embed: Embed, states: &[[f32; 2]]) -> Result<Vec<f32>, Error> {
        let defaults = EmbeddingDefaults { pooling: Pooling::Last, head: None };
        let mut pool = EmbeddingPooler::new(embed, &defaults);
        pool.add(states.iter().map(|state| &state[..]));
        pool.finish()
    }

    fn embed(pooling: Pooling, normalize: bool) -> Embed {
        Embed { pooling: Some(pooling), normalize, ..Embed::default() }
    }

    #[test]
    fn states_are_pooled_as_the_request_says() {
        let states = [[1.0, 6.0], [5.0, 2.0]];
        let check = |pooling, want: [f32; 2]| {
            assert_eq!(pooled(embed(pooling, false), &states).unwrap(), want, "{pooling:?}");
        };
        check(Pooling::Mean, [3.0, 4.0]);
        check(Pooling::Cls, [1.0, 6.0]);
        check(Pooling::Last, [5.0, 2.0]);
        check(Pooling::Max, [5.0, 6.0]);
        check(Pooling::MeanSqrt, [6.0, 8.0].map(|sum| (sum / 2f64.sqrt()) as f32));
        check(Pooling::WeightedMean, [11.0 / 3.0, 10.0 / 3.0]);
    }

    #[test]
    fn vectors_are_cut_and_then_normalised() {
        let states = [[1.0, 6.0], [5.0, 2.0]];
        assert_eq!(pooled(embed(Pooling::Mean, true), &states).unwrap(), [0.6, 0.8]);
        let first = Embed { dimensions: Some(1), ..embed(Pooling::Mean, true) };
        assert_eq!(pooled(first, &states).unwrap(), [1.0]);
        assert_eq!(pooled(Embed { normalize: false, ..first }, &states).unwrap(), [3.0]);
        assert_eq!(pooled(embed(Pooling::Last, true), &[[0.0, 0.0]]).unwrap(), [0.0, 0.0]);
        for pooling in [Pooling::Last, Pooling::Max, Pooling::Mean] {
            for states in [[[f32::NAN, 0.0], [1.0, 1.0]], [[1.0, 1.0], [f32::NAN, 0.0]]] {
                let broken = pooled(embed(pooling, false), &states);
                let unseen = pooling == Pooling::Last && states[1][0] == 1.0;
                assert!(unseen || matches!(broken, Err(Error::StateNotFinite)), "{pooling:?}");
            }
        }
    }

    #[test]
    fn requests_say_or_else_the_checkpoint() {
        let all = |asked, own| {
            let embed = Embed { pooling: asked, ..Embed::default() };
            let defaults = EmbeddingDefaults { pooling: own, head: None };
            EmbeddingPooler::new(embed, &defaults).wants_all()
        };
        assert!(all(Some(Pooling::Mean), Pooling::Last));
        assert!(all(None, Pooling::Mean));
        assert!(!all(None, Pooling::Last));
    }
}
