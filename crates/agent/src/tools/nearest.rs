//! The passage of a text that is most like one that does not occur in it.

use crate::text_file::lines;
use similar::{Algorithm, capture_diff_slices_deadline, diff_ratio};
use std::collections::HashMap;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Lines of the passage that places are looked for by: its longest, which say most.
const MAX_PROBES: usize = 8;

/// Places that are compared in full.
const MAX_CANDIDATES: usize = 8;

/// Bytes of a line and of a passage that are compared.
const MAX_LINE_BYTES: usize = 400;
const MAX_PASSAGE_BYTES: usize = 4096;

/// Below this share of equal bytes a place is not like the passage.
const MIN_LIKENESS: f32 = 0.5;

/// Time for comparing one place.
const MAX_TIME: Duration = Duration::from_millis(100);

/// The lines of `text` that are most like `passage`, as indices; `None` if none are like it.
pub(crate) fn nearest(text: &[u8], passage: &[u8]) -> Option<Range<usize>> {
    let (all, wanted) = (lines(text), lines(passage));
    let starts = candidates(&all, &wanted);
    let place = |start: usize| start..(start + wanted.len()).min(all.len());
    let rated = starts.into_iter().map(|start| (likeness(&all[place(start)], &wanted), start));
    let best = rated.filter(|(likeness, _)| *likeness >= MIN_LIKENESS);
    // Of equals the first.
    best.reduce(|best, next| if next.0 > best.0 { next } else { best }).map(|best| place(best.1))
}

/// First lines of the places whose lines are most like the longest of `wanted`.
fn candidates(all: &[&[u8]], wanted: &[&[u8]]) -> Vec<usize> {
    let mut probes: Vec<usize> = (0..wanted.len()).collect();
    probes.sort_by_key(|at| std::cmp::Reverse(wanted[*at].trim_ascii().len()));
    probes.truncate(MAX_PROBES);
    let probes: Vec<(usize, Vec<u16>)> =
        probes.into_iter().map(|at| (at, pairs(wanted[at]))).collect();
    let mut scores: HashMap<usize, f32> = HashMap::new();
    for (at, line) in all.iter().enumerate() {
        let line = pairs(line);
        for (offset, probe) in probes.iter().filter(|(offset, _)| *offset <= at) {
            let score = shared(&line, probe);
            if score > 0.0 {
                *scores.entry(at - offset).or_default() += score;
            }
        }
    }
    let mut starts: Vec<(usize, f32)> = scores.into_iter().collect();
    starts.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    starts.into_iter().take(MAX_CANDIDATES).map(|(start, _)| start).collect()
}

/// Pairs of bytes that follow each other in a line, sorted.
fn pairs(line: &[u8]) -> Vec<u16> {
    let line = line.trim_ascii();
    let line = &line[..line.len().min(MAX_LINE_BYTES)];
    let mut pairs: Vec<u16> =
        line.windows(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
    pairs.sort_unstable();
    pairs
}

/// The share of pairs that two lines have in common.
fn shared(a: &[u16], b: &[u16]) -> f32 {
    let (mut i, mut j, mut common) = (0, 0, 0);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        i += usize::from(x <= y);
        j += usize::from(y <= x);
        common += usize::from(x == y);
    }
    2.0 * common as f32 / (a.len() + b.len()).max(1) as f32
}

/// The share of equal bytes of two passages, without white space at both ends of lines.
fn likeness(a: &[&[u8]], b: &[&[u8]]) -> f32 {
    let (a, b) = (trimmed(a), trimmed(b));
    let deadline = Some(Instant::now() + MAX_TIME);
    let ops = capture_diff_slices_deadline(Algorithm::Myers, &a, &b, deadline);
    diff_ratio(&ops, a.len(), b.len())
}

fn trimmed(lines: &[&[u8]]) -> Vec<u8> {
    let lines: Vec<&[u8]> = lines.iter().map(|line| line.trim_ascii()).collect();
    let mut text = lines.join(&b'\n');
    text.truncate(MAX_PASSAGE_BYTES);
    text
}
