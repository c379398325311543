//! This rank's buffers for the other ranks of a group, and the pieces that go through them.

use super::library::MpiLibrary;
use super::pair::Pair;
use super::piece::{self, PieceHeader};
use crate::call::{PIECE, RankCall};
use crate::comm::Traffic;
use crate::error::Error;
use std::sync::Arc;
use std::time::Instant;

/// The piece that another rank has sent: its header, and bytes.
pub(super) type OtherPiece<'a> = Option<(PieceHeader, &'a [u8])>;

/// Buffers of a group.
#[derive(Debug)]
pub(super) struct Links {
    pub rank: usize,
    /// By rank; `None` for this rank.
    pub pairs: Vec<Option<Pair>>,
    /// This rank's values of a sum, and the sum of its part.
    pub own: Vec<f32>,
    pub sums: Vec<f32>,
    /// Numbers of values of all ranks.
    pub lengths: Vec<usize>,
    pub traffic: Traffic,
}

impl Links {
    /// Buffers for a group of these ranks of the world, whose messages have this tag.
    pub fn new(library: &Arc<MpiLibrary>, members: &[usize], tag: i32) -> Self {
        let rank = members.iter().position(|rank| *rank == library.rank);
        let pair = |&other: &usize| {
            (other != library.rank).then(|| Pair::new(library, (other, tag), piece::BYTES))
        };
        Self {
            rank: rank.expect("a rank is in its group"),
            pairs: members.iter().map(pair).collect(),
            own: Vec::with_capacity(PIECE),
            sums: Vec::with_capacity(PIECE),
            lengths: vec![0; members.len()],
            traffic: Traffic::default(),
        }
    }

    pub fn ranks(&self) -> usize {
        self.pairs.len()
    }

    /// Waits until all that was sent has left.
    ///
    /// # Errors
    /// If a call of MPI fails.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.pairs.iter_mut().flatten().try_for_each(Pair::flush)
    }

    /// Sends a piece to `to`, if that is another rank.
    pub(super) fn put(&mut self, to: usize, call: RankCall, values: &[f32]) -> Result<(), Error> {
        let header = PieceHeader { call, own: 0, values: values.len() };
        self.post(to, header, values)
    }

    fn post(&mut self, to: usize, header: PieceHeader, values: &[f32]) -> Result<(), Error> {
        let Some(pair) = &mut self.pairs[to] else { return Ok(()) };
        let begun = Instant::now();
        pair.send(header, values)?;
        self.traffic.time += begun.elapsed();
        self.traffic.messages += 1;
        self.traffic.bytes += 4 * values.len() as u64;
        Ok(())
    }

    /// Receives the next piece of `call` from another rank.
    pub(super) fn take(
        &mut self,
        from: usize,
        call: RankCall,
        values: &mut [f32],
    ) -> Result<(), Error> {
        let own = self.rank;
        let (header, bytes) = self.next(from)?;
        if let (RankCall::Send { length: expected }, RankCall::Send { length: found }) =
            (call, header.call)
            && expected != found
        {
            // The rest of the message is taken too.
            for _ in 1..found.div_ceil(PIECE) {
                self.next(from)?;
            }
            return Err(Error::Length { call: "receive", rank: self.rank, expected, found });
        }
        call.check(own, header.call, from)?;
        set(values, header, bytes);
        Ok(())
    }

    /// The next piece from another rank.
    fn next(&mut self, from: usize) -> Result<(PieceHeader, &[u8]), Error> {
        let pair = self.pairs[from].as_mut().expect("another rank");
        let begun = Instant::now();
        let (header, bytes) = pair.receive()?;
        self.traffic.time += begun.elapsed();
        let header = header.ok_or(Error::NoMessage { from, rank: self.rank })?;
        Ok((header, bytes))
    }

    /// Sends each other rank its piece, where there is one, then calls `each` with every rank in
    /// order and the piece that it sent; none comes from ranks of which `is_silent` holds.
    pub(super) fn exchange<'v>(
        &mut self,
        (call, own): (RankCall, usize),
        piece_for: impl Fn(usize) -> Option<&'v [f32]>,
        is_silent: impl Fn(usize) -> bool,
        mut each: impl FnMut(usize, OtherPiece<'_>),
    ) -> Result<(), Error> {
        for rank in (0..self.ranks()).filter(|rank| !is_silent(*rank)) {
            self.pairs[rank].iter_mut().try_for_each(Pair::expect)?;
        }
        for to in 0..self.ranks() {
            if let Some(values) = piece_for(to) {
                let header = PieceHeader { call, own, values: values.len() };
                self.post(to, header, values)?;
            }
        }
        let (mine, mut wrong) = (self.rank, Ok(()));
        for rank in 0..self.ranks() {
            if rank == self.rank || is_silent(rank) {
                each(rank, None);
            } else {
                let (header, bytes) = self.next(rank)?;
                match call.check(mine, header.call, rank) {
                    Ok(()) => each(rank, Some((header, bytes))),
                    // What the others have sent is taken all the same.
                    Err(error) => wrong = wrong.and(Err(error)),
                }
            }
        }
        wrong
    }
}

/// Sets `values` to those of a piece.
pub(super) fn set(values: &mut [f32], header: PieceHeader, bytes: &[u8]) {
    let found = piece::values(bytes, header.values);
    values.iter_mut().zip(found).for_each(|(value, found)| *value = found);
}
