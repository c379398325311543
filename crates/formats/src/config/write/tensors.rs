//! The tensors of a model: canonical names and shapes, in GGUF files and in Hugging Face
//! checkpoints.

use std::fmt::Display;

use super::super::family::{ExpertFiles, Family, HEAD_NORMS};
use super::super::{
    Attention, ConvConfig, DeltaConfig, ExpertsConfig, IndexConfig, LatentConfig, MambaConfig,
    MambaNorm, ModelConfig, SublayerNorms, Sublayers,
};
use crate::names::{EXPERT_SCALES, EXPERTS_BY_TOKEN, HEAD_OUTPUT, ROUTER_SCALES};

pub(crate) type Tensors = Vec<(String, Vec<usize>)>;

/// The form in which experts and latent attention are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorForm {
    /// All experts of a layer in one tensor, keys and values of latent attention in two.
    Gguf,
    /// One tensor per expert and matrix, or gate and up in one; keys and values of latent attention
    /// in one tensor.
    Hf,
    /// As an open Hugging Face checkpoint has them: `Hf` with all experts of a layer in one tensor,
    /// and projections of Gated DeltaNet apart.
    Read,
    /// As an open GGUF file has them: `Gguf` with projections of Gated DeltaNet apart.
    ReadGguf,
}

impl TensorForm {
    /// Whether the tensors are those of GGUF files, open or not.
    fn is_gguf(self) -> bool {
        matches!(self, Self::Gguf | Self::ReadGguf)
    }
}

impl ModelConfig {
    /// Canonical names and shapes of all tensors of a checkpoint of this family in `form`.
    pub(crate) fn tensors_in(&self, family: &Family, form: TensorForm) -> Tensors {
        let (hidden, vocab) = (self.hidden_size, self.vocab_size);
        let mut tensors = vec![("token_embd.weight".to_owned(), vec![vocab, hidden])];
        if let Some(table) = self.positions {
            tensors.push(named("position_embd.weight", &[table.rows, hidden]));
        }
        tensors.extend(self.layer_input_tables());
        tensors.extend(self.encoder_tables());
        for layer in 0..self.layers {
            let mut parts = self.mixer(family, layer, form);
            parts.extend(self.hyper_connections());
            if self.has_feed_forward(layer) {
                parts.extend(self.feed_forward(family, layer, form));
            }
            parts.extend(self.around(self.experts_of(layer)));
            let vectors = self.vectors(family, layer);
            let vectors = vectors.into_iter().map(|name| named(name, &self.shape_of(name, layer)));
            parts.extend(vectors);
            if form == TensorForm::Hf || form == TensorForm::Gguf && family.gguf_joins {
                join(&mut parts, family);
            }
            if form == TensorForm::Hf {
                let turned = |name: &String| family.turned.contains(&name.as_str());
                parts.iter_mut().filter(|(name, _)| turned(name)).for_each(|(_, s)| s.reverse());
            }
            tensors.extend(
                parts.into_iter().map(|(name, shape)| (format!("blk.{layer}.{name}"), shape)),
            );
        }
        tensors.extend(self.hyper_head());
        if self.norms != SublayerNorms::Behind {
            tensors.push(("output_norm.weight".to_owned(), vec![hidden]));
        }
        tensors.extend(self.classifier_tensors());
        if family.written.contains(&"attn_norm.bias") {
            tensors.push(("output_norm.bias".to_owned(), vec![hidden]));
        }
        if !self.tied_embeddings {
            tensors.push(("output.weight".to_owned(), vec![vocab, hidden]));
        }
        tensors
    }

    /// The value that the tensor with this canonical name is filled with in checkpoints of random
    /// weights of `form`, if it is not random: norms and other factors are one, and states decay.
    pub fn constant(&self, name: &str, form: TensorForm) -> Option<f32> {
        let hf = form == TensorForm::Hf;
        match name.rsplit_once('.') {
            Some((_, "ssm_a")) => Some(if hf { 0.0 } else { -1.0 }),
            _ if name.ends_with(".scale") || name.ends_with("layer_output_scale.weight") => {
                Some(1.0)
            }
            _ if !name.ends_with("norm.weight") => None,
            _ if hf && self.is_zero_centred(name) => Some(0.0),
            _ => Some(1.0),
        }
    }

