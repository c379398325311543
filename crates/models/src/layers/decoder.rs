//! The decoder that computes every family: embedding, layers of sublayers, output head.
//!
//! Where ranks share a model, each stage has some of the layers and hands the residual stream to
//! the next; the last hands wanted rows to the first, which has the output head.
//! Slices have summands of an operation's output, which are summed before they are added to the
//! stream.

use super::drafter::Drafter;
use super::embedding::AddedEmbeddings;
use super::head::Head;
use super::layer::Layer;
use super::layer_input::LayerInputs;
use super::stage_link::{StageLink, send_failure};
use super::state_drafter::OfModel;
use super::streams::Residual;
use crate::classifier::Classifier;
use crate::error::Error;
use crate::loader::Loader;
use crate::model::{DraftLayers, DraftStates, Drafted, Model};
use crate::pass::ForwardPass;
use crate::projections::Projections;
use crate::ranks::Ranks;
use crate::ropes::Ropes;
use backend::{Backend, Batch, Buffer, LayerCache, MapOp, StreamedWeights, Table, ThreadLimits};
use dist::Comm;
use std::sync::Arc;

/// A decoder, or the stage of one.
pub(crate) struct Decoder {
    /// On the first stage only.
    embed: Option<Table>,
    embedding_scale: f32,
    layer_inputs: Option<LayerInputs>,
    /// On the first stage only.
    added: Option<AddedEmbeddings>,
    classifier: Option<Arc<Classifier>>,
    layers: Vec<Layer>,
    /// Number of the first of these in the whole model.
    first: usize,
    /// On the first stage only.
    head: Option<Head>,
    /// The layers that draft tokens, where they are used.
    drafter: Option<Drafter>,
    ropes: Ropes,
    cache: Vec<LayerCache>,
    residual: Residual,
    work: Workspace,
    ranks: Ranks,
    link: StageLink,
    projections: Projections,
}

/// Workspace, `[rows, hidden]` unless stated.
#[derive(Clone, Copy)]
struct Workspace {
    normed: Buffer,
    /// What an operation adds to the stream; after the last layer the hidden states.
    delta: Buffer,
    /// `[logit rows, hidden]`.
    last: Buffer,
    /// `[logit rows, vocab]`.
    logits: Buffer,
}

impl Decoder {
    /// Loads a decoder with the layers that the configuration describes.
    ///
    /// # Errors
    /// If a tensor is missing or has another shape, the model cannot be divided among the ranks, or
    /// the device has no memory for it.
    pub fn load(loader: &mut Loader<'_>) -> Result<Self, Error> {
        let config = loader.checkpoint.config();
        let (vocab, hidden) = (config.vocab, config.hidden);
        loader.enter(None, config.embedding.tensors(vocab, hidden), Vec::new());
        let (embed, added) = match loader.is_first() {
            true => (
                Some(loader.table("token_embd.weight")?),
                AddedEmbeddings::load(loader, &config.embedding)?,
            ),
            false => (None, None),
        };
        let layer_inputs = LayerInputs::load(loader, &config.embedding)?;
        if config.embedding.rope_exponents.is_some() {
            loader.load_rope_exponents()?;
        }
        let classifier = Classifier::load(loader.checkpoint)?.map(Arc::new);
        let (mut layers, mut cache) = (Vec::new(), Vec::new());
        for number in loader.layers.clone() {
            let (layer, kept) = Layer::load(loader, (number, 0), &config.layers[number])?;
            layers.push(layer);
            cache.push(kept);
            loader.layer_loaded();
        }
        // Weights are loaded in the order of their use, in which disks read them ahead.
        loader.enter(None, config.head.tensors(vocab, hidden), Vec::new());
        let head = match loader.is_first() {
            true => Some(Head::load(loader, &config.head)?),
            false => None,
        };
        let x = loader.backend.buffer(loader.limits.rows, hidden)?;
        let residual = Residual::load(loader, &config.head, x)?;
        loader.layer_loaded();
        let drafter = match &config.drafter {
            Some(config) => {
                let (drafter, kept) = Drafter::load(loader, config)?;
                cache.extend(kept);
                Some(drafter)
            }
            None => None,
        };
        let work = Workspace::new(loader)?;
        Ok(Self {
            embed,
            embedding_scale: config.embedding.scale,
            layer_inputs,
            added,
            classifier,
            layers,
            first: loader.layers.start,
            head,
            drafter,
            cache,
            residual,
            work,
            ranks: loader.ranks.clone(),
            link: StageLink::default(),
            ropes: std::mem::take(&mut loader.ropes),
            projections: std::mem::take(&mut loader.projections),
        })
    }

    /// The layers that draft tokens, where they are used, and what they use of the model.
    fn drafter(&self) -> Option<(&Drafter, OfModel<'_>)> {
        let Workspace { normed, last, .. } = self.work;
        let (drafter, head, embed) = (self.drafter.as_ref()?, self.head.as_ref()?, self.embed?);
        Some((drafter, OfModel { embed, head, residual: &self.residual, normed, last }))
    }

    /// Keeps the residual stream before the layer with this number for a drafter that reads it.
    fn tap(&self, pass: &mut ForwardPass<'_>, number: usize) {
        if let Some(drafter) = &self.drafter {
            drafter.tap(pass, number, self.residual.buffer());
        }
    }

