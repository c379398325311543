//! The architectures, one file per close family.

mod deepseek;
mod dense;
mod moe;

use crate::loader::Loader;
use crate::{Error, Model};

/// An architecture and how to load it.
pub(crate) struct Arch {
    /// Canonical name, as [`formats::ModelConfig::architecture`] gives it.
    pub name: &'static str,
    pub load: fn(&mut Loader<'_>) -> Result<Box<dyn Model>, Error>,
}

static ARCHS: &[&[Arch]] = &[dense::ARCHS, moe::ARCHS, deepseek::ARCHS];

/// The architecture with this canonical name.
pub(crate) fn find(name: &str) -> Option<&'static Arch> {
    ARCHS.iter().copied().flatten().find(|arch| arch.name == name)
}

/// Canonical names of all architectures there are.
pub fn supported() -> impl Iterator<Item = &'static str> {
    ARCHS.iter().copied().flatten().map(|arch| arch.name)
}
