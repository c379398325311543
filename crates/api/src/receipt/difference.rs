//! What differs between two receipts.

use super::digest::shortest;
use super::form::{IdsDigest, Receipt, ReceiptAnswer, ReceiptModel};
use serde_json::{Value, json};

/// A part of a receipt that differs from what was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiptDifference {
    /// The part, such as `weights`, `prompt` or `logits`.
    pub part: String,
    /// What the receipt has.
    pub receipt: String,
    /// What was found.
    pub found: String,
}

/// Digests of what a receipt is about, as far as they are at hand without computing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DigestedParts {
    /// The model.
    pub model: Option<ReceiptModel>,
    /// Ids of the prompt.
    pub prompt: Option<IdsDigest>,
    /// Ids of the answer.
    pub answer: Option<IdsDigest>,
}

impl ReceiptDifference {
    fn of(part: &str, receipt: impl ToString, found: impl ToString) -> Option<Self> {
        let (part, receipt, found) = (part.into(), receipt.to_string(), found.to_string());
        (receipt != found).then_some(Self { part, receipt, found })
    }
}

impl Receipt {
    /// What differs from the digests that are at hand.
    pub fn differences_of_parts(&self, parts: &DigestedParts) -> Vec<ReceiptDifference> {
        let model = parts.model.iter().flat_map(|model| self.model.differences(model));
        let ids = [
            ("prompt", &self.request.prompt, &parts.prompt),
            ("answer", &self.answer.ids, &parts.answer),
        ];
        let ids =
            ids.into_iter().filter_map(|(part, own, other)| own.difference(part, other.as_ref()?));
        model.chain(ids).collect()
    }

    /// What differs from a receipt of the same request that was computed again. The maximum number
    /// of tokens is not compared: it may be what another context has space for.
    pub fn differences(&self, again: &Self) -> Vec<ReceiptDifference> {
        let settings = self.settings.difference(&again.settings);
        let settings =
            settings.and_then(|(part, own, other)| ReceiptDifference::of(part, own, other));
        let (own, other) = (&self.request, &again.request);
        let sampling = [own, other].map(|it| shortest(&it.sampling));
        let prompt = own.prompt.difference("prompt", &other.prompt);
        let request = [
            ReceiptDifference::of("min_tokens", own.min_tokens, other.min_tokens),
            ReceiptDifference::of("stop_ids", json!(own.stop_ids), json!(other.stop_ids)),
            ReceiptDifference::of("constraint", json!(own.constraint), json!(other.constraint)),
        ];
        let mut all = self.model.differences(&again.model);
        all.extend(settings);
        all.extend(prompt);
        all.extend(request.into_iter().flatten());
        all.extend(members(&sampling[0], &sampling[1]));
        all.extend(self.answer.differences(&again.answer));
        all
    }
}

impl ReceiptModel {
    fn differences(&self, other: &Self) -> Vec<ReceiptDifference> {
        let [own, found] = [self, other].map(|it| it.template.as_deref().unwrap_or("none"));
        let all = [
            ReceiptDifference::of("weights", &self.weights, &other.weights),
            ReceiptDifference::of("tokenizer", &self.tokenizer, &other.tokenizer),
            ReceiptDifference::of("template", own, found),
        ];
        all.into_iter().flatten().collect()
    }
}

impl IdsDigest {
    fn difference(&self, part: &str, other: &Self) -> Option<ReceiptDifference> {
        let text = |ids: &Self| format!("{} tokens, {}", ids.tokens, ids.sha256);
        ReceiptDifference::of(part, text(self), text(other))
    }
}

impl ReceiptAnswer {
    fn differences(&self, other: &Self) -> Vec<ReceiptDifference> {
        let differ = |at: &usize| self.logits.get(*at) != other.logits.get(*at);
        let logits = (0..self.logits.len().max(other.logits.len())).find(differ).and_then(|at| {
            let hash = |answer: &Self| match answer.logits.get(at) {
                Some(hash) => hash.clone(),
                None => "none".into(),
            };
            ReceiptDifference::of(&format!("logits of token {at}"), hash(self), hash(other))
        });
        let finish = ReceiptDifference::of("finish", &self.finish, &other.finish);
        let greedy = ReceiptDifference::of("greedy", json!(self.greedy), json!(other.greedy));
        let ids = self.ids.difference("answer", &other.ids);
        [logits, ids, finish, greedy].into_iter().flatten().collect()
    }
}

/// The members of two objects that differ.
fn members(own: &Value, other: &Value) -> Vec<ReceiptDifference> {
    let names = own.as_object().into_iter().flat_map(|members| members.keys());
    names.filter_map(|name| ReceiptDifference::of(name, &own[name], &other[name])).collect()
}
