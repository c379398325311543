//! What of a loose schema is not enforced.

use std::fmt::{Display, Formatter};

/// A part of a schema that is not enforced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The part, as a JSON pointer in a fragment.
    pub pointer: String,
    /// Why the part is not enforced.
    pub what: String,
}

impl Display for LeftOut {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.pointer, self.what)
    }
}
