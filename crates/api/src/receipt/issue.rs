//! Writes the receipt of a running request.

use super::{
    IdsDigest, ModelIdentity, Receipt, ReceiptAnswer, ReceiptKey, ReceiptModel, ReceiptRequest,
    VERSION, canonical, sha256,
};
use crate::error::ApiError;
use crate::event::Finish;
use crate::request::RequestOptions;
use crate::service::Service;
use base::Rng;
use engine::trace::{TraceSettings, with_greedy_choices};
use engine::{AnswerRecord, Event, Field, Finished, Generation, GrammarRef, Request};

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
    fn follow(&mut self, mut generation: Generation, choices: usize) -> Result<(), ApiError> {
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
    fn finish(self, finish: &str, choices: usize) -> Receipt {
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

/// Bits of a seed that is drawn for a receipt: every JSON reader keeps numbers of these.
const SEED_BITS: u32 = 53;

impl Service {
    /// Computes the digests of the model that receipts have, which takes as long as reading its
    /// weights where they are not remembered. Requests with receipts do so otherwise.
    ///
    /// # Errors
    /// If the service gives no receipts, or a file cannot be read.
    pub fn prepare_receipts(&self) -> Result<(), ApiError> {
        self.receipt_model().map(drop)
    }

    fn receipt_model(&self) -> Result<(&ModelIdentity, ReceiptModel), ApiError> {
        let Some(identity) = &self.identity else {
            return Err(ApiError::invalid("receipt", "the service gives no receipts"));
        };
        let model = identity.model(self.tokenizer(), self.template_source())?;
        Ok((identity, model))
    }

    /// Begins the receipt of `request`, if `terms` ask for one.
    pub(crate) fn begin_receipt(
        &self,
        request: &mut Request,
        terms: &RequestOptions,
    ) -> Result<Option<ReceiptIssuer>, ApiError> {
        if !terms.receipt {
            return Ok(None);
        }
        let (identity, model) = self.receipt_model()?;
        let seed = || Rng::entropy_seed() >> (u64::BITS - SEED_BITS);
        request.sampling.seed.get_or_insert_with(seed);
        let (context, key) = (self.info().context_length, terms.receipt_key.clone());
        Ok(Some(ReceiptIssuer::begin(request, identity, model, context, key)))
    }

    /// Computes the request of a receipt again from the ids of its prompt, without the caches, and
    /// waits for its answer. The receipt of that ends with the last choice of the first.
    ///
    /// # Errors
    /// If the request had a constraint, of which a receipt has only a digest, or the model cannot
    /// compute the request.
    pub fn compute_again(&self, receipt: &Receipt, prompt: &[u32]) -> Result<Receipt, ApiError> {
        let ReceiptRequest { min_tokens, stop_ids, sampling, constraint, .. } = &receipt.request;
        if constraint.is_some() {
            let message = "the request had a constraint, of which the receipt has only a digest";
            return Err(ApiError::Invalid { field: Field::Constraint, message: message.into() });
        }
        let mut request = Request {
            prompt: prompt.to_vec(),
            sampling: sampling.clone(),
            min_tokens: *min_tokens,
            stop_ids: stop_ids.clone(),
            adapters: self.adapters_of_request(),
            constraint: with_greedy_choices(None, &receipt.answer.greedy),
            cold: true,
            ..Request::default()
        };
        let terms = RequestOptions { receipt: true, ..RequestOptions::default() };
        let again = self.begin_receipt(&mut request, &terms)?;
        let mut again = again.expect("a receipt was asked for");
        if !receipt.answer.logits.is_empty() {
            let generation = self.submit(request, &terms)?;
            again.follow(generation, receipt.answer.logits.len())?;
        }
        Ok(again.finish(&receipt.answer.finish, receipt.answer.logits.len()))
    }
}
