//! Laws of identities: every field of a configuration counts, names in the source do not.

use super::*;
use formats::config::*;
use formats::{OpenOptions, Pooling};
use std::path::Path;
use std::sync::LazyLock;

#[test]
fn checkpoint_digests_do_not_depend_on_source_names() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/tiny");
    let checkpoint = Checkpoint::open(Path::new(folder), &OpenOptions::default()).unwrap();
    assert_eq!(identity(&checkpoint), "0aaf67134a7d2b90f3a8fbf9ddf80e18");
}

#[test]
fn configuration_texts_do_not_depend_on_source_names() {
    let mut hash = Sha256::new();
    FAMILIES.iter().for_each(|config| hash.update(config_text(config)));
    let digest: String = hash.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(digest, "eb6f74a5a74abe38");
}

#[test]
fn every_field_of_a_configuration_changes_the_identity() {
    for config in FAMILIES.iter() {
        let text = config_text(config);
        for changed in config.changes() {
            assert_ne!(changed, *config, "a change");
            let same = ModelConfig { name: config.name.clone(), ..changed.clone() } == *config;
            assert_eq!(config_text(&changed) == text, same, "{changed:?}\n{text}");
        }
    }
}

/// A small configuration of every family.
static FAMILIES: LazyLock<Vec<ModelConfig>> = LazyLock::new(|| {
    let names = formats::families::names().chain(formats::families::encoders());
    names.map(|name| ModelConfig::tiny(name, 2).expect("a known family")).collect()
});

/// Values of all families that `read` finds.
fn found<T>(read: impl Fn(&ModelConfig) -> Option<T>) -> Vec<T> {
    FAMILIES.iter().filter_map(read).take(1).collect()
}

/// Values that have fields, and can be changed in each of them.
trait Changes: Sized {
    /// Values that are no changes of each other, of which at least one is there.
    fn examples() -> Vec<Self>;
    /// Copies that differ in one place each: all places, however deep.
    fn changes(&self) -> Vec<Self>;
}

/// Values without fields: some examples, and a change of one.
macro_rules! single {
    ($($type:ty: $example:expr, $changed:expr;)*) => {$(
        impl Changes for $type {
            fn examples() -> Vec<Self> {
                vec![$example]
            }
            fn changes(&self) -> Vec<Self> {
                let change: fn(&Self) -> Self = $changed;
                vec![change(self)]
            }
        }
    )*};
}

single! {
    usize: 7, |it| it + 1;
    u32: 7, |it| it + 1;
    f32: 7.0, |it| if it.is_finite() { it.mul_add(2.0, 1.0) } else { 9.0 };
    bool: true, |it| !it;
    String: "x".to_owned(), |it| format!("{it}x");
    &'static str: "x", |it| if *it == "x" { "y" } else { "x" };
}

/// Enumerations without fields: all their values.
macro_rules! plain {
    ($($type:ident { $($variant:ident),* })*) => {$(
        impl Changes for $type {
            fn examples() -> Vec<Self> {
                vec![$($type::$variant),*]
            }
            fn changes(&self) -> Vec<Self> {
                // Every variant is in the list.
                match self { $($type::$variant => {})* }
                Self::examples().into_iter().filter(|other| other != self).collect()
            }
        }
    )*};
}

plain! {
    RopeLayout { Halves, Interleaved }
    ValueSource { Projected, Normed, NormedKeys }
    RouterScores { Softmax, SoftmaxOfChosen, Sigmoid, PlainSigmoid, SqrtSoftplus }
    GroupRank { Best, BestTwo }
    MambaNorm { None, BeforeGate, BehindGate }
    Sublayers { Both, Mixer, FeedForward }
    SublayerNorms { Before, Around, After, Behind }
    HeadActivation { Identity, Tanh, Gelu, GeluTanh, Silu, Relu }
    Pooling { Mean, Cls, Last, Max, MeanSqrt, WeightedMean }
}

/// Structures: where examples are, and all their fields.
macro_rules! fields {
    ($($type:ident from $examples:expr => { $($field:ident),* $(,)? })*) => {$(
        impl Changes for $type {
            fn examples() -> Vec<Self> {
                $examples
            }
            fn changes(&self) -> Vec<Self> {
                let mut all = Vec::new();
                // Every field is in the list: a pattern without one does not compile.
                let $type { $($field),* } = self;
                $(all.extend($field.changes().into_iter().map(|value| {
                    let mut changed = self.clone();
                    changed.$field = value;
                    changed
                }));)*
                all
            }
        }
    )*};
}

