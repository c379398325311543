//! How an engine takes requests.

use crate::disk::DiskCache;
use crate::observe::drafter::MAX_DRAFTED;
use crate::request::speculate::Speculate;
use crate::step::trace::TraceSink;
use crate::step::turns::ComputeTurns;
use std::time::Duration;

/// How an engine takes requests.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Requests that may wait before more are rejected.
    pub queue: usize,
    /// Sequences that run at once.
    pub running: usize,
    /// Time between tokens that the prompts of other requests shall not exceed.
    pub itl_target: Duration,
    /// How tokens are drafted, unless a request says otherwise.
    pub speculate: Speculate,
    /// Bytes of earlier prompts and answers from which tokens are drafted; 0 for none.
    pub draft_memory: usize,
    /// Whether layers and a second model draft wherever they may, and all that is drafted is
    /// verified, whether that is faster or not: for tests and measurements.
    pub drafts_always: bool,
    /// Maximum time of a request, from submission to its end.
    pub timeout: Option<Duration>,
    /// Where traces of requests go.
    pub traces: Option<TraceSink>,
    /// The cache on disk, if there is one.
    pub disk: Option<DiskCache>,
    /// Bytes of the KV cache beyond those in use that are touched at the start and while the engine
    /// is idle. Systems provide memory when it is first written, which slows a prompt by up to a
    /// third.
    pub cache_ahead: usize,
    /// The turns of the engines that share the processors; `None` for an engine that is alone.
    pub turns: Option<ComputeTurns>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            queue: 256,
            running: 16,
            itl_target: Duration::from_millis(100),
            speculate: Speculate::default(),
            draft_memory: 64 << 20,
            drafts_always: false,
            timeout: None,
            traces: None,
            disk: None,
            cache_ahead: 0,
            turns: None,
        }
    }
}

impl EngineOptions {
    /// Maximum rows of a step that have logits: one for each sequence, and drafts of some.
    pub fn logit_rows(&self) -> usize {
        self.running.max(1) + 4 * MAX_DRAFTED
    }
}
