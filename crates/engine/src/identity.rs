//! Identity of a checkpoint, so that cached numbers of another are not mistaken for its own.

use formats::config::{
    Activation, CompressedConfig, ConvConfig, DeltaConfig, ExpertGroups, ExpertsConfig, GroupRank,
    HyperConfig, IndexConfig, LatentConfig, MambaConfig, MambaNorm, QueryGrowth, RopeConfig,
    RopeLayout, RopeScaling, RouterScores, SpecialIds, Sublayers, WindowedConfig,
};
use formats::{Checkpoint, ModelConfig};
use sha2::{Digest, Sha256};

/// Bytes read of each tensor.
const SAMPLE: usize = 64;

/// Digest of what decides the logits of a checkpoint: configuration, names, types and shapes of its
/// tensors, and bytes from the beginning, the middle and the end of each. Paths do not matter.
///
/// The digest distinguishes checkpoints that are confused by accident, such as a model and its next
/// version; it does not detect single weights that were altered on purpose.
pub fn identity(checkpoint: &Checkpoint) -> String {
    let mut hash = Sha256::new();
    hash.update(config_text(checkpoint.config()));
    let mut tensors: Vec<_> = checkpoint.tensors().collect();
    tensors.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    for tensor in tensors {
        hash.update(format!("\n{} {} {:?}\n", tensor.name, tensor.ty.name, tensor.shape));
        let data = tensor.bytes();
        let end = data.len().saturating_sub(SAMPLE);
        for start in [0, end / 2, end] {
            hash.update(data.read(start..data.len().min(start + SAMPLE)));
        }
    }
    let digest = hash.finalize();
    digest[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The configuration as text, without its display name. The labels are written here, so that no
/// name in the source changes a digest; a field that is added gets a label where it is not at its
/// default. What the architecture decides, or the tensors show, is not repeated.
fn config_text(config: &ModelConfig) -> String {
    let ModelConfig {
        architecture,
        name: _,
        hidden_size,
        layers,
        heads,
        kv_heads,
        head_dim,
        attention_scale,
        intermediate_size,
        activation,
        experts,
        attention: _,
        windowed: _,
        shared_kv_layers: _,
        wide_mlps: _,
        norms: _,
        layer_norm: _,
        parallel: _,
        plain_mlp: _,
        query_growth: _,
        index: _,
        positions: _,
        mamba: _,
        convs: _,
        sublayers: _,
        factors: _,
        chunked: _,
        layer_inputs: _,
        layer_scales: _,
        unrotated: _,
        embedding_scale: _,
        residual_scale: _,
        logit_scale: _,
        logit_cap: _,
        hyper,
        delta,
        encoder: _,
        classifier: _,
        vocab_size,
        context_length,
        rms_norm_eps,
        rope,
        windows,
        tied_embeddings,
        special,
    } = config;
    let activation = activation_text(*activation);
    let experts = option_text(experts.as_ref().map(experts_text));
    let latent = option_text(config.latent().map(latent_text));
    let delta = delta.as_ref().map_or_else(String::new, delta_text);
    let (rope, special) = (rope_text(rope), special_text(special));
    let compressed = added_text("compressed", config.compressed().map(compressed_text));
    let hyper = added_text("hyper", hyper.as_ref().map(hyper_text));
    let more = added_texts(config);
    format!(
        "ModelConfig {{ architecture: {architecture:?}, name: \"\", hidden_size: {hidden_size}, \
         layers: {layers}, heads: {heads}, kv_heads: {kv_heads}, head_dim: {head_dim}, \
         attention_scale: {attention_scale:?}, intermediate_size: {intermediate_size}, \
         activation: {activation}, experts: {experts}, latent: {latent}, \
         {delta}vocab_size: {vocab_size}, context_length: {context_length}, \
         rms_norm_eps: {rms_norm_eps:?}, rope: {rope}, windows: {windows:?}, \
         tied_embeddings: {tied_embeddings}, special: {special}{compressed}{hyper}{more} }}"
    )
}

/// What few families have, each with its label, where it is not at its default.
fn added_texts(config: &ModelConfig) -> String {
    let first_position = config.positions.map(|table| table.first);
    [
        added_text("windowed", config.windowed.as_ref().map(windowed_text)),
        added_text(
            "shared_kv_layers",
            (config.shared_kv_layers > 0).then(|| config.shared_kv_layers.to_string()),
        ),
        added_text(
            "unrotated",
            config.unrotated.contains(&true).then(|| format!("{:?}", config.unrotated)),
        ),
        added_text("first_position", first_position.map(|first| first.to_string())),
        added_text("query_growth", config.query_growth.map(|growth| growth_text(&growth))),
        added_text("index", config.index.as_ref().map(index_text)),
        added_text("mamba", config.mamba.as_ref().map(mamba_text)),
        added_text("convs", config.convs.as_ref().map(convs_text)),
        added_text("sublayers", sublayers_text(&config.sublayers)),
        added_text(
            "factors",
            (!config.factors.is_empty()).then(|| format!("{:?}", config.factors)),
        ),
        scale_text("embedding_scale", config.embedding_scale),
        scale_text("residual_scale", config.residual_scale),
        scale_text("logit_scale", config.logit_scale),
        added_text("logit_cap", config.logit_cap.map(|cap| format!("{cap:?}"))),
    ]
    .concat()
}

/// A field that is left out at its default.
fn added_text(label: &str, text: Option<String>) -> String {
    text.map_or_else(String::new, |text| format!(", {label}: {text}"))
}

fn growth_text(growth: &QueryGrowth) -> String {
    let QueryGrowth { beta, every, offset, unrotated } = growth;
    format!("{beta:?} every {every} from {offset}, unrotated: {unrotated}")
}

/// A factor that is left out where it is 1.
fn scale_text(label: &str, scale: f32) -> String {
    added_text(label, (scale != 1.0).then(|| format!("{scale:?}")))
}

fn option_text(text: Option<String>) -> String {
    text.map_or_else(|| "None".to_owned(), |text| format!("Some({text})"))
}

fn activation_text(activation: Activation) -> String {
    match activation {
        Activation::Silu => "Silu".to_owned(),
        Activation::GeluTanh => "GeluTanh".to_owned(),
        Activation::ReluSquared => "ReluSquared".to_owned(),
        Activation::Gelu => "Gelu".to_owned(),
        Activation::ClampedSwiglu { alpha, limit } => {
            format!("ClampedSwiglu {{ alpha: {alpha:?}, limit: {limit:?} }}")
        }
    }
}

fn experts_text(experts: &ExpertsConfig) -> String {
    let ExpertsConfig {
        count,
        chosen,
        width,
        latent,
        shared_width,
        shared_gate: _,
        layers,
        beside_mlp: _,
        weighs_inputs: _,
        scores,
        biased: _,
        normalise,
        scale,
        groups,
        by_token,
        limits,
        shared_limits,
    } = experts;
    let scores = match scores {
        RouterScores::Softmax => "Softmax",
        RouterScores::SoftmaxOfChosen => "SoftmaxOfChosen",
        RouterScores::Sigmoid => "Sigmoid",
        RouterScores::SqrtSoftplus => "SqrtSoftplus",
        RouterScores::PlainSigmoid => "PlainSigmoid",
    };
    let list =
        |values: &[Option<f32>]| values.iter().any(Option::is_some).then(|| format!("{values:?}"));
    let by_token = by_token.contains(&true).then(|| format!("{by_token:?}"));
    let added = [
        added_text("latent", latent.map(|latent| latent.to_string())),
        added_text("by_token", by_token),
        added_text("limits", list(limits)),
        added_text("shared_limits", list(shared_limits)),
    ];
    let added = added.concat();
    let groups = option_text(groups.map(|ExpertGroups { count, chosen, rank }| {
        let rank = match rank {
            GroupRank::Best => "Best",
            GroupRank::BestTwo => "BestTwo",
        };
        format!("ExpertGroups {{ count: {count}, chosen: {chosen}, rank: {rank} }}")
    }));
    format!(
        "ExpertsConfig {{ count: {count}, chosen: {chosen}, width: {width}, \
         shared_width: {shared_width}, layers: {layers:?}, scores: {scores}, \
         normalise: {normalise}, scale: {scale:?}, groups: {groups}{added} }}"
    )
}

fn compressed_text(sizes: &CompressedConfig) -> String {
    let CompressedConfig {
        q_rank,
        rope_dim,
        groups,
        out_rank,
        ratios,
        indexed,
        index_heads,
        index_dim,
        index_top,
        rope,
    } = sizes;
    let rope = rope_text(rope);
    format!(
        "CompressedConfig {{ q_rank: {q_rank}, rope_dim: {rope_dim}, groups: {groups}, \
         out_rank: {out_rank}, ratios: {ratios:?}, indexed: {indexed:?}, \
         index_heads: {index_heads}, index_dim: {index_dim}, index_top: {index_top}, \
         rope: {rope} }}"
    )
}

fn windowed_text(windowed: &WindowedConfig) -> String {
    let WindowedConfig { kv_heads, head_dim, rope } = windowed;
    let rope = rope_text(rope);
    format!("WindowedConfig {{ kv_heads: {kv_heads}, head_dim: {head_dim}, rope: {rope} }}")
}

fn hyper_text(hyper: &HyperConfig) -> String {
    let HyperConfig { streams, iterations, eps } = hyper;
    format!("HyperConfig {{ streams: {streams}, iterations: {iterations}, eps: {eps:?} }}")
}

fn delta_text(delta: &DeltaConfig) -> String {
    let DeltaConfig {
        layers,
        key_heads,
        value_heads,
        key_dim,
        value_dim,
        kernel,
        per_channel,
        tiled,
    } = delta;
    let per_channel = if *per_channel { ", per_channel: true" } else { "" };
    format!(
        "delta: DeltaConfig {{ layers: {layers:?}, key_heads: {key_heads}, \
         value_heads: {value_heads}, key_dim: {key_dim}, value_dim: {value_dim}, \
         kernel: {kernel}, tiled: {tiled}{per_channel} }}, "
    )
}

fn latent_text(latent: LatentConfig) -> String {
    let LatentConfig { q_rank, kv_rank, nope_dim, rope_dim, value_dim } = latent;
    format!(
        "LatentConfig {{ q_rank: {q_rank:?}, kv_rank: {kv_rank}, nope_dim: {nope_dim}, \
         rope_dim: {rope_dim}, value_dim: {value_dim} }}"
    )
}

fn index_text(index: &IndexConfig) -> String {
    let IndexConfig { heads, dim, top, layout, layers } = index;
    let layout = layout_text(*layout);
    format!(
        "IndexConfig {{ heads: {heads}, dim: {dim}, top: {top}, layout: {layout}, \
         layers: {layers:?} }}"
    )
}

fn mamba_text(mamba: &MambaConfig) -> String {
    let MambaConfig {
        layers,
        beside_attention,
        heads,
        head_dim,
        groups,
        state,
        kernel,
        norm,
        norm_groups,
        limits,
    } = mamba;
    let norm = match norm {
        MambaNorm::None => "None",
        MambaNorm::BeforeGate => "BeforeGate",
        MambaNorm::BehindGate => "BehindGate",
    };
    format!(
        "MambaConfig {{ layers: {layers:?}, beside_attention: {beside_attention}, \
         heads: {heads}, head_dim: {head_dim}, groups: {groups}, state: {state}, \
         kernel: {kernel}, norm: {norm}, norm_groups: {norm_groups}, limits: {limits:?} }}"
    )
}

fn convs_text(convs: &ConvConfig) -> String {
    let ConvConfig { layers, kernel } = convs;
    format!("ConvConfig {{ layers: {layers:?}, kernel: {kernel} }}")
}

/// A letter for each layer; `None` where all have both sublayers.
fn sublayers_text(sublayers: &[Sublayers]) -> Option<String> {
    let letter = |sublayers: &Sublayers| match sublayers {
        Sublayers::Both => 'b',
        Sublayers::Mixer => 'm',
        Sublayers::FeedForward => 'f',
    };
    let letters: String = sublayers.iter().map(letter).collect();
    letters.contains(['m', 'f']).then_some(letters)
}

fn layout_text(layout: RopeLayout) -> &'static str {
    match layout {
        RopeLayout::Halves => "Halves",
        RopeLayout::Interleaved => "Interleaved",
    }
}

fn rope_text(rope: &RopeConfig) -> String {
    let RopeConfig { theta, dim, layout, scaling, magnitude } = rope;
    let layout = layout_text(*layout);
    let scaling = match scaling {
        RopeScaling::None => "None".to_owned(),
        RopeScaling::Linear { factor } => format!("Linear {{ factor: {factor:?} }}"),
        RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
            format!(
                "Llama3 {{ factor: {factor:?}, low_freq_factor: {low_freq_factor:?}, \
                 high_freq_factor: {high_freq_factor:?}, original_context: {original_context} }}"
            )
        }
        RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, truncate } => format!(
            "Yarn {{ factor: {factor:?}, original_context: {original_context}, \
             beta_fast: {beta_fast:?}, beta_slow: {beta_slow:?}, truncate: {truncate} }}"
        ),
        RopeScaling::Proportional { share, factor } => {
            format!("Proportional {{ share: {share:?}, factor: {factor:?} }}")
        }
        RopeScaling::LongRope { short, long, original_context } => format!(
            "LongRope {{ short: {short:?}, long: {long:?}, original_context: {original_context} }}"
        ),
        RopeScaling::Factors(factors) => format!("Factors({factors:?})"),
    };
    format!(
        "RopeConfig {{ theta: {theta:?}, dim: {dim}, layout: {layout}, scaling: {scaling}, \
         magnitude: {magnitude:?} }}"
    )
}

