//! Speculation: drafts of the next tokens, which one forward pass verifies together.
//!
//! A drafted token costs a row of the batch and changes nothing else: tokens are sampled from the
//! model's own logits, one after the other, and a row counts only if sampling chose all drafted
//! tokens before it. So the text is that of the model alone, greedy or sampled. How many tokens are
//! drafted depends on what steps cost on this machine at this time, and on what came out before.

mod acceptance;
mod choice;
mod memory;
mod ngram;
mod probability;
mod request;
mod suffix;

pub(crate) use acceptance::Acceptance;
pub(crate) use choice::{OfferedDraft, best_number};
pub(crate) use memory::DraftMemory;
pub(crate) use probability::{most_likely, probability};
pub(crate) use request::{DraftSources, RequestDraft};
pub(crate) use suffix::MAX_COMPARED;
