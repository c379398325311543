//! The unified difference of two texts.

use crate::printable::printable;
use crate::text_file::{lines, without_end};
use similar::{Algorithm, DiffOp, capture_diff_slices_deadline, group_diff_ops};
use std::fmt::Write;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Lines around a change that a difference shows.
const CONTEXT: usize = 3;

/// After this time a difference is taken as it is: right, but not the shortest.
const MAX_TIME: Duration = Duration::from_secs(1);

/// The lines in which two texts differ: all before and all after them are the same.
pub(crate) struct Region {
    pub before: Range<usize>,
    pub after: Range<usize>,
}

/// The difference of two texts in the unified format, with `name` for both and in printable form;
/// empty if the texts are the same.
pub fn difference(name: &str, before: &[u8], after: &[u8]) -> String {
    let (before, after) = (lines(before), lines(after));
    let region = region(&before, &after);
    // The same lines around the region need not be compared again, but for the context.
    let start = region.before.start.saturating_sub(CONTEXT);
    let old = &before[start..(region.before.end + CONTEXT).min(before.len())];
    let new = &after[start..(region.after.end + CONTEXT).min(after.len())];
    let groups = group_diff_ops(changes(old, new), CONTEXT);
    let mut text = String::new();
    for group in groups.iter().filter(|group| !group.is_empty()) {
        if text.is_empty() {
            text = format!("--- {name}\n+++ {name}\n");
        }
        add_hunk(&mut text, start, group, old, new);
    }
    text
}

/// The operations that make `old` into `new`.
pub(crate) fn changes(old: &[&[u8]], new: &[&[u8]]) -> Vec<DiffOp> {
    let deadline = Some(Instant::now() + MAX_TIME);
    capture_diff_slices_deadline(Algorithm::Myers, old, new, deadline)
}

/// The lines in which `before` and `after` differ.
pub(crate) fn region(before: &[&[u8]], after: &[&[u8]]) -> Region {
    let same = |(a, b): &(&&[u8], &&[u8])| a == b;
    let start = before.iter().zip(after).take_while(same).count();
    let rest = before[start..].iter().rev().zip(after[start..].iter().rev());
    let end = rest.take_while(same).count();
    Region { before: start..before.len() - end, after: start..after.len() - end }
}

fn add_hunk(text: &mut String, start: usize, group: &[DiffOp], old: &[&[u8]], new: &[&[u8]]) {
    let before = covering(group.iter().map(DiffOp::old_range));
    let after = covering(group.iter().map(DiffOp::new_range));
    let (first, second) = (span(start, &before), span(start, &after));
    writeln!(text, "@@ -{first} +{second} @@").expect("a string takes all text");
    for op in group {
        if let DiffOp::Equal { .. } = op {
            add_lines(text, ' ', &old[op.old_range()]);
        } else {
            add_lines(text, '-', &old[op.old_range()]);
            add_lines(text, '+', &new[op.new_range()]);
        }
    }
}

fn covering(ranges: impl Iterator<Item = Range<usize>>) -> Range<usize> {
    let joined = ranges.reduce(|all, range| all.start.min(range.start)..all.end.max(range.end));
    joined.unwrap_or_default()
}

/// The first line and the number of lines, as heads of hunks have them: an empty span has the
/// number of the line before it.
fn span(start: usize, range: &Range<usize>) -> String {
    let first = start + range.start + usize::from(!range.is_empty());
    format!("{first},{}", range.len())
}

fn add_lines(text: &mut String, sign: char, lines: &[&[u8]]) {
    for line in lines {
        text.push(sign);
        text.push_str(&printable(without_end(line)));
        text.push('\n');
        if !line.ends_with(b"\n") {
            text.push_str("\\ No newline at end of file\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn a_difference_has_the_lines_around_each_change() {
        let before: String = (1..=30).map(|line| format!("line {line}\n")).collect();
        let after = before.replace("line 2\n", "").replace("line 25\n", "new\n");
        let expected = "--- a\n+++ a\n@@ -1,5 +1,4 @@\n line 1\n-line 2\n line 3\n line 4\n \
            line 5\n\
            @@ -22,7 +21,7 @@\n line 22\n line 23\n line 24\n-line 25\n+new\n line 26\n line 27\n \
            line 28\n";
        let expected = expected.replace("\n \n", "\n");
        assert_eq!(difference("a", before.as_bytes(), after.as_bytes()), expected);
        assert_eq!(difference("a", b"x", b"x"), "");
        let added = "--- a\n+++ a\n@@ -0,0 +1,1 @@\n+x\n\\ No newline at end of file\n";
        assert_eq!(difference("a", b"", b"x"), added);
    }
}
