//! The packed weights of a runner, as they are written to a file.

use super::runner::Runner;
use backend::{Matrix, Mode, PackedMatrix};
use formats::PackPart;
use std::borrow::Cow;

/// A matrix to be written.
#[derive(Clone, Debug)]
pub struct PackedPart {
    /// The part, whose place and checksum are not known yet.
    pub part: PackPart,
    /// Bytes.
    pub bytes: usize,
    matrix: Matrix,
}

impl Runner {
    /// The matrices that are held in packed layouts.
    pub fn packed_parts(&self) -> Vec<PackedPart> {
        let part = |(matrix, packed): (Matrix, PackedMatrix)| {
            let PackedMatrix { name, index, ty, rows, cols, layout } = packed;
            let bytes = self.backend.held(ty, rows, cols, Mode::Fast).bytes.unwrap_or(0);
            let part = PackPart { name, index, ty, layout, rows, cols, range: 0..0, crc32c: 0 };
            PackedPart { part, bytes, matrix }
        };
        self.backend.packed_matrices().into_iter().map(part).collect()
    }

    /// The bytes of a matrix in its layout.
    pub fn read_packed(&mut self, part: &PackedPart) -> Cow<'_, [u8]> {
        self.backend.read_packed(part.matrix)
    }
}
