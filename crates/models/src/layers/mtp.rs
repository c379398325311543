//! Layers of multi-token prediction, which draft tokens from the states of a model (DeepSeek-AI,
//! 2024, "DeepSeek-V3 Technical Report", section 2.2).
//!
//! The row of a position comes from the state of the position before and the embedding of its own
//! token, so that it depends on the tokens up to there alone; the first position, and with each
//! further layer the next, has no row. What a layer gives is the state for the next one, or for the
//! next position of the same one. States are rows of the cache, of which each row reads the one
//! before: a convolution of two positions.

use super::head::Head;
use super::layer::Layer;
use super::linear::Linear;
use super::norm::Norm;
use super::streams::{Collapsed, Residual};
use crate::error::Error;
use crate::loader::Loader;
use crate::model::{DraftStates, Drafted};
use crate::pass::ForwardPass;
use crate::ranks::Slice;
use backend::{Buffer, HeadColumns, LayerCache, MapOp, Matrix, ShortConv, Table};
use formats::{MtpConfig, MtpInput, MtpSpec};

/// Words of the vocabulary that are drafted: of 152,000, the first 32,768 are nine in ten of the
/// tokens of prose and of code, and the head is the larger part of a draft.
const MAX_WORDS: usize = 32_768;

/// The layers of multi-token prediction of a model.
pub(crate) struct Mtp {
    layers: Vec<MtpLayer>,
    /// Number of the first of them in the whole model.
    first: usize,
    work: MtpBuffers,
    /// Gives each row the state of the position before.
    shift: ShortConv,
    /// The output head of the first words, and their logits: `[logit rows, words]`.
    words: Head,
    logits: Buffer,
    /// Values of a state, and of a stream.
    width: usize,
    hidden: usize,
}

/// One layer of multi-token prediction.
struct MtpLayer {
    token_norm: Norm,
    /// Of each residual stream.
    state_norm: Norm,
    input: Input,
    layer: Layer,
    /// What the output head reads of several streams.
    collapsed: Option<Collapsed>,
    norm: Norm,
    /// Index of the layer in this rank's cache, and which of its rows are states.
    cached: (usize, usize),
}

/// How state and embedding become the input of a layer.
enum Input {
    /// A projection of both: `[hidden, 2 * hidden]`.
    Joined(Linear),
    /// The sum of projections of the embedding and of each stream.
    Added {
        of_token: Linear,
        /// The same matrix for each stream.
        of_streams: Vec<Matrix>,
    },
}

/// Workspace, `[rows, hidden]` unless stated.
#[derive(Clone, Copy)]
struct MtpBuffers {
    /// States of rows, which enter the next row of a layer: `[rows, width]`.
    states: Buffer,
    /// States of the positions before: `[rows, width]`.
    before: Buffer,
    /// What an operation adds to the stream.
    delta: Buffer,
    /// States after their norm: `[rows, width]`.
    normed: Buffer,
    token: Buffer,
    token_normed: Buffer,
    /// `[rows, 2 * hidden]`.
    joined: Option<Buffer>,
    /// The embedding for each stream: `[rows, width]`.
    spread: Option<Buffer>,
}

/// What the layers use of the model.
pub(crate) struct OfModel<'a> {
    pub embed: Table,
    pub head: &'a Head,
    pub residual: &'a Residual,
    /// Workspace of layers: `[rows, hidden]`.
    pub normed: Buffer,
    /// What the output head reads: `[logit rows, hidden]`.
    pub last: Buffer,
}