    /// Tensors of the attention of a layer, or of what takes its place.
    fn mixer(&self, family: &Family, layer: usize, form: TensorForm) -> Tensors {
        let mut parts = Vec::new();
        // A layer without attention has the norm that comes before it too.
        if !self.attends(layer) {
            parts.push(named("attn_norm.weight", &[self.hidden_size]));
        }
        parts.extend(match (self.delta_of(layer), &self.attention) {
            (Some(delta), _) => self.recurrence(family, delta, form),
            _ if !self.attends(layer) => Vec::new(),
            (None, Attention::Grouped(_)) => self.attention(layer),
            (None, Attention::Latent(latent)) => {
                let index = self.index_of(layer).map(|index| self.index(index));
                let mut parts = self.latent_attention(*latent, form);
                parts.extend(index.into_iter().flatten());
                parts
            }
            (None, Attention::Compressed(sizes)) => self.compressed_attention(sizes, layer),
        });
        let mamba = self.mamba_of(layer).map(|mamba| self.state_space(mamba, form));
        parts.extend(mamba.into_iter().flatten());
        let conv = self.conv_of(layer).map(|conv| self.convolution(conv, form));
        parts.extend(conv.into_iter().flatten());
        parts
    }

    /// Tensors of the MLP or of the experts of a layer.
    fn feed_forward(&self, family: &Family, layer: usize, form: TensorForm) -> Tensors {
        let (hidden, experts) = (self.hidden_size, self.experts_of(layer));
        let mut parts = Vec::new();
        let own_norm = self.sublayers[layer] == Sublayers::Both && !self.parallel;
        if self.has_norms_before() && own_norm {
            parts.push(named("ffn_norm.weight", &[hidden]));
        }
        if let Some(experts) = experts {
            parts.extend(self.choice_of_experts(experts, layer));
            parts.extend(self.experts(experts, family, form));
        }
        if experts.is_none_or(|experts| experts.beside_mlp) {
            let names = ["ffn_gate", "ffn_up", "ffn_down"];
            parts.extend(self.mlp(names, hidden, self.mlp_width(layer)));
        }
        parts
    }

    /// Tensors of a state space.
    fn state_space(&self, mamba: &MambaConfig, form: TensorForm) -> Tensors {
        let (hidden, heads, values) = (self.hidden_size, mamba.heads, mamba.values());
        let channels = mamba.channels();
        let mut tensors = vec![
            named("ssm_in.weight", &[mamba.inputs(), hidden]),
            named("ssm_conv1d.weight", &taps(channels, mamba.kernel, form)),
            named("ssm_conv1d.bias", &[channels]),
            named("ssm_dt.bias", &[heads]),
            named("ssm_out.weight", &[hidden, values]),
        ];
        // llama.cpp has these as matrices.
        let (each, norm) = match form {
            TensorForm::Gguf => {
                (vec![heads, 1], vec![mamba.norm_groups, values / mamba.norm_groups])
            }
            _ => (vec![heads], vec![values]),
        };
        tensors.extend([named("ssm_a", &each), named("ssm_d", &each)]);
        if mamba.norm != MambaNorm::None {
            tensors.push(named("ssm_norm.weight", &norm));
        }
        tensors
    }

    /// Tensors of a short convolution in place of attention.
    fn convolution(&self, conv: &ConvConfig, form: TensorForm) -> Tensors {
        let hidden = self.hidden_size;
        vec![
            named("shortconv.in_proj.weight", &[3 * hidden, hidden]),
            named("shortconv.conv.weight", &taps(hidden, conv.kernel, form)),
            named("shortconv.out_proj.weight", &[hidden, hidden]),
        ]
    }

