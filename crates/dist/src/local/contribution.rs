//! The contribution of a rank to a round of a collective, which all others read.

use crate::call::RankCall;
use crate::error::Error;

/// A call and a piece of its values.
#[derive(Debug)]
pub(super) struct Contribution {
    call: RankCall,
    /// Number of the rank's own values, of all pieces.
    pub own: usize,
    pub values: Vec<f32>,
}

impl Contribution {
    pub const EMPTY: Self = Self { call: RankCall::Barrier, own: 0, values: Vec::new() };

    /// Overwrites the contribution; allocates only while its capacity is below a piece.
    pub fn write(&mut self, call: RankCall, own: usize, piece: &[f32]) {
        (self.call, self.own) = (call, own);
        self.values.clear();
        self.values.extend_from_slice(piece);
    }

    /// Checks that `rank`, which this contribution is from, made the call of rank `own`.
    ///
    /// # Errors
    /// If it made another call.
    pub fn check(&self, rank: usize, call: RankCall, own: usize) -> Result<(), Error> {
        call.check(own, self.call, rank)
    }
}
