//! The storage types of the tensors of a named mixture.
//!
//! Follows the choices that llama.cpp publishes for dense models: the values, the ends of MLPs and
//! the output have the most effect on quality and get more bits. The first rule of a mixture that
//! applies to a tensor decides; without one, the base type does.

use formats::ModelConfig;
use kernels::quant::{self, QuantType};

use When::{
    Always, Eighty, FirstEighth, FirstLayers, FirstSixteenth, Grouped, Middle, MoreBits,
    WithoutImportance,
};

/// A named mixture.
#[derive(Debug)]
pub struct Mixture {
    /// The name, such as `q4_k_m`.
    pub name: &'static str,
    /// `general.file_type` in the metadata of its files.
    pub(crate) file_type: u32,
    /// Type of tensors that no rule matches.
    base: &'static QuantType,
    rules: &'static [Rule],
}

/// Prefixes of tensor names (without the layer), when the rule applies, and the type.
#[derive(Debug)]
struct Rule(&'static [&'static str], When, &'static QuantType);

/// The layers or models that a rule applies to.
#[derive(Clone, Copy, Debug)]
enum When {
    Always,
    /// This many first layers.
    FirstLayers(usize),
    FirstEighth,
    FirstSixteenth,
    /// The first eighth where there is an importance of columns.
    FirstEighthWithImportance,
    /// The first eighth where there is none.
    FirstEighthWithoutImportance,
    /// All where there is no importance of columns.
    WithoutImportance,
    /// All but the first eighth and the last.
    Middle,
    /// The first eighth, the last eighth, and every third layer between.
    MoreBits,
    /// Four or more query heads share a head of keys and values.
    Grouped,
    /// The models of eighty layers that share heads of keys and values.
    Eighty,
}

/// The properties of a model that rules depend on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ModelTraits {
    pub layers: usize,
    /// Query heads per head of keys and values.
    pub group: usize,
    pub has_importance: bool,
    /// Whether the embedding is the output matrix too.
    pub tied: bool,
}

impl ModelTraits {
    /// The properties of a model of this configuration, without an importance of columns.
    pub fn of(config: &ModelConfig) -> Self {
        Self {
            layers: config.layers.len(),
            group: config.hyperparameters().heads / config.hyperparameters().kv_heads,
            has_importance: false,
            tied: config.hyperparameters().tied_embeddings,
        }
    }
}

/// Values, alone or in one matrix with queries and keys.
const VALUES: &[&str] = &["attn_v.weight", "attn_qkv.weight"];
const DOWN: &[&str] = &["ffn_down"];
const VALUES_AND_DOWN: &[&str] = &["attn_v.weight", "attn_qkv.weight", "ffn_down"];
const ATTENTION_OUT: &[&str] = &["attn_output.weight"];
/// Values, the ends of MLPs and the output of attention.
const SENSITIVE: &[&str] = &["attn_v.weight", "attn_qkv.weight", "ffn_down", "attn_output.weight"];
const QUERIES_AND_KEYS: &[&str] = &["attn_q.weight", "attn_k.weight"];
const GATE_AND_UP: &[&str] = &["ffn_gate", "ffn_up"];
const EXPERTS: &[&str] = &["ffn_gate_exps", "ffn_up_exps", "ffn_gate_up_exps", "ffn_down_exps"];
const EMBEDDING: &[&str] = &["token_embd.weight"];
const OUTPUT: &[&str] = &["output.weight"];

const fn plain(name: &'static str, file_type: u32, base: &'static QuantType) -> Mixture {
    Mixture { name, file_type, base, rules: &[] }
}

