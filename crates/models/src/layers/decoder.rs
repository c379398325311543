//! The decoder that computes every family: embedding, layers of sublayers, output head.
//!
//! Each sublayer adds its output to the residual stream: norm, operation, norm, of which the norms
//! are optional, as is a norm of the stream behind it. Encoders are computed so too.
//!
//! Where ranks share a model, each stage has some of the layers and hands the residual stream to
//! the next; slices have shares of what an operation gives, which are summed up before they are
//! added to the stream.

use super::mlp::gate_kind;
use super::{
    AddedEmbeddings, Attention, ForwardPass, GatedDelta, GatedMlp, Head, HeldHeads,
    LatentAttention, LayerInput, LayerInputs, LayerRope, Mamba, Mixture, MlpAndExperts, Moe, Norm,
    Residual, ShortConvolution, SparseAttention, encoder_cache, layer_cache,
};
use crate::loader::Loader;
use crate::ranks::Ranks;
use crate::{Classifier, Error, Model, Projections};
use backend::{Backend, Batch, Buffer, LayerCache, Table, ThreadLimits};
use dist::{Comm, Split};
use formats::config::{self, IndexConfig, RopeConfig, SublayerNorms, Sublayers};
use std::sync::Arc;

/// One residual step of a layer: norm, operation, norm.
struct Sublayer {
    /// What is read of several residual streams.
    mixture: Option<Mixture>,
    /// Norm of the operation's input.
    before: Option<Norm>,
    op: Op,
    /// Norm of the operation's output, before it is added to the residual stream.
    after: Option<Norm>,
    /// Norm of the residual stream, after it.
    behind: Option<Norm>,
}

/// What a sublayer computes: `[rows, hidden]` to `[rows, hidden]`.
enum Op {
    Attention(Box<Attention>),
    Latent(Box<LatentAttention>),
    Sparse(Box<SparseAttention>),
    Delta(Box<GatedDelta>),
    Mamba(Box<Mamba>),
    Conv(Box<ShortConvolution>),
    Mlp(GatedMlp),
    Experts(Box<Moe>),
    /// Reads the residual stream through norms of its own.
    MlpAndExperts(Box<MlpAndExperts>),
    LayerInput(LayerInput),
    Beside(Box<Beside>),
}

/// Two operations of one input, which are added up: attention, and a state space or the MLP.
struct Beside {
    first: Op,
    second: Op,
    /// What the second gives: `[rows, hidden]`.
    out: Buffer,
}

impl Beside {
    fn forward(&self, pass: &mut ForwardPass<'_>, x: Buffer, out: Buffer) -> Result<(), Error> {
        let rows = pass.rows();
        self.first.forward(pass, x, out)?;
        pass.sum_over_ranks(out, self.first.split())?;
        self.second.forward(pass, x, self.out)?;
        pass.sum_over_ranks(self.out, self.second.split())?;
        pass.backend.add(out, self.out, rows);
        Ok(())
    }
}

/// A layer: sublayers, and a factor of the residual stream behind them.
struct Layer {
    sublayers: Vec<Sublayer>,
    scale: Option<f32>,
}

impl Op {
    /// The attention of a layer, or what takes its place or is beside it. `ropes` are those of
    /// [`attention`](Self::attention).
    fn mixer(loader: &mut Loader<'_>, layer: usize, ropes: &[LayerRope]) -> Result<Self, Error> {
        let config = loader.checkpoint.config();
        if let Some(conv) = config.conv_of(layer) {
            return Ok(Self::Conv(Box::new(ShortConvolution::load(loader, layer, conv)?)));
        }
        let Some(mamba) = config.mamba_of(layer) else {
            return Self::attention(loader, layer, ropes);
        };
        if !mamba.beside_attention {
            return Ok(Self::Mamba(Box::new(Mamba::load(loader, layer, mamba, 0)?)));
        }
        let first = Self::attention(loader, layer, ropes)?;
        // The rows of attention come first.
        let second = Self::Mamba(Box::new(Mamba::load(loader, layer, mamba, 1)?));
        let out = loader.shared("beside", config.hidden_size)?;
        Ok(Self::Beside(Box::new(Beside { first, second, out })))
    }

