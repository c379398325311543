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
    pub fn packed_parts(&mut self) -> Vec<PackedPart> {
        let Some(packed) = self.backend.packed() else { return Vec::new() };
        let all = packed.packed_matrices();
        let part = |(matrix, packed): (Matrix, PackedMatrix)| {
            let PackedMatrix { name, index, ty, rows, cols, layout } = packed;
            let bytes = self.backend.held(ty, rows, cols, Mode::Fast).bytes.unwrap_or(0);
            let part = PackPart { name, index, ty, layout, rows, cols, range: 0..0, crc32c: 0 };
            PackedPart { part, bytes, matrix }
        };
        all.into_iter().map(part).collect()
    }

    /// The bytes of a matrix in its layout.
    ///
    /// # Panics
    ///
    /// If the matrix is not one of [`packed_parts`](Self::packed_parts).
    pub fn read_packed(&mut self, part: &PackedPart) -> Cow<'_, [u8]> {
        let packed = self.backend.packed().expect("a part is of a device with packed matrices");
        packed.read_packed(part.matrix)
    }
}
