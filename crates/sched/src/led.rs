//! Sequences that are led by their caller: it gives tokens, gets outputs, and chooses the next
//! tokens itself.
//!
//! While the caller chooses, the sequence is one with a slow reader. It is no part of plans, others
//! may preempt it, and what was computed of it stays in the cache by name.

use crate::scheduler::Scheduler;
use crate::sequence::{PromptOutput, SequencePhase};
use crate::slot::Slot;

impl Scheduler {
    /// Has a sequence wait for its caller. All its tokens are computed.
    ///
    /// # Panics
    /// If tokens of it are pending.
    pub fn wait(&mut self, slot: Slot) {
        let sequence = &mut self.sequences[slot];
        assert!(sequence.pending() == 0 && !sequence.waits, "{slot:?} is computed and runs");
        (sequence.waits, sequence.ready) = (true, false);
        self.led += 1;
    }

    /// Continues a sequence that waits for its caller with further tokens, at least one. Their rows
    /// need outputs as `output` says.
    ///
    /// # Panics
    /// If the sequence does not wait, or would exceed its capacity.
    pub fn resume(&mut self, slot: Slot, tokens: &[u32], output: PromptOutput) {
        let sequence = &mut self.sequences[slot];
        assert!(sequence.waits, "{slot:?} waits for its caller");
        (sequence.waits, sequence.ready) = (false, true);
        sequence.extend(tokens, output);
        self.led -= 1;
    }

    /// Shortens a sequence that waits for its caller to its first `len` tokens. Its blocks and its
    /// state go to the cache, the partial last block included, where this sequence and others find
    /// them; so `len` may also be its length.
    ///
    /// # Panics
    /// If the sequence does not wait, or is shorter.
    pub fn truncate(&mut self, slot: Slot, len: usize) {
        assert!(self.sequences[slot].waits, "{slot:?} waits for its caller");
        if self.sequences[slot].phase == SequencePhase::Running {
            self.suspend(slot);
        }
        self.sequences[slot].truncate(len);
    }
}
