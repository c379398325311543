//! Ranks that are threads of one process.
//!
//! Values go through contributions, two for each rank, a piece at a time, so that memory does not
//! grow with the slices. In a round every rank writes its contribution, all meet, and each reads
//! the contributions of all. Contributions alternate: a rank that writes one again has met all
//! others since they read it.
//!
//! Invariant: a rank that has arrived at a round no longer changes its contribution to that round.

mod channel;
mod contribution;
mod group;
mod notifier;
#[cfg(test)]
mod tests;

use crate::call::{PIECE, RankCall, check_rank, ranks_of_colour};
use crate::comm::{Comm, Traffic};
use crate::error::Error;
use crate::lock::lock;
use contribution::Contribution;
use group::RankGroup;
use std::ops::Range;
use std::sync::{Arc, Mutex, RwLockReadGuard};
use std::time::Instant;

/// One rank of a group of threads.
///
/// Dropping it leaves the group; other ranks get an error when they need this rank. If a panic
/// drops it, every rank that waits gets an error.
#[derive(Debug)]
pub struct Local {
    rank: usize,
    group: Arc<RankGroup>,
    /// Rounds that this rank has completed; locked for the length of a call.
    turn: Mutex<u64>,
    traffic: Mutex<Traffic>,
}

impl Local {
    /// Most ranks of a group that arguments may ask for.
    pub const MAX_RANKS: usize = 64;

    /// Creates a group of `ranks` ranks, in order. Each rank runs on a separate thread.
    pub fn group(ranks: usize) -> Vec<Self> {
        let group = Arc::new(RankGroup::new(ranks));
        (0..ranks).map(|rank| Self::of(group.clone(), rank)).collect()
    }

    fn of(group: Arc<RankGroup>, rank: usize) -> Self {
        let (turn, traffic) = Default::default();
        Self { rank, group, turn, traffic }
    }

    /// Contributes a piece of this rank's `own` values and meets the others. Returns the round,
    /// whose contributions are all of the same call.
    fn round(
        &self,
        turn: &mut u64,
        call: RankCall,
        own: usize,
        piece: &[f32],
    ) -> Result<u64, Error> {
        let (round, begun) = (*turn, Instant::now());
        self.group.write_contribution(self.rank, round, |contribution| {
            contribution.write(call, own, piece)
        });
        self.group.meet(self.rank, round)?;
        // All arrived, so all continue, whatever they find.
        *turn += 1;
        self.count(self.ranks() - 1, piece.len(), begun);
        for (rank, contribution) in self.contributions(round) {
            contribution.check(rank, call, self.rank)?;
        }
        Ok(round)
    }

    /// The contributions of a round, in the order of ranks.
    fn contributions(
        &self,
        round: u64,
    ) -> impl Iterator<Item = (usize, RwLockReadGuard<'_, Contribution>)> {
        (0..self.ranks()).map(move |rank| (rank, self.group.read_contribution(rank, round)))
    }

    /// Copies the piece at `done` of every rank's values to its position in `all`. Returns the
    /// largest number of values of any rank.
    fn collect(&self, round: u64, done: usize, all: &mut [f32]) -> Result<usize, Error> {
        let (mut start, mut longest) = (0, 0);
        let found = self.contributions(round).map(|(_, contribution)| contribution.own).sum();
        self.check_length("all_gather", all.len(), found)?;
        for (_, contribution) in self.contributions(round) {
            if !contribution.values.is_empty() {
                all[start + done..][..contribution.values.len()]
                    .copy_from_slice(&contribution.values);
            }
            start += contribution.own;
            longest = longest.max(contribution.own);
        }
        Ok(longest)
    }

    /// Waits for the next piece from a rank, and takes it as part of a message of `expected`
    /// values; else gives the length that the message has.
    fn take(
        &self,
        from: usize,
        expected: usize,
        values: &mut [f32],
    ) -> Result<Result<(), usize>, Error> {
        let (channel, begun) = (self.group.channel(from, self.rank), Instant::now());
        self.group.notifier.wait(|| {
            // In this order: what was sent before the sender left is there.
            let here = self.group.check(from, self.rank);
            if channel.has_piece() { Ok(true) } else { here.map(|()| false) }
        })?;
        let taken = channel.take(expected, values);
        self.group.notifier.notify();
        self.count(0, 0, begun);
        Ok(taken)
    }

    /// Counts messages to single ranks, of so many values each, and the time since a call began.
    fn count(&self, messages: usize, values: usize, begun: Instant) {
        let mut traffic = lock(&self.traffic);
        traffic.messages += messages as u64;
        traffic.bytes += 4 * (messages * values) as u64;
        traffic.time += begun.elapsed();
    }

