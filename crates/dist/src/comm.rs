//! Collectives between ranks.

use crate::error::Error;
use std::iter::Sum;
use std::sync::Arc;
use std::time::Duration;

/// Most bytes of a message of bytes: 64 MiB.
const MAX_BYTES: usize = 64 << 20;
/// Values of the first part of a message of bytes: its length, and bytes.
const FIRST: usize = 256;
/// Values of the other parts.
const PART: usize = 4096;

/// One rank of a group of ranks. Calls on one rank are serialised.
///
/// A collective (`all_reduce_sum`, `all_gather`, `broadcast`, `barrier`, `split`) is called by all
/// ranks alike.
///
/// # Errors
/// Where ranks differ in the call or its lengths, a rank that sees it gets an error. When a rank
/// has left, calls that need it return an error that names it. After an error the contents of
/// output slices are unspecified.
pub trait Comm: Send + Sync {
    /// Number of this rank, from 0.
    fn rank(&self) -> usize;

    /// Number of ranks of the group.
    fn ranks(&self) -> usize;

    /// Whether several threads may call groups of this process at the same time.
    fn takes_threads(&self) -> bool {
        true
    }

    /// Replaces each value by its sum over all ranks, `((r0 + r1) + r2) + …` for every element,
    /// whatever the length: equal bits on all ranks.
    fn all_reduce_sum(&self, values: &mut [f32]) -> Result<(), Error>;

    /// Concatenates the values of all ranks in the order of ranks. Ranks may contribute different
    /// numbers of values, as shards do; `all` is exactly as long as all of them.
    fn all_gather(&self, own: &[f32], all: &mut [f32]) -> Result<(), Error>;

    /// Copies the values of rank `root` to all ranks.
    fn broadcast(&self, root: usize, values: &mut [f32]) -> Result<(), Error>;

    /// Sends values to rank `to`, which must receive as many. Some messages to a rank wait for it
    /// in buffers, so that the call returns before they are received; where these are full, the
    /// call waits.
    fn send(&self, to: usize, values: &[f32]) -> Result<(), Error>;

    /// Waits for the next values that rank `from` sends.
    fn receive(&self, from: usize, values: &mut [f32]) -> Result<(), Error>;

    /// Waits until all ranks have called it.
    fn barrier(&self) -> Result<(), Error>;

    /// Divides the group: ranks of equal `colour` form one, in the order of `key` and, where that
    /// is equal, of their numbers here. Both are below 2³².
    fn split(&self, colour: usize, key: usize) -> Result<Arc<dyn Comm>, Error>;

    /// What this rank has sent to others through this group so far, and how long that has taken.
    fn traffic(&self) -> Traffic;

    /// Concatenates the values of all ranks in the order of ranks on rank `root`, as
    /// [`all_gather`](Self::all_gather) does; `parts` are their numbers of values. On other ranks
    /// `all` is left as it is.
    fn gather(
        &self,
        root: usize,
        own: &[f32],
        (parts, all): (&[usize], &mut [f32]),
    ) -> Result<(), Error> {
        if self.rank() != root {
            return self.send(root, own);
        }
        let mut rest = all;
        for (rank, &part) in parts.iter().enumerate() {
            let (values, after) = rest.split_at_mut(part);
            match rank == root {
                true => values.copy_from_slice(own),
                false => self.receive(rank, values)?,
            }
            rest = after;
        }
        Ok(())
    }

    /// Sends bytes to rank `to`, as [`send`](Self::send) does: at most 64 MiB.
    fn send_bytes(&self, to: usize, bytes: &[u8]) -> Result<(), Error> {
        if bytes.len() > MAX_BYTES {
            let (from, found) = (self.rank(), bytes.len());
            return Err(Error::Bytes { from, rank: to, found, most: MAX_BYTES });
        }
        let (first, rest) = bytes.split_at(bytes.len().min(4 * (FIRST - 1)));
        let mut values = [0.0; FIRST];
        values[0] = f32::from_bits(bytes.len() as u32);
        pack(first, &mut values[1..]);
        self.send(to, &values)?;
        for part in rest.chunks(4 * PART) {
            let mut values = [0.0; PART];
            pack(part, &mut values);
            self.send(to, &values[..part.len().div_ceil(4)])?;
        }
        Ok(())
    }

    /// Waits for the next bytes that rank `from` sends, which replace those of `bytes`.
    fn receive_bytes(&self, from: usize, bytes: &mut Vec<u8>) -> Result<(), Error> {
        let mut values = [0.0; FIRST];
        self.receive(from, &mut values)?;
        let found = values[0].to_bits() as usize;
        if found > MAX_BYTES {
            return Err(Error::Bytes { from, rank: self.rank(), found, most: MAX_BYTES });
        }
        bytes.clear();
        unpack(&values[1..], bytes);
        while bytes.len() < found {
            let mut values = [0.0; PART];
            let part = &mut values[..(found - bytes.len()).div_ceil(4).min(PART)];
            self.receive(from, part)?;
            unpack(part, bytes);
        }
        bytes.truncate(found);
        Ok(())
    }
}

/// What a rank has sent, and the time that calls have taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Messages, or parts of collectives, to single ranks.
    pub messages: u64,
    /// Bytes of their values.
    pub bytes: u64,
    /// Time that calls have taken, in which the rank has mostly waited for others.
    pub time: Duration,
}

impl Sum for Traffic {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            messages: sum.messages + one.messages,
            bytes: sum.bytes + one.bytes,
            time: sum.time + one.time,
        })
    }
}

/// Writes bytes as the bits of values, which are moved and never computed with.
fn pack(bytes: &[u8], values: &mut [f32]) {
    for (four, value) in bytes.chunks(4).zip(values) {
        let mut bits = [0; 4];
        bits[..four.len()].copy_from_slice(four);
        *value = f32::from_bits(u32::from_le_bytes(bits));
    }
}

fn unpack(values: &[f32], bytes: &mut Vec<u8>) {
    bytes.extend(values.iter().flat_map(|value| value.to_bits().to_le_bytes()));
}