    fn attention(&self, layer: usize) -> Tensors {
        let (hidden, dim) = (self.hidden_size, self.head_dim_of(layer));
        let (q, kv) = (self.heads * dim, self.kv_heads_of(layer) * dim);
        let mut tensors = Vec::new();
        let bare = self.encoder.as_ref().is_some_and(|it| it.bare_first) && layer == 0;
        if self.has_norms_before() && !bare {
            tensors.push(named("attn_norm.weight", &[hidden]));
        }
        tensors.push(named("attn_q.weight", &[self.query_rows(layer), hidden]));
        if self.kv_layer(layer) == layer {
            tensors.push(named("attn_k.weight", &[kv, hidden]));
            if !self.takes_keys_as_values(layer) {
                tensors.push(named("attn_v.weight", &[kv, hidden]));
            }
        }
        tensors.push(named("attn_output.weight", &[hidden, q]));
        tensors
    }

    /// Tensors outside the layers of the inputs that layers have of their own.
    fn layer_input_tables(&self) -> Tensors {
        let (width, all) = (self.layer_inputs, self.layers * self.layer_inputs);
        if width == 0 {
            return Vec::new();
        }
        vec![
            named("per_layer_token_embd.weight", &[self.vocab_size, all]),
            named("per_layer_model_proj.weight", &[all, self.hidden_size]),
            named("per_layer_proj_norm.weight", &[width]),
        ]
    }

    /// Tensors outside the layers that encoders have.
    fn encoder_tables(&self) -> Tensors {
        let Some(encoder) = &self.encoder else { return Vec::new() };
        let hidden = self.hidden_size;
        let mut tensors = vec![named("token_embd_norm.weight", &[hidden])];
        if self.norms == SublayerNorms::Behind {
            tensors.push(named("token_embd_norm.bias", &[hidden]));
        }
        if encoder.token_types > 0 {
            tensors.push(named("token_types.weight", &[encoder.token_types, hidden]));
        }
        tensors
    }

    /// Tensors of the head that scores texts.
    fn classifier_tensors(&self) -> Tensors {
        let Some(head) = &self.classifier else { return Vec::new() };
        let (hidden, labels) = (self.hidden_size, head.labels);
        let mut tensors = Vec::new();
        if head.dense.is_some() {
            tensors.extend([named("cls.weight", &[hidden, hidden]), named("cls.bias", &[hidden])]);
        }
        if head.norm {
            tensors.push(named("cls.norm.weight", &[hidden]));
        }
        tensors.push(named(HEAD_OUTPUT, &[labels, hidden]));
        if self.encoder.is_some() {
            tensors.push(named("cls.output.bias", &[labels]));
        }
        tensors
    }

    /// Whether sublayers have norms of their inputs.
    fn has_norms_before(&self) -> bool {
        !matches!(self.norms, SublayerNorms::After | SublayerNorms::Behind)
    }

    /// Norms of what a layer's sublayers give, and what follows these.
    fn around(&self, experts: Option<&ExpertsConfig>) -> Tensors {
        let (hidden, width) = (self.hidden_size, self.layer_inputs);
        let mut tensors = Vec::new();
        let norms = match self.norms {
            SublayerNorms::Before => None,
            SublayerNorms::Behind => Some(["attn_output_norm.weight", "layer_output_norm.weight"]),
            SublayerNorms::Around | SublayerNorms::After => {
                Some(["post_attention_norm.weight", "post_ffw_norm.weight"])
            }
        };
        if let Some(norms) = norms {
            tensors.extend(norms.map(|name| named(name, &[hidden])));
        }
        if experts.is_some_and(|experts| experts.beside_mlp) {
            let norms =
                ["post_ffw_norm_1.weight", "pre_ffw_norm_2.weight", "post_ffw_norm_2.weight"];
            tensors.extend(norms.map(|name| named(name, &[hidden])));
        }
        if width > 0 {
            tensors.extend([
                named("inp_gate.weight", &[width, hidden]),
                named("proj.weight", &[hidden, width]),
                named("post_norm.weight", &[hidden]),
            ]);
        }
        if self.layer_scales {
            tensors.push(named("layer_output_scale.weight", &[1]));
        }
        tensors
    }

