//! The thread that reads keys.
//!
//! Invariant: crossterm is asked for keys only while the terminal is there. It would read the end
//! of one that has hung up for ever.

use super::input::Input;
use super::poll::{self, KeyState};
use crossterm::event::{self, Event};
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::Duration;

/// Longest wait for a key, after which a thread that is over ends.
const TICK: Duration = Duration::from_millis(50);
/// Wait for keys that another thread reads.
const PAUSE: Duration = Duration::from_millis(10);

/// Reads keys until the terminal is over or gone.
pub(super) fn read(keys: &SyncSender<Event>, wake: &Weak<SyncSender<Input>>, is_over: &AtomicBool) {
    loop {
        let state = poll::wait(TICK);
        if is_over.load(Ordering::Relaxed) || state == KeyState::Gone {
            return;
        }
        let mut has_read = false;
        // Without keys there may be a change of the size, which would hide the keys after it.
        while event::poll(Duration::ZERO).unwrap_or_default() {
            let Ok(event) = event::read() else { return };
            has_read = true;
            if keys.send(event).is_err() {
                return;
            }
            if let Some(wake) = wake.upgrade() {
                // A full channel wakes the thread as well.
                let _ = wake.try_send(Input::Keys);
            }
        }
        if !has_read && state == KeyState::Ready {
            poll::nudge();
            thread::sleep(PAUSE);
        }
    }
}
