//! What the handle of a led sequence sends to the engine.

use sched::PromptOutput;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Names a led sequence in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LedId(u64);

impl LedId {
    /// An id that no other led sequence has.
    pub(crate) fn unused() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The part of a submission that concerns a led sequence.
#[derive(Clone, Copy, Debug)]
pub enum LedMessage {
    /// A sequence begins with the prompt of the request.
    Begin(LedBeginning),
    /// A sequence that waits for its caller continues.
    Continue(LedId, LedTurn),
}

/// The beginning of a led sequence.
#[derive(Clone, Copy, Debug)]
pub struct LedBeginning {
    /// The sequence.
    pub id: LedId,
    /// Which rows of the prompt need outputs.
    pub output: PromptOutput,
    /// Tokens at the beginning of the prompt whose rows need none.
    pub known: usize,
    /// Maximum number of tokens.
    pub capacity: usize,
    /// Time without a turn after which the sequence ends.
    pub idle: Duration,
}

/// How a led sequence continues.
#[derive(Clone, Copy, Debug)]
pub enum LedTurn {
    /// The prompt of the request is appended; these of its rows need outputs.
    Push(PromptOutput),
    /// The sequence is shortened to so many tokens, and what was computed of it is shared.
    Truncate(usize),
    /// The sequence ends.
    End,
}