    fn recurrence(&self, family: &Family, delta: &DeltaConfig, form: TensorForm) -> Tensors {
        let (hidden, heads) = (self.hidden_size, delta.value_heads);
        let (channels, values) = (delta.channels(), delta.values());
        if delta.per_channel {
            return self.recurrence_apart(delta, form);
        }
        let fused = family.delta.is_some_and(|files| files.fused);
        let mut tensors = Vec::new();
        match form {
            TensorForm::Hf if fused => {
                tensors.push(named("ssm_in.weight", &[channels + values, hidden]));
            }
            _ => tensors.extend([
                named("attn_qkv.weight", &[channels, hidden]),
                named("attn_gate.weight", &[values, hidden]),
            ]),
        }
        match form {
            TensorForm::Hf | TensorForm::Gguf if fused => {
                tensors.push(named("ssm_ba.weight", &[2 * heads, hidden]));
            }
            _ => tensors.extend([
                named("ssm_beta.weight", &[heads, hidden]),
                named("ssm_alpha.weight", &[heads, hidden]),
            ]),
        }
        tensors.extend([
            named("ssm_conv1d.weight", &taps(channels, delta.kernel, form)),
            named("ssm_dt.bias", &[heads]),
            named("ssm_a", &[heads]),
            named("ssm_norm.weight", &[delta.value_dim]),
            named("ssm_out.weight", &[hidden, values]),
        ]);
        tensors
    }

    /// Tensors of a recurrence with decays per channel.
    fn recurrence_apart(&self, delta: &DeltaConfig, form: TensorForm) -> Tensors {
        let (hidden, heads, between) = (self.hidden_size, delta.value_heads, delta.key_dim);
        let column = [heads, 1];
        let mut tensors = Vec::new();
        for (part, rows) in [("q", delta.keys()), ("k", delta.keys()), ("v", delta.values())] {
            tensors.push(named(&format!("attn_{part}.weight"), &[rows, hidden]));
            let conv = format!("ssm_conv1d_{part}.weight");
            // llama.cpp has these as Hugging Face checkpoints do.
            let taps_form = if form == TensorForm::Gguf { TensorForm::Hf } else { form };
            tensors.push(named(&conv, &taps(rows, delta.kernel, taps_form)));
        }
        for part in ["f", "g"] {
            tensors.push(named(&format!("ssm_{part}_a.weight"), &[between, hidden]));
            tensors.push(named(&format!("ssm_{part}_b.weight"), &[delta.values(), between]));
        }
        tensors.extend([
            named("ssm_beta.weight", &[heads, hidden]),
            named("ssm_dt.bias", &[heads * delta.key_dim]),
            named("ssm_a", if form == TensorForm::Gguf { &column } else { &column[..1] }),
            named("ssm_norm.weight", &[delta.value_dim]),
            named("attn_output.weight", &[hidden, delta.values()]),
        ]);
        tensors
    }

    fn latent_attention(&self, latent: LatentConfig, form: TensorForm) -> Tensors {
        let LatentConfig { q_rank, kv_rank, nope_dim, rope_dim, value_dim } = latent;
        let (hidden, heads) = (self.hidden_size, self.heads);
        let q = heads * self.head_dim;
        let mut tensors = vec![named("attn_norm.weight", &[hidden])];
        match q_rank {
            Some(rank) => tensors.extend([
                named("attn_q_a.weight", &[rank, hidden]),
                named("attn_q_a_norm.weight", &[rank]),
                named("attn_q_b.weight", &[q, rank]),
            ]),
            None => tensors.push(named("attn_q.weight", &[q, hidden])),
        }
        tensors.push(named("attn_kv_a_mqa.weight", &[kv_rank + rope_dim, hidden]));
        tensors.push(named("attn_kv_a_norm.weight", &[kv_rank]));
        match form {
            TensorForm::Gguf | TensorForm::ReadGguf => tensors.extend([
                named("attn_k_b.weight", &[heads, kv_rank, nope_dim]),
                named("attn_v_b.weight", &[heads, value_dim, kv_rank]),
            ]),
            TensorForm::Hf | TensorForm::Read => {
                tensors.push(named("attn_kv_b.weight", &[heads * (nope_dim + value_dim), kv_rank]));
            }
        }
        tensors.push(named("attn_output.weight", &[hidden, heads * value_dim]));
        tensors
    }

