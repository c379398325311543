//! Assistants of Gemma 4: small layers that draft tokens from the keys and values of the model.
//!
//! A row comes from the state of the position before and the embedding of its own token, and
//! attends to the rows before it alone: it has no keys of its own. Further tokens are drafted at
//! the same position, from the state that the assistant gives. The model's states are rows of the
//! cache, of which each row reads the one before.

use super::head::Head;
use super::layer::Layer;
use super::linear::Linear;
use super::norm::Norm;
use super::state_drafter::{OfModel, OwnWork, shift_of};
use crate::error::Error;
use crate::loader::Loader;
use crate::model::{DraftStates, Drafted};
use crate::pass::ForwardPass;
use crate::ranks::Slice;
use backend::{Buffer, HeadColumns, LayerCache, MapOp, ShortConv};
use formats::layers::HeadSpec;
use formats::{AssistantConfig, ChosenWords};

/// An assistant.
pub(crate) struct Assistant {
    layers: Vec<Layer>,
    /// Number of the first of them in the whole model, and index of it in the cache.
    first: usize,
    cached: usize,
    before: Linear,
    after: Linear,
    norm: Norm,
    words: Head,
    chosen: Option<WordChoice>,
    work: OwnWork,
    buffers: AssistantBuffers,
    /// Gives each row the state of the position before.
    shift: ShortConv,
    /// Width of the model.
    hidden: usize,
    /// Factor of the model's embeddings.
    embedding_scale: f32,
}

/// Workspace: `[rows, hidden]` of the model unless stated.
struct AssistantBuffers {
    states: Buffer,
    token: Buffer,
    /// `[rows, 2 * hidden]`.
    joined: Buffer,
    /// `[rows, width]`, both.
    delta: Buffer,
    normed: Buffer,
    /// `[logit rows, vocab]`.
    logits: Buffer,
}

/// The choice of the words that have logits.
struct WordChoice {
    centroids: Linear,
    /// `[logit rows, centroids]`.
    products: Buffer,
    /// The words of each centroid in turn.
    order: Vec<u32>,
    counts: ChosenWords,
}

impl Assistant {
    /// Loads an assistant, and tells what each of its layers keeps of a sequence.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, or the device has no memory for it.
    pub fn load(
        loader: &mut Loader<'_>,
        config: &AssistantConfig,
    ) -> Result<(Self, Vec<LayerCache>), Error> {
        let (hidden, first) = (loader.hidden(), loader.layers.end);
        let model = loader.checkpoint.config();
        let (vocab, embedding_scale) = (model.vocab, model.embedding.scale);
        loader.enter(Some(first), config.own_tensors(hidden, vocab), Vec::new());
        let (states, token) =
            (loader.shared("draft_states", hidden)?, loader.shared("draft_token", hidden)?);
        let joined = loader.shared("draft_joined", 2 * hidden)?;
        let shift = shift_of(loader, hidden)?;
        loader.width = config.width;
        let before = Linear::load(loader, "nextn.pre_projection", Slice::Whole)?;
        let after = Linear::load(loader, "nextn.post_projection", Slice::Whole)?;
        let norm = Norm::of_stream(loader, &config.norm)?;
        let words = Head::of_drafter(loader, ("token_embd", vocab), config.cap)?;
        let chosen = match config.chosen {
            Some(counts) => Some(WordChoice::load(loader, counts)?),
            None => None,
        };
        let head = HeadSpec { mixture: None, gated: None, ..model.head.clone() };
        let work = OwnWork::new(loader, &head)?;
        let buffers = AssistantBuffers {
            states,
            token,
            joined,
            delta: loader.shared("draft_delta", config.width)?,
            normed: loader.shared("draft_normed", config.width)?,
            logits: loader.backend.buffer(loader.limits.logit_rows, vocab)?,
        };
        let mut layers = Vec::new();
        for (at, spec) in config.layers.iter().enumerate() {
            layers.push(Layer::load(loader, (first + at, 0), spec)?.0);
            loader.layer_loaded();
        }
        loader.width = hidden;
        let caches = config.caches(hidden);
        let cached = first - loader.layers.start;
        let assistant = Self {
            layers,
            first,
            cached,
            before,
            after,
            norm,
            words,
            chosen,
            work,
            buffers,
            shift,
            hidden,
            embedding_scale,
        };
        Ok((assistant, caches))
    }

    /// Values of a state.
    pub fn width(&self) -> usize {
        self.hidden
    }

    /// Keeps the states of a batch that the model has just computed.
    pub fn follow(&self, pass: &mut ForwardPass<'_>, model: &OfModel<'_>) {
        let (stream, rows) = (model.residual.buffer(), pass.rows());
        let states = model.head.states(pass, (stream, self.buffers.states), rows);
        self.shift(pass, states);
    }

    fn shift(&self, pass: &mut ForwardPass<'_>, states: Buffer) {
        pass.backend.short_conv(self.cached, 0, states, &self.shift, pass.batch);
    }

