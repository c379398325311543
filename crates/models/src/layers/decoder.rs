//! The decoder that computes every family: embedding, layers of sublayers, output head.
//!
//! Each sublayer adds its output to the residual stream: norm, operation, norm, of which the norms
//! are optional. Where ranks share a model, each stage has some of the layers and hands the
//! residual stream to the next; slices have shares of what an operation gives, which are summed up
//! before they are added to the stream.

use super::{
    Attention, ForwardPass, GatedMlp, Head, LatentAttention, Moe, Norm, frequencies, layer_cache,
};
use crate::loader::Loader;
use crate::ranks::Ranks;
use crate::{Error, Model};
use backend::{Backend, Batch, Buffer, LayerCache, Pairs, Rope, Table};
use dist::{Comm, Split};
use formats::config::{self, RopeLayout};

/// One residual step of a layer: norm, operation, norm.
struct Sublayer {
    /// Norm of the operation's input.
    before: Option<Norm>,
    op: Op,
    /// Norm of the operation's output, before it is added to the residual stream.
    after: Option<Norm>,
}

/// What a sublayer computes: `[rows, hidden]` to `[rows, hidden]`.
enum Op {
    Attention(Attention),
    Latent(LatentAttention),
    Mlp(GatedMlp),
    Experts(Moe),
}

impl Op {
    /// The attention of a layer.
    fn attention(loader: &mut Loader<'_>, layer: usize, rope: Rope) -> Result<Self, Error> {
        match loader.checkpoint.config().attention {
            config::Attention::Grouped { head_norms, sinks, .. } => {
                Attention::load(loader, layer, rope, head_norms, sinks).map(Self::Attention)
            }
            config::Attention::Latent(sizes) => {
                LatentAttention::load(loader, layer, rope, sizes).map(Self::Latent)
            }
        }
    }

    /// The experts of a layer, or its MLP if the configuration has no experts there.
    fn feed_forward(loader: &mut Loader<'_>, layer: usize) -> Result<Self, Error> {
        let config = loader.checkpoint.config();
        match config.experts_of(layer) {
            Some(experts) => Moe::load(loader, layer, experts).map(Self::Experts),
            None => GatedMlp::load(loader, layer, "", config.intermediate_size).map(Self::Mlp),
        }
    }

    /// The name in errors.
    fn name(&self) -> &'static str {
        match self {
            Self::Attention(_) | Self::Latent(_) => "attention",
            Self::Mlp(_) | Self::Experts(_) => "MLP",
        }
    }

    /// Which part of the outputs each rank has.
    fn split(&self) -> Split {
        match self {
            Self::Attention(attention) => attention.out.split,
            Self::Latent(attention) => attention.out.split,
            Self::Mlp(mlp) => mlp.down.split,
            // Each rank has a summand.
            Self::Experts(_) => Split::Experts,
        }
    }

    fn forward(&self, pass: &mut ForwardPass<'_>, x: Buffer, out: Buffer) {
        match self {
            Self::Attention(attention) => attention.forward(pass, x, out),
            Self::Latent(attention) => attention.forward(pass, x, out),
            Self::Mlp(mlp) => mlp.forward(pass, x, out),
            Self::Experts(moe) => moe.forward(pass, x, out),
        }
    }
}

/// A decoder, or the stage of one.
pub(crate) struct Decoder {
    /// On the first stage only.
    embed: Option<Table>,
    layers: Vec<[Sublayer; 2]>,
    /// Number of the first of these in the whole model.
    first: usize,
    /// On the last stage only.
    head: Option<Head>,
    rope: Rope,
    cache: LayerCache,
    work: Workspace,
    ranks: Ranks,
}

