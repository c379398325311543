//! A checkpoint: weights under canonical names and one normalised configuration.

mod biases;
mod canonical;
mod head;
mod mtp;
mod output_head;
mod tensors;

use base::math;
use canonical::BASE_PREFIX;
pub(crate) use canonical::{canonical_name, gguf_name};
use output_head::{EMBEDDING, OUTPUT};
use tensors::{Tracked, canonical_tensors, insert, tracked};

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::Ordering;

use indexmap::IndexMap;

use crate::config::family::Family;
use crate::config::gguf::FIRST_HEAD_NORM;
use crate::config::hf::HfConfig;
use crate::config::mtp::COPIES;
use crate::config::{DraftConfig, ModelConfig, WORD_IDS, WordIds};
use crate::error::{Error, Result};
use crate::file_header::FileHeaders;
use crate::files::ModelFiles;
use crate::generation::{GENERATION_FILE, GenerationDefaults};
use crate::gguf::{self, GgufFile};
use crate::json::{self, CONFIG_FILE, MAX_CONFIG_BYTES};
use crate::layers::{Presence, TensorSpec};
use crate::names::{self, HEAD_OUTPUT, NameTable};
use crate::pooling::Pooling;
use crate::sentence::SentenceConfig;
use crate::tensor::TensorView;
use crate::{families, native, ngrams};
use families::HeadKind;

/// The head of a decoder that scores texts.
const SCORE: &str = "score.weight";

/// Options for opening a checkpoint.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Display name that replaces the checkpoint's own.
    pub name: Option<String>,
    /// Headers of files that may be missing.
    pub headers: FileHeaders,
}

/// An open checkpoint. Weights stay mapped while the checkpoint or a view of it exists.
#[derive(Debug)]
pub struct Checkpoint {
    files: ModelFiles,
    config: ModelConfig,
    generation: GenerationDefaults,
    sentence: SentenceConfig,
    family: &'static Family,
    tensors: IndexMap<String, Tracked>,
    other_modalities: Vec<TensorView>,
    /// Tensors of layers after the last one, by their source names.
    more: Vec<TensorView>,
    warnings: Vec<String>,
}

impl Checkpoint {
    /// Opens a folder, a `.gguf` file or a `.safetensors` file with its folder.
    ///
    /// # Errors
    /// As [`ModelFiles::open`] and [`from_files`](Self::from_files).
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Self> {
        Self::from_files(ModelFiles::open_with(path, &options.headers)?, options)
    }