    /// The attention of a layer, or the recurrence in its place. `ropes` are the rotary embedding
    /// of the model, and that of layers with compressed rows, or with a window, or of the index.
    fn attention(
        loader: &mut Loader<'_>,
        layer: usize,
        ropes: &[LayerRope],
    ) -> Result<Self, Error> {
        let config = loader.checkpoint.config();
        if let Some(delta) = config.delta_of(layer) {
            return Ok(Self::Delta(Box::new(GatedDelta::load(loader, layer, delta)?)));
        }
        match &config.attention {
            config::Attention::Grouped(options) => {
                let own = config.windowed.is_some() && config.windows[layer].is_some();
                let rope = ropes[usize::from(own)];
                let attention = Attention::load(loader, layer, rope, *options)?;
                Ok(Self::Attention(Box::new(attention)))
            }
            config::Attention::Latent(sizes) => {
                let attention = LatentAttention::load(loader, layer, ropes, *sizes)?;
                Ok(Self::Latent(Box::new(attention)))
            }
            config::Attention::Compressed(sizes) => {
                let ropes = [ropes[0].keys, ropes[1].keys];
                let attention = SparseAttention::load(loader, layer, sizes, ropes)?;
                Ok(Self::Sparse(Box::new(attention)))
            }
        }
    }

    /// The experts of a layer, or its MLP if the configuration has no experts there.
    fn feed_forward(loader: &mut Loader<'_>, layer: usize) -> Result<Self, Error> {
        let config = loader.checkpoint.config();
        match config.experts_of(layer) {
            Some(experts) if experts.beside_mlp => {
                let both = MlpAndExperts::load(loader, layer, experts)?;
                Ok(Self::MlpAndExperts(Box::new(both)))
            }
            Some(experts) => Ok(Self::Experts(Box::new(Moe::load(loader, layer, experts)?))),
            None => {
                let (width, kind) = (config.mlp_width(layer), gate_kind(config.activation));
                GatedMlp::load(loader, layer, "", (width, kind)).map(Self::Mlp)
            }
        }
    }

    /// The name in errors.
    fn name(&self) -> &'static str {
        match self {
            Self::Attention(_) | Self::Latent(_) | Self::Sparse(_) => "attention",
            Self::Delta(_) => "gated delta rule",
            Self::Mamba(_) => "state space",
            Self::Conv(_) => "convolution",
            Self::Mlp(_) | Self::Experts(_) | Self::MlpAndExperts(_) => "MLP",
            Self::LayerInput(_) => "layer input",
            Self::Beside(_) => "attention or what is beside it",
        }
    }

    /// Which part of the outputs each rank has.
    fn split(&self) -> Split {
        match self {
            Self::Attention(attention) => attention.out.split,
            Self::Latent(attention) => attention.out.split,
            Self::Sparse(attention) => attention.out.split,
            Self::Delta(delta) => delta.out.split,
            Self::Mamba(mamba) => mamba.out.split,
            Self::Conv(conv) => conv.out.split,
            Self::Mlp(mlp) => mlp.down.split,
            // Each rank has a summand.
            Self::Experts(_) => Split::Experts,
            Self::MlpAndExperts(_) | Self::LayerInput(_) | Self::Beside(_) => Split::Whole,
        }
    }

    fn forward(&self, pass: &mut ForwardPass<'_>, x: Buffer, out: Buffer) -> Result<(), Error> {
        match self {
            Self::Attention(attention) => attention.forward(pass, x, out),
            Self::Latent(attention) => attention.forward(pass, x, out),
            Self::Sparse(attention) => attention.forward(pass, x, out),
            Self::Delta(delta) => delta.forward(pass, x, out),
            Self::Mamba(mamba) => mamba.forward(pass, x, out),
            Self::Conv(conv) => conv.forward(pass, x, out),
            Self::Mlp(mlp) => mlp.forward(pass, x, out),
            Self::Experts(moe) => moe.forward(pass, x, out),
            Self::MlpAndExperts(both) => both.forward(pass, x, out)?,
            Self::LayerInput(input) => input.forward(pass, x, out),
            Self::Beside(both) => both.forward(pass, x, out)?,
        }
        Ok(())
    }
}

