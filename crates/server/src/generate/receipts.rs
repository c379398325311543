//! Receipts of answers in the JSON of every protocol.
//!
//! A whole answer has the member `receipt`, or `receipts` for several choices in their order, and
//! the header `x-gannet-receipt` with their digests. In a stream, `receipt` is in the last JSON of
//! its choice.

use crate::generate::answer::Collected;
use crate::http::error::HttpError;
use crate::http::options::ServerOptions;
use crate::http::sse::Frame;
use api::{Receipt, TextEvent};
use axum::http::{HeaderName, HeaderValue};
use serde_json::Value;

/// The header of whole answers: the digests of their receipts, with commas between them.
pub(crate) const RECEIPT: HeaderName = HeaderName::from_static("x-gannet-receipt");

/// The member with a receipt.
const MEMBER: &str = "receipt";
/// The member with several.
const MEMBERS: &str = "receipts";

/// Whether the answers to a request have receipts.
///
/// # Errors
/// If the member of the body is no truth value.
pub(crate) fn wanted(options: &ServerOptions, body: &Value) -> Result<bool, HttpError> {
    match body.get(MEMBER) {
        None | Some(Value::Null) => Ok(options.receipts),
        Some(Value::Bool(wanted)) => Ok(*wanted),
        Some(other) => {
            Err(HttpError::member(MEMBER, format!("must be true or false, not {other}")))
        }
    }
}

/// The receipts of whole answers.
pub(crate) fn of(collected: &[Collected]) -> Vec<Receipt> {
    let done = collected.iter().filter_map(|choice| choice.done.as_ref());
    done.filter_map(|done| done.receipt.as_deref().cloned()).collect()
}

/// The value of the header, if there are receipts.
pub(crate) fn header(receipts: &[Receipt]) -> Option<HeaderValue> {
    let digests: Vec<String> = receipts.iter().map(Receipt::digest).collect();
    HeaderValue::from_str(&digests.join(",")).ok().filter(|_| !receipts.is_empty())
}

/// Adds receipts to the JSON of an answer.
pub(crate) fn add_to(json: &mut Value, receipts: &[Receipt]) {
    match (json, receipts) {
        (_, []) => {}
        (Value::Object(members), [one]) => {
            members.insert(MEMBER.into(), one.to_json());
        }
        (Value::Object(members), several) => {
            members.insert(MEMBERS.into(), several.iter().map(Receipt::to_json).collect());
        }
        (Value::Array(answers), several) if answers.len() == several.len() => {
            for (answer, receipt) in answers.iter_mut().zip(several) {
                add_to(answer, std::slice::from_ref(receipt));
            }
        }
        _ => {}
    }
}

/// The receipts of a stream that are not in a frame yet.
#[derive(Debug, Default)]
pub(crate) struct PendingReceipts(Vec<Receipt>);

impl PendingReceipts {
    /// Takes note of the receipt of an event.
    pub fn take(&mut self, event: &TextEvent) {
        if let TextEvent::Done(done) = event {
            self.0.extend(done.receipt.as_deref().cloned());
        }
    }

    /// Adds the receipts to the last of `frames` that has JSON, if one does.
    pub fn add_to(&mut self, frames: &mut [Frame]) {
        if self.0.is_empty() {
            return;
        }
        let json = frames.iter_mut().rev().find_map(|frame| match frame {
            Frame::Data(json) | Frame::Named(_, json) => Some(json),
            Frame::Word(_) | Frame::Comment(_) => None,
        });
        if let Some(json) = json {
            add_to(json, &std::mem::take(&mut self.0));
        }
    }
}
