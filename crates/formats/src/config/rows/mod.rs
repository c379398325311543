//! Hyperparameters that files give as one value each.
//!
//! A [`FieldRow`] says what a hyperparameter is called in both kinds of files, what it may be, and
//! where it is kept. Reading, writing and errors follow from it, as do the table of
//! `docs/add-a-model.md` and the values of the test of hostile files. What takes several fields, or
//! differs from layer to layer, is read by functions.

mod fill;
mod known;
mod row;
mod table;

pub(crate) use fill::fill;
pub use known::{KnownField, known_fields};
pub(crate) use row::{Absent, FieldRow, FieldSource, read, to_json, write_gguf};
pub(crate) use table::*;