    fn check_length(&self, call: &'static str, expected: usize, found: usize) -> Result<(), Error> {
        let wrong = Error::Length { call, rank: self.rank, expected, found };
        if found == expected { Ok(()) } else { Err(wrong) }
    }
}

impl Comm for Local {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.group.ranks()
    }

    fn all_reduce_sum(&self, values: &mut [f32]) -> Result<(), Error> {
        let call = RankCall::AllReduceSum { length: values.len() };
        let turn = &mut *lock(&self.turn);
        for range in pieces(values.len()) {
            let sums = &mut values[range];
            let round = self.round(turn, call, 0, sums)?;
            for (rank, contribution) in self.contributions(round) {
                match rank {
                    0 => sums.copy_from_slice(&contribution.values),
                    _ => sums
                        .iter_mut()
                        .zip(&contribution.values)
                        .for_each(|(sum, value)| *sum += value),
                }
            }
        }
        Ok(())
    }

    fn all_gather(&self, own: &[f32], all: &mut [f32]) -> Result<(), Error> {
        let call = RankCall::AllGather { length: all.len() };
        let turn = &mut *lock(&self.turn);
        let mut done = 0;
        loop {
            let rest = own.get(done..).unwrap_or_default();
            let piece = &rest[..rest.len().min(PIECE)];
            let round = self.round(turn, call, own.len(), piece)?;
            let longest = self.collect(round, done, all)?;
            done += PIECE;
            if done >= longest {
                return Ok(());
            }
        }
    }

    fn broadcast(&self, root: usize, values: &mut [f32]) -> Result<(), Error> {
        let call = RankCall::Broadcast { length: values.len(), root };
        let turn = &mut *lock(&self.turn);
        for range in pieces(values.len()) {
            let piece = &mut values[range];
            let shown: &[f32] = if root == self.rank { piece } else { &[] };
            let round = self.round(turn, call, 0, shown)?;
            // Not before the round, so that the other ranks get the error too.
            check_rank("broadcast", (self.rank, self.ranks()), root, true)?;
            piece.copy_from_slice(&self.group.read_contribution(root, round).values);
        }
        Ok(())
    }

    fn send(&self, to: usize, values: &[f32]) -> Result<(), Error> {
        check_rank("send", (self.rank, self.ranks()), to, false)?;
        let _turn = lock(&self.turn);
        let channel = self.group.channel(self.rank, to);
        for range in pieces(values.len()) {
            let begun = Instant::now();
            self.group.notifier.wait(|| {
                self.group.check(to, self.rank)?;
                Ok(!channel.is_full())
            })?;
            channel.put(values.len(), &values[range.clone()]);
            self.count(1, range.len(), begun);
            self.group.notifier.notify();
        }
        Ok(())
    }

    fn receive(&self, from: usize, values: &mut [f32]) -> Result<(), Error> {
        check_rank("receive", (self.rank, self.ranks()), from, false)?;
        let _turn = lock(&self.turn);
        let expected = values.len();
        for range in pieces(expected) {
            if let Err(found) = self.take(from, expected, &mut values[range])? {
                // The rest of the message is taken too.
                for _ in 1..pieces(found).count() {
                    let _ = self.take(from, expected, &mut [])?;
                }
                return self.check_length("receive", expected, found);
            }
        }
        Ok(())
    }

    fn barrier(&self) -> Result<(), Error> {
        self.round(&mut lock(&self.turn), RankCall::Barrier, 0, &[]).map(drop)
    }

    fn split(&self, colour: usize, key: usize) -> Result<Arc<dyn Comm>, Error> {
        let mut all = vec![0.0; 2 * self.ranks()];
        self.all_gather(&[colour, key].map(|number| f32::from_bits(number as u32)), &mut all)?;
        let of = |rank: usize| [0, 1].map(|at| all[2 * rank + at].to_bits());
        let ranks = ranks_of_colour(self.ranks(), colour as u32, of);
        if ranks[0] == self.rank {
            self.group.offer(&ranks);
        }
        self.barrier()?;
        let (group, rank) = self.group.accept(self.rank);
        Ok(Arc::new(Self::of(group, rank)))
    }

    fn traffic(&self) -> Traffic {
        *lock(&self.traffic)
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.group.leave(self.rank);
    }
}

/// Ranges of at most [`PIECE`] that make up `0..length`; an empty one if that is empty.
fn pieces(length: usize) -> impl Iterator<Item = Range<usize>> {
    (0..length.max(1)).step_by(PIECE).map(move |start| start..(start + PIECE).min(length))
}
