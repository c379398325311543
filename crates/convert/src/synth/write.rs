//! Writes a planned checkpoint: its configuration, its vocabulary, then its weights as a stream.
//!
//! Invariant: memory does not grow with the checkpoint.

use super::matrix_types::MatrixTypes;
use super::plan::SynthPlan;
use super::vocabulary;
use super::weights::RandomWeights;
use crate::progress::WorkProgress;
use crate::quantize::{Mixture, ModelTraits, is_matrix, mixed_type};
use crate::types::whole_blocks;
use anyhow::{Context, Result, bail};
use formats::gguf::{GgufWriter, Value};
use formats::layers::TensorForm;
use formats::safetensors::SafetensorsWriter;
use formats::{ModelConfig, TensorStream, families, names};
use kernels::quant::{self, QuantType};
use serde_json::Value as Json;
use std::path::{Path, PathBuf};

/// What the names of routers end with.
const ROUTER: &str = ".ffn_gate_inp.weight";

/// A tensor to write.
struct Tensor {
    name: String,
    shape: Vec<usize>,
    ty: &'static QuantType,
    /// The value of all weights, if they are not random.
    constant: Option<f32>,
    /// Where it holds numbers instead of weights: all are below this.
    end: Option<usize>,
}

/// Writes a GGUF file where `out` ends in `.gguf`, else a folder in Hugging Face's layout.
///
/// # Errors
///
/// A vocabulary without space for all bytes, a type that the format lacks, and errors of the
/// file system. Then no file is left, and files of before stay.
pub fn write(plan: &SynthPlan, out: &Path, progress: &mut dyn WorkProgress) -> Result<()> {
    let mut plan = plan.clone();
    let (found, least) = (plan.config.vocab, vocabulary::MIN_TOKENS);
    if found < least {
        bail!("expected at least {least} tokens (bytes and special tokens), found {found}");
    }
    plan.config.special = vocabulary::special_ids();
    match is_gguf(out) {
        true => write_gguf(&plan, out, progress),
        false => write_folder(&plan, out, progress),
    }
}

/// Whether a path names a GGUF file.
pub(super) fn is_gguf(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "gguf")
}

fn write_folder(plan: &SynthPlan, out: &Path, progress: &mut dyn WorkProgress) -> Result<()> {
    let config = &plan.config;
    if config.drafter.is_some() {
        bail!("only GGUF files (-o NAME.gguf) are written with layers of multi-token prediction");
    }
    let names = families::name_table(&config.architecture).context("no names for its tensors")?;
    let ty = match plan.types {
        MatrixTypes::One(ty) => ty,
        MatrixTypes::Mixed(mixture) => {
            bail!("only GGUF files (-o NAME.gguf) hold the mixture {}", mixture.name)
        }
    };
    let tensors = typed(config, TensorForm::Hf, |_, _| ty);
    let mut writer = SafetensorsWriter::new();
    for Tensor { name, shape, ty, .. } in &tensors {
        let source = names.source(name).with_context(|| format!("no name for tensor {name}"))?;
        writer.plan(&source, ty, shape).context("only GGUF files (-o NAME.gguf) hold this type")?;
    }
    let (tokenizer, settings) = vocabulary::to_hf_json(config.vocab);
    progress.start(total(&tensors));
    let mut files = UnfinishedFiles::default();
    files.write(&out.join("config.json"), &config.to_hf_json()?)?;
    files.write(&out.join("generation_config.json"), &vocabulary::generation_json())?;
    files.write(&out.join("tokenizer.json"), &tokenizer)?;
    files.write(&out.join("tokenizer_config.json"), &settings)?;
    let stream = writer.create(&out.join("model.safetensors"))?;
    write_weights(stream, plan, &tensors, &[], progress)?;
    files.finish()
}

/// JSON files that get their names when all is written, and are removed otherwise.
#[derive(Default)]
struct UnfinishedFiles(Vec<(PathBuf, PathBuf)>);

impl UnfinishedFiles {
    fn write(&mut self, path: &Path, value: &Json) -> Result<()> {
        let text = serde_json::to_string_pretty(value)? + "\n";
        let unfinished = path.with_added_extension("incomplete");
        self.0.push((unfinished.clone(), path.to_owned()));
        let written = std::fs::write(unfinished, text);
        written.with_context(|| format!("cannot write {}", path.display()))
    }

