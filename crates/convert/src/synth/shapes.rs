//! Shapes of published models, and tiny ones of the same families for tests.

use super::mixtures::{self, MIXTURES};
use formats::ModelConfig;
use formats::config::{RopeConfig, RopeScaling};

/// The shape of a dense model.
struct DenseShape {
    name: &'static str,
    family: &'static str,
    hidden: usize,
    layers: usize,
    /// Query heads, key and value heads, values per head.
    heads: [usize; 3],
    mlp: usize,
    vocab: usize,
    context: usize,
    theta: f32,
    eps: f32,
    tied: bool,
    window: Option<usize>,
    /// Factor of Llama 3's scaling, over a context of 8192.
    llama3: Option<f32>,
}

const QWEN3: DenseShape = DenseShape {
    name: "qwen3",
    family: "qwen3",
    hidden: 0,
    layers: 0,
    heads: [0; 3],
    mlp: 0,
    vocab: 151_936,
    context: 40_960,
    theta: 1e6,
    eps: 1e-6,
    tied: true,
    window: None,
    llama3: None,
};
const QWEN2: DenseShape = DenseShape { family: "qwen2", context: 32_768, ..QWEN3 };
const LLAMA: DenseShape = DenseShape {
    family: "llama",
    vocab: 128_256,
    context: 131_072,
    theta: 5e5,
    eps: 1e-5,
    llama3: Some(32.0),
    ..QWEN3
};
const MISTRAL: DenseShape = DenseShape {
    family: "mistral",
    vocab: 32_000,
    context: 32_768,
    theta: 1e4,
    eps: 1e-5,
    tied: false,
    window: Some(4096),
    ..QWEN3
};

#[rustfmt::skip]
static SHAPES: &[DenseShape] = &[
    DenseShape { name: "qwen3-0.6b", hidden: 1024, layers: 28, heads: [16, 8, 128], mlp: 3072, ..QWEN3 },
    DenseShape { name: "qwen3-1.7b", hidden: 2048, layers: 28, heads: [16, 8, 128], mlp: 6144, ..QWEN3 },
    DenseShape { name: "qwen3-4b", hidden: 2560, layers: 36, heads: [32, 8, 128], mlp: 9728, ..QWEN3 },
    DenseShape { name: "qwen3-8b", hidden: 4096, layers: 36, heads: [32, 8, 128], mlp: 12_288, tied: false, ..QWEN3 },
    DenseShape { name: "qwen2.5-0.5b", hidden: 896, layers: 24, heads: [14, 2, 64], mlp: 4864, ..QWEN2 },
    DenseShape { name: "qwen2.5-1.5b", hidden: 1536, layers: 28, heads: [12, 2, 128], mlp: 8960, ..QWEN2 },
    DenseShape { name: "qwen2.5-7b", hidden: 3584, layers: 28, heads: [28, 4, 128], mlp: 18_944, vocab: 152_064, tied: false, ..QWEN2 },
    DenseShape { name: "llama-3.2-1b", hidden: 2048, layers: 16, heads: [32, 8, 64], mlp: 8192, ..LLAMA },
    DenseShape { name: "llama-3.2-3b", hidden: 3072, layers: 28, heads: [24, 8, 128], mlp: 8192, ..LLAMA },
    DenseShape { name: "llama-3.1-8b", hidden: 4096, layers: 32, heads: [32, 8, 128], mlp: 14_336, tied: false, llama3: Some(8.0), ..LLAMA },
    DenseShape { name: "mistral-7b", hidden: 4096, layers: 32, heads: [32, 8, 128], mlp: 14_336, ..MISTRAL },
    DenseShape { name: "tiny-qwen3", hidden: 256, layers: 2, heads: [4, 2, 64], mlp: 512, vocab: 512, context: 2048, ..QWEN3 },
    DenseShape { name: "tiny-qwen2", hidden: 256, layers: 2, heads: [4, 2, 64], mlp: 512, vocab: 512, context: 2048, ..QWEN2 },
    DenseShape { name: "tiny-llama", hidden: 256, layers: 2, heads: [4, 2, 64], mlp: 512, vocab: 512, context: 2048, ..LLAMA },
    DenseShape { name: "tiny-mistral", hidden: 256, layers: 2, heads: [4, 2, 64], mlp: 512, vocab: 512, context: 2048, window: Some(64), ..MISTRAL },
];

/// The configuration of the shape with this name, in any case.
pub(super) fn find(name: &str) -> Option<ModelConfig> {
    let dense = SHAPES.iter().find(|shape| shape.name.eq_ignore_ascii_case(name));
    dense.map(DenseShape::config).or_else(|| mixtures::find(name))
}

/// All names.
pub(super) fn names() -> String {
    all_names().collect::<Vec<_>>().join(", ")
}

fn all_names() -> impl Iterator<Item = &'static str> {
    SHAPES.iter().map(|shape| shape.name).chain(MIXTURES.iter().map(|(name, _)| *name))
}

/// A line about each named shape: name, family and parameters.
pub fn describe_shapes() -> impl Iterator<Item = String> {
    all_names().filter_map(find).map(|config| {
        let values = config.tensors().into_iter();
        let values: usize = values.map(|(_, shape)| shape.iter().product::<usize>()).sum();
        let (name, family) = (&config.name, &config.architecture);
        format!("{name:17} {family:11} {:>7.1} M parameters", values as f64 / 1e6)
    })
}

impl DenseShape {
    fn config(&self) -> ModelConfig {
        let [heads, kv_heads, head_dim] = self.heads;
        let tiny =
            ModelConfig::tiny(self.family, self.layers).expect("shapes are of known families");
        ModelConfig {
            name: self.name.to_owned(),
            hidden_size: self.hidden,
            heads,
            kv_heads,
            head_dim,
            attention_scale: 1.0 / (head_dim as f32).sqrt(),
            intermediate_size: self.mlp,
            vocab_size: self.vocab,
            context_length: self.context,
            rms_norm_eps: self.eps,
            rope: RopeConfig {
                theta: self.theta,
                dim: head_dim,
                scaling: self.scaling(),
                ..tiny.rope
            },
            windows: vec![self.window; self.layers],
            tied_embeddings: self.tied,
            ..tiny
        }
    }

    fn scaling(&self) -> RopeScaling {
        self.llama3.map_or(RopeScaling::None, |factor| RopeScaling::Llama3 {
            factor,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_context: 8192,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, parameters: usize) {
        let tensors = find(name).unwrap().tensors();
        let found: usize = tensors.iter().map(|(_, s)| s.iter().product::<usize>()).sum();
        assert_eq!(found, parameters, "{name}");
    }

    #[test]
    fn published_shapes_have_the_published_number_of_parameters() {
        check("qwen3-0.6b", 596_049_920);
        check("qwen2.5-0.5b", 494_032_768);
        check("llama-3.2-1b", 1_235_814_400);
        check("llama-3.1-8b", 8_030_261_248);
        check("mistral-7b", 7_241_732_096);
    }

    #[test]
    fn every_name_has_a_shape_and_those_with_experts_are_about_a_billion_parameters() {
        assert_eq!(describe_shapes().count(), all_names().count());
        check("qwen3-moe-1b", 955_814_912);
        check("deepseek-v3-small", 744_628_576);
    }
}