impl Mtp {
    /// Loads the layers, and tells what each keeps of a sequence.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, ranks share the model, or the device has no
    /// memory for it.
    pub fn load(
        loader: &mut Loader<'_>,
        config: &MtpConfig,
    ) -> Result<(Self, Vec<LayerCache>), Error> {
        if loader.stage.ranks() * loader.slice.ranks() > 1 {
            let problem = "layers of multi-token prediction cannot be divided among ranks";
            return Err(Error::Config(problem.to_owned()));
        }
        let first = loader.layers.end;
        let streams = config.layers.first().map_or(1, MtpSpec::streams);
        let (mut layers, mut caches) = (Vec::new(), Vec::new());
        for (at, spec) in config.layers.iter().enumerate() {
            let (layer, cache) = MtpLayer::load(loader, first + at, (at + 1, spec))?;
            layers.push(layer);
            caches.push(cache);
            loader.layer_loaded();
        }
        let (hidden, width) = (loader.hidden(), streams * loader.hidden());
        let joins = config.layers.iter().any(|spec| spec.input == MtpInput::Joined);
        let mut shared = |name, width| loader.shared(name, width);
        let work = MtpBuffers {
            states: shared("mtp_states", width)?,
            before: shared("mtp_before", width)?,
            delta: shared("mtp_delta", hidden)?,
            normed: shared("mtp_normed", width)?,
            token: shared("mtp_token", hidden)?,
            token_normed: shared("mtp_token_normed", hidden)?,
            joined: if joins { Some(shared("mtp_joined", 2 * hidden)?) } else { None },
            spread: if joins { None } else { Some(shared("mtp_spread", width)?) },
        };
        // Of two positions the first alone.
        let taps = [vec![1.0; width], vec![0.0; width]].concat();
        let weight = loader.backend.vector(taps);
        let shift = ShortConv { silu: false, weight, bias: None, out: work.before };
        let model = loader.checkpoint.config();
        let (head, count) = (model.head.clone(), model.vocab.min(MAX_WORDS));
        let words = Head::of_first(loader, &head, count)?;
        let logits = loader.backend.buffer(loader.limits.logit_rows, count)?;
        Ok((Self { layers, first, work, shift, words, logits, width, hidden }, caches))
    }

    /// Number of layers.
    pub fn layers(&self) -> usize {
        self.layers.len()
    }

    /// Values of a state.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Computes the rows of a batch that the model has just computed in all layers, and stores what
    /// is kept of them.
    ///
    /// # Errors
    /// With checking on, if a value is not finite.
    pub fn follow(&self, pass: &mut ForwardPass<'_>, model: &OfModel<'_>) -> Result<(), Error> {
        let (stream, rows) = (model.residual.buffer(), pass.rows());
        let mut states = match self.layers[0].input {
            Input::Joined(_) if model.head.has_norm() => {
                model.head.normalise(pass, (stream, self.work.states), rows);
                self.work.states
            }
            _ => stream,
        };
        for at in 0..self.layers.len() {
            self.shift(pass, at, states);
            states = self.compute(pass, at, model)?;
        }
        Ok(())
    }

    /// Computes the rows of the batch in the layer `at`, and the logits that the batch wants.
    ///
    /// # Errors
    /// With checking on, if a value is not finite.
    pub fn draft(
        &self,
        pass: &mut ForwardPass<'_>,
        at: usize,
        states: DraftStates<'_>,
        model: &OfModel<'_>,
    ) -> Result<Drafted, Error> {
        let (MtpBuffers { states: own, before, .. }, rows) = (self.work, pass.rows());
        let mut fill = |buffer, states: &[f32]| {
            pass.backend.update(buffer, rows, &mut |values| values.copy_from_slice(states));
        };
        match states {
            DraftStates::Own(states) => {
                fill(own, states);
                self.shift(pass, at, own);
            }
            DraftStates::Before(states) => fill(before, states),
        }
        let states = self.compute(pass, at, model)?;
        let (layer, wanted) = (&self.layers[at], pass.batch.logit_rows());
        let (last, normed, logits) = (model.last, model.normed, self.logits);
        model.residual.gather_as(pass, layer.collapsed.as_ref(), wanted, last);
        layer.norm.forward(pass, last, normed, wanted.len());
        self.words.project(pass, normed, logits, wanted.len())?;
        pass.check_logits(logits)?;
        Ok(Drafted { logits, states })
    }

    /// Stores the `states` of rows, and gives each row of the layer `at` the one before.
    fn shift(&self, pass: &mut ForwardPass<'_>, at: usize, states: Buffer) {
        let (layer, which) = self.layers[at].cached;
        pass.backend.short_conv(layer, which, states, &self.shift, pass.batch);
    }

