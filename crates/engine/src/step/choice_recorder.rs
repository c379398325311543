//! Records the logits that the tokens of an answer are chosen from, as a chain of hashes.

use crate::request::answer_record::{AnswerRecord, RecordedChoices};

/// Records the choices of an answer.
///
/// The chain tells answers apart that differ by accident. Whoever knows the logits could find
/// others with the same hash; whoever has computed none cannot know the hash.
#[derive(Debug)]
pub(crate) struct ChoiceRecorder {
    record: AnswerRecord,
    /// Hash of all logits so far.
    chain: u64,
}

impl ChoiceRecorder {
    /// Records into `record`.
    pub fn new(record: AnswerRecord) -> Self {
        Self { record, chain: 0 }
    }

    /// Adds the logits of a choice, and whether it was greedy whatever the options said.
    pub fn add(&mut self, logits: &[f32], greedy: bool) {
        self.chain = roll(self.chain, logits);
        self.record.add(self.chain, greedy);
    }

    /// All choices.
    pub fn finish(self) -> RecordedChoices {
        self.record.first(usize::MAX)
    }
}

/// Hash of `before` and the bits of `logits`, in eight lanes for speed, each of which takes two
/// values at a time. A lane's steps can be undone, so that every bit counts.
fn roll(before: u64, logits: &[f32]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut lanes: [u64; 8] = std::array::from_fn(|lane| before ^ lane as u64);
    let add = |lane: &mut u64, low: f32, high: f32| {
        let pair = u64::from(low.to_bits()) | u64::from(high.to_bits()) << u32::BITS;
        *lane = (*lane ^ pair).wrapping_mul(FACTOR).rotate_left(31);
    };
    let (whole, rest) = logits.as_chunks::<16>();
    for values in whole {
        for (at, lane) in lanes.iter_mut().enumerate() {
            add(lane, values[2 * at], values[2 * at + 1]);
        }
    }
    for (lane, pair) in lanes.iter_mut().zip(rest.chunks(2)) {
        add(lane, pair[0], pair.get(1).copied().unwrap_or_default());
    }
    lanes
        .iter()
        .fold(logits.len() as u64, |hash, lane| (hash ^ lane).wrapping_mul(FACTOR).rotate_left(29))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_tells_every_bit_and_every_place() {
        for count in [1, 15, 16, 99] {
            let logits: Vec<f32> = (0..count).map(|i| i as f32).collect();
            let hash = roll(7, &logits);
            assert_eq!(hash, roll(7, &logits));
            assert_ne!(hash, roll(8, &logits));
            assert_ne!(hash, roll(7, &[&logits[..], &[0.0]].concat()));
            for at in 0..count {
                let mut other = logits.clone();
                other[at] = f32::from_bits(other[at].to_bits() ^ 1);
                assert_ne!(hash, roll(7, &other), "{at} of {count}");
            }
        }
        assert_ne!(roll(0, &[0.0, -0.0]), roll(0, &[-0.0, 0.0]));
    }
}