/// A decoder, or the stage of one.
pub(crate) struct Decoder {
    /// On the first stage only.
    embed: Option<Table>,
    embedding_scale: f32,
    residual_scale: f32,
    layer_inputs: Option<LayerInputs>,
    /// On the first stage only.
    added: Option<AddedEmbeddings>,
    classifier: Option<Arc<Classifier>>,
    layers: Vec<Layer>,
    /// Number of the first of these in the whole model.
    first: usize,
    /// On the last stage only.
    head: Option<Head>,
    ropes: Vec<LayerRope>,
    cache: Vec<LayerCache>,
    residual: Residual,
    work: Workspace,
    ranks: Ranks,
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
    pub fn load(loader: &mut Loader<'_>) -> Result<Self, Error> {
        let config = loader.checkpoint.config();
        let hidden = config.hidden_size;
        let ropes = ropes(loader)?;
        let embed = match loader.stage.rank() {
            0 => Some(loader.table("token_embd.weight", config.vocab_size, hidden)?),
            _ => None,
        };
        let added = match embed {
            Some(_) => AddedEmbeddings::load(loader)?,
            None => None,
        };
        let layer_inputs = LayerInputs::load(loader, embed.is_some())?;
        let classifier = Classifier::load(loader.checkpoint)?.map(Arc::new);
        let mut layers = Vec::with_capacity(loader.layers.len());
        for layer in loader.layers.clone() {
            layers.push(Layer::load(loader, layer, &ropes)?);
            loader.backend.layer_loaded();
        }
        // Weights are loaded in the order of their use, in which disks read them ahead.
        let head = match loader.stage.rank() + 1 == loader.stage.ranks() {
            true => Some(Head::load(loader)?),
            false => None,
        };
        loader.backend.layer_loaded();
        let (work, held) = (Workspace::new(loader)?, HeldHeads::of(loader)?);
        let x = loader.backend.buffer(loader.limits.rows, hidden)?;
        let residual = Residual::load(loader, x)?;
        let native = loader.native_rounding;
        let cache = |layer| layer_cache(config, layer, native, held);
        let cache = match config.encoder {
            Some(_) => vec![encoder_cache(config, held)],
            None => loader.layers.clone().map(cache).collect(),
        };
        let (first, ranks) = (loader.layers.start, loader.ranks.clone());
        let (embedding_scale, residual_scale) = (config.embedding_scale, config.residual_scale);
        Ok(Self {
            embed,
            embedding_scale,
            residual_scale,
            layer_inputs,
            added,
            classifier,
            layers,
            first,
            head,
            ropes,
            cache,
            residual,
            work,
            ranks,
            projections: std::mem::take(&mut loader.projections),
        })
    }

    /// The experts of the layer behind `layer`.
    fn experts_behind(&self, layer: usize) -> Option<&Moe> {
        let next = self.layers.get(layer - self.first + 1)?;
        next.sublayers.iter().find_map(|sublayer| match &sublayer.op {
            Op::Experts(moe) => Some(&**moe),
            _ => None,
        })
    }

    /// Fills the residual stream with embeddings, or receives it from the previous stage.
    fn begin(&self, pass: &mut ForwardPass<'_>) -> Result<(), Error> {
        let (x, rows) = (self.residual.buffer(), pass.rows());
        match (&self.embed, &self.ranks.stages) {
            (Some(embed), _) => {
                let embeddings = self.residual.embeddings();
                pass.backend.embed(*embed, pass.batch.tokens(), embeddings);
                if self.embedding_scale != 1.0 {
                    pass.backend.scale(embeddings, self.embedding_scale, rows);
                }
                if let Some(added) = &self.added {
                    added.complete(pass, embeddings);
                }
                self.residual.start(pass);
            }
            (None, Some(stages)) => {
                pass.exchange(x, rows, |values| stages.receive(stages.rank() - 1, values))?;
            }
            (None, None) => unreachable!("the only stage is the first"),
        }
        if let Some(inputs) = &self.layer_inputs {
            inputs.compute(pass, self.residual.embeddings());
        }
        pass.check(x, || "token embedding".into())
    }

