//! The textual files of a model: tokenizer, chat templates, special tokens.

use crate::config_tokens;
use crate::error::{Result, TextError};
use crate::files::{optional_json, optional_text};
use crate::gguf::GgufOptions;
use crate::guard::{self, PointedPrompt, RenderedPrompt};
use crate::special_tokens::{SpecialIds, SpecialTokens};
use crate::template::ChatTemplate;
use crate::tokenizer::{EncodedText, Tokenizer};
use chrono::NaiveDateTime;
use formats::gguf::{GgufFile, Value as GgufValue};
use formats::{ChatRules, Checkpoint, ModelConfig, families};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

const DEFAULT: &str = "default";
const TOOL_USE: &str = "tool_use";

/// Tokenizer, chat templates and special tokens of a model.
#[derive(Debug)]
pub struct TextAssets {
    /// Encodes and decodes text.
    pub tokenizer: Tokenizer,
    /// Chat templates by name.
    pub templates: Templates,
    /// The variables `bos_token` and so on of templates.
    pub special: SpecialTokens,
}

/// Chat templates by name: those of the checkpoint, or the one that is built in for a family whose
/// checkpoints have none. Their syntax is checked by [`Templates::get`].
#[derive(Debug, Clone, Default)]
pub struct Templates {
    own: BTreeMap<String, String>,
    built_in: Option<&'static ChatRules>,
}

impl TextAssets {
    /// Reads a folder in Hugging Face's layout or a `.gguf` file.
    ///
    /// # Errors
    /// If a file cannot be read, or its tokenizer or a template is not supported.
    pub fn load(path: &Path, options: &GgufOptions) -> Result<Self> {
        if path.is_dir() {
            return Self::from_folder(path);
        }
        Self::from_gguf(&GgufFile::open(path)?, options)
    }

    /// Reads the textual files of an open checkpoint.
    ///
    /// # Errors
    /// If a file cannot be read, or its tokenizer or a template is not supported.
    pub fn from_checkpoint(checkpoint: &Checkpoint, options: &GgufOptions) -> Result<Self> {
        match checkpoint.gguf() {
            Some(gguf) => Self::from_gguf(gguf, options),
            None => Self::from_folder(checkpoint.folder().unwrap_or(Path::new(""))),
        }
    }

    /// Reads a folder in Hugging Face's layout.
    ///
    /// # Errors
    /// If a file cannot be read, or its tokenizer or a template is not supported.
    pub fn from_folder(folder: &Path) -> Result<Self> {
        let config = config_tokens::read(folder)?;
        let tokenizer = Tokenizer::from_folder_with(folder, &config)?;
        let special = SpecialTokens::from_names(config_tokens::texts_of_roles(&config));
        let templates = Templates::from_folder(folder, &config)?;
        Ok(TextAssets { tokenizer, templates, special })
    }

    /// Reads the vocabulary and templates of a GGUF file.
    ///
    /// # Errors
    /// If its tokenizer is not supported.
    pub fn from_gguf(file: &GgufFile, options: &GgufOptions) -> Result<Self> {
        let tokenizer = Tokenizer::from_gguf(file, options)?;
        let text = |id: Option<u32>| Some(tokenizer.id_to_token(id?)?.to_owned());
        let SpecialIds { bos, eos, pad, unk } = tokenizer.special;
        let [bos, eos, pad, unk] = [bos, eos, pad, unk].map(text);
        let special = SpecialTokens { bos, eos, pad, unk, ..SpecialTokens::default() };
        Ok(TextAssets { templates: Templates::from_gguf(file), special, tokenizer })
    }

    /// Renders a chat with a template; control tokens in the text of the input stay text.
    ///
    /// # Errors
    /// If the template fails or exceeds its budget.
    pub fn render(
        &self,
        template: &ChatTemplate,
        input: &Value,
        now: Option<NaiveDateTime>,
    ) -> Result<RenderedPrompt> {
        let marked = guard::mark(input, &self.tokenizer);
        Ok(guard::unmark(&template.render(&marked, &self.special, now)?))
    }