    fn finish(self) -> Result<()> {
        self.0.iter().try_for_each(|(unfinished, path)| {
            let named = std::fs::rename(unfinished, path);
            named.with_context(|| format!("cannot write {}", path.display()))
        })
    }
}

impl Drop for UnfinishedFiles {
    fn drop(&mut self) {
        // After `finish` there are none under these names.
        self.0.iter().for_each(|(unfinished, _)| drop(std::fs::remove_file(unfinished)));
    }
}

fn write_gguf(plan: &SynthPlan, out: &Path, progress: &mut dyn WorkProgress) -> Result<()> {
    let config = &plan.config;
    let mut writer = GgufWriter::new();
    config.to_gguf(&mut writer)?;
    writer.set("general.quantization_version", Value::U32(2));
    vocabulary::to_gguf(config.vocab, &mut writer);
    let model = ModelTraits::of(config);
    let file_type = match plan.types {
        MatrixTypes::One(ty) => Mixture::file_type_of(ty),
        MatrixTypes::Mixed(mixture) => Some(mixture.file_type),
    };
    if let Some(file_type) = file_type {
        writer.set("general.file_type", Value::U32(file_type));
    }
    let tensors = typed(config, TensorForm::Gguf, |name, shape| match plan.types {
        MatrixTypes::One(ty) => gguf_type(ty, name, shape),
        MatrixTypes::Mixed(mixture) => mixed_type(mixture, &model, name, shape),
    });
    for Tensor { name, shape, ty, .. } in &tensors {
        writer.plan(&config.gguf_tensor_name(name), ty, shape)?;
    }
    let factors = config.factor_tensors();
    for (name, values) in &factors {
        writer.plan(name, &quant::F32, &[values.len()])?;
    }
    let factors: Vec<f32> = factors.into_iter().flat_map(|(_, values)| values).collect();
    progress.start(total(&tensors));
    write_weights(writer.create(out)?, plan, &tensors, &factors, progress)
}

fn typed(
    config: &ModelConfig,
    form: TensorForm,
    ty: impl Fn(&str, &[usize]) -> &'static QuantType,
) -> Vec<Tensor> {
    let experts = config.hyperparameters().experts.as_ref().map_or(0, |experts| experts.count);
    let tensor = |(name, shape): (String, Vec<usize>)| {
        let end = names::holds_ids(&name).then_some(experts);
        let integers = if form == TensorForm::Gguf { "i32" } else { "i64" };
        let integers = end.and_then(|_| quant::by_name(integers));
        let constant = config.constant(&name, form);
        let ty = integers.unwrap_or_else(|| ty(&name, &shape));
        Tensor { ty, constant, name, shape, end }
    };
    config.tensors(form).into_iter().map(tensor).collect()
}

