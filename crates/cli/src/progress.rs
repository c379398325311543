//! Progress bars on standard error, where it is a terminal.

use crate::interrupt::Watch;
#[cfg(feature = "tools")]
use crate::output;
#[cfg(feature = "tools")]
use base::Interrupted;
#[cfg(feature = "tools")]
use convert::WorkProgress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar over `total` bytes.
pub(crate) fn bytes(total: u64) -> ProgressBar {
    bar(total, "{msg} [{bar:32}] {bytes}/{total_bytes} {bytes_per_sec} {eta}")
}

/// A bar over `total` units.
pub(crate) fn count(total: u64) -> ProgressBar {
    bar(total, "{msg} [{bar:32}] {pos}/{len} {per_sec} {eta}")
}

/// A bar over `total` tokens.
pub(crate) fn tokens(total: u64) -> ProgressBar {
    bar(total, "{msg} [{bar:32}] {pos}/{len} tokens {per_sec} {eta} left")
}

/// A bar over `total` lines, whose message is the rate.
pub(crate) fn lines(total: u64) -> ProgressBar {
    bar(total, "[{bar:32}] {pos}/{len} lines {msg} {eta}")
}

fn bar(total: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("a constant template");
    // At most ten times per second; indicatif draws nothing where there is no terminal.
    let target = ProgressDrawTarget::stderr_with_hz(10);
    ProgressBar::with_draw_target(Some(total), target).with_style(style.progress_chars("=> "))
}

/// Shows long work as a bar, and interrupts it after Ctrl-C.
#[derive(Debug)]
pub(crate) struct Task {
    bar: ProgressBar,
    /// Until the work starts, Ctrl-C ends the process.
    watch: Option<Watch>,
}

impl Task {
    /// Work that `bar` shows; its length is set when the work starts.
    pub fn new(bar: ProgressBar) -> Self {
        Self { bar, watch: None }
    }

    /// The bar, which is removed with this value.
    pub fn bar(&self) -> &ProgressBar {
        &self.bar
    }
}

#[cfg(feature = "tools")]
impl WorkProgress for Task {
    fn start(&mut self, total: u64) {
        self.bar.set_length(total);
        self.bar.reset_eta();
        self.watch = Some(Watch::new());
    }

    fn part(&mut self, name: &str) {
        self.bar.set_message(name.to_owned());
    }

    fn advance(&mut self, units: u64) {
        self.bar.inc(units);
    }

    fn note(&mut self, text: &str) {
        self.bar.suspend(|| output::note(format_args!("{text}")));
    }

    fn check(&self) -> Result<(), Interrupted> {
        self.watch.as_ref().map_or(Ok(()), Watch::check)
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