    /// Returns the end of a rendered chat, from the end of the turn before the message `at`: the
    /// last of `ends` before the content of that message, or where the turn calls nothing and ends
    /// in another way, what follows its content. `None` if the place cannot be found.
    ///
    /// # Errors
    /// If the template fails or exceeds its budget.
    pub fn render_behind(
        &self,
        template: &ChatTemplate,
        input: &Value,
        at: usize,
        ends: &[&str],
    ) -> Result<Option<RenderedPrompt>> {
        let marked = guard::mark(input, &self.tokenizer);
        let rendered = guard::unmark(&template.render(&marked, &self.special, None)?);
        // A place is right only if the point does not change the text before it.
        let place = |at: usize| {
            let pointed = self.pointed(template, marked.clone(), &[at]).ok()?;
            let place = pointed.places[0]?;
            (pointed.prompt.text.get(..place) == rendered.text.get(..place)).then_some(place)
        };
        let Some(next) = place(at) else { return Ok(None) };
        let end = rendered.last_end(ends, next);
        let earlier =
            |count| at.checked_sub(count).filter(|at| input["messages"].get(at).is_some());
        let Some(turn) = earlier(1) else { return Ok(None) };
        let message = &input["messages"][turn];
        // An end before what the turn says is that of an earlier one.
        let start = match (calls(message), place(turn)) {
            (true, _) => end,
            (false, Some(begin)) => {
                let content = message["content"].as_str().unwrap_or_default().trim();
                let after = || rendered.text[begin..next].strip_prefix(content).map(str::len);
                end.filter(|end| *end >= begin).or_else(|| Some(next - after()?))
            }
            (false, None) => {
                let begin = earlier(2).and_then(place);
                end.filter(|end| begin.is_some_and(|begin| *end >= begin))
            }
        };
        Ok(start.map(|start| rendered.part(start..rendered.text.len())))
    }

    /// Renders a chat with a template, and finds where the contents of `messages`, given by index,
    /// begin in the text. At most [`MAX_POINTS`] are found. A template that looks at the first
    /// characters of a content may render another text than without points.
    ///
    /// [`MAX_POINTS`]: crate::MAX_POINTS
    ///
    /// # Errors
    /// If the template fails or exceeds its budget.
    pub fn render_pointed(
        &self,
        template: &ChatTemplate,
        input: &Value,
        messages: &[usize],
    ) -> Result<PointedPrompt> {
        self.pointed(template, guard::mark(input, &self.tokenizer), messages)
    }

    fn pointed(
        &self,
        template: &ChatTemplate,
        mut marked: Value,
        messages: &[usize],
    ) -> Result<PointedPrompt> {
        for (number, &at) in messages.iter().enumerate() {
            guard::point(&mut marked, number, at);
        }
        let rendered = template.render(&marked, &self.special, None)?;
        Ok(guard::unpoint(&rendered, messages.len()))
    }

    /// Returns the ids of a rendered prompt. Templates write the begin-of-sequence token.
    ///
    /// # Errors
    /// If the text cannot be encoded.
    pub fn encode(&self, prompt: &RenderedPrompt) -> Result<Vec<u32>> {
        Ok(self.encode_within(prompt, usize::MAX)?.ids)
    }

    /// Returns the ids of a rendered prompt, as [`Tokenizer::encode_within`] does those of a text.
    ///
    /// # Errors
    /// If the text cannot be encoded.
    pub fn encode_within(&self, prompt: &RenderedPrompt, most: usize) -> Result<EncodedText> {
        self.tokenizer.encode_guarded(&prompt.text, &prompt.literals, most)
    }
}

impl Templates {
    /// Returns the template `name`, else `tool_use` if there are tools, else `default`.
    ///
    /// # Errors
    /// If there is no such template, or its syntax is wrong.
    pub fn get(&self, name: Option<&str>, tools: bool) -> Result<ChatTemplate> {
        let for_tools = (tools && self.own.contains_key(TOOL_USE)).then_some(TOOL_USE);
        let wanted = name.or(for_tools).unwrap_or(DEFAULT);
        match self.source(wanted) {
            Some(source) => ChatTemplate::from_source(source),
            None => Err(TextError::NoTemplate {
                wanted: wanted.into(),
                available: self.names().collect::<Vec<_>>().join(", "),
            }),
        }
    }

