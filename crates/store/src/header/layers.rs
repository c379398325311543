//! What protects the layers of an extent: checksums, or tags under a key.

use super::extent::Header;
use super::outline::{Outline, Seal};
use crate::key::{FileKey, StoreKey, new_salt};
use std::io;

impl Seal {
    /// The seal of a new file, without tags yet.
    pub(crate) fn new(key: &StoreKey) -> io::Result<Self> {
        Ok(Self { key: key.id(), salt: new_salt()?, tags: Vec::new() })
    }
}

impl Outline {
    /// Whether the extent is sealed under this key.
    pub(crate) fn is_sealed_under(&self, key: &StoreKey) -> bool {
        self.seal.as_ref().is_some_and(|seal| seal.key == key.id())
    }
}

impl Header {
    /// Computes the checksums of all layers of all blocks, which `bytes` are, and encrypts them
    /// where the extent is sealed, under its key.
    pub(crate) fn protect(&mut self, bytes: &mut [u8], key: Option<&StoreKey>) {
        let context = self.outline.prefix(self.parent);
        let Outline { blocks, layer_bytes, checksums, seal, .. } = &mut self.outline;
        let mut seal = seal.as_mut().zip(key).map(|(seal, key)| (key.of_file(&seal.salt), seal));
        let layers = (0..*blocks).flat_map(|_| &*layer_bytes);
        let mut rest = bytes;
        for (part, layer) in (1..).zip(layers) {
            let (data, behind) = std::mem::take(&mut rest).split_at_mut(*layer as usize);
            rest = behind;
            if let Some((key, seal)) = &mut seal {
                seal.tags.push(key.seal(part, &context, data));
            }
            checksums.push(crc32c::crc32c(data));
        }
    }
}

/// Checks layers of an extent.
pub(crate) struct LayerCheck<'a> {
    outline: &'a Outline,
    /// The key of a sealed extent, and what its content is bound to.
    key: Option<(FileKey, Vec<u8>)>,
}

impl<'a> LayerCheck<'a> {
    /// With the key of a sealed extent, its layers are decrypted; without, only checksums are
    /// compared.
    pub fn new(outline: &'a Outline, key: Option<&StoreKey>) -> Self {
        let key = outline.seal.as_ref().zip(key);
        let key = key.map(|(seal, key)| (key.of_file(&seal.salt), outline.prefix(seal.key)));
        Self { outline, key }
    }

    /// Whether a layer of a block is as it was written. It is decrypted in place.
    pub fn is_valid(&self, block: usize, layer: usize, bytes: &mut [u8]) -> bool {
        let part = self.outline.part(block, layer);
        match (&self.key, &self.outline.seal) {
            (Some((key, context)), Some(seal)) => {
                key.open(1 + part as u64, context, &seal.tags[part], bytes)
            }
            _ => crc32c::crc32c(bytes) == self.outline.checksums[part],
        }
    }
}
