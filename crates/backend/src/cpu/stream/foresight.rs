//! Whether guesses of experts are of use.

/// Guesses after which it is decided whether they are of use.
const JUDGED: u32 = 64;
/// Steps without guesses after many that were not used.
const PAUSE: u64 = 256;

/// What has become of the latest guesses.
#[derive(Default)]
pub(super) struct Foresight {
    read: u32,
    used: u32,
    /// The first step with guesses.
    pub(super) from: u64,
}

impl Foresight {
    /// Counts guesses that were read, or used.
    pub fn note(&mut self, step: u64, read: u32, used: u32) {
        self.read += read;
        self.used += used;
        if self.read >= JUDGED {
            if 2 * self.used < self.read {
                self.from = step + PAUSE;
            }
            (self.read, self.used) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guesses_that_are_not_used_pause() {
        let mut foresight = Foresight::default();
        (0..JUDGED).for_each(|at| foresight.note(5, 1, at % 2));
        assert_eq!(foresight.from, 0, "half of them were used");
        (0..JUDGED).for_each(|at| foresight.note(9, 1, u32::from(at % 3 == 0)));
        assert_eq!(foresight.from, 9 + PAUSE);
    }
}