/// The type of a tensor in a GGUF file, as converters choose it: vectors, biases and routers are
/// F32, short convolutions too, rows that are not whole blocks get the closest type.
fn gguf_type(ty: &'static QuantType, name: &str, shape: &[usize]) -> &'static QuantType {
    match shape.last() {
        Some(columns) if is_matrix(name, shape) => whole_blocks(ty, *columns),
        _ => &quant::F32,
    }
}

impl Tensor {
    fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Bytes of the tensor. The writers have refused sizes that overflow.
    fn bytes(&self) -> usize {
        self.ty.bytes_for(self.elements()).unwrap_or(0)
    }
}

/// Bytes of all tensors.
fn total(tensors: &[Tensor]) -> u64 {
    tensors.iter().map(|tensor| tensor.bytes() as u64).sum()
}

/// Writes the data of a file: the tensors, then the divisors of the rotary frequencies.
fn write_weights(
    mut stream: TensorStream,
    plan: &SynthPlan,
    tensors: &[Tensor],
    factors: &[f32],
    progress: &mut dyn WorkProgress,
) -> Result<()> {
    let elements = tensors.iter().map(Tensor::elements).max().unwrap_or(0);
    let mut weights = RandomWeights::new(plan.seed, elements);
    for tensor in tensors {
        let mut missing = tensor.bytes();
        if let [experts, cols] = tensor.shape[..]
            && plan.routing_skew > 0.0
            && tensor.name.ends_with(ROUTER)
        {
            for factor in weights.zipf(experts, plan.routing_skew) {
                let row = weights.router_row(factor, cols, tensor.ty);
                stream.write(row)?;
                missing -= row.len();
                progress.advance(row.len() as u64);
            }
        }
        while missing > 0 {
            // An unfinished file is removed when the stream is dropped.
            progress.check()?;
            let piece = match tensor.end {
                Some(end) => weights.numbers(end, &tensor.shape, tensor.ty, missing),
                None => weights.piece(tensor.constant, tensor.ty, missing),
            };
            stream.write(piece)?;
            missing -= piece.len();
            progress.advance(piece.len() as u64);
        }
    }
    let factors: Vec<u8> = factors.iter().flat_map(|value| value.to_le_bytes()).collect();
    stream.write(&factors)?;
    Ok(stream.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synth::shapes;
    use formats::{Checkpoint, OpenOptions};

    /// Writes a checkpoint of the shape into a folder; returns its path and its bytes.
    fn written(
        folder: &Path,
        shape: &str,
        ty: &'static QuantType,
        (name, seed): (&str, u64),
    ) -> (PathBuf, Vec<u8>) {
        let out = folder.join(name);
        if !is_gguf(&out) {
            std::fs::create_dir(&out).unwrap();
        }
        let config = super::super::named_shape(shape).unwrap();
        let types = MatrixTypes::One(ty);
        write(&SynthPlan { config, types, seed, routing_skew: 0.0 }, &out, &mut ()).unwrap();
        let file = if is_gguf(&out) { out.clone() } else { out.join("model.safetensors") };
        let bytes = std::fs::read(file).unwrap();
        (out, bytes)
    }

    #[test]
    fn every_tiny_shape_opens_again_in_both_formats() {
        for shape in shapes::names().filter(|name| name.starts_with("tiny")) {
            for (ty, name) in [(&quant::BF16, "hf"), (&quant::Q4_K, "x.gguf")] {
                let folder = tempfile::tempdir().unwrap();
                let (out, _) = written(folder.path(), shape, ty, (name, 1));
                let checkpoint = Checkpoint::open(&out, &OpenOptions::default()).unwrap();
                let expected = super::super::named_shape(shape).unwrap();
                assert_eq!(
                    checkpoint.config().hyperparameters().windows,
                    expected.hyperparameters().windows,
                    "{shape}"
                );
                assert_eq!(
                    checkpoint.config().hyperparameters().experts,
                    expected.hyperparameters().experts,
                    "{shape}"
                );
                assert_eq!(
                    checkpoint.config().hyperparameters().latent,
                    expected.hyperparameters().latent,
                    "{shape}"
                );
                let layers = |config: &ModelConfig| {
                    config.hyperparameters().delta.clone().map(|delta| delta.layers)
                };
                assert_eq!(layers(checkpoint.config()), layers(&expected), "{shape}");
                let is_gguf = checkpoint.gguf().is_some();
                let form = if is_gguf { TensorForm::ReadGguf } else { TensorForm::Read };
                for (name, shape) in expected.tensors(form) {
                    if names::holds_ids(&name) {
                        checkpoint.ids(&name, &shape, 8).unwrap();
                    } else {
                        checkpoint.require(&name, &shape).unwrap();
                    }
                }
                checkpoint.check_all_read().unwrap();
            }
        }
    }

    /// Work that is interrupted when it has begun.
    struct Interrupting;

    impl WorkProgress for Interrupting {
        fn check(&self) -> Result<(), base::Interrupted> {
            Err(base::Interrupted)
        }
    }

    #[test]
    fn interrupted_work_leaves_no_file_and_those_that_were_there() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.json"), "old").unwrap();
        let config = super::super::named_shape("tiny-qwen3").unwrap();
        let types = MatrixTypes::One(&quant::BF16);
        let plan = SynthPlan { config, types, seed: 0, routing_skew: 0.0 };
        for out in [folder.path().to_owned(), folder.path().join("a.gguf")] {
            assert!(write(&plan, &out, &mut Interrupting).is_err());
            let left = folder.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name());
            assert_eq!(left.collect::<Vec<_>>(), ["config.json"]);
        }
        assert_eq!(std::fs::read(folder.path().join("config.json")).unwrap(), b"old");
    }

    #[test]
    fn the_seed_decides_every_byte() {
        let folder = tempfile::tempdir().unwrap();
        let bytes = |name, seed| written(folder.path(), "tiny-qwen3", &quant::Q8_0, (name, seed)).1;
        let [first, again, other] =
            [("a.gguf", 5), ("b.gguf", 5), ("c.gguf", 6)].map(|(name, seed)| bytes(name, seed));
        assert_eq!(first, again);
        assert_ne!(first, other);
    }

    #[test]
    fn skewed_routers_have_rows_whose_norms_follow_zipf() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["skewed.gguf", "skewed-hf"] {
            let out = folder.path().join(name);
            super::super::prepare(&out, true).unwrap();
            let config = super::super::named_shape("tiny-deepseek-v3").unwrap();
            let config = super::super::resized(&config, Some(3), None);
            let types = MatrixTypes::One(&quant::BF16);
            let plan = SynthPlan { config, types, seed: 4, routing_skew: 1.0 };
            write(&plan, &out, &mut ()).unwrap();
            let checkpoint = Checkpoint::open(&out, &OpenOptions::default()).unwrap();
            let orders = [1, 2].map(|layer| {
                let router = format!("blk.{layer}{ROUTER}");
                let router = checkpoint.require(&router, &[16, 256]).unwrap().to_f32().unwrap();
                let norm = |row: &[f32]| row.iter().map(|value| value * value).sum::<f32>().sqrt();
                let norms: Vec<f32> = router.chunks_exact(256).map(norm).collect();
                let mut order: Vec<usize> = (0..16).collect();
                order.sort_by(|a, b| norms[*b].total_cmp(&norms[*a]));
                for (rank, expert) in (1_u8..).zip(&order).take(6) {
                    // A row of normal values has about the norm of its deviation.
                    let norm = norms[*expert] * f32::from(rank) / (0.02 * 16.0);
                    assert!((0.7..1.4).contains(&norm), "{rank}: {norm}");
                }
                order
            });
            assert_ne!(orders[0], orders[1], "{name}");
        }
    }

    #[test]
    fn mixtures_give_each_tensor_the_type_that_quantising_gives_it() {
        let shapes = || shapes::names().filter(|name| name.starts_with("tiny"));
        let pairs = shapes().flat_map(|shape| [(shape, "q4_k_m"), (shape, "q2_k")]);
        // Its search takes long: one shape with experts.
        let pairs = pairs.chain([("tiny-qwen3-moe", "iq3_xs")]);
        for (shape, name) in pairs {
            let mixture = crate::Mixture::named(name).unwrap();
            let folder = tempfile::tempdir().unwrap();
            let (plain, _) = written(folder.path(), shape, &quant::F32, ("plain.gguf", 1));
            let quantized = plain.with_extension("mixed.gguf");
            let options =
                crate::QuantizeOptions { force: true, ..crate::QuantizeOptions::new(mixture) };
            crate::quantize(&plain, &quantized, &options, &mut ()).unwrap();
            let synthetic = plain.with_extension("synth.gguf");
            let config = super::super::named_shape(shape).unwrap();
            // A name that a type has too, such as q2_k, is the type elsewhere.
            let plan = SynthPlan {
                config,
                types: MatrixTypes::Mixed(mixture),
                seed: 1,
                routing_skew: 0.0,
            };
            write(&plan, &synthetic, &mut ()).unwrap();
            let types = |path: &Path| -> Vec<(String, &'static str)> {
                let files = formats::ModelFiles::open(path).unwrap();
                let tensor = |it: &formats::TensorView| (it.name.clone(), it.ty.name);
                let mut types: Vec<_> = files.tensors().iter().map(tensor).collect();
                types.sort();
                types
            };
            assert_eq!(types(&synthetic), types(&quantized), "{shape} {name}");
            Checkpoint::open(&synthetic, &OpenOptions::default()).unwrap();
        }
        let config = super::super::named_shape("tiny-qwen3").unwrap();
        let plan = SynthPlan {
            config,
            types: MatrixTypes::named("q4_k_m").unwrap(),
            seed: 0,
            routing_skew: 0.0,
        };
        let error = write(&plan, Path::new("folder"), &mut ()).unwrap_err().to_string();
        assert_eq!(error, "only GGUF files (-o NAME.gguf) hold the mixture q4_k_m");
        assert!(MatrixTypes::named("q4_k_x").unwrap_err().contains("q4_k_m"));
    }

    #[test]
    fn a_vocabulary_smaller_than_all_bytes_is_refused() {
        let mut config = super::super::named_shape("tiny-qwen3").unwrap();
        config = config.with(|said| said.vocab_size = 200);
        let plan =
            SynthPlan { config, types: MatrixTypes::One(&quant::BF16), seed: 0, routing_skew: 0.0 };
        let error = write(&plan, Path::new("unused.gguf"), &mut ()).unwrap_err().to_string();
        assert!(error.contains("found 200"), "{error}");
    }
}