    /// Interprets files that are already open.
    ///
    /// # Errors
    /// If the configuration is invalid or of an unknown family, or tensors are missing or
    /// ambiguous.
    pub fn from_files(files: ModelFiles, options: &OpenOptions) -> Result<Self> {
        if let Some(kind) = HeadKind::of(&files)? {
            return Err(kind.is_no_model(files.path()));
        }
        let name = name_of(files.path());
        let joined = native::join(&files)?;
        let HfConfig { model: mut config, family, declared } = match files.gguf() {
            Some(gguf) => {
                let (model, family) = families::read_gguf(gguf, &name)?;
                HfConfig { model, family, declared: Vec::new() }
            }
            None => read_config(&files, &joined, &name)?,
        };
        if files.tensors().is_empty() {
            return Err(Error::file(files.path(), "expected weights, found no tensors"));
        }
        let mut generation = read_generation(&files)?;
        generation.suppressed.retain(|&id| (id as usize) < config.vocab);
        if !generation.eos.is_empty() {
            config.special.eos.clone_from(&generation.eos);
        }
        let sentence = read_sentence(&files)?;
        if let (true, Some(most)) = (config.is_encoder(), sentence.max_tokens) {
            config = config.with(|said| said.context_length = said.context_length.min(most));
        }
        config.name = options.name.clone().unwrap_or(config.name);
        let is_other = |view: &TensorView| {
            files.gguf().is_none() && family.names.is_of_other_modality(&view.source_name)
        };
        let (other_modalities, joined): (Vec<_>, Vec<_>) = joined.into_iter().partition(is_other);
        let is_more = |view: &TensorView| {
            family.more_layers && mtp::is_more(family, &view.source_name, config.layers.len())
        };
        let (more, joined) = joined.into_iter().partition(is_more);
        let name = |source: &str| match files.gguf() {
            Some(_) => gguf_name(family, source),
            None if is_score(&config, source) => HEAD_OUTPUT.to_owned(),
            None => canonical_name(family, &config, source),
        };
        let mut views = canonical_tensors(&files, joined, &config, family, &name)?;
        config = ngrams::settle(&mut views, config)?;
        let denied = match files.gguf() {
            Some(_) => None,
            None => biases::leave_out_denied(&mut views, family, &config, &declared),
        };
        let untied = output_head::settle(&mut views, &mut config);
        let tensors = tracked(views)?;
        // Checkpoints may have head norms that config.json does not declare.
        if family.may_norm_heads && tensors.contains_key(FIRST_HEAD_NORM) {
            config = config.with(|said| said.grouped.head_norms = true);
        }
        let path = files.path().display().to_string();
        let unsplit = files.gguf().and_then(|gguf| gguf::missing_pre_tokenizer(gguf.metadata()));
        let warnings =
            [denied, untied, unsplit].into_iter().flatten().map(|it| format!("{path}: {it}"));
        let warnings = warnings.collect();
        let checkpoint = Self {
            files,
            config,
            generation,
            sentence,
            family,
            tensors,
            other_modalities,
            more,
            warnings,
        };
        checkpoint.check_required(&declared)?;
        Ok(checkpoint)
    }

    /// The folder or file that was opened.
    pub fn path(&self) -> &Path {
        self.files.path()
    }

    /// The folder of a Hugging Face checkpoint, with tokenizer.json and other files.
    pub fn folder(&self) -> Option<&Path> {
        self.files.folder()
    }

    /// The GGUF file, if the checkpoint is one.
    pub fn gguf(&self) -> Option<&GgufFile> {
        self.files.gguf()
    }

    /// The model's configuration.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Number of layers of multi-token prediction that the checkpoint has; 0 in families of which
    /// they are not computed.
    pub fn mtp_layers(&self) -> usize {
        if let Some(mtp) = self.config.drafter.as_ref().and_then(DraftConfig::mtp) {
            return mtp.layers.len();
        }
        let Some(rules) = self.family.mtp.filter(|_| self.config.said.unknown_mtp.is_none()) else {
            return 0;
        };
        let is_gguf = self.gguf().is_some();
        let names = self.more.iter().map(|it| mtp::name(&self.config, is_gguf, &it.source_name));
        let names: BTreeSet<String> = names.collect();
        // Files may have a part of a layer alone.
        let projection = [rules.input.projections()[0].0, ".weight"].concat();
        let has = |layer: &&str| names.contains(&format!("blk.{layer}.{projection}"));
        let layers = names.iter().filter_map(|name| names::split_canonical(name));
        let begun = layers.filter(|(_, part)| *part == "attn_norm.weight");
        begun.filter(|(layer, _)| has(layer)).count()
    }

    /// Bytes of the tensors of these layers in the files.
    pub fn mtp_bytes(&self) -> usize {
        self.more.iter().map(|view| view.bytes().len()).sum()
    }

