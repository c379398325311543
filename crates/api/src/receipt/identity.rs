//! What a receipt says of the running model.

use super::digest::{hexadecimal, sha256};
use super::form::ReceiptModel;
use crate::error::ApiError;
use engine::trace::TraceSettings;
use sha2::{Digest, Sha256};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use text::Tokenizer;

/// What receipts say of a running model. Its digests are computed when the first receipt is asked
/// for.
#[derive(Debug)]
pub struct ModelIdentity {
    settings: TraceSettings,
    /// The files of the weights.
    files: Vec<PathBuf>,
    /// The file that remembers digests of files, if there is one.
    digests: Option<PathBuf>,
    model: Mutex<Option<ReceiptModel>>,
}

impl ModelIdentity {
    /// The identity of a model with these settings, whose weights are in `files`. The file
    /// `digests` remembers digests of files from run to run.
    pub fn new(settings: TraceSettings, files: Vec<PathBuf>, digests: Option<PathBuf>) -> Self {
        Self { settings, files, digests, model: Mutex::new(None) }
    }

    /// The settings that decide bits.
    pub fn settings(&self) -> &TraceSettings {
        &self.settings
    }

    /// The digests of the model, whose vocabulary and chat template these are. The first call reads
    /// the weights, unless their digest is remembered.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(crate) fn model(
        &self,
        tokenizer: &Tokenizer,
        template: Option<&str>,
    ) -> Result<ReceiptModel, ApiError> {
        let mut known = self.model.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*known {
            return Ok(known.clone());
        }
        let weights = formats::digest_files(&self.files, self.digests.as_deref(), |_| true);
        let problem = |why: String| ApiError::Engine(format!("cannot read the weights: {why}"));
        let weights = weights.map_err(|error| problem(error.to_string()))?;
        let weights = weights.ok_or_else(|| problem("interrupted".into()))?;
        Ok(known.insert(ReceiptModel::of(weights, tokenizer, template)).clone())
    }
}

impl ReceiptModel {
    /// A model with weights of this digest.
    pub fn of(weights: String, tokenizer: &Tokenizer, template: Option<&str>) -> Self {
        let template = template.map(|source| sha256(source.as_bytes()));
        Self { weights, tokenizer: vocabulary_digest(tokenizer), template }
    }
}

fn vocabulary_digest(tokenizer: &Tokenizer) -> String {
    let mut hash = Sha256::new();
    add_vocabulary(&mut hash, tokenizer);
    hexadecimal(&hash.finalize())
}

/// Adds the bytes of all tokens, each with their number before them.
pub(crate) fn add_vocabulary(hash: &mut Sha256, tokenizer: &Tokenizer) {
    for id in 0..u32::try_from(tokenizer.vocab_size()).unwrap_or(u32::MAX) {
        let bytes = tokenizer.token_bytes(id);
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    }
}
