//! The model families: one file each, and the table of them.
//!
//! Invariant: the canonical name of a family is a literal in its file only.

mod afmoe;
mod bailing_hybrid;
mod bert;
mod cohere2;
mod deepseek_v2;
mod deepseek_v3;
mod deepseek_v32;
mod deepseek_v4;
mod eagle3;
mod ernie4_5;
mod ernie4_5_moe;
mod exaone4;
mod exaone_moe;
mod falcon_h1;
mod gemma3;
mod gemma4;
mod gemma4_assistant;
mod glm4;
mod glm4_moe;
mod glm4_moe_lite;
mod glm5_next;
mod glm_moe_dsa;
mod gpt2;
mod gpt_oss;
mod granite;
mod granite_swa;
mod granitemoehybrid;
mod heads;
mod hunyuan_v1_dense;
mod hy_v3;
mod hy_v4;
mod kimi_linear;
mod kinds;
mod laguna;
mod lfm2;
mod lfm3;
mod llama;
mod llama4;
mod mellum;
mod mimo_v2;
mod minimax_m2;
mod minimax_m3;
mod ministral3;
mod mistral;
mod mistral4;
mod mistral_large4;
mod mixtral;
mod modernbert;
mod muse_glimmer;
mod nemotron_h;
mod nomic_bert;
mod olmo3;
mod phi3;
mod prelude;
mod qwen2;
mod qwen2_moe;
mod qwen3;
mod qwen3_5;
mod qwen3_5_moe;
mod qwen3_moe;
mod qwen3_next;
mod qwen4_exp;
mod seed_oss;
mod smollm3;
mod starcoder2;
mod step3p7;
mod table;
#[cfg(test)]
mod tests;
mod xlm_roberta;

pub(crate) use eagle3::Eagle3Tensors;
pub(crate) use gemma4_assistant::look_back;
pub use heads::HeadKind;
pub(crate) use heads::{DraftHead, OwnSettings, read_head};
pub use kinds::{known_tensor, layer_of, tensor_kind};
use table::{ENCODERS, FAMILIES, all};

use std::path::Path;

use serde_json::Value as Json;

use crate::chat::ChatRules;
use crate::config::family::{Family, HfRules};
use crate::config::fields::GgufKeys;
use crate::config::hf::{self, HfConfig, SCORES_TEXTS};
use crate::config::write::Tensors;
use crate::config::{ModelConfig, SpecialIds, gguf};
use crate::delta;
use crate::error::{Error, Result, shown};
use crate::gguf::{GgufFile, GgufWriter};
use crate::json::{self, Object};
use crate::layers::NGRAM_TABLE;
use crate::layers::RopeLayout;
use crate::layers::TensorForm;
use crate::names::{self, NamePairs, NameTable};

/// What stands for a task at the end of the name of a class.
const TASKS: &[&str] =
    &["ForCausalLM", "LMHeadModel", "Model", SCORES_TEXTS, "ForMaskedLM", "ForPreTraining"];

/// The name of a class without its task.
fn stem(class: &str) -> &str {
    TASKS.iter().find_map(|task| class.strip_suffix(task)).unwrap_or(class)
}

/// The family that config.json names: by class, or by `model_type` where no class is given.
fn of_hf(config: Object) -> Result<&'static Family> {
    let classes = config.array("architectures")?.unwrap_or_default();
    let class = classes.first().map(|class| class_name(config, class)).transpose()?;
    let name = match class {
        Some(class) => Some(class),
        None => config.text("model_type")?,
    };
    let name = config.need("architectures", "a list of one class", name)?;
    let has_type = |family: &Family, name| family.name == name || family.hf.types.contains(&name);
    // Several families may have one class of checkpoints that hold other modalities too.
    let inner = config.object("text_config")?.map(|inner| inner.text("model_type"));
    let inner = inner.transpose()?.flatten();
    let known = |family: &&Family| match class {
        Some(class) if family.hf.wrapper == class => {
            let shared = FAMILIES.iter().filter(|other| other.hf.wrapper == class).count() > 1;
            !shared || inner.is_some_and(|inner| has_type(family, inner))
        }
        Some(class) => {
            let classes = std::iter::once(&family.hf.class).chain(family.hf.classes);
            { classes }.any(|known| stem(known) == stem(class))
        }
        None => has_type(family, name),
    };
    let supported = || all().map(|family| family.name);
    all().find(known).ok_or_else(|| unknown(config.path, name, supported()))
}

