//! The form of a receipt.

use super::digest::{canonical, sha256, shortest};
use super::key::{ReceiptKey, ReceiptSignature};
use engine::trace::TraceSettings;
use engine::{RecordedChoices, SamplingParams};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Version of the format.
pub(crate) const VERSION: u32 = 1;

/// The part of a receipt that every version has.
#[derive(Deserialize)]
struct ReceiptVersion {
    receipt: u32,
}

/// A receipt of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Receipt {
    /// Version of the format.
    pub receipt: u32,
    /// Version of the program that computed the answer, which does not decide bits.
    pub gannet: String,
    /// The model.
    pub model: ReceiptModel,
    /// The settings that decide the answer's bits.
    pub settings: TraceSettings,
    /// The request.
    pub request: ReceiptRequest,
    /// The answer.
    pub answer: ReceiptAnswer,
    /// The signature over all other members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<ReceiptSignature>,
}

/// The files of a model, as SHA-256 in hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ReceiptModel {
    /// Digest of the files of the weights, as [`formats::digest_files`] gives it.
    pub weights: String,
    /// Digest of the vocabulary: the bytes of each token, in the order of their ids, each with
    /// their number as 8 bytes, least significant first, before them.
    pub tokenizer: String,
    /// Digest of the source of the chat template; `None` without one.
    pub template: Option<String>,
}

/// The parts of a request that decide its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ReceiptRequest {
    /// The ids of the prompt.
    pub prompt: IdsDigest,
    /// Maximum number of generated tokens: that of the request, or what the context has space for.
    pub max_tokens: usize,
    /// Number of tokens before which no stop id was chosen.
    pub min_tokens: usize,
    /// Ids that end the answer.
    pub stop_ids: Vec<u32>,
    /// How tokens were chosen, with the seed.
    pub sampling: SamplingParams,
    /// SHA-256 of the source of the constraint, as canonical JSON; `unknown` for one that has no
    /// source, `None` without a constraint.
    pub constraint: Option<String>,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ReceiptAnswer {
    /// The generated ids, without a stop id at the end.
    pub ids: IdsDigest,
    /// What ended it: `stop`, `length` or `tool_calls`.
    pub finish: String,
    /// Hash of all logits so far, after each choice, that of a stop id included, as traces have it.
    pub logits: Vec<String>,
    /// Which choices were greedy whatever the sampling options said, counted from 0.
    pub greedy: Vec<usize>,
}

/// Token ids as their number and their digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdsDigest {
    /// Number of ids.
    pub tokens: usize,
    /// SHA-256 of the ids, each as 4 bytes, least significant first, in hexadecimal digits.
    pub sha256: String,
}

impl IdsDigest {
    /// The digest of `ids`.
    pub fn of(ids: &[u32]) -> Self {
        let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        Self { tokens: ids.len(), sha256: sha256(&bytes) }
    }
}

impl ReceiptAnswer {
    /// An answer of `ids` that ended for the reason `finish`.
    pub fn of(ids: &[u32], finish: &str, choices: RecordedChoices) -> Self {
        Self {
            ids: IdsDigest::of(ids),
            finish: finish.to_owned(),
            logits: choices.logits.iter().map(|hash| format!("{hash:016x}")).collect(),
            greedy: choices.greedy,
        }
    }
}

impl Receipt {
    /// Reads a receipt.
    ///
    /// # Errors
    /// If `text` is no receipt, has another version, or members that no receipt has.
    pub fn parse(text: &str) -> Result<Self, String> {
        let other = |error| format!("expected a receipt: {error}");
        let ReceiptVersion { receipt } = serde_json::from_str(text).map_err(other)?;
        if receipt != VERSION {
            return Err(format!("expected version {VERSION} of receipts, found {receipt}"));
        }
        let value: Value = serde_json::from_str(text).map_err(other)?;
        let receipt: Self = serde_json::from_str(text).map_err(other)?;
        // A member that is not known would be signed, and compared with nothing.
        if canonical(&value) != canonical(&receipt.to_json()) {
            return Err("expected a receipt, found members that receipts do not have".into());
        }
        Ok(receipt)
    }

    /// The receipt as JSON.
    pub fn to_json(&self) -> Value {
        shortest(self)
    }

    /// SHA-256 of the receipt as canonical JSON, in hexadecimal digits.
    pub fn digest(&self) -> String {
        sha256(canonical(&self.to_json()).as_bytes())
    }

    /// The text that is signed: canonical JSON of all members but the signature.
    fn signed_text(&self) -> String {
        canonical(&Self { signature: None, ..self.clone() }.to_json())
    }

    /// The same receipt with a signature.
    pub fn signed(self, key: &ReceiptKey) -> Self {
        let signature = Some(key.sign(self.signed_text().as_bytes()));
        Self { signature, ..self }
    }

    /// Checks the signature, if there is one, and returns the public key that it was made with.
    ///
    /// # Errors
    /// If the receipt was altered, or the signature cannot be read.
    pub fn check_signature(&self) -> Result<Option<&str>, String> {
        let Some(signature) = &self.signature else { return Ok(None) };
        signature.check(self.signed_text().as_bytes())?;
        Ok(Some(&signature.key))
    }
}

#[cfg(test)]
mod tests;
