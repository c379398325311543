//! What passes between this rank and one other: pieces that are sent from a few buffers, and one
//! that is received.

use super::library::{MpiLibrary, Transfer};
use super::patience::Patience;
use super::piece::PieceHeader;
use crate::call::WINDOW;
use crate::error::Error;
use std::sync::Arc;

/// A piece that was received: its header, if it has one, and its bytes.
pub(super) type ReceivedPiece<'a> = (Option<PieceHeader>, &'a [u8]);

/// This rank's buffers for one other rank.
#[derive(Debug)]
pub(super) struct Pair {
    /// The other's rank of the world.
    other: usize,
    tag: i32,
    /// At most [`WINDOW`] buffers, one more whenever all are under way.
    sends: Vec<Transfer>,
    /// The buffer that was used first.
    next: usize,
    receive: Transfer,
    library: Arc<MpiLibrary>,
    /// Bytes of a buffer.
    bytes: usize,
}

impl Pair {
    /// Buffers of so many bytes for messages to the rank `other` of the world and from it that have
    /// this tag.
    pub fn new(library: &Arc<MpiLibrary>, (other, tag): (usize, i32), bytes: usize) -> Self {
        let transfer = || Transfer::new(library.clone(), bytes);
        let (sends, receive) = (vec![transfer()], transfer());
        Self { other, tag, sends, next: 0, receive, library: library.clone(), bytes }
    }

    /// Sends a piece once a buffer is free. Returns its bytes.
    ///
    /// # Errors
    /// If a call of MPI fails.
    pub fn send(&mut self, header: PieceHeader, values: &[f32]) -> Result<usize, Error> {
        if self.sends.len() < WINDOW && !self.sends[self.next].poll()? {
            // After the newest, and before the oldest.
            let transfer = Transfer::new(self.library.clone(), self.bytes);
            self.sends.insert(self.next, transfer);
        }
        let transfer = &mut self.sends[self.next];
        wait(transfer)?;
        let length = header.write(values, transfer.bytes());
        transfer.send(length, self.other, self.tag)?;
        self.next = (self.next + 1) % self.sends.len();
        Ok(length)
    }

    /// Has the next piece received as soon as it comes.
    ///
    /// # Errors
    /// If a call of MPI fails.
    pub fn expect(&mut self) -> Result<(), Error> {
        match self.receive.is_busy() {
            true => Ok(()),
            false => self.receive.receive(self.other, self.tag),
        }
    }

    /// Waits for the next piece, and gives its header, if it has one, and bytes.
    ///
    /// # Errors
    /// If a call of MPI fails.
    pub fn receive(&mut self) -> Result<ReceivedPiece<'_>, Error> {
        self.expect()?;
        wait(&mut self.receive)?;
        let bytes = &*self.receive.bytes();
        Ok((PieceHeader::read(bytes), bytes))
    }

    /// The next piece, if it has come.
    ///
    /// # Errors
    /// If a call of MPI fails.
    pub fn look(&mut self) -> Result<Option<ReceivedPiece<'_>>, Error> {
        self.expect()?;
        if !self.receive.poll()? {
            return Ok(None);
        }
        let bytes = &*self.receive.bytes();
        Ok(Some((PieceHeader::read(bytes), bytes)))
    }

    /// Whether no buffer is free.
    ///
    /// # Errors
    /// If a call of MPI fails.
    pub fn is_full(&mut self) -> Result<bool, Error> {
        let is_free = self.sends[self.next].poll()?;
        Ok(!is_free && self.sends.len() == WINDOW)
    }

    /// Whether all that was sent has left.
    ///
    /// # Errors
    /// If a call of MPI fails.
    pub fn is_sent(&mut self) -> Result<bool, Error> {
        let mut all = true;
        for transfer in &mut self.sends {
            all &= transfer.poll()?;
        }
        Ok(all)
    }

    /// The piece that was received last, while no other is expected.
    pub fn last(&mut self) -> Option<(PieceHeader, &[u8])> {
        let bytes = &*self.receive.bytes();
        Some((PieceHeader::read(bytes)?, bytes))
    }

    /// Waits until all that was sent has left.
    ///
    /// # Errors
    /// If a call of MPI fails.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.sends.iter_mut().try_for_each(wait)
    }
}

fn wait(transfer: &mut Transfer) -> Result<(), Error> {
    let mut patience = Patience::default();
    while !transfer.poll()? {
        transfer.check_ranks()?;
        patience.pause();
    }
    Ok(())
}