fn class_name<'a>(config: Object, class: &'a Json) -> Result<&'a str> {
    class.as_str().ok_or_else(|| {
        let found = json::describe(class);
        config.error("architectures", format!("expected the name of a class, found {found}"))
    })
}

/// The family of a GGUF file, by `general.architecture`, other metadata and names of tensors.
fn of_gguf(keys: &GgufKeys, file: &GgufFile) -> Result<&'static Family> {
    for family in all().filter(|family| family.gguf_names().any(|it| it == keys.prefix)) {
        if (family.gguf.is)(keys, file)? {
            return Ok(family);
        }
    }
    let mut supported: Vec<_> = all().flat_map(|family| family.gguf_names()).collect();
    supported.dedup();
    Err(unknown(keys.metadata.path(), keys.prefix, supported.into_iter()))
}

/// Canonical names of all families of encoders.
pub fn encoders() -> impl Iterator<Item = &'static str> {
    ENCODERS.iter().map(|family| family.name)
}

/// Canonical names of all families that generate text.
pub fn names() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().map(|family| family.name)
}

/// The table of Hugging Face tensor names of the family with this canonical name.
pub fn name_table(architecture: &str) -> Option<&'static NameTable> {
    by_name(architecture).map(|family| &family.names)
}

/// Pairs of names of tensors of the family's layers of multi-token prediction, beyond those of all
/// layers: within each of the numbered parts that a layer has in Hugging Face checkpoints, and
/// canonical. `None` where such layers are not computed.
pub fn mtp_names(architecture: &str) -> Option<&'static [NamePairs]> {
    by_name(architecture)?.mtp.map(|rules| rules.names)
}

/// What is known of the chats of the family with this canonical name, beyond its checkpoints.
pub fn chat_rules(architecture: &str) -> Option<&'static ChatRules> {
    by_name(architecture)?.chat.as_ref()
}

/// The family with this canonical name.
fn by_name(architecture: &str) -> Option<&'static Family> {
    all().find(|family| family.name == architecture)
}

fn unknown(path: &Path, found: &str, supported: impl Iterator<Item = &'static str>) -> Error {
    Error::Architecture {
        path: path.to_owned(),
        found: shown(found),
        supported: supported.collect::<Vec<_>>().join(", "),
    }
}

/// Reads the text of a config.json; for `name` and `has_own_head` see [`hf::read`].
pub(crate) fn read_hf(
    text: &str,
    path: &Path,
    name: &str,
    has_own_head: impl FnOnce(&NameTable) -> bool,
) -> Result<HfConfig> {
    let mut map = json::parse_object(text, path)?;
    let family = of_hf(Object::new(path, &map))?;
    hf::fill(&mut map, family);
    hf::read(Object::new(path, &map), family, name, has_own_head)
}

/// Reads the configuration of an open file. `name` is the display name if the file has none.
pub(crate) fn read_gguf(file: &GgufFile, name: &str) -> Result<(ModelConfig, &'static Family)> {
    let metadata = file.metadata();
    let keys = GgufKeys { metadata, prefix: metadata.text("general.architecture")? };
    let family = of_gguf(&keys, file)?;
    Ok((gguf::read(&keys, file, family, name)?, family))
}

