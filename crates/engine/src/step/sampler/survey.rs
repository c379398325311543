//! Survey of a row of logits: one pass finds the maxima of its columns ([`kernels::sampling`]),
//! which spare later queries most of the row.

use kernels::Isa;
use kernels::sampling::{COLUMNS, RUN, survey};
use std::cmp::Ordering;

/// A logit and its id.
pub(super) type Candidate = (f32, u32);

/// The order of candidates: best first, of equals the lower id.
pub(super) fn better(a: &Candidate, b: &Candidate) -> Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

#[derive(Debug)]
pub(super) struct Survey {
    isa: Isa,
    maxima: Vec<[f32; COLUMNS]>,
    /// The largest logit.
    pub best: f32,
    /// Scratch of `floor`.
    order: Vec<f32>,
}

impl Survey {
    /// For rows of `vocab_size` logits.
    pub fn new(isa: Isa, vocab_size: usize) -> Self {
        let runs = vocab_size.div_ceil(RUN);
        Self {
            isa,
            maxima: vec![[0.0; COLUMNS]; runs],
            best: 0.0,
            order: Vec::with_capacity(runs * COLUMNS),
        }
    }

    /// Surveys `logits`, to which later queries refer. Returns whether all are finite; the queries
    /// are valid with minus infinity too.
    pub fn look(&mut self, logits: &[f32]) -> bool {
        let mut finite = false;
        survey(self.isa, logits, &mut self.maxima, &mut finite);
        self.best = self.maxima.as_flattened().iter().copied().fold(f32::NEG_INFINITY, f32::max);
        finite
    }

    /// The id of the largest logit, the lowest of equals.
    pub fn argmax(&self, logits: &[f32]) -> u32 {
        let run = self.maxima.iter().position(|maxima| maxima.contains(&self.best)).unwrap_or(0);
        let within = logits[run * RUN..].iter().position(|logit| *logit == self.best);
        (run * RUN + within.unwrap_or(0)) as u32
    }

    /// Replaces `items` by the `count` best that are not minus infinity, best first.
    pub fn list_best(&mut self, logits: &[f32], count: usize, items: &mut Vec<Candidate>) {
        let least = self.floor(count);
        items.clear();
        for ((run, maxima), first) in logits.chunks(RUN).zip(&self.maxima).zip((0..).step_by(RUN)) {
            for column in (0..COLUMNS).filter(|column| maxima[*column] >= least) {
                let ids = (column..run.len()).step_by(COLUMNS).filter(|at| run[*at] >= least);
                // Adding 0 turns -0 into 0: they are equal, so their ids decide.
                items.extend(ids.map(|at| (run[at] + 0.0, (first + at) as u32)));
            }
        }
        if count < items.len() {
            items.select_nth_unstable_by(count, better);
            items.truncate(count);
        }
        items.sort_unstable_by(better);
    }

    /// A value that at least `count` logits reach, and not many more: the maximum of as many
    /// columns.
    fn floor(&mut self, count: usize) -> f32 {
        self.order.clear();
        self.order.extend_from_slice(self.maxima.as_flattened());
        if count >= self.order.len() {
            return f32::MIN;
        }
        let nth = count.saturating_sub(1);
        let (_, floor, _) = self.order.select_nth_unstable_by(nth, |a, b| b.total_cmp(a));
        floor.max(f32::MIN)
    }
}
