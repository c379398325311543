//! One sequence computed without the engine thread, for `verify`, `perplexity` and `bench`.

use crate::{Error, Runner};
use backend::Batch;

/// A single sequence over the whole KV cache of a runner.
#[derive(Debug)]
pub struct SingleSequence<'a> {
    runner: &'a mut Runner,
    batch: Batch,
    table: Vec<u32>,
    len: usize,
}

impl<'a> SingleSequence<'a> {
    /// An empty sequence. Pins the calling thread if threads are pinned.
    pub fn new(runner: &'a mut Runner) -> Self {
        runner.pin_caller();
        let (batch, table) = (runner.batch(), (0..runner.blocks as u32).collect());
        Self { runner, batch, table, len: 0 }
    }

    /// Number of tokens computed so far.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no token is computed yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Drops all but the first `len` tokens.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Computes `tokens` in chunks of `chunk`. Returns the logits `[vocab_size]` of the last token.
    ///
    /// # Errors
    ///
    /// [`Error::Context`] if the tokens exceed the context, and as [`Runner::forward`].
    pub fn feed(&mut self, tokens: &[u32], chunk: usize) -> Result<&[f32], Error> {
        let chunk = chunk.clamp(1, self.runner.limits.rows);
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
        let chunk = self.runner.limits.logit_rows;
        for (at, now) in tokens.chunks(chunk).enumerate() {
            let logits = self.step(now, now.len())?;
            for (i, logits) in logits.chunks_exact(vocab).enumerate() {
                each(at * chunk + i, logits)?;
            }
        }
        Ok(())
    }

    /// Computes `tokens` in one step. Returns the logits of the last `logits` of them.
    fn step(&mut self, tokens: &[u32], logits: usize) -> Result<&[f32], Error> {
        let end = self.len + tokens.len();
        let context = self.runner.info.context_length;
        if end > context {
            return Err(Error::Context(format!(
                "{end} tokens do not fit into a context of {context}"
            )));
        }
        self.batch.clear();
        self.batch.push(tokens, self.len, &self.table[..end.div_ceil(self.runner.block())], logits);
        self.len = end;
        self.runner.forward(&self.batch)
    }
}
