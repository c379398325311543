//! Parts of layers with the sizes that files say, from which families build their layers.

use crate::config::schema::Hyperparameters;
use crate::config::schema::OfLayers;
use crate::layers::{
    Biases, BlockIndexSpec, BlockScores, BlockSpec, Chooser, ChosenSpec, CompressedIndexSpec,
    CompressedSpec, CompressorSpec, ConvolutionSpec, Correction, DeltaSpec, EmbeddingSpec,
    ExpertsSpec, Factors, GatedStreamsSpec, GroupedSpec, HeadNormSpec, HeadSpec, IndexSpec,
    KeySource, LatentSpec, Layer, LayerInputSpec, LayerInputsSpec, Mixing, MixtureSpec, MlpSpec,
    NgramSpec, NormKind, NormSpec, OpSpec, OutputSpec, Presence, Reach, RopeConfig, StateSpaceSpec,
    StreamSpec, Sublayer,
};
use crate::layers::{HyperConfig, ValueSource};

/// Epsilon of the norms of low-rank rows in most families: a constant of the reference, not of the
/// configuration.
const LATENT_EPS: f32 = 1e-6;

/// A layer like Llama's: attention, and an MLP or experts, each of an RMSNorm of its input.
pub(crate) fn layer(model: &Hyperparameters, at: usize) -> Layer {
    Layer::of([
        Sublayer::new(model.rms("attn_norm"), model.grouped(at)),
        Sublayer::new(model.rms("ffn_norm"), model.feed_forward(at)),
    ])
}

/// Embeddings of tokens, positions and types that are added up, and the inputs of layers.
pub(crate) fn embedding(model: &Hyperparameters) -> EmbeddingSpec {
    let (width, layers) = (model.layer_inputs, model.layers);
    let inputs = LayerInputsSpec { width, all: layers * width, eps: model.rms_norm_eps };
    EmbeddingSpec {
        scale: model.embedding_scale,
        positions: model.positions,
        token_types: model.encoder.as_ref().map_or(0, |encoder| encoder.token_types),
        norm: None,
        layer_inputs: (width > 0).then_some(inputs),
        rope_exponents: None,
    }
}

/// A norm of the last hidden states, and the projection to the vocabulary or the head that scores
/// texts.
pub(crate) fn head(model: &Hyperparameters) -> HeadSpec {
    let output =
        OutputSpec { tied: model.tied_embeddings, scale: model.logit_scale, cap: model.logit_cap };
    let streams = |streams| MixtureSpec { name: "output_hc", streams, mixing: Mixing::Reads };
    HeadSpec {
        mixture: model.hyper.map(streams),
        gated: None,
        norm: Some(model.rms("output_norm")),
        output: model.classifier.is_none().then_some(output),
        classifier: model.classifier,
        classifier_bias: false,
        eps: model.rms_norm_eps,
    }
}

impl Hyperparameters {
    /// An RMSNorm.
    pub(crate) fn rms(&self, name: &'static str) -> NormSpec {
        NormSpec { name, kind: NormKind::Rms, eps: self.rms_norm_eps }
    }

    /// A LayerNorm with a bias of this presence.
    pub(crate) fn layer_norm(&self, name: &'static str, bias: Presence) -> NormSpec {
        NormSpec { name, kind: NormKind::Layer(bias), eps: self.rms_norm_eps }
    }

    /// Grouped-query attention of the layer `at`.
    pub(crate) fn grouped(&self, at: usize) -> GroupedSpec {
        let options = self.grouped;
        let values = match options.values {
            ValueSource::NormedKeys if self.windows[at].is_some() => ValueSource::Normed,
            source => source,
        };
        let mut factors = self.factors_of("attn_");
        factors.extend(options.value_scale.map(|scale| ("attn_v", scale)));
        GroupedSpec {
            heads: self.heads_of(at),
            kv_heads: self.kv_heads_of(at),
            head_dim: self.head_dim_of(at),
            value_dim: options.value_dim,
            scale: self.attention_scale,
            window: self.windows[at],
            reach: Reach::Before,
            rotation: (!self.unrotated[at]).then(|| self.rope_of(at).clone().into()),
            growth: None,
            head_norms: None,
            values,
            eps: self.rms_norm_eps,
            sinks: false,
            gate: options.gate,
            biases: Biases::None,
            keys: self.key_source(at),
            factors,
            lookback: 0,
            pairs: false,
        }
    }

