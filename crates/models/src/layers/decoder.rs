//! What all decoders have in common: pre-norm attention and MLP, each added to the residual stream.

use super::{
    Attention, AttentionBuffers, GatedMlp, LatentAttention, LatentBuffers, Linear, MlpBuffers, Moe,
    MoeBuffers, Norm, Pass, frequencies, layer_cache,
};
use crate::loader::Loader;
use crate::{Error, Model};
use backend::{Backend, Batch, Buffer, LayerCache, Pairs, Rope, Table};
use formats::config::RopeLayout;

/// How a layer attends.
#[derive(Debug)]
pub(crate) enum Mixer {
    Heads(Attention),
    Latent(LatentAttention),
}

/// What a layer does with each row.
#[derive(Debug)]
pub(crate) enum Feed {
    Gated(GatedMlp),
    Experts(Moe),
}

impl Feed {
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
}

struct Layer {
    attn_norm: Norm,
    attn: Mixer,
    mlp_norm: Norm,
    mlp: Feed,
}

/// A decoder.
pub(crate) struct Decoder {
    embed: Table,
    layers: Vec<Layer>,
    norm: Norm,
    head: Linear,
    rope: Rope,
    cache: LayerCache,
    work: Work,
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
        attention: impl Fn(&mut Loader<'_>, usize, Rope) -> Result<Mixer, Error>,
    ) -> Result<Box<dyn Model>, Error> {
        let config = loader.checkpoint.config();
        let (hidden, vocab, eps) = (config.hidden_size, config.vocab_size, config.rms_norm_eps);
        let pairs = match config.rope.layout {
            RopeLayout::Halves => Pairs::Halves,
            RopeLayout::Interleaved => Pairs::Interleaved,
        };
        let (frequencies, magnitude) = (frequencies(&config.rope), config.rope.magnitude);
        let rope = loader.backend.rope(frequencies, magnitude, pairs, loader.limits.rows)?;
        let embed = loader.table("token_embd.weight", vocab, hidden)?;
        let head = match config.tied_embeddings {
            true => {
                let view = loader.checkpoint.require("token_embd.weight", &[vocab, hidden])?;
                Linear::new(loader.part_of("output.weight", view)?, None)
            }
            false => loader.linear("output", vocab, hidden)?,
        };
        let mut layers = Vec::with_capacity(config.layers);
        for layer in 0..config.layers {
            layers.push(Layer {
                attn_norm: loader.norm(&format!("blk.{layer}.attn_norm"), hidden, eps)?,
                attn: attention(loader, layer, rope)?,
                mlp_norm: loader.norm(&format!("blk.{layer}.ffn_norm"), hidden, eps)?,
                mlp: Feed::load(loader, layer)?,
            });
        }
        let norm = loader.norm("output_norm", hidden, eps)?;
        let work = Work::new(loader)?;
        let cache = layer_cache(loader.checkpoint.config());
        Ok(Box::new(Self { embed, layers, norm, head, rope, cache, work }))
    }

    fn layer(&self, pass: &mut Pass<'_>, index: usize) -> Result<(), Error> {
        let (layer, work) = (&self.layers[index], &self.work);
        let (x, normed, delta, rows) = (work.x, work.normed, work.delta, pass.rows());
        layer.attn_norm.forward(pass, x, normed, rows);
        match (&layer.attn, &work.heads, &work.latent) {
            (Mixer::Heads(attn), Some(work), _) => attn.forward(pass, normed, delta, work),
            (Mixer::Latent(attn), _, Some(work)) => attn.forward(pass, normed, delta, work),
            _ => unreachable!("workspace for the attention that was loaded"),
        }
        pass.check(delta, || format!("attention of layer {index}"))?;
        pass.backend.add(x, delta, rows);
        layer.mlp_norm.forward(pass, x, normed, rows);
        match (&layer.mlp, &work.moe) {
            (Feed::Gated(mlp), _) => mlp.forward(pass, normed, delta, &work.mlp),
            (Feed::Experts(moe), Some(buffers)) => {
                moe.forward(pass, normed, delta, (buffers, &work.mlp));
            }
            (Feed::Experts(_), None) => unreachable!("workspace for experts"),
        }
        pass.check(delta, || format!("MLP of layer {index}"))?;
        pass.backend.add(x, delta, rows);
        pass.check(x, || format!("residual stream after layer {index}"))?;
        Ok(())
    }
}

impl Work {
    fn new(loader: &mut Loader<'_>) -> Result<Self, Error> {
        let config = loader.checkpoint.config();
        let (rows, logit_rows) = (loader.limits.rows, loader.limits.logit_rows);
        let backend = &mut *loader.backend;
        let hidden = config.hidden_size;
        let experts = config.experts.as_ref();
        let dense = experts.is_none_or(|experts| experts.layers.contains(&false));
        let widths = [
            if dense { config.intermediate_size } else { 0 },
            experts.map_or(0, |experts| experts.shared_width),
        ];
        Ok(Self {
            x: backend.buffer(rows, hidden)?,
            normed: backend.buffer(rows.max(logit_rows), hidden)?,
            delta: backend.buffer(rows, hidden)?,
            heads: match config.latent {
                None => Some(AttentionBuffers::new(backend, rows, config)?),
                Some(_) => None,
            },
            latent: match config.latent {
                Some(sizes) => Some(LatentBuffers::new(backend, rows, config.heads, sizes)?),
                None => None,
            },
            mlp: MlpBuffers::new(backend, rows, &widths)?,
            moe: match experts {
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

    fn forward(
        &self,
        backend: &mut dyn Backend,
        batch: &Batch,
        check: bool,
    ) -> Result<Buffer, Error> {
        let pass = &mut Pass { backend, batch, check };
        let Work { x, last, logits, normed, .. } = self.work;
        pass.backend.rope_angles(self.rope, batch.positions());
        pass.backend.embed(self.embed, batch.tokens(), x);
        pass.check(x, || "token embedding".into())?;
        for index in 0..self.layers.len() {
            self.layer(pass, index)?;
        }
        let wanted = batch.logit_rows().len();
        if wanted > 0 {
            pass.backend.gather(x, batch.logit_rows(), last);
            self.norm.forward(pass, last, normed, wanted);
            self.head.forward(pass, normed, logits, wanted);
            pass.check_logits(logits)?;
        }
        Ok(logits)
    }
}
