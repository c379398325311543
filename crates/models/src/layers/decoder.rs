//! What all decoders have in common: pre-norm attention and MLP, each added to the residual stream.
//!
//! Where ranks share a model, each stage has some of the layers and hands the residual stream to
//! the next; slices have shares of what attention and MLP give, which are summed up before they
//! are added to the stream, once for each block.

use super::{
    Attention, AttentionBuffers, ForwardPass, GatedMlp, Head, LatentAttention, LatentBuffers,
    MlpBuffers, Moe, MoeBuffers, Norm, frequencies, layer_cache,
};
use crate::loader::Loader;
use crate::ranks::Ranks;
use crate::{Error, Model};
use backend::{Backend, Batch, Buffer, LayerCache, Pairs, Rope, Table};
use dist::{Comm, Split};
use formats::config::RopeLayout;

/// How a layer attends.
#[derive(Debug)]
pub(crate) enum AttentionKind {
    Heads(Attention),
    Latent(LatentAttention),
}

impl AttentionKind {
    /// What each rank has of the outputs.
    fn split(&self) -> Split {
        match self {
            Self::Heads(attention) => attention.split(),
            Self::Latent(attention) => attention.split(),
        }
    }
}

/// What a layer does with each row.
#[derive(Debug)]
pub(crate) enum FeedForward {
    Gated(GatedMlp),
    Experts(Moe),
}

impl FeedForward {
    /// The experts of a layer that has any by the configuration, else its MLP.
    pub fn load(loader: &mut Loader<'_>, layer: usize) -> Result<Self, Error> {
        let config = loader.checkpoint.config();
        match &config.experts {
            Some(experts) if experts.layers[layer] => {
                Ok(Self::Experts(Moe::load(loader, layer, experts)?))
            }
            _ => Ok(Self::Gated(GatedMlp::load(loader, layer, "", config.intermediate_size)?)),
        }
    }

    /// Inner values of an MLP that all rows pass through.
    fn width(&self) -> usize {
        match self {
            Self::Gated(mlp) => mlp.width(),
            Self::Experts(moe) => moe.shared_width(),
        }
    }

    /// What each rank has of the outputs.
    fn split(&self) -> Split {
        match self {
            Self::Gated(mlp) => mlp.split(),
            Self::Experts(moe) => moe.split(),
        }
    }
}

struct Layer {
    attn_norm: Norm,
    attn: AttentionKind,
    mlp_norm: Norm,
    mlp: FeedForward,
}

/// A decoder, or the stage of one.
pub(crate) struct Decoder {
    /// Where it begins.
    embed: Option<Table>,
    layers: Vec<Layer>,
    /// Number of the first of these in the whole model.
    first: usize,
    /// Where it ends.
    head: Option<Head>,
    rope: Rope,
    cache: LayerCache,
    work: Work,
    ranks: Ranks,
}

/// Workspace: `[rows, hidden]` where not said otherwise.
struct Work {
    /// The residual stream.
    x: Buffer,
    normed: Buffer,
    /// What attention or MLP adds to the stream.
    delta: Buffer,
    heads: Option<AttentionBuffers>,
    latent: Option<LatentBuffers>,
    mlp: MlpBuffers,
    moe: Option<MoeBuffers>,
    /// `[logit rows, hidden]`.
    last: Buffer,
    /// `[logit rows, vocab]`.
    logits: Buffer,
}

impl Decoder {
    /// Loads a decoder whose layers attend as `attention` loads it, and have the experts or MLPs
    /// that the configuration says.
    pub fn load(
        loader: &mut Loader<'_>,
        attention: impl Fn(&mut Loader<'_>, usize, Rope) -> Result<AttentionKind, Error>,
    ) -> Result<Box<dyn Model>, Error> {
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
            layers.push(Layer {
                attn_norm: loader.norm(&format!("blk.{layer}.attn_norm"), hidden, eps)?,
                attn: attention(loader, layer, rope)?,
                mlp_norm: loader.norm(&format!("blk.{layer}.ffn_norm"), hidden, eps)?,
                mlp: FeedForward::load(loader, layer)?,
            });
        }
        let work = Work::new(loader, &layers)?;
        let whole = layer_cache(loader.checkpoint.config());
        let cache = match whole.latent {
            None => LayerCache { heads: loader.heads()?.kv.len(), ..whole },
            Some(_) => whole,
        };
        let (first, ranks) = (loader.layers.start, loader.ranks.clone());
        Ok(Box::new(Self { embed, layers, first, head, rope, cache, work, ranks }))
    }

    /// Fills the residual stream: with embeddings, or with what the stage before has made.
    fn begin(&self, pass: &mut ForwardPass<'_>) -> Result<(), Error> {
        let (x, rows) = (self.work.x, pass.rows());
        match (&self.embed, &self.ranks.stages) {
            (Some(embed), _) => pass.backend.embed(*embed, pass.batch.tokens(), x),
            (None, Some(stages)) => {
                stages.receive(stages.rank() - 1, pass.backend.values_mut(x, rows))?;
            }
            (None, None) => unreachable!("the only stage is the first"),
        }
        pass.check(x, || "token embedding".into())
    }

