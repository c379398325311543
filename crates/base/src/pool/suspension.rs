//! Suspension of workers that slow the others down. A worker whose core is taken by another process
//! in the middle of a piece keeps all others waiting. Where that costs more time than the worker
//! saves, it is suspended for a while, longer each time it happens again. A single incident is no
//! reason: clients and servers on the same machine take cores for moments.

use std::time::{Duration, Instant};

/// First suspension of a worker.
const MIN_TIME: Duration = Duration::from_millis(2);
/// Longest suspension, after which the worker is tried again: the core may be free by then.
const MAX_TIME: Duration = Duration::from_secs(1);
/// A worker that is in the way this soon after a suspension, or as soon as the suspension was long,
/// shows that nothing changed.
const SOON: Duration = Duration::from_millis(5);
/// The same for a worker that others waited for, which is found out later.
const SOON_LATE: Duration = Duration::from_millis(50);
/// Time over which waiting for a worker is compared with the time that it saves.
const WINDOW: Duration = Duration::from_millis(20);

/// The suspensions of all workers.
#[derive(Debug)]
pub(super) struct Suspensions {
    workers: Vec<Suspension>,
    /// Number of suspended workers.
    suspended: usize,
}

/// The last suspension of one worker.
#[derive(Clone, Copy, Debug, Default)]
struct Suspension {
    length: Duration,
    end: Option<Instant>,
    suspended: bool,
    /// Since when time lost to the worker is counted, and how much it is.
    since: Option<Instant>,
    lost: Duration,
}

impl Suspensions {
    /// No worker is suspended.
    pub fn new(workers: usize) -> Self {
        Self { workers: vec![Suspension::default(); workers], suspended: 0 }
    }

    /// Whether any worker is suspended.
    pub fn any(&self) -> bool {
        self.suspended > 0
    }

    /// Suspends `worker`, which is in the way of others; no effect if it is suspended already.
    pub fn suspend(&mut self, worker: usize, now: Instant) {
        self.suspend_from(worker, now, SOON);
    }

    fn suspend_from(&mut self, worker: usize, now: Instant, soon: Duration) {
        let last = &mut self.workers[worker];
        if last.suspended {
            return;
        }
        let soon = last.end.is_some_and(|end| now < end + last.length.max(soon));
        last.length = if soon { (2 * last.length).min(MAX_TIME) } else { MIN_TIME };
        last.end = Some(now + last.length);
        last.suspended = true;
        (last.since, last.lost) = (last.end, Duration::ZERO);
        self.suspended += 1;
    }

    /// Records that all waited for `worker` until `now`, for `waited`. Suspends it, and returns
    /// true, if the others would have been faster without it.
    pub fn waited_for(&mut self, worker: usize, waited: Duration, now: Instant) -> bool {
        let threads = self.workers.len() as u32 + 1;
        let last = &mut self.workers[worker];
        let since = *last.since.get_or_insert(now - waited);
        last.lost += waited;
        let time = now.saturating_duration_since(since);
        let suspend = last.lost * threads > time;
        if time > WINDOW {
            (last.since, last.lost) = (Some(now), Duration::ZERO);
        }
        if suspend {
            self.suspend_from(worker, now, SOON_LATE);
        }
        suspend
    }

    /// Ends the suspensions that are over and returns their workers.
    pub fn resume_due(&mut self, now: Instant) -> impl Iterator<Item = usize> {
        let suspended = &mut self.suspended;
        self.workers.iter_mut().enumerate().filter_map(move |(worker, last)| {
            let over = last.suspended && last.end.is_none_or(|end| now >= end);
            if over {
                last.suspended = false;
                *suspended -= 1;
            }
            over.then_some(worker)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suspensions_grow_while_nothing_changes_and_start_short_after_that() {
        let (mut suspensions, mut now) = (Suspensions::new(2), Instant::now());
        let mut lengths = Vec::new();
        for _ in 0..11 {
            suspensions.suspend(1, now);
            assert!(suspensions.any() && suspensions.resume_due(now).next().is_none());
            let begun = now;
            while suspensions.any() {
                now += Duration::from_millis(1);
                let ended: Vec<_> = suspensions.resume_due(now).collect();
                assert!(ended.is_empty() || ended == [1]);
            }
            lengths.push((now - begun).as_millis());
            now += Duration::from_millis(3);
        }
        assert_eq!(lengths, [2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 1000]);
        now += 2 * MAX_TIME;
        suspensions.suspend(1, now);
        assert_eq!(suspensions.resume_due(now + MIN_TIME).collect::<Vec<_>>(), [1]);
    }

    /// How often one worker of two is suspended that others wait for `waited` ms of each `of`.
    fn suspensions_of(waited: u64, of: u64) -> usize {
        let (mut suspensions, mut now) = (Suspensions::new(1), Instant::now());
        suspensions.waited_for(0, Duration::ZERO, now);
        let mut count = 0;
        for _ in 0..200 {
            now += Duration::from_millis(of);
            suspensions.resume_due(now).for_each(drop);
            if !suspensions.any() {
                count += usize::from(suspensions.waited_for(0, Duration::from_millis(waited), now));
            }
        }
        count
    }

    #[test]
    fn a_worker_that_costs_less_than_it_saves_is_not_suspended() {
        assert_eq!(suspensions_of(1, 20), 0);
        assert_eq!(suspensions_of(3, 10), 0);
        assert!(suspensions_of(3, 4) > 3);
        assert!(suspensions_of(9, 10) > 3);
    }
}