    /// The checkpoint with its layers of multi-token prediction: their tensors are among
    /// [`tensors`](Self::tensors), as tensors of layers after the last one, and the configuration
    /// has them.
    ///
    /// # Errors
    /// If it has none, they are not computed, or a tensor is missing.
    pub fn with_mtp(mut self) -> Result<Self> {
        let (family, count, is_gguf) = (self.family, self.mtp_layers(), self.gguf().is_some());
        let config = match self.config.clone().with_mtp(count) {
            Some(config) if count > 0 => config,
            _ => {
                if let (Some(unknown), false) =
                    (&self.config.said.unknown_mtp, self.more.is_empty())
                {
                    let path = self.folder().unwrap_or(self.path()).join(CONFIG_FILE);
                    return Err(Error::field(&path, unknown.field, &*unknown.problem));
                }
                let name = family.name;
                let problem = "expected layers of multi-token prediction that are computed";
                return Err(Error::file(self.path(), format!("{problem}, found none of {name}")));
            }
        };
        // As layers of the model, so that their files are read alike.
        let mut all = config.clone();
        (all.layers, all.drafter) = (config.all_layers().cloned().collect(), None);
        let name = |source: &str| mtp::name(&self.config, is_gguf, source);
        let mut views = canonical_tensors(&self.files, self.more.clone(), &all, family, &name)?;
        views.retain(|view| !COPIES.iter().any(|copy| view.name.ends_with(copy)));
        for tensor in tracked(views)?.into_values() {
            insert(&mut self.tensors, tensor)?;
        }
        self.config = config;
        match self.missing_of_drafter() {
            Some((name, shape)) => Err(self.missing(&name, &shape)),
            None => Ok(self),
        }
    }

    /// The checkpoint with a head that drafts tokens for its model, from the files of that head:
    /// their tensors are among [`tensors`](Self::tensors), as tensors of layers after the last one,
    /// and the configuration has the head. A head shares the model's embeddings where it has none.
    ///
    /// # Errors
    /// If the files hold no head, or a head for another model: the error says what differs. If a
    /// tensor is missing or the checkpoint has another drafter.
    pub fn with_head(mut self, files: &ModelFiles) -> Result<Self> {
        if self.config.drafter.is_some() {
            let problem = "expected a model without a drafter of its own";
            return Err(Error::file(files.path(), problem));
        }
        let views = head::read(files, &name_of(files.path()), &mut self.config)?;
        for tensor in tracked(views)?.into_values() {
            insert(&mut self.tensors, tensor)?;
        }
        match self.missing_of_drafter() {
            Some((name, shape)) => {
                let problem = format!("expected shape {shape:?}, found no such tensor");
                Err(Error::tensor(files.path(), &name, problem))
            }
            None => Ok(self),
        }
    }

    /// The words that the head drafts, by their numbers in the model's vocabulary; `None` where
    /// there is no head or one that drafts all words. Their tensor is marked as read.
    ///
    /// # Errors
    /// If the tensor is malformed or has a number that is no word.
    pub fn drafted_words(&self) -> Result<Option<Vec<u32>>> {
        let Some(DraftConfig::Eagle3(head)) = &self.config.drafter else { return Ok(None) };
        let name = format!("blk.{}.{WORD_IDS}", self.config.layers.len());
        match self.tensor(&name).filter(|_| head.ids != WordIds::All) {
            Some(view) => head::words(view, head, self.config.vocab).map(Some),
            None => Ok(None),
        }
    }

    /// The first tensor that a drafter needs and the checkpoint lacks: name and shape.
    fn missing_of_drafter(&self) -> Option<(String, Vec<usize>)> {
        let ModelConfig { hidden, vocab, ref layers, .. } = self.config;
        let parts = self.config.drafter.as_ref()?.loaded(hidden, vocab);
        let named = (layers.len()..).zip(parts).flat_map(|(number, part)| {
            part.into_iter().map(move |tensor| (format!("blk.{number}.{}", tensor.name), tensor))
        });
        let mut required = named.filter(|(_, tensor)| tensor.presence == Presence::Required);
        let (name, tensor) = required.find(|(name, _)| !self.tensors.contains_key(name))?;
        Some((name, tensor.shape))
    }

    /// Sampling defaults; empty for GGUF files.
    pub fn generation_defaults(&self) -> &GenerationDefaults {
        &self.generation
    }

    /// How texts become vectors, as far as the checkpoint says.
    pub fn sentence(&self) -> &SentenceConfig {
        &self.sentence
    }

    /// The tensor with this canonical name, marked as read.
    pub fn tensor(&self, name: &str) -> Option<&TensorView> {
        let tracked = self.tensors.get(name)?;
        tracked.read.store(true, Ordering::Relaxed);
        Some(&tracked.view)
    }

