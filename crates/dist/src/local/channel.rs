//! A channel from one rank to another, which holds a few pieces of messages.
//!
//! Invariant: only the sender adds pieces and only the receiver takes them.

use crate::call::WINDOW;
use crate::lock::lock;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Holds pieces in the order in which they were sent.
#[derive(Debug, Default)]
pub(super) struct PieceChannel {
    pieces: AtomicUsize,
    queue: Mutex<Pieces>,
}

#[derive(Debug, Default)]
struct Pieces {
    sent: VecDeque<SentPiece>,
    /// Memory for others.
    spare: Vec<SentPiece>,
}

#[derive(Debug, Default)]
struct SentPiece {
    /// Values of the whole message.
    total: usize,
    values: Vec<f32>,
}

impl PieceChannel {
    /// Whether there is a piece to take.
    pub fn has_piece(&self) -> bool {
        self.pieces.load(Ordering::Acquire) > 0
    }

    /// Whether no other piece fits.
    pub fn is_full(&self) -> bool {
        self.pieces.load(Ordering::Acquire) == WINDOW
    }

    /// Adds a piece of a message of `total` values to the channel, which is not full.
    pub fn put(&self, total: usize, values: &[f32]) {
        let mut queue = lock(&self.queue);
        let mut piece = queue.spare.pop().unwrap_or_default();
        piece.total = total;
        piece.values.clear();
        piece.values.extend_from_slice(values);
        queue.sent.push_back(piece);
        self.pieces.fetch_add(1, Ordering::Release);
    }

    /// Takes the first piece as part of a message of `expected` values.
    ///
    /// # Errors
    /// The length that the message has instead.
    pub fn take(&self, expected: usize, values: &mut [f32]) -> Result<(), usize> {
        let mut queue = lock(&self.queue);
        let piece = queue.sent.pop_front().expect("a piece has come");
        let found = piece.total;
        if found == expected {
            values.copy_from_slice(&piece.values);
        }
        queue.spare.push(piece);
        self.pieces.fetch_sub(1, Ordering::Release);
        if found == expected { Ok(()) } else { Err(found) }
    }
}
