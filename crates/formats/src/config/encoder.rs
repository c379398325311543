//! Encoders, and heads that score a whole text.

use crate::error::Result;
use crate::json::Object;
use crate::pooling::Pooling;

use super::fields::MAX_WIDTH;
use crate::layers::{Activation, ClassifierConfig, HeadActivation};

/// What a model has whose positions attend to earlier and to later ones alike. In layers with a
/// window, a position attends to as many later ones as earlier ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncoderConfig {
    /// Types of tokens that have an embedding; 0 where there are none.
    pub token_types: usize,
}

impl HeadActivation {
    /// Names in config.json.
    const NAMES: [(&'static str, Self); 9] = [
        ("identity", Self::Identity),
        ("linear", Self::Identity),
        ("tanh", Self::Tanh),
        ("gelu", Self::Gelu),
        ("gelu_new", Self::GeluTanh),
        ("gelu_pytorch_tanh", Self::GeluTanh),
        ("silu", Self::Silu),
        ("swish", Self::Silu),
        ("relu", Self::Relu),
    ];

    /// The function of this name in config.json.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, function)| *function)
    }

    /// Reads the field `key`, which is `default` where it is absent.
    pub(crate) fn read(config: Object, key: &str, default: Self) -> Result<Self> {
        let Some(name) = config.text(key)? else { return Ok(default) };
        Self::named(name).ok_or_else(|| {
            let expected = Self::NAMES.map(|(name, _)| name).join(", ");
            let found = crate::error::shown(name);
            config.error(key, format!("expected one of {expected}; found {found}"))
        })
    }
}

impl ClassifierConfig {
    /// A projection of the last token's state, which classes of decoders have.
    pub(crate) fn of_decoder(config: Object) -> Result<Self> {
        let (labels, pooling) = (labels(config)?, Pooling::Last);
        Ok(Self { labels, pooling, dense: None, norm: false })
    }

    /// A projection with a hyperbolic tangent, and another, of the first token's state.
    pub(crate) fn of_bert(config: Object) -> Result<Self> {
        let dense = Some(HeadActivation::Tanh);
        Ok(Self { labels: labels(config)?, pooling: Pooling::Cls, dense, norm: false })
    }
}

/// The names that [`activation_named`] knows, for messages.
pub(crate) const ACTIVATIONS: &str = "gelu, gelu_new or silu";

/// The activation of an encoder's MLPs of this name in config.json.
pub(crate) fn activation_named(name: &str) -> Option<Activation> {
    match name {
        "gelu" => Some(Activation::Gelu),
        "gelu_new" | "gelu_fast" | "gelu_pytorch_tanh" => Some(Activation::GeluTanh),
        "silu" | "swish" => Some(Activation::Silu),
        _ => None,
    }
}

/// The name of an encoder's activation in config.json.
pub(crate) fn activation_name(activation: Activation) -> &'static str {
    match activation {
        Activation::GeluTanh => "gelu_pytorch_tanh",
        Activation::Silu => "silu",
        _ => "gelu",
    }
}

/// Number of labels of a class that scores texts: two where config.json does not say.
pub(crate) fn labels(config: Object) -> Result<usize> {
    match config.object("id2label")? {
        Some(names) if !names.is_empty() && names.len() <= MAX_WIDTH => Ok(names.len()),
        _ => config.setting("num_labels", MAX_WIDTH, 2),
    }
}
