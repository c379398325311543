//! Checkpoints whose tensors contradict their configuration: what is used, and what is said of it.

use std::path::Path;

use crate::common::read_all;
use formats::families::{self, name_table};
use formats::layers::TensorForm;
use formats::names::NameTable;
use formats::safetensors::SafetensorsWriter;
use formats::{Checkpoint, ModelConfig, OpenOptions};
use kernels::quant::{BF16, by_name};
use serde_json::{Value as Json, json};

const EMBEDDING: &str = "token_embd.weight";
const HEAD: &str = "output.weight";

/// A checkpoint to be written: its config.json, and the name, the shape and the byte that fills
/// each tensor.
struct Source {
    config: Json,
    names: &'static NameTable,
    tensors: Vec<(String, Vec<usize>, u8)>,
}

impl Source {
    /// A small model of a family, with an output head or without one.
    fn tiny(family: &str, has_head: bool) -> Self {
        let model = ModelConfig::tiny(family, 2).unwrap();
        let model = model.with(|said| said.tied_embeddings = !has_head);
        Self::of(&model, model.to_hf_json().unwrap())
    }

    fn of(model: &ModelConfig, config: Json) -> Self {
        let names = name_table(&model.architecture).unwrap();
        let tensors = model.tensors(TensorForm::Hf).into_iter();
        let tensors = tensors.map(|(name, shape)| (names.source(&name).unwrap(), shape, 0));
        Self { config, names, tensors: tensors.collect() }
    }

    /// The config.json has another value under `key`.
    fn with(mut self, key: &str, value: Json) -> Self {
        self.config[key] = value;
        self
    }

    /// The tensor with this canonical name is filled with another byte.
    fn filled(mut self, name: &str, byte: u8) -> Self {
        let name = self.names.source(name).unwrap();
        self.tensors.iter_mut().filter(|it| it.0.ends_with(&name)).for_each(|it| it.2 = byte);
        self
    }

    fn without(mut self, name: &str) -> Self {
        let name = self.names.source(name).unwrap();
        self.tensors.retain(|(known, ..)| *known != name);
        self
    }

    fn open(&self) -> formats::Result<(Checkpoint, tempfile::TempDir)> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.json"), self.config.to_string()).unwrap();
        write(&folder.path().join("model.safetensors"), &self.tensors);
        let checkpoint = Checkpoint::open(folder.path(), &OpenOptions::default())?;
        Ok((checkpoint, folder))
    }

    /// Opens the checkpoint, and asks for every tensor of the model and no others.
    fn load(&self) -> formats::Result<(Checkpoint, tempfile::TempDir)> {
        let (checkpoint, folder) = self.open()?;
        read_all(&checkpoint)?;
        Ok((checkpoint, folder))
    }

    /// Checks whether the embedding is the output head, the bytes of both, and what is said.
    fn check_head(&self, tied: bool, (embedding, head): (u8, u8), warning: bool, case: &str) {
        let (checkpoint, _folder) = self.load().unwrap_or_else(|error| panic!("{case}: {error}"));
        let first = |name| {
            let view = checkpoint.tensor(name)?;
            Some(view.bytes().read(0..1)[0])
        };
        assert_eq!(checkpoint.config().hyperparameters().tied_embeddings, tied, "{case}");
        assert_eq!(first(EMBEDDING), Some(embedding), "{case}");
        assert_eq!(first(HEAD), (!tied).then_some(head), "{case}");
        let warnings = checkpoint.warnings();
        assert_eq!(
            warnings.iter().any(|it| it.contains("differ: each is used")),
            warning,
            "{case}"
        );
    }
}

fn write(path: &Path, tensors: &[(String, Vec<usize>, u8)]) {
    let mut writer = SafetensorsWriter::new();
    for (name, shape, _) in tensors {
        // Tables of numbers of experts hold integers.
        let ty = if name.ends_with("tid2eid") { by_name("i64").unwrap() } else { &BF16 };
        writer.plan(name, ty, shape).unwrap();
    }
    let mut stream = writer.create(path).unwrap();
    let mut bytes = tensors.iter().map(|(.., byte)| *byte);
    while let Some((_, missing)) = stream.next() {
        stream.write(&vec![bytes.next().unwrap(); missing]).unwrap();
    }
    stream.finish().unwrap();
}

#[test]
fn a_head_of_its_own_is_used_where_the_configuration_ties_it() {
    for family in families::names() {
        let tied = || Source::tiny(family, true).with("tie_word_embeddings", json!(true));
        let case = |what: &str| format!("{family}, {what}");
        tied().check_head(true, (0, 0), false, &case("equal"));
        tied().filled(HEAD, 1).check_head(false, (0, 1), true, &case("different"));
        tied().without(HEAD).check_head(true, (0, 0), false, &case("no head"));
        let head_only = tied().filled(HEAD, 1).without(EMBEDDING);
        head_only.check_head(true, (1, 1), false, &case("the head alone"));
        let untied = || tied().with("tie_word_embeddings", json!(false)).filled(HEAD, 1);
        untied().check_head(false, (0, 1), false, &case("not tied"));
        assert!(untied().without(HEAD).load().is_err(), "{family}");
        assert!(untied().without(EMBEDDING).load().is_err(), "{family}");
        let silent = || tied().with("tie_word_embeddings", Json::Null).filled(HEAD, 1);
        silent().check_head(false, (0, 1), false, &case("nothing said"));
        silent().without(HEAD).check_head(true, (0, 0), false, &case("nothing said, no head"));
        let head_only = silent().without(EMBEDDING);
        head_only.check_head(true, (1, 1), false, &case("nothing said, the head alone"));
    }
}

