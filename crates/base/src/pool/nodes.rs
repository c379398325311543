//! Shared work on several NUMA nodes: each node's threads claim the pieces that the node owns, then
//! what is left of other nodes' pieces.
//!
//! Work does not wait for threads that do not come, so that pieces cannot be reserved for a node:
//! a thread without pieces of its own takes others', from far memory, instead of none.

use super::pin;
use crate::numa::{MAX_NODES, Owners};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The threads of a pool on their nodes.
#[derive(Debug)]
pub(super) struct Teams {
    pub owners: Owners,
    /// The CPUs of each node that the process may use.
    pub cpus: Vec<Vec<usize>>,
}

impl Teams {
    /// Divides `threads` threads among nodes with these CPUs; nodes without CPUs are left out.
    ///
    /// # Errors
    /// The problem, if there are no CPUs or too many nodes.
    pub fn new(threads: usize, mut cpus: Vec<Vec<usize>>) -> Result<Self, String> {
        cpus.retain(|cpus| !cpus.is_empty());
        match cpus.len() {
            0 => Err("expected a NUMA node with CPUs that this process may use".to_owned()),
            1..=MAX_NODES => {
                Ok(Self { owners: Owners::new(threads, cpus.iter().map(Vec::len)), cpus })
            }
            found => Err(format!("expected at most {MAX_NODES} NUMA nodes, found {found}")),
        }
    }

    /// The CPUs that `thread` is bound to: those of its node, or one of them where all are pinned.
    pub fn cpus_of(&self, thread: usize, pin: bool) -> &[usize] {
        let node = self.owners.node_of(thread);
        let (cpus, first) = (&self.cpus[node], self.owners.threads(node).start);
        if pin { std::slice::from_ref(&cpus[(thread - first) % cpus.len()]) } else { cpus }
    }

    /// The node of a thread. The caller may be a thread that is not bound, so that its node is
    /// where it is.
    fn node_of(&self, thread: usize) -> usize {
        let here = if thread == 0 { pin::current() } else { pin::NOWHERE };
        let found = self.cpus.iter().position(|cpus| cpus.contains(&here));
        found.unwrap_or_else(|| self.owners.node_of(thread))
    }
}

/// The pieces of a job. Ranges of `counts` pieces follow each other, and each is divided among the
/// nodes.
pub(super) struct NodeClaims<'a> {
    teams: &'a Teams,
    counts: &'a [usize],
    /// The number of each node's next piece among its own.
    next: [Next; MAX_NODES],
    /// The node of the caller, which has its first piece.
    first: usize,
}

/// On a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Next(AtomicUsize);

impl<'a> NodeClaims<'a> {
    pub fn new(teams: &'a Teams, counts: &'a [usize]) -> Self {
        let (next, first) = (<[Next; MAX_NODES]>::default(), teams.node_of(0));
        next[first].0.store(1, Ordering::Relaxed);
        Self { teams, counts, next, first }
    }

    /// Calls `f` with the pieces that `thread` gets: of its own node, then of the nodes after it.
    pub fn work(&self, thread: usize, f: &dyn Fn(usize)) {
        let nodes = self.teams.owners.nodes();
        let own = if thread == 0 { self.first } else { self.teams.node_of(thread) };
        if thread == 0 {
            self.piece(own, 0).into_iter().for_each(f);
        }
        for node in (own..nodes).chain(0..own) {
            let claim = || self.piece(node, self.next[node].0.fetch_add(1, Ordering::Relaxed));
            while let Some(piece) = claim() {
                f(piece);
            }
        }
    }

    /// The piece with this number among a node's own.
    fn piece(&self, node: usize, mut number: usize) -> Option<usize> {
        let mut first = 0;
        for &count in self.counts {
            let own = self.teams.owners.pieces(node, count);
            if number < own.len() {
                return Some(first + own.start + number);
            }
            number -= own.len();
            first += count;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ThreadPool;
    use std::sync::Mutex;

    /// CPUs that no machine has.
    fn far_cpus(counts: &[usize]) -> Vec<Vec<usize>> {
        let cpus =
            |(node, count): (usize, &usize)| (0..*count).map(move |at| 1000 * (node + 60) + at);
        counts.iter().enumerate().map(|node| cpus(node).collect()).collect()
    }

    /// A pool on fake nodes.
    fn pool(threads: usize, cpus: &[usize]) -> ThreadPool {
        let mut pool = ThreadPool::new(threads).unwrap();
        pool.teams = Some(Teams::new(threads, far_cpus(cpus)).unwrap());
        pool
    }

    #[test]
    fn every_piece_of_every_range_is_visited_once() {
        for (threads, cpus) in [(1, &[2, 2][..]), (2, &[1, 1]), (5, &[4, 0, 2, 2]), (4, &[8])] {
            let pool = pool(threads, cpus);
            for counts in [&[0][..], &[1], &[2], &[1, 1, 1], &[100, 0, 7], &[3, 999, 1, 50]] {
                let seen: Vec<AtomicUsize> =
                    (0..counts.iter().sum()).map(|_| AtomicUsize::new(0)).collect();
                pool.for_each_of(counts, |piece| {
                    seen[piece].fetch_add(1, Ordering::Relaxed);
                });
                assert!(seen.iter().all(|seen| seen.load(Ordering::Relaxed) == 1), "{counts:?}");
            }
        }
    }

    #[test]
    fn threads_take_what_their_node_owns_before_anything_else() {
        let teams = Teams::new(4, far_cpus(&[1, 0, 3])).unwrap();
        let counts = [8, 4, 100];
        let claims = NodeClaims::new(&teams, &counts);
        let taken = |thread| {
            let all = Mutex::new(Vec::new());
            claims.work(thread, &|piece| all.lock().unwrap().push(piece));
            all.into_inner().unwrap()
        };
        // A quarter of each range is the first node's; the caller has its first piece.
        let of_first = (0..2).chain(8..9).chain(12..37).skip(1);
        let of_second = (2..8).chain(9..12).chain(37..112);
        assert!(taken(3).into_iter().eq(of_second.chain(of_first)));
        assert_eq!(taken(0), [0]);
    }

    #[test]
    fn a_node_whose_threads_do_not_come_delays_nothing() {
        let pool = pool(2, &[1, 1]);
        pool.shared.states[0].suspended.store(true, Ordering::Relaxed);
        let here = std::thread::current().id();
        let count = AtomicUsize::new(0);
        pool.for_each(64, |_| {
            assert_eq!(std::thread::current().id(), here);
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.into_inner(), 64);
    }

    #[test]
    fn threads_are_bound_to_their_nodes_or_to_one_cpu_each() {
        let teams = Teams::new(5, vec![vec![0, 2], vec![], vec![1, 3, 5]]).unwrap();
        let bound = |pin| (0..5).map(|thread| teams.cpus_of(thread, pin)).collect::<Vec<_>>();
        assert_eq!(bound(false), [&[0, 2][..], &[0, 2], &[1, 3, 5], &[1, 3, 5], &[1, 3, 5]]);
        assert_eq!(bound(true), [[0], [2], [1], [3], [5]]);
        assert!(Teams::new(1, vec![vec![]]).is_err());
        assert!(Teams::new(1, vec![vec![0]; MAX_NODES + 1]).is_err());
    }
}
