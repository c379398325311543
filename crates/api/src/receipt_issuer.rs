//! Writes the receipt of a running request.

use crate::error::ApiError;
use crate::event::Finish;
use crate::receipt::{
    IdsDigest, ModelIdentity, Receipt, ReceiptAnswer, ReceiptKey, ReceiptModel, ReceiptRequest,
    VERSION, canonical, sha256,
};
use engine::trace::TraceSettings;
use engine::{AnswerRecord, Event, Finished, Generation, GrammarRef, Request};

/// Collects what the receipt of a running request needs.
#[derive(Debug)]
pub(crate) struct ReceiptIssuer {
    model: ReceiptModel,
    settings: TraceSettings,
    request: ReceiptRequest,
    record: AnswerRecord,
    ids: Vec<u32>,
    key: Option<ReceiptKey>,
}

impl ReceiptIssuer {
    /// Begins a receipt of `request` in a context of this many tokens, and has the engine record
    /// its logits. `key` signs the receipt, if there is one.
    pub fn begin(
        request: &mut Request,
        identity: &ModelIdentity,
        model: ReceiptModel,
        context_length: usize,
        key: Option<ReceiptKey>,
    ) -> Self {
        let record = AnswerRecord::default();
        request.record = Some(record.clone());
        let settings = match &request.adapters {
            Some(adapters) => identity.settings().adapted(adapters),
            None => identity.settings().clone(),
        };
        let request = ReceiptRequest::of(request, context_length);
        Self { model, settings, request, record, ids: Vec::new(), key }
    }

    /// Adds a generated id.
    pub fn push(&mut self, id: u32) {
        self.ids.push(id);
    }

    /// Adds the ids of `generation` until there were this many choices, or it ends.
    ///
    /// # Errors
    /// If the computation fails.
    pub fn follow(&mut self, mut generation: Generation, choices: usize) -> Result<(), ApiError> {
        while let Some(event) = generation.next_blocking() {
            match event {
                Event::Token { id, .. } => self.push(id),
                Event::Finished(Finished { outcome, .. }) => {
                    return ApiError::of(&outcome).map_or(Ok(()), Err);
                }
                _ => {}
            }
            if self.ids.len() == choices {
                return Ok(());
            }
        }
        Err(ApiError::Stopped)
    }

    /// The receipt of the ids so far. `stops` says whether the engine chose a stop id after them.
    pub fn issue(self, finish: &Finish, stops: bool) -> Receipt {
        let choices = self.ids.len() + usize::from(stops);
        self.finish(finish.reason(), choices)
    }

    /// The receipt of the ids so far, which took this many choices.
    pub fn finish(self, finish: &str, choices: usize) -> Receipt {
        let choices = self.record.first(choices);
        let receipt = Receipt {
            receipt: VERSION,
            gannet: env!("CARGO_PKG_VERSION").into(),
            model: self.model,
            settings: self.settings,
            request: self.request,
            answer: ReceiptAnswer::of(&self.ids, finish, choices),
            signature: None,
        };
        match &self.key {
            Some(key) => receipt.signed(key),
            None => receipt,
        }
    }
}

impl ReceiptRequest {
    /// The parts of `request`, whose seed is set, in a context of this many tokens.
    pub fn of(request: &Request, context_length: usize) -> Self {
        let room = context_length.saturating_sub(request.prompt.len());
        Self {
            prompt: IdsDigest::of(&request.prompt),
            max_tokens: request.max_tokens.unwrap_or(room).min(room),
            min_tokens: request.min_tokens,
            stop_ids: request.stop_ids.clone(),
            sampling: request.sampling.clone(),
            constraint: request.constraint.as_ref().and_then(constraint_digest),
        }
    }
}

fn constraint_digest(constraint: &GrammarRef) -> Option<String> {
    let digest = || match constraint.source() {
        Some(source) => sha256(canonical(&source).as_bytes()),
        None => "unknown".into(),
    };
    constraint.excludes().then(digest)
}