    /// Computes the rows of the batch, and the logits that it wants.
    ///
    /// # Errors
    /// With checking on, if a value is not finite.
    pub fn draft(
        &self,
        pass: &mut ForwardPass<'_>,
        states: DraftStates<'_>,
        model: &OfModel<'_>,
    ) -> Result<Drafted, Error> {
        let (AssistantBuffers { states: own, .. }, rows) = (&self.buffers, pass.rows());
        let (into, states) = match states {
            DraftStates::Own(states) => (*own, states),
            DraftStates::Before(before) => (self.shift.out, before),
        };
        pass.backend.update(into, rows, &mut |values| values.copy_from_slice(states));
        if into == *own {
            self.shift(pass, *own);
        }
        self.begin(pass, model);
        // Rows see the ones before them alone, at angles of their own positions.
        let earlier = pass.batch.one_earlier();
        let (check, slices) = (pass.check, pass.slices);
        pass.backend.begin(&earlier);
        let backend = &mut *pass.backend;
        self.finish(&mut ForwardPass { backend, batch: &earlier, check, slices })
    }

    /// Fills the residual stream from the states of the positions before and the tokens.
    fn begin(&self, pass: &mut ForwardPass<'_>, model: &OfModel<'_>) {
        let (AssistantBuffers { token, joined, .. }, rows) = (&self.buffers, pass.rows());
        pass.backend.embed(model.embed, pass.batch.tokens(), *token);
        if self.embedding_scale != 1.0 {
            pass.backend.map(MapOp::Scale(self.embedding_scale), *token, rows);
        }
        let columns = |buffer, first, stride| HeadColumns { buffer, first, stride };
        for (part, first) in [(*token, 0), (self.shift.out, self.hidden)] {
            let to = columns(*joined, first, 2 * self.hidden);
            let from = columns(part, 0, self.hidden);
            pass.backend.copy_heads(from, self.hidden, to, rows);
        }
        self.before.forward(pass, *joined, self.work.residual.buffer(), rows);
    }

    /// Takes the rows through the layers, and computes states and logits.
    fn finish(&self, pass: &mut ForwardPass<'_>) -> Result<Drafted, Error> {
        let OwnWork { residual, normed, last } = &self.work;
        let AssistantBuffers { states, delta, logits, .. } = self.buffers;
        for (number, layer) in (self.first..).zip(&self.layers) {
            layer.forward(pass, number, residual, [*normed, delta], None)?;
        }
        let rows = pass.rows();
        let hidden = self.norm.forward(pass, residual.buffer(), self.buffers.normed, rows);
        self.after.forward(pass, hidden, states, rows);
        let wanted = pass.batch.logit_rows();
        pass.backend.gather(hidden, wanted, *last);
        self.words.project(pass, *last, logits, wanted.len())?;
        if let Some(chosen) = &self.chosen {
            chosen.choose(pass, *last, logits, wanted.len());
        }
        pass.check_logits(logits)?;
        Ok(Drafted { logits, states })
    }
}

impl WordChoice {
    fn load(loader: &mut Loader<'_>, counts: ChosenWords) -> Result<Self, Error> {
        Ok(Self {
            centroids: Linear::load(loader, "masked_embd_centroids", Slice::Whole)?,
            products: loader.backend.buffer(loader.limits.logit_rows, counts.centroids)?,
            order: loader.word_order()?,
            counts,
        })
    }

    /// Makes the logits of all words but those of the best centroids less than any of these.
    fn choose(&self, pass: &mut ForwardPass<'_>, hidden: Buffer, logits: Buffer, rows: usize) {
        let ChosenWords { centroids, chosen } = self.counts;
        self.centroids.forward(pass, hidden, self.products, rows);
        let mut best: Vec<Vec<usize>> = Vec::with_capacity(rows);
        pass.backend.update(self.products, rows, &mut |products| {
            best.extend(products.chunks_exact(centroids).map(|row| largest(row, chosen)));
        });
        let words = self.order.len() / centroids;
        pass.backend.update(logits, rows, &mut |logits| {
            for (row, best) in logits.chunks_exact_mut(self.order.len()).zip(&best) {
                let of = |at: &usize| self.order[at * words..][..words].iter().copied();
                let kept: Vec<(u32, f32)> =
                    best.iter().flat_map(of).map(|word| (word, row[word as usize])).collect();
                let least = kept.iter().map(|(_, logit)| *logit).fold(f32::INFINITY, f32::min);
                row.fill(least - 1.0);
                kept.iter().for_each(|(word, logit)| row[*word as usize] = *logit);
            }
        });
    }
}

/// The places of the `count` largest values, the first of equal ones.
fn largest(values: &[f32], count: usize) -> Vec<usize> {
    let mut places: Vec<usize> = (0..values.len()).collect();
    let order = |a: &usize, b: &usize| values[*b].total_cmp(&values[*a]).then(a.cmp(b));
    if count < places.len() {
        places.select_nth_unstable_by(count, order);
        places.truncate(count);
    }
    places
}

#[cfg(test)]
mod tests {
    use super::largest;

    #[test]
    fn the_largest_values_are_found_whatever_their_order() {
        let values = [1.0, 5.0, -2.0, 5.0, 3.0];
        let sorted = |count| {
            let mut found = largest(&values, count);
            found.sort_unstable();
            found
        };
        assert_eq!(sorted(1), [1]);
        assert_eq!(sorted(3), [1, 3, 4]);
        assert_eq!(sorted(5), [0, 1, 2, 3, 4]);
    }
}
