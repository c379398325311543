//! Dense decoders: Llama, Mistral, Qwen2 and Qwen3.
//!
//! Reference: `modeling_llama.py`, `modeling_mistral.py`, `modeling_qwen2.py` and
//! `modeling_qwen3.py` of transformers. One body: pre-norm attention and gated MLP, each added
//! to the residual stream. They differ in data: Qwen2 has biases on queries, keys and values
//! (`formats` knows that it must), Qwen3 norms on queries and keys, Mistral a sliding window.

use super::Arch;
use crate::layers::{
    Attention, AttentionBuffers, GatedMlp, Linear, MlpBuffers, Norm, Pass, frequencies,
};
use crate::loader::Loader;
use crate::{Error, Model};
use backend::{Backend, Batch, Buffer, LayerCache, Pairs, Rope, Table};
use formats::config::RopeLayout;

pub(super) static ARCHS: &[Arch] = &[
    Arch { name: "llama", load: |loader| load(loader, Variant::default()) },
    Arch { name: "mistral", load: |loader| load(loader, Variant::default()) },
    Arch { name: "qwen2", load: |loader| load(loader, Variant::default()) },
    Arch { name: "qwen3", load: |loader| load(loader, Variant { qk_norm: true }) },
];

/// Where the members of the family differ.
#[derive(Default)]
struct Variant {
    /// Each head of queries and keys is normalised before its rotation.
    qk_norm: bool,
}

struct Layer {
    attn_norm: Norm,
    attn: Attention,
    mlp_norm: Norm,
    mlp: GatedMlp,
}

struct Dense {
    embed: Table,
    layers: Vec<Layer>,
    norm: Norm,
    head: Linear,
    rope: Rope,
    work: Work,
}

/// Workspace: `[rows, hidden]` where not said otherwise.
#[derive(Clone, Copy)]
struct Work {
    /// The residual stream.
    x: Buffer,
    normed: Buffer,
    /// What attention or MLP adds to the stream.
    delta: Buffer,
    attn: AttentionBuffers,
    mlp: MlpBuffers,
    /// `[logit rows, hidden]`.
    last: Buffer,
    /// `[logit rows, vocab]`.
    logits: Buffer,
}

fn load(loader: &mut Loader<'_>, variant: Variant) -> Result<Box<dyn Model>, Error> {
    let config = loader.checkpoint.config();
    let (hidden, vocab, eps) = (config.hidden_size, config.vocab_size, config.rms_norm_eps);
    let pairs = match config.rope.layout {
        RopeLayout::Halves => Pairs::Halves,
        RopeLayout::Interleaved => Pairs::Interleaved,
    };
    let rope = loader.backend.rope(frequencies(&config.rope), pairs, loader.limits.rows)?;
    let embed = loader.table("token_embd.weight", vocab, hidden)?;
    let head = match config.tied_embeddings {
        true => Linear::new(loader.matrix("token_embd.weight", vocab, hidden)?, None),
        false => loader.linear("output", vocab, hidden)?,
    };
    let layers = (0..config.layers)
        .map(|index| load_layer(loader, index, rope, &variant))
        .collect::<Result<_, _>>()?;
    let norm = loader.norm("output_norm", hidden, eps)?;
    let work = Work::new(loader)?;
    Ok(Box::new(Dense { embed, layers, norm, head, rope, work }))
}

fn load_layer(
    loader: &mut Loader<'_>,
    index: usize,
    rope: Rope,
    variant: &Variant,
) -> Result<Layer, Error> {
    let config = loader.checkpoint.config();
    let (hidden, eps) = (config.hidden_size, config.rms_norm_eps);
    let prefix = format!("blk.{index}");
    let attn = Attention::load(loader, index, &prefix, rope, variant.qk_norm)?;
    Ok(Layer {
        attn_norm: loader.norm(&format!("{prefix}.attn_norm"), hidden, eps)?,
        attn,
        mlp_norm: loader.norm(&format!("{prefix}.ffn_norm"), hidden, eps)?,
        mlp: GatedMlp::load(loader, &prefix, hidden, config.intermediate_size)?,
    })
}

impl Work {
    fn new(loader: &mut Loader<'_>) -> Result<Self, Error> {
        let config = loader.checkpoint.config();
        let (rows, logit_rows) = (loader.limits.rows, loader.limits.logit_rows);
        let backend = &mut *loader.backend;
        Ok(Self {
            x: backend.buffer(rows, config.hidden_size)?,
            normed: backend.buffer(rows, config.hidden_size)?,
            delta: backend.buffer(rows, config.hidden_size)?,
            attn: AttentionBuffers::new(backend, rows, config)?,
            mlp: MlpBuffers::new(backend, rows, config.intermediate_size)?,
            last: backend.buffer(logit_rows, config.hidden_size)?,
            logits: backend.buffer(logit_rows, config.vocab_size)?,
        })
    }
}

impl Dense {
    fn layer(&self, pass: &mut Pass<'_>, index: usize) -> Result<(), Error> {
        let (layer, Work { x, normed, delta, .. }) = (&self.layers[index], self.work);
        let rows = pass.rows();
        layer.attn_norm.forward(pass, x, normed, rows);
        layer.attn.forward(pass, normed, delta, &self.work.attn);
        pass.check(delta, || format!("attention of layer {index}"))?;
        pass.backend.add(x, delta, rows);
        layer.mlp_norm.forward(pass, x, normed, rows);
        layer.mlp.forward(pass, normed, delta, &self.work.mlp);
        pass.check(delta, || format!("MLP of layer {index}"))?;
        pass.backend.add(x, delta, rows);
        pass.check(x, || format!("residual stream after layer {index}"))?;
        Ok(())
    }
}

impl Model for Dense {
    fn cache(&self) -> Vec<LayerCache> {
        self.layers.iter().map(|layer| layer.attn.cache()).collect()
    }

    fn forward(
        &self,
        backend: &mut dyn Backend,
        batch: &Batch,
        check: bool,
    ) -> Result<Buffer, Error> {
        let pass = &mut Pass { backend, batch, check };
        let Work { x, last, logits, .. } = self.work;
        pass.backend.rope_angles(self.rope, batch.positions());
        pass.backend.embed(self.embed, batch.tokens(), x);
        pass.check(x, || "token embedding".into())?;
        for index in 0..self.layers.len() {
            self.layer(pass, index)?;
        }
        let wanted = batch.logit_rows().len();
        if wanted > 0 {
            pass.backend.gather(x, batch.logit_rows(), last);
            self.norm.forward(pass, last, self.work.normed, wanted);
            self.head.forward(pass, self.work.normed, logits, wanted);
            pass.check_logits(logits)?;
        }
        Ok(logits)
    }
}
