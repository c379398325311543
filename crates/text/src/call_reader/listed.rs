//! Calls that are JSON objects, alone or in an array: Hermes, Llama 3, older Mistral.

use super::Flow;
use super::call::Call;
use super::envelope::Envelope;

/// The state of reading one.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    envelope: Envelope,
    /// The object has not begun.
    waiting: bool,
    /// An array may begin before it.
    array: bool,
}

impl Listed {
    /// For what begins with `literal`; `lenient`: unknown keys are let pass.
    pub fn new(literal: &str, lenient: bool) -> Self {
        let mut envelope = Envelope::new(lenient);
        let inside = literal == "{";
        if inside {
            envelope.open();
        }
        let array = !matches!(literal, "[" | "<tool_call>");
        Listed { envelope, waiting: !inside, array }
    }

    pub fn push(&mut self, c: char, call: &mut Call) -> Flow {
        if self.waiting {
            if c.is_whitespace() {
                return Flow::More;
            }
            if c == '[' && std::mem::take(&mut self.array) {
                return Flow::More;
            }
            self.waiting = false;
        }
        self.envelope.push(c, call).into()
    }

    pub fn finish(&mut self, call: &mut Call) -> bool {
        self.envelope.finish(call)
    }
}