fn special_text(special: &SpecialIds) -> String {
    let SpecialIds { bos, eos, pad } = special;
    format!("SpecialIds {{ bos: {bos:?}, eos: {eos:?}, pad: {pad:?} }}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use formats::OpenOptions;
    use std::path::Path;

    #[test]
    fn checkpoint_digests_do_not_depend_on_source_names() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/tiny");
        let checkpoint = Checkpoint::open(Path::new(folder), &OpenOptions::default()).unwrap();
        assert_eq!(identity(&checkpoint), "cb0c649ae9f42616717d935caa9ff015");
    }

    #[test]
    fn a_field_that_decides_logits_changes_the_text_of_a_configuration() {
        let config = ModelConfig::tiny("deepseek_v3", 2).expect("a known family");
        let expected = "ModelConfig { architecture: \"deepseek_v3\", name: \"\", hidden_size: ";
        let text = config_text(&config);
        assert!(text.starts_with(expected), "{text}");
        let mut texts = vec![text];
        let mut change = |change: &dyn Fn(&mut ModelConfig)| {
            let mut config = config.clone();
            change(&mut config);
            texts.push(config_text(&config));
        };
        change(&|config| config.hidden_size += 1);
        change(&|config| config.attention_scale *= 2.0);
        change(&|config| config.rms_norm_eps *= 2.0);
        change(&|config| config.rope.theta *= 2.0);
        change(&|config| config.windows[0] = Some(7));
        change(&|config| config.special.bos = Some(77));
        change(&|config| config.experts.as_mut().expect("it has experts").chosen += 1);
        change(&|config| config.tied_embeddings = !config.tied_embeddings);
        change(&|config| config.experts.as_mut().expect("it has experts").by_token[0] = true);
        change(&|config| config.experts.as_mut().expect("it has experts").limits[0] = Some(2.0));
        change(&|config| config.logit_cap = Some(3.0));
        change(&|config| config.residual_scale = 3.0);
        change(&|config| config.unrotated[0] = true);
        change(&|config| config.shared_kv_layers = 1);
        let gemma = ModelConfig::tiny("gemma3", 2).expect("a known family");
        change(&|config| config.windowed = gemma.windowed.clone());
        let fourth = ModelConfig::tiny("deepseek_v4", 2).expect("a known family");
        change(&|config| config.attention = fourth.attention.clone());
        change(&|config| config.hyper = fourth.hyper);
        let indexed = ModelConfig::tiny("deepseek_v32", 2).expect("a known family");
        change(&|config| config.index = indexed.index.clone());
        let hybrid = ModelConfig::tiny("nemotron_h", 2).expect("a known family");
        change(&|config| config.mamba = hybrid.mamba.clone());
        change(&|config| config.sublayers = hybrid.sublayers.clone());
        let scaled = ModelConfig::tiny("falcon_h1", 2).expect("a known family");
        change(&|config| config.factors = scaled.factors.clone());
        for (at, text) in texts.iter().enumerate() {
            assert!(!texts[..at].contains(text), "{text}");
        }
    }
}
