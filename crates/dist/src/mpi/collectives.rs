//! Collectives over messages between two ranks.

use super::links::{Links, OtherPiece, set};
use super::pair::Pair;
use super::piece;
use crate::call::{PIECE, RankCall};
use crate::error::Error;
use crate::shard::Shard;
use std::ops::Range;

/// Values in whose units the parts of a sum are divided among ranks.
const UNIT: usize = 16;

impl Links {
    /// Adds up `values` of all ranks, at most a piece: all send them to all.
    pub(super) fn sum_piece(&mut self, call: RankCall, values: &mut [f32]) -> Result<(), Error> {
        let own = copied(&mut self.own, values);
        let done = self.exchange(
            (call, 0),
            |_| Some(&own),
            |_| false,
            |rank, piece| {
                add(values, rank, piece, &own);
            },
        );
        self.own = own;
        done
    }

    /// Adds up `block` of all ranks, at most a piece for each of them: each rank adds up one part,
    /// and the parts are gathered.
    pub(super) fn sum_block(&mut self, call: RankCall, block: &mut [f32]) -> Result<(), Error> {
        let (length, ranks) = (block.len(), self.ranks());
        let part = |rank| part(rank, ranks, length);
        let own = copied(&mut self.own, &block[part(self.rank)]);
        let mut sums = copied(&mut self.sums, &own);
        let theirs = |to| Some(&block[part(to)]);
        let mut done = self.exchange(
            (call, 0),
            theirs,
            |_| false,
            |rank, piece| {
                add(&mut sums, rank, piece, &own);
            },
        );
        if done.is_ok() {
            done = self.exchange(
                (call, 0),
                |_| Some(&sums),
                |_| false,
                |rank, piece| match piece {
                    Some((header, bytes)) => set(&mut block[part(rank)], header, bytes),
                    None => block[part(rank)].copy_from_slice(&sums),
                },
            );
        }
        (self.own, self.sums) = (own, sums);
        done
    }

    /// Concatenates the values of all ranks: piece after piece, as long as a rank has more.
    pub(super) fn gather_pieces(&mut self, own: &[f32], all: &mut [f32]) -> Result<(), Error> {
        let mut lengths = std::mem::take(&mut self.lengths);
        let done = self.gather_with(own, all, &mut lengths);
        self.lengths = lengths;
        done
    }

    /// As [`gather_pieces`](Self::gather_pieces), with the `lengths` of all ranks' values.
    fn gather_with(
        &mut self,
        own: &[f32],
        all: &mut [f32],
        lengths: &mut [usize],
    ) -> Result<(), Error> {
        let call = (RankCall::AllGather { length: all.len() }, own.len());
        let first = &own[..own.len().min(PIECE)];
        self.exchange(
            call,
            |_| Some(first),
            |_| false,
            |rank, piece| {
                lengths[rank] = piece.map_or(own.len(), |(header, _)| header.own);
            },
        )?;
        // All ranks know all lengths now, and come to the same conclusion.
        let found = lengths.iter().fold(0usize, |sum, length| sum.saturating_add(*length));
        if found != all.len() {
            let (rank, expected) = (self.rank, all.len());
            return Err(Error::Length { call: "all_gather", rank, expected, found });
        }
        let mut rest = &mut *all;
        for (rank, length) in lengths.iter().enumerate() {
            let values;
            (values, rest) = rest.split_at_mut(*length);
            match self.pairs[rank].as_mut().and_then(Pair::last) {
                Some((header, bytes)) => set(values, header, bytes),
                None => values.copy_from_slice(own),
            }
        }
        let longest = lengths.iter().copied().max().unwrap_or_default();
        for done in (PIECE..longest).step_by(PIECE) {
            let rest = own.get(done..).filter(|rest| !rest.is_empty());
            let piece = rest.map(|rest| &rest[..rest.len().min(PIECE)]);
            let mut start = 0;
            self.exchange(
                call,
                |_| piece,
                |rank| lengths[rank] <= done,
                |rank, piece| {
                    let end = start + lengths[rank];
                    if let Some((header, bytes)) = piece {
                        set(&mut all[start + done..end], header, bytes);
                    }
                    start = end;
                },
            )?;
        }
        Ok(())
    }
}

/// The part of a sum of `length` values that a rank adds up.
fn part(rank: usize, ranks: usize, length: usize) -> Range<usize> {
    Shard::new(rank, ranks).expect("a rank of the group").part(length, UNIT)
}

/// The buffer with a copy of `values`.
fn copied(buffer: &mut Vec<f32>, values: &[f32]) -> Vec<f32> {
    let mut buffer = std::mem::take(buffer);
    buffer.clear();
    buffer.extend_from_slice(values);
    buffer
}

/// Adds the piece of `rank`, or this rank's `own` values, to `sums`; those of rank 0 begin them.
fn add(sums: &mut [f32], rank: usize, piece: OtherPiece<'_>, own: &[f32]) {
    let begin = |sum: &mut f32, value: f32| *sum = value;
    let further = |sum: &mut f32, value: f32| *sum += value;
    let add = if rank == 0 { begin } else { further };
    match piece {
        Some((header, bytes)) => {
            let values = piece::values(bytes, header.values);
            sums.iter_mut().zip(values).for_each(|(sum, value)| add(sum, value));
        }
        None => sums.iter_mut().zip(own).for_each(|(sum, value)| add(sum, *value)),
    }
}
