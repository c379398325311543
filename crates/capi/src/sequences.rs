//! Sequences that the caller leads, and samplers.
//!
//! Invariant: a push that fails leaves every sequence as it was before.

use crate::error::CapiError;
use crate::handles::HandleObject;
use crate::objects::{EngineObject, OfEngine, lock};
use calls::{SequenceOptions, ServerUser, lock_all};
use gannet::{Led, LedError, Outputs, SamplingParams, TokenSampler, Want};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

/// Time between two looks at whether the engine was closed.
const LOOK: Duration = Duration::from_millis(100);

/// A sequence of tokens.
#[derive(Debug)]
pub(crate) struct SequenceObject {
    engine: Arc<EngineObject>,
    state: Mutex<Option<LedSequence>>,
}

impl HandleObject for SequenceObject {
    const KIND: usize = 3;
}

impl OfEngine for SequenceObject {
    fn engine(&self) -> &Arc<EngineObject> {
        &self.engine
    }
}

impl ServerUser for SequenceObject {
    fn end(&self) {
        *lock(&self.state) = None;
    }
}

/// A sequence as its only user sees it.
#[derive(Debug)]
pub(crate) struct LedSequence {
    led: Led,
    /// Tokens before the first one that a sampler chose; `None` before that.
    prompt: Option<usize>,
}

/// A sequence that no other thread uses.
pub(crate) struct SequenceGuard<'a>(MutexGuard<'a, Option<LedSequence>>);

impl SequenceObject {
    /// Begins a sequence, which ends with its engine.
    pub(crate) fn begin(
        engine: Arc<EngineObject>,
        options: SequenceOptions,
    ) -> Result<Arc<Self>, CapiError> {
        let led = engine.running()?.lead(options)?;
        Self::attached(engine, LedSequence { led, prompt: None })
    }

    fn attached(engine: Arc<EngineObject>, state: LedSequence) -> Result<Arc<Self>, CapiError> {
        let sequence = Arc::new(Self { engine, state: Mutex::new(Some(state)) });
        let user: Weak<Self> = Arc::downgrade(&sequence);
        sequence.engine.attach(user)?;
        Ok(sequence)
    }

    /// Waits until no other thread uses the sequence.
    pub(crate) fn lock(&self) -> Result<SequenceGuard<'_>, CapiError> {
        self.engine.running()?;
        let state = lock(&self.state);
        if state.is_some() { Ok(SequenceGuard(state)) } else { Err(CapiError::Stopped) }
    }

    /// A second sequence with the same tokens.
    pub(crate) fn fork(&self) -> Result<Arc<Self>, CapiError> {
        let mut guard = self.lock()?;
        let LedSequence { led, prompt } = guard.get()?;
        let state = LedSequence { led: led.fork()?, prompt: *prompt };
        Self::attached(Arc::clone(&self.engine), state)
    }

    /// Appends tokens, and returns their outputs.
    pub(crate) fn push(&self, tokens: &[u32], want: Want) -> Result<Vec<f32>, CapiError> {
        let mut guard = self.lock()?;
        let sequence = guard.get()?;
        sequence.led.start(tokens, want)?;
        Ok(sequence.wait(&self.engine)?.into_values())
    }
}

impl SequenceGuard<'_> {
    pub(crate) fn get(&mut self) -> Result<&mut LedSequence, CapiError> {
        self.0.as_mut().ok_or(CapiError::Stopped)
    }
}

impl LedSequence {
    pub(crate) fn tokens(&self) -> &[u32] {
        self.led.tokens()
    }

    /// Keeps the first `length` tokens.
    pub(crate) fn truncate(&mut self, length: usize) -> Result<(), CapiError> {
        self.led.truncate(length)?;
        self.prompt = self.prompt.filter(|prompt| *prompt <= length);
        Ok(())
    }

    /// Waits for the outputs of a push, unless the engine is closed first.
    fn wait(&mut self, engine: &EngineObject) -> Result<Outputs, CapiError> {
        loop {
            if let Some(outputs) = self.led.wait_for(LOOK)? {
                return Ok(outputs);
            }
            engine.running()?;
        }
    }
}

/// Chooses tokens.
#[derive(Debug)]
pub(crate) struct SamplerObject {
    engine: Arc<EngineObject>,
    sampler: Mutex<TokenSampler>,
}

impl HandleObject for SamplerObject {
    const KIND: usize = 4;
}

impl OfEngine for SamplerObject {
    fn engine(&self) -> &Arc<EngineObject> {
        &self.engine
    }
}