    /// The layer whose cached keys and values the layer `at` attends to.
    fn key_source(&self, at: usize) -> KeySource {
        match self.kv_layer(at) {
            own if own == at => KeySource::Own,
            earlier => KeySource::Layer(earlier),
        }
    }

    /// Norms of heads, where the files declare them.
    pub(crate) fn declared_head_norms(&self) -> Option<HeadNormSpec> {
        self.grouped.head_norms.then_some(HeadNormSpec::EACH)
    }

    /// The factors of projections whose names begin so.
    fn factors_of(&self, prefix: &str) -> Factors {
        self.factors.iter().filter(|(name, _)| name.starts_with(prefix)).copied().collect()
    }

    /// Multi-head latent attention of the layer `at`, with the index of the model.
    pub(crate) fn latent_attention(&self, at: usize) -> LatentSpec {
        let sizes = self.latent.expect("the family has latent attention");
        let chosen = self.index.as_ref().map(|index| ChosenSpec {
            top: index.top,
            run: index.pool.unwrap_or(1),
            by: match (0..=at).rev().find(|it| index.layers[*it] && self.attends(*it)) {
                Some(before) if before < at => Chooser::Layer(before),
                _ => Chooser::Index(IndexSpec {
                    heads: index.heads,
                    dim: index.dim,
                    rotation: (!self.unrotated[at])
                        .then(|| RopeConfig { layout: index.layout, ..self.rope.clone() }.into()),
                    pool: index.pool,
                    trailing: false,
                    eps: LATENT_EPS,
                    normed_input: index.normed_input,
                }),
            },
        });
        LatentSpec {
            heads: self.heads,
            sizes,
            scale: self.attention_scale,
            eps: LATENT_EPS,
            window: self.windows[at],
            rotation: (!self.unrotated[at]).then(|| self.rope.clone().into()),
            growth: None,
            learned_growth: false,
            keys: self.key_source(at),
            gate: None,
            sinks: false,
            chosen,
        }
    }

    /// Attention to a window and to compressed rows of the layer `at`.
    pub(crate) fn compressed_attention(&self, at: usize) -> CompressedSpec {
        let sizes = self.compressed.as_ref().expect("the family has compressed rows");
        let (every, indexed) = (sizes.ratios[at], sizes.indexed[at]);
        let rows = |dim, overlap| CompressorSpec { every, dim, overlap };
        CompressedSpec {
            heads: self.heads,
            head_dim: self.head_dim,
            q_rank: sizes.q_rank,
            rope_dim: sizes.rope_dim,
            groups: sizes.groups,
            out_rank: sizes.out_rank,
            scale: self.attention_scale,
            window: self.windows[at],
            rotation: if every > 0 { &sizes.rope } else { &self.rope }.clone().into(),
            eps: self.rms_norm_eps,
            rows: (every > 0).then(|| rows(self.head_dim, indexed)),
            index: indexed.then(|| CompressedIndexSpec {
                heads: sizes.index_heads,
                top: sizes.index_top,
                rows: rows(sizes.index_dim, true),
            }),
        }
    }

    /// Attention of the layer `at` to blocks that its index chooses.
    pub(crate) fn block_attention(&self, at: usize) -> BlockSpec {
        let index = self.block_index.as_ref().expect("the family has an index over blocks");
        let maxima = |local| BlockScores::Maxima { local };
        BlockSpec {
            attention: self.grouped(at).with_head_norms(HeadNormSpec::EACH),
            index: BlockIndexSpec {
                heads: index.heads,
                dim: index.dim,
                every: index.every,
                top: index.budget / index.every,
                scores: index.local.map_or(BlockScores::Means, maxima),
                rotation: self.rope.clone().into(),
                eps: self.rms_norm_eps,
            },
        }
    }

    /// The embeddings of n-grams of the layer `at`, if it adds them.
    pub(crate) fn ngram_embeddings(&self, at: usize) -> Option<NgramSpec> {
        let ngrams = self.ngrams.as_ref().filter(|ngrams| ngrams.layer == at)?;
        Some(NgramSpec {
            hash: ngrams.hash.clone(),
            rows: ngrams.rows,
            width: ngrams.width,
            kernel: ngrams.kernel,
            streams: self.gated_streams.map_or(1, |streams| streams.streams),
            hidden: self.hidden_size,
            eps: self.rms_norm_eps,
        })
    }

