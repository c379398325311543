//! Layers that draft tokens from the states of a model: those of multi-token prediction
//! (DeepSeek-AI, 2024, "DeepSeek-V3 Technical Report", section 2.2) and heads of EAGLE-3 (Li et
//! al., 2025).
//!
//! The row of a position comes from the state of the position before and the embedding of its own
//! token, so that it depends on the tokens up to there alone; the first position, and with each
//! further layer the next, has no row. What a layer gives is the state for the next one, or for the
//! next position of the same one. States are rows of the cache, of which each row reads the one
//! before: a convolution of two positions.

use super::fused_streams::FusedStreams;
use super::head::Head;
use super::layer::Layer;
use super::linear::Linear;
use super::norm::Norm;
use super::streams::{Collapsed, PAIR, Residual};
use crate::error::Error;
use crate::loader::Loader;
use crate::model::{DraftStates, Drafted};
use crate::pass::ForwardPass;
use crate::ranks::Slice;
use backend::{Buffer, HeadColumns, LayerCache, MapOp, Matrix, ShortConv, Table};
use formats::layers::HeadSpec;
use formats::{DraftConfig, MtpInput, MtpSpec};

/// Words of the vocabulary that are drafted: of 152,000, the first 32,768 are nine in ten of the
/// tokens of prose and of code, and the head is the larger part of a draft.
const MAX_WORDS: usize = 32_768;

/// The layers that draft tokens for a model.
pub(crate) struct StateDrafter {
    layers: Vec<DraftLayer>,
    /// Number of the first of them in the whole model.
    first: usize,
    work: DraftBuffers,
    /// Gives each row the state of the position before.
    shift: ShortConv,
    /// The output head of some words, and their logits: `[logit rows, words]`.
    words: Head,
    logits: Buffer,
    /// Values of a state, and of a stream.
    width: usize,
    hidden: usize,
    /// What is not the model's.
    own: OwnParts,
}

/// What a head has of its own.
#[derive(Default)]
struct OwnParts {
    /// The states, where they are made of several streams.
    fused: Option<FusedStreams>,
    embed: Option<Table>,
    /// The stream and the workspace of layers, where they are not as wide as those of the model.
    work: Option<OwnWork>,
    /// The drafted words, where they are not the first ones.
    words: Option<Vec<u32>>,
    /// Whether the state that a layer gives is before its norm.
    raw_states: bool,
}

/// A residual stream of its own, and workspace as [`OfModel`] has it.
pub(super) struct OwnWork {
    pub residual: Residual,
    pub normed: Buffer,
    pub last: Buffer,
}

/// One layer.
struct DraftLayer {
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
    /// Both, `[rows, 2 * hidden]`, which attention reads.
    Paired {
        pair: Buffer,
        /// Whether the stream begins with the norm of the state.
        normed: bool,
    },
}

/// Workspace, `[rows, hidden]` unless stated.
#[derive(Clone, Copy)]
struct DraftBuffers {
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
#[derive(Clone, Copy)]
pub(crate) struct OfModel<'a> {
    pub embed: Table,
    pub head: &'a Head,
    pub residual: &'a Residual,
    /// Workspace of layers: `[rows, hidden]`.
    pub normed: Buffer,
    /// What the output head reads: `[logit rows, hidden]`.
    pub last: Buffer,
}

impl StateDrafter {
    /// Loads the layers, and tells what each keeps of a sequence.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, ranks share the model, or the device has no
    /// memory for it.
    pub fn load(
        loader: &mut Loader<'_>,
        config: &DraftConfig,
    ) -> Result<(Self, Vec<LayerCache>), Error> {
        let first = loader.layers.end;
        let model_width = loader.width;
        let own = OwnParts::load(loader, config, first)?;
        let specs = config.specs();
        let streams = specs.first().map_or(1, MtpSpec::streams);
        let (mut layers, mut caches) = (Vec::new(), Vec::new());
        for (at, spec) in specs.iter().enumerate() {
            let (layer, cache) = DraftLayer::load(loader, first + at, (at + 1, spec))?;
            layers.push(layer);
            caches.push(cache);
            loader.layer_loaded();
        }
        let (hidden, width) = (loader.hidden(), streams * loader.hidden());
        let work = DraftBuffers::new(loader, specs, width)?;
        let shift = shift_of(loader, width)?;
        let (words, count) = words(loader, config, first)?;
        let logits = loader.backend.buffer(loader.limits.logit_rows, count)?;
        loader.width = model_width;
        Ok((Self { layers, first, work, shift, words, logits, width, hidden, own }, caches))
    }

