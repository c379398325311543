//! Packed matrices of a file, until matrices that are added take them.

use crate::handles::{MatrixSpec, PackedMatrix, Storage};
use kernels::layout::Layout;
use std::collections::HashMap;

/// Packed matrices by name and number.
#[derive(Default)]
pub(super) struct PackedParts {
    parts: HashMap<(String, u32), (PackedMatrix, Storage)>,
    /// How many matrices of each name were added.
    added: HashMap<String, u32>,
}

impl PackedParts {
    pub fn new(parts: Vec<(PackedMatrix, Storage)>) -> Self {
        let key = |part: &PackedMatrix| (part.name.clone(), part.index);
        let parts = parts.into_iter().map(|part| (key(&part.0), part)).collect();
        Self { parts, added: HashMap::new() }
    }

    /// Takes the bytes of a matrix that is added, if the file holds it in `layout` and `len` bytes.
    /// Every matrix that is added is counted here, also where it is not packed.
    pub fn take(&mut self, spec: &MatrixSpec, packed: Option<(&Layout, usize)>) -> Option<Storage> {
        if self.parts.is_empty() {
            return None;
        }
        let added = self.added.entry(spec.name.clone()).or_default();
        let index = std::mem::replace(added, *added + 1);
        let (layout, len) = packed?;
        let (part, bytes) = self.parts.remove(&(spec.name.clone(), index))?;
        let alike = (part.ty, part.rows, part.cols) == (spec.ty, spec.rows, spec.cols);
        (alike && part.layout == layout.name && bytes.len() == len).then_some(bytes)
    }
}