fields! {
    ModelConfig from FAMILIES.clone() => {
        architecture, name, hidden_size, layers, heads, kv_heads, head_dim, attention_scale,
        intermediate_size, activation, experts, attention, windowed, shared_kv_layers, wide_mlps,
        norms, layer_norm, parallel, plain_mlp, query_growth, index, positions, mamba, convs,
        sublayers, factors, chunked, layer_inputs, layer_scales, delta, hyper, encoder, classifier,
        unrotated, embedding_scale, residual_scale, logit_scale, logit_cap, vocab_size,
        context_length, rms_norm_eps, rope, windows, tied_embeddings, special,
    }
    RopeConfig from found(|config| Some(config.rope.clone())) => {
        theta, dim, layout, scaling, magnitude,
    }
    GroupedConfig from vec![GroupedConfig::default()] => {
        head_norms, sinks, gate, values, whole_norms, norms_last, bare_norms,
    }
    WindowedConfig from found(|config| config.windowed.clone()) => { kv_heads, head_dim, rope }
    QueryGrowth from found(|config| config.query_growth) => { beta, every, offset, unrotated }
    LatentConfig from found(ModelConfig::latent) => {
        q_rank, kv_rank, nope_dim, rope_dim, value_dim,
    }
    CompressedConfig from found(|config| config.compressed().cloned()) => {
        q_rank, rope_dim, groups, out_rank, ratios, indexed, index_heads, index_dim, index_top,
        rope,
    }
    HyperConfig from found(|config| config.hyper) => { streams, iterations, eps }
    SpecialIds from vec![SpecialIds::default()] => { bos, eos, pad }
    ExpertsConfig from found(|config| config.experts.clone()) => {
        count, chosen, width, latent, shared_width, shared_gate, layers, beside_mlp, weighs_inputs,
        scores, biased, normalise, scale, groups, by_token, limits, shared_limits,
    }
    ExpertGroups from vec![ExpertGroups { count: 4, chosen: 2, rank: GroupRank::Best }] => {
        count, chosen, rank,
    }
    DeltaConfig from found(|config| config.delta.clone()) => {
        layers, key_heads, value_heads, key_dim, value_dim, kernel, per_channel, tiled,
    }
    MambaConfig from found(|config| config.mamba.clone()) => {
        layers, beside_attention, heads, head_dim, groups, state, kernel, norm, norm_groups, limits,
    }
    ConvConfig from found(|config| config.convs.clone()) => { layers, kernel, biased }
    IndexConfig from found(|config| config.index.clone()) => { heads, dim, top, layout, layers }
    EncoderConfig from found(|config| config.encoder.clone()) => { token_types, bare_first }
    PositionTable from found(|config| config.positions) => { rows, first }
    ClassifierConfig from vec![
        ClassifierConfig { labels: 2, pooling: Pooling::Cls, dense: None, norm: false }
    ] => { labels, pooling, dense, norm }
}

/// Enumerations with fields: an example of each variant, and its fields.
macro_rules! variants {
    ($($type:ident { $($variant:ident { $($field:tt: $example:expr),* })* })*) => {$(
        impl Changes for $type {
            fn examples() -> Vec<Self> {
                vec![$($type::$variant { $($field: $example),* }),*]
            }
            fn changes(&self) -> Vec<Self> {
                let kind = std::mem::discriminant(self);
                let others = Self::examples().into_iter();
                let mut all: Vec<_> =
                    others.filter(|other| std::mem::discriminant(other) != kind).collect();
                // Every variant and every field is in the list.
                match self {
                    $($type::$variant { $($field: _),* } => {
                        $(if let $type::$variant { $field: value, .. } = self {
                            all.extend(value.changes().into_iter().map(|value| {
                                let mut changed = self.clone();
                                if let $type::$variant { $field: place, .. } = &mut changed {
                                    *place = value;
                                }
                                changed
                            }));
                        })*
                    })*
                }
                all
            }
        }
    )*};
}

variants! {
    Activation {
        Silu {}
        GeluTanh {}
        ReluSquared {}
        Gelu {}
        ClampedSwiglu { alpha: 1.7, limit: 7.0 }
    }
    RopeScaling {
        None {}
        Linear { factor: 2.0 }
        Llama3 { factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_context: 64 }
        Yarn {
            factor: 4.0, original_context: 64, beta_fast: 32.0, beta_slow: 1.0, truncate: true
        }
        Proportional { share: 0.5, factor: 2.0 }
        LongRope { short: vec![1.0], long: vec![2.0], original_context: 64 }
        Factors { factors: vec![1.0] }
    }
    Attention {
        Grouped { 0: GroupedConfig::default() }
        Latent { 0: LatentConfig::examples()[0] }
        Compressed { 0: Box::new(CompressedConfig::examples()[0].clone()) }
    }
}

impl<T: Changes> Changes for Option<T> {
    fn examples() -> Vec<Self> {
        T::examples().into_iter().map(Some).chain([None]).collect()
    }

    fn changes(&self) -> Vec<Self> {
        match self {
            Some(value) => value.changes().into_iter().map(Some).chain([None]).collect(),
            None => T::examples().into_iter().map(Some).collect(),
        }
    }
}

impl<T: Changes> Changes for Box<T> {
    fn examples() -> Vec<Self> {
        T::examples().into_iter().map(Box::new).collect()
    }

    fn changes(&self) -> Vec<Self> {
        (**self).changes().into_iter().map(Box::new).collect()
    }
}

impl<T: Changes + Clone> Changes for Vec<T> {
    fn examples() -> Vec<Self> {
        vec![T::examples()]
    }

    /// One value changed, the last removed, or one added.
    fn changes(&self) -> Vec<Self> {
        let more = T::examples().into_iter().take(1);
        let mut all = vec![self.iter().cloned().chain(more).collect()];
        for (at, value) in self.iter().enumerate() {
            all.extend(value.changes().into_iter().map(|value| {
                let mut changed = self.clone();
                changed[at] = value;
                changed
            }));
        }
        all
    }
}

impl<T: Changes + Copy, const N: usize> Changes for [T; N] {
    fn examples() -> Vec<Self> {
        T::examples().into_iter().map(|value| [value; N]).collect()
    }

    fn changes(&self) -> Vec<Self> {
        let at = |at: usize| {
            self[at].changes().into_iter().map(move |value| {
                let mut changed = *self;
                changed[at] = value;
                changed
            })
        };
        (0..N).flat_map(at).collect()
    }
}

impl<A: Changes + Clone, B: Changes + Clone> Changes for (A, B) {
    fn examples() -> Vec<Self> {
        A::examples().into_iter().zip(B::examples()).collect()
    }

    fn changes(&self) -> Vec<Self> {
        let (a, b) = self;
        let first = a.changes().into_iter().map(|value| (value, b.clone()));
        first.chain(b.changes().into_iter().map(|value| (a.clone(), value))).collect()
    }
}
