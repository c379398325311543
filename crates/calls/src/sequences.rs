//! Sequences that callers lead, in the parts of the caches and with the adapters of requests.

use crate::error::CallError;
use crate::local_server::LocalServer;
use api::RequestOptions;
use engine::{LeadOptions, Led};
use std::time::Duration;

/// Options of a sequence that the caller leads.
#[derive(Clone, Debug)]
pub struct SequenceOptions {
    /// Maximum number of tokens; `None` for as many as the context holds.
    pub max_tokens: Option<usize>,
    /// Time without a push after which the sequence ends.
    pub idle: Duration,
    /// Sequences of a higher priority are computed first.
    pub priority: i32,
    /// The sequence shares cached prefixes with requests and sequences of the same salt.
    pub cache_salt: Option<String>,
    /// The adapters by their numbers, each with its factor; `None` for those of requests that name
    /// none.
    pub adapters: Option<Vec<(usize, f32)>>,
}

impl Default for SequenceOptions {
    fn default() -> Self {
        let LeadOptions { max_tokens, idle, priority, .. } = LeadOptions::default();
        Self { max_tokens, idle, priority, cache_salt: None, adapters: None }
    }
}

impl LocalServer {
    /// Begins a sequence without tokens that the caller leads. It must be dropped before
    /// [`close`](Self::close).
    ///
    /// # Errors
    /// If there is none of the adapters, or the server is closed.
    pub fn lead(&self, options: SequenceOptions) -> Result<Led, CallError> {
        if !self.is_alive() {
            return Err(CallError::Stopped);
        }
        let SequenceOptions { max_tokens, idle, priority, cache_salt, adapters } = options;
        let salted = RequestOptions { cache_salt, ..RequestOptions::default() };
        let mut service = self.engine().service().for_options(&salted);
        if let Some(chosen) = adapters {
            let chosen = service.adapters.of_numbers(&chosen).map_err(|error| {
                CallError::Invalid { field: "adapters".into(), problem: error.to_string() }
            })?;
            service = service.adapted(chosen, None);
        }
        let options = LeadOptions { max_tokens, idle, priority, ..LeadOptions::default() };
        Ok(service.lead(options))
    }
}
