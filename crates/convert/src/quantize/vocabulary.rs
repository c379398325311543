//! The vocabulary and chat templates of a checkpoint in Hugging Face's layout as metadata of a
//! GGUF file.
//!
//! Invariant: the written vocabulary tokenizes like the source, or is refused: a probe text goes
//! through both before any weight is written.

use super::{pre, sentence_piece, subwords};
use anyhow::{Context, Result, bail};
use formats::gguf::{Array, GgufFile, GgufWriter, Value};
use serde_json::Value as Json;
use std::path::Path;
use text::raw_json::{RawMerge, RawTokenizer};
use text::{EncodeOptions, GgufOptions, TextAssets, TokenKind, Tokenizer};

/// Maximum size of a tokenizer.json in bytes; published ones take some tens of megabytes.
const MAX_BYTES: u64 = 256 << 20;
/// Maximum number of special tokens in the probe.
const PROBED_TOKENS: usize = 64;
const COMPOSES: &str = "the source composes characters (NFC), for which GGUF files have no rule: \
    text that is not composed tokenizes differently";
/// Probe text: words, contractions, digits, white space, punctuation, scripts and code.
const PROBE: &str = "Hello world! I'M sure they'll've 12345 3.14 x=1\n\n\tfn main() { }  \r\n \
    naïve Möwe Ελλάδα Привет 你好，世界 こんにちは 한국어 🐦👩‍👩‍👧 HelloWorld's don't -- ... $5 a/b\n  end  ";

/// The source of a vocabulary.
#[derive(Debug)]
pub(super) struct VocabularySource<'a> {
    pub assets: &'a TextAssets,
    /// The tokenizer.json that the assets were read from.
    pub file: &'a Path,
    /// Rows of the embedding: that many tokens are written.
    pub rows: usize,
    /// Tokens that end an answer.
    pub eos: &'a [u32],
    /// The pre-tokenizer that the user named.
    pub pre: Option<&'a str>,
    /// Whether the model is an encoder.
    pub encoder: bool,
}

/// Sets the keys of the vocabulary and the templates. Returns a note about what is lost.
pub(super) fn write(
    source: &VocabularySource,
    header: &mut GgufWriter,
) -> Result<Option<&'static str>> {
    let text = formats::read_text(source.file, MAX_BYTES)?;
    let problem =
        || format!("{}: cannot become the vocabulary of a GGUF file", source.file.display());
    let raw: RawTokenizer = serde_json::from_str(&text).with_context(problem)?;
    source.fill(&raw, header).and_then(|()| source.probe(&raw)).with_context(problem)?;
    let of_bytes = is_bpe(&raw) && !raw.model.byte_fallback;
    let composes = of_bytes && !raw.normalizer.is_null() && !source.encoder;
    Ok(composes.then_some(COMPOSES))
}

fn is_bpe(raw: &RawTokenizer) -> bool {
    raw.model.kind.as_deref().is_none_or(|kind| kind == "BPE")
}

