//! Ranks that are processes, which MPI starts and connects.
//!
//! The library is loaded when it is needed, and only sends and receives: sums are taken here, as
//! `MPI_Allreduce` promises no order. Waiting never happens inside a call of the library, where a
//! rank that is gone would not be noticed and a processor would be kept from others.
//!
//! Each message is cut into pieces of at most 64 KiB. In a collective each rank sends a piece to
//! all, and then receives one from each, so that at most two pieces to a rank are under way.

mod collectives;
mod find;
mod interface;
mod library;
mod links;
mod marks;
mod pair;
mod patience;
mod piece;
mod watch;

use crate::call::{PIECE, RankCall, check_rank, ranks_of_colour};
use crate::comm::{Comm, Traffic};
use crate::error::Error;
use crate::lock::lock;
use library::MpiLibrary;
use links::Links;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use watch::Watch;

/// One rank of a group of processes.
///
/// MPI ends with the last group of a process, unless a call failed.
#[derive(Debug)]
pub struct Mpi {
    /// Heartbeats, of the group of all. They end before the library.
    watch: Option<Watch>,
    library: Arc<MpiLibrary>,
    /// Ranks of the world, in the order of ranks here.
    members: Vec<usize>,
    rank: usize,
    links: Mutex<Links>,
}

impl Mpi {
    /// Whether a launcher of MPI, such as `mpirun` or `srun`, has started this process.
    pub fn is_launched() -> bool {
        find::is_launched()
    }

    /// The rank that such a launcher says this process is.
    pub fn launched_rank() -> Option<usize> {
        find::launched_rank()
    }

    /// The number of ranks that such a launcher says it has started.
    pub fn launched_ranks() -> Option<usize> {
        find::launched_ranks()
    }

    /// Ends the process at once with this exit code, and not MPI, which waits for all ranks: the
    /// launcher, or the heartbeats, end the others.
    pub fn abandon(code: u8) -> ! {
        library::abandon(code)
    }

    /// Loads the MPI library that `GANNET_MPI` names, or else that of the launcher, and joins the
    /// group of all processes that the launcher has started.
    ///
    /// # Errors
    /// If there is no library, it cannot be used, or it does not know the launcher.
    pub fn world() -> Result<Self, Error> {
        let library = Arc::new(find::open()?);
        let members = (0..library.ranks).collect();
        Ok(Self::of(library, members, 0))
    }

    fn of(library: Arc<MpiLibrary>, members: Vec<usize>, tag: i32) -> Self {
        let links = Links::new(&library, &members, tag);
        Self { watch: None, library, members, rank: links.rank, links: Mutex::new(links) }
    }

    /// Has every wait of this process end with an error once a rank of the world has been silent
    /// for `limit`, and calls `on_gone` with that error on a thread: another thread sends and hears
    /// heartbeats until this group is dropped. Returns whether it does; it does not where the
    /// library cannot be called by several threads at once.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn watch(
        &mut self,
        limit: Duration,
        on_gone: impl FnOnce(Error) + Send + 'static,
    ) -> std::io::Result<bool> {
        if !self.library.is_concurrent {
            return Ok(false);
        }
        self.watch = Some(Watch::start(&self.library, limit, on_gone)?);
        Ok(true)
    }

    /// Has every other rank answer within 50 ms, where heartbeats are sent: one that does not is
    /// gone.
    pub fn ping(&self) {
        self.library.marks.ask();
    }

    /// What the library says of its version.
    pub fn version(&self) -> &str {
        &self.library.version
    }
}

impl Comm for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.members.len()
    }

    fn takes_threads(&self) -> bool {
        self.library.is_concurrent
    }

    fn all_reduce_sum(&self, values: &mut [f32]) -> Result<(), Error> {
        let call = RankCall::AllReduceSum { length: values.len() };
        let mut links = lock(&self.links);
        if values.len() <= PIECE {
            return links.sum_piece(call, values);
        }
        let mut blocks = values.chunks_mut(PIECE * self.ranks());
        blocks.try_for_each(|block| links.sum_block(call, block))
    }

    fn all_gather(&self, own: &[f32], all: &mut [f32]) -> Result<(), Error> {
        lock(&self.links).gather_pieces(own, all)
    }

    fn broadcast(&self, root: usize, values: &mut [f32]) -> Result<(), Error> {
        check_rank("broadcast", (self.rank, self.ranks()), root, true)?;
        let call = RankCall::Broadcast { length: values.len(), root };
        let mut links = lock(&self.links);
        for piece in pieces(values) {
            if root == self.rank {
                let others = (0..self.ranks()).filter(|rank| *rank != root);
                others.into_iter().try_for_each(|to| links.put(to, call, piece))?;
            } else {
                links.take(root, call, piece)?;
            }
        }
        Ok(())
    }

    fn send(&self, to: usize, values: &[f32]) -> Result<(), Error> {
        check_rank("send", (self.rank, self.ranks()), to, false)?;
        let call = RankCall::Send { length: values.len() };
        let mut links = lock(&self.links);
        let mut pieces = values.chunks(PIECE).chain(values.is_empty().then_some(values));
        pieces.try_for_each(|piece| links.put(to, call, piece))
    }

    fn receive(&self, from: usize, values: &mut [f32]) -> Result<(), Error> {
        check_rank("receive", (self.rank, self.ranks()), from, false)?;
        let call = RankCall::Send { length: values.len() };
        let mut links = lock(&self.links);
        pieces(values).try_for_each(|piece| links.take(from, call, piece))
    }

    fn barrier(&self) -> Result<(), Error> {
        let mut links = lock(&self.links);
        links.exchange((RankCall::Barrier, 0), |_| Some(&[]), |_| false, |_, _| {})
    }

    fn split(&self, colour: usize, key: usize) -> Result<Arc<dyn Comm>, Error> {
        // A tag that no rank of the group has used.
        let own = [colour as u32, key as u32, self.library.tags.load(Ordering::Relaxed) as u32];
        let mut all = vec![0.0; 3 * self.ranks()];
        self.all_gather(&own.map(f32::from_bits), &mut all)?;
        let all: Vec<[u32; 3]> =
            all.as_chunks().0.iter().map(|three| three.map(f32::to_bits)).collect();
        let tag = all.iter().map(|it| it[2] as i32).max().unwrap_or_default() + 1;
        self.library.tags.store(tag, Ordering::Relaxed);
        let ranks = ranks_of_colour(self.ranks(), own[0], |rank| [all[rank][0], all[rank][1]]);
        let members = ranks.into_iter().map(|rank| self.members[rank]).collect();
        Ok(Arc::new(Self::of(self.library.clone(), members, tag)))
    }

    fn traffic(&self) -> Traffic {
        lock(&self.links).traffic
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return self.library.fail();
        }
        // What was sent last has left before MPI ends. An error was seen by who waited for it.
        let _ = lock(&self.links).flush();
    }
}

/// Pieces that make up `values`; an empty one if there are none.
fn pieces(values: &mut [f32]) -> impl Iterator<Item = &mut [f32]> {
    let is_empty = values.is_empty();
    values.chunks_mut(PIECE).chain(is_empty.then_some(&mut [][..]))
}