impl SamplerObject {
    pub(crate) fn new(
        engine: Arc<EngineObject>,
        params: SamplingParams,
    ) -> Result<Self, CapiError> {
        let vocab = engine.running()?.engine().info().vocab_size;
        let sampler = TokenSampler::new(params, vocab)
            .map_err(|(_, problem)| CapiError::invalid("options", problem))?;
        Ok(Self { engine, sampler: Mutex::new(sampler) })
    }

    /// Chooses the token after those of `sequence`.
    fn choose(&self, sequence: &mut LedSequence, logits: &[f32]) -> Result<u32, CapiError> {
        let tokens = sequence.led.tokens();
        let prompt = *sequence.prompt.get_or_insert(tokens.len());
        let chosen = lock(&self.sampler).choose(tokens, prompt, logits, None);
        chosen.map_err(|error| CapiError::Request(error.to_string()))
    }
}

/// A push to one sequence of a batch.
pub(crate) struct BatchItem<'a> {
    pub sequence: Arc<SequenceObject>,
    pub tokens: &'a [u32],
    pub sampler: Option<Arc<SamplerObject>>,
}

/// What a push to one sequence of a batch gives.
#[derive(Debug, Default)]
pub(crate) struct BatchResult {
    /// The token that the sampler chose.
    pub token: Option<u32>,
    /// The logits after the last token.
    pub logits: Vec<f32>,
}

/// Pushes to all sequences, which share the steps of the engine, and then samples.
pub(crate) fn push_batch(
    items: &[BatchItem],
    wants_logits: bool,
) -> Result<Vec<BatchResult>, CapiError> {
    let states: Vec<_> = items.iter().map(|item| &item.sequence.state).collect();
    let mut guards = lock_all(&states).ok_or_else(|| {
        CapiError::invalid("sequences", "expected different ones, found one twice")
    })?;
    let sequences = guards.iter_mut().map(|guard| guard.as_mut().ok_or(CapiError::Stopped));
    let sequences = sequences.collect::<Result<Vec<_>, _>>()?;
    let mut batch = RunningBatch { items, before: Vec::new(), sequences };
    let results = batch.push(wants_logits);
    if results.is_err() {
        batch.undo();
    }
    results
}

/// A batch whose sequences are locked.
struct RunningBatch<'a, 'b> {
    items: &'a [BatchItem<'b>],
    sequences: Vec<&'a mut LedSequence>,
    /// Length and prompt of each sequence to which something was pushed, before that.
    before: Vec<(usize, Option<usize>)>,
}

impl RunningBatch<'_, '_> {
    fn push(&mut self, wants_logits: bool) -> Result<Vec<BatchResult>, CapiError> {
        let before = self.sequences.iter().map(|sequence| (sequence.led.len(), sequence.prompt));
        let before = before.collect();
        let pushes = self.items.iter().zip(&mut self.sequences).map(|(item, sequence)| {
            let wants = wants_logits || item.sampler.is_some();
            (&mut sequence.led, item.tokens, if wants { Want::Last } else { Want::Nothing })
        });
        Led::start_together(pushes)?;
        self.before = before;
        let mut results = Vec::with_capacity(self.items.len());
        for (item, sequence) in self.items.iter().zip(&mut self.sequences) {
            let logits = sequence.wait(item.sequence.engine())?.into_values();
            results.push(BatchResult { token: None, logits });
        }
        // All logits are there before a sampler moves on.
        let all = self.items.iter().zip(&mut self.sequences).zip(&mut results);
        for ((item, sequence), result) in all {
            let sampler = item.sampler.as_ref();
            result.token =
                sampler.map(|sampler| sampler.choose(sequence, &result.logits)).transpose()?;
        }
        Ok(results)
    }

    /// Takes back what was pushed.
    fn undo(&mut self) {
        let pushed = self.sequences.iter_mut().zip(self.items).zip(&self.before);
        for ((sequence, item), (length, prompt)) in pushed {
            // One that is complete cannot be waited for, and one of an engine that has stopped
            // cannot be used again.
            let _ = sequence.wait(item.sequence.engine());
            let _ = sequence.led.truncate(*length);
            sequence.prompt = *prompt;
        }
    }
}

impl From<LedError> for CapiError {
    fn from(error: LedError) -> Self {
        match error {
            LedError::Stopped => Self::Stopped,
            LedError::Invalid(_) | LedError::TooLong { .. } => {
                Self::invalid("tokens", error.to_string())
            }
            other => Self::Request(other.to_string()),
        }
    }
}
