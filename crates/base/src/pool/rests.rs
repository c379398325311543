//! Which workers sit out. A worker whose core is taken away in the middle of its work keeps all
//! others waiting for as long as another process has the core; it is better to do without it for
//! a while, longer each time that it happens again.

use std::time::{Duration, Instant};

/// First rest of a worker that was in the way.
const SHORTEST: Duration = Duration::from_millis(2);
/// Longest rest, after which it is tried again: what others do with the core may have ended.
const LONGEST: Duration = Duration::from_secs(1);
/// Being in the way this soon after a rest, or as soon as the rest was long, shows that nothing changed.
const SOON: Duration = Duration::from_millis(50);

/// The rests of all workers.
#[derive(Debug)]
pub(super) struct Rests {
    workers: Vec<Rest>,
    /// Workers that rest now.
    resting: usize,
}

/// The last rest of one worker.
#[derive(Clone, Copy, Debug, Default)]
struct Rest {
    length: Duration,
    end: Option<Instant>,
    resting: bool,
}

impl Rests {
    /// Nobody rests.
    pub fn new(workers: usize) -> Self {
        Self { workers: vec![Rest::default(); workers], resting: 0 }
    }

    /// Whether anybody rests.
    pub fn any(&self) -> bool {
        self.resting > 0
    }

    /// `worker` is in the way of others, so it rests; no longer if it does already.
    pub fn begin(&mut self, worker: usize, now: Instant) {
        let rest = &mut self.workers[worker];
        if rest.resting {
            return;
        }
        let soon = rest.end.is_some_and(|end| now < end + rest.length.max(SOON));
        rest.length = if soon { (2 * rest.length).min(LONGEST) } else { SHORTEST };
        rest.end = Some(now + rest.length);
        rest.resting = true;
        self.resting += 1;
    }

    /// Ends the rests that are over, giving their workers.
    pub fn end(&mut self, now: Instant) -> impl Iterator<Item = usize> {
        let resting = &mut self.resting;
        self.workers.iter_mut().enumerate().filter_map(move |(worker, rest)| {
            let over = rest.resting && rest.end.is_none_or(|end| now >= end);
            if over {
                rest.resting = false;
                *resting -= 1;
            }
            over.then_some(worker)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_grow_while_nothing_changes_and_begin_short_after_that() {
        let (mut rests, mut now) = (Rests::new(2), Instant::now());
        let mut lengths = Vec::new();
        for _ in 0..11 {
            rests.begin(1, now);
            assert!(rests.any() && rests.end(now).next().is_none());
            let begun = now;
            while rests.any() {
                now += Duration::from_millis(1);
                let ended: Vec<_> = rests.end(now).collect();
                assert!(ended.is_empty() || ended == [1]);
            }
            lengths.push((now - begun).as_millis());
            now += Duration::from_millis(3);
        }
        assert_eq!(lengths, [2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 1000]);
        now += 2 * LONGEST;
        rests.begin(1, now);
        assert_eq!(rests.end(now + SHORTEST).collect::<Vec<_>>(), [1]);
    }
}