#[rustfmt::skip]
static MIXTURES: &[Mixture] = &[
    Mixture { name: "q2_k", file_type: 10, base: &quant::Q2_K, rules: &[
        Rule(VALUES, Eighty, &quant::Q5_K),
        Rule(VALUES, Grouped, &quant::Q4_K),
        Rule(SENSITIVE, Always, &quant::Q3_K),
    ] },
    Mixture { name: "q3_k_s", file_type: 11, base: &quant::Q3_K, rules: &[
        Rule(VALUES, Eighty, &quant::Q5_K),
    ] },
    Mixture { name: "q3_k_m", file_type: 12, base: &quant::Q3_K, rules: &[
        Rule(VALUES, Eighty, &quant::Q5_K),
        Rule(VALUES, FirstLayers(2), &quant::Q5_K),
        Rule(DOWN, FirstSixteenth, &quant::Q5_K),
        Rule(SENSITIVE, Always, &quant::Q4_K),
    ] },
    Mixture { name: "q3_k_l", file_type: 13, base: &quant::Q3_K, rules: &[
        Rule(SENSITIVE, Always, &quant::Q5_K),
    ] },
    Mixture { name: "q4_k_s", file_type: 14, base: &quant::Q4_K, rules: &[
        Rule(VALUES, Eighty, &quant::Q5_K),
        Rule(VALUES, FirstLayers(4), &quant::Q5_K),
        Rule(DOWN, FirstEighth, &quant::Q5_K),
    ] },
    Mixture { name: "q4_k_m", file_type: 15, base: &quant::Q4_K, rules: &[
        Rule(VALUES_AND_DOWN, MoreBits, &quant::Q6_K),
        Rule(VALUES, Eighty, &quant::Q5_K),
    ] },
    plain("q5_k_s", 16, &quant::Q5_K),
    Mixture { name: "q5_k_m", file_type: 17, base: &quant::Q5_K, rules: &[
        Rule(VALUES_AND_DOWN, MoreBits, &quant::Q6_K),
    ] },
    plain("q6_k", 18, &quant::Q6_K),
    plain("q8_0", 7, &quant::Q8_0),
    Mixture { name: "q4_0", file_type: 2, base: &quant::Q4_0, rules: &[
        Rule(DOWN, When::FirstEighthWithImportance, &quant::Q4_1),
    ] },
    plain("q4_1", 3, &quant::Q4_1),
    Mixture { name: "q5_0", file_type: 8, base: &quant::Q5_0, rules: &[
        Rule(DOWN, When::FirstEighthWithImportance, &quant::Q5_1),
    ] },
    plain("q5_1", 9, &quant::Q5_1),
    Mixture { name: "iq4_xs", file_type: 30, base: &quant::IQ4_XS, rules: IQ4_RULES },
    Mixture { name: "iq4_nl", file_type: 25, base: &quant::IQ4_NL, rules: IQ4_RULES },
    Mixture { name: "iq3_m", file_type: 27, base: &quant::IQ3_S, rules: &[
        Rule(VALUES, Eighty, &quant::Q5_K),
        Rule(VALUES, Always, &quant::Q4_K),
        Rule(DOWN, FirstEighth, &quant::Q4_K),
        Rule(ATTENTION_OUT, Always, &quant::Q4_K),
    ] },
    Mixture { name: "iq3_s", file_type: 26, base: &quant::IQ3_S, rules: &[
        Rule(VALUES, Eighty, &quant::Q5_K),
        Rule(VALUES, Grouped, &quant::Q4_K),
    ] },
    Mixture { name: "iq3_xs", file_type: 22, base: &quant::IQ3_S, rules: &[
        Rule(VALUES, Eighty, &quant::Q5_K),
        Rule(VALUES, Grouped, &quant::Q4_K),
        Rule(QUERIES_AND_KEYS, Always, &quant::IQ3_XXS),
        Rule(GATE_AND_UP, Middle, &quant::IQ3_XXS),
    ] },
    Mixture { name: "iq3_xxs", file_type: 23, base: &quant::IQ3_XXS, rules: &[
        Rule(VALUES, Eighty, &quant::Q5_K),
        Rule(VALUES, Grouped, &quant::Q4_K),
        Rule(VALUES, WithoutImportance, &quant::IQ3_S),
        Rule(QUERIES_AND_KEYS, Always, &quant::IQ2_S),
        Rule(DOWN, When::FirstEighthWithoutImportance, &quant::Q4_K),
        Rule(DOWN, WithoutImportance, &quant::Q3_K),
        Rule(ATTENTION_OUT, Always, &quant::IQ3_S),
        Rule(EMBEDDING, Always, &quant::IQ3_S),
        Rule(OUTPUT, Always, &quant::Q5_K),
    ] },
    Mixture { name: "iq2_m", file_type: 29, base: &quant::IQ2_S, rules: IQ2_RULES },
    Mixture { name: "iq2_s", file_type: 28, base: &quant::IQ2_XS, rules: IQ2_RULES },
    Mixture { name: "iq2_xs", file_type: 20, base: &quant::IQ2_XS, rules: IQ2_XS_RULES },
    Mixture { name: "iq2_xxs", file_type: 19, base: &quant::IQ2_XXS, rules: IQ2_XS_RULES },
    Mixture { name: "iq1_m", file_type: 31, base: &quant::IQ1_M, rules: IQ1_RULES },
    Mixture { name: "iq1_s", file_type: 24, base: &quant::IQ1_S, rules: IQ1_RULES },
    Mixture { name: "tq2_0", file_type: 37, base: &quant::TQ2_0, rules: TERNARY_RULES },
    Mixture { name: "tq1_0", file_type: 36, base: &quant::TQ1_0, rules: TERNARY_RULES },
    Mixture { name: "mxfp4_moe", file_type: 38, base: &quant::Q8_0, rules: &[
        Rule(EXPERTS, Always, &quant::MXFP4),
    ] },
    plain("nvfp4", 39, &quant::NVFP4),
    plain("q1_0", 40, &quant::Q1_0),
    Mixture { name: "q2_0", file_type: 41, base: &quant::Q2_0, rules: TERNARY_RULES },
    plain("bf16", 32, &quant::BF16),
    plain("f16", 1, &quant::F16),
    plain("f32", 0, &quant::F32),
];

