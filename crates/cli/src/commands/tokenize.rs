//! `gannet tokenize`: text to token ids.

use crate::args::FileArgs;
use crate::input::TextSource;
use crate::output;
use anyhow::{Context, Result};
use formats::gguf::GgufFile;
use serde_json::json;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use text::{EncodeOptions, Tokenizer};

/// Print the token ids of a text
///
/// The ids are printed on one line, separated by spaces. Special tokens are neither added nor
/// parsed, unless --special is given.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder (a tokenizer.json is enough), .gguf file (a vocabulary is enough), owner/name on
    /// the hub, or `builtin`
    model: OsString,
    /// The text [default: standard input]
    #[arg(allow_hyphen_values = true)]
    text: Option<String>,
    /// Read the text from standard input
    #[arg(long, conflicts_with_all = ["text", "file"])]
    stdin: bool,
    /// Read the text from a file
    #[arg(short, long, value_name = "FILE", conflicts_with = "text")]
    file: Option<PathBuf>,
    /// Add the special tokens around a text, and parse the special tokens in it
    #[arg(long)]
    special: bool,
    /// Print one JSON object with the ids and the text of each token
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    files: FileArgs,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let argument = if args.stdin { Some("-") } else { args.text.as_deref() };
    let source = TextSource { argument, file: args.file.as_ref() };
    let text = source.read("tokenize", "a text is missing")?;
    let tokenizer = tokenizer(&args.files.locate(&args.model)?, &args.files)?;
    let options = EncodeOptions { add_special: args.special, parse_special: args.special };
    let ids = tokenizer.encode(&text, options)?;
    if args.json {
        let token = |&id: &u32| tokenizer.id_to_token(id).unwrap_or_default();
        let tokens: Vec<&str> = ids.iter().map(token).collect();
        return output::json(&json!({"ids": ids, "tokens": tokens}));
    }
    output::lines([ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")])
}

/// The tokenizer of a folder or a `.gguf` file, without opening weights where possible.
pub(crate) fn tokenizer(path: &Path, files: &FileArgs) -> Result<Tokenizer> {
    let tokenizer = match gguf(path)? {
        Some(gguf) => Tokenizer::from_gguf(&gguf, &files.gguf_options()),
        None => Tokenizer::from_folder(&folder(path)),
    };
    tokenizer.with_context(|| format!("cannot read the tokenizer of {}", path.display()))
}

/// The GGUF file at `path`, or in the folder `path` where it has no tokenizer.json.
pub(crate) fn gguf(path: &Path) -> Result<Option<GgufFile>> {
    let is_gguf = |path: &Path| path.extension().is_some_and(|extension| extension == "gguf");
    if is_gguf(path) {
        return Ok(Some(GgufFile::open(path)?));
    }
    if !path.is_dir() || path.join("tokenizer.json").exists() {
        return Ok(None);
    }
    let entries = path.read_dir().with_context(|| format!("cannot list {}", path.display()))?;
    let mut files: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| is_gguf(path)).collect();
    files.sort();
    Ok(files.first().map(|path| GgufFile::open(path)).transpose()?)
}

/// The folder with the tokenizer: the model's folder, or that of its weights.
pub(crate) fn folder(path: &Path) -> PathBuf {
    match path.is_dir() {
        true => path.to_owned(),
        false => path.parent().unwrap_or(Path::new("")).to_owned(),
    }
}
