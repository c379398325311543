//! Which workers sit out. A worker whose core is taken away in the middle of its work keeps all
//! others waiting for as long as another process has the core. Where that takes more time than the
//! worker saves, it is better to do without it for a while, longer each time that it happens again.
//! Now and then is no reason: clients and servers on the same machine take cores for moments.

use std::time::{Duration, Instant};

/// First rest of a worker that was in the way.
const SHORTEST: Duration = Duration::from_millis(2);
/// Longest rest, after which it is tried again: what others do with the core may have ended.
const LONGEST: Duration = Duration::from_secs(1);
/// Being in the way this soon after a rest, or as soon as the rest was long, shows that nothing
/// changed.
const SOON: Duration = Duration::from_millis(5);
/// The same for a worker that others waited for, which is found out later.
const SOON_LATE: Duration = Duration::from_millis(50);
/// Time over which waiting for a worker is set against what it saves.
const WINDOW: Duration = Duration::from_millis(20);

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
    /// Since when waiting for it is counted, and how long that was.
    since: Option<Instant>,
    lost: Duration,
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
        self.begin_again(worker, now, SOON);
    }

    fn begin_again(&mut self, worker: usize, now: Instant, soon: Duration) {
        let rest = &mut self.workers[worker];
        if rest.resting {
            return;
        }
        let soon = rest.end.is_some_and(|end| now < end + rest.length.max(soon));
        rest.length = if soon { (2 * rest.length).min(LONGEST) } else { SHORTEST };
        rest.end = Some(now + rest.length);
        rest.resting = true;
        (rest.since, rest.lost) = (rest.end, Duration::ZERO);
        self.resting += 1;
    }

    /// All waited for `worker` until `now`, for so long. Whether it rests from now on: if the others
    /// would have been sooner without it.
    pub fn held_up(&mut self, worker: usize, waited: Duration, now: Instant) -> bool {
        let threads = self.workers.len() as u32 + 1;
        let rest = &mut self.workers[worker];
        let since = *rest.since.get_or_insert(now - waited);
        rest.lost += waited;
        let time = now.saturating_duration_since(since);
        let rests = rest.lost * threads > time;
        if time > WINDOW {
            (rest.since, rest.lost) = (Some(now), Duration::ZERO);
        }
        if rests {
            self.begin_again(worker, now, SOON_LATE);
        }
        rests
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

    /// How often a worker of two is sent to rest that is waited for `waited` ms of each `of`.
    fn rests_of(waited: u64, of: u64) -> usize {
        let (mut rests, mut now) = (Rests::new(1), Instant::now());
        rests.held_up(0, Duration::ZERO, now);
        let mut count = 0;
        for _ in 0..200 {
            now += Duration::from_millis(of);
            rests.end(now).for_each(drop);
            if !rests.any() {
                count += usize::from(rests.held_up(0, Duration::from_millis(waited), now));
            }
        }
        count
    }

    #[test]
    fn who_costs_less_than_it_saves_goes_on() {
        assert_eq!(rests_of(1, 20), 0);
        assert_eq!(rests_of(3, 10), 0);
        assert!(rests_of(3, 4) > 3);
        assert!(rests_of(9, 10) > 3);
    }
}
