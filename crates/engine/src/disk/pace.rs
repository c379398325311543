//! What it costs to compute tokens, and to read them.

/// Part of the time of computing that restoring may take.
const WORTH: f64 = 0.8;

/// What it costs to compute, and to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Seconds to compute a row of a prompt, if they were measured.
    pub row: Option<f64>,
    /// Bytes a second that the store reads.
    pub rate: u64,
}

impl Pace {
    /// Whether reading `bytes` takes clearly less time than computing `tokens`.
    pub fn is_worth(&self, bytes: usize, tokens: usize) -> bool {
        let read = bytes as f64 / self.rate as f64;
        self.row.is_none_or(|row| read < WORTH * row * tokens as f64)
    }

    /// Microseconds that `tokens` take to compute.
    pub fn micros(&self, tokens: usize) -> u64 {
        (self.row.unwrap_or_default() * 1e6 * tokens as f64) as u64
    }
}
