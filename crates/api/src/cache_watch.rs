//! Follows one request for the report of the cache and for the history of prompts.

use crate::cache_report::{CacheReport, PromptPast, ReportContext};
use crate::caller_part::CallerPart;
use crate::prompt_history::{PromptHistory, RunningPrompt};
use engine::Request;
use sched::CacheLookup;
use std::sync::Arc;
use text::TextAssets;

/// The caller of a prepared request, and what is known of the caller's earlier prompts.
#[derive(Clone, Debug)]
pub(crate) struct KnownCaller {
    pub of: CallerPart,
    pub past: PromptPast,
}

/// Follows one request.
#[derive(Debug)]
pub(crate) struct CacheWatch {
    assets: Arc<TextAssets>,
    context: ReportContext,
    prompt_tokens: usize,
    /// The prompt in the history of its caller.
    running: Option<RunningPrompt>,
}

impl CacheWatch {
    /// Follows `request`, which is about to be submitted.
    pub fn new(
        request: &Request,
        assets: Arc<TextAssets>,
        history: &Arc<PromptHistory>,
        caller: Option<&KnownCaller>,
    ) -> Self {
        let context = ReportContext::new(request, caller.map(|caller| caller.past.clone()));
        let running = caller.map(|caller| history.add(caller.of, request.prompt.clone()));
        Self { assets, context, prompt_tokens: request.prompt.len(), running }
    }

    /// The report of what the cache held.
    pub fn admitted(&self, lookup: &CacheLookup) -> CacheReport {
        self.context.report(lookup, &self.assets.tokenizer)
    }

    /// Counts `done` tokens of the prompt as computed.
    pub fn prefilled(&mut self, done: usize) {
        if let Some(running) = &mut self.running {
            running.computed = done;
        }
    }

    /// Adds a token of the answer.
    pub fn answered(&mut self, id: u32) {
        if let Some(running) = &mut self.running {
            running.answered(id, self.prompt_tokens);
        }
    }
}
