//! Receipts: what an answer was computed from and what it is, as digests, so that whoever has the
//! model can compute it again and compare. No text is in a receipt.
//!
//! The numbers and names of a receipt are those of traces: the same settings, and the same chain of
//! hashes over all logits.

mod difference;
mod digest;
mod form;
mod identity;
mod key;

pub use difference::{DigestedParts, ReceiptDifference};
pub(crate) use digest::{canonical, sha256};
pub(crate) use form::VERSION;
pub use form::{IdsDigest, Receipt, ReceiptAnswer, ReceiptModel, ReceiptRequest};
pub use identity::ModelIdentity;
pub(crate) use identity::add_vocabulary;
pub use key::{ReceiptKey, ReceiptSignature};