static IQ4_RULES: &[Rule] = &[
    Rule(VALUES, Grouped, &quant::Q5_K),
    Rule(DOWN, When::FirstEighthWithoutImportance, &quant::Q5_K),
];

static IQ2_RULES: &[Rule] = &[
    Rule(VALUES, Grouped, &quant::Q4_K),
    Rule(VALUES, Always, &quant::IQ3_S),
    Rule(DOWN, FirstEighth, &quant::IQ3_S),
    Rule(ATTENTION_OUT, Always, &quant::IQ3_S),
    Rule(EMBEDDING, Always, &quant::IQ3_S),
    Rule(OUTPUT, Always, &quant::Q5_K),
];

static IQ2_XS_RULES: &[Rule] = &[
    Rule(VALUES, Grouped, &quant::Q4_K),
    Rule(VALUES, Always, &quant::Q2_K),
    Rule(DOWN, FirstEighth, &quant::Q2_K),
    Rule(EMBEDDING, Always, &quant::Q2_K),
    Rule(OUTPUT, Always, &quant::Q5_K),
];

static IQ1_RULES: &[Rule] = &[
    Rule(VALUES, Grouped, &quant::Q4_K),
    Rule(VALUES, Always, &quant::Q2_K),
    Rule(DOWN, FirstEighth, &quant::Q2_K),
    Rule(ATTENTION_OUT, Always, &quant::IQ2_XXS),
    Rule(EMBEDDING, Always, &quant::Q2_K),
    Rule(OUTPUT, Always, &quant::Q5_K),
];

static TERNARY_RULES: &[Rule] = &[Rule(EMBEDDING, Always, &quant::Q4_K)];

impl Mixture {
    /// The mixture called `name`, in any case.
    ///
    /// # Errors
    ///
    /// The message for an unknown mixture, which lists the known ones.
    pub fn named(name: &str) -> Result<&'static Self, String> {
        let known = MIXTURES.iter().find(|mixture| mixture.name.eq_ignore_ascii_case(name));
        known.ok_or_else(|| format!("expected one of {}", Self::names()))
    }

    /// `general.file_type` of a file whose matrices all have type `ty`: that of the mixture with
    /// the type's name, or else of the first one that is based on it.
    pub(crate) fn file_type_of(ty: &'static QuantType) -> Option<u32> {
        let based = MIXTURES.iter().filter(|mixture| mixture.base == ty);
        based.min_by_key(|mixture| mixture.name != ty.name).map(|mixture| mixture.file_type)
    }

    /// The names of all mixtures.
    pub fn all_names() -> impl Iterator<Item = &'static str> {
        MIXTURES.iter().map(|mixture| mixture.name)
    }

    /// The same as a text.
    pub(crate) fn names() -> String {
        Self::all_names().collect::<Vec<_>>().join(", ")
    }

    /// The type that the tensor with this canonical name should get.
    pub(super) fn choose(&self, name: &str, model: &ModelTraits) -> &'static QuantType {
        let output = name == "output.weight" || (model.tied && name == "token_embd.weight");
        let name = if output { "output.weight" } else { name };
        let (layer, rest) = split_layer(name).unwrap_or((0, name));
        let rule = self.rules.iter().find(|Rule(starts, when, _)| {
            starts.iter().any(|start| rest.starts_with(start)) && when.holds(layer, model)
        });
        match rule {
            Some(Rule(_, _, ty)) => ty,
            None if output => self.output(),
            None => self.base,
        }
    }

    /// The type of the output matrix: floats and eight bits suffice, other types become six bits.
    fn output(&self) -> &'static QuantType {
        match self.base.block_len == 1 || self.base == &quant::Q8_0 {
            true => self.base,
            false => &quant::Q6_K,
        }
    }
}

