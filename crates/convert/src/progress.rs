//! Progress and cancellation of long work.

use base::Interrupted;

/// Receives the progress of long work. `()` ignores it.
pub trait WorkProgress {
    /// Begins work of `total` units: bytes of weights or tokens of text.
    fn start(&mut self, _total: u64) {}

    /// Names the part that comes next, such as a tensor.
    fn part(&mut self, _name: &str) {}

    /// Adds `units` to what is done.
    fn advance(&mut self, _units: u64) {}

    /// Reports a message to the user, such as a warning.
    fn note(&mut self, _text: &str) {}

    /// Called between small parts of the work.
    ///
    /// # Errors
    ///
    /// [`Interrupted`] ends the work.
    fn check(&self) -> Result<(), Interrupted> {
        Ok(())
    }
}

impl WorkProgress for () {}