    /// Takes rows through the layer `at` from the states of the positions before them. Returns the
    /// buffer of the states that it gives.
    fn compute(
        &self,
        pass: &mut ForwardPass<'_>,
        at: usize,
        model: &OfModel<'_>,
    ) -> Result<Buffer, Error> {
        let (layer, rows, buffers) = (&self.layers[at], pass.rows(), self.work);
        layer.layer.prepare(pass);
        layer.begin(pass, &buffers, self.hidden, model);
        let work = [model.normed, buffers.delta];
        layer.layer.forward(pass, self.first + at, model.residual, work, None)?;
        let stream = model.residual.buffer();
        Ok(match layer.input {
            Input::Joined(_) => layer.norm.forward(pass, stream, buffers.states, rows),
            Input::Added { .. } => stream,
        })
    }
}

impl MtpLayer {
    /// Loads the layer with this `number`, which has rows from the position `first` on, and tells
    /// what it keeps of a sequence.
    fn load(
        loader: &mut Loader<'_>,
        number: usize,
        (first, spec): (usize, &MtpSpec),
    ) -> Result<(Self, LayerCache), Error> {
        let enter = |loader: &mut Loader<'_>| {
            loader.enter(Some(number), spec.own_tensors(loader.hidden()), Vec::new());
        };
        enter(loader);
        let [token_norm, state_norm] = MtpSpec::NORMS;
        let token_norm = Norm::load(loader, token_norm, spec.eps)?;
        let state_norm = Norm::load(loader, state_norm, spec.eps)?;
        let input = match spec.input {
            MtpInput::Joined => Input::Joined(Linear::load(loader, "nextn.eh_proj", Slice::Whole)?),
            MtpInput::Added => Input::Added {
                of_token: Linear::load(loader, "nextn.e_proj", Slice::Whole)?,
                of_streams: vec![
                    loader.matrix("nextn.h_proj.weight", &Slice::Whole)?;
                    spec.streams()
                ],
            },
        };
        let (layer, mut cache) = Layer::load(loader, (number, first), &spec.layer)?;
        let cached = (number - loader.layers.start, cache.rows.len());
        cache.rows.push(spec.states(loader.hidden()));
        enter(loader);
        let rows = loader.limits.rows.max(loader.limits.logit_rows);
        let collapsed = Collapsed::load(loader, &spec.head, rows)?;
        let norm = spec.head.norm.as_ref().expect("the layer ends with a norm");
        let norm = Norm::of_stream(loader, norm)?;
        Ok((Self { token_norm, state_norm, input, layer, collapsed, norm, cached }, cache))
    }

    /// Fills the residual stream from the states of the positions before and the tokens.
    fn begin(
        &self,
        pass: &mut ForwardPass<'_>,
        buffers: &MtpBuffers,
        hidden: usize,
        model: &OfModel<'_>,
    ) {
        let MtpBuffers { before, normed, token, token_normed, joined, spread, .. } = *buffers;
        let (stream, rows) = (model.residual.buffer(), pass.rows());
        pass.backend.embed(model.embed, pass.batch.tokens(), token);
        self.token_norm.forward(pass, token, token_normed, rows);
        self.state_norm.forward(pass, before, normed, rows);
        let columns = |buffer, first, stride| HeadColumns { buffer, first, stride };
        match (&self.input, joined, spread) {
            (Input::Joined(projection), Some(joined), _) => {
                for (part, first) in [(token_normed, 0), (normed, hidden)] {
                    let to = columns(joined, first, 2 * hidden);
                    pass.backend.copy_heads(columns(part, 0, hidden), hidden, to, rows);
                }
                projection.forward(pass, joined, stream, rows);
            }
            (Input::Added { of_token, of_streams }, _, Some(spread)) => {
                of_token.forward(pass, token_normed, token, rows);
                pass.backend.spread_streams(token, spread, rows);
                let (from, to) = (columns(normed, 0, hidden), columns(stream, 0, hidden));
                pass.backend.linear_heads(from, of_streams, to, rows);
                pass.backend.map(MapOp::Add(spread), stream, rows);
            }
            _ => unreachable!("each form of input has its workspace"),
        }
    }
}
