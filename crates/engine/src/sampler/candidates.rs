//! Ids still in the running, best first as far as needed.
//!
//! A vocabulary is large and a choice looks at few of its tokens: only a prefix is ever sorted,
//! and grown when a cut-off needs more.

use std::cmp::Ordering;

/// How many are sorted at first.
const FIRST: usize = 256;

#[derive(Debug)]
pub(super) struct Candidates {
    /// (logit, id); the first `sorted` are the best ones, best first.
    items: Vec<(f32, u32)>,
    sorted: usize,
    /// Scratch of `typical`.
    shifted: Vec<(f32, usize)>,
}

fn better(a: &(f32, u32), b: &(f32, u32)) -> Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

impl Candidates {
    pub fn new(vocab_size: usize) -> Self {
        Self {
            items: Vec::with_capacity(vocab_size),
            sorted: 0,
            shifted: Vec::with_capacity(vocab_size),
        }
    }

    pub fn fill(&mut self, logits: &[f32]) {
        self.items.clear();
        let possible = logits.iter().zip(0..).filter(|(logit, _)| **logit > f32::NEG_INFINITY);
        self.items.extend(possible.map(|(&logit, id)| (logit, id)));
        if self.items.is_empty() {
            // Everything was banned: the ban cannot be kept.
            self.items.extend(logits.iter().zip(0..).map(|(_, id)| (0.0, id)));
        }
        self.sorted = 0;
    }

    /// Sorts at least the `count` best.
    fn sort(&mut self, count: usize) {
        let count = count.min(self.items.len());
        if count <= self.sorted {
            return;
        }
        let rest = &mut self.items[self.sorted..];
        let wanted = count - self.sorted;
        if wanted < rest.len() {
            rest.select_nth_unstable_by(wanted - 1, better);
        }
        rest[..wanted].sort_unstable_by(better);
        self.sorted = count;
    }

    fn keep(&mut self, count: usize) {
        self.sort(count);
        self.items.truncate(count.max(1));
        self.sorted = self.sorted.min(self.items.len());
    }

    pub fn top_k(&mut self, k: usize) {
        if k > 0 && k < self.items.len() {
            self.keep(k);
        }
    }

    /// The smallest prefix whose mass reaches `p`.
    pub fn top_p(&mut self, p: f32) {
        if p >= 1.0 {
            return;
        }
        self.sort(1);
        let best = self.items[0].0;
        let weight = |item: &(f32, u32)| f64::from(item.0 - best).exp();
        let target = self.items.iter().map(weight).sum::<f64>() * f64::from(p);
        let (mut mass, mut count) = (0.0, 0);
        while count < self.items.len() && (count == 0 || mass < target) {
            if count == self.sorted {
                self.sort((self.sorted * 2).max(FIRST));
            }
            mass += weight(&self.items[count]);
            count += 1;
        }
        self.keep(count);
    }

    /// Those at least `p` times as likely as the best.
    pub fn min_p(&mut self, p: f32) {
        if p <= 0.0 {
            return;
        }
        self.sort(1);
        let least = self.items[0].0 + p.ln();
        // The best one stays whatever rounding says.
        let mut index = 0;
        self.items.retain(|item| {
            index += 1;
            index == 1 || item.0 >= least
        });
        self.sorted = 1;
    }

    /// The locally typical set of mass `p` (Meister et al., 2022): those whose surprise is
    /// closest to the entropy.
    pub fn typical(&mut self, p: f32) {
        if p >= 1.0 {
            return;
        }
        self.sort(self.items.len());
        let best = self.items[0].0;
        let total: f64 = self.items.iter().map(|i| f64::from(i.0 - best).exp()).sum();
        let log_total = total.ln();
        let log_prob = |item: &(f32, u32)| f64::from(item.0 - best) - log_total;
        let entropy: f64 = self.items.iter().map(|i| -log_prob(i) * log_prob(i).exp()).sum();
        self.shifted.clear();
        self.shifted.extend(
            self.items.iter().enumerate().map(|(i, c)| ((-log_prob(c) - entropy).abs() as f32, i)),
        );
        self.shifted.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let (mut mass, mut count) = (0.0, 0);
        for &(_, index) in &self.shifted {
            count += 1;
            mass += log_prob(&self.items[index]).exp();
            if mass >= f64::from(p) {
                break;
            }
        }
        self.shifted.truncate(count);
        // Kept ones move to the front in their order of likelihood.
        self.shifted.sort_unstable_by_key(|&(_, index)| index);
        for (to, &(_, from)) in self.shifted.iter().enumerate() {
            self.items[to] = self.items[from];
        }
        self.items.truncate(count);
        self.sorted = count;
    }

    /// Draws with probabilities at `temperature`; `uniform` in [0, 1) decides.
    pub fn draw(&mut self, temperature: f32, uniform: f64) -> u32 {
        self.sort(1);
        let best = self.items[0].0;
        let weight = |item: &(f32, u32)| f64::from((item.0 - best) / temperature).exp();
        let target = self.items.iter().map(weight).sum::<f64>() * uniform;
        let (mut mass, mut at) = (0.0, 0);
        loop {
            if at == self.sorted {
                self.sort((self.sorted * 2).max(FIRST));
            }
            mass += weight(&self.items[at]);
            if mass > target || at + 1 == self.items.len() {
                return self.items[at].1;
            }
            at += 1;
        }
    }
}
