//! `gannet detokenize`: token ids to text.

use super::tokenize::tokenizer;
use crate::args::FileArgs;
use crate::input::read_path;
use crate::output;
use anyhow::{Context, Result, bail};
use serde_json::json;
use std::ffi::OsString;
use std::path::Path;

/// Print the text of token ids
///
/// Nothing is added to the text, except a line end where standard output is a terminal.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder (a tokenizer.json is enough), .gguf file (a vocabulary is enough), owner/name on
    /// the hub, or `builtin`
    model: OsString,
    /// Ids, separated by spaces or commas; `-` for standard input [default: standard input]
    ids: Vec<String>,
    /// Leave special tokens out
    #[arg(long)]
    skip_special: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    files: FileArgs,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let tokenizer = tokenizer(&args.files.locate(&args.model)?, &args.files)?;
    let given = match args.ids.join(" ") {
        ids if args.ids.is_empty() || ids == "-" => read_path(Path::new("-"))?,
        ids => ids,
    };
    let ids = parse_ids(&given)?;
    let size = tokenizer.vocab_size();
    if let Some(id) = ids.iter().find(|&&id| id as usize >= size) {
        bail!("expected ids of the vocabulary of {size} tokens, found {id}");
    }
    let text = tokenizer.decode(&ids, args.skip_special);
    if args.json {
        output::json(&json!({ "ids": ids, "text": text }))
    } else {
        output::exact(&text)
    }
}

fn parse_ids(text: &str) -> Result<Vec<u32>> {
    let between = |c: char| c.is_whitespace() || matches!(c, ',' | '[' | ']');
    let words = text.split(between).filter(|word| !word.is_empty());
    words.map(|word| word.parse().with_context(|| format!("{word}: not a token id"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_may_be_a_line_or_a_json_array() {
        assert_eq!(parse_ids("1 2\n3").unwrap(), [1, 2, 3]);
        assert_eq!(parse_ids("[1, 2,3]").unwrap(), [1, 2, 3]);
        assert_eq!(parse_ids("1 x").unwrap_err().to_string(), "x: not a token id");
        assert!(parse_ids("-1").is_err());
    }
}
