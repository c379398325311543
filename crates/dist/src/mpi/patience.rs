//! Waiting for another rank: looking again at once, then after others have run, then after pauses.
//! Without pauses, ranks that share processors wait for each other's time slices.

use std::time::Duration;

/// Looks before the processor is given to others.
const LOOKS: u32 = 500;
/// Looks before pauses.
const YIELDS: u32 = 1000;
const PAUSE: Duration = Duration::from_micros(50);

/// How long a rank has waited.
#[derive(Debug, Default)]
pub(super) struct Patience {
    looks: u32,
}

impl Patience {
    /// Waits before the next look.
    pub fn pause(&mut self) {
        match self.looks {
            0..LOOKS => std::hint::spin_loop(),
            LOOKS..YIELDS => std::thread::yield_now(),
            _ => std::thread::sleep(PAUSE),
        }
        self.looks = self.looks.saturating_add(1);
    }
}
