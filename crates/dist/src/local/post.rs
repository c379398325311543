//! What a rank shows to all others in a round.

use crate::Error;
use std::fmt;

/// A collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    AllReduceSum,
    AllGather,
    Broadcast,
    Barrier,
}

/// What all ranks must agree upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub name: Name,
    /// Values of the result.
    pub length: usize,
    /// Whose values are wanted, where that is one rank's.
    pub root: usize,
}

impl Call {
    pub const BARRIER: Self = Self { name: Name::Barrier, length: 0, root: 0 };
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = self.length;
        match self.name {
            Name::AllReduceSum => write!(f, "all_reduce_sum of {length} values"),
            Name::AllGather => write!(f, "all_gather of {length} values"),
            Name::Broadcast => write!(f, "broadcast of {length} values from rank {}", self.root),
            Name::Barrier => f.write_str("barrier"),
        }
    }
}

/// A call and a piece of its values.
#[derive(Debug)]
pub(super) struct Post {
    call: Call,
    /// Values that the rank brings, of all pieces.
    pub own: usize,
    pub values: Vec<f32>,
}

impl Post {
    pub const EMPTY: Self = Self { call: Call::BARRIER, own: 0, values: Vec::new() };

    /// Takes the place of what stood here; no memory is taken once there is room for a piece.
    pub fn write(&mut self, call: Call, own: usize, piece: &[f32]) {
        (self.call, self.own) = (call, own);
        self.values.clear();
        self.values.extend_from_slice(piece);
    }

    /// Whether rank `rank`, whose post this is, made the call of rank `own`.
    pub fn check(&self, rank: usize, call: Call, own: usize) -> Result<(), Error> {
        if self.call == call {
            return Ok(());
        }
        let (expected, found) = (call.to_string(), self.call.to_string());
        Err(Error::Mismatch { rank, own, expected, found })
    }
}