    /// How gated streams are read, and added to, by what has tensors of this name.
    pub(crate) fn gated(&self, name: &'static str, reads_only: bool) -> GatedStreamsSpec {
        let streams = self.gated_streams.expect("the family has gated streams");
        GatedStreamsSpec { name, streams, eps: self.rms_norm_eps, reads_only }
    }

    /// The recurrence of the layer `at`, if it has one.
    pub(crate) fn gated_delta(&self, at: usize) -> Option<DeltaSpec> {
        let spec = OfLayers::of(&self.delta, at)?;
        Some(DeltaSpec { eps: self.rms_norm_eps, ..*spec })
    }

    /// The state space of the layer `at`, if it has one.
    pub(crate) fn state_space(&self, at: usize) -> Option<StateSpaceSpec> {
        let spec = OfLayers::of(&self.mamba, at)?.clone();
        Some(StateSpaceSpec { eps: self.rms_norm_eps, factors: self.factors_of("ssm_"), ..spec })
    }

    /// The convolution of the layer `at`, if it has one in place of attention.
    pub(crate) fn convolution(&self, at: usize) -> Option<ConvolutionSpec> {
        let spec = OfLayers::of(&self.convs, at)?;
        Some(ConvolutionSpec { channels: self.hidden_size, ..*spec })
    }

    /// The gated MLP of the layer `at`.
    pub(crate) fn mlp(&self, at: usize) -> MlpSpec {
        MlpSpec {
            width: self.mlp_width(at),
            activation: self.activation,
            limit: self.mlp_limits[at],
            gated: true,
            biased: false,
            factors: self.factors_of("ffn_"),
        }
    }

    /// The routed experts of the layer `at`, if it has any.
    pub(crate) fn routed_experts(&self, at: usize) -> Option<ExpertsSpec> {
        let experts = self.experts_of(at)?;
        let shared = MlpSpec {
            width: experts.shared_width,
            limit: experts.shared_limits[at],
            factors: Factors::new(),
            ..self.mlp(at)
        };
        let correction = match experts.by_token[at] {
            true => Correction::ByToken(self.vocab_size),
            false if experts.scores.has_bias() => Correction::Expected,
            false => Correction::Optional,
        };
        Some(ExpertsSpec {
            count: experts.count,
            chosen: experts.chosen,
            width: experts.width,
            activation: self.activation,
            limit: experts.limits[at],
            gated: true,
            biased: false,
            latent: experts.latent,
            shared: (experts.shared_width > 0).then_some((shared, experts.shared_gate)),
            weighs_inputs: false,
            cap: experts.cap,
            scores: experts.scores,
            correction,
            normalise: experts.normalise,
            scale: experts.scale,
            groups: experts.groups,
            scaled: false,
        })
    }

    /// The routed experts of the layer `at`, or its MLP where it has none.
    pub(crate) fn feed_forward(&self, at: usize) -> OpSpec {
        self.routed_experts(at).map_or_else(|| self.mlp(at).into(), OpSpec::from)
    }

    /// The same, where experts have a bias for their choice.
    pub(crate) fn corrected_feed_forward(&self, at: usize) -> OpSpec {
        let experts = self.routed_experts(at).map(ExpertsSpec::corrected);
        experts.map_or_else(|| self.mlp(at).into(), OpSpec::from)
    }

    /// What the layer `at` makes of its input, where layers have inputs.
    pub(crate) fn layer_input(&self, at: usize) -> Option<LayerInputSpec> {
        let (width, all) = (self.layer_inputs, self.layers * self.layer_inputs);
        let first = at * width;
        (width > 0).then_some(LayerInputSpec { width, first, all, activation: self.activation })
    }

    /// How the sublayer with tensors of this name mixes the residual streams.
    pub(crate) fn mixture(&self, name: &'static str) -> StreamSpec {
        let streams: HyperConfig = self.hyper.expect("the family has several streams");
        let mixing = if streams.magnitude.is_some() { Mixing::Apart } else { Mixing::All };
        StreamSpec::Several(MixtureSpec { name, streams, mixing })
    }
}