#[test]
fn one_differing_value_anywhere_makes_two_matrices_of_a_tied_one() {
    let folder = tempfile::tempdir().unwrap();
    let source = Source::tiny("llama", true).with("tie_word_embeddings", json!(true));
    let path = folder.path().join("model.safetensors");
    std::fs::write(folder.path().join("config.json"), source.config.to_string()).unwrap();
    write(&path, &source.tensors);
    let whole = std::fs::read(&path).unwrap();
    let open = || Checkpoint::open(folder.path(), &OpenOptions::default()).unwrap();
    assert!(open().config().hyperparameters().tied_embeddings);
    // The head is the last tensor, or the embedding the first.
    for at in [whole.len() - 1, whole.len() - 131 * 72] {
        let mut altered = whole.clone();
        altered[at] ^= 1;
        std::fs::write(&path, altered).unwrap();
        assert!(!open().config().hyperparameters().tied_embeddings, "{at}");
    }
}

#[test]
fn the_head_of_a_wrapped_checkpoint_is_used_whatever_both_configurations_say() {
    let says = [Json::Null, json!(true), json!(false)];
    for (whole, inner) in says.iter().flat_map(|a| says.iter().map(move |b| (a, b))) {
        let source = |has_head| {
            let source = Source::tiny("mistral", has_head);
            let mut inner_config = source.config.clone();
            inner_config["tie_word_embeddings"] = inner.clone();
            let mut config = json!({
                "architectures": ["Mistral3ForConditionalGeneration"],
                "model_type": "mistral3",
                "tie_word_embeddings": whole,
                "text_config": inner_config,
            });
            let inner = config["text_config"].as_object_mut().unwrap();
            inner.remove("architectures");
            let tensors = source.tensors.into_iter();
            let tensors =
                tensors.map(|(name, shape, byte)| (format!("language_model.{name}"), shape, byte));
            Source { config, names: source.names, tensors: tensors.collect() }
        };
        let case = format!("{whole} {inner}");
        let says_tied = whole.as_bool().or(inner.as_bool());
        let warns = says_tied == Some(true);
        source(true).filled(HEAD, 1).check_head(false, (0, 1), warns, &case);
        match says_tied {
            Some(false) => assert!(source(false).load().is_err(), "{case}"),
            _ => source(false).check_head(true, (0, 0), false, &case),
        }
    }
}

#[test]
fn biases_that_the_configuration_denies_are_left_out_of_every_family() {
    for family in families::names() {
        let mut source = Source::tiny(family, true);
        let plain = source.load().unwrap().0.tensors().len();
        let matrices = source.tensors.iter().filter(|(name, ..)| name.ends_with(".weight"));
        let biases = matrices.map(|(name, shape, _)| {
            (name.trim_end_matches("weight").to_owned() + "bias", shape[..1].to_vec(), 1)
        });
        let known = |name: &String| source.tensors.iter().any(|(known, ..)| known == name);
        let biases: Vec<_> = biases.filter(|(name, ..)| !known(name)).collect();
        let expected = format!("the model has no bias {}", biases[0].0);
        source.tensors.extend(biases);
        let (checkpoint, _folder) =
            source.load().unwrap_or_else(|error| panic!("{family}: {error}"));
        let left: Vec<_> = checkpoint.tensors().map(|view| &view.source_name).collect();
        assert_eq!(checkpoint.tensors().len(), plain, "{family}: {left:?}");
        let warnings = checkpoint.warnings();
        assert!(warnings.iter().any(|it| it.contains(&expected)), "{family}: {warnings:?}");
    }
}

#[test]
fn biases_count_where_a_flag_declares_them_that_the_family_reads() {
    let check = |family: &str, flag: &str, part: &str, counts: bool| {
        let mut source = Source::tiny(family, true).with(flag, json!(true));
        let is_part = |name: &str| name.contains(part) && name.ends_with("_proj.weight");
        let parts = source.tensors.iter().filter(|(name, ..)| is_part(name));
        let bias = |(name, shape, _): &(String, Vec<usize>, u8)| {
            (name.replace(".weight", ".bias"), shape[..1].to_vec(), 1)
        };
        let biases: Vec<_> = parts.map(bias).collect();
        source.tensors.extend(biases);
        let (checkpoint, _folder) = source.open().unwrap();
        let has = checkpoint.tensors().any(|view| {
            is_part(&view.source_name.replace(".bias", ".weight"))
                && view.source_name.ends_with(".bias")
        });
        assert_eq!((has, checkpoint.warnings().is_empty()), (counts, counts), "{family}, {flag}");
    };
    check("llama", "attention_bias", "self_attn", true);
    check("llama", "mlp_bias", "mlp", true);
    check("llama", "other_bias", "self_attn", false);
    check("qwen3", "attention_bias", "self_attn", true);
    check("qwen3", "mlp_bias", "mlp", false);
    check("mistral", "attention_bias", "self_attn", false);
    check("phi3", "attention_bias", "self_attn", false);
    check("exaone4", "attention_bias", "self_attn", false);
    check("lfm2", "attention_bias", "self_attn", false);
}