    /// The tensor with this canonical name and shape, in a supported type, marked as read.
    ///
    /// # Errors
    /// If there is no such tensor, or its shape or type differs. Integers are codes without the
    /// settings of their quantisation: the error says which files may have them.
    pub fn require(&self, name: &str, shape: &[usize]) -> Result<&TensorView> {
        let view = self.tensor(name).ok_or_else(|| self.missing(name, shape))?;
        view.check_here()?;
        if self.gguf().is_none() && view.is_integer() {
            return Err(native::no_floats(view, self.folder()));
        }
        if view.shape != shape {
            let problem = format!("expected shape {shape:?}, found {:?}", view.shape);
            return Err(view.error(problem));
        }
        if !view.ty.is_supported() {
            return Err(view.unsupported_type());
        }
        Ok(view)
    }

    /// The numbers in the tensor with this canonical name and shape, marked as read: integers of
    /// 32 or 64 bits from 0 to `end`, `end` excluded.
    ///
    /// # Errors
    /// If there is no such tensor, its shape or type differs, or a number is out of range.
    pub fn ids(&self, name: &str, shape: &[usize], end: u32) -> Result<Vec<u32>> {
        let view = self.tensor(name).ok_or_else(|| self.missing(name, shape))?;
        if view.shape != shape {
            let problem = format!("expected shape {shape:?}, found {:?}", view.shape);
            return Err(view.error(problem));
        }
        let numbers = view.integers()?.into_iter();
        let checked = numbers.enumerate().map(|(at, number)| {
            let id = u32::try_from(number).ok().filter(|id| *id < end);
            let expected = || format!("expected numbers from 0 to {}", end.saturating_sub(1));
            id.ok_or_else(|| view.error(format!("{}, found {number} as value {at}", expected())))
        });
        checked.collect()
    }

    /// The exponentials of the numbers in the tensor with this canonical name and shape, marked as
    /// read.
    ///
    /// # Errors
    /// If there is no such tensor, its shape or type differs, or an exponential is not finite.
    pub fn exponentials(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        let view = self.require(name, shape)?;
        let exponentials = view.to_f32()?.into_iter().enumerate().map(|(at, number)| {
            Some(math::exp(f64::from(number)) as f32).filter(|found| found.is_finite()).ok_or_else(
                || {
                    let expected = "expected numbers whose exponentials are finite";
                    view.error(format!("{expected}, found {number} as value {at}"))
                },
            )
        });
        exponentials.collect()
    }

    /// The files that hold the tensors, each once.
    pub fn weight_files(&self) -> Vec<std::path::PathBuf> {
        self.files.paths()
    }