    /// Hands the residual stream on, or makes states and logits of it; gives all stages these.
    fn end(&self, pass: &mut ForwardPass<'_>) -> Result<(), Error> {
        let Work { x, logits, delta, .. } = self.work;
        let wanted = [(delta, pass.batch.state_rows()), (logits, pass.batch.logit_rows())];
        match (&self.head, &self.ranks.stages) {
            (Some(head), _) => self.finish(pass, head)?,
            (None, Some(stages)) => {
                stages.send(stages.rank() + 1, pass.backend.read(x, pass.rows()))?;
            }
            _ => {}
        }
        let Some(stages) = &self.ranks.stages else { return Ok(()) };
        for (buffer, rows) in wanted.into_iter().filter(|(_, rows)| !rows.is_empty()) {
            let values = pass.backend.values_mut(buffer, rows.len());
            stages.broadcast(stages.ranks() - 1, values)?;
        }
        Ok(())
    }

    /// Makes states and logits of the residual stream, where they are wanted.
    fn finish(&self, pass: &mut ForwardPass<'_>, head: &Head) -> Result<(), Error> {
        let Work { x, last, logits, normed, delta, .. } = self.work;
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

    fn layer(&self, pass: &mut ForwardPass<'_>, index: usize) -> Result<(), Error> {
        let (layer, work) = (&self.layers[index], &self.work);
        let index = self.first + index;
        let (x, normed, delta, rows) = (work.x, work.normed, work.delta, pass.rows());
        layer.attn_norm.forward(pass, x, normed, rows);
        match (&layer.attn, &work.heads, &work.latent) {
            (AttentionKind::Heads(attn), Some(work), _) => attn.forward(pass, normed, delta, work),
            (AttentionKind::Latent(attn), _, Some(work)) => attn.forward(pass, normed, delta, work),
            _ => unreachable!("workspace for the attention that was loaded"),
        }
        pass.sum_over_ranks(delta, layer.attn.split())?;
        pass.check(delta, || format!("attention of layer {index}"))?;
        pass.backend.add(x, delta, rows);
        layer.mlp_norm.forward(pass, x, normed, rows);
        match (&layer.mlp, &work.moe) {
            (FeedForward::Gated(mlp), _) => mlp.forward(pass, normed, delta, &work.mlp),
            (FeedForward::Experts(moe), Some(buffers)) => {
                moe.forward(pass, normed, delta, (buffers, &work.mlp));
            }
            (FeedForward::Experts(_), None) => unreachable!("workspace for experts"),
        }
        pass.sum_over_ranks(delta, layer.mlp.split())?;
        pass.check(delta, || format!("MLP of layer {index}"))?;
        pass.backend.add(x, delta, rows);
        pass.check(x, || format!("residual stream after layer {index}"))?;
        Ok(())
    }
}

impl Work {
    /// For `layers`, as wide as what this rank has of them.
    fn new(loader: &mut Loader<'_>, layers: &[Layer]) -> Result<Self, Error> {
        let config = loader.checkpoint.config();
        let (rows, logit_rows) = (loader.limits.rows, loader.limits.logit_rows);
        let heads = loader.heads()?;
        let backend = &mut *loader.backend;
        let hidden = config.hidden_size;
        let widths: Vec<usize> = layers.iter().map(|layer| layer.mlp.width()).collect();
        Ok(Self {
            x: backend.buffer(rows, hidden)?,
            normed: backend.buffer(rows.max(logit_rows), hidden)?,
            delta: backend.buffer(rows, hidden)?,
            heads: match config.latent {
                None => Some(AttentionBuffers::new(backend, rows, &heads, config.head_dim)?),
                Some(_) => None,
            },
            latent: match config.latent {
                Some(sizes) => Some(LatentBuffers::new(backend, rows, heads.queries.len(), sizes)?),
                None => None,
            },
            mlp: MlpBuffers::new(backend, rows, &widths)?,
            moe: match &config.experts {
                Some(experts) => Some(MoeBuffers::new(backend, rows, hidden, experts)?),
                None => None,
            },
            last: backend.buffer(logit_rows, hidden)?,
            logits: backend.buffer(logit_rows, config.vocab_size)?,
        })
    }
}

impl Model for Decoder {
    fn cache(&self) -> Vec<LayerCache> {
        vec![self.cache; self.layers.len()]
    }

    fn states(&self) -> Buffer {
        // What attention and MLP add to the stream is added by then.
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
        pass.backend.rope_angles(self.rope, batch.positions());
        self.begin(pass)?;
        for index in 0..self.layers.len() {
            self.layer(pass, index)?;
        }
        self.end(pass)?;
        Ok(self.work.logits)
    }
}
