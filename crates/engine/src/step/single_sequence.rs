//! One sequence computed without the engine thread, for `verify`, `perplexity` and `bench`.

use crate::load::error::Error;
use crate::load::runner::Runner;
use crate::observe::drafter::Drafter;
use crate::step::sequence_memory::SequenceMemory;
use backend::Batch;
use models::DraftStates;

/// A single sequence over the whole cache of a runner.
#[derive(Debug)]
pub struct SingleSequence<'a> {
    runner: &'a mut Runner,
    batch: Batch,
    memory: SequenceMemory,
    tokens: Vec<u32>,
    /// Number of positions whose rows were computed, dropped ones included.
    written: usize,
    /// Positions before which the state was kept, with its slot, ascending.
    snapshots: Vec<(usize, u32)>,
    /// Whether it is computed as a sequence that may become long.
    is_long: bool,
}

impl<'a> SingleSequence<'a> {
    /// An empty sequence. Pins the calling thread if threads are pinned.
    pub fn new(runner: &'a mut Runner) -> Self {
        runner.pin_caller();
        let (batch, memory) = (runner.batch(), runner.sequences(1).remove(0));
        // Reserved, within reason, so that decoding allocates nothing.
        let tokens = Vec::with_capacity(runner.info.context_length.min(1 << 16));
        let snapshots = Vec::with_capacity(runner.states);
        let is_long = runner.is_long(runner.info.context_length);
        Self { runner, batch, memory, tokens, written: 0, snapshots, is_long }
    }

    /// Says that the sequence grows to at most `capacity` tokens, before any is computed; by
    /// default it may fill the context. Some models have other rotary frequencies for short
    /// sequences.
    pub fn expect(&mut self, capacity: usize) {
        self.is_long = self.runner.is_long(capacity);
    }

    /// Number of tokens computed so far.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether no token is computed yet.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Drops all but the first `len` tokens. Where the cache no longer holds what the next token
    /// needs, goes back to the last position for which it does, and computes the rest again.
    ///
    /// # Errors
    ///
    /// As [`Runner::forward`].
    pub fn truncate(&mut self, len: usize) -> Result<(), Error> {
        if len >= self.len() {
            return Ok(());
        }
        let rest = self.tokens[..len].to_vec();
        self.snapshots.retain(|(position, _)| *position <= len);
        let kept = match (self.memory.state(), self.snapshots.last()) {
            (None, _) => len,
            (Some(own), Some(&(position, slot))) => {
                self.batch.clear();
                self.runner.copy_states(&[(slot, own)])?;
                position
            }
            (Some(_), None) => 0,
        };
        let kept = if self.memory.holds(kept, self.written) { kept } else { 0 };
        self.tokens.truncate(kept);
        if kept < len {
            let chunk = self.runner.limits.rows;
            for now in rest[kept..].chunks(self.most(chunk)) {
                self.step(now, 0)?;
            }
        }
        Ok(())
    }

    /// Computes `tokens` in chunks of `chunk`. Returns the logits `[vocab_size]` of the last token.
    ///
    /// # Errors
    ///
    /// [`Error::Context`] if the tokens exceed the context, and as [`Runner::forward`].
    pub fn feed(&mut self, tokens: &[u32], chunk: usize) -> Result<&[f32], Error> {
        let chunk = self.most(chunk);
        let mut rest = tokens;
        while rest.len() > chunk {
            let (now, later) = rest.split_at(chunk);
            self.step(now, 0)?;
            rest = later;
        }
        self.step(rest, 1)
    }

