//! Embeddings: the hidden states of a prompt, pooled into one vector.
//!
//! Invariant: states are added in ascending order of positions, in f64, so that chunks and other
//! sequences change no bit.

use crate::Error;
use formats::Pooling;

/// How the embedding of a prompt is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Embed {
    /// Pooling of the states; `None` for the checkpoint's own, or else the last token.
    pub pooling: Option<Pooling>,
    /// Whether the vector is divided by its Euclidean length.
    pub normalize: bool,
}

/// Accumulates hidden states.
#[derive(Debug)]
pub(crate) struct EmbeddingPooler {
    embed: Embed,
    pooling: Pooling,
    sum: Vec<f64>,
    rows: usize,
}

impl EmbeddingPooler {
    /// Uses `pooling` unless the request names one.
    pub fn new(embed: Embed, pooling: Option<Pooling>) -> Self {
        let pooling = embed.pooling.or(pooling).unwrap_or(Pooling::Last);
        Self { embed, pooling, sum: Vec::new(), rows: 0 }
    }

    /// Whether the states of all tokens are needed, not only the last one.
    pub fn wants_all(&self) -> bool {
        self.pooling == Pooling::Mean
    }

    /// Adds the states of the next tokens, each `[hidden_size]`.
    pub fn add<'a>(&mut self, states: impl Iterator<Item = &'a [f32]>) {
        for state in states {
            self.sum.resize(state.len(), 0.0);
            self.sum.iter_mut().zip(state).for_each(|(sum, value)| *sum += f64::from(*value));
            self.rows += 1;
        }
    }

    /// Returns the vector `[hidden_size]` of all states.
    ///
    /// # Errors
    ///
    /// [`Error::StateNotFinite`] if a value is NaN or infinite.
    pub fn finish(&mut self) -> Result<Vec<f32>, Error> {
        let length = match self.embed.normalize {
            // The mean has the direction of the sum.
            true => self.sum.iter().map(|value| value * value).sum::<f64>().sqrt(),
            false => self.rows as f64,
        };
        // A zero vector is not normalised.
        let divisor = if length > 0.0 { length } else { 1.0 };
        let vector: Vec<f32> = self.sum.iter().map(|sum| (sum / divisor) as f32).collect();
        match vector.iter().all(|value| value.is_finite()) {
            true => Ok(vector),
            false => Err(Error::StateNotFinite),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pooled(pooling: Pooling, normalize: bool, states: &[[f32; 2]]) -> Result<Vec<f32>, Error> {
        let mut pool = EmbeddingPooler::new(Embed { pooling: Some(pooling), normalize }, None);
        pool.add(states.iter().map(|state| &state[..]));
        pool.finish()
    }

    #[test]
    fn means_are_divided_by_their_count_or_their_length() {
        let states = [[1.0, 6.0], [5.0, 2.0]];
        assert_eq!(pooled(Pooling::Mean, false, &states).unwrap(), [3.0, 4.0]);
        assert_eq!(pooled(Pooling::Mean, true, &states).unwrap(), [0.6, 0.8]);
        assert_eq!(pooled(Pooling::Last, true, &[[0.0, 0.0]]).unwrap(), [0.0, 0.0]);
        let broken = pooled(Pooling::Last, false, &[[f32::NAN, 0.0]]);
        assert!(matches!(broken, Err(Error::StateNotFinite)));
    }

    #[test]
    fn requests_say_then_the_checkpoint_then_the_last_token() {
        let all = |asked, own| {
            EmbeddingPooler::new(Embed { pooling: asked, normalize: false }, own).wants_all()
        };
        assert!(all(Some(Pooling::Mean), Some(Pooling::Last)));
        assert!(all(None, Some(Pooling::Mean)));
        assert!(!all(None, None));
    }
}
