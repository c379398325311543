//! The storage types of the matrices of a synthetic checkpoint.

use crate::quantize::Mixture;
use crate::types::{writable_names, writable_type};
use kernels::quant::QuantType;

/// How the matrices of a new checkpoint are stored.
#[derive(Clone, Copy, Debug)]
pub enum MatrixTypes {
    /// All in one type.
    One(&'static QuantType),
    /// In the types of a mixture, as quantisation chooses them.
    Mixed(&'static Mixture),
}

impl MatrixTypes {
    /// The type or else the mixture called `name`.
    ///
    /// # Errors
    ///
    /// The message for an unknown name, which lists the known ones.
    pub fn named(name: &str) -> Result<Self, String> {
        if let Ok(ty) = writable_type(name) {
            return Ok(Self::One(ty));
        }
        let mixture = Mixture::named(name).map(Self::Mixed);
        mixture.map_err(|_| {
            let (types, mixtures) = (writable_names(), Mixture::names());
            format!("expected one of the types {types} or of the mixtures {mixtures}")
        })
    }
}
