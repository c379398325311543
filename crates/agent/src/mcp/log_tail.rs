//! The last lines that a server has written besides its messages.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Lines that are kept.
const MAX_LINES: usize = 10;
/// Bytes that are kept of a line.
const MAX_LINE_BYTES: usize = 300;

/// The last lines, shared by the tasks that read them and the one that reports.
#[derive(Debug, Default)]
pub(super) struct LogTail(Mutex<LogLines>);

#[derive(Debug, Default)]
struct LogLines {
    whole: VecDeque<Vec<u8>>,
    begun: Vec<u8>,
}

impl LogTail {
    /// Adds bytes of standard error, which may end within a line.
    pub(super) fn add(&self, bytes: &[u8]) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let left = MAX_LINE_BYTES.saturating_sub(lines.begun.len());
            let text = part.strip_suffix(b"\n").unwrap_or(part);
            lines.begun.extend_from_slice(&text[..text.len().min(left)]);
            if part.ends_with(b"\n") {
                let line = std::mem::take(&mut lines.begun);
                lines.push(line);
            }
        }
    }

    /// Adds a line of standard output that is no message.
    pub(super) fn add_line(&self, line: &[u8]) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push(line[..line.len().min(MAX_LINE_BYTES)].to_vec());
    }

    /// The lines, as the server wrote them.
    pub(super) fn text(&self) -> Vec<u8> {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = Some(&lines.begun).filter(|line| !line.is_empty());
        let lines: Vec<&[u8]> = lines.whole.iter().chain(begun).map(Vec::as_slice).collect();
        lines.join(&b'\n')
    }
}

impl LogLines {
    fn push(&mut self, line: Vec<u8>) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        self.whole.push_back(line);
        if self.whole.len() > MAX_LINES {
            self.whole.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_and_long_ones_are_cut() {
        let tail = LogTail::default();
        for line in 0..30 {
            tail.add(format!("line {line}\n\n").as_bytes());
        }
        tail.add(b"be");
        tail.add(b"gun");
        let text = String::from_utf8(tail.text()).unwrap();
        assert!(text.starts_with("line 20\n") && text.ends_with("line 29\nbegun"), "{text}");
        tail.add(&vec![b'x'; 1 << 20]);
        tail.add(b"\n");
        assert!(tail.text().len() <= 11 * (MAX_LINE_BYTES + 1));
    }
}