    /// Fills the residual stream with embeddings, or receives it from the previous stage.
    fn begin(&self, pass: &mut ForwardPass<'_>) -> Result<(), Error> {
        let (x, rows) = (self.residual.buffer(), pass.rows());
        match &self.embed {
            Some(embed) => {
                let embeddings = self.residual.embeddings();
                pass.backend.embed(*embed, pass.batch.tokens(), embeddings);
                if self.embedding_scale != 1.0 {
                    pass.backend.map(MapOp::Scale(self.embedding_scale), embeddings, rows);
                }
                if let Some(added) = &self.added {
                    added.complete(pass, embeddings);
                }
                self.residual.start(pass);
            }
            None => self.link.receive(pass, &self.ranks, x)?,
        }
        if let Some(inputs) = &self.layer_inputs {
            inputs.compute(pass, self.residual.embeddings());
        }
        pass.check(x, || "token embedding".into())
    }

    /// Computes the layers of this rank.
    fn compute(&self, pass: &mut ForwardPass<'_>) -> Result<(), Error> {
        let Workspace { normed, delta, .. } = self.work;
        self.ropes.turn_to(pass.backend, pass.batch);
        self.layers.iter().for_each(|layer| layer.prepare(pass));
        self.begin(pass)?;
        let foresees = pass.rows() <= ThreadLimits::DECODE_ROWS
            && pass.backend.streamed().is_some_and(StreamedWeights::foresees);
        for (number, layer) in (self.first..).zip(&self.layers) {
            let next = self.layers.get(number - self.first + 1).filter(|_| foresees);
            let next = next.and_then(Layer::experts);
            self.tap(pass, number);
            layer.forward(pass, number, &self.residual, [normed, delta], next)?;
        }
        self.tap(pass, self.first + self.layers.len());
        Ok(())
    }

    /// Computes hidden states and logits of the rows that the batch names.
    fn finish(&self, pass: &mut ForwardPass<'_>, head: &Head) -> Result<(), Error> {
        let Workspace { last, logits, normed, delta } = self.work;
        let (hidden, wanted) = (pass.batch.hidden_rows(), pass.batch.logit_rows());
        if !hidden.is_empty() {
            let into = if head.has_norm() { normed } else { delta };
            self.residual.gather(pass, hidden, into);
            head.normalise(pass, (normed, delta), hidden.len());
        }
        if !wanted.is_empty() {
            self.residual.gather(pass, wanted, last);
            head.forward(pass, (last, normed), logits, wanted.len())?;
            if self.ranks.leads() {
                pass.check_logits(logits)?;
            }
        }
        Ok(())
    }
}

impl Workspace {
    fn new(loader: &mut Loader<'_>) -> Result<Self, Error> {
        let config = loader.checkpoint.config();
        let (rows, logit_rows) = (loader.limits.rows, loader.limits.logit_rows);
        let has_logits = config.generates() && loader.ranks.leads();
        let mut buffer = |rows, width| loader.backend.buffer(rows, width);
        Ok(Self {
            normed: buffer(rows.max(logit_rows), config.hidden)?,
            delta: buffer(rows, config.hidden)?,
            last: buffer(logit_rows, config.hidden)?,
            logits: buffer(logit_rows, if has_logits { config.vocab } else { 1 })?,
        })
    }
}

impl Model for Decoder {
    fn cache(&self) -> Vec<LayerCache> {
        self.cache.clone()
    }

    fn classifier(&self) -> Option<&Arc<Classifier>> {
        self.classifier.as_ref()
    }

    fn projections(&self) -> &Projections {
        &self.projections
    }

    fn hidden(&self) -> Buffer {
        // After the last layer the buffer is free.
        self.work.delta
    }

    fn draft_layers(&self) -> Option<&dyn DraftLayers> {
        self.drafter.is_some().then_some(self)
    }

    fn launch(&self, backend: &mut dyn Backend, batch: &Batch, check: bool) -> Result<(), Error> {
        let slices: Option<&dyn Comm> = self.ranks.slices.as_deref();
        let pass = &mut ForwardPass { backend, batch, check, slices };
        let computed = self.compute(pass);
        if self.ranks.stages() == 1 {
            return computed;
        }
        // Operations that fail say so at the end of the step.
        let x = self.residual.buffer();
        let ended = computed.and_then(|()| {
            pass.backend.fetch(x, pass.rows());
            Ok(pass.backend.end()?)
        });
        match ended {
            Ok(()) => self.link.send(pass, &self.ranks, x),
            Err(error) => match send_failure(&self.ranks, &error)? {
                true => Ok(()),
                false => Err(error),
            },
        }
    }

    fn land(&self, backend: &mut dyn Backend, batch: &Batch, check: bool) -> Result<Buffer, Error> {
        let slices: Option<&dyn Comm> = self.ranks.slices.as_deref();
        let pass = &mut ForwardPass { backend, batch, check, slices };
        self.link.receive_wanted(pass, &self.ranks, self.residual.buffer())?;
        if let Some(head) = &self.head {
            // delta: [hidden rows, hidden]; logits: [logit rows, vocab]
            self.finish(pass, head)?;
        }
        if let Some((drafter, model)) = self.drafter() {
            drafter.follow(pass, &model)?;
        }
        Ok(self.work.logits)
    }
}

impl DraftLayers for Decoder {
    fn layers(&self) -> usize {
        self.drafter.as_ref().map_or(0, Drafter::layers)
    }

    fn width(&self) -> usize {
        self.drafter.as_ref().map_or(0, Drafter::width)
    }

    fn words(&self) -> Option<&[u32]> {
        self.drafter.as_ref()?.words()
    }

    fn draft(
        &self,
        backend: &mut dyn Backend,
        batch: &Batch,
        layer: usize,
        states: DraftStates<'_>,
        check: bool,
    ) -> Result<Drafted, Error> {
        let (drafter, model) = self.drafter().expect("the model has such layers");
        let pass = &mut ForwardPass { backend, batch, check, slices: None };
        self.ropes.turn_to(pass.backend, batch);
        drafter.draft(pass, layer, states, &model)
    }
}
