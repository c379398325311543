//! The engine's side of sequences that their callers lead.

use crate::observe::outcome::Outcome;
use crate::request::led_turn::{LedBeginning, LedId, LedTurn};
use crate::step::run::Engine;
use sched::Slot;

impl Engine {
    /// Notes a sequence that its caller leads.
    pub(super) fn begin_led(&mut self, led: Option<LedBeginning>, slot: Slot) {
        let Some(LedBeginning { id, .. }) = led else { return };
        self.led.insert(id, slot);
        if self.runner.is_encoder() {
            let problem = "a model that reads whole texts has no sequences that grow";
            self.remove(slot, Some(Outcome::Failed(problem.into())));
        }
    }

    /// Continues a led sequence, unless it has ended.
    pub(super) fn continue_led(&mut self, id: LedId, turn: LedTurn, tokens: &[u32]) {
        let Some(&slot) = self.led.get(&id) else { return };
        let running = &mut self.requests[slot];
        if let Some(outcome) = running.abort_reason() {
            return self.remove(slot, Some(outcome));
        }
        match turn {
            LedTurn::Push(output) => {
                running.resume(output);
                self.scheduler.resume(slot, tokens, output);
            }
            LedTurn::Truncate(len) => self.scheduler.truncate(slot, len),
            LedTurn::End => self.remove(slot, Some(Outcome::Complete)),
        }
    }
}
