//! A channel from one rank to another, which holds one piece of a message at a time.
//!
//! Invariant: only the sender fills the channel and only the receiver empties it. A message is
//! refused only while its sender has more pieces of it to send.

use super::lock::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};

/// Most values of a contribution or of a piece of a message: 64 KiB.
pub(super) const PIECE: usize = 1 << 14;

const EMPTY: u8 = 0;
const FULL: u8 = 1;
/// The receiver expects another length and takes no more of this message.
const REFUSED: u8 = 2;

/// Holds at most one piece.
#[derive(Debug, Default)]
pub(super) struct PieceChannel {
    state: AtomicU8,
    piece: Mutex<SentPiece>,
}

#[derive(Debug, Default)]
struct SentPiece {
    /// Values of the whole message; of the one expected instead, if it is refused.
    total: usize,
    values: Vec<f32>,
}

impl PieceChannel {
    /// Whether there is a piece to take.
    pub fn is_full(&self) -> bool {
        self.state.load(Ordering::Acquire) == FULL
    }

    /// Puts a piece of a message of `total` values into the channel, which is not full.
    ///
    /// # Errors
    /// The length that the receiver expects instead.
    pub fn put(&self, total: usize, values: &[f32]) -> Result<(), usize> {
        let mut piece = lock(&self.piece);
        if self.state.load(Ordering::Acquire) == REFUSED {
            self.state.store(EMPTY, Ordering::Release);
            return Err(piece.total);
        }
        piece.total = total;
        piece.values.clear();
        piece.values.extend_from_slice(values);
        self.state.store(FULL, Ordering::Release);
        Ok(())
    }

    /// Takes the piece out of the full channel as part of a message of `expected` values.
    ///
    /// # Errors
    /// The length that the message has instead.
    pub fn take(&self, expected: usize, values: &mut [f32]) -> Result<(), usize> {
        let mut piece = lock(&self.piece);
        let found = piece.total;
        if found == expected {
            values.copy_from_slice(&piece.values);
            self.state.store(EMPTY, Ordering::Release);
            return Ok(());
        }
        piece.total = expected;
        let state = if found > PIECE { REFUSED } else { EMPTY };
        self.state.store(state, Ordering::Release);
        Err(found)
    }
}
