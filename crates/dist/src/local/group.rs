//! What the ranks of a group share: who has come how far, who is gone, posts and letters.
//!
//! Invariant: only a rank itself changes how far it has come.

use super::bell::Bell;
use super::letter::Letterbox;
use super::post::Post;
use crate::Error;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

const HERE: u8 = 0;
const LEFT: u8 = 1;
const PANICKED: u8 = 2;

#[derive(Debug)]
pub(super) struct Group {
    seats: Vec<Seat>,
    /// From each rank to each.
    letters: Vec<Letterbox>,
    pub bell: Bell,
}

/// A rank as the others see it, on cache lines of its own because all poll it.
#[derive(Debug)]
#[repr(align(128))]
struct Seat {
    state: AtomicU8,
    /// Rounds that the rank has arrived at.
    arrived: AtomicU64,
    posts: [RwLock<Post>; 2],
}

impl Group {
    pub fn new(ranks: usize) -> Self {
        let seat = || Seat {
            state: AtomicU8::new(HERE),
            arrived: AtomicU64::new(0),
            posts: [RwLock::new(Post::EMPTY), RwLock::new(Post::EMPTY)],
        };
        Self {
            seats: (0..ranks).map(|_| seat()).collect(),
            letters: (0..ranks * ranks).map(|_| Letterbox::default()).collect(),
            bell: Bell::default(),
        }
    }

    pub fn ranks(&self) -> usize {
        self.seats.len()
    }

    /// What `rank` shows in a round.
    pub fn read_post(&self, rank: usize, round: u64) -> RwLockReadGuard<'_, Post> {
        self.post(rank, round).read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what `rank` shows in a round that it has not arrived at.
    pub fn write_post(&self, rank: usize, round: u64, write: impl FnOnce(&mut Post)) {
        write(&mut self.post(rank, round).write().unwrap_or_else(PoisonError::into_inner));
    }

    fn post(&self, rank: usize, round: u64) -> &RwLock<Post> {
        &self.seats[rank].posts[(round % 2) as usize]
    }

    /// Where letters from one rank to another lie.
    pub fn letters(&self, from: usize, to: usize) -> &Letterbox {
        &self.letters[from * self.ranks() + to]
    }

    /// Arrives at a round and waits for all others.
    pub fn meet(&self, rank: usize, round: u64) -> Result<(), Error> {
        self.seats[rank].arrived.store(round + 1, Ordering::Release);
        // Of those that arrive together one sees all others, and rings.
        fence(Ordering::SeqCst);
        if self.all_arrived(rank, round)? {
            self.bell.ring();
            return Ok(());
        }
        self.bell.wait(|| self.all_arrived(rank, round))
    }

    fn all_arrived(&self, waiting: usize, round: u64) -> Result<bool, Error> {
        let mut all = true;
        let mut gone = None;
        for (rank, seat) in self.seats.iter().enumerate() {
            // In this order: who is gone by now does not arrive any more.
            let state = seat.state.load(Ordering::Acquire);
            if seat.arrived.load(Ordering::Acquire) <= round {
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

    /// An error if rank `rank`, or anybody by a panic, is gone.
    pub fn check(&self, rank: usize, waiting: usize) -> Result<(), Error> {
        let state = |seat: &Seat| seat.state.load(Ordering::Acquire);
        if let Some(first) = self.seats.iter().position(|seat| state(seat) == PANICKED) {
            return Err(Self::gone(first, PANICKED, waiting));
        }
        match state(&self.seats[rank]) {
            HERE => Ok(()),
            state => Err(Self::gone(rank, state, waiting)),
        }
    }

    fn gone(rank: usize, state: u8, waiting: usize) -> Error {
        Error::Gone { rank, waiting, panicked: state == PANICKED }
    }

    /// The rank does nothing any more.
    pub fn leave(&self, rank: usize) {
        let state = if std::thread::panicking() { PANICKED } else { LEFT };
        self.seats[rank].state.store(state, Ordering::Release);
        self.bell.ring();
    }
}