    /// Number of layers.
    pub fn layers(&self) -> usize {
        self.layers.len()
    }

    /// Values of a state.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The drafted words by their numbers, where they are not the first ones.
    pub fn words(&self) -> Option<&[u32]> {
        self.own.words.as_deref()
    }

    /// Keeps the residual stream of the model before the layer with this `number`, if states are
    /// made of it.
    pub fn tap(&self, pass: &mut ForwardPass<'_>, number: usize, stream: Buffer) {
        if let Some(fused) = &self.own.fused {
            fused.tap(pass, number, stream);
        }
    }

    /// What the layers use of the model, with what they have of their own in its place.
    fn used<'a>(&'a self, model: &OfModel<'a>) -> OfModel<'a> {
        let embed = self.own.embed.unwrap_or(model.embed);
        match &self.own.work {
            Some(OwnWork { residual, normed, last }) => {
                OfModel { embed, residual, normed: *normed, last: *last, head: model.head }
            }
            None => OfModel { embed, ..*model },
        }
    }

    /// Stores what all layers keep of the rows of a batch that the model has just computed.
    ///
    /// # Errors
    /// With checking on, if a value is not finite.
    pub fn follow(&self, pass: &mut ForwardPass<'_>, model: &OfModel<'_>) -> Result<(), Error> {
        let (stream, rows) = (model.residual.buffer(), pass.rows());
        let mut states = match (&self.own.fused, &self.layers[0].input) {
            (Some(fused), _) => fused.forward(pass, self.work.states),
            (None, Input::Joined(_)) => model.head.states(pass, (stream, self.work.states), rows),
            _ => stream,
        };
        let model = &self.used(model);
        let last = self.layers.len() - 1;
        for at in 0..last {
            self.shift(pass, at, states);
            states = self.compute(pass, at, model)?;
        }
        // Nothing reads what the last layer gives.
        self.shift(pass, last, states);
        let (layer, buffers) = (&self.layers[last], self.work);
        layer.begin(pass, &buffers, self.hidden, model);
        let work = [model.normed, buffers.delta];
        layer.layer.keep(pass, self.first + last, model.residual, work)
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
        let model = &self.used(model);
        let (DraftBuffers { states: own, before, .. }, rows) = (self.work, pass.rows());
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
            Input::Added { .. } => stream,
            Input::Paired { .. } if self.own.raw_states => stream,
            _ => layer.norm.forward(pass, stream, buffers.states, rows),
        })
    }
}

impl DraftLayer {
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
        let [token_norm, state_norm] = spec.input.norms();
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
            MtpInput::Paired { normed } => {
                let pair = loader.shared(PAIR, 2 * loader.hidden())?;
                Input::Paired { pair, normed }
            }
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
        buffers: &DraftBuffers,
        hidden: usize,
        model: &OfModel<'_>,
    ) {
        let DraftBuffers { before, normed, token, token_normed, joined, spread, .. } = *buffers;
        let (stream, rows) = (model.residual.buffer(), pass.rows());
        pass.backend.embed(model.embed, pass.batch.tokens(), token);
        self.token_norm.forward(pass, token, token_normed, rows);
        self.state_norm.forward(pass, before, normed, rows);
        let columns = |buffer, first, stride| HeadColumns { buffer, first, stride };
        let pair = |pass: &mut ForwardPass<'_>, into| {
            for (part, first) in [(token_normed, 0), (normed, hidden)] {
                let to = columns(into, first, 2 * hidden);
                pass.backend.copy_heads(columns(part, 0, hidden), hidden, to, rows);
            }
        };
        let (from, to) = (columns(normed, 0, hidden), columns(stream, 0, hidden));
        match (&self.input, joined, spread) {
            (Input::Joined(projection), Some(joined), _) => {
                pair(pass, joined);
                projection.forward(pass, joined, stream, rows);
            }
            (Input::Added { of_token, of_streams }, _, Some(spread)) => {
                of_token.forward(pass, token_normed, token, rows);
                pass.backend.spread_streams(token, spread, rows);
                pass.backend.linear_heads(from, of_streams, to, rows);
                pass.backend.map(MapOp::Add(spread), stream, rows);
            }
            (Input::Paired { pair: into, normed }, _, _) => {
                pair(pass, *into);
                let from = if *normed { from } else { columns(before, 0, hidden) };
                pass.backend.copy_heads(from, hidden, to, rows);
            }
            _ => unreachable!("each form of input has its workspace"),
        }
    }
}

