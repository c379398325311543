//! Progress bars on standard error; none where it is not a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

const BYTES: &str = "{msg} [{bar:32}] {bytes}/{total_bytes} {bytes_per_sec} {eta}";
const COUNT: &str = "{msg} [{bar:32}] {pos}/{len} {per_sec} {eta}";
const LINES: &str = "[{bar:32}] {pos}/{len} lines {msg} {eta}";

/// A bar over `total` bytes.
pub(crate) fn bytes(total: u64) -> ProgressBar {
    bar(total, BYTES)
}

/// A bar over `total` things.
pub(crate) fn count(total: u64) -> ProgressBar {
    bar(total, COUNT)
}

/// A bar over `total` lines, whose message is how fast they are answered.
pub(crate) fn lines(total: u64) -> ProgressBar {
    bar(total, LINES)
}

fn bar(total: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("a constant template");
    // Ten times a second at most; indicatif itself draws nothing where there is no terminal.
    let target = ProgressDrawTarget::stderr_with_hz(10);
    ProgressBar::with_draw_target(Some(total), target).with_style(style.progress_chars("=> "))
}