    /// Computes `tokens` and calls `each(index, logits)` with the logits `[vocab_size]` of each.
    ///
    /// # Errors
    ///
    /// As [`feed`](Self::feed), and the errors of `each`.
    pub fn feed_all(
        &mut self,
        tokens: &[u32],
        mut each: impl FnMut(usize, &[f32]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let vocab = self.runner.info.vocab_size;
        let chunk = self.most(self.runner.limits.logit_rows);
        for (at, now) in tokens.chunks(chunk).enumerate() {
            let logits = self.step(now, now.len())?;
            for (i, logits) in logits.chunks_exact(vocab).enumerate() {
                each(at * chunk + i, logits)?;
            }
        }
        Ok(())
    }

    /// Whether the model has layers that draft tokens.
    pub fn has_drafts(&self) -> bool {
        self.runner.draft_layers() > 0
    }

    /// Computes the logits of tokens after the next one with the layers that draft tokens: as many
    /// as there are `inputs`, which are the next token and what was drafted after it. Calls
    /// `each(depth, logits, words)` for each, with the logits of the words that are drafted, and
    /// their numbers where they are not the first ones.
    ///
    /// # Errors
    ///
    /// If the model has no such layers, or several, but fewer than inputs; as [`Runner::forward`],
    /// and the errors of `each`.
    pub fn draft(
        &mut self,
        inputs: &[u32],
        mut each: impl FnMut(usize, &[f32], Option<&[u32]>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (next, width) = (self.len(), self.runner.state_width());
        let is_one = self.runner.draft_layers() == 1;
        let stays = self.runner.drafter.is_some_and(Drafter::stays);
        let mut states = Vec::new();
        for depth in 0..inputs.len() {
            // A single layer has the rows before; a further one has none of drafted tokens.
            let first = if is_one { depth } else { 0 };
            let layer = if is_one { 0 } else { depth };
            self.batch.clear();
            let tokens = &inputs[first..depth + 1];
            let position = next + if stays { 0 } else { first };
            self.memory.push(&mut self.batch, tokens, position, 1);
            let drafts = if is_one && depth > 0 {
                self.runner.draft(&self.batch, layer, DraftStates::Before(&states))?
            } else {
                // The state of the last row is not known yet, nor read.
                states.resize(tokens.len() * width, 0.0);
                self.runner.draft(&self.batch, layer, DraftStates::Own(&states))?
            };
            states = drafts.states.to_vec();
            each(depth, drafts.logits, drafts.words)?;
        }
        Ok(())
    }

    /// Rows of a step: `wanted`, as far as workspace and windows allow.
    fn most(&self, wanted: usize) -> usize {
        wanted.clamp(1, self.runner.limits.rows.min(self.memory.most_rows()))
    }

    /// Computes `tokens` in one step. Returns the logits of the last `logits` of them.
    fn step(&mut self, tokens: &[u32], logits: usize) -> Result<&[f32], Error> {
        let (start, end) = (self.len(), self.len() + tokens.len());
        let context = self.runner.info.context_length;
        if end > context {
            return Err(Error::Context(format!(
                "{end} tokens do not fit into a context of {context}"
            )));
        }
        self.batch.clear();
        self.memory.push(&mut self.batch, tokens, start, logits);
        self.batch.adapt(self.runner.adapters());
        if self.is_long {
            self.batch.mark_long();
        }
        self.keep_state(start);
        self.tokens.extend_from_slice(tokens);
        self.written = self.written.max(end);
        self.runner.forward(&self.batch)
    }

    /// Keeps the state before `position`, in a free slot or in place of the oldest that is kept.
    fn keep_state(&mut self, position: usize) {
        let Some(own) = self.memory.state() else { return };
        let known = self.snapshots.last().is_some_and(|last| last.0 >= position);
        let slots = self.runner.states as u32;
        if position == 0 || known || slots < 2 {
            return;
        }
        let taken = |slot: &u32| *slot == own || self.snapshots.iter().any(|kept| kept.1 == *slot);
        let free = (0..slots).find(|slot| !taken(slot));
        let slot = free.unwrap_or_else(|| self.snapshots.remove(0).1);
        self.batch.copy_state(own, slot);
        self.snapshots.push((position, slot));
    }
}