impl DraftBuffers {
    /// Workspace for layers of these specifications, whose states have `width` values.
    fn new(loader: &mut Loader<'_>, specs: &[MtpSpec], width: usize) -> Result<Self, Error> {
        let hidden = loader.hidden();
        let is = |input| specs.iter().any(|spec| spec.input == input);
        let (joins, adds) = (is(MtpInput::Joined), is(MtpInput::Added));
        let mut shared = |name, width| loader.shared(name, width);
        Ok(Self {
            states: shared("draft_states", width)?,
            before: shared(BEFORE, width)?,
            delta: shared("draft_delta", hidden)?,
            normed: shared("draft_normed", width)?,
            token: shared("draft_token", hidden)?,
            token_normed: shared("draft_token_normed", hidden)?,
            joined: if joins { Some(shared("draft_joined", 2 * hidden)?) } else { None },
            spread: if adds { Some(shared("draft_spread", width)?) } else { None },
        })
    }
}

impl OwnParts {
    /// Loads what a head has of its own, in the layer with this `number`, and makes the width of
    /// the loader that of the head.
    fn load(loader: &mut Loader<'_>, config: &DraftConfig, number: usize) -> Result<Self, Error> {
        let DraftConfig::Eagle3(head) = config else { return Ok(Self::default()) };
        let (hidden, vocab) = (loader.hidden(), loader.checkpoint.config().vocab);
        loader.enter(Some(number), head.own_tensors(hidden, vocab), Vec::new());
        let fused = Some(FusedStreams::load(loader, head)?);
        let embed = match head.embeds {
            true => Some(loader.table("token_embd.weight")?),
            false => None,
        };
        loader.width = head.width;
        let work = match head.width == hidden {
            true => None,
            false => Some(OwnWork::new(loader, &head.layer.head)?),
        };
        let words = loader.checkpoint.drafted_words()?;
        Ok(Self { fused, embed, work, words, raw_states: !head.normed_states })
    }
}

impl OwnWork {
    /// A stream of the width of the loader, which the output head reads as `head`.
    ///
    /// # Errors
    /// If the device has no memory for it.
    pub fn new(loader: &mut Loader<'_>, head: &HeadSpec) -> Result<Self, Error> {
        let (rows, logit_rows) = (loader.limits.rows, loader.limits.logit_rows);
        let width = loader.hidden();
        let x = loader.backend.buffer(rows, width)?;
        Ok(Self {
            residual: Residual::load(loader, head, x)?,
            normed: loader.backend.buffer(rows.max(logit_rows), width)?,
            last: loader.backend.buffer(logit_rows, width)?,
        })
    }
}

/// Name of the workspace of states of the positions before.
const BEFORE: &str = "draft_before";

/// What gives each row the state of the position before, of `width` values.
///
/// # Errors
/// If the device has no memory for it.
pub(super) fn shift_of(loader: &mut Loader<'_>, width: usize) -> Result<ShortConv, Error> {
    // Of two positions the first alone.
    let taps = [vec![1.0; width], vec![0.0; width]].concat();
    let weight = loader.backend.vector(taps);
    Ok(ShortConv { silu: false, weight, bias: None, out: loader.shared(BEFORE, width)? })
}

/// Loads the output head of the words that a drafter with a layer of this `number` drafts, and
/// counts them.
fn words(
    loader: &mut Loader<'_>,
    config: &DraftConfig,
    number: usize,
) -> Result<(Head, usize), Error> {
    let model = loader.checkpoint.config();
    match config {
        DraftConfig::Eagle3(head) if head.outputs => {
            loader.enter(Some(number), head.own_tensors(model.hidden, model.vocab), Vec::new());
            Ok((Head::of_drafter(loader, ("output", head.words), None)?, head.words))
        }
        _ => {
            let count = model.vocab.min(MAX_WORDS);
            Ok((Head::of_first(loader, &model.head, count)?, count))
        }
    }
}