    /// All tensors in the order of the files, without marking them as read.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = &TensorView> {
        self.tensors.values().map(|tracked| &tracked.view)
    }

    /// Tensors that were not read yet. After a model is loaded there must be none.
    pub fn unread(&self) -> impl Iterator<Item = &TensorView> {
        let unread = self.tensors.values().filter(|t| !t.read.load(Ordering::Relaxed));
        unread.map(|tracked| &tracked.view)
    }

    /// Tensors of modalities other than text, such as an image encoder's. They are not among
    /// [`tensors`](Self::tensors), and are not read.
    pub fn other_modalities(&self) -> &[TensorView] {
        &self.other_modalities
    }

    /// What the user should know about tensors that contradict the configuration: which of them are
    /// used.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// An error that names the first unread tensor, if there is one.
    ///
    /// # Errors
    /// If a tensor was not read.
    pub fn check_all_read(&self) -> Result<()> {
        let Some(first) = self.unread().next() else { return Ok(()) };
        let more = match self.unread().count() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        let architecture = &self.config.architecture;
        let problem = format!("no part of a {architecture} model{more}");
        Err(first.error(problem))
    }

    /// Checks that required and declared tensors exist: other code loads biases only if present.
    fn check_required(&self, declared: &[&str]) -> Result<()> {
        for layer in 0..self.config.layers.len() {
            let in_layer = |part: &str| format!("blk.{layer}.{part}");
            // Layers differ in what they project.
            let projects = |part: &&&str| match part.strip_suffix(".bias") {
                Some(stem) => self.tensors.contains_key(&in_layer(&format!("{stem}.weight"))),
                None => true,
            };
            let declared: Vec<_> = declared.iter().filter(projects).collect();
            for TensorSpec { name: part, shape, presence, .. } in
                self.config.layers[layer].loaded(self.config.hidden)
            {
                let required = presence == Presence::Required && part.ends_with(".bias");
                let name = in_layer(&part);
                if (required || declared.contains(&&&*part)) && !self.tensors.contains_key(&name) {
                    return Err(self.missing(&name, &shape));
                }
            }
        }
        Ok(())
    }

    /// A source name with the prefix that the checkpoint's other names have.
    fn wrapped(&self, source: String) -> String {
        let names = &self.family.names;
        let wrapper = |tensor: &Tracked| names.wrapper(&tensor.view.source_name);
        let found = self.tensors.values().find_map(wrapper);
        match found.and_then(|(prefix, plain)| Some((prefix, source.strip_prefix(plain)?))) {
            Some((prefix, rest)) => format!("{prefix}{rest}"),
            None => source,
        }
    }

    fn missing(&self, name: &str, shape: &[usize]) -> Error {
        let source = match self.files.gguf() {
            Some(_) => None,
            None => self.family.names.source(name).map(|source| self.wrapped(source)),
        };
        let source = source.as_deref().unwrap_or(name);
        Error::tensor(
            self.path(),
            source,
            format!("expected shape {shape:?}, found no such tensor"),
        )
    }
}

fn name_of(path: &Path) -> String {
    let part = if path.is_dir() { path.file_name() } else { path.file_stem() };
    part.map_or_else(|| "model".to_owned(), |part| part.to_string_lossy().into_owned())
}

fn read_config(files: &ModelFiles, tensors: &[TensorView], name: &str) -> Result<HfConfig> {
    let path = files.folder().unwrap_or(Path::new("")).join(CONFIG_FILE);
    let text = json::read_text(&path, MAX_CONFIG_BYTES)?;
    let has_own_head = |names: &NameTable| {
        let canonical = |source: &str| names.canonical(source);
        let with_prefix = |source: &str| canonical(&format!("{BASE_PREFIX}{source}"));
        let is = |source: &str, name| {
            canonical(source).or_else(|| with_prefix(source)).as_deref() == Some(name)
        };
        let has = |name| tensors.iter().any(|view| is(&view.source_name, name));
        has(OUTPUT) && has(EMBEDDING)
    };
    families::read_hf(&text, &path, name, has_own_head)
}

fn read_generation(files: &ModelFiles) -> Result<GenerationDefaults> {
    if let Some(gguf) = files.gguf() {
        return GenerationDefaults::from_gguf(gguf.metadata());
    }
    let path = files.folder().map(|folder| folder.join(GENERATION_FILE));
    // A broken or circular link counts as existing, so that it is reported.
    match path.filter(|path| !matches!(path.try_exists(), Ok(false))) {
        Some(path) => {
            GenerationDefaults::from_json(&json::read_text(&path, MAX_CONFIG_BYTES)?, &path)
        }
        None => Ok(GenerationDefaults::default()),
    }
}

fn read_sentence(files: &ModelFiles) -> Result<SentenceConfig> {
    match (files.gguf(), files.folder()) {
        (Some(gguf), _) => {
            Ok(SentenceConfig { pooling: Pooling::from_gguf(gguf)?, ..SentenceConfig::default() })
        }
        (None, Some(folder)) => SentenceConfig::read(folder),
        (None, None) => Ok(SentenceConfig::default()),
    }
}

/// Whether the source tensor is the head of a decoder that scores texts.
fn is_score(config: &ModelConfig, source: &str) -> bool {
    let scores = config.said.classifier.is_some() && config.said.encoder.is_none();
    scores && source == SCORE
}