    /// Tensors of the index of a layer with latent attention.
    fn index(&self, index: &IndexConfig) -> Tensors {
        let IndexConfig { heads, dim, .. } = *index;
        let q_rank = self.latent().and_then(|latent| latent.q_rank).unwrap_or(self.hidden_size);
        vec![
            named("indexer.attn_q_b.weight", &[heads * dim, q_rank]),
            named("indexer.attn_k.weight", &[dim, self.hidden_size]),
            named("indexer.k_norm.weight", &[dim]),
            named("indexer.k_norm.bias", &[dim]),
            named("indexer.proj.weight", &[heads, self.hidden_size]),
        ]
    }

    /// Tensors of the choice of experts in a layer.
    fn choice_of_experts(&self, experts: &ExpertsConfig, layer: usize) -> Tensors {
        let ExpertsConfig { count, chosen, .. } = *experts;
        let mut tensors = vec![named("ffn_gate_inp.weight", &[count, self.hidden_size])];
        if experts.beside_mlp {
            tensors.push(named(ROUTER_SCALES, &[self.hidden_size]));
            tensors.push(named(EXPERT_SCALES, &[count]));
        }
        if experts.by_token[layer] {
            tensors.push(named(EXPERTS_BY_TOKEN, &[self.vocab_size, chosen]));
        } else if experts.biased || experts.scores.has_bias() {
            tensors.push(named("exp_probs_b.bias", &[count]));
        }
        tensors
    }

    fn experts(&self, experts: &ExpertsConfig, family: &Family, form: TensorForm) -> Tensors {
        let (count, width) = (experts.count, experts.width);
        let hidden = experts.inputs(self.hidden_size);
        let mut tensors = Vec::new();
        match (form, family.hf_experts) {
            (TensorForm::Gguf | TensorForm::ReadGguf | TensorForm::Read, files) => {
                let biased = files == ExpertFiles::ByTurns;
                let parts = self.mlp(["gate", "up", "down"], hidden, width);
                tensors.extend(stacked(count, parts, biased));
            }
            (TensorForm::Hf, ExpertFiles::ByTurns) => {
                tensors.extend(by_turns(count, hidden, width));
            }
            (TensorForm::Hf, ExpertFiles::Turned) => tensors.extend([
                named("ffn_gate_up_exps.weight", &[count, hidden, 2 * width]),
                named("ffn_down_exps.weight", &[count, width, hidden]),
            ]),
            (TensorForm::Hf, ExpertFiles::Fused) => tensors.extend([
                named("ffn_gate_up_exps.weight", &[count, 2 * width, hidden]),
                named("ffn_down_exps.weight", &[count, hidden, width]),
            ]),
            (TensorForm::Hf, ExpertFiles::Single) => {
                let one =
                    |number| ["gate", "up", "down"].map(|part| format!("ffn_{part}.{number}"));
                tensors.extend((0..count).flat_map(|at| self.mlp(one(at), hidden, width)));
            }
        }
        if let Some(latent) = experts.latent {
            let shape = [latent, self.hidden_size];
            tensors.push(named("ffn_latent_down.weight", &shape));
            tensors.push(named("ffn_latent_up.weight", &[shape[1], shape[0]]));
        }
        if experts.shared_width > 0 {
            let names = ["ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"];
            tensors.extend(self.mlp(names, self.hidden_size, experts.shared_width));
            if experts.shared_gate {
                let row = [1, self.hidden_size];
                let shape = if form.is_gguf() { &row[1..] } else { &row[..] };
                tensors.push(named("ffn_gate_inp_shexp.weight", shape));
            }
        }
        tensors
    }

    /// Gate, where MLPs have one, up and down of one MLP.
    fn mlp(&self, names: [impl Display; 3], hidden: usize, width: usize) -> Tensors {
        let shapes = [[width, hidden], [width, hidden], [hidden, width]];
        let tensor = |(name, shape): (_, [usize; 2])| (format!("{name}.weight"), shape.to_vec());
        names.into_iter().zip(shapes).skip(usize::from(self.plain_mlp)).map(tensor).collect()
    }

