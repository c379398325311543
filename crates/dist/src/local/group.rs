//! State that the ranks of a group share: the progress of each, their contributions and channels.
//!
//! Invariant: only a rank itself changes its progress.

use super::channel::PieceChannel;
use super::contribution::Contribution;
use super::notifier::Notifier;
use crate::error::Error;
use crate::lock::lock;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

const HERE: u8 = 0;
const LEFT: u8 = 1;
const PANICKED: u8 = 2;

#[derive(Debug)]
pub(super) struct RankGroup {
    states: Vec<RankState>,
    /// From each rank to each, `[from][to]`.
    channels: Vec<PieceChannel>,
    pub notifier: Notifier,
    /// Groups that ranks split off and have not joined yet, and their ranks there, by rank.
    offered: Mutex<HashMap<usize, (Arc<Self>, usize)>>,
}

/// A rank as the others see it, on cache lines of its own because all poll it.
#[derive(Debug)]
#[repr(align(128))]
struct RankState {
    state: AtomicU8,
    /// Rounds that the rank has arrived at.
    arrived: AtomicU64,
    contributions: [RwLock<Contribution>; 2],
}

impl RankGroup {
    pub fn new(ranks: usize) -> Self {
        let rank_state = || RankState {
            state: AtomicU8::new(HERE),
            arrived: AtomicU64::new(0),
            contributions: [RwLock::new(Contribution::EMPTY), RwLock::new(Contribution::EMPTY)],
        };
        Self {
            states: (0..ranks).map(|_| rank_state()).collect(),
            channels: (0..ranks * ranks).map(|_| PieceChannel::default()).collect(),
            notifier: Notifier::default(),
            offered: Mutex::default(),
        }
    }

    pub fn ranks(&self) -> usize {
        self.states.len()
    }

    /// The contribution of `rank` to a round.
    pub fn read_contribution(&self, rank: usize, round: u64) -> RwLockReadGuard<'_, Contribution> {
        self.contribution(rank, round).read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the contribution of `rank` to a round that it has not arrived at.
    pub fn write_contribution(
        &self,
        rank: usize,
        round: u64,
        write: impl FnOnce(&mut Contribution),
    ) {
        write(&mut self.contribution(rank, round).write().unwrap_or_else(PoisonError::into_inner));
    }

    fn contribution(&self, rank: usize, round: u64) -> &RwLock<Contribution> {
        &self.states[rank].contributions[(round % 2) as usize]
    }

    /// The channel from one rank to another.
    pub fn channel(&self, from: usize, to: usize) -> &PieceChannel {
        &self.channels[from * self.ranks() + to]
    }

    /// Offers another group to ranks of this one, in the order of their ranks there.
    pub fn offer(&self, ranks: &[usize]) {
        let group = Arc::new(Self::new(ranks.len()));
        let places = ranks.iter().zip(0..).map(|(rank, place)| (*rank, (group.clone(), place)));
        lock(&self.offered).extend(places);
    }

    /// Takes the group that was offered to `rank`, and its rank there.
    pub fn accept(&self, rank: usize) -> (Arc<Self>, usize) {
        lock(&self.offered).remove(&rank).expect("the group was offered before the ranks met")
    }

    /// Arrives at a round and waits for all others.
    ///
    /// # Errors
    /// If a rank has left, or ended in a panic.
    pub fn meet(&self, rank: usize, round: u64) -> Result<(), Error> {
        self.states[rank].arrived.store(round + 1, Ordering::Release);
        // Of the ranks that arrive together one sees all others, and notifies.
        fence(Ordering::SeqCst);
        if self.all_arrived(rank, round)? {
            self.notifier.notify();
            return Ok(());
        }
        self.notifier.wait(|| self.all_arrived(rank, round))
    }

    fn all_arrived(&self, waiting: usize, round: u64) -> Result<bool, Error> {
        let mut all = true;
        let mut gone = None;
        for (rank, rank_state) in self.states.iter().enumerate() {
            // In this order: a rank that has left by now does not arrive any more.
            let state = rank_state.state.load(Ordering::Acquire);
            if rank_state.arrived.load(Ordering::Acquire) <= round {
                all = false;
                // A panic is why others left.
                gone = gone.max((state != HERE).then_some((state, rank)));
            }
        }
        match gone {
            Some((state, rank)) => Err(Self::gone(rank, state, waiting)),
            None => Ok(all),
        }
    }

    /// Checks that `rank` takes part, and that no rank has ended in a panic.
    ///
    /// # Errors
    /// If `rank` has left, or any rank has ended in a panic.
    pub fn check(&self, rank: usize, waiting: usize) -> Result<(), Error> {
        let state = |rank_state: &RankState| rank_state.state.load(Ordering::Acquire);
        if let Some(first) = self.states.iter().position(|rank_state| state(rank_state) == PANICKED)
        {
            return Err(Self::gone(first, PANICKED, waiting));
        }
        match state(&self.states[rank]) {
            HERE => Ok(()),
            state => Err(Self::gone(rank, state, waiting)),
        }
    }

    fn gone(rank: usize, state: u8, waiting: usize) -> Error {
        Error::Gone { rank, waiting, panicked: state == PANICKED }
    }

    /// Marks the rank as gone.
    pub fn leave(&self, rank: usize) {
        let state = if std::thread::panicking() { PANICKED } else { LEFT };
        self.states[rank].state.store(state, Ordering::Release);
        self.notifier.notify();
    }
}