    /// Returns the names of the checkpoint's templates.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.own.keys().map(String::as_str)
    }

    /// Returns the source of a template.
    pub fn source(&self, name: &str) -> Option<&str> {
        let built_in = self.built_in.filter(|_| name == DEFAULT).map(|rules| rules.template);
        self.own.get(name).map(String::as_str).or(built_in)
    }

    /// Returns the sources of all templates.
    pub fn sources(&self) -> impl Iterator<Item = &str> {
        let built_in = self.built_in.map(|rules| rules.template);
        self.own.values().map(String::as_str).chain(built_in)
    }

    /// Whether the template is the one that is built in for the family.
    pub fn is_built_in(&self) -> bool {
        self.built_in.is_some()
    }

    /// Returns the template that is built in for a family, if there are no others.
    pub fn or_built_in(mut self, family: &str) -> Self {
        if self.own.is_empty() {
            self.built_in = families::chat_rules(family);
        }
        self
    }

    /// Reads the templates of a folder in Hugging Face's layout.
    ///
    /// # Errors
    /// If a file cannot be read, or a template has a syntax error.
    pub fn of_folder(folder: &Path) -> Result<Self> {
        Self::from_folder(folder, &optional_json(&folder.join("tokenizer_config.json"))?)
    }

    /// Reads template files, else the templates of `tokenizer_config.json`.
    fn from_folder(folder: &Path, config: &Value) -> Result<Self> {
        let mut templates = Templates::default();
        if let Some(source) = optional_text(&folder.join("chat_template.jinja"))? {
            templates.own.insert(DEFAULT.into(), source);
        }
        templates.add_folder(&folder.join("additional_chat_templates"))?;
        if templates.own.is_empty() {
            templates.add_config(&config["chat_template"]);
        }
        if templates.own.is_empty() {
            let old = optional_json(&folder.join("chat_template.json"))?;
            templates.add_config(&old["chat_template"]);
        }
        if templates.own.is_empty() {
            templates.built_in = family_of(folder).as_deref().and_then(families::chat_rules);
        }
        Ok(templates)
    }

    fn add_folder(&mut self, folder: &Path) -> Result<()> {
        let entries = match std::fs::read_dir(folder) {
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(());
            }
            entries => entries.map_err(|e| TextError::io(folder, e))?,
        };
        for entry in entries {
            let path = entry.map_err(|e| TextError::io(folder, e))?.path();
            let name = path.file_stem().and_then(|s| s.to_str()).map(str::to_owned);
            let jinja = path.extension().is_some_and(|e| e == "jinja");
            if let (true, Some(name), Some(source)) = (jinja, name, optional_text(&path)?) {
                self.own.insert(name, source);
            }
        }
        Ok(())
    }

    /// Adds a template, or a list of named templates.
    fn add_config(&mut self, value: &Value) {
        if let Some(source) = value.as_str() {
            self.own.insert(DEFAULT.into(), source.into());
        }
        for item in value.as_array().into_iter().flatten() {
            if let (Some(name), Some(source)) = (item["name"].as_str(), item["template"].as_str()) {
                self.own.insert(name.into(), source.into());
            }
        }
    }

    /// Reads the templates of a GGUF file.
    pub fn from_gguf(file: &GgufFile) -> Self {
        let mut templates = Templates::default();
        for (key, value) in file.metadata().iter() {
            let rest = key.strip_prefix("tokenizer.chat_template");
            if let (Some(rest), GgufValue::String(source)) = (rest, value) {
                let name = rest.strip_prefix('.').unwrap_or(rest);
                let name = if name.is_empty() { DEFAULT } else { name };
                templates.own.insert(name.into(), source.clone());
            }
        }
        if templates.own.is_empty()
            && let Ok(config) = ModelConfig::from_gguf(file)
        {
            return templates.or_built_in(&config.architecture);
        }
        templates
    }
}

/// The family that the configuration of a folder names, if it can be read.
fn family_of(folder: &Path) -> Option<String> {
    let path = folder.join("config.json");
    let text = formats::read_text(&path, formats::MAX_CONFIG_BYTES).ok()?;
    ModelConfig::from_hf_json(&text, &path).ok().map(|config| config.architecture)
}

/// Whether a message has calls.
fn calls(message: &Value) -> bool {
    message["tool_calls"].as_array().is_some_and(|calls| !calls.is_empty())
}
