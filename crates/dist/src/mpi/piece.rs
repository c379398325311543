//! Pieces of messages as bytes: a header that says which call they are part of, and values.

use crate::call::{PIECE, RankCall};

/// Bytes of a header: kind of the call, number of values here, length of the call, and its root or
/// the number of values of the sender.
pub(super) const HEADER: usize = 24;
/// Bytes of the longest piece.
pub(super) const BYTES: usize = HEADER + 4 * PIECE;

/// What is said of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PieceHeader {
    pub call: RankCall,
    /// Values of the sender in all its pieces, where these differ between ranks.
    pub own: usize,
    /// Values of this piece.
    pub values: usize,
}

impl PieceHeader {
    /// Writes the header and `values` into `bytes`. Returns the number of bytes.
    pub fn write(&self, values: &[f32], bytes: &mut [u8]) -> usize {
        let (kind, length, other) = match self.call {
            RankCall::AllReduceSum { length } => (0u32, length, 0),
            RankCall::AllGather { length } => (1, length, self.own),
            RankCall::Broadcast { length, root } => (2, length, root),
            RankCall::Barrier => (3, 0, 0),
            RankCall::Send { length } => (4, length, 0),
        };
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&(values.len() as u32).to_le_bytes());
        bytes[8..16].copy_from_slice(&(length as u64).to_le_bytes());
        bytes[16..HEADER].copy_from_slice(&(other as u64).to_le_bytes());
        let places = bytes[HEADER..].as_chunks_mut::<4>().0;
        places.iter_mut().zip(values).for_each(|(place, value)| *place = value.to_le_bytes());
        HEADER + 4 * values.len()
    }

    /// Reads a header; `None` if it is none.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (words, _) = bytes.get(..HEADER)?.as_chunks::<8>();
        let [first, length, other] = [0, 1, 2].map(|at| u64::from_le_bytes(words[at]));
        let (length, other) = (usize::try_from(length).ok()?, usize::try_from(other).ok()?);
        let call = match first as u32 {
            0 => RankCall::AllReduceSum { length },
            1 => RankCall::AllGather { length },
            2 => RankCall::Broadcast { length, root: other },
            3 => RankCall::Barrier,
            4 => RankCall::Send { length },
            _ => return None,
        };
        let values = (first >> 32) as usize;
        (values <= PIECE).then_some(Self { call, own: other, values })
    }
}

/// The values of a piece.
pub(super) fn values(bytes: &[u8], count: usize) -> impl Iterator<Item = f32> {
    let places = bytes[HEADER..HEADER + 4 * count].as_chunks::<4>().0;
    places.iter().map(|place| f32::from_le_bytes(*place))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn headers_and_values_come_back() {
        let mut bytes = vec![0; BYTES];
        for call in [
            RankCall::AllReduceSum { length: 7 },
            RankCall::AllGather { length: 1 << 40 },
            RankCall::Broadcast { length: 3, root: 5 },
            RankCall::Barrier,
            RankCall::Send { length: 9 },
        ] {
            let own = if matches!(call, RankCall::AllGather { .. }) { 11 } else { 0 };
            let sent = PieceHeader { call, own, values: 3 };
            assert_eq!(sent.write(&[1.0, -0.0, f32::MAX], &mut bytes), HEADER + 12);
            let found = PieceHeader::read(&bytes).unwrap();
            assert_eq!((found.call, found.values), (call, 3));
            assert!(own == 0 || found.own == own);
            let read: Vec<u32> = values(&bytes, 3).map(f32::to_bits).collect();
            assert_eq!(read, [1.0, -0.0, f32::MAX].map(f32::to_bits));
        }
        assert_eq!(PieceHeader::read(&bytes[..HEADER - 1]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_header_or_none(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Some(header) = PieceHeader::read(&bytes) {
                prop_assert!(header.values <= PIECE);
            }
        }
    }
}