    /// Biases, head norms and sinks of a layer, except those of experts.
    fn vectors(&self, family: &Family, layer: usize) -> Vec<&'static str> {
        let mut names = family.written.to_vec();
        if let (Some(grouped), true) = (self.grouped(), self.attends(layer)) {
            let normed = HEAD_NORMS.iter().filter(|_| grouped.head_norms);
            // Layers that attend to the keys of others have none of their own.
            let count = if self.kv_layer(layer) == layer { 2 } else { 1 };
            names.extend(normed.take(count));
            names.extend(grouped.sinks.then_some("attn_sinks.weight"));
        }
        let of_experts = |name: &&str| name.contains("_exps.") || name.starts_with("exp_probs_b.");
        let required = (family.required)(self, layer);
        names.extend(required.iter().copied().filter(|name| !of_experts(name)));
        names
    }

    /// Shape of a bias, norm or sink of a layer.
    pub(crate) fn shape_of(&self, name: &str, layer: usize) -> Vec<usize> {
        let dim = self.head_dim_of(layer);
        let whole = self.grouped().is_some_and(|grouped| grouped.whole_norms);
        let experts = self.experts.as_ref().map_or(0, |experts| experts.count);
        match name {
            "attn_q.bias" => vec![self.query_rows(layer)],
            "attn_k.bias" | "attn_v.bias" => vec![self.kv_heads_of(layer) * dim],
            "attn_q_norm.weight" if whole => vec![self.heads * dim],
            "attn_k_norm.weight" if whole => vec![self.kv_heads_of(layer) * dim],
            "attn_q_norm.weight" | "attn_k_norm.weight" => vec![dim],
            "attn_sinks.weight" => vec![self.heads],
            "ffn_gate.bias" | "ffn_up.bias" => vec![self.mlp_width(layer)],
            "shortconv.in_proj.bias" => vec![3 * self.hidden_size],
            "ffn_gate_inp.bias" | "exp_probs_b.bias" => vec![experts],
            "ffn_down_exps.bias" => vec![experts, self.hidden_size],
            _ => vec![self.hidden_size],
        }
    }
}

/// Replaces matrices that the family's files store as the rows of one.
fn join(tensors: &mut Tensors, family: &Family) {
    for (whole, parts) in family.joined {
        let is_part = |name: &str| parts.contains(&name);
        let rows =
            tensors.iter().filter(|(name, _)| is_part(name)).map(|(_, shape)| shape[0]).sum();
        let Some(at) = tensors.iter().position(|(name, _)| is_part(name)) else { continue };
        let shape = [&[rows], &tensors[at].1[1..]].concat();
        tensors[at] = named(whole, &shape);
        tensors.retain(|(name, _)| !is_part(name));
    }
}

/// Shape of the weights of a convolution.
fn taps(channels: usize, kernel: usize, form: TensorForm) -> Vec<usize> {
    match form {
        TensorForm::Hf => vec![channels, 1, kernel],
        _ => vec![channels, kernel],
    }
}

pub(super) fn named(name: &str, shape: &[usize]) -> (String, Vec<usize>) {
    (name.to_owned(), shape.to_vec())
}

/// Matrices of all experts, from those of one.
fn stacked(count: usize, parts: Tensors, biased: bool) -> Tensors {
    let mut tensors = Vec::new();
    for (name, shape) in parts {
        let part = name.trim_end_matches(".weight");
        tensors.push((format!("ffn_{part}_exps.weight"), [&[count], &shape[..]].concat()));
        if biased {
            tensors.push((format!("ffn_{part}_exps.bias"), vec![count, shape[0]]));
        }
    }
    tensors
}

/// Gate and up of all experts in one tensor, as gpt-oss stores them: `[experts, inputs, outputs]`.
fn by_turns(count: usize, hidden: usize, width: usize) -> Tensors {
    vec![
        named("ffn_gate_up_exps.weight", &[count, hidden, 2 * width]),
        named("ffn_gate_up_exps.bias", &[count, 2 * width]),
        named("ffn_down_exps.weight", &[count, width, hidden]),
        named("ffn_down_exps.bias", &[count, hidden]),
    ]
}
