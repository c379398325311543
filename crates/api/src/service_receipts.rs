//! Receipts of the answers of a service.

use crate::error::ApiError;
use crate::receipt::{ModelIdentity, Receipt, ReceiptModel, ReceiptRequest};
use crate::receipt_issuer::ReceiptIssuer;
use crate::request::RequestOptions;
use crate::service::Service;
use base::Rng;
use engine::trace::with_greedy_choices;
use engine::{Field, Request};

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