impl VocabularySource<'_> {
    fn fill(&self, raw: &RawTokenizer, header: &mut GgufWriter) -> Result<()> {
        let kind = raw.model.kind.as_deref().unwrap_or("BPE");
        match (kind, raw.model.byte_fallback) {
            ("BPE", false) => self.byte_level(raw, header)?,
            ("BPE", true) | ("WordPiece" | "Unigram", _) if self.pre.is_some() => {
                bail!("--pre: a vocabulary of {kind} has no pre-tokenizer to name")
            }
            ("BPE", true) => {
                sentence_piece::write(&self.assets.tokenizer, self.rows, raw, header)?;
            }
            ("WordPiece", _) => subwords::word_pieces(raw, header)?,
            ("Unigram", false) => subwords::pieces(raw, self.rows, header)?,
            _ => bail!("model.type: expected BPE, found {}", kind.escape_default()),
        }
        self.tokens(kind == "WordPiece", header)?;
        self.special(header)?;
        if let Some(id) = subwords::unknown(raw, &self.assets.tokenizer) {
            header.set("tokenizer.ggml.unknown_token_id", Value::U32(id));
        }
        match self.encoder {
            true => subwords::around(&self.assets.tokenizer, header)?,
            false => self.affixes(header)?,
        }
        for name in self.assets.templates.names() {
            let key = match name {
                "default" => "tokenizer.chat_template".to_owned(),
                name => format!("tokenizer.chat_template.{name}"),
            };
            let source = self.assets.templates.source(name).unwrap_or_default();
            header.set(&key, Value::String(source.to_owned()));
        }
        Ok(())
    }

    fn byte_level(&self, raw: &RawTokenizer, header: &mut GgufWriter) -> Result<()> {
        check_normalizer(&raw.normalizer)?;
        let composed = self.encoder && raw.normalizer["type"] == "NFC";
        let known = || {
            let name = pre::name(&raw.pre_tokenizer, raw.model.ignore_merges)?;
            Some(if composed && name == "gpt-2" { "modern-bert" } else { name })
        };
        let pre = self
            .pre
            .or_else(known)
            .context("pre_tokenizer: it is not a known one; --pre NAME names the closest")?;
        let merge = |RawMerge(left, right): &RawMerge| {
            if left.contains(' ') || right.contains(' ') {
                bail!("model.merges: \"{left}\" and \"{right}\": a merge cannot hold spaces");
            }
            Ok(format!("{left} {right}"))
        };
        let merges = raw.model.merges.iter().map(merge).collect::<Result<Vec<_>>>()?;
        header.set("tokenizer.ggml.model", Value::String("gpt2".into()));
        header.set("tokenizer.ggml.pre", Value::String(pre.to_owned()));
        let merges = Value::Array(Array::Strings(merges.into_iter().collect()));
        header.set("tokenizer.ggml.merges", merges);
        Ok(())
    }

    /// Texts and types, one for each row of the embedding. Words have marks in WordPiece.
    fn tokens(&self, marks: bool, header: &mut GgufWriter) -> Result<()> {
        let (tokenizer, rows) = (&self.assets.tokenizer, self.rows);
        let found = tokenizer.vocab_size();
        if found > rows {
            bail!("expected at most one token per embedding ({rows}), found {found}");
        }
        let ids = 0..rows as u32;
        let texts = ids.clone().map(|id| match tokenizer.id_to_token(id) {
            Some(text) if marks => subwords::marked(text, tokenizer.token_kind(id)),
            Some(text) => text.to_owned(),
            None => format!("[PAD{id}]"),
        });
        let unknown = tokenizer.special.unk;
        let types = ids.map(|id| match tokenizer.token_kind(id) {
            Some(TokenKind::Special) if Some(id) == unknown => 2,
            Some(TokenKind::Normal) => 1,
            Some(TokenKind::Special) => 3,
            Some(TokenKind::Added) => 4,
            Some(TokenKind::Unused) | None => 5,
            Some(TokenKind::Byte) => 6,
        });
        let texts = Value::Array(Array::Strings(texts.collect()));
        header.set("tokenizer.ggml.tokens", texts);
        header.set("tokenizer.ggml.token_type", Value::Array(Array::I32(types.collect())));
        Ok(())
    }

    /// Sets the ids with a role. Of the end tokens, the tokenizer's own comes first.
    fn special(&self, header: &mut GgufWriter) -> Result<()> {
        let ids = self.assets.tokenizer.special;
        let mut ends: Vec<u32> = ids.eos.into_iter().collect();
        ends.extend(self.eos.iter().filter(|id| Some(**id) != ids.eos));
        let roles = ["eos", "eot", "eom"].into_iter().zip(ends.iter().copied().map(Some));
        let others = [("bos", ids.bos), ("padding", ids.pad), ("unknown", ids.unk)];
        for (role, id) in roles.chain(others) {
            let Some(id) = id else { continue };
            if id as usize >= self.rows {
                bail!("the {role} token {id} is outside the vocabulary of {}", self.rows);
            }
            header.set(&format!("tokenizer.ggml.{role}_token_id"), Value::U32(id));
        }
        if ends.len() > 3 {
            let rest = &ends[3..];
            tracing::warn!(?rest, "a GGUF file names three tokens that end an answer, not these");
        }
        Ok(())
    }

    fn affixes(&self, header: &mut GgufWriter) -> Result<()> {
        let ids = self.assets.tokenizer.special;
        let options = EncodeOptions { add_special: true, parse_special: false };
        let added = self.assets.tokenizer.encode("", options)?;
        let prefix = self.assets.tokenizer.prefix_ids();
        let suffix = &added[prefix.len().min(added.len())..];
        for (key, found, id) in [("bos", prefix, ids.bos), ("eos", suffix, ids.eos)] {
            let add = match found {
                [] => false,
                [one] if Some(*one) == id => true,
                _ => bail!("post_processor: expected the {key} token, found the tokens {found:?}"),
            };
            header.set(&format!("tokenizer.ggml.add_{key}_token"), Value::Bool(add));
        }
        Ok(())
    }

    /// Tokenizes a text with the source and with the written vocabulary. A difference is an error,
    /// or a warning where the user chose the pre-tokenizer.
    fn probe(&self, raw: &RawTokenizer) -> Result<()> {
        let mut vocabulary = GgufWriter::new();
        self.fill(raw, &mut vocabulary)?;
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        let path = folder.path().join("vocabulary.gguf");
        vocabulary.create(&path)?.finish()?;
        let made = Tokenizer::from_gguf(&GgufFile::open(&path)?, &GgufOptions::default())?;
        let problem = self.difference(&made)?;
        match (problem, self.pre) {
            (None, _) => Ok(()),
            (Some(problem), Some(pre)) => {
                tracing::warn!("with --pre {pre} {problem}");
                Ok(())
            }
            (Some(problem), None) => bail!("the tokenizer cannot be converted exactly: {problem}"),
        }
    }

    fn difference(&self, made: &Tokenizer) -> Result<Option<String>> {
        let source = &self.assets.tokenizer;
        let special = (0..self.rows as u32).filter(|id| source.is_special(*id));
        let special = special.filter_map(|id| source.id_to_token(id)).take(PROBED_TOKENS);
        let mixed: String = special.map(|token| format!("{token}a b")).collect();
        let options = EncodeOptions { add_special: true, parse_special: true };
        for text in PROBE.split_inclusive(' ').chain([PROBE, &mixed, ""]) {
            let (expected, found) = (source.encode(text, options)?, made.encode(text, options)?);
            if expected != found {
                return Ok(Some(format!("{text:?} becomes {found:?}, expected {expected:?}")));
            }
            let (first, most) = (&expected[..expected.len().min(9)], usize::MAX);
            let pairs = [source, made].map(|it| it.encode_pair(first, text, most));
            let [expected_pair, found_pair] = pairs;
            if self.encoder && expected_pair? != found_pair? {
                return Ok(Some(format!(
                    "{text:?} becomes another pair with the tokens {first:?}"
                )));
            }
            let (expected, found) = (source.decode(&expected, false), made.decode(&found, false));
            if expected != found {
                return Ok(Some(format!("{text:?} comes back as {found:?}, not {expected:?}")));
            }
        }
        Ok(None)
    }
}

/// Checks that the normalizer is NFC, which GGUF files cannot express, or none.
fn check_normalizer(normalizer: &Json) -> Result<()> {
    let kind = normalizer["type"].as_str().unwrap_or_default();
    let empty =
        kind == "Sequence" && normalizer["normalizers"].as_array().is_some_and(Vec::is_empty);
    match normalizer.is_null() || kind == "NFC" || empty {
        true => Ok(()),
        false => bail!("normalizer: expected NFC or none, found {}", kind.escape_default()),
    }
}