    /// Sends the residual stream to the next stage; the last stage computes hidden states and
    /// logits and broadcasts them.
    fn end(&self, pass: &mut ForwardPass<'_>) -> Result<(), Error> {
        let (Workspace { logits, delta, .. }, x) = (self.work, self.residual.buffer());
        let wanted = [(delta, pass.batch.hidden_rows()), (logits, pass.batch.logit_rows())];
        match (&self.head, &self.ranks.stages) {
            (Some(head), _) => self.finish(pass, head)?,
            (None, Some(stages)) => {
                pass.backend.fetch(x, pass.rows());
                stages.send(stages.rank() + 1, pass.backend.read(x, pass.rows()))?;
            }
            _ => {}
        }
        let Some(stages) = &self.ranks.stages else { return Ok(()) };
        for (buffer, rows) in wanted.into_iter().filter(|(_, rows)| !rows.is_empty()) {
            pass.exchange(buffer, rows.len(), |values| {
                stages.broadcast(stages.ranks() - 1, values)
            })?;
        }
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
            pass.check_logits(logits)?;
        }
        Ok(())
    }
}

impl Workspace {
    fn new(loader: &mut Loader<'_>) -> Result<Self, Error> {
        let config = loader.checkpoint.config();
        let (rows, logit_rows) = (loader.limits.rows, loader.limits.logit_rows);
        let mut buffer = |rows, width| loader.backend.buffer(rows, width);
        Ok(Self {
            normed: buffer(rows.max(logit_rows), config.hidden_size)?,
            delta: buffer(rows, config.hidden_size)?,
            last: buffer(logit_rows, config.hidden_size)?,
            logits: buffer(logit_rows, if config.generates() { config.vocab_size } else { 1 })?,
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

    fn forward(
        &self,
        backend: &mut dyn Backend,
        batch: &Batch,
        check: bool,
    ) -> Result<Buffer, Error> {
        let slices: Option<&dyn Comm> = self.ranks.slices.as_deref();
        let pass = &mut ForwardPass { backend, batch, check, slices };
        let (Workspace { normed, delta, logits, .. }, rows) = (self.work, pass.rows());
        self.ropes.iter().for_each(|rope| rope.turn_to(pass));
        self.begin(pass)?;
        let foresees = rows <= ThreadLimits::DECODE_ROWS && pass.backend.foresees();
        for (layer, Layer { sublayers, scale }) in (self.first..).zip(&self.layers) {
            for Sublayer { mixture, before, op, after, behind } in sublayers {
                let mixture = mixture.as_ref();
                // x, normed: [rows, hidden]
                let x = self.residual.read(pass, mixture);
                let input = before.map_or(x, |norm| norm.forward(pass, x, normed, rows));
                if let (true, Op::Experts(_)) = (foresees, op)
                    && let Some(next) = self.experts_behind(layer)
                {
                    next.foresee(pass, input);
                }
                // delta: [rows, hidden], where slices share the operation a summand of it
                op.forward(pass, input, delta)?;
                pass.sum_over_ranks(delta, op.split())?;
                pass.check(delta, || format!("{} of layer {layer}", op.name()))?;
                // normed: [rows, hidden]
                let output = after.map_or(delta, |norm| norm.forward(pass, delta, normed, rows));
                if self.residual_scale != 1.0 {
                    pass.backend.scale(output, self.residual_scale, rows);
                }
                self.residual.add(pass, mixture, output);
                if let Some(norm) = behind {
                    let stream = self.residual.buffer();
                    norm.forward(pass, stream, stream, rows);
                }
            }
            let stream = self.residual.buffer();
            if let Some(scale) = scale {
                pass.backend.scale(stream, *scale, rows);
            }
            pass.check(stream, || format!("residual stream after layer {layer}"))?;
        }
        // delta: [hidden rows, hidden]; logits: [logit rows, vocab]
        self.end(pass)?;
        Ok(logits)
    }
}

impl Layer {
    /// Loads a layer; `ropes` are those of [`Op::attention`].
    fn load(loader: &mut Loader<'_>, layer: usize, ropes: &[LayerRope]) -> Result<Self, Error> {
        let config = loader.checkpoint.config();
        let name = |part: &str| format!("blk.{layer}.{part}");
        let norm =
            |loader: &mut Loader<'_>, part: &str| Norm::of_stream(loader, &name(part)).map(Some);
        let after = |loader: &mut Loader<'_>, part: &str| match config.norms {
            SublayerNorms::Before | SublayerNorms::Behind => Ok(None),
            SublayerNorms::Around | SublayerNorms::After => norm(loader, part),
        };
        let before = |loader: &mut Loader<'_>, part: &str| match config.norms {
            SublayerNorms::After | SublayerNorms::Behind => Ok(None),
            SublayerNorms::Before | SublayerNorms::Around => norm(loader, part),
        };
        let behind = |loader: &mut Loader<'_>, part: &str| match config.norms {
            SublayerNorms::Behind => norm(loader, part),
            _ => Ok(None),
        };
        let bare = config.encoder.as_ref().is_some_and(|it| it.bare_first) && layer == 0;
        let mut sublayers = Vec::with_capacity(2);
        if config.sublayers[layer] != Sublayers::FeedForward {
            sublayers.push(Sublayer {
                mixture: Residual::mixture(loader, &name("hc_attn"))?,
                before: if bare { None } else { before(loader, "attn_norm")? },
                op: Op::mixer(loader, layer, ropes)?,
                after: after(loader, "post_attention_norm")?,
                behind: behind(loader, "attn_output_norm")?,
            });
        }
        if config.parallel
            && let Some(attention) = sublayers.pop()
        {
            let beside = Beside {
                first: attention.op,
                second: Op::feed_forward(loader, layer)?,
                out: loader.shared("beside", config.hidden_size)?,
            };
            let op = Op::Beside(Box::new(beside));
            return Ok(Self { sublayers: vec![Sublayer { op, ..attention }], scale: None });
        }
        if config.has_feed_forward(layer) {
            let beside = config.experts_of(layer).is_some_and(|experts| experts.beside_mlp);
            // The only sublayer of a layer has the first of its norms.
            let norm = if sublayers.is_empty() { "attn_norm" } else { "ffn_norm" };
            sublayers.push(Sublayer {
                mixture: Residual::mixture(loader, &name("hc_ffn"))?,
                before: if beside { None } else { before(loader, norm)? },
                op: Op::feed_forward(loader, layer)?,
                after: after(loader, "post_ffw_norm")?,
                behind: behind(loader, "layer_output_norm")?,
            });
        }
        if config.layer_inputs > 0 {
            let op = Op::LayerInput(LayerInput::load(loader, layer)?);
            let after = norm(loader, "post_norm")?;
            sublayers.push(Sublayer { mixture: None, before: None, op, after, behind: None });
        }
        let scale = match config.layer_scales {
            true => {
                let name = name("layer_output_scale.weight");
                loader.checkpoint.require(&name, &[1])?.to_f32()?.first().copied()
            }
            false => None,
        };
        Ok(Self { sublayers, scale })
    }
}

/// The rotary embeddings of a model: the common one, and that of layers with compressed rows, or
/// with a window, or of the index.
fn ropes(loader: &mut Loader<'_>) -> Result<Vec<LayerRope>, Error> {
    let config = loader.checkpoint.config();
    let of_index = |index: &IndexConfig| RopeConfig { layout: index.layout, ..config.rope.clone() };
    let other = match &config.attention {
        config::Attention::Compressed(sizes) => Some(sizes.rope.clone()),
        config::Attention::Latent(_) => config.index.as_ref().map(of_index),
        config::Attention::Grouped(_) => config.windowed.as_ref().map(|own| own.rope.clone()),
    };
    let each = [Some(config.rope.clone()), other].into_iter().flatten();
    each.map(|rope| LayerRope::load(loader, &rope)).collect()
}