impl When {
    fn holds(self, layer: usize, model: &ModelTraits) -> bool {
        let eighth = model.layers / 8;
        match self {
            Self::Always => true,
            Self::FirstLayers(count) => layer < count,
            Self::FirstEighth => layer < eighth,
            Self::FirstSixteenth => layer < model.layers / 16,
            Self::FirstEighthWithImportance => layer < eighth && model.has_importance,
            Self::FirstEighthWithoutImportance => layer < eighth && !model.has_importance,
            Self::WithoutImportance => !model.has_importance,
            Self::Middle => layer >= eighth && layer < 7 * model.layers / 8,
            Self::MoreBits => {
                layer < eighth || layer >= 7 * model.layers / 8 || (layer - eighth) % 3 == 2
            }
            Self::Grouped => model.group >= 4,
            Self::Eighty => model.layers == 80 && model.group > 1,
        }
    }
}

/// Layer and rest of `blk.12.rest`.
pub(crate) fn split_layer(name: &str) -> Option<(usize, &str)> {
    let (layer, rest) = name.strip_prefix("blk.")?.split_once('.')?;
    Some((layer.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(mixture: &str, model: &ModelTraits, name: &str, expected: &str) {
        let found = Mixture::named(mixture).unwrap().choose(name, model);
        assert_eq!(found.name, expected, "{mixture} {name}");
    }

    #[test]
    fn files_of_one_type_have_the_number_of_a_mixture() {
        let cases = [
            ("f32", 0),
            ("f16", 1),
            ("q4_0", 2),
            ("q8_0", 7),
            ("q4_k", 14),
            ("iq2_xs", 20),
            ("nvfp4", 39),
            ("q1_0", 40),
            ("q2_0", 41),
        ];
        for (name, expected) in cases {
            let ty = quant::by_name(name).unwrap();
            assert_eq!(Mixture::file_type_of(ty), Some(expected), "{name}");
        }
        assert_eq!(Mixture::file_type_of(quant::by_name("i32").unwrap()), None);
    }

    #[test]
    fn q4_k_m_spends_more_bits_at_both_ends_and_on_every_third_layer() {
        let model = ModelTraits { layers: 32, group: 4, ..ModelTraits::default() };
        let more = |layer: usize| !(4..28).contains(&layer) || (layer - 4) % 3 == 2;
        for layer in 0..32 {
            let expected = if more(layer) { "q6_k" } else { "q4_k" };
            check("Q4_K_M", &model, &format!("blk.{layer}.attn_v.weight"), expected);
            check("q4_k_m", &model, &format!("blk.{layer}.ffn_down.weight"), expected);
            check("q4_k_m", &model, &format!("blk.{layer}.ffn_up.weight"), "q4_k");
        }
        check("q4_k_m", &model, "output.weight", "q6_k");
        check("q4_k_m", &model, "token_embd.weight", "q4_k");
        let tied = ModelTraits { tied: true, ..model };
        check("q4_k_m", &tied, "token_embd.weight", "q6_k");
    }

    #[test]
    fn small_mixtures_keep_the_tensors_that_matter() {
        let model = ModelTraits { layers: 32, group: 1, ..ModelTraits::default() };
        check("q4_k_s", &model, "blk.3.attn_v.weight", "q5_k");
        check("q4_k_s", &model, "blk.4.attn_v.weight", "q4_k");
        check("q4_k_s", &model, "blk.3.ffn_down.weight", "q5_k");
        check("q3_k_m", &model, "blk.1.attn_v.weight", "q5_k");
        check("q3_k_m", &model, "blk.2.attn_v.weight", "q4_k");
        check("q3_k_m", &model, "blk.2.ffn_down.weight", "q4_k");
        check("q3_k_l", &model, "blk.9.attn_output.weight", "q5_k");
        check("q2_k", &model, "blk.9.attn_v.weight", "q3_k");
        check("q2_k", &ModelTraits { group: 4, ..model }, "blk.9.attn_v.weight", "q4_k");
        check("q3_k_s", &ModelTraits { layers: 80, ..model }, "blk.9.attn_v.weight", "q3_k");
        check(
            "q3_k_s",
            &ModelTraits { layers: 80, group: 8, ..model },
            "blk.9.attn_v.weight",
            "q5_k",
        );
    }

    #[test]
    fn values_get_their_bits_together_with_queries_and_keys_too() {
        let model = ModelTraits { layers: 32, group: 1, ..ModelTraits::default() };
        for (mixture, layer) in [("q4_k_m", 0), ("q4_k_m", 4), ("q3_k_m", 1), ("q3_k_l", 9)] {
            let name = |part: &str| format!("blk.{layer}.{part}.weight");
            let values = Mixture::named(mixture).unwrap().choose(&name("attn_v"), &model);
            check(mixture, &model, &name("attn_qkv"), values.name);
        }
    }

    #[test]
    fn importance_moves_what_gets_more_bits() {
        let without = ModelTraits { layers: 32, group: 1, ..ModelTraits::default() };
        let with = ModelTraits { has_importance: true, ..without };
        check("q4_0", &without, "blk.0.ffn_down.weight", "q4_0");
        check("q4_0", &with, "blk.0.ffn_down.weight", "q4_1");
        check("iq4_xs", &without, "blk.0.ffn_down.weight", "q5_k");
        check("iq4_xs", &with, "blk.0.ffn_down.weight", "iq4_xs");
    }

    #[test]
    fn the_smallest_mixtures_spend_bits_on_embedding_and_output() {
        let model = ModelTraits { layers: 16, group: 1, ..ModelTraits::default() };
        let with = ModelTraits { has_importance: true, ..model };
        for (mixture, embedding, values) in [
            ("iq1_s", "q2_k", "q2_k"),
            ("iq1_m", "q2_k", "q2_k"),
            ("iq2_xxs", "q2_k", "q2_k"),
            ("iq2_xs", "q2_k", "q2_k"),
            ("iq2_s", "iq3_s", "iq3_s"),
            ("iq2_m", "iq3_s", "iq3_s"),
            ("iq3_xxs", "iq3_s", "iq3_s"),
        ] {
            check(mixture, &model, "token_embd.weight", embedding);
            check(mixture, &model, "output.weight", "q5_k");
            check(mixture, &ModelTraits { tied: true, ..model }, "token_embd.weight", "q5_k");
            check(mixture, &model, "blk.0.attn_v.weight", values);
            check(mixture, &ModelTraits { group: 4, ..model }, "blk.0.attn_v.weight", "q4_k");
        }
        check("iq1_s", &model, "blk.9.attn_output.weight", "iq2_xxs");
        check("iq2_s", &model, "blk.9.ffn_down.weight", "iq2_xs");
        check("iq2_m", &model, "blk.1.ffn_down.weight", "iq3_s");
        check("iq3_xxs", &model, "blk.9.ffn_down.weight", "q3_k");
        check("iq3_xxs", &with, "blk.9.ffn_down.weight", "iq3_xxs");
        check("iq3_xxs", &with, "blk.9.attn_v.weight", "iq3_xxs");
        check("iq3_xs", &model, "blk.1.ffn_up.weight", "iq3_s");
        check("iq3_xs", &model, "blk.2.ffn_up.weight", "iq3_xxs");
        check("iq3_m", &model, "blk.9.attn_output.weight", "q4_k");
        check("tq1_0", &model, "token_embd.weight", "q4_k");
        check("tq2_0", &model, "output.weight", "q6_k");
        check("q2_0", &model, "token_embd.weight", "q4_k");
        check("q2_0", &model, "blk.9.ffn_up.weight", "q2_0");
    }

    #[test]
    fn only_experts_are_floats_of_four_bits() {
        let model = ModelTraits { layers: 8, ..ModelTraits::default() };
        check("mxfp4_moe", &model, "blk.0.ffn_down_exps.weight", "mxfp4");
        check("mxfp4_moe", &model, "blk.0.ffn_down.weight", "q8_0");
        check("mxfp4_moe", &model, "output.weight", "q8_0");
    }

    #[test]
    fn plain_types_are_the_same_for_all_tensors() {
        for name in ["output.weight", "token_embd.weight", "blk.0.attn_v.weight"] {
            for mixture in ["q8_0", "bf16", "f16", "f32"] {
                check(mixture, &ModelTraits { layers: 8, ..ModelTraits::default() }, name, mixture);
            }
        }
        assert!(Mixture::named("q9").unwrap_err().contains("q4_k_m, "));
    }
}