/// Workspace, `[rows, hidden]` unless stated.
#[derive(Clone, Copy)]
struct Workspace {
    /// The residual stream.
    x: Buffer,
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
        let (hidden, eps) = (config.hidden_size, config.rms_norm_eps);
        let pairs = match config.rope.layout {
            RopeLayout::Halves => Pairs::Halves,
            RopeLayout::Interleaved => Pairs::Interleaved,
        };
        let (frequencies, magnitude) = (frequencies(&config.rope), config.rope.magnitude);
        let rope = loader.backend.rope(frequencies, magnitude, pairs, loader.limits.rows)?;
        let embed = match loader.stage.rank() {
            0 => Some(loader.table("token_embd.weight", config.vocab_size, hidden)?),
            _ => None,
        };
        let head = match loader.stage.rank() + 1 == loader.stage.ranks() {
            true => Some(Head::load(loader)?),
            false => None,
        };
        let mut layers = Vec::with_capacity(loader.layers.len());
        for layer in loader.layers.clone() {
            let norm = Norm::load(loader, &format!("blk.{layer}.attn_norm"), hidden, eps)?;
            let op = Op::attention(loader, layer, rope)?;
            let attention = Sublayer { before: Some(norm), op, after: None };
            let norm = Norm::load(loader, &format!("blk.{layer}.ffn_norm"), hidden, eps)?;
            let op = Op::feed_forward(loader, layer)?;
            layers.push([attention, Sublayer { before: Some(norm), op, after: None }]);
        }
        let work = Workspace::new(loader)?;
        let whole = layer_cache(config);
        let cache = match whole.latent {
            None => LayerCache { heads: loader.heads()?.kv.len(), ..whole },
            Some(_) => whole,
        };
        let (first, ranks) = (loader.layers.start, loader.ranks.clone());
        Ok(Self { embed, layers, first, head, rope, cache, work, ranks })
    }

    /// Fills the residual stream with embeddings, or receives it from the previous stage.
    fn begin(&self, pass: &mut ForwardPass<'_>) -> Result<(), Error> {
        let (x, rows) = (self.work.x, pass.rows());
        match (&self.embed, &self.ranks.stages) {
            (Some(embed), _) => pass.backend.embed(*embed, pass.batch.tokens(), x),
            (None, Some(stages)) => {
                pass.exchange(x, rows, |values| stages.receive(stages.rank() - 1, values))?;
            }
            (None, None) => unreachable!("the only stage is the first"),
        }
        pass.check(x, || "token embedding".into())
    }

    /// Sends the residual stream to the next stage; the last stage computes hidden states and
    /// logits and broadcasts them.
    fn end(&self, pass: &mut ForwardPass<'_>) -> Result<(), Error> {
        let Workspace { x, logits, delta, .. } = self.work;
        let wanted = [(delta, pass.batch.state_rows()), (logits, pass.batch.logit_rows())];
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
        let Workspace { x, last, logits, normed, delta, .. } = self.work;
        let (states, wanted) = (pass.batch.state_rows(), pass.batch.logit_rows());
        if !states.is_empty() {
            pass.backend.gather(x, states, normed);
            head.normalise(pass, (normed, delta), states.len());
        }
        if !wanted.is_empty() {
            pass.backend.gather(x, wanted, last);
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
            x: buffer(rows, config.hidden_size)?,
            normed: buffer(rows.max(logit_rows), config.hidden_size)?,
            delta: buffer(rows, config.hidden_size)?,
            last: buffer(logit_rows, config.hidden_size)?,
            logits: buffer(logit_rows, config.vocab_size)?,
        })
    }
}

impl Model for Decoder {
    fn cache(&self) -> Vec<LayerCache> {
        vec![self.cache; self.layers.len()]
    }

    fn states(&self) -> Buffer {
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
        let (Workspace { x, normed, delta, logits, .. }, rows) = (self.work, pass.rows());
        pass.backend.rope_angles(self.rope, batch.positions());
        // x: [rows, hidden], the residual stream
        self.begin(pass)?;
        for (layer, sublayers) in (self.first..).zip(&self.layers) {
            for Sublayer { before, op, after } in sublayers {
                // normed: [rows, hidden]
                let input = before.map_or(x, |norm| norm.forward(pass, x, normed, rows));
                // delta: [rows, hidden], where slices share the operation a summand of it
                op.forward(pass, input, delta);
                pass.sum_over_ranks(delta, op.split())?;
                pass.check(delta, || format!("{} of layer {layer}", op.name()))?;
                // normed: [rows, hidden]
                let output = after.map_or(delta, |norm| norm.forward(pass, delta, normed, rows));
                pass.backend.add(x, output, rows);
            }
            pass.check(x, || format!("residual stream after layer {layer}"))?;
        }
        // delta: [state rows, hidden]; logits: [logit rows, vocab]
        self.end(pass)?;
        Ok(logits)
    }
}