impl ModelConfig {
    /// Reads the text of a Hugging Face `config.json`; `path` names it in errors. Embeddings are
    /// tied only if the text says so.
    ///
    /// # Errors
    /// If the family is unknown, or a field is missing, invalid or inconsistent.
    pub fn from_hf_json(text: &str, path: &Path) -> Result<Self> {
        let folder = path.parent().and_then(Path::file_name);
        let name = folder.map_or_else(String::new, |n| n.to_string_lossy().into_owned());
        read_hf(text, path, &name, |_| true).map(|read| read.model)
    }

    /// Reads the metadata of an open GGUF file, a vocabulary without tensors included.
    ///
    /// # Errors
    /// If the family is unknown, or a key is missing, invalid or inconsistent.
    pub fn from_gguf(file: &GgufFile) -> Result<Self> {
        let stem = file.path().file_stem();
        let name = stem.map_or_else(String::new, |n| n.to_string_lossy().into_owned());
        read_gguf(file, &name).map(|(config, _)| config)
    }

    /// A small model of a family with `layers` layers, for tests. It uses every option of the
    /// family, and its sizes are no multiples of SIMD lanes or quant blocks where they need not be.
    pub fn tiny(architecture: &str, layers: usize) -> Option<Self> {
        let family = by_name(architecture)?;
        let mut said = (family.tiny)(layers);
        (family.fixed)(&mut said);
        // The row before that of position 0 is that of the padding token.
        let pad = said.positions.and_then(|table| table.first.checked_sub(1));
        let special = SpecialIds { pad: pad.map(|row| row as u32), ..SpecialIds::default() };
        Some(Self::build(family, format!("tiny-{architecture}"), special, said))
    }

    /// The configuration as config.json in the published style, which cannot express `Factors`.
    ///
    /// # Errors
    /// If config.json cannot express the configuration.
    pub fn to_hf_json(&self) -> Result<Json> {
        self.hf_json(self.family())
    }

    /// Sets the keys of GGUF metadata that describe the model. Divisors of the rotary
    /// frequencies, if there are any, go into the tensor `rope_freqs.weight`.
    ///
    /// # Errors
    /// If GGUF metadata cannot express the configuration.
    pub fn to_gguf(&self, writer: &mut GgufWriter) -> Result<()> {
        self.gguf_keys(self.family(), writer)
    }

    /// Canonical names and shapes of all tensors of a checkpoint of this configuration. Their names
    /// in Hugging Face checkpoints are in the family's table.
    pub fn tensors(&self, form: TensorForm) -> Tensors {
        self.tensors_in(self.family(), form)
    }

    /// Whether Hugging Face checkpoints of this family leave out the 1 of this norm's weights.
    pub(crate) fn is_zero_centred(&self, name: &str) -> bool {
        let HfRules { zero_centred, plain_norms, .. } = self.family().hf;
        zero_centred && delta::is_zero_centred(name, plain_norms)
    }

    /// Which values of a head form a rotary pair in GGUF files of this family.
    pub fn gguf_rope(&self) -> RopeLayout {
        self.family().gguf.rope
    }

    /// Whether GGUF files of this family have the value heads of Gated DeltaNet in tiles of one for
    /// each key head.
    pub fn gguf_is_tiled(&self) -> bool {
        self.family().delta.is_some_and(|files| files.gguf_tiled)
    }

    /// The name in GGUF files of this family of the tensor with this canonical name.
    pub fn gguf_tensor_name(&self, canonical: &str) -> String {
        let family = self.family();
        if names::split_canonical(canonical).is_some_and(|(_, rest)| rest == NGRAM_TABLE) {
            return gguf::NGRAM_TABLE.to_owned();
        }
        let theirs = |name: &str| family.gguf.aliases.iter().find(|(_, known)| *known == name);
        match names::split_canonical(canonical) {
            Some((layer, rest)) => theirs(rest).map_or_else(
                || canonical.to_owned(),
                |(theirs, _)| format!("blk.{layer}.{theirs}"),
            ),
            None => theirs(canonical).map_or(canonical, |(theirs, _)| theirs).to_owned(),
        }
    }
}
